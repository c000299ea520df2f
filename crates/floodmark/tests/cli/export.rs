//! Tests of `--metrics` and `--otlp` with real loads, scrapes and pushes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point;
use prost::Message;

use crate::support::{Load, Serve, code, load, run, start_load, text, wait_for};

/// A collector that accepts all requests.
pub struct Collector {
    pub url: String,
    requests: Receiver<ExportMetricsServiceRequest>,
}

/// Attributes and value of a data point. For a histogram, the value is its count.
pub type Points = Vec<(BTreeMap<String, String>, f64)>;

impl Collector {
    pub fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = sender.send(receive(stream.unwrap()));
            }
        });
        Collector { url, requests }
    }

    /// Returns the points of a metric in the last request.
    pub fn last(&self, metric: &str) -> Points {
        let request = self.requests.try_iter().last().unwrap();
        let scopes = request
            .resource_metrics
            .into_iter()
            .flat_map(|r| r.scope_metrics);
        let mut metrics = scopes.flat_map(|scope| scope.metrics);
        let found = metrics.find(|m| m.name == metric);
        match found.unwrap_or_else(|| panic!("no {metric}")).data.unwrap() {
            Data::Sum(sum) => sum
                .data_points
                .into_iter()
                .map(|point| match point.value.unwrap() {
                    number_data_point::Value::AsDouble(value) => (texts(point.attributes), value),
                    number_data_point::Value::AsInt(_) => panic!("an integer"),
                })
                .collect(),
            Data::ExponentialHistogram(histogram) => histogram
                .data_points
                .into_iter()
                .map(|point| (texts(point.attributes), point.count as f64))
                .collect(),
            other => panic!("{other:?}"),
        }
    }
}

fn texts(
    attributes: Vec<opentelemetry_proto::tonic::common::v1::KeyValue>,
) -> BTreeMap<String, String> {
    let text = |value| match value {
        Value::StringValue(text) => text,
        Value::IntValue(n) => n.to_string(),
        other => panic!("{other:?}"),
    };
    let attributes = attributes.into_iter();
    attributes
        .map(|a| (a.key, text(a.value.unwrap().value.unwrap())))
        .collect()
}

/// Reads a request and responds.
fn receive(stream: TcpStream) -> ExportMetricsServiceRequest {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let response =
        b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
    reader.get_mut().write_all(response).unwrap();
    ExportMetricsServiceRequest::decode(&*body).unwrap()
}

/// Scrapes an endpoint. Returns the head and the body of the response.
fn scrape(address: &str, accept: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let end = response.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let body = response.split_off(end + 4);
    (text(&response), body)
}

/// Returns the value of the series that starts with `series`.
fn value(scraped: &str, series: &str) -> Option<f64> {
    let line = scraped.lines().find(|line| line.starts_with(series))?;
    Some(line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// Returns a free port of 127.0.0.1.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn serves_metrics_during_a_load() {
    let server = Serve::start(&["hello"]);
    let address = format!("127.0.0.1:{}", free_port());
    let running = start_load(
        &server.url,
        &["--rate", "200", "-d", "4s", "--metrics", &address],
    );
    let ok = |scraped: &str| {
        let series = scraped.lines().find(|line| {
            line.starts_with("floodmark_requests_total") && line.contains("outcome=\"ok\"")
        })?;
        value(scraped, series)
    };
    running.wait_for_a_second();
    let first = wait_for("a scrape with responses", || {
        let (head, body) = scrape(&address, "*/*");
        assert!(
            head.contains("content-type: text/plain; version=0.0.4"),
            "{head}"
        );
        let body = text(&body);
        ok(&body).map(|ok| (ok, body))
    });
    assert!(
        first.1.contains("floodmark_run_state{state=\"measure\"} 1"),
        "{}",
        first.1
    );
    assert!(
        first
            .1
            .contains("model=\"open\",process=\"1\",attempt=\"1\""),
        "{}",
        first.1
    );
    wait_for("more responses", || {
        let later = ok(&text(&scrape(&address, "text/plain").1)).unwrap();
        (later > first.0).then_some(())
    });
    let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    let (head, body) = scrape(&address, protobuf);
    assert!(head.contains("application/vnd.google.protobuf"), "{head}");
    let (mut rest, mut names) = (&body[..], Vec::new());
    while !rest.is_empty() {
        let length = prost::decode_length_delimiter(&mut rest).unwrap();
        let (family, after) = rest.split_at(length);
        // The first field of a family is its name.
        assert_eq!(family[0], 0x0a);
        names.push(text(&family[2..2 + usize::from(family[1])]));
        rest = after;
    }
    assert!(
        names.contains(&"floodmark_response_time_seconds".to_owned()),
        "{names:?}"
    );
    let load = running.end();
    load.ends_with(0);
    assert!(
        load.stderr()
            .contains(&format!("metrics: http://{address}/metrics\n"))
    );
    assert!(TcpStream::connect(&address).is_err());
}

/// Returns the sum of the points with an attribute.
fn sum(points: &Points, key: &str, value: &str) -> f64 {
    let matching = points
        .iter()
        .filter(|(attributes, _)| attributes.get(key).is_some_and(|v| v == value));
    matching.map(|(_, value)| value).sum()
}

#[test]
fn the_final_push_contains_all_requests() {
    let server = Serve::start(&["hello"]);
    let collector = Collector::start();
    let arguments = [
        "-c",
        "4",
        "-d",
        "1s",
        "--warmup",
        "500ms",
        "--attempts",
        "2",
        "--otlp",
        &collector.url,
    ];
    let load: Load = load(&server.url, &arguments);
    load.ends_with(0);
    assert_eq!(load.record.runs.len(), 2);
    let measured: u64 = load.record.runs.iter().map(|run| run.requests.ok).sum();
    let points = collector.last("floodmark.requests");
    let ok: Points = points
        .into_iter()
        .filter(|(a, _)| a["floodmark.outcome"] == "ok")
        .collect();
    assert_eq!(sum(&ok, "floodmark.phase", "measure"), measured as f64);
    assert!(sum(&ok, "floodmark.phase", "warmup") > 0.0);
}

#[test]
fn the_histogram_contains_all_ok_responses() {
    let server = Serve::start(&["hello"]);
    let collector = Collector::start();
    let load = load(
        &server.url,
        &["-c", "4", "-n", "3000", "--otlp", &collector.url],
    );
    load.ends_with(0);
    let points = collector.last("http.client.request.duration");
    assert_eq!(sum(&points, "http.request.method", "GET"), 3000.0);
    assert_eq!(sum(&points, "server.address", "127.0.0.1"), 3000.0);
}

#[test]
fn an_unreachable_collector_does_not_fail_the_load() {
    let server = Serve::start(&["hello"]);
    let url = format!("http://127.0.0.1:{}", free_port());
    let load = load(&server.url, &["-c", "2", "-d", "2s", "--otlp", &url]);
    load.ends_with(0);
    let stderr = load.stderr();
    let place = format!("floodmark: --otlp {url}/v1/metrics: ");
    let lines: Vec<&str> = stderr
        .lines()
        .filter(|line| line.starts_with(&place))
        .collect();
    assert_eq!(lines.len(), 2, "{stderr}");
    assert!(lines[0].contains("cannot connect"), "{stderr}");
    assert!(lines[1].contains("2 of 2 pushes failed"), "{stderr}");
}

#[test]
fn a_port_in_use_is_reported_before_the_load() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let server = Serve::start(&["hello"]);
    for command in [
        &["load", &server.url][..],
        &["capacity", &server.url, "--slo", "p99 < 5ms"],
        &[
            "run",
            concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../experiments/hello-native.toml"
            ),
        ],
    ] {
        let output = run(&[command, &["--metrics", &address]].concat());
        let stderr = text(&output.stderr);
        assert_eq!(code(&output), 2, "{stderr}");
        let line = stderr.lines().last().unwrap();
        assert!(
            line.starts_with(&format!(
                "floodmark: --metrics {address}: Address already in use"
            )),
            "{stderr}"
        );
        assert!(
            line.ends_with("; use a free address and port of this host"),
            "{stderr}"
        );
    }
}

#[test]
fn refuses_unusable_values() {
    for (flag, value, expected) in [
        ("--metrics", "9464", "use for example 127.0.0.1:9464"),
        (
            "--metrics",
            "localhost:9464",
            "not an IP address with a port",
        ),
        (
            "--metrics",
            "127.0.0.1:99999",
            "not an IP address with a port",
        ),
        ("--otlp", "127.0.0.1:4318", "must start with http://"),
        (
            "--otlp",
            "https://127.0.0.1:4318",
            "https:// is not supported",
        ),
        ("--otlp", "http://", "not a URL with a host"),
    ] {
        let output = run(&["load", "http://127.0.0.1:1/", flag, value]);
        let stderr = text(&output.stderr);
        assert_eq!(code(&output), 2, "{stderr}");
        assert!(
            stderr.contains(flag) && stderr.contains(expected),
            "{stderr}"
        );
    }
}

#[test]
fn hostile_scrapers_do_not_disturb_a_load() {
    let server = Serve::start(&["hello"]);
    let address = format!("127.0.0.1:{}", free_port());
    let running = start_load(
        &server.url,
        &["--rate", "500", "-d", "3s", "--metrics", &address],
    );
    running.wait_for_a_second();
    let hostile: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(&address).unwrap();
            stream.write_all(b"GET /metrics HTTP/1.1\r\nX").unwrap();
            stream
        })
        .collect();
    let load = running.end();
    drop(hostile);
    load.ends_with(0);
    assert_eq!(load.counts().ok, 1500);
}
