use super::*;
use crate::sampler::{EVERY, MonitorTargets, Sampler, StoreKind};
use crate::store::testing::watched;
use crate::testing::{max, series, sum};
use floodmark_truth::store::StartedStore;

const SUBJECT: &str = "postgresql";

fn row(kind: &str, name: &str, value: f64) -> (String, String, f64) {
    (kind.to_owned(), name.to_owned(), value)
}

#[test]
fn reports_wait_events_by_name_and_sums_the_rest() {
    let (mut figures, mut events) = (Figures::default(), Vec::new());
    add_rows(
        &mut figures,
        &mut events,
        vec![row("session", "active", 2.0), row("count", "commits", 7.0)],
    );
    assert_eq!(figures.values(), [2.0, 7.0]);
    let names = |figures: &Figures| {
        let metrics = figures.metrics().iter();
        metrics
            .map(|metric| metric.name().into_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&figures), ["active", "commits"]);
    figures.begin();
    add_rows(
        &mut figures,
        &mut events,
        vec![row("event", "Lock:tuple", 1.0)],
    );
    assert_eq!(figures.values(), [0.0, 7.0, 1.0], "a missing level is 0");
    assert_eq!(names(&figures)[2], "waiting Lock:tuple");
    figures.begin();
    let many = (0..40).map(|n| row("event", &format!("LWLock:{n}"), 1.0));
    add_rows(&mut figures, &mut events, many.collect());
    assert_eq!(events.len(), MAX_EVENTS);
    let names = names(&figures);
    assert_eq!(names.last().unwrap(), "waiting for others");
    assert_eq!(figures.values().last(), Some(&9.0));
    assert_eq!(figures.values()[2], 0.0);
}

/// Connects to a database, and retries until the server accepts sessions.
fn client(runtime: &Runtime, address: std::net::SocketAddr, database: &str) -> Client {
    let text = format!(
        "host={} port={} user=bars dbname={database}",
        address.ip(),
        address.port()
    );
    let config: Config = text.parse().unwrap();
    let begin = Instant::now();
    runtime.block_on(async {
        loop {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            match config.connect_raw(stream, NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    return client;
                }
                Err(error) => {
                    assert_eq!(error.code(), Some(&SqlState::CANNOT_CONNECT_NOW), "{error}");
                    assert!(begin.elapsed() < Duration::from_secs(60));
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}

fn commits(runtime: &Runtime, client: &Client) -> i64 {
    let query = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'bars'";
    runtime
        .block_on(client.query_one(query, &[]))
        .unwrap()
        .get(0)
}

#[test]
fn samples_a_real_postgresql_with_commits_and_a_lock_wait() {
    let Some(store) = StartedStore::postgresql() else {
        return;
    };
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .unwrap();
    let observer = client(&runtime, store.address, MAINTENANCE);
    let run = |client: &Client, text: &str| runtime.block_on(client.batch_execute(text)).unwrap();
    let holder = client(&runtime, store.address, DATABASE);
    run(&holder, "CREATE TABLE bar (id int PRIMARY KEY, name text)");
    run(&holder, "INSERT INTO bar VALUES (1, 'first')");
    // A session publishes its counters after at most one second.
    std::thread::sleep(Duration::from_millis(1200));
    run(&holder, "BEGIN; UPDATE bar SET name = 'held' WHERE id = 1");
    let before = commits(&runtime, &observer);

    let watch = MonitorTargets {
        server_pid: Some(std::process::id()),
        store: Some(watched(&store, "postgresql", StoreKind::Postgresql)),
        ..MonitorTargets::default()
    };
    let sampler = Sampler::start_at(Instant::now(), EVERY, watch);
    sampler.measuring();
    std::thread::sleep(Duration::from_millis(800));
    let writer = client(&runtime, store.address, DATABASE);
    for id in 2..202 {
        run(
            &writer,
            &format!("INSERT INTO bar VALUES ({id}, repeat('x', 100))"),
        );
    }
    let waiting = client(&runtime, store.address, DATABASE);
    let waits = runtime.block_on(async {
        let update = waiting.batch_execute("UPDATE bar SET name = 'mine' WHERE id = 1");
        timeout(Duration::from_millis(1500), update).await.is_err()
    });
    assert!(waits);
    run(&holder, "ROLLBACK");
    // Ended and idle sessions have published their counters by now.
    drop((writer, waiting, holder));
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1500)).await });
    let after = commits(&runtime, &observer);
    std::thread::sleep(Duration::from_millis(600));
    let (observed, missing) = sampler.stop();

    assert!(
        !missing.iter().any(|line| line.contains("store")),
        "{missing:?}"
    );
    let active = series(&observed, SUBJECT, "active");
    assert_eq!(
        (active.step_ms, active.unit()),
        (250, "sessions".to_owned())
    );
    assert!(after - before >= 200, "{before} {after}");
    assert_eq!(
        sum(&observed, SUBJECT, "commits"),
        (after - before) as f64,
        "floodmark's own commits are not counted"
    );
    assert!(sum(&observed, SUBJECT, "rollbacks") >= 1.0);
    assert!(sum(&observed, SUBJECT, "tup_inserted") >= 200.0);
    assert!(sum(&observed, SUBJECT, "wal_bytes") >= 20_000.0);
    let lock = series(&observed, SUBJECT, "waiting Lock:transactionid");
    assert_eq!(max(&observed, SUBJECT, "waiting Lock:transactionid"), 1.0);
    assert_eq!(max(&observed, SUBJECT, "waiting for locks"), 1.0);
    assert_eq!(lock.values[0], 0.0, "no session waited at the start");
    assert_eq!(lock.values.len(), active.values.len());
    assert_eq!(max(&observed, SUBJECT, "idle in transaction"), 1.0);
    // The test's own session in another database is idle throughout.
    assert!(max(&observed, SUBJECT, "idle") >= 1.0);
    assert!(sum(&observed, "store", "on_cpu") > 0.0);
    assert!(observed.store.unwrap().processes >= 6);
}

#[test]
fn warns_that_commits_include_its_own_without_a_maintenance_database() {
    let Some(store) = StartedStore::postgresql() else {
        return;
    };
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .unwrap();
    let closing = client(&runtime, store.address, DATABASE);
    let close = "ALTER DATABASE postgres ALLOW_CONNECTIONS false";
    runtime.block_on(closing.batch_execute(close)).unwrap();
    let watch = MonitorTargets {
        store: Some(watched(&store, "postgresql", StoreKind::Postgresql)),
        ..MonitorTargets::default()
    };
    let sampler = Sampler::start_at(Instant::now(), EVERY, watch);
    std::thread::sleep(Duration::from_millis(1500));
    let (observed, missing) = sampler.stop();
    let lines = missing
        .iter()
        .filter(|line| line.contains("adds one commit per sample"));
    assert_eq!(lines.count(), 1, "{missing:?}");
    assert!(max(&observed, SUBJECT, "idle") >= 1.0);
}
