//! Tests with different targets: unix sockets, and names with several addresses, some of which have
//! no server.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::driver::{Driver, Seen, arrives_whole, bytes, connected, ended};
use common::plans::{closed_plan, open_plan};
use common::run;
use common::server::{self, RESPONSE, large, read_request, read_slowly, serve, serve_on};
use floodmark_record::events::{AddressUse, EndReason};
use floodmark_record::plan::{
    Address, Arrivals, Backend, CloseFirst, ConnectionUse, Plan, Sources, Target,
};
use socket2::{Domain, SockAddr, Socket, Type};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

/// A time in ms that is far longer than any operation in these tests.
const LONG_MS: u64 = 30_000;

on_both_backends! {
    loads_a_unix_socket_with_kept_and_fresh_connections
    a_large_request_reaches_a_slow_reader_on_a_unix_socket
    reports_an_immediate_end_after_the_data
    reports_an_end_that_arrived_between_polls
    connecting_to_a_missing_unix_socket_fails
    retries_connections_after_a_full_accept_queue
    a_connection_closed_while_waiting_reports_nothing_more
    uses_all_accepting_addresses_evenly
    each_address_is_reached_from_each_source
    an_address_that_refuses_costs_no_request
    an_unresponsive_address_costs_no_request
    an_unreachable_server_ends_the_run
    reports_failures_of_an_address_that_stops_accepting
}

struct Here {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

/// Creates a directory, and chooses a path in it for a unix socket.
fn here() -> Here {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    Here {
        _directory: directory,
        path,
    }
}

fn unix(path: &Path) -> Address {
    Address::Unix(path.to_owned())
}

fn serve_unix(path: &Path, serve: impl Fn(UnixStream) + Send + Sync + 'static) {
    let listener = UnixListener::bind(path).unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(stream), serve) = (stream, Arc::clone(&serve)) else {
                return;
            };
            thread::spawn(move || serve(stream));
        }
    });
}

fn respond_to_all(mut stream: impl Read + Write) {
    server::respond_to_all(&mut stream, &Default::default());
}

fn loads_a_unix_socket_with_kept_and_fresh_connections(backend: Backend) {
    let here = here();
    serve_unix(&here.path, respond_to_all);
    for (connection_use, opened) in [(ConnectionUse::Kept, 7), (ConnectionUse::Fresh, 500)] {
        for close_first in [CloseFirst::Server, CloseFirst::Client] {
            let mut plan = closed_plan(7, 500);
            plan.backend = backend;
            plan.threads = 2;
            plan.connection_use = connection_use;
            plan.close_first = close_first;
            plan.target.address = unix(&here.path);
            let end = run(plan).end;
            assert_eq!((end.counts.ok, end.connects), (500, opened));
            assert!(end.errors.is_empty(), "{:?}", end.errors);
            let expected = AddressUse {
                address: unix(&here.path),
                opened,
                moved: 0,
                left_out: None,
            };
            assert_eq!(end.addresses, [expected]);
        }
    }
}

fn a_large_request_reaches_a_slow_reader_on_a_unix_socket(backend: Backend) {
    let body = large(4_000_000);
    let expected = body.clone();
    let here = here();
    serve_unix(&here.path, move |stream| read_slowly(stream, &expected));
    arrives_whole(backend, unix(&here.path), &body);
}

fn reports_an_immediate_end_after_the_data(backend: Backend) {
    let here = here();
    serve_unix(&here.path, |mut stream| {
        let _ = stream.write_all(RESPONSE);
    });
    let tcp = serve(|mut stream, _| {
        let _ = stream.write_all(RESPONSE);
    });
    for target in [unix(&here.path), tcp.into()] {
        // On unix sockets, a receive that polls first would miss the end of the stream in about one
        // of fifty rounds.
        for round in 0..200 {
            let mut driver = Driver::new(backend, target.clone());
            driver.open(0, None);
            let mut all = driver.until(LONG_MS, connected);
            assert_eq!(all, [Seen::Connected(0)], "{target}");
            if round % 50 == 0 {
                // Let the end of the stream arrive before the backend receives.
                thread::sleep(Duration::from_millis(20));
            }
            // Before the backend waits again, read the events that arrived together with the
            // connection.
            all.extend(std::iter::from_fn(|| driver.next()));
            if !all.iter().any(ended) {
                all.extend(driver.until(LONG_MS, ended));
            }
            assert_eq!(bytes(&all), RESPONSE, "{target} {round}");
            assert_eq!(
                all.last(),
                Some(&Seen::Ended(0)),
                "{target} {round}: {all:?}"
            );
        }
    }
}

fn reports_an_end_that_arrived_between_polls(backend: Backend) {
    let here = here();
    serve_unix(&here.path, respond_once);
    let tcp = serve(|stream, _| respond_once(stream));
    for target in [unix(&here.path), tcp.into()] {
        let mut driver = Driver::new(backend, target.clone());
        driver.open(0, None);
        driver.until(LONG_MS, connected);
        driver.send(0, REQUEST);
        // This wait submits the request and arms the receive.
        driver.backend.wait(driver.clock.now()).unwrap();
        thread::sleep(Duration::from_millis(50));
        let all = driver.until(LONG_MS, ended);
        assert_eq!(bytes(&all), RESPONSE, "{target}");
        assert_eq!(all.last(), Some(&Seen::Ended(0)), "{target}");
    }
}

/// Responds to the first request, then closes the connection.
fn respond_once(mut stream: impl Read + Write) {
    let mut request = [0; REQUEST.len()];
    if stream.read_exact(&mut request).is_ok() {
        let _ = stream.write_all(RESPONSE);
    }
}

fn connecting_to_a_missing_unix_socket_fails(backend: Backend) {
    let here = here();
    for (listener, errno) in [(false, libc::ENOENT), (true, libc::ECONNREFUSED)] {
        if listener {
            drop(UnixListener::bind(&here.path).unwrap());
        }
        let mut driver = Driver::new(backend, unix(&here.path));
        for first in [None, Some(REQUEST)] {
            driver.open(0, first);
            let all = driver.until(LONG_MS, |_| true);
            assert_eq!(all, [Seen::ConnectFailed(0, Some(errno))]);
        }
    }
}

/// Creates a unix socket with an accept queue of at most two connections.
fn narrow(path: &Path) -> UnixListener {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::unix(path).unwrap()).unwrap();
    socket.listen(1).unwrap();
    UnixListener::from(std::os::fd::OwnedFd::from(socket))
}

fn retries_connections_after_a_full_accept_queue(backend: Backend) {
    let here = here();
    let listener = narrow(&here.path);
    let mut driver = Driver::new(backend, unix(&here.path));
    const SLOTS: u32 = 9;
    for slot in 0..SLOTS {
        driver.open(slot, (slot % 2 == 0).then_some(REQUEST));
    }
    let mut seen = driver.until(50, |_| false);
    let at_first = seen.len();
    assert!((1..SLOTS as usize).contains(&at_first), "{seen:?}");
    assert!(seen.iter().all(connected), "{seen:?}");
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                read_request(&mut stream);
                stream.write_all(RESPONSE).unwrap();
            });
        }
    });
    seen.extend(driver.until_nth(SLOTS as usize - at_first, LONG_MS, connected));
    let stand = seen.iter().filter(|seen| connected(seen));
    let stand: Vec<u32> = stand.map(Seen::slot).collect();
    // Slots with a request are reported through events, and other slots immediately. The slots of
    // each kind are in order.
    for kind in 0..2 {
        let of_kind = |slots: &mut dyn Iterator<Item = u32>| -> Vec<u32> {
            slots.filter(|slot| slot % 2 == kind).collect()
        };
        let reported = of_kind(&mut stand.iter().copied());
        assert_eq!(reported, of_kind(&mut (0..SLOTS)), "{stand:?}");
    }
    for slot in (1..SLOTS).step_by(2) {
        driver.send(slot, REQUEST);
    }
    // Until a slot is closed, a backend may report its end more than once.
    let mut open = BTreeSet::from_iter(0..SLOTS);
    for ended in seen.iter().filter(|seen| ended(seen)) {
        open.remove(&ended.slot());
    }
    seen.extend(driver.until(LONG_MS, |seen| {
        if ended(seen) {
            open.remove(&seen.slot());
        }
        open.is_empty()
    }));
    for slot in 0..SLOTS {
        let mut of: Vec<&Seen> = seen.iter().filter(|seen| seen.slot() == slot).collect();
        of.dedup();
        assert!(
            matches!(of[..], [Seen::Connected(_), Seen::Received(_, data), Seen::Ended(_)] if data == RESPONSE),
            "{of:?}"
        );
    }
}

fn a_connection_closed_while_waiting_reports_nothing_more(backend: Backend) {
    let here = here();
    let listener = narrow(&here.path);
    let mut driver = Driver::new(backend, unix(&here.path));
    for slot in 0..6 {
        driver.open(slot, None);
    }
    let seen = driver.until(50, |_| false);
    assert!(seen.iter().all(|seen| seen.slot() < 5), "{seen:?}");
    let waits = seen.len() as u32;
    driver.backend.close(waits, CloseFirst::Client);
    driver.backend.close(5, CloseFirst::Client);
    driver.open(5, None);
    let (keep, _kept) = std::sync::mpsc::channel();
    thread::spawn(move || listener.incoming().try_for_each(|stream| keep.send(stream)));
    // The reopened slot is last in the queue.
    let seen = driver.until(LONG_MS, |seen| seen.slot() == 5);
    let expected: Vec<Seen> = (waits + 1..6).map(Seen::Connected).collect();
    assert_eq!(seen, expected);
    assert_eq!(driver.until(50, |_| true), []);
}

/// Number of connections by target address and source address.
type Met = Arc<Mutex<BTreeMap<(IpAddr, IpAddr), u64>>>;

/// Creates listeners on 127.0.1.1, 127.0.1.2 and so on, all with the same port.
fn listeners<const N: usize>() -> [TcpListener; N] {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.1.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        let rest = (2..=N as u8).map(|i| TcpListener::bind((IpAddr::from([127, 0, 1, i]), port)));
        let all: Vec<TcpListener> = std::iter::once(Ok(first)).chain(rest).flatten().collect();
        if let Ok(all) = all.try_into() {
            return all;
        }
    }
    panic!("found no port that is free on every address");
}

fn address(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().unwrap()
}

fn serve_and_count(listener: TcpListener, met: &Met) {
    let met = Arc::clone(met);
    serve_on(listener, move |stream, _| {
        let ends = (
            stream.local_addr().unwrap().ip(),
            stream.peer_addr().unwrap().ip(),
        );
        *met.lock().unwrap().entry(ends).or_default() += 1;
        respond_to_all(stream);
    });
}

fn target(addresses: &[SocketAddr]) -> Target {
    Target {
        further_addresses: addresses[1..].to_vec(),
        ..addresses[0].into()
    }
}

fn uses_all_accepting_addresses_evenly(backend: Backend) {
    let all: [TcpListener; 3] = listeners();
    let addresses: Vec<SocketAddr> = all.iter().map(address).collect();
    let met = Met::default();
    all.into_iter().for_each(|one| serve_and_count(one, &met));
    for (threads, connection_use, opened) in [
        (1, ConnectionUse::Kept, 12),
        (3, ConnectionUse::Kept, 12),
        (1, ConnectionUse::Fresh, 600),
    ] {
        met.lock().unwrap().clear();
        let end = run(Plan {
            backend,
            threads,
            connection_use,
            target: target(&addresses),
            ..closed_plan(12, 600)
        })
        .end;
        assert_eq!((end.counts.ok, end.connects), (600, opened));
        let met: Vec<u64> = met.lock().unwrap().values().copied().collect();
        let opens: Vec<u64> = end.addresses.iter().map(|one| one.opened).collect();
        assert_eq!(met, opens);
        // Fresh connections are not opened to an address that is on trial.
        let off = if connection_use == ConnectionUse::Kept {
            0
        } else {
            60
        };
        assert!(
            opens.iter().all(|n| n.abs_diff(opened / 3) <= off),
            "{opens:?}"
        );
    }
}

fn each_address_is_reached_from_each_source(backend: Backend) {
    let all: [TcpListener; 2] = listeners();
    let addresses: Vec<SocketAddr> = all.iter().map(address).collect();
    let met = Met::default();
    all.into_iter().for_each(|one| serve_and_count(one, &met));
    let end = run(Plan {
        backend,
        connection_use: ConnectionUse::Fresh,
        target: target(&addresses),
        sources: Some(Sources {
            first: IpAddr::from([127, 0, 0, 2]),
            last: IpAddr::from([127, 0, 0, 3]),
        }),
        ..closed_plan(4, 400)
    })
    .end;
    assert_eq!(end.counts.ok, 400);
    let met: Vec<u64> = met.lock().unwrap().values().copied().collect();
    assert_eq!(met.len(), 4, "two addresses, each with two sources");
    assert!(met.iter().all(|n| n.abs_diff(100) <= 50), "{met:?}");
}

/// Checks that no plan loses a request when one of two addresses has no server.
fn without_loss(backend: Backend, served: SocketAddr, unserved: SocketAddr, why: &str) {
    let fresh = |plan| Plan {
        connection_use: ConnectionUse::Fresh,
        ..plan
    };
    let open = || Plan {
        connections: 50,
        ..open_plan(Arrivals::Constant, 500.0, None, Some(300))
    };
    for plan in [
        closed_plan(10, 300),
        fresh(closed_plan(10, 300)),
        open(),
        fresh(open()),
    ] {
        for first in [unserved, served] {
            let second = if first == served { unserved } else { served };
            let end = run(Plan {
                backend,
                timeout: Duration::from_secs(1),
                target: target(&[first, second]),
                ..plan.clone()
            })
            .end;
            assert_eq!(end.reason, EndReason::Completed);
            assert_eq!(end.counts.ok, 300, "{:?}", end.counts);
            assert!(end.errors.is_empty(), "{:?}", end.errors);
            let [used, unused] = [served, unserved].map(|address| {
                let of = |one: &&AddressUse| one.address == address.into();
                end.addresses.iter().find(of).unwrap()
            });
            assert_eq!((used.left_out.as_deref(), used.moved), (None, 0));
            assert_eq!(used.opened, end.connects);
            assert_eq!(unused.opened, 0);
            // In the open model with kept connections, a run may end before any request needs the
            // connection that is on trial.
            let on_trial = plan.is_open() && plan.connection_use == ConnectionUse::Kept;
            if unused.moved > 0 || !on_trial {
                assert_eq!(unused.left_out.as_deref(), Some(why));
                assert!((1..=50).contains(&unused.moved), "{unused:?}");
            }
        }
    }
}

fn an_address_that_refuses_costs_no_request(backend: Backend) {
    let [served, unserved]: [TcpListener; 2] = listeners();
    let (served_at, unserved_at) = (address(&served), address(&unserved));
    drop(unserved);
    serve_and_count(served, &Met::default());
    without_loss(backend, served_at, unserved_at, "connect_refused");
}

fn an_unresponsive_address_costs_no_request(backend: Backend) {
    let [served, unserved]: [TcpListener; 2] = listeners();
    let (served_at, port) = (address(&served), address(&unserved).port());
    drop(unserved);
    serve_and_count(served, &Met::default());
    // If the accept queue is full, the kernel does not respond to a connection attempt.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.set_reuse_address(true).unwrap();
    let silent_at = SocketAddr::from(([127, 0, 1, 2], port));
    silent.bind(&silent_at.into()).unwrap();
    silent.listen(0).unwrap();
    let mut fill = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&silent_at, Duration::from_millis(300)) {
        fill.push(stream);
        assert!(fill.len() < 100, "a backlog of 0 accepts every connection");
    }
    without_loss(backend, served_at, silent_at, "connect_timed_out");
}

fn an_unreachable_server_ends_the_run(backend: Backend) {
    let all: [TcpListener; 3] = listeners();
    let addresses: Vec<SocketAddr> = all.iter().map(address).collect();
    drop(all);
    let begin = Instant::now();
    let end = run(Plan {
        backend,
        target: target(&addresses),
        ..closed_plan(6, 1_000_000)
    })
    .end;
    assert_eq!(end.reason, EndReason::ServerGone);
    assert!(end.errors["connect_refused"] > 0, "{:?}", end.errors);
    assert!(end.addresses.iter().all(|one| one.opened == 0));
    let left_out = end.addresses.iter().filter(|one| one.left_out.is_some());
    assert_eq!(left_out.count(), 2, "the last address is never left out");
    assert!(begin.elapsed() < Duration::from_secs(20));
}

fn reports_failures_of_an_address_that_stops_accepting(backend: Backend) {
    let [stays, goes]: [TcpListener; 2] = listeners();
    let (stays_at, goes_at) = (address(&stays), address(&goes));
    serve_and_count(stays, &Met::default());
    // Serves one connection and then closes the listener.
    thread::spawn(move || {
        let (stream, _) = goes.accept().unwrap();
        drop(goes);
        respond_to_all(stream);
    });
    let end = run(Plan {
        backend,
        connection_use: ConnectionUse::Fresh,
        target: target(&[goes_at, stays_at]),
        ..closed_plan(1, 400)
    })
    .end;
    assert_eq!(end.reason, EndReason::Completed);
    assert_eq!(end.addresses[0].opened, 1);
    assert_eq!(end.addresses[0].left_out, None, "the address was reached");
    assert!(end.errors["connect_refused"] > 0, "{:?}", end.errors);
    assert_eq!(end.counts.connect_failed, end.errors["connect_refused"]);
    assert_eq!(end.counts.ok, 400 - end.counts.connect_failed);
}
