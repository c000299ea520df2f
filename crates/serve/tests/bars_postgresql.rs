//! Tests `bars` with a real PostgreSQL server.
#![cfg(feature = "postgresql")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;
#[path = "support/postgresql.rs"]
mod support_postgresql;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_serve::{NativeWorkload, ServeError, Settings, serve};
use serde_json::{Value, json};
use support::{TestClient, TestResponse, TestServer, settings};
use support_postgresql::TestPostgresql;

fn with_store(url: &str) -> Settings {
    Settings {
        store: Some(url.parse().unwrap()),
        ..settings(NativeWorkload::Bars)
    }
}

fn request(name: &str) -> String {
    let body = json!({ "name": name }).to_string();
    format!(
        "POST /bars HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn post(client: &mut TestClient, name: &str) -> TestResponse {
    client.send(request(name));
    client.response()
}

/// Returns the id of an acknowledged bar.
fn stored(response: &TestResponse, name: &str) -> i64 {
    assert_eq!(response.status, 201, "{response:?}");
    let bar: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(bar["name"], name);
    bar["id"].as_i64().unwrap()
}

fn assert_unavailable(response: &TestResponse) {
    assert_eq!(response.status, 503, "{response:?}");
    assert_eq!(response.header("retry-after"), Some("1"));
}

/// Returns the listed bars. Panics if their ids are not in ascending order.
fn list(address: SocketAddr) -> BTreeMap<i64, String> {
    let response = TestClient::connect(address).get("/bars");
    assert_eq!(response.status, 200, "{response:?}");
    let bars: Vec<Value> = serde_json::from_str(&response.body).unwrap();
    let bar = |bar: &Value| {
        let name = bar["name"].as_str().unwrap();
        (bar["id"].as_i64().unwrap(), name.to_owned())
    };
    let bars = Vec::from_iter(bars.iter().map(bar));
    assert!(bars.is_sorted_by(|a, b| a.0 < b.0));
    bars.into_iter().collect()
}

/// Returns the number of bars that the largest statement inserted. All rows inserted by one
/// statement have the same transaction ID.
fn largest_batch(store: &TestPostgresql) -> usize {
    let largest =
        "SELECT max(n) FROM (SELECT count(*) AS n FROM bar GROUP BY xmin::text) AS batches";
    store.execute(largest)[0].parse().unwrap()
}

fn start_error(url: &str) -> String {
    let started = serve(with_store(url), std::future::pending(), |_| {
        panic!("started")
    });
    let error = started.unwrap_err();
    assert!(matches!(error, ServeError::Postgresql(_)), "{error:?}");
    error.to_string()
}

#[test]
fn stores_bars_in_the_table_that_other_systems_use() {
    let Some(store) = TestPostgresql::start() else {
        return;
    };
    let url = store.url("bars", "bars");
    let server = TestServer::start(with_store(&url));
    assert_eq!(server.connect().get("/bars").body, "[]");
    let longest = "é".repeat(255);
    let mut expected = BTreeMap::new();
    let mut client = server.connect();
    for name in [
        "Corner",
        "\"Quoted\\\" \u{1F37A} ☕\n",
        &longest,
        "{a,NULL}",
        "NULL",
    ] {
        let id = stored(&post(&mut client, name), name);
        expected.insert(id, name.to_owned());
        assert_eq!(list(server.address), expected, "stored before the response");
    }
    store.execute("INSERT INTO bar (name) VALUES ('other')");
    let id = expected.keys().last().unwrap() + 1;
    expected.insert(id, "other".to_owned());
    assert_eq!(list(server.address), expected, "lists are not cached");
    server.stop();
    let server = TestServer::start(with_store(&url));
    assert_eq!(list(server.address), expected);
}

#[test]
fn each_id_of_a_large_batch_belongs_to_its_name() {
    const CLIENTS: usize = 300;
    let Some(store) = TestPostgresql::start() else {
        return;
    };
    let mut settings = with_store(&store.url("bars", "bars"));
    // The inserts wait longer than the default maximum queueing delay.
    settings.limits.max_wait = Duration::from_secs(60);
    let server = TestServer::start(settings);
    let address = server.address;
    thread::scope(|scope| {
        // While the table is locked, inserts wait, but lists do not.
        let lock = scope.spawn(|| {
            store.execute("BEGIN; LOCK TABLE bar IN EXCLUSIVE MODE; SELECT pg_sleep(2); COMMIT");
        });
        let is_locked =
            "SELECT 1 FROM pg_locks WHERE mode = 'ExclusiveLock' AND relation = 'bar'::regclass";
        while store.execute(is_locked).is_empty() {
            thread::sleep(Duration::from_millis(10));
        }
        let clients = (0..CLIENTS).map(|n| {
            scope.spawn(move || {
                let name = format!("name-{}", n * 7919 % CLIENTS);
                (
                    stored(&post(&mut TestClient::connect(address), &name), &name),
                    name,
                )
            })
        });
        let clients = Vec::from_iter(clients);
        thread::sleep(Duration::from_millis(300));
        assert!(list(address).is_empty());
        assert!(!lock.is_finished(), "the list waited for the inserts");
        let added = clients.into_iter().map(|client| client.join().unwrap());
        let added = BTreeMap::from_iter(added);
        assert_eq!(added.len(), CLIENTS);
        assert_eq!(list(address), added);
    });
    let largest = largest_batch(&store);
    assert!(largest > CLIENTS / 4, "{largest}");
}

#[test]
fn loses_no_acknowledged_bar_when_postgresql_is_killed() {
    const ROUNDS: usize = 3;
    const CLIENTS: usize = 8;
    let Some(mut store) = TestPostgresql::start() else {
        return;
    };
    let server = TestServer::start(with_store(&store.url("bars", "bars")));
    let address = server.address;
    let is_over = AtomicBool::new(false);
    let count = AtomicU64::new(0);
    let wait_for_more = || {
        let (begin, before) = (Instant::now(), count.load(Ordering::Relaxed));
        while count.load(Ordering::Relaxed) < before + 100 {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "no bar was stored"
            );
            thread::sleep(Duration::from_millis(5));
        }
    };
    let results = thread::scope(|scope| {
        let (is_over, count) = (&is_over, &count);
        let client = |client| {
            scope.spawn(move || {
                let mut connection = TestClient::connect(address);
                let (mut acknowledged, mut unknown) = (BTreeMap::new(), Vec::new());
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("{client}-{number}");
                    let response = post(&mut connection, &name);
                    if response.status == 201 {
                        acknowledged.insert(stored(&response, &name), name);
                        count.fetch_add(1, Ordering::Relaxed);
                    } else {
                        assert_unavailable(&response);
                        unknown.push(name);
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                (acknowledged, unknown)
            })
        };
        let clients = Vec::from_iter((0..CLIENTS).map(client));
        for _ in 0..ROUNDS {
            wait_for_more();
            store.kill();
            let mut client = TestClient::connect(address);
            assert_unavailable(&post(&mut client, "refused"));
            assert_unavailable(&client.get("/bars"));
            store.restart();
        }
        wait_for_more();
        is_over.store(true, Ordering::Relaxed);
        Vec::from_iter(clients.into_iter().map(|client| client.join().unwrap()))
    });
    let mut listed = list(address);
    let mut unknown = vec!["refused".to_owned(); ROUNDS];
    let mut refused = 0;
    for (acknowledged, names) in results {
        for (id, name) in acknowledged {
            assert_eq!(listed.remove(&id), Some(name));
        }
        refused += names.len();
        unknown.extend(names);
    }
    assert!(refused > 0);
    for (id, name) in listed {
        let sent = unknown.iter().position(|sent| *sent == name);
        unknown.swap_remove(sent.unwrap_or_else(|| panic!("bar {id} {name:?} was not sent")));
    }
    server.stop();
}

#[test]
fn refusals_during_an_outage_name_it() {
    let Some(mut store) = TestPostgresql::start() else {
        return;
    };
    let mut settings = with_store(&store.url("bars", "bars"));
    settings.limits.max_wait = Duration::from_millis(50);
    let server = TestServer::start(settings);
    let mut client = server.connect();
    store.kill();
    assert_unavailable(&client.get("/bars"));
    assert_unavailable(&post(&mut client, "first"));
    // The listener never responds, so attempts to connect now hang.
    let silent = TcpListener::bind(store.address).unwrap();
    thread::sleep(Duration::from_millis(500));
    let begin = Instant::now();
    for _ in 0..5 {
        for response in [client.get("/bars"), post(&mut client, "second")] {
            assert_unavailable(&response);
            let reason = "the database is not available";
            assert!(response.body.contains(reason), "{response:?}");
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert!(begin.elapsed() < Duration::from_secs(3));
    drop(silent);
    store.restart();
    while post(&mut client, "third").status != 201 {
        assert!(begin.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(10));
    }
    server.stop();
}

#[test]
fn a_stuck_database_gives_503() {
    let Some(store) = TestPostgresql::start() else {
        return;
    };
    let mut settings = with_store(&store.url("bars", "bars"));
    settings.limits.grace = Duration::from_millis(200);
    // The limit applies to receiving a request, not to waiting for the store.
    settings.limits.request = Duration::from_secs(1);
    let server = TestServer::start(settings);
    let mut client = server.connect();
    let lock = |seconds| format!("BEGIN; LOCK TABLE bar; SELECT pg_sleep({seconds}); COMMIT");
    let wait_for_lock = || {
        let is_locked = "SELECT 1 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted";
        while store.execute(is_locked).is_empty() {
            thread::sleep(Duration::from_millis(10));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| store.execute(&lock(7)));
        wait_for_lock();
        assert_unavailable(&post(&mut client, "stuck"));
    });
    stored(&post(&mut client, "next"), "next");

    // The server does not wait for the database after the grace period.
    thread::scope(|scope| {
        scope.spawn(|| store.execute(&lock(4)));
        wait_for_lock();
        // More clients than statements can be in flight, so some requests stay in the queue.
        let mut clients = [(); 20].map(|()| server.connect());
        for client in &mut clients {
            client.send(request("unanswered"));
            client.wait_until_read();
        }
        let begin = Instant::now();
        server.stop();
        assert!(begin.elapsed() < Duration::from_secs(2));
    });
}

#[test]
fn survives_changes_to_the_table() {
    let Some(store) = TestPostgresql::start() else {
        return;
    };
    let server = TestServer::start(with_store(&store.url("bars", "bars")));
    let mut client = server.connect();
    stored(&post(&mut client, "a"), "a");
    assert_eq!(list(server.address).len(), 1);
    store.execute("ALTER TABLE bar ALTER name TYPE text, ALTER name DROP NOT NULL");
    // The first statement of each session fails, because a column's type has changed.
    for _ in 0..2 {
        client.get("/bars");
        post(&mut client, "either");
    }
    stored(&post(&mut client, "b"), "b");
    assert!(list(server.address).len() >= 2);

    let sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = 'floodmark serve' \
        ORDER BY pid";
    let before = store.execute(sessions);
    store.execute("INSERT INTO bar (name) VALUES (NULL)");
    for _ in 0..2 {
        let response = client.get("/bars");
        assert_unavailable(&response);
        assert!(response.body.contains("unexpected rows"), "{response:?}");
    }
    assert_eq!(store.execute(sessions), before, "the sessions remain open");
    store.execute("DELETE FROM bar WHERE name IS NULL");
    assert!(list(server.address).len() >= 2);
    server.stop();
}

#[test]
fn assigns_ids_that_do_not_ascend() {
    const CLIENTS: usize = 50;
    let Some(store) = TestPostgresql::start() else {
        return;
    };
    store.execute(
        "CREATE TABLE bar (id bigint PRIMARY KEY DEFAULT (random() * 1e15)::bigint, name text NOT NULL)",
    );
    let server = TestServer::start(with_store(&store.url("bars", "bars")));
    let address = server.address;
    let added = thread::scope(|scope| {
        let client = |client| {
            scope.spawn(move || {
                let mut connection = TestClient::connect(address);
                let name = |n| format!("{client}-{n}");
                let add = |n| (stored(&post(&mut connection, &name(n)), &name(n)), name(n));
                Vec::from_iter((0..20).map(add))
            })
        };
        let clients = Vec::from_iter((0..CLIENTS).map(client));
        let added = clients
            .into_iter()
            .flat_map(|client| client.join().unwrap());
        BTreeMap::from_iter(added)
    });
    assert_eq!(list(address), added);
    server.stop();
}

#[test]
fn failed_statements_do_not_raise_the_batch_limit() {
    const CLIENTS: usize = 150;
    let Some(store) = TestPostgresql::start_slow(20) else {
        return;
    };
    let server = TestServer::start(with_store(&store.url("bars", "bars")));
    let mut client = server.connect();
    store.execute("ALTER TABLE bar RENAME TO pub");
    for _ in 0..10 {
        assert_unavailable(&post(&mut client, "failed"));
    }
    store.execute("ALTER TABLE pub RENAME TO bar");
    let mut clients = Vec::from_iter((0..CLIENTS).map(|_| server.connect()));
    for client in &mut clients {
        client.send(request("Corner"));
    }
    for client in &mut clients {
        client.response();
    }
    let largest = largest_batch(&store);
    assert!((2..=32).contains(&largest), "{largest}");
    server.stop();
}

#[test]
fn refuses_a_database_that_it_cannot_use() {
    let Some(store) = TestPostgresql::start() else {
        return;
    };
    store.execute("CREATE ROLE guest LOGIN PASSWORD 'kiwi7'");
    store.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
    for (database, columns) in [
        (
            "foreign_table",
            "id bigserial, name text NOT NULL, owner text NOT NULL",
        ),
        ("missing_default", "id bigint, name text"),
        ("short", "id bigserial, name varchar(20)"),
        ("null_name", "id bigserial, name text"),
        (
            "null_id",
            "id bigint DEFAULT nextval('ids'), name text NOT NULL",
        ),
        (
            "check_name",
            "id bigserial, name text NOT NULL CHECK (name <> 'x')",
        ),
        (
            "unique_name",
            "id bigserial PRIMARY KEY, name text UNIQUE NOT NULL",
        ),
        (
            "foreign_key",
            "id bigserial, name text NOT NULL, owner bigint REFERENCES owners",
        ),
        (
            "exclusion",
            "id bigserial, name text NOT NULL, EXCLUDE (name WITH =)",
        ),
        ("unique_index", "id bigserial, name text NOT NULL"),
        (
            "suitable",
            "id bigserial PRIMARY KEY, name text NOT NULL, UNIQUE (id) INCLUDE (name)",
        ),
    ] {
        store.execute(&format!("CREATE DATABASE {database}"));
        store.execute_in(
            database,
            &format!(
                "CREATE SEQUENCE ids; CREATE TABLE owners (id bigint PRIMARY KEY); \
                CREATE TABLE bar ({columns})"
            ),
        );
    }
    store.execute_in(
        "unique_index",
        "CREATE UNIQUE INDEX lower_name ON bar (lower(name))",
    );
    // A foreign key in another table cannot reject inserts into bar.
    let other = "CREATE TABLE beer (bar bigint REFERENCES bar (id))";
    store.execute_in("suitable", other);
    let rules = "host all bars 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(store.cluster().join("pg_hba.conf"), rules).unwrap();
    store.execute("SELECT pg_reload_conf()");
    // PostgreSQL reloads the rules asynchronously.
    thread::sleep(Duration::from_millis(500));
    let address = store.address;
    for (user, database, reasons) in [
        (
            "guest:wr0ng",
            "bars",
            [
                "password authentication failed",
                "correct the user or password",
            ],
        ),
        ("guest", "bars", ["password missing", "add the password"]),
        (
            "guest:kiwi7",
            "bars",
            [
                "permission denied for schema public",
                "grant the user access",
            ],
        ),
        (
            "bars",
            "none",
            ["database \"none\" does not exist", "create the database"],
        ),
        ("bars", "foreign_table", ["column owner", "is required"]),
        ("bars", "missing_default", ["column id", "has no default"]),
        ("bars", "short", ["column name", "character varying(20)"]),
        ("bars", "null_name", ["column name", "can be NULL"]),
        ("bars", "null_id", ["column id", "can be NULL"]),
        (
            "bars",
            "check_name",
            ["bar_name_check", "can refuse inserts"],
        ),
        (
            "bars",
            "unique_name",
            ["bar_name_key", "can refuse inserts"],
        ),
        (
            "bars",
            "foreign_key",
            ["bar_owner_fkey", "can refuse inserts"],
        ),
        ("bars", "exclusion", ["bar_name_excl", "can refuse inserts"]),
        ("bars", "unique_index", ["lower_name", "can refuse inserts"]),
        ("bars", "latin", ["the database encoding is LATIN1", "UTF8"]),
    ] {
        let error = start_error(&store.url(user, database));
        assert!(
            error.starts_with(&format!("PostgreSQL at {address}: ")),
            "{error}"
        );
        for reason in reasons {
            assert!(error.contains(reason), "{error}");
        }
        assert!(
            !error.contains("wr0ng") && !error.contains("kiwi7"),
            "{error}"
        );
    }
    store.execute("CREATE TABLE bar (id bigserial PRIMARY KEY, name text NOT NULL)");
    let url = store.url("guest:kiwi7", "bars");
    assert!(start_error(&url).contains("lacks access to the column id"));
    store.execute("GRANT SELECT, INSERT ON bar TO guest");
    assert!(start_error(&url).contains("USAGE on its id sequence"));
    store.execute("GRANT USAGE ON SEQUENCE bar_id_seq TO guest");
    let server = TestServer::start(with_store(&url));
    stored(&post(&mut server.connect(), "Corner"), "Corner");
    server.stop();
    TestServer::start(with_store(&store.url("bars", "suitable"))).stop();

    let url = |at: SocketAddr| format!("postgresql://u:s3cret@{at}/d");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let error = start_error(&url(silent.local_addr().unwrap()));
    assert!(error.contains(": no response; check"), "{error}");
    let at = silent.local_addr().unwrap();
    drop(silent);
    let begin = Instant::now();
    let error = start_error(&url(at));
    assert!(begin.elapsed() < Duration::from_secs(2));
    assert!(error.contains("Connection refused"), "{error}");
    assert!(
        error.contains("start PostgreSQL, or correct the address"),
        "{error}"
    );
}
