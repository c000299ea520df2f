use super::*;
use crate::sampler::{EVERY, MonitorTargets, Sampler, StoreKind};
use crate::store::testing::watched;
use crate::testing::{max, series, sum};
use floodmark_truth::store::StartedStore;
use std::net::TcpStream;
use std::time::Instant;

const SUBJECT: &str = "cassandra";

fn row(keyspace: &str, table: &str, figures: [f64; 3]) -> [CqlValue; 5] {
    let [count, p50, p99] = figures.map(CqlValue::Number);
    let text = |text: &str| CqlValue::Text(text.to_owned());
    [text(keyspace), text(table), count, p50, p99]
}

#[test]
fn reports_sixteen_user_tables_by_name_and_sums_the_rest() {
    let (mut figures, mut names) = (Figures::default(), Vec::new());
    let mut rows = vec![
        row("system", "local", [9.0, 1.0, 1.0]),
        row("system_auth", "roles", [9.0, 1.0, 1.0]),
        row("systems", "users", [3.0, 0.5, 2.0]),
        row("bars", "untouched", [0.0; 3]),
    ];
    rows.extend((0..17).map(|n| {
        row(
            "bars",
            &format!("t{n}"),
            [10.0 + f64::from(n), 1.0, f64::from(n)],
        )
    }));
    add_tables(&mut figures, &mut names, TableOperation::LocalWrite, &rows);
    assert_eq!(names.len(), MAX_TABLES);
    let found = figures.metrics();
    let of = |metric: &str| {
        let place = found.iter().position(|found| found.name() == metric);
        figures.values()[place.unwrap_or_else(|| panic!("no {metric}"))]
    };
    assert_eq!(of("local_write count systems.users"), 3.0);
    assert_eq!(of("local_write p99 bars.t3"), 3.0);
    assert_eq!(of("local_write count of other tables"), 25.0 + 26.0);
    assert_eq!(of("local_write p99 of the slowest other table"), 16.0);
    let strange =
        |metric: &&Metric| metric.name().contains("roles") || metric.name().contains("untouched");
    assert_eq!(found.iter().filter(strange).count(), 0);
    // A level that is missing becomes 0; a counter keeps its value.
    figures.begin();
    add_tables(&mut figures, &mut names, TableOperation::LocalWrite, &[]);
    assert_eq!(figures.values()[..3], [3.0, 0.0, 0.0]);
}

#[test]
fn samples_a_real_cassandra() {
    let Some(store) = StartedStore::cassandra() else {
        return;
    };
    let connect = || {
        let stream = TcpStream::connect(store.address).unwrap();
        CqlConnection::open(stream, Duration::from_secs(60)).unwrap()
    };
    let mut client = connect();
    for statement in [
        "CREATE KEYSPACE bars WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE bars.bar (id int PRIMARY KEY, name text)",
    ] {
        client.rows(statement).unwrap();
    }
    let watch = MonitorTargets {
        server_pid: Some(std::process::id()),
        store: Some(watched(&store, "cassandra", StoreKind::Cassandra)),
        ..MonitorTargets::default()
    };
    let sampler = Sampler::start_at(Instant::now(), EVERY, watch);
    sampler.measuring();
    // The first queries are slow.
    std::thread::sleep(Duration::from_secs(3));
    for id in 0..200 {
        client
            .rows(&format!(
                "INSERT INTO bars.bar (id, name) VALUES ({id}, 'bar')"
            ))
            .unwrap();
    }
    for id in 0..50 {
        let rows = client
            .rows(&format!("SELECT name, id FROM bars.bar WHERE id = {id}"))
            .unwrap();
        assert_eq!(
            rows,
            [[
                CqlValue::Text("bar".to_owned()),
                CqlValue::Integer(id.into())
            ]]
        );
    }
    std::thread::sleep(Duration::from_millis(1500));
    let (observed, missing) = sampler.stop();

    assert!(
        !missing.iter().any(|line| line.contains("cassandra")),
        "{missing:?}"
    );
    let counted = |metric: &str| sum(&observed, SUBJECT, metric);
    assert_eq!(counted("coordinator_write count bars.bar"), 200.0);
    assert_eq!(counted("local_write count bars.bar"), 200.0);
    assert_eq!(counted("coordinator_read count bars.bar"), 50.0);
    assert_eq!(
        counted("regular_statements_executed"),
        250.0,
        "floodmark's own queries are subtracted"
    );
    assert!(max(&observed, SUBJECT, "coordinator_write p99 bars.bar") > 0.0);
    assert_eq!(
        max(&observed, SUBJECT, "connections"),
        1.0,
        "only the test's connection"
    );
    let pool = series(&observed, SUBJECT, "Native-Transport-Requests active");
    assert_eq!((pool.step_ms, pool.unit()), (1000, "tasks".to_owned()));
    assert!(counted("MutationStage pending") >= 0.0);
    assert!(sum(&observed, "store", "user") > 0.0);
    assert!(sum(&observed, "store jvm", "safepoints") > 0.0);
    assert_eq!(observed.store.unwrap().name, "java");

    let error = client.rows("SELECT nothing FROM bars.bar").unwrap_err();
    assert!(error.to_string().starts_with("error 0x2200: "), "{error}");
}
