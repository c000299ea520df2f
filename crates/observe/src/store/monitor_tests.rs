#![cfg(feature = "postgresql")]

use super::*;
use std::net::TcpListener;

/// A store that accepts connections but never responds, and its listener.
fn silent(kind: StoreKind) -> (TcpListener, MonitoredStore) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = MonitoredStore {
        name: "bars".to_owned(),
        kind: Some(kind),
        address: listener.local_addr().unwrap(),
        pid: None,
    };
    (listener, store)
}

fn start(store: &MonitoredStore) -> StoreMonitor {
    let monitor = StoreMonitor::start(&Root::host(), Instant::now(), store);
    monitor.unwrap().unwrap()
}

#[test]
fn does_not_wait_for_a_store_that_never_responds() {
    for kind in [StoreKind::Cassandra, StoreKind::Postgresql] {
        let (_listener, store) = silent(kind);
        let monitor = start(&store);
        std::thread::sleep(Duration::from_millis(200));
        let begin = Instant::now();
        let results = monitor.stop();
        assert!(begin.elapsed() < GRACE * 3, "{:?}", begin.elapsed());
        assert!(results.observations.is_empty());
        assert_eq!(results.missing.len(), 1, "{:?}", results.missing);
        assert!(
            results.missing[0].starts_with("store: bars: ")
                && results.missing[0].contains("no response")
        );
    }
}

#[test]
fn reports_a_missing_or_foreign_store() {
    for kind in [StoreKind::Cassandra, StoreKind::Postgresql] {
        let (listener, store) = silent(kind);
        drop(listener);
        let results = start(&store).stop();
        assert_eq!(results.missing.len(), 1, "{:?}", results.missing);
        let line = &results.missing[0];
        assert!(
            line.contains(&store.address.to_string()) && line.contains("refused"),
            "{line}"
        );

        let (listener, store) = silent(kind);
        let another = std::thread::spawn(move || {
            // With PostgreSQL, a second database is tried.
            for _ in 0..if kind == StoreKind::Cassandra { 1 } else { 2 } {
                let (mut stream, _) = listener.accept().unwrap();
                io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
                let _ = io::Read::read(&mut stream, &mut [0; 64]);
            }
        });
        let monitor = start(&store);
        another.join().unwrap();
        let results = monitor.stop();
        assert_eq!(results.missing.len(), 1, "{:?}", results.missing);
        assert!(results.missing[0].starts_with("store: bars: statistics from 127.0.0.1:"));
        assert!(!results.missing[0].contains('\n'));
    }
}

#[test]
fn does_not_query_a_store_of_unknown_kind() {
    let (_listener, mut store) = silent(StoreKind::Cassandra);
    store.kind = None;
    let monitor = StoreMonitor::start(&Root::host(), Instant::now(), &store);
    assert!(monitor.unwrap().is_none());
}
