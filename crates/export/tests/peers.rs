//! Tests of the exporter with real sockets: slow and hostile scrapers, and faulty collectors.
#![allow(clippy::unwrap_used, reason = "test helpers are test code too")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use floodmark_export::{CATALOG, ExportTargets, Exporter};
use floodmark_record::Event;
use floodmark_record::events::Phase;

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// An event that changes the metrics.
const BEGAN: Event = Event::Began {
    phase: Phase::Measure,
    at_ns: 0,
};

fn endpoint() -> (Exporter, SocketAddr) {
    let exporter = Exporter::start(&ExportTargets {
        endpoint: Some(LOCAL),
        collector: None,
    });
    let exporter = exporter.unwrap();
    let url = exporter.endpoint_url().unwrap();
    let address = url
        .strip_prefix("http://")
        .unwrap()
        .strip_suffix("/metrics")
        .unwrap();
    let address = address.parse().unwrap();
    (exporter, address)
}

/// Sends a request and returns the whole response.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn scrape(address: SocketAddr) -> String {
    exchange(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
}

#[test]
fn answers_each_request() {
    let (exporter, address) = endpoint();
    let scraped = scrape(address);
    assert!(scraped.starts_with("HTTP/1.1 200 OK\r\n"), "{scraped}");
    assert!(
        scraped.contains("content-type: text/plain; version=0.0.4"),
        "{scraped}"
    );
    assert!(
        scraped.contains("\nfloodmark_run_state{state=\"idle\"} 1\n"),
        "{scraped}"
    );
    for (request, status) in [
        ("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
        ("GET /metrics?name[]=a HTTP/1.0\r\n\r\n", "200"),
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n", "404"),
        (
            "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
            "405",
        ),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let response = exchange(address, request);
        assert_eq!(
            response.split(' ').nth(1),
            Some(status),
            "{request}: {response}"
        );
    }
    assert_eq!(exporter.finish(), None);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_port_in_use_is_an_error() {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let targets = ExportTargets {
        endpoint: Some(listener.local_addr().unwrap()),
        collector: None,
    };
    let error = Exporter::start(&targets).unwrap_err().to_string();
    assert!(
        error.contains("in use") && error.contains("use a free address"),
        "{error}"
    );
}

#[test]
fn hostile_scrapers_delay_neither_events_nor_other_scrapers() {
    let (exporter, address) = endpoint();
    let mut hostile = Vec::new();
    for i in 0..100 {
        let mut stream = TcpStream::connect(address).unwrap();
        let part = match i % 3 {
            0 => "",
            1 => "GET /metr",
            _ => "GET /metrics HTTP/1.1\r\nHost: x\r\nX: ",
        };
        stream.write_all(part.as_bytes()).unwrap();
        hostile.push(stream);
    }
    // This scraper never reads its response.
    let mut slow = TcpStream::connect(address).unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let begin = Instant::now();
    for _ in 0..1000 {
        assert_eq!(exporter.on(&BEGAN), None);
    }
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
    let scraped = scrape(address);
    assert!(scraped.contains("floodmark_build_info"), "{scraped}");
    // Prometheus waits 10 s by default.
    assert!(
        begin.elapsed() < Duration::from_secs(9),
        "{:?}",
        begin.elapsed()
    );
    // An endless head ends the connection.
    let mut endless = TcpStream::connect(address).unwrap();
    let line = [b'a'; 1024];
    let _ = endless.write_all(b"GET /metrics HTTP/1.1\r\n");
    let refused = (0..10_000).any(|_| endless.write_all(&line).is_err());
    assert!(refused);
    let begin = Instant::now();
    assert_eq!(exporter.finish(), None);
    assert!(
        begin.elapsed() < Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
}

/// Starts a collector that handles each connection with `answer`. Returns the exporter.
fn pushing(answer: impl Fn(TcpStream) + Send + 'static) -> Exporter {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let url = format!("http://{}/v1/metrics", listener.local_addr().unwrap());
    thread::spawn(move || {
        listener
            .incoming()
            .for_each(|stream| answer(stream.unwrap()))
    });
    Exporter::start(&ExportTargets {
        endpoint: None,
        collector: Some(url.parse().unwrap()),
    })
    .unwrap()
}

/// Reads a whole request, and responds.
fn respond(mut stream: TcpStream, response: &[u8]) -> Vec<u8> {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    let length = |request: &[u8]| {
        let head = request.windows(4).position(|w| w == b"\r\n\r\n")?;
        let text = String::from_utf8_lossy(&request[..head]).to_ascii_lowercase();
        let (_, length) = text.split_once("content-length: ")?;
        Some(head + 4 + length.lines().next()?.trim().parse::<usize>().ok()?)
    };
    while length(&request).is_none_or(|length| request.len() < length) {
        let n = stream.read(&mut buffer).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&request));
        request.extend_from_slice(&buffer[..n]);
    }
    stream.write_all(response).unwrap();
    request
}

/// Waits for the warning about the first push.
fn warning(exporter: &Exporter) -> String {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(warning) = exporter.on(&BEGAN) {
            return warning;
        }
        assert!(Instant::now() < end);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn pushes_at_the_start_and_at_the_end() {
    let (sender, requests) = mpsc::channel();
    let exporter = pushing(move |stream| {
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        sender.send(respond(stream, ok)).unwrap();
    });
    let first = requests.recv_timeout(Duration::from_secs(20)).unwrap();
    let head = String::from_utf8_lossy(&first).to_ascii_lowercase();
    assert!(head.starts_with("post /v1/metrics http/1.1\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf\r\n"),
        "{head}"
    );
    assert_eq!(exporter.on(&BEGAN), None);
    assert_eq!(exporter.finish(), None);
    requests.recv_timeout(Duration::from_secs(20)).unwrap();
}

#[test]
fn a_failing_collector_causes_one_warning_and_a_count() {
    let rejected = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n\x0a\x06\x08\x03\x12\x02no";
    for (response, reason) in [
        (
            &b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n"[..],
            "status 503",
        ),
        (
            b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            "status 301",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>",
            "response is invalid",
        ),
        (rejected, "rejected 3 data points: no"),
        (b"SSH-2.0-x\r\n", "HTTP"),
        (b"", "connection closed"),
    ] {
        let exporter = pushing(move |stream| drop(respond(stream, response)));
        let warning = warning(&exporter);
        assert!(warning.contains(reason), "{warning}");
        assert_eq!(exporter.on(&BEGAN), None);
        let summary = exporter.finish().unwrap();
        assert!(
            summary.contains("2 of 2 pushes failed") && summary.contains(reason),
            "{summary}"
        );
    }
}

#[test]
fn a_silent_collector_delays_only_the_end() {
    let exporter = pushing(|stream| {
        let _open = stream;
        thread::sleep(Duration::from_secs(60));
    });
    thread::sleep(Duration::from_millis(100));
    let begin = Instant::now();
    for _ in 0..100 {
        exporter.on(&BEGAN);
    }
    assert!(
        begin.elapsed() < Duration::from_millis(500),
        "{:?}",
        begin.elapsed()
    );
    let summary = exporter.finish().unwrap();
    assert!(
        summary.contains("2 of 2 pushes failed") && summary.contains("no response within 2 s"),
        "{summary}"
    );
    assert!(
        begin.elapsed() < Duration::from_secs(6),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn the_dashboard_queries_only_exported_metrics() {
    let dashboard = include_str!("../../../deploy/grafana/floodmark.json");
    let dashboard: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut queries = Vec::new();
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{}", panel["title"]);
        queries.extend(
            targets
                .iter()
                .map(|target| target["expr"].as_str().unwrap()),
        );
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    queries.extend(
        variables
            .iter()
            .filter_map(|variable| variable["query"]["query"].as_str()),
    );
    assert!(queries.len() > panels.len());
    let mut used = 0;
    for query in queries {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("floodmark_")) {
            let is_exported = CATALOG.iter().any(|metric| metric.prometheus == name);
            assert!(is_exported, "{name} in {query}");
            used += 1;
        }
    }
    assert!(used >= 10);
}

#[test]
fn the_guide_describes_every_metric() {
    let guide = include_str!("../../../docs/guide/monitoring.md");
    for metric in CATALOG {
        for name in [metric.prometheus, metric.otlp] {
            assert!(guide.contains(&format!("`{name}`")), "{name}");
        }
    }
}
