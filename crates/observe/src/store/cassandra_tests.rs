use super::*;
use crate::sampler::{EVERY, Sampler};
use crate::store::testing::{Started, most, series, sum};
use crate::watch::Watch;
use std::net::TcpStream;
use std::time::Instant;

fn row(keyspace: &str, table: &str, figures: [f64; 3]) -> [Value; 5] {
    let [count, p50, p99] = figures.map(Value::Number);
    let text = |text: &str| Value::Text(text.to_owned());
    [text(keyspace), text(table), count, p50, p99]
}

#[test]
fn tables_of_users_by_name_and_beyond_sixteen_together() {
    let (mut figures, mut names) = (Figures::of(SUBJECT), Vec::new());
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
    take(&mut figures, &mut names, "local_write", &rows);
    assert_eq!(names.len(), MOST_TABLES);
    let found = figures.found();
    let of = |metric: &str| {
        let place = found.iter().position(|subject| subject.metric == metric);
        figures.values()[place.unwrap_or_else(|| panic!("no {metric}"))]
    };
    assert_eq!(of("local_write count systems.users"), 3.0);
    assert_eq!(of("local_write p99 bars.t3"), 3.0);
    assert_eq!(of("local_write count of other tables"), 25.0 + 26.0);
    assert_eq!(of("local_write p99 of the slowest other table"), 16.0);
    let strange = |subject: &&Subject| {
        subject.metric.contains("roles") || subject.metric.contains("untouched")
    };
    assert_eq!(found.iter().filter(strange).count(), 0);
    // What was not told any more is 0, but a counter has stood still.
    figures.begin();
    take(&mut figures, &mut names, "local_write", &[]);
    assert_eq!(figures.values()[..3], [3.0, 0.0, 0.0]);
}

#[test]
fn a_real_cassandra_that_takes_writes() {
    let Some(store) = Started::cassandra() else {
        return;
    };
    let connect = || {
        let stream = TcpStream::connect(store.address).unwrap();
        Connection::open(stream, Duration::from_secs(60)).unwrap()
    };
    let mut client = connect();
    for statement in [
        "CREATE KEYSPACE bars WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE bars.bar (id int PRIMARY KEY, name text)",
    ] {
        client.rows(statement).unwrap();
    }
    let watch = Watch {
        server_pid: Some(std::process::id()),
        store: Some(store.watched()),
        ..Watch::default()
    };
    let sampler = Sampler::start_at(Instant::now(), EVERY, watch);
    sampler.measuring();
    // Its first answers take long.
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
            [[Value::Text("bar".to_owned()), Value::Number(id.into())]]
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
        "our own are taken off"
    );
    assert!(most(&observed, SUBJECT, "coordinator_write p99 bars.bar") > 0.0);
    assert_eq!(
        most(&observed, SUBJECT, "connections"),
        1.0,
        "the test's own"
    );
    let pool = series(&observed, SUBJECT, "Native-Transport-Requests active");
    assert_eq!((pool.step_ms, pool.unit.as_str()), (1000, "tasks"));
    assert!(counted("MutationStage pending") >= 0.0);
    assert!(sum(&observed, "store", "user") > 0.0);
    assert!(sum(&observed, "store jvm", "safepoints") > 0.0);
    assert_eq!(observed.store.unwrap().name, "java");

    let error = client.rows("SELECT nothing FROM bars.bar").unwrap_err();
    assert!(error.to_string().starts_with("error 0x2200: "), "{error}");
}
