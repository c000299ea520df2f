//! Tests of inserts and lists.

use super::*;

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
