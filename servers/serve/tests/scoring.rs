//! Tests the contract of `scoring` with each journal.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use floodmark_serve::{JournalError, JournalSetting, NativeWorkload, ServeError, Settings, serve};
use serde_json::Value;
use support::{TestClient, TestResponse, TestServer, settings};

fn with_journal(journal: JournalSetting) -> Settings {
    Settings {
        journal,
        ..settings(NativeWorkload::Scoring)
    }
}

fn file(directory: &Path) -> JournalSetting {
    JournalSetting::File(directory.join("journal"))
}

fn request(media_type: &str, body: &str) -> String {
    format!(
        "POST /scoring HTTP/1.1\r\nHost: x\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn post(client: &mut TestClient, body: &str) -> TestResponse {
    client.send(request("application/json", body));
    client.response()
}

/// Adds a score and returns number, total and average.
fn add(client: &mut TestClient, score: f64) -> (u64, f64, f64) {
    let response = post(client, &format!("{{\"score\": {score}}}"));
    assert_eq!(response.status, 200, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/json"));
    let value: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(value.as_object().unwrap().len(), 3);
    let number = value["numberOfTrials"].as_u64().unwrap();
    let figure = |name: &str| value[name].as_f64().unwrap();
    (number, figure("totalScore"), figure("averageScore"))
}

fn assert_refusal(response: &TestResponse, status: u16) {
    assert_eq!(response.status, status, "{response:?}");
    assert_eq!(response.header("content-type"), Some("application/json"));
    let value: Value = serde_json::from_str(&response.body).unwrap();
    assert!(!value["error"].as_str().unwrap().is_empty());
    assert!(!response.body.contains('\n'));
}

#[test]
fn adds_scores_and_keeps_the_connection() {
    let directory = tempfile::tempdir().unwrap();
    for journal in [
        JournalSetting::None,
        JournalSetting::Memory,
        file(directory.path()),
    ] {
        let server = TestServer::start(with_journal(journal));
        let mut client = server.connect();
        assert_eq!(add(&mut client, 10.0), (1, 10.0, 10.0));
        assert_eq!(add(&mut client, 2.5), (2, 12.5, 6.25));
        assert_eq!(add(&mut server.connect(), -12.5), (3, 0.0, 0.0));
        let body = r#"{"score":10}"#;
        client.send(request("application/json", body).repeat(100));
        for n in 1..=100 {
            let expected = format!(
                "{{\"averageScore\":{:?},\"totalScore\":{:?},\"numberOfTrials\":{}}}",
                f64::from(10 * n) / f64::from(n + 3),
                f64::from(10 * n),
                n + 3
            );
            assert_eq!(
                client.response().body,
                expected,
                "in the order of the requests"
            );
        }
        assert_eq!(server.stop().answered, 103);
    }
}

#[test]
fn refuses_invalid_requests_and_records_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for journal in [
        JournalSetting::None,
        JournalSetting::Memory,
        file(directory.path()),
    ] {
        let server = TestServer::start(with_journal(journal));
        let mut client = server.connect();
        for body in [
            "",
            "{\"score\": ",
            "[10]",
            "10",
            "{\"points\": 1}",
            "{\"score\": \"10\"}",
        ] {
            assert_refusal(&post(&mut client, body), 400);
        }
        for media_type in ["text/plain", "", "application/x-www-form-urlencoded"] {
            client.send(request(media_type, "{\"score\": 10}"));
            assert_refusal(&client.response(), 415);
        }
        for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
            client.send(format!("{method} /scoring HTTP/1.1\r\nHost: x\r\n\r\n"));
            let response = client.response();
            assert_refusal(&response, 405);
            assert_eq!(response.header("allow"), Some("POST"));
        }
        client.send("HEAD /scoring HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(client.head_response().status, 405);
        assert_refusal(&client.get("/nowhere"), 404);
        assert_eq!(add(&mut client, 1.0), (1, 1.0, 1.0), "nothing was recorded");

        // A body as long as the limit is read, even in many chunks.
        let long = format!("{{\"score\": 2}}{}", " ".repeat(64 * 1024 - 12));
        assert_eq!(post(&mut client, &long).status, 200);
        client.send("POST /scoring HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
        for part in ["{", "\"sco", "re\":", " 3", "}"] {
            client.send(format!("{:x}\r\n{part}\r\n", part.len()));
        }
        client.send("0\r\n\r\n");
        assert_eq!(client.response().status, 200);
        assert_refusal(&post(&mut client, &format!("{long} ")), 413);
        assert!(client.is_closed());
        assert_eq!(add(&mut server.connect(), 4.0), (4, 10.0, 2.5));
    }
}

#[test]
fn numbers_of_concurrent_scores_are_unique_and_match_the_totals() {
    let directory = tempfile::tempdir().unwrap();
    for journal in [
        JournalSetting::None,
        JournalSetting::Memory,
        file(directory.path()),
    ] {
        let server = TestServer::start(Settings {
            threads: NonZeroUsize::new(2),
            ..with_journal(journal)
        });
        let address = server.address;
        let clients: Vec<_> = (0..8)
            .map(|_| {
                thread::spawn(move || {
                    let mut client = TestClient::connect(address);
                    Vec::from_iter((0..200).map(|_| add(&mut client, 0.1)))
                })
            })
            .collect();
        let mut numbers = Vec::new();
        for client in clients {
            let answers = client.join().unwrap();
            assert!(answers.is_sorted_by(|a, b| a.0 < b.0));
            for (number, total, average) in answers {
                // Parsing a figure can change its last digit.
                assert!((average - total / number as f64).abs() < 1e-9);
                assert!(
                    (total - 0.1 * number as f64).abs() < 1e-9,
                    "{number}: {total}"
                );
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        assert_eq!(numbers, Vec::from_iter(1..=1600));
        server.stop();
    }
}

#[test]
fn only_a_file_journal_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let settings = [
        JournalSetting::None,
        JournalSetting::Memory,
        file(directory.path()),
    ];
    for (journal, expected) in settings.into_iter().zip([1, 1, 3]) {
        let server = TestServer::start(with_journal(journal.clone()));
        for _ in 0..2 {
            add(&mut server.connect(), 0.5);
        }
        server.stop();
        let server = TestServer::start(with_journal(journal));
        let total = 0.5 * f64::from(expected);
        assert_eq!(
            add(&mut server.connect(), 0.5),
            (expected as u64, total, 0.5)
        );
    }
}

fn start_error(settings: Settings) -> ServeError {
    serve(settings, std::future::pending(), |_| panic!("started")).unwrap_err()
}

#[test]
fn refuses_settings_that_do_not_fit() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start(with_journal(file(directory.path())));
    let error = start_error(with_journal(file(directory.path())));
    assert!(
        matches!(error, ServeError::Journal(JournalError::InUse(_))),
        "{error}"
    );
    server.stop();
    let error = start_error(Settings {
        journal: JournalSetting::Memory,
        ..settings(NativeWorkload::Hello)
    });
    assert!(
        error
            .to_string()
            .starts_with("hello has no journal; omit --journal"),
        "{error}"
    );
    let error = start_error(Settings {
        state: Some(directory.path().join("state")),
        ..settings(NativeWorkload::Scoring)
    });
    assert!(matches!(error, ServeError::NoState(_)), "{error}");
    let error = start_error(Settings {
        share_port: true,
        ..settings(NativeWorkload::Scoring)
    });
    assert!(matches!(error, ServeError::SharedState(_)), "{error}");
}
