//! Tests of a PostgreSQL server that is killed or stuck.

use super::*;

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
    // Lists have their own session, which may not have been replaced yet.
    let begin = Instant::now();
    while TestClient::connect(address).get("/bars").status == 503 {
        assert!(begin.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(10));
    }
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
    // A busy host must not delay the store's refusal for longer than this.
    settings.limits.max_wait = Duration::from_secs(2);
    let server = TestServer::start(settings);
    let mut client = server.connect();
    store.suspend();
    // Either request may be the one that finds its session lost.
    assert_unavailable(&post(&mut client, "first"));
    assert_unavailable(&client.get("/bars"));
    let begin = Instant::now();
    for _ in 0..5 {
        for response in [post(&mut client, "second"), client.get("/bars")] {
            assert_unavailable(&response);
            let reason = "the database is not available";
            assert!(response.body.contains(reason), "{response:?}");
        }
        thread::sleep(Duration::from_millis(100));
    }
    assert!(begin.elapsed() < Duration::from_secs(10));
    store.kill();
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
