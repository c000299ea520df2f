#![cfg(all(feature = "cassandra", feature = "postgresql"))]

use super::*;
use std::net::TcpListener;

/// A store whose place somebody holds who never says a word.
fn silent(kind: StoreKind) -> (TcpListener, WatchedStore) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = WatchedStore {
        name: "bars".to_owned(),
        kind: Some(kind),
        address: listener.local_addr().unwrap(),
        pid: None,
    };
    (listener, store)
}

fn start(store: &WatchedStore) -> Asking {
    let asking = Asking::start(&Root::host(), Instant::now(), store);
    asking.unwrap().unwrap()
}

#[test]
fn one_that_never_answers_is_not_waited_for_at_the_end() {
    for kind in [StoreKind::Cassandra, StoreKind::Postgresql] {
        let (_listener, store) = silent(kind);
        let asking = start(&store);
        std::thread::sleep(Duration::from_millis(200));
        let begin = Instant::now();
        let told = asking.stop();
        assert!(begin.elapsed() < GRACE * 3, "{:?}", begin.elapsed());
        assert!(told.observations.is_empty());
        assert_eq!(told.missing.len(), 1, "{:?}", told.missing);
        assert!(
            told.missing[0].starts_with("store: bars: ")
                && told.missing[0].contains("did not answer")
        );
    }
}

#[test]
fn one_that_is_not_there_or_is_another_is_said_to_be() {
    for kind in [StoreKind::Cassandra, StoreKind::Postgresql] {
        let (listener, store) = silent(kind);
        drop(listener);
        let told = start(&store).stop();
        assert_eq!(told.missing.len(), 1, "{:?}", told.missing);
        let line = &told.missing[0];
        assert!(
            line.contains(&store.address.to_string()) && line.contains("refused"),
            "{line}"
        );

        let (listener, store) = silent(kind);
        let another = std::thread::spawn(move || {
            // PostgreSQL is tried in a second database.
            for _ in 0..if kind == StoreKind::Cassandra { 1 } else { 2 } {
                let (mut stream, _) = listener.accept().unwrap();
                io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
                let _ = io::Read::read(&mut stream, &mut [0; 64]);
            }
        });
        let asking = start(&store);
        another.join().unwrap();
        let told = asking.stop();
        assert_eq!(told.missing.len(), 1, "{:?}", told.missing);
        assert!(told.missing[0].starts_with("store: bars: its own figures, at 127.0.0.1:"));
        assert!(!told.missing[0].contains('\n'));
    }
}

#[test]
fn one_of_no_kind_is_not_asked() {
    let (_listener, mut store) = silent(StoreKind::Cassandra);
    store.kind = None;
    let asking = Asking::start(&Root::host(), Instant::now(), &store);
    assert!(asking.unwrap().is_none());
}
