//! Loads over HTTP/2 against servers of the crate `h2`, which log every request.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;
#[path = "common/h2_server.rs"]
mod h2_server;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::http2::http2;
use common::plans::{closed_plan, open_plan, with_mix};
use common::{Run, run};
use floodmark_record::TimeKind;
use floodmark_record::body::RequestBody;
use floodmark_record::events::EndReason;
use floodmark_record::plan::{Arrivals, Backend, ConnectionUse, Expect, Http, Http2, Model, Plan};
use floodmark_stats::Histogram;
use h2::server::{Builder, SendResponse};
use hyper::body::Bytes;
use hyper::http::{Request, Response};

on_both_backends! {
    sends_the_exact_number_on_all_streams
    sends_on_schedule
    keeps_the_limit_of_the_server
    waiting_for_a_stream_is_blocked_time
    waiting_for_credit_is_window_time
    measures_round_trips_once_a_second
    survives_shutdowns_of_connections
    sends_refused_requests_again
    counts_streams_that_the_server_resets
    cancels_requests_that_time_out
    sends_long_bodies
    judges_long_responses
    closes_connections_after_a_number_of_requests
    a_server_of_http1_ends_the_run
}

/// What a server does.
#[derive(Debug, Clone, Copy, Default)]
struct Behavior {
    delay: Duration,
    /// Maximum number of streams of a connection; no limit if `None`.
    max_streams: Option<u32>,
    /// Initial window of a stream for request bodies, in bytes.
    window: Option<u32>,
    /// Time until the server gives credit for the first part of a body.
    credit_delay: Duration,
    /// Number of requests after which a connection is shut down.
    requests_per_connection: Option<u64>,
    /// Every request whose number is a multiple of the integer is reset for the given reason. A
    /// refused request is answered at the second attempt. If each request has its own path, attempts
    /// after the first have no number of their own.
    reset_each: Option<(u64, h2::Reason)>,
    /// Length of the response body in bytes.
    body: usize,
}

/// What a server saw.
#[derive(Debug, Default)]
struct Seen {
    connections: u64,
    /// Number of requests by path and number of body bytes.
    requests: BTreeMap<(String, usize), u64>,
    open: u32,
    /// Maximum number of requests in progress on all connections.
    most_open: u32,
}

impl Seen {
    fn count(&self) -> u64 {
        self.requests.values().sum()
    }
}

type Log = Arc<Mutex<Seen>>;

/// Starts a server on a thread that ends with the process.
fn serve(behavior: Behavior) -> (SocketAddr, Log) {
    let log = Log::default();
    let seen = Arc::clone(&log);
    let address = h2_server::start(move |socket| {
        seen.lock().unwrap().connections += 1;
        connection(socket, behavior, Arc::clone(&seen))
    });
    (address, log)
}

async fn connection(socket: tokio::net::TcpStream, behavior: Behavior, log: Log) {
    let mut builder = Builder::new();
    if let Some(streams) = behavior.max_streams {
        builder.max_concurrent_streams(streams);
    }
    if let Some(window) = behavior.window {
        builder.initial_window_size(window);
    }
    let Ok(mut connection) = builder.handshake::<_, Bytes>(socket).await else {
        return;
    };
    let mut accepted = 0;
    while let Some(Ok((request, respond))) = connection.accept().await {
        accepted += 1;
        if behavior.requests_per_connection == Some(accepted) {
            connection.graceful_shutdown();
        }
        tokio::spawn(answer(request, respond, behavior, Arc::clone(&log)));
    }
}

async fn answer(
    request: Request<h2::RecvStream>,
    mut respond: SendResponse<Bytes>,
    behavior: Behavior,
    log: Log,
) {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    let mut length = 0;
    {
        let mut seen = log.lock().unwrap();
        seen.open += 1;
        seen.most_open = seen.most_open.max(seen.open);
    }
    while let Some(Ok(part)) = body.data().await {
        if length == 0 && !behavior.credit_delay.is_zero() {
            tokio::time::sleep(behavior.credit_delay).await;
        }
        length += part.len();
        let _ = body.flow_control().release_capacity(part.len());
    }
    let (number, attempts) = {
        let mut seen = log.lock().unwrap();
        let attempts = seen.requests.entry((path, length)).or_default();
        *attempts += 1;
        let attempts = *attempts;
        let number = match attempts {
            1 => seen.requests.len() as u64,
            _ => seen.count(),
        };
        (number, attempts)
    };
    tokio::time::sleep(behavior.delay).await;
    log.lock().unwrap().open -= 1;
    if let Some((each, reason)) = behavior.reset_each
        && number % each == 0
        && (attempts == 1 || reason != h2::Reason::REFUSED_STREAM)
    {
        return respond.send_reset(reason);
    }
    let response = Response::builder().status(200).body(()).unwrap();
    let Ok(mut stream) = respond.send_response(response, behavior.body == 0) else {
        return;
    };
    if behavior.body > 0 {
        let _ = stream.send_data(vec![b'x'; behavior.body].into(), true);
    }
}

/// Returns the times of a kind.
fn times(run: &Run, kind: TimeKind) -> Histogram {
    let mut all = Histogram::new();
    let texts = run.rows.iter().filter_map(|row| row.histograms.get(&kind));
    texts.for_each(|text| all.merge(&Histogram::decode(text).unwrap()));
    all
}

/// Returns the plan with a different path for each request.
fn numbered(plan: Plan) -> Plan {
    let mut plan = with_mix(plan, &[1]);
    plan.mix.as_mut().unwrap().requests[0].path = "/{seq}".to_owned();
    plan
}

fn sends_the_exact_number_on_all_streams(backend: Backend) {
    for (connections, streams) in [(1, 1), (3, 8), (2, 100)] {
        let delay = Duration::from_millis(1);
        let (server, log) = serve(Behavior {
            delay,
            ..Behavior::default()
        });
        let plan = numbered(closed_plan(connections, 2_000));
        let end = run(http2(plan, streams, server, backend)).end;
        assert_eq!((end.counts.intended, end.counts.ok), (2_000, 2_000));
        let seen = log.lock().unwrap();
        assert_eq!(seen.requests.len(), 2_000, "each request once");
        assert_eq!(
            (seen.count(), seen.connections),
            (2_000, u64::from(connections))
        );
        assert_eq!(seen.most_open, connections * streams);
    }
}

fn sends_on_schedule(backend: Backend) {
    let (server, log) = serve(Behavior {
        delay: Duration::from_millis(20),
        ..Behavior::default()
    });
    let plan = open_plan(Arrivals::Constant, 1_000.0, Some(1.0), None);
    let plan = Plan {
        connections: 2,
        ..plan
    };
    let run = run(http2(plan, 50, server, backend));
    assert_eq!((run.end.counts.intended, run.end.counts.ok), (1_000, 1_000));
    assert_eq!(log.lock().unwrap().count(), 1_000);
}

fn keeps_the_limit_of_the_server(backend: Backend) {
    let (server, log) = serve(Behavior {
        delay: Duration::from_millis(5),
        max_streams: Some(3),
        ..Behavior::default()
    });
    let end = run(http2(closed_plan(2, 300), 20, server, backend)).end;
    assert_eq!(end.counts.ok, 300);
    assert_eq!(log.lock().unwrap().most_open, 6);
}

/// With `s` streams, service time `S` and arrivals at the rate `λ > s/S`, request `n` waits
/// `⌊n/s⌋ · (S − s/λ)` for a stream (D/D/s queue).
fn waiting_for_a_stream_is_blocked_time(backend: Backend) {
    const SERVICE_S: f64 = 0.1;
    const STREAMS: u32 = 2;
    const RATE: f64 = 40.0;
    let (server, _) = serve(Behavior {
        delay: Duration::from_secs_f64(SERVICE_S),
        max_streams: Some(STREAMS),
        ..Behavior::default()
    });
    let plan = Plan {
        connections: 1,
        ..open_plan(Arrivals::Constant, RATE, Some(1.0), None)
    };
    let run = run(http2(plan, 20, server, backend));
    // Requests that are still waiting at the end of the window are not sent.
    let sent = run.end.counts.ok;
    assert!((18..=20).contains(&sent), "{sent}");
    let blocked = times(&run, TimeKind::Blocked);
    let by_server = times(&run, TimeKind::BlockedServerLimit);
    assert_eq!(by_server.count(), blocked.count() - blocked.count_up_to(0));
    let used = run.end.http2.as_ref().unwrap();
    assert_eq!(used.used_streams, STREAMS);
    let wait_s = |n: u32| f64::from(n / STREAMS) * (SERVICE_S - f64::from(STREAMS) / RATE);
    let expected_s = (0..sent as u32).map(wait_s).sum::<f64>() / sent as f64;
    let mean_s = blocked.mean().unwrap() / 1e9;
    // Each of the 10 rounds of the server may end a few milliseconds late.
    assert!(
        (expected_s - 0.002..expected_s + 0.05).contains(&mean_s),
        "{mean_s} instead of {expected_s}"
    );
}

/// The server gives credit for the second half of each body after 100 ms.
fn waiting_for_credit_is_window_time(backend: Backend) {
    const DELAY_NS: u64 = 100_000_000;
    let (server, _) = serve(Behavior {
        window: Some(1_000),
        credit_delay: Duration::from_nanos(DELAY_NS),
        ..Behavior::default()
    });
    let mut plan = closed_plan(2, 8);
    plan.request.method = "POST".to_owned();
    plan.request.body = RequestBody::unrecorded(vec![7; 2_000]);
    let run = run(http2(plan, 2, server, backend));
    assert_eq!(run.end.counts.ok, 8);
    let window = times(&run, TimeKind::Window);
    assert_eq!(window.count(), 8);
    let (min, max) = (window.min().unwrap(), window.max().unwrap());
    // The server receives the first part of a body after the client has sent it.
    assert!(min > DELAY_NS - 2_000_000, "{min}");
    assert!(max < DELAY_NS + 50_000_000, "{max}");
    assert_eq!(times(&run, TimeKind::Blocked).max(), Some(0));
}

fn measures_round_trips_once_a_second(backend: Backend) {
    let (server, _) = serve(Behavior {
        delay: Duration::from_millis(20),
        ..Behavior::default()
    });
    for (ping, expected) in [(true, 4..=6), (false, 0..=0)] {
        let plan = Plan {
            model: Model::closed(2.5),
            ..closed_plan(2, 0)
        };
        let mut plan = http2(plan, 3, server, backend);
        plan.http = Http::V2(Http2 {
            streams: 3,
            ping,
            ..Http2::default()
        });
        let pings = times(&run(plan), TimeKind::Ping);
        assert!(expected.contains(&pings.count()), "{}", pings.count());
        // The answer to a PING does not wait for the application.
        assert!(pings.quantile(0.5).unwrap_or(0) < 10_000_000, "{pings:?}");
    }
}

fn survives_shutdowns_of_connections(backend: Backend) {
    let (server, log) = serve(Behavior {
        requests_per_connection: Some(50),
        ..Behavior::default()
    });
    let plan = numbered(closed_plan(2, 3_000));
    let end = run(http2(plan, 10, server, backend)).end;
    assert_eq!((end.counts.intended, end.counts.ok), (3_000, 3_000));
    let seen = log.lock().unwrap();
    assert_eq!((seen.requests.len(), seen.count()), (3_000, 3_000));
    assert!(seen.connections >= 3_000 / 60, "{}", seen.connections);
    let unprocessed = end.http2.as_ref().unwrap().unprocessed;
    assert_eq!(unprocessed, end.counts.reconnects);
}

fn sends_refused_requests_again(backend: Backend) {
    let (server, log) = serve(Behavior {
        reset_each: Some((10, h2::Reason::REFUSED_STREAM)),
        ..Behavior::default()
    });
    let plan = numbered(closed_plan(1, 500));
    let end = run(http2(plan, 10, server, backend)).end;
    assert_eq!((end.counts.intended, end.counts.ok), (500, 500));
    let seen = log.lock().unwrap();
    let again = seen.count() - seen.requests.len() as u64;
    assert_eq!(again, 50);
    assert_eq!(end.counts.reconnects, again);
}

fn counts_streams_that_the_server_resets(backend: Backend) {
    let (server, log) = serve(Behavior {
        reset_each: Some((10, h2::Reason::INTERNAL_ERROR)),
        ..Behavior::default()
    });
    let end = run(http2(closed_plan(1, 500), 10, server, backend)).end;
    assert_eq!((end.counts.ok, end.counts.reset), (450, 50));
    assert_eq!(end.errors["stream_reset_internal_error"], 50);
    assert_eq!(log.lock().unwrap().connections, 1);
}

fn cancels_requests_that_time_out(backend: Backend) {
    let (server, log) = serve(Behavior {
        delay: Duration::from_secs(60),
        ..Behavior::default()
    });
    let plan = Plan {
        timeout: Duration::from_millis(50),
        ..closed_plan(1, 20)
    };
    let end = run(http2(plan, 5, server, backend)).end;
    assert_eq!(end.counts.timed_out, 20);
    assert_eq!(end.silent_connections, 1);
    let seen = log.lock().unwrap();
    assert_eq!((seen.connections, seen.count()), (1, 20));
}

fn sends_long_bodies(backend: Backend) {
    for window in [1 << 10, 1 << 16, 1 << 20] {
        let (server, log) = serve(Behavior {
            window: Some(window),
            ..Behavior::default()
        });
        let mut plan = closed_plan(2, 20);
        plan.request.method = "POST".to_owned();
        plan.request.body = RequestBody::unrecorded(vec![7; 300_000]);
        let end = run(http2(plan, 4, server, backend)).end;
        assert_eq!(end.counts.ok, 20, "{end:?}");
        let seen = log.lock().unwrap();
        assert_eq!(seen.requests.get(&("/".to_owned(), 300_000)), Some(&20));
        assert!(end.counts.sent == 20);
    }
}

fn judges_long_responses(backend: Backend) {
    let body = 300_000;
    let (server, _) = serve(Behavior {
        body,
        ..Behavior::default()
    });
    for (expected, ok) in [("x".repeat(body), 40), ("y".repeat(body), 0)] {
        let plan = Plan {
            expect: vec![Expect::Body(expected)],
            ..closed_plan(2, 40)
        };
        let end = run(http2(plan, 4, server, backend)).end;
        assert_eq!((end.counts.ok, end.counts.wrong), (ok, 40 - ok));
    }
}

fn closes_connections_after_a_number_of_requests(backend: Backend) {
    let (server, log) = serve(Behavior::default());
    let plan = Plan {
        connection_use: ConnectionUse::PerConnection(10),
        ..closed_plan(2, 200)
    };
    let end = run(http2(plan, 4, server, backend)).end;
    assert_eq!(end.counts.ok, 200);
    assert!((20..=22).contains(&log.lock().unwrap().connections));
}

fn a_server_of_http1_ends_the_run(backend: Backend) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let _ = socket.read(&mut [0; 1024]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let end = run(http2(closed_plan(2, 1_000), 4, server, backend)).end;
    assert_eq!(end.reason, EndReason::NotHttp);
    assert_eq!(end.counts.ok, 0);
    assert!(end.errors["http1"] >= 20, "{:?}", end.errors);
}
