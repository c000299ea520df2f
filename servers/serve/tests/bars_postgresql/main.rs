//! Tests `bars` with a real PostgreSQL server.
#![cfg(feature = "postgresql")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod outages;
mod schema;
mod storing;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/postgresql.rs"]
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
