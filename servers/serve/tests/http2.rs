//! Tests HTTP/2 with prior knowledge over real sockets.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::cell::Cell;
use std::io::Read;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use floodmark_serve::{Limits, NativeWorkload, Settings};
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use hyper::{HeaderMap, Request, Response};
use support::{TestClient, TestServer, settings};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::timeout;

/// Runs a test that uses HTTP/2 clients.
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let limited = async { timeout(Duration::from_secs(60), test).await.unwrap() };
    LocalSet::new().block_on(&runtime, limited)
}

fn with_limits(limits: Limits) -> TestServer {
    TestServer::start(Settings {
        limits,
        ..settings(NativeWorkload::Hello)
    })
}

/// An HTTP/2 connection.
struct Client {
    requests: SendRequest<Bytes>,
    /// Yields the result of the connection.
    ended: JoinHandle<Result<(), h2::Error>>,
    address: SocketAddr,
}

impl Client {
    async fn connect(server: &TestServer) -> Self {
        let address = server.address;
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (requests, connection) = h2::client::handshake(stream).await.unwrap();
        let ended = spawn_local(connection);
        Client {
            requests,
            ended,
            address,
        }
    }

    /// Sends a request without its body.
    async fn begin(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        is_complete: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let uri = format!("http://{}{path}", self.address);
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        let mut requests = self.requests.clone().ready().await.unwrap();
        requests.send_request(request, is_complete).unwrap()
    }

    async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: &str,
    ) -> Observed {
        let (response, mut stream) = self.begin(method, path, headers, body.is_empty()).await;
        if !body.is_empty() {
            // The server may refuse the body before it is complete.
            let _ = stream.send_data(Bytes::copy_from_slice(body.as_bytes()), true);
        }
        read(response.await.unwrap()).await
    }

    async fn get(&mut self) -> Observed {
        self.send("GET", "/", &[], "").await
    }
}

/// The parts of a response that do not depend on the version of HTTP.
#[derive(Debug, PartialEq)]
struct Observed {
    status: u16,
    headers: Vec<Option<String>>,
    body: String,
}

const COMPARED: [&str; 3] = ["content-type", "content-length", "allow"];

async fn read(response: Response<h2::RecvStream>) -> Observed {
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data.unwrap();
        stream.flow_control().release_capacity(data.len()).unwrap();
        body.extend_from_slice(&data);
    }
    let value = |headers: &HeaderMap, name| Some(headers.get(name)?.to_str().unwrap().to_owned());
    Observed {
        status: head.status.as_u16(),
        headers: COMPARED.map(|name| value(&head.headers, name)).to_vec(),
        body: String::from_utf8(body).unwrap(),
    }
}

/// Sends a request over HTTP/1.1.
fn send_http1(
    client: &mut TestClient,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Observed {
    let headers: String = headers
        .iter()
        .map(|(k, v)| format!("{k}: {v}\r\n"))
        .collect();
    let length = body.len();
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    ));
    let response = client.try_response(method != "HEAD").unwrap();
    Observed {
        status: response.status,
        headers: COMPARED
            .map(|name| response.header(name).map(str::to_owned))
            .to_vec(),
        body: response.body,
    }
}

#[test]
fn responds_as_over_http_1_1() {
    let long = "b".repeat(64 * 1024 + 1);
    let json = ("content-type", "application/json");
    let mut compared = 0;
    for workload in NativeWorkload::NAMES
        .iter()
        .map(|name| name.parse().unwrap())
    {
        let directory = tempfile::tempdir().unwrap();
        let start = |file: &str| {
            let file = directory.path().join(file).display().to_string();
            let store = format!("embedded:{file}");
            TestServer::start(Settings {
                store: (workload == NativeWorkload::Bars).then(|| store.parse().unwrap()),
                ..settings(workload)
            })
        };
        let (first, second) = (start("first"), start("second"));
        let (path, mut requests) = (workload.path(), Vec::new());
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            for path in [path, &format!("{path}?a=b"), "/nowhere"] {
                requests.push((method, path.to_owned(), None, ""));
                requests.push((method, path.to_owned(), None, "abcd"));
            }
        }
        for body in ["{\"score\": 7}", "{\"name\": \"x\"}", "{", "{}", "[7]"] {
            requests.push(("POST", path.to_owned(), Some(json), body));
        }
        requests.push(("GET", path.to_owned(), None, ""));
        // HTTP/1.1 connections end after this request.
        requests.push(("POST", path.to_owned(), Some(json), &long));
        let mut http1 = first.connect();
        run(async {
            let mut http2 = Client::connect(&second).await;
            for (method, path, header, body) in requests {
                let headers: Vec<_> = header.into_iter().collect();
                let expected = send_http1(&mut http1, method, &path, &headers, body);
                let got = http2.send(method, &path, &headers, body).await;
                assert_eq!(got, expected, "{workload}: {method} {path} {headers:?}");
                compared += 1;
            }
            // An HTTP/2 connection outlives the refusal of a long body.
            assert_eq!(http2.send("GET", "/nowhere", &[], "").await.status, 404);
        });
        drop(http1);
        let (first, second) = (first.stop(), second.stop());
        assert_eq!(second.answered, first.answered + 1);
        assert_eq!(second.next_number, first.next_number);
    }
    assert_eq!(compared, 5 * 49);
}

#[test]
fn serves_both_versions_on_one_port() {
    let server = TestServer::of(NativeWorkload::Dispatcher);
    let mut http1 = server.connect();
    assert_eq!(http1.get("/dispatcher").body, "1");
    run(async {
        let mut http2 = Client::connect(&server).await;
        assert_eq!(http2.send("GET", "/dispatcher", &[], "").await.body, "2");
        assert_eq!(http1.get("/dispatcher").body, "3");
        assert_eq!(http2.send("GET", "/dispatcher", &[], "").await.body, "4");
    });
    let summary = server.stop();
    assert_eq!((summary.accepted, summary.answered), (2, 4));
}

#[test]
fn recognizes_a_preface_that_arrives_in_two_pieces() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
    let server = TestServer::of(NativeWorkload::Hello);
    let mut client = server.connect();
    client.send(&PREFACE[..11]);
    client.wait_until_read();
    client.send([&PREFACE[11..], SETTINGS].concat());
    let mut frame = [0; 9];
    client.stream.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], SETTINGS[3], "the type of the first frame");
}

#[test]
fn rejects_a_host_like_http_1_1() {
    let server = TestServer::of(NativeWorkload::Hello);
    run(async {
        let mut client = Client::connect(&server).await;
        let mut request = Request::new(());
        *request.uri_mut() = "http://user@x/".parse().unwrap();
        let mut requests = client.requests.clone().ready().await.unwrap();
        let (response, _) = requests.send_request(request, true).unwrap();
        assert_eq!(response.await.unwrap().status(), 400);
        assert_eq!(client.get().await.status, 200);
    });
}

#[test]
fn limits_open_streams_and_serves_them_in_any_order() {
    let server = with_limits(Limits {
        streams: NonZeroU32::new(3).unwrap(),
        ..Limits::default()
    });
    run(async {
        let mut client = Client::connect(&server).await;
        assert_eq!(client.get().await.status, 200);
        assert_eq!(client.requests.current_max_send_streams(), 3);
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(client.begin("GET", "/", &[], false).await);
        }
        let (mut fourth, _) = client.begin("GET", "/", &[], true).await;
        let waited = timeout(Duration::from_millis(100), &mut fourth).await;
        assert!(waited.is_err(), "a fourth stream is open");
        while let Some((response, mut stream)) = open.pop() {
            stream.send_data(Bytes::from_static(b"x"), true).unwrap();
            assert_eq!(read(response.await.unwrap()).await.body, "Hello World");
        }
        assert_eq!(fourth.await.unwrap().status(), 200);
    });
}

#[test]
fn refuses_a_large_head() {
    let server = TestServer::of(NativeWorkload::Hello);
    let value = "y".repeat(20_000);
    run(async {
        let mut client = Client::connect(&server).await;
        let large = client.send("GET", "/", &[("x", &value)], "").await;
        assert_eq!(large.status, 431);
        assert_eq!(client.get().await.status, 200);
    });
}

#[test]
fn limits_the_time_of_a_body_and_of_an_idle_connection() {
    let server = with_limits(Limits {
        request: Duration::from_millis(400),
        idle: Duration::from_millis(900),
        ..Limits::default()
    });
    run(async {
        let began = Instant::now();
        let mut client = Client::connect(&server).await;
        let (response, mut stream) = client.begin("POST", "/", &[], false).await;
        stream.send_data(Bytes::from_static(b"x"), false).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 408);
        assert!(began.elapsed() >= Duration::from_millis(400));
        drop((response, stream));
        // The other streams of the connection are not affected.
        assert_eq!(client.get().await.status, 200);
        let began = Instant::now();
        let ended = (&mut client.ended).await.unwrap();
        assert!(ended.is_ok(), "{ended:?}");
        assert!(began.elapsed() >= Duration::from_millis(900));
    });
}

#[test]
fn a_shutdown_ends_an_idle_connection() {
    let server = with_limits(Limits {
        grace: Duration::from_secs(60),
        ..Limits::default()
    });
    run(async {
        let mut client = Client::connect(&server).await;
        assert_eq!(client.get().await.status, 200);
        let began = Instant::now();
        let ending = server.begin_stop();
        assert!(client.ended.await.unwrap().is_ok());
        assert!(began.elapsed() < Duration::from_secs(30));
        assert_eq!(ending.join().unwrap().unwrap().cut_at_end, 0);
    });
}

#[test]
fn a_shutdown_serves_open_streams_and_refuses_new_ones() {
    let server = TestServer::of(NativeWorkload::Hello);
    run(async {
        let mut client = Client::connect(&server).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(client.begin("POST", "/", &[], false).await);
        }
        let request = client.begin("GET", "/", &[], false).await;
        assert_eq!(client.get().await.status, 200);
        let ending = server.begin_stop();
        while std::net::TcpStream::connect(client.address).is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let (response, mut stream) = request;
        stream.send_data(Bytes::from_static(b"x"), true).unwrap();
        assert_eq!(read(response.await.unwrap()).await.body, "Hello World");
        for (response, mut stream) in open {
            stream.send_data(Bytes::from_static(b"x"), true).unwrap();
            assert_eq!(read(response.await.unwrap()).await.status, 405);
        }
        assert!(client.ended.await.unwrap().is_ok());
        let refused = client.requests.clone().ready().await.map(drop);
        let reason = refused.unwrap_err().reason();
        assert_eq!(reason, Some(Reason::NO_ERROR));
        assert_eq!(ending.join().unwrap().unwrap().cut_at_end, 0);
    });
}

/// Requests numbers one after another until the connection refuses a request.
async fn request_numbers(mut requests: SendRequest<Bytes>, responses: Rc<Cell<u64>>) -> Vec<u64> {
    let mut numbers = Vec::new();
    while let Ok(ready) = requests.ready().await {
        requests = ready;
        let request = Request::get("http://x/dispatcher").body(()).unwrap();
        let Ok((response, _)) = requests.send_request(request, true) else {
            break;
        };
        let Ok(response) = response.await else { break };
        numbers.push(read(response).await.body.parse().unwrap());
        responses.set(responses.get() + 1);
    }
    numbers
}

#[test]
fn a_shutdown_under_load_loses_no_number() {
    let server = TestServer::of(NativeWorkload::Dispatcher);
    run(async {
        let responses = Rc::new(Cell::new(0));
        let mut streams = Vec::new();
        for _ in 0..4 {
            let requests = Client::connect(&server).await.requests;
            for _ in 0..8 {
                let numbers = request_numbers(requests.clone(), Rc::clone(&responses));
                streams.push(spawn_local(numbers));
            }
        }
        while responses.get() < 1000 {
            tokio::task::yield_now().await;
        }
        let ending = server.begin_stop();
        let mut all = Vec::new();
        for stream in streams {
            all.extend(stream.await.unwrap());
        }
        all.sort_unstable();
        let expected: Vec<u64> = (1..=all.len() as u64).collect();
        assert_eq!(all, expected, "every number handed out was received");
        let summary = ending.join().unwrap().unwrap();
        assert_eq!(summary.next_number, Some(all.len() as u64 + 1));
        assert_eq!(summary.cut_at_end, 0);
    });
}

#[test]
fn a_busy_connection_makes_room_for_a_waiting_one() {
    let server = with_limits(Limits {
        connections: NonZeroUsize::new(1),
        ..Limits::default()
    });
    run(async {
        let mut busy = Client::connect(&server).await;
        assert_eq!(busy.get().await.status, 200);
        let mut waiting = server.connect();
        waiting.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        while !busy.ended.is_finished() {
            if let Ok(mut requests) = busy.requests.clone().ready().await {
                let uri = format!("http://{}/", busy.address);
                let request = Request::get(uri).body(()).unwrap();
                let (response, _) = requests.send_request(request, true).unwrap();
                let _ = response.await;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(waiting.response().body, "Hello World");
    });
}

#[test]
fn survives_streams_that_the_client_resets() {
    let server = TestServer::of(NativeWorkload::Hello);
    run(async {
        let mut client = Client::connect(&server).await;
        for _ in 0..10 {
            let (_, mut stream) = client.begin("POST", "/", &[], false).await;
            stream.send_reset(Reason::CANCEL);
        }
        assert_eq!(client.get().await.status, 200);
    });
    assert_eq!(server.stop().cut_at_end, 0);
}
