//! Tests of whole workers with small servers on loopback. They check that every plan is executed
//! exactly, and that every run ends for the right reason.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::plans::{closed_plan, open_plan, ramp_plan, replay_plan, steps_plan};
use common::server::{RESPONSE, read_request, respond_to_all, serve, serve_on};
use common::{input, run, run_with, try_changing};
use floodmark_load::worker::StopFlag;
use floodmark_record::Event;
use floodmark_record::events::{EndReason, Phase};
use floodmark_record::plan::{Arrivals, Backend, Check, CloseFirst, ConnectionUse, Model, Plan};
use floodmark_record::units::Rate;

on_both_backends! {
    sends_exactly_n_requests
    threads_share_the_open_schedule
    threads_share_rates_that_change
    rows_end_at_the_ends_of_steps
    a_new_rate_applies_from_a_whole_second
    a_stop_ends_the_run_with_requests_in_flight
    a_stop_before_the_start_sends_nothing
    drains_requests_in_flight_after_the_window
    a_request_that_a_connect_has_sent_is_in_flight_at_the_end
    keeps_the_measurements_of_a_run_whose_server_dies
    a_missing_server_ends_the_run_early
    ends_the_run_if_the_server_does_not_speak_http
    the_warm_up_is_counted_separately
    the_file_of_kept_responses_contains_every_number
    each_close_between_requests_costs_one_reconnect
    sends_no_post_twice
    counts_responses_to_unfinished_uploads
    accepts_close_delimited_responses_with_every_kind_of_close
}

fn to(backend: Backend, address: std::net::SocketAddr, mut plan: Plan) -> Plan {
    plan.backend = backend;
    plan.target.address = address.into();
    plan
}

fn timed(connections: u32, seconds: f64) -> Plan {
    Plan {
        model: Model::closed(seconds),
        ..closed_plan(connections, 0)
    }
}

fn sends_exactly_n_requests(backend: Backend) {
    let responded = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&responded);
    let address = serve(move |mut stream, _| respond_to_all(&mut stream, &count));
    for (threads, connections, n) in [
        (1, 1, 1),
        (2, 3, 1001),
        (4, 2, 7),
        (3, 5, 1),
        (8, 8, 3),
        (2, 50, 10),
    ] {
        for connection_use in [
            ConnectionUse::Kept,
            ConnectionUse::Fresh,
            ConnectionUse::PerConnection(3),
        ] {
            for close_first in [CloseFirst::Server, CloseFirst::Client, CloseFirst::Reset] {
                responded.store(0, Ordering::Relaxed);
                let run = run(to(
                    backend,
                    address,
                    Plan {
                        threads,
                        connection_use,
                        close_first,
                        ..closed_plan(connections, n)
                    },
                ));
                let counts = &run.end.counts;
                assert_eq!((counts.intended, counts.ok, counts.reconnects), (n, n, 0));
                assert_eq!(responded.load(Ordering::Relaxed), n);
                assert_eq!(run.end.reason, EndReason::Completed);
                assert!(run.end.peak_connections <= u64::from(connections));
            }
        }
    }
}

fn threads_share_the_open_schedule(backend: Backend) {
    let responded = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&responded);
    let address = serve(move |mut stream, _| respond_to_all(&mut stream, &count));
    for (threads, arrivals) in [
        (3, Arrivals::Constant),
        (2, Arrivals::Poisson),
        (1, Arrivals::Burst),
    ] {
        responded.store(0, Ordering::Relaxed);
        let plan = Plan {
            threads,
            ..open_plan(arrivals, 2000.0, None, Some(1000))
        };
        let run = run(to(backend, address, plan));
        assert_eq!((run.end.counts.intended, run.end.counts.ok), (1000, 1000));
        assert_eq!(responded.load(Ordering::Relaxed), 1000);
    }
    let run = run(to(
        backend,
        address,
        Plan {
            threads: 2,
            ..open_plan(Arrivals::Constant, 1999.0, Some(0.5), None)
        },
    ));
    assert_eq!((run.end.counts.intended, run.end.counts.ok), (1000, 1000));
    assert_eq!(run.end.window_ns, 500_000_000);
}

fn threads_share_rates_that_change(backend: Backend) {
    let responded = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&responded);
    let address = serve(move |mut stream, _| respond_to_all(&mut stream, &count));
    let times = (0..500).map(|k| k * 1_000_000).collect();
    for (threads, plan, n) in [
        (2, ramp_plan(0.0, 2000.0, 0.5), 500),
        (3, ramp_plan(1500.0, 500.0, 0.5), 500),
        (
            2,
            steps_plan(&[(1000.0, 0.25), (0.0, 0.05), (2000.0, 0.2)]),
            650,
        ),
        (3, replay_plan(times, 0.5), 500),
    ] {
        responded.store(0, Ordering::Relaxed);
        let run = run(to(backend, address, Plan { threads, ..plan }));
        assert_eq!((run.end.counts.intended, run.end.counts.ok), (n, n));
        assert_eq!(responded.load(Ordering::Relaxed), n);
        assert_eq!(run.end.window_ns, 500_000_000);
    }
}

fn rows_end_at_the_ends_of_steps(backend: Backend) {
    let address = serve(move |mut stream, _| respond_to_all(&mut stream, &AtomicU64::new(0)));
    let plan = Plan {
        threads: 2,
        warmup: Duration::from_millis(300),
        ..steps_plan(&[(400.0, 0.25), (100.0, 0.5), (400.0, 0.5)])
    };
    let run = run(to(backend, address, plan));
    let warm = run.end.warmup_counts.unwrap();
    assert_eq!(warm.intended, 120, "at the initial rate");
    let measured = run.rows.iter().filter(|row| row.phase == Phase::Measure);
    let begins: Vec<u64> = measured
        .clone()
        .map(|row| row.from_ns / 1_000_000)
        .collect();
    assert_eq!(begins[..4], [0, 250, 750, 1000]);
    let index: Vec<u64> = measured.map(|row| row.index).collect();
    assert!(index.iter().copied().eq(0..index.len() as u64));
}

fn a_new_rate_applies_from_a_whole_second(backend: Backend) {
    let address = serve(|mut stream, _| respond_to_all(&mut stream, &AtomicU64::new(0)));
    let plan = Plan {
        threads: 2,
        warmup: Duration::from_millis(300),
        ..to(
            backend,
            address,
            open_plan(Arrivals::Constant, 200.0, Some(4.0), None),
        )
    };
    let mut changed = Vec::new();
    let mut is_raised = false;
    let run = try_changing(
        input(plan),
        &StopFlag::default(),
        |event, rates| match event {
            Event::RateChanged(change) => changed.push(*change),
            // The worker ignores a change during the warm-up, and the second of two changes replaces
            // the first.
            Event::Part(part) if part.phase == Phase::Warmup => rates.change(rate(50.0)),
            Event::Part(_) if !is_raised => {
                is_raised = true;
                rates.change(rate(300.0));
                rates.change(rate(400.0));
            }
            Event::Second(row) if row.phase == Phase::Measure && changed.len() == 2 => {
                rates.change(rate(100.0));
            }
            _ => {}
        },
    )
    .unwrap();
    let [replaced, raised, lowered, ..] = changed[..] else {
        panic!("{changed:?}");
    };
    assert_eq!(replaced.from_s, raised.from_s);
    let rates = [replaced, raised, lowered].map(|change| change.rate_per_s);
    assert_eq!(rates, [300.0, 400.0, 100.0]);
    let rate_at = |at_s: f64| match at_s {
        at_s if at_s < raised.from_s => 200,
        at_s if at_s < lowered.from_s => 400,
        _ => 100,
    };
    let seconds = (0..4).map(|second| rate_at(f64::from(second)));
    assert_eq!(run.end.counts.intended, seconds.sum::<u64>(), "{changed:?}");
    let rows = run.rows.iter().filter(|row| row.phase == Phase::Measure);
    for row in rows.take(4) {
        let (intended, expected) = (row.counts.intended, rate_at(row.from_ns as f64 / 1e9));
        // On a busy host, a request may be counted one row later.
        assert!(
            intended.abs_diff(expected) <= expected / 4,
            "{changed:?} {row:?}"
        );
    }
}

fn rate(per_s: f64) -> Rate {
    Rate::new(per_s).unwrap()
}

fn a_stop_ends_the_run_with_requests_in_flight(backend: Backend) {
    let address = serve(|mut stream, _| {
        while read_request(&mut stream) {}
        thread::sleep(Duration::from_secs(60));
    });
    let stop = StopFlag::default();
    let later = stop.clone();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        later.stop();
    });
    let plan = Plan {
        threads: 2,
        ..timed(6, 30.0)
    };
    let run = run_with(to(backend, address, plan), None, &stop);
    assert!(run.took < Duration::from_secs(20), "{:?}", run.took);
    assert_eq!(run.end.reason, EndReason::Interrupted);
    let counts = &run.end.counts;
    assert_eq!((counts.sent, counts.in_flight_at_end), (6, 6));
    assert_eq!(run.end.window_ns, run.end.ended_ns);
}

fn a_stop_before_the_start_sends_nothing(backend: Backend) {
    let address = serve(|mut stream, _| respond_to_all(&mut stream, &AtomicU64::new(0)));
    let stop = StopFlag::default();
    stop.stop();
    let run = run_with(to(backend, address, timed(2, 5.0)), None, &stop);
    assert_eq!(run.end.reason, EndReason::Interrupted);
    assert_eq!(run.end.counts.intended, 0);
}

fn drains_requests_in_flight_after_the_window(backend: Backend) {
    // On a busy host, responses may be up to half a second early or late.
    const SERVICE: Duration = Duration::from_millis(1_000);
    const WINDOW_S: f64 = 1.5;
    let slow = |mut stream: TcpStream, _| {
        while read_request(&mut stream) {
            thread::sleep(SERVICE);
            if stream.write_all(RESPONSE).is_err() {
                return;
            }
        }
    };
    let address = serve(slow);
    let drained = run(to(backend, address, timed(4, WINDOW_S)));
    assert_eq!(drained.end.window_ns, 1_500_000_000);
    assert!(drained.end.ended_ns >= 2_000_000_000);
    let counts = &drained.end.counts;
    assert_eq!((counts.sent, counts.ok, counts.in_flight_at_end), (8, 8, 0));
    let in_window: u64 = drained.rows.iter().map(|row| row.ok_in_window).sum();
    assert_eq!(in_window, 4, "throughput excludes drained responses");

    let cut = run(to(
        backend,
        address,
        Plan {
            drain: false,
            ..timed(4, WINDOW_S)
        },
    ));
    assert_eq!(cut.end.window_ns, 1_500_000_000);
    assert_eq!(cut.end.counts.in_flight_at_end, 4);
}

fn a_request_that_a_connect_has_sent_is_in_flight_at_the_end(backend: Backend) {
    let received = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&received);
    let address = serve(move |mut stream, _| respond_to_all(&mut stream, &count));
    // The window ends before a response can arrive.
    let plan = Plan {
        connection_use: ConnectionUse::Fresh,
        drain: false,
        ..open_plan(Arrivals::Burst, 1e9, None, Some(8))
    };
    let counts = run(to(backend, address, plan)).end.counts;
    assert_eq!(counts.sent, counts.in_flight_at_end, "{counts:?}");
    if backend == Backend::Epoll {
        assert_eq!(counts.sent, 8, "{counts:?}");
    }
    assert!(received.load(Ordering::Relaxed) <= counts.sent);
}

fn keeps_the_measurements_of_a_run_whose_server_dies(backend: Backend) {
    let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let dead = Arc::new(AtomicBool::new(false));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (held, over) = (Arc::clone(&streams), Arc::clone(&dead));
    let responded = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&responded);
    let accepting = thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            if over.load(Ordering::Relaxed) {
                return;
            }
            held.lock().unwrap().push(stream.try_clone().unwrap());
            let responded = Arc::clone(&counted);
            thread::spawn(move || respond_to_all(&mut stream, &responded));
        }
    });
    let killer = thread::spawn(move || {
        // Start timing at the first response, because a run may start late on a busy host.
        while responded.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(500));
        dead.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(address);
        accepting.join().unwrap();
        for stream in streams.lock().unwrap().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    let run = run(to(
        backend,
        address,
        Plan {
            threads: 2,
            ..timed(4, 30.0)
        },
    ));
    killer.join().unwrap();
    assert_eq!(run.end.reason, EndReason::ServerGone);
    assert!(run.took < Duration::from_secs(20), "{:?}", run.took);
    let gone = run.end.last_response_ns.unwrap();
    assert!(gone >= 400_000_000, "{gone}");
    // The server is considered unreachable after two seconds of silence, even on a slow host.
    let ended = run.end.ended_ns;
    assert!(gone + 2_000_000_000 <= ended, "{gone}, ended {ended}");
    let counts = &run.end.counts;
    assert!(counts.ok > 0 && counts.connect_failed > 0);
    assert_eq!(counts.ok + counts.reset, counts.sent);
    let connects = |errors: &BTreeMap<String, u64>| -> u64 {
        let errors = errors.iter();
        let errors = errors.filter(|(name, _)| name.starts_with("connect"));
        errors.map(|(_, n)| n).sum()
    };
    let failed = connects(&run.end.errors) - connects(&run.end.unawaited);
    assert_eq!(failed, counts.connect_failed, "{:?}", run.end);
}

fn a_missing_server_ends_the_run_early(backend: Backend) {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for plan in [
        timed(5, 20.0),
        closed_plan(5, 3),
        open_plan(Arrivals::Constant, 500.0, Some(20.0), None),
        open_plan(Arrivals::Constant, 10.0, None, Some(1)),
    ] {
        let run = run(to(backend, address, plan));
        assert!(run.took < Duration::from_secs(15), "{:?}", run.took);
        assert_eq!(run.end.reason, EndReason::ServerGone);
        assert_eq!(run.end.counts.sent, 0);
        assert!(run.end.errors["connect_refused"] > 0);
    }
}

fn ends_the_run_if_the_server_does_not_speak_http(backend: Backend) {
    let address = serve(|mut stream, _| {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.6\r\n");
        while read_request(&mut stream) {}
    });
    for plan in [timed(3, 20.0), closed_plan(1, 2)] {
        let run = run(to(backend, address, plan));
        assert!(run.took < Duration::from_secs(15), "{:?}", run.took);
        assert_eq!(run.end.reason, EndReason::NotHttp);
        let counts = &run.end.counts;
        assert_eq!(counts.malformed + counts.in_flight_at_end, counts.sent);
    }
}

fn the_warm_up_is_counted_separately(backend: Backend) {
    let responded = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&responded);
    let address = serve(move |mut stream, _| respond_to_all(&mut stream, &count));
    let run = run(to(
        backend,
        address,
        Plan {
            threads: 2,
            warmup: Duration::from_millis(300),
            ..closed_plan(4, 500)
        },
    ));
    let warm = run.end.warmup_counts.unwrap();
    assert_eq!(warm.balance(), Ok(()));
    assert!(warm.ok > 0 && run.end.warmup_ns >= 300_000_000);
    assert_eq!(run.end.counts.ok, 500);
    assert_eq!(responded.load(Ordering::Relaxed), warm.ok + 500);
    assert_eq!(run.end.connects, 4, "warm-up connections stay open");
}

fn the_file_of_kept_responses_contains_every_number(backend: Backend) {
    let next = Arc::new(AtomicU64::new(1));
    let address = serve(move |mut stream, _| {
        while read_request(&mut stream) {
            let number = next.fetch_add(1, Ordering::SeqCst).to_string();
            let response = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{number}",
                number.len()
            );
            // Send the response in two pieces, so that the client must collect the body.
            let (head, tail) = response.split_at(response.len() - 1);
            let _ = stream.write_all(head.as_bytes());
            if number.ends_with('0') {
                thread::sleep(Duration::from_micros(200));
            }
            let _ = stream.write_all(tail.as_bytes());
        }
    });
    let file = std::env::temp_dir().join(format!("floodmark-{backend:?}-{}", std::process::id()));
    let plan = Plan {
        threads: 2,
        check: Some(Check::Sequence),
        ..closed_plan(5, 2000)
    };
    let run = run_with(
        to(backend, address, plan),
        Some(file.clone()),
        &StopFlag::default(),
    );
    let bytes = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    let words: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let mut numbers: Vec<u64> = words.chunks_exact(3).map(|triple| triple[0]).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=2000).collect::<Vec<_>>());
    assert!(run.began_ns > 0);
    for triple in words.chunks_exact(3) {
        assert!(
            [run.began_ns, triple[1], triple[2]].is_sorted(),
            "{triple:?}"
        );
    }
    assert_eq!(run.end.answers.unwrap().count, 2000);
    assert_eq!((run.end.out_of_order, run.end.not_numbers), (0, 0));
}

fn each_close_between_requests_costs_one_reconnect(backend: Backend) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Send three responses per connection, without `Connection: close`, and then close the
    // connection.
    serve_on(listener, |mut stream, _| {
        for _ in 0..3 {
            if !read_request(&mut stream) || stream.write_all(RESPONSE).is_err() {
                return;
            }
        }
    });
    let run = run(to(backend, address, closed_plan(2, 300)));
    let counts = &run.end.counts;
    assert_eq!((counts.sent, counts.ok), (300, 300));
    assert!((95..=100).contains(&counts.reconnects), "{counts:?}");
    assert_eq!(run.end.connects, 2 + counts.reconnects);
}

fn sends_no_post_twice(backend: Backend) {
    let executed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&executed);
    // Execute four requests per connection, but respond only to three.
    let address = serve(move |mut stream, _| {
        for number in 0..4 {
            if !read_request(&mut stream) {
                return;
            }
            count.fetch_add(1, Ordering::Relaxed);
            if number < 3 && stream.write_all(RESPONSE).is_err() {
                return;
            }
        }
    });
    let mut plan = closed_plan(2, 40);
    plan.request.method = "POST".to_owned();
    let counts = run(to(backend, address, plan)).end.counts;
    let outcomes = counts.ok + counts.reset;
    assert_eq!((counts.sent, outcomes, counts.reconnects), (40, 40, 0));
    assert!((9..=10).contains(&counts.reset), "{counts:?}");
    assert_eq!(executed.load(Ordering::Relaxed), 40);
}

/// The server responds as soon as it has read the start of a request, and then either closes the
/// connection or reads nothing more.
fn counts_responses_to_unfinished_uploads(backend: Backend) {
    for (response, closes) in [
        (
            &b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n"[..],
            true,
        ),
        (RESPONSE, false),
    ] {
        let address = serve(move |mut stream, _| {
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(response);
            if !closes {
                thread::sleep(Duration::from_secs(10));
            }
        });
        let mut plan = closed_plan(2, 20);
        plan.request.method = "POST".to_owned();
        plan.request.body = vec![b'x'; 8_000_000].into();
        let run = run(to(backend, address, plan));
        let counts = &run.end.counts;
        let (ok, wrong) = if closes { (0, 20) } else { (20, 0) };
        assert_eq!((counts.ok, counts.wrong, counts.sent), (ok, wrong, 20));
        assert_eq!(counts.reconnects, 0);
        assert_eq!(run.end.connects, 20);
    }
}

fn accepts_close_delimited_responses_with_every_kind_of_close(backend: Backend) {
    let address = serve(|mut stream, _| {
        if read_request(&mut stream) {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil the end");
        }
    });
    for close_first in [CloseFirst::Server, CloseFirst::Client, CloseFirst::Reset] {
        for connection_use in [ConnectionUse::Kept, ConnectionUse::Fresh] {
            let run = run(to(
                backend,
                address,
                Plan {
                    connection_use,
                    close_first,
                    ..closed_plan(3, 100)
                },
            ));
            assert_eq!((run.end.counts.ok, run.end.connects >= 100), (100, true));
        }
    }
}
