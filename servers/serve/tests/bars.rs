//! Tests the contract of `bars` with the embedded store.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;
use std::time::Duration;

use floodmark_serve::{
    Limits, NativeWorkload, ServeError, Settings, StateError, StoreSetting, serve,
};
use serde_json::{Value, json};
use support::{TestClient, TestResponse, TestServer, settings};

fn with_store(path: &Path) -> Settings {
    Settings {
        store: Some(StoreSetting::Embedded(path.to_owned())),
        ..settings(NativeWorkload::Bars)
    }
}

fn request(media_type: &str, body: &str) -> String {
    format!(
        "POST /bars HTTP/1.1\r\nHost: x\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn post(client: &mut TestClient, body: &str) -> TestResponse {
    client.send(request("application/json", body));
    client.response()
}

/// Adds a bar and returns its id.
fn add(client: &mut TestClient, name: &str) -> i64 {
    let response = post(client, &json!({ "name": name }).to_string());
    assert_eq!(response.status, 201, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/json"));
    let bar: Value = serde_json::from_str(&response.body).unwrap();
    let id = bar["id"].as_i64().unwrap();
    assert_eq!(bar, json!({ "id": id, "name": name }));
    let location = format!("/bars/{id}");
    assert_eq!(response.header("location"), Some(location.as_str()));
    id
}

/// Lists the bars, whose ids must ascend.
fn list(client: &mut TestClient) -> Vec<(i64, String)> {
    let response = client.get("/bars");
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/json"));
    let bars: Vec<Value> = serde_json::from_str(&response.body).unwrap();
    let bars = bars.iter().map(|bar| {
        assert_eq!(bar.as_object().unwrap().len(), 2);
        let name = bar["name"].as_str().unwrap();
        (bar["id"].as_i64().unwrap(), name.to_owned())
    });
    let bars = Vec::from_iter(bars);
    assert!(bars.is_sorted_by(|a, b| a.0 < b.0));
    bars
}

fn assert_refusal(response: &TestResponse, status: u16) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/json"));
    let value: Value = serde_json::from_str(&response.body).unwrap();
    assert!(!value["error"].as_str().unwrap().is_empty());
    assert!(!response.body.contains('\n'));
}

#[test]
fn lists_the_stored_bars_even_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bars.redb");
    let server = TestServer::start(with_store(&path));
    let mut client = server.connect();
    assert_eq!(client.get("/bars").body, "[]");
    let longest = "é".repeat(255);
    let mut expected = Vec::new();
    for name in ["Corner", "x", "\"Quoted\\\" \u{1F37A} ☕\n", &longest, "x"] {
        let id = add(&mut client, name);
        expected.push((id, name.to_owned()));
        assert_eq!(list(&mut client), expected, "stored before the response");
    }
    client.send("HEAD /bars HTTP/1.1\r\nHost: x\r\n\r\n");
    let head = client.head_response();
    assert_eq!(head.status, 200);
    let body = client.get("/bars").body;
    assert_eq!(
        head.header("content-length"),
        Some(body.len().to_string().as_str())
    );
    server.stop();
    symlink(&path, directory.path().join("link")).unwrap();
    for name in ["bars.redb", "link"] {
        let server = TestServer::start(with_store(&directory.path().join(name)));
        let mut client = server.connect();
        assert_eq!(list(&mut client), expected);
        let id = add(&mut client, "Next");
        assert!(id > expected.last().unwrap().0);
        expected.push((id, "Next".to_owned()));
        server.stop();
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
}

#[test]
fn refuses_invalid_requests_and_stores_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start(with_store(&directory.path().join("bars.redb")));
    let mut client = server.connect();
    let too_long = json!({ "name": "x".repeat(256) }).to_string();
    for body in [
        "",
        "{\"name\": ",
        "[\"Corner\"]",
        "{\"title\": \"Corner\"}",
        "{\"name\": \"\"}",
        "{\"name\": 7}",
        "{\"name\": null}",
        &too_long,
    ] {
        assert_refusal(&post(&mut client, body), 400);
    }
    for media_type in ["text/plain", "", "application/x-www-form-urlencoded"] {
        client.send(request(media_type, "{\"name\": \"Corner\"}"));
        assert_refusal(&client.response(), 415);
    }
    for method in ["PUT", "DELETE", "OPTIONS"] {
        client.send(format!("{method} /bars HTTP/1.1\r\nHost: x\r\n\r\n"));
        let response = client.response();
        assert_refusal(&response, 405);
        assert_eq!(response.header("allow"), Some("GET, HEAD, POST"));
    }
    for path in ["/", "/bars/1", "/bar"] {
        assert_refusal(&client.get(path), 404);
    }
    let long = format!("{{\"name\": \"Corner\"}}{}", " ".repeat(64 * 1024 - 17));
    assert_refusal(&post(&mut client, &long), 413);
    assert!(client.is_closed());
    let mut client = server.connect();
    assert_eq!(client.get("/bars").body, "[]");
    // A body as long as the limit is read.
    assert_eq!(post(&mut client, &long[..64 * 1024]).status, 201);
    assert_eq!(list(&mut client).len(), 1);
}

#[test]
fn stores_each_of_many_concurrent_bars_once() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start(Settings {
        threads: NonZeroUsize::new(2),
        ..with_store(&directory.path().join("bars.redb"))
    });
    let address = server.address;
    let clients: Vec<_> = (0..8)
        .map(|client| {
            thread::spawn(move || {
                let mut connection = TestClient::connect(address);
                let added = (0..50).map(|n| {
                    let name = format!("{client}-{n}");
                    let id = add(&mut connection, &name);
                    let listed = list(&mut connection);
                    let bar = (id, name);
                    assert!(listed.contains(&bar), "{bar:?} is missing");
                    bar
                });
                let added = Vec::from_iter(added);
                assert!(added.is_sorted_by(|a, b| a.0 < b.0));
                added
            })
        })
        .collect();
    let added = clients
        .into_iter()
        .flat_map(|client| client.join().unwrap());
    let mut added = Vec::from_iter(added);
    added.sort_unstable();
    assert_eq!(list(&mut server.connect()), added);
    // Pipelined requests get their responses in order.
    let mut client = server.connect();
    client.send(request("application/json", r#"{"name":"Corner"}"#).repeat(100));
    let ids = (0..100).map(|_| {
        let response = client.response();
        assert_eq!(response.status, 201, "{response:?}");
        let bar: Value = serde_json::from_str(&response.body).unwrap();
        bar["id"].as_i64().unwrap()
    });
    let ids = Vec::from_iter(ids);
    assert!(ids.is_sorted_by(|a, b| a < b));
    assert_eq!(list(&mut client).len(), 500);
    server.stop();
}

fn start_error(settings: Settings) -> ServeError {
    serve(settings, std::future::pending(), |_| panic!("started")).unwrap_err()
}

#[test]
fn refuses_a_file_that_it_cannot_use() {
    let directory = tempfile::tempdir().unwrap();
    let name = |name| directory.path().join(name);
    let path = name("bars.redb");
    let server = TestServer::start(with_store(&path));
    add(&mut server.connect(), "Corner");
    fs::hard_link(&path, name("hard")).unwrap();
    symlink(&path, name("symbolic")).unwrap();
    for other in [&path, &name("hard"), &name("symbolic")] {
        let error = start_error(with_store(other));
        assert!(
            matches!(error, ServeError::State(StateError::Locked(_))),
            "{error}"
        );
    }
    server.stop();

    let fifo = name("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    symlink(name("nowhere"), name("dangling")).unwrap();
    for (path, reason) in [
        (fifo.as_path(), "fifo: a FIFO, not a regular file; choose"),
        (
            directory.path(),
            ": a directory, not a regular file; choose",
        ),
        (&name("dangling"), "dangling: a broken symbolic link"),
        (&name("missing/bars"), "its directory exists"),
    ] {
        let error = start_error(with_store(path)).to_string();
        assert!(error.contains(reason), "{error}");
    }

    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2..].fill(0xa5);
    for (content, reason) in [
        (&b"my notes"[..], "Not a redb database"),
        (&b"SQLite format 3\0 and more"[..], "Not a redb database"),
        (&whole[..whole.len() / 2], ""),
        (&whole[..100], ""),
        (&damaged, ""),
    ] {
        let path = name("other");
        fs::write(&path, content).unwrap();
        let error = start_error(with_store(&path));
        assert!(matches!(error, ServeError::NotBars { .. }), "{error:?}");
        let error = error.to_string();
        assert!(error.contains("other: not a database of bars ("), "{error}");
        assert!(error.contains(reason), "{error}");
        assert!(error.contains("choose another path"), "{error}");
        if !reason.is_empty() {
            assert_eq!(fs::read(&path).unwrap(), content, "unchanged");
        }
    }

    let other = redb::Database::create(name("tables")).unwrap();
    let transaction = other.begin_write().unwrap();
    let table = redb::TableDefinition::<u64, u64>::new("users");
    transaction.open_table(table).unwrap();
    transaction.commit().unwrap();
    drop(other);
    let error = start_error(with_store(&name("tables"))).to_string();
    assert!(error.contains(r#"it has the table "users""#), "{error}");
}

#[test]
fn refuses_settings_that_do_not_fit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bars.redb");
    let store = with_store(&path).store;
    let error = start_error(settings(NativeWorkload::Bars)).to_string();
    assert!(error.contains("add --store embedded:PATH"), "{error}");
    let error = start_error(Settings {
        store,
        ..settings(NativeWorkload::Hello)
    });
    let text = "hello has no store; omit --store, or use `floodmark serve bars`";
    assert_eq!(error.to_string(), text);
    let error = start_error(Settings {
        share_port: true,
        ..with_store(&path)
    });
    assert!(matches!(error, ServeError::SharedState(_)), "{error}");
    assert!(!path.exists());
    for wrong in [
        "",
        "embedded",
        "embedded:",
        "postgresql:",
        "memory",
        "file:x",
    ] {
        assert!(wrong.parse::<StoreSetting>().is_err(), "{wrong}");
    }
}

#[test]
fn stores_no_bar_that_it_refuses_under_overload() {
    const CLIENTS: usize = 16;
    const INSERTS: usize = 40;
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start(Settings {
        limits: Limits {
            // Only one insert may wait, so most are refused.
            max_wait: Duration::ZERO,
            ..Limits::default()
        },
        ..with_store(&directory.path().join("bars.redb"))
    });
    let address = server.address;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            thread::spawn(move || {
                let mut client = TestClient::connect(address);
                let mut stored = Vec::new();
                for insert in 0..INSERTS {
                    let name = format!("{number}-{insert}");
                    let response = post(&mut client, &json!({ "name": name }).to_string());
                    if response.status == 201 {
                        stored.push(name);
                    } else {
                        assert_refusal(&response, 503);
                        assert_eq!(response.header("retry-after"), Some("1"));
                    }
                }
                stored
            })
        })
        .collect();
    let mut stored: Vec<String> = Vec::new();
    for client in clients {
        stored.extend(client.join().unwrap());
    }
    assert!(!stored.is_empty());
    assert!(stored.len() < CLIENTS * INSERTS, "none was refused");
    let names = list(&mut server.connect());
    let mut names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
    names.sort();
    stored.sort();
    assert_eq!(names, stored);
}
