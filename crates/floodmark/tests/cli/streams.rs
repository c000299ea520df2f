//! Loads over HTTP/2 against floodmark's own server.

use floodmark_record::plan::Http;

use crate::support::{Load, Serve, load};

/// Runs a load over HTTP/2 with four streams on each of two connections.
fn over_http2(server: &Serve, arguments: &[&str]) -> Load {
    let http2 = ["--http", "2", "-c", "2", "--streams", "4"];
    let load = load(&server.url, &[&http2, arguments].concat());
    load.ends_with(0);
    let run = &load.record.runs[0];
    assert!(matches!(run.plan.http, Http::V2(of) if of.streams == 4));
    load
}

#[test]
fn sends_an_exact_number_of_requests() {
    let server = Serve::start(&["hello"]);
    let load = over_http2(&server, &["-n", "3000", "--expect", "status=200"]);
    assert_eq!((load.counts().intended, load.counts().ok), (3_000, 3_000));
    assert_eq!(load.record.runs[0].connections.opened, 2);
}

#[test]
fn sends_at_a_rate() {
    let server = Serve::start(&["hello"]);
    let load = over_http2(&server, &["-r", "500", "-d", "2s"]);
    assert_eq!((load.counts().intended, load.counts().ok), (1_000, 1_000));
}

#[test]
fn sends_mixes() {
    let server = Serve::start(&["scoring"]);
    let directory = tempfile::tempdir().unwrap();
    let mix = directory.path().join("mix.toml");
    let text = r#"
        [[request]]
        name = "score"
        path = "/scoring"
        body = '{"score": {rand:1-1000000}}'
        headers = ["Content-Type: application/json", "X-Number: {seq}"]
    "#;
    std::fs::write(&mix, text).unwrap();
    let load = over_http2(&server, &["-n", "500", "--mix", mix.to_str().unwrap()]);
    assert_eq!((load.counts().intended, load.counts().ok), (500, 500));
}

#[test]
fn agents_divide_a_load() {
    let server = Serve::start(&["hello"]);
    let load = over_http2(&server, &["-n", "1000", "--agents", "local:2"]);
    assert_eq!(load.counts().ok, 1_000);
    assert_eq!(load.record.runs[0].connections.opened, 2);
}
