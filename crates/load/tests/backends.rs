//! Tests of both backends with real sockets on loopback.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::driver::{Driver, LONG, Seen, arrives_whole, bytes, connected, ended};
use common::plans::{closed_plan, held_plan as held, open_plan};
use common::server::{RESPONSE, large, read_request, read_slowly, respond_to_all, serve, serve_on};
use common::{pass_alone, run, try_run};
use floodmark_load::backend::uring::Uring;
use floodmark_load::worker::StopFlag;
use floodmark_record::events::EndReason;
use floodmark_record::plan::{Arrivals, Backend, CloseFirst, ConnectionUse, Plan, Sources};
use socket2::{Domain, Socket, Type};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

on_both_backends! {
    a_large_request_reaches_a_slow_reader_complete
    sends_nothing_after_an_incomplete_request
    a_large_response_arrives_in_pieces_and_complete
    reports_an_end_after_the_preceding_data
    kernel_timestamps_exclude_our_own_delay
    responses_with_timestamps_arrive_complete_and_end
    a_half_closed_connection_still_accepts_a_request
    a_reset_of_an_open_connection_is_a_failure
    a_closed_port_refuses_connections
    connecting_to_a_full_backlog_times_out
    ignores_events_of_a_closed_connection
    ipv6_works
    uses_every_source_address
    never_replaces_an_unusable_source_address
    opens_held_connections_once_and_uses_all
    reopens_held_connections_that_the_server_closes
    counts_held_connections_that_cannot_be_opened
    closing_by_reset_sends_rst
    child_out_of_files
    reports_exhausted_file_descriptors
}

fn a_large_request_reaches_a_slow_reader_complete(backend: Backend) {
    let body = large(8_000_000);
    let expected = body.clone();
    let address = serve(move |stream, _| read_slowly(stream, &expected));
    arrives_whole(backend, address, &body);
}

fn sends_nothing_after_an_incomplete_request(backend: Backend) {
    let address = serve(|mut stream, _| {
        let _ = stream.write_all(RESPONSE);
        thread::sleep(Duration::from_secs(60));
    });
    let mut driver = Driver::new(backend, address);
    driver.open(0, Some(&vec![b'x'; 8_000_000]));
    driver.until(LONG, |seen| matches!(seen, Seen::Received(..)));
    driver.send(0, REQUEST);
    let all = driver.until(LONG, ended);
    assert_eq!(all, [Seen::Failed(0, Some(libc::EPIPE))]);
}

fn a_large_response_arrives_in_pieces_and_complete(backend: Backend) {
    let response: Vec<u8> = (0..10_000_000u32).map(|i| (i % 253) as u8).collect();
    let sent = response.clone();
    let address = serve(move |mut stream, _| {
        read_request(&mut stream);
        stream.write_all(&sent).unwrap();
    });
    let mut driver = Driver::new(backend, address);
    driver.open(0, Some(REQUEST));
    let all = driver.until(LONG, ended);
    assert_eq!(all.last(), Some(&Seen::Ended(0)));
    assert!(bytes(&all) == response && all.len() > 100);
}

fn reports_an_end_after_the_preceding_data(backend: Backend) {
    let address = serve(|mut stream, _| {
        read_request(&mut stream);
        let _ = stream.write_all(RESPONSE);
    });
    let mut driver = Driver::new(backend, address);
    for _ in 0..50 {
        driver.open(0, Some(REQUEST));
        let all = driver.until(LONG, ended);
        assert_eq!(all.first(), Some(&Seen::Connected(0)));
        assert_eq!(bytes(&all), RESPONSE);
        assert_eq!(all.last(), Some(&Seen::Ended(0)));
        driver.backend.close(0, CloseFirst::Client);
    }
}

/// A request length for which io_uring uses sockets in the ring's table, and a length for which it
/// uses ordinary sockets.
const LENGTHS: [usize; 2] = [0, 100_000];

fn kernel_timestamps_exclude_our_own_delay(backend: Backend) {
    let asleep = Duration::from_millis(60);
    for longest in LENGTHS {
        let address =
            serve(
                |mut stream, _| {
                    while read_request(&mut stream) && stream.write_all(RESPONSE).is_ok() {}
                },
            );
        let mut driver = Driver::stamped(backend, address, longest);
        driver.open(0, None);
        assert_eq!(driver.until(LONG, connected).len(), 1);
        let received = |seen: &Seen| matches!(seen, Seen::Received(..));
        // The kernel enables timestamps a few milliseconds after they are requested.
        for _ in 0..1_000 {
            driver.send(0, REQUEST);
            assert_eq!(bytes(&driver.until(LONG, received)), RESPONSE);
            if driver.stamp.is_some() {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        for _ in 0..3 {
            let before = driver.clock.now();
            driver.send(0, REQUEST);
            driver.backend.submit();
            thread::sleep(asleep);
            let all = driver.until(LONG, received);
            assert_eq!(bytes(&all), RESPONSE);
            let stamp = driver.stamp.expect("loopback stamps");
            let now = driver.clock.now();
            assert!(before < stamp && stamp < now, "{before} {stamp} {now}");
            // The server responded as fast as before, while this thread slept.
            let slept = u64::try_from(asleep.as_nanos()).unwrap();
            assert!(now - stamp > slept / 2, "{before} {stamp} {now}");
        }
    }
}

fn responses_with_timestamps_arrive_complete_and_end(backend: Backend) {
    for longest in LENGTHS {
        let address = serve(|mut stream, _| {
            read_request(&mut stream);
            let _ = stream.write_all(&large(300_000));
        });
        let mut driver = Driver::stamped(backend, address, longest);
        for _ in 0..5 {
            driver.open(0, Some(REQUEST));
            let all = driver.until(LONG, ended);
            assert_eq!(bytes(&all), large(300_000));
            assert_eq!(all.last(), Some(&Seen::Ended(0)));
            driver.close(0, CloseFirst::Client);
        }
    }
}

fn a_half_closed_connection_still_accepts_a_request(backend: Backend) {
    let address = serve(|mut stream, _| {
        stream.shutdown(Shutdown::Write).unwrap();
        assert!(read_request(&mut stream));
        thread::sleep(Duration::from_secs(60));
    });
    let mut driver = Driver::new(backend, address);
    driver.open(0, None);
    assert_eq!(driver.until(LONG, ended).last(), Some(&Seen::Ended(0)));
    driver.send(0, REQUEST);
    assert_eq!(driver.until(100, ended), []);
}

fn a_reset_of_an_open_connection_is_a_failure(backend: Backend) {
    let address = serve(|mut stream, number| {
        if number % 2 == 0 {
            read_request(&mut stream);
        }
        let socket = Socket::from(stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    });
    let mut driver = Driver::new(backend, address);
    for _ in 0..100 {
        driver.open(0, Some(REQUEST));
        let all = driver.until(LONG, |seen| {
            ended(seen) || matches!(seen, Seen::ConnectFailed(..))
        });
        match &all[..] {
            [
                Seen::Connected(0),
                Seen::Failed(0, Some(libc::ECONNRESET | libc::EPIPE)),
            ] => {
                driver.backend.close(0, CloseFirst::Client);
            }
            // The connection was closed before the backend read the handshake event.
            [Seen::ConnectFailed(0, Some(libc::ECONNRESET))] => {}
            other => panic!("{other:?}"),
        }
    }
}

fn a_closed_port_refuses_connections(backend: Backend) {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut driver = Driver::new(backend, address);
    for first in [None, Some(REQUEST)] {
        driver.open(0, first);
        let all = driver.until(LONG, |_| true);
        assert_eq!(all, [Seen::ConnectFailed(0, Some(libc::ECONNREFUSED))]);
    }
}

fn connecting_to_a_full_backlog_times_out(backend: Backend) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let run = run(Plan {
        backend,
        connection_use: ConnectionUse::Fresh,
        timeout: Duration::from_millis(400),
        target: floodmark_record::plan::Target {
            address: address.into(),
            ..closed_plan(1, 1).target
        },
        ..closed_plan(6, 6)
    });
    let counts = &run.end.counts;
    assert!(run.end.errors["connect_timed_out"] >= 4, "{counts:?}");
    assert_eq!(counts.connect_failed + counts.timed_out, 6, "{counts:?}");
    assert!(run.took < Duration::from_secs(20), "{:?}", run.took);
}

fn ignores_events_of_a_closed_connection(backend: Backend) {
    let address = serve(|mut stream, _| {
        let _ = stream.write_all(RESPONSE);
        while read_request(&mut stream) {}
    });
    let mut driver = Driver::new(backend, address);
    for slot in 0..2 {
        driver.open(slot, None);
    }
    // Test the slot that connects immediately, and the slot that connects during the next wait.
    thread::sleep(Duration::from_millis(50));
    driver
        .backend
        .wait(driver.clock.now() + 50_000_000)
        .unwrap();
    // Both slots have events in this batch. When the first event is read, the other slot is closed
    // and reopened before its events are read.
    let first = driver.next().unwrap();
    let Seen::Connected(slot) = first else {
        panic!("{first:?}");
    };
    let other = 1 - slot;
    driver.backend.close(other, CloseFirst::Client);
    driver.open(other, Some(REQUEST));
    let mut all: Vec<Seen> = std::iter::from_fn(|| driver.next()).collect();
    let mut left = 2 * RESPONSE.len() - bytes(&all).len();
    all.extend(driver.until(LONG, |seen| {
        if let Seen::Received(_, data) = seen {
            left -= data.len();
        }
        left == 0
    }));
    all.extend(driver.until(100, |_| false));
    let (of_other, of_first): (Vec<Seen>, Vec<Seen>) =
        all.into_iter().partition(|seen| seen.slot() == other);
    assert_eq!(of_other.iter().filter(|seen| connected(seen)).count(), 1);
    assert_eq!(bytes(&of_other), RESPONSE);
    assert_eq!(bytes(&of_first), RESPONSE);
    assert!(!of_first.iter().chain(&of_other).any(ended));
}

fn ipv6_works(backend: Backend) {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        eprintln!("skipped: no IPv6 on this machine");
        return;
    };
    let address = listener.local_addr().unwrap();
    serve_on(listener, |mut stream, _| {
        respond_to_all(&mut stream, &std::sync::atomic::AtomicU64::new(0));
    });
    let mut plan = closed_plan(3, 50);
    plan.backend = backend;
    plan.target.address = address.into();
    plan.sources = Some(Sources {
        first: "::1".parse().unwrap(),
        last: "::1".parse().unwrap(),
    });
    assert_eq!(run(plan).end.counts.ok, 50);
}

fn uses_every_source_address(backend: Backend) {
    let peers: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
    let seen = Arc::clone(&peers);
    let address = serve(move |mut stream, _| {
        seen.lock().unwrap().push(stream.peer_addr().unwrap());
        respond_to_all(&mut stream, &std::sync::atomic::AtomicU64::new(0));
    });
    for threads in [1, 2, 3] {
        peers.lock().unwrap().clear();
        let mut plan = closed_plan(6, 3000);
        plan.backend = backend;
        plan.target.address = address.into();
        plan.threads = threads;
        plan.connection_use = ConnectionUse::Fresh;
        plan.sources = Some(Sources {
            first: "127.0.0.2".parse().unwrap(),
            last: "127.0.0.5".parse().unwrap(),
        });
        assert_eq!(run(plan).end.counts.ok, 3000);
        let peers = peers.lock().unwrap();
        let used: BTreeSet<IpAddr> = peers.iter().map(SocketAddr::ip).collect();
        let expected: BTreeSet<IpAddr> = (2..6).map(|i| IpAddr::from([127, 0, 0, i])).collect();
        assert_eq!(used, expected);
        // The kernel chooses a port for each source address separately, so some ports are used with
        // several addresses.
        let ports: BTreeSet<u16> = peers.iter().map(SocketAddr::port).collect();
        assert!(ports.len() < peers.len());
    }
}

fn never_replaces_an_unusable_source_address(backend: Backend) {
    let accepted: Arc<Mutex<u64>> = Arc::default();
    let seen = Arc::clone(&accepted);
    let address = serve(move |_, _| *seen.lock().unwrap() += 1);
    let mut plan = closed_plan(2, 20);
    plan.backend = backend;
    plan.target.address = address.into();
    plan.connection_use = ConnectionUse::Fresh;
    // This address is reserved for documentation (RFC 5737).
    let source = IpAddr::from([192, 0, 2, 7]);
    plan.sources = Some(Sources {
        first: source,
        last: source,
    });
    let run = run(plan);
    assert_eq!(run.end.counts.connect_failed, 20);
    assert_eq!(run.end.errors["ports_exhausted"], 20);
    assert_eq!(*accepted.lock().unwrap(), 0);
}

/// Returns a plan that needs only one connection, but holds `connections` connections.
fn held_plan(backend: Backend, connections: u32, requests: u64, target: SocketAddr) -> Plan {
    let mut plan = Plan {
        backend,
        connections,
        threads: 2,
        ..held(open_plan(Arrivals::Constant, 500.0, None, Some(requests)))
    };
    plan.target.address = target.into();
    plan
}

fn opens_held_connections_once_and_uses_all(backend: Backend) {
    let used: Arc<Mutex<BTreeMap<u64, u64>>> = Arc::default();
    let counts = Arc::clone(&used);
    let address = serve(move |mut stream, number| {
        counts.lock().unwrap().insert(number, 0);
        while read_request(&mut stream) {
            *counts.lock().unwrap().get_mut(&number).unwrap() += 1;
            stream.write_all(RESPONSE).unwrap();
        }
    });
    let run = run(held_plan(backend, 40, 120, address));
    assert_eq!(run.end.counts.ok, 120);
    let held = run.end.held.unwrap();
    assert_eq!((held.standing, held.failed), (40, 0));
    assert_eq!((held.lost, held.reopened), (0, 0));
    assert_eq!((run.end.connects, run.end.peak_connections), (40, 40));
    let used = used.lock().unwrap();
    assert_eq!(used.len(), 40);
    assert!(used.values().all(|n| *n > 0), "{used:?}");
}

fn reopens_held_connections_that_the_server_closes(backend: Backend) {
    let address = serve(|mut stream, _| {
        if read_request(&mut stream) {
            stream.write_all(RESPONSE).unwrap();
        }
    });
    let run = run(held_plan(backend, 10, 100, address));
    assert_eq!(run.end.counts.ok, 100);
    let held = run.end.held.unwrap();
    assert_eq!((held.standing, held.failed), (10, 0));
    assert!(held.lost >= 90 && held.reopened >= 90, "{held:?}");
    assert_eq!(run.end.connects, held.standing + held.reopened);
}

fn counts_held_connections_that_cannot_be_opened(backend: Backend) {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let run = run(held_plan(backend, 10, 100_000, address));
    assert_eq!(run.end.reason, EndReason::ServerGone);
    let held = run.end.held.unwrap();
    assert_eq!((held.standing, held.failed), (0, 10));
    assert_eq!(held.reasons["connect_refused"], 10);
    assert!(run.end.errors["connect_refused"] >= 10);
}

fn closing_by_reset_sends_rst(backend: Backend) {
    for (how, reset) in [(CloseFirst::Reset, true), (CloseFirst::Client, false)] {
        let (out, results) = std::sync::mpsc::channel();
        let address = serve(move |mut stream, _| {
            read_request(&mut stream);
            out.send(stream.read(&mut [0]).map_err(|e| e.raw_os_error()))
                .unwrap();
        });
        let mut driver = Driver::new(backend, address);
        driver.open(0, Some(REQUEST));
        driver.until(LONG, connected);
        thread::sleep(Duration::from_millis(50));
        driver.close(0, how);
        let result = results.recv_timeout(Duration::from_millis(LONG)).unwrap();
        let expected = if reset {
            Err(Some(libc::ECONNRESET))
        } else {
            Ok(0)
        };
        assert_eq!(result, expected);
    }
}

/// Runs in a separate process, started by [`reports_exhausted_file_descriptors`], because the limit
/// applies to the whole process.
fn child_out_of_files(backend: Backend) {
    let Ok(address) = std::env::var("FLOODMARK_TEST_TARGET") else {
        return;
    };
    let limit = libc::rlimit {
        rlim_cur: 40,
        rlim_max: 40,
    };
    // SAFETY: the limit outlives the call.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(done, 0);
    let mut plan = closed_plan(100, 1000);
    plan.backend = backend;
    plan.target.address = address.try_into().unwrap();
    plan.connection_use = ConnectionUse::Fresh;
    if backend == Backend::Uring {
        // The same limit applies to the ring's socket table, which is created first.
        let error = try_run(plan.clone(), None, &StopFlag::default())
            .err()
            .unwrap();
        assert!(error.to_string().contains("ulimit -n"), "{error}");
        // Sockets in the table are not open files. Requests too long for one write use ordinary
        // sockets, which are open files.
        plan.connections = 39;
        if Uring::probe(1).unwrap().can_bind {
            let source = IpAddr::from([127, 0, 0, 1]);
            let sources = Some(Sources {
                first: source,
                last: source,
            });
            let run = run(Plan {
                sources,
                ..plan.clone()
            });
            assert_eq!(run.end.counts.ok, 1000, "{:?}", run.end.errors);
        }
        let long = ("X-Long".to_owned(), "x".repeat(20_000));
        plan.request.headers.push(long);
    }
    let run = run(plan);
    assert_eq!(run.end.reason, EndReason::Completed);
    let counts = &run.end.counts;
    assert!(counts.ok > 0 && counts.connect_failed > 0, "{counts:?}");
    assert_eq!(counts.ok + counts.connect_failed, 1000);
    assert_eq!(run.end.errors["fds_exhausted"], counts.connect_failed);
}

fn reports_exhausted_file_descriptors(backend: Backend) {
    let address = serve(|mut stream, _| {
        respond_to_all(&mut stream, &std::sync::atomic::AtomicU64::new(0));
    });
    let variables = [
        ("FLOODMARK_TEST_TARGET", &*address.to_string()),
        ("RUST_BACKTRACE", "0"),
    ];
    pass_alone("child_out_of_files", backend, &variables);
}
