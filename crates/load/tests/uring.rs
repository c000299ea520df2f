//! Tests of the io_uring backend: full buffers and queues, and slots that change within one batch.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::{Rc, Weak};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use common::driver::{Driver, LONG, Seen, bytes, connected, ended};
use common::server::{RESPONSE, read_request, serve};
use common::{raise_open_files, uring_works};
use floodmark_load::backend::{RequestBytes, SharedBytes, Slot};
use floodmark_load::coalescing::Batch;
use floodmark_record::plan::CloseFirst;
use socket2::{Domain, Socket, Type};

/// Starts a single-threaded server. The returned receiver yields its accepted connections.
/// The accept queue has the length `backlog`.
fn accepting(backlog: i32) -> (SocketAddr, Receiver<TcpStream>) {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(backlog).unwrap();
    let listener = TcpListener::from(listener);
    let address = listener.local_addr().unwrap();
    let (out, accepted): (Sender<TcpStream>, _) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            if out.send(stream.unwrap()).is_err() {
                return;
            }
        }
    });
    (address, accepted)
}

fn by_slot(all: Vec<Seen>) -> BTreeMap<Slot, Vec<Seen>> {
    let mut slots: BTreeMap<Slot, Vec<Seen>> = BTreeMap::new();
    for seen in all {
        slots.entry(seen.slot()).or_default().push(seen);
    }
    slots
}

#[test]
fn receives_more_data_than_its_buffers_hold() {
    if !uring_works() {
        return;
    }
    raise_open_files();
    const CONNECTIONS: u32 = 700;
    let response: Vec<u8> = (0..10_000u32).map(|i| (i % 251) as u8).collect();
    let (address, accepted) = accepting(1024);
    let mut driver = Driver::uring(address, CONNECTIONS as usize, 0);
    for slot in 0..CONNECTIONS {
        driver.open(slot, None);
    }
    let all = driver.until_nth(CONNECTIONS as usize, LONG, connected);
    assert!(all.iter().all(connected));
    // Another wait arms the last receives. All data can thus arrive before the test reads any.
    driver.backend.wait(driver.clock.now()).unwrap();
    for mut stream in accepted.iter().take(CONNECTIONS as usize) {
        stream.write_all(&response).unwrap();
    }
    let slots = by_slot(driver.until_nth(CONNECTIONS as usize, LONG, ended));
    assert_eq!(slots.len(), CONNECTIONS as usize);
    for (slot, seen) in slots {
        assert!(bytes(&seen) == response, "slot {slot}");
        assert_eq!(seen.last(), Some(&Seen::Ended(slot)));
    }
}

#[test]
fn keeps_completions_beyond_the_queue_length() {
    if !uring_works() {
        return;
    }
    let address = serve(|stream, _| {
        let socket = Socket::from(stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    });
    let mut driver = Driver::uring(address, 1, 0);
    driver.open(0, None);
    let all = driver.until(LONG, ended);
    assert!(!all.is_empty());
    // Each send fails, and a completion reports the failure.
    for _ in 0..20_000 {
        driver.send(0, RESPONSE);
    }
    let all = driver.until_nth(20_000, LONG, ended);
    assert_eq!(all.len(), 20_000);
    assert!(
        all.iter()
            .all(|seen| *seen == Seen::Failed(0, Some(libc::EPIPE)))
    );
}

#[test]
fn slots_closed_and_reopened_within_one_batch_are_new_connections() {
    if !uring_works() {
        return;
    }
    const SLOTS: u32 = 61;
    let (address, accepted) = accepting(4096);
    thread::spawn(move || {
        let mut held = Vec::new();
        for (number, mut stream) in accepted.iter().enumerate() {
            let _ = stream.write_all(&(number as u64).to_be_bytes());
            held.push(stream);
            if held.len() > 2 * SLOTS as usize {
                held.remove(0);
            }
        }
    });
    for how in [CloseFirst::Client, CloseFirst::Reset] {
        let mut driver = Driver::uring(address, SLOTS as usize, 0);
        for slot in 0..SLOTS {
            driver.open(slot, None);
        }
        let mut newest = 0;
        for round in 0..20 {
            let got = |seen: &Seen| matches!(seen, Seen::Received(..));
            let slots = by_slot(driver.until_nth(SLOTS as usize, LONG, got));
            assert_eq!(slots.len(), SLOTS as usize, "{how:?} {round}");
            let oldest = newest;
            for (slot, seen) in slots {
                let [Seen::Connected(_), Seen::Received(_, data)] = &seen[..] else {
                    panic!("{how:?} {round} {slot}: {seen:?}");
                };
                let number = u64::from_be_bytes(data.as_slice().try_into().unwrap());
                assert!(
                    number >= oldest,
                    "{how:?} {round} {slot}: data from an earlier connection"
                );
                newest = newest.max(number + 1);
            }
            for slot in 0..SLOTS {
                // Let some pairs of submissions start at odd positions in the queue.
                if slot % 3 == round % 3 {
                    driver.send(slot, RESPONSE);
                }
                driver.backend.close(slot, how);
                driver.open(slot, None);
            }
        }
    }
}

#[test]
fn opens_and_closes_thousands_in_one_turn() {
    if !uring_works() {
        return;
    }
    raise_open_files();
    const CONNECTIONS: u32 = 3000;
    let (address, accepted) = accepting(4096);
    let mut driver = Driver::uring(address, CONNECTIONS as usize, 0);
    for slot in 0..CONNECTIONS {
        driver.open(slot, None);
    }
    let all = driver.until_nth(CONNECTIONS as usize, LONG, connected);
    assert_eq!(
        all.iter().filter(|seen| connected(seen)).count(),
        CONNECTIONS as usize
    );
    driver.backend.wait(driver.clock.now()).unwrap();
    for slot in 0..CONNECTIONS {
        driver.backend.close(slot, CloseFirst::Client);
    }
    assert_eq!(driver.until(300, |_| true), []);
    for mut stream in accepted.iter().take(CONNECTIONS as usize) {
        let limit = Some(Duration::from_millis(LONG));
        stream.set_read_timeout(limit).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }
}

#[test]
fn an_abandoned_connect_reports_nothing_more() {
    if !uring_works() {
        return;
    }
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut driver = Driver::uring(address, 8, 0);
    for slot in 0..8 {
        driver.open(slot, None);
    }
    let stand = driver.until(200, |_| false).len();
    assert!((1..8).contains(&stand), "{stand}");
    for slot in 0..8 {
        driver.backend.close(slot, CloseFirst::Client);
    }
    // If a handshake were still in progress, the kernel would retry it after a second, when the
    // accept queue has room.
    driver.backend.wait(driver.clock.now()).unwrap();
    listener.set_nonblocking(true).unwrap();
    while listener.accept().is_ok() {}
    assert_eq!(driver.until(1300, |_| true), []);
    assert!(listener.accept().is_err(), "a handshake continued");
    driver.open(3, None);
    assert_eq!(driver.until(LONG, |_| true), [Seen::Connected(3)]);
}

#[test]
fn resumes_a_short_request_cut_by_a_full_socket() {
    if !uring_works() {
        return;
    }
    const BYTES: usize = 10_007;
    let (go, wait) = channel();
    let wait = std::sync::Mutex::new(wait);
    let address = serve(move |mut stream, _| {
        let requests: usize = wait.lock().unwrap().recv().unwrap();
        let mut read = vec![0; BYTES];
        for n in 0..requests {
            stream.read_exact(&mut read).unwrap();
            assert!(
                read.iter().all(|byte| *byte == n as u8),
                "request {n} is torn"
            );
        }
        stream.write_all(RESPONSE).unwrap();
    });
    let mut driver = Driver::uring(address, 1, 0);
    driver.open(0, None);
    driver.until(LONG, connected);
    let mut sent = 0;
    loop {
        driver.send(0, &[sent as u8; BYTES]);
        driver.backend.wait(driver.clock.now()).unwrap();
        match driver.next() {
            None => sent += 1,
            // The previous send is incomplete, so the connection fails.
            Some(seen) => break assert_eq!(seen, Seen::Failed(0, Some(libc::EPIPE))),
        }
        assert!(sent < 10_000, "the socket is never full");
    }
    go.send(sent).unwrap();
    assert_eq!(bytes(&driver.until(LONG, |_| true)), RESPONSE);
}

#[test]
fn releases_replaced_requests() {
    if !uring_works() {
        return;
    }
    let address = serve(|mut stream, _| while read_request(&mut stream) {});
    let mut driver = Driver::uring(address, 1, 0);
    driver.open(0, None);
    driver.until(LONG, connected);
    let mut given: Vec<Weak<RequestBytes>> = Vec::new();
    for _ in 0..1000 {
        let request: SharedBytes = Rc::new(b"GET / HTTP/1.1\r\n\r\n".to_vec().into());
        driver.backend.send(0, &request);
        given.push(Rc::downgrade(&request));
        let held = given.iter().filter(|request| request.strong_count() > 0);
        assert!(
            held.count() <= 257,
            "at most one request for the slot and one per queue entry"
        );
    }
    driver.backend.wait(driver.clock.now()).unwrap();
    given.pop();
    assert!(given.iter().all(|request| request.strong_count() == 0));

    // This part tests a long request that is being sent when its connection closes.
    let stuck = serve(|_stream, _| thread::sleep(Duration::from_secs(60)));
    let mut driver = Driver::uring(stuck, 1, 0);
    driver.open(0, None);
    driver.until(LONG, connected);
    let long: SharedBytes = Rc::new(vec![b'x'; 20_000_000].into());
    driver.backend.send(0, &long);
    driver.until(50, |_| true);
    driver.close(0, CloseFirst::Client);
    driver.until(50, |_| true);
    assert_eq!(Rc::strong_count(&long), 1);
}

#[test]
fn long_requests_go_through_ordinary_sockets() {
    if !uring_works() {
        return;
    }
    let body: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let expected = body.clone();
    let address = serve(move |mut stream, _| {
        let mut read = vec![0; expected.len()];
        stream.read_exact(&mut read).unwrap();
        assert!(read == expected);
        let _ = stream.write_all(RESPONSE);
    });
    let mut driver = Driver::uring(address, 1, body.len());
    for how in [CloseFirst::Client, CloseFirst::Reset] {
        driver.open(0, Some(&body));
        assert_eq!(bytes(&driver.until(LONG, ended)), RESPONSE);
        driver.close(0, how);
    }
}

#[test]
fn dropping_the_backend_closes_its_connections() {
    if !uring_works() {
        return;
    }
    let (address, accepted) = accepting(16);
    let mut driver = Driver::uring(address, 3, 0);
    for slot in 0..3 {
        driver.open(slot, None);
    }
    driver.until_nth(3, LONG, connected);
    drop(driver);
    // Use a separate thread, because the kernel cleans up the ring in the owner's thread, which
    // would interrupt waits.
    let ends = thread::spawn(move || {
        let streams = accepted.iter().take(3);
        streams.for_each(|mut stream| {
            let limit = Some(Duration::from_millis(LONG));
            stream.set_read_timeout(limit).unwrap();
            assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        });
    });
    ends.join().unwrap();
}

/// Returns a driver with four established connections and armed receives, and the server's ends of
/// these connections.
fn four() -> (Driver, Vec<TcpStream>) {
    let (address, accepted) = accepting(16);
    let mut driver = Driver::uring(address, 4, 0);
    for slot in 0..4 {
        driver.open(slot, None);
    }
    let all = driver.until_nth(4, LONG, connected);
    assert_eq!(all.len(), 4);
    driver.backend.wait(driver.clock.now()).unwrap();
    while driver.next().is_some() {}
    (driver, accepted.iter().take(4).collect())
}

#[test]
fn a_batch_is_reported_with_one_timestamp() {
    if !uring_works() {
        return;
    }
    let (mut driver, mut peers) = four();
    let (most, hold) = (4, LONG * 1_000_000);
    assert!(driver.backend.coalesce(Some(Batch { most, hold })));
    let sending = thread::spawn(move || {
        for peer in &mut peers {
            thread::sleep(Duration::from_millis(20));
            peer.write_all(b"a").unwrap();
        }
        peers
    });
    let before = driver.clock.now();
    driver.backend.wait(before + 2 * hold).unwrap();
    let seen_at = driver.backend.seen().unwrap();
    assert!(seen_at >= before && seen_at <= driver.clock.now());
    let mut reports = 0;
    while driver.next().is_some() {
        reports += 1;
        assert_eq!(driver.backend.seen(), Some(seen_at));
    }
    assert_eq!(reports, 4);
    sending.join().unwrap();
}

#[test]
fn waits_for_a_batch_no_longer_than_allowed() {
    if !uring_works() {
        return;
    }
    let (mut driver, mut peers) = four();
    let (most, hold) = (4, 50_000_000);
    driver.backend.coalesce(Some(Batch { most, hold }));
    peers[2].write_all(b"a").unwrap();
    let before = driver.clock.now();
    driver.backend.wait(before + LONG * 1_000_000).unwrap();
    assert!(driver.clock.now() - before >= hold);
    assert_eq!(driver.next(), Some(Seen::Received(2, b"a".to_vec())));
    assert_eq!(driver.next(), None);
    // If no event has arrived when the hold time ends, the wait continues until the first event.
    let late = thread::spawn(move || {
        thread::sleep(Duration::from_millis(150));
        peers[1].write_all(b"b").unwrap();
        peers
    });
    driver.backend.wait(before + LONG * 1_000_000).unwrap();
    assert_eq!(driver.next(), Some(Seen::Received(1, b"b".to_vec())));
    late.join().unwrap();
}
