//! Whole workers against small servers on loopback: what was asked is done exactly, and every end is the right one.

#![allow(clippy::unwrap_used, reason = "tests")]

#[macro_use]
mod common;

use std::io::Write;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::plans::{closed_plan, open_plan, ramp_plan, replay_plan, steps_plan};
use common::server::{ANSWER, answer_all, read_request, serve, serve_on};
use common::{run, run_with};
use floodmark_load::worker::StopFlag;
use floodmark_record::events::{EndReason, Phase};
use floodmark_record::plan::{Arrivals, Backend, Check, CloseFirst, ConnectionUse, Plan};

on_both_backends! {
    exactly_n_requests_over_any_threads_and_connections
    threads_share_the_open_schedule
    threads_share_rates_that_change
    rows_are_cut_at_the_ends_of_steps
    a_stop_ends_the_run_at_once_with_what_is_out
    a_stop_before_the_start_sends_nothing
    the_window_is_as_long_as_asked_and_what_is_out_is_awaited
    a_server_that_dies_midway_ends_the_run_with_what_was_measured
    a_server_that_never_was_there_ends_the_run_soon
    what_does_not_speak_http_is_named
    a_warm_up_is_real_load_kept_apart
    the_answers_file_holds_every_number
    a_server_that_closes_between_requests_costs_one_reconnect_each
    answers_that_end_with_the_connection_work_with_every_way_to_close
}

fn to(backend: Backend, address: std::net::SocketAddr, mut plan: Plan) -> Plan {
    plan.backend = backend;
    plan.target.address = address.into();
    plan
}

fn timed(connections: u32, seconds: f64) -> Plan {
    Plan {
        requests: None,
        duration_s: Some(seconds),
        ..closed_plan(connections, 0)
    }
}

fn exactly_n_requests_over_any_threads_and_connections(backend: Backend) {
    let answered = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answered);
    let address = serve(move |mut stream, _| answer_all(&mut stream, &count));
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
            ConnectionUse::PerConnection,
        ] {
            for close_first in [CloseFirst::Server, CloseFirst::Client, CloseFirst::Reset] {
                answered.store(0, Ordering::Relaxed);
                let run = run(to(
                    backend,
                    address,
                    Plan {
                        threads,
                        connection_use,
                        close_first,
                        requests_per_connection: Some(3),
                        ..closed_plan(connections, n)
                    },
                ));
                let counts = &run.end.counts;
                assert_eq!((counts.intended, counts.ok, counts.reconnects), (n, n, 0));
                assert_eq!(answered.load(Ordering::Relaxed), n);
                assert_eq!(run.end.reason, EndReason::Completed);
                assert!(run.end.peak_connections <= u64::from(connections));
            }
        }
    }
}

fn threads_share_the_open_schedule(backend: Backend) {
    let answered = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answered);
    let address = serve(move |mut stream, _| answer_all(&mut stream, &count));
    for (threads, arrivals) in [
        (3, Arrivals::Constant),
        (2, Arrivals::Poisson),
        (1, Arrivals::Burst),
    ] {
        answered.store(0, Ordering::Relaxed);
        let plan = Plan {
            threads,
            ..open_plan(arrivals, 2000.0, None, Some(1000))
        };
        let run = run(to(backend, address, plan));
        assert_eq!((run.end.counts.intended, run.end.counts.ok), (1000, 1000));
        assert_eq!(answered.load(Ordering::Relaxed), 1000);
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
    let answered = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answered);
    let address = serve(move |mut stream, _| answer_all(&mut stream, &count));
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
        answered.store(0, Ordering::Relaxed);
        let run = run(to(backend, address, Plan { threads, ..plan }));
        assert_eq!((run.end.counts.intended, run.end.counts.ok), (n, n));
        assert_eq!(answered.load(Ordering::Relaxed), n);
        assert_eq!(run.end.window_ns, 500_000_000);
    }
}

fn rows_are_cut_at_the_ends_of_steps(backend: Backend) {
    let address = serve(move |mut stream, _| answer_all(&mut stream, &AtomicU64::new(0)));
    let plan = Plan {
        threads: 2,
        warmup_s: 0.3,
        ..steps_plan(&[(400.0, 0.25), (100.0, 0.5), (400.0, 0.5)])
    };
    let run = run(to(backend, address, plan));
    let warm = run.end.warmup_counts.unwrap();
    assert_eq!(warm.intended, 120, "at the first rate");
    let measured = run.rows.iter().filter(|row| row.phase == Phase::Measure);
    let begins: Vec<u64> = measured
        .clone()
        .map(|row| row.from_ns / 1_000_000)
        .collect();
    assert_eq!(begins[..4], [0, 250, 750, 1000]);
    let index: Vec<u64> = measured.map(|row| row.index).collect();
    assert!(index.iter().copied().eq(0..index.len() as u64));
}

fn a_stop_ends_the_run_at_once_with_what_is_out(backend: Backend) {
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
    let address = serve(|mut stream, _| answer_all(&mut stream, &AtomicU64::new(0)));
    let stop = StopFlag::default();
    stop.stop();
    let run = run_with(to(backend, address, timed(2, 5.0)), None, &stop);
    assert_eq!(run.end.reason, EndReason::Interrupted);
    assert_eq!(run.end.counts.intended, 0);
}

fn the_window_is_as_long_as_asked_and_what_is_out_is_awaited(backend: Backend) {
    // Half a second on either side of what happens in the window: a busy machine answers late.
    const SERVICE: Duration = Duration::from_millis(1_000);
    const WINDOW_S: f64 = 1.5;
    let slow = |mut stream: TcpStream, _| {
        while read_request(&mut stream) {
            thread::sleep(SERVICE);
            if stream.write_all(ANSWER).is_err() {
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
    assert_eq!(in_window, 4, "drained answers are no throughput");

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

fn a_server_that_dies_midway_ends_the_run_with_what_was_measured(backend: Backend) {
    let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
    let dead = Arc::new(AtomicBool::new(false));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (held, over) = (Arc::clone(&streams), Arc::clone(&dead));
    let answered = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&answered);
    let accepting = thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            if over.load(Ordering::Relaxed) {
                return;
            }
            held.lock().unwrap().push(stream.try_clone().unwrap());
            let answered = Arc::clone(&counted);
            thread::spawn(move || answer_all(&mut stream, &answered));
        }
    });
    let killer = thread::spawn(move || {
        // From the first answer on: on a busy machine the run may begin late.
        while answered.load(Ordering::Relaxed) == 0 {
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
    let gone = run.end.server_gone_since_ns.unwrap();
    assert!(gone >= 400_000_000, "{gone}");
    // It is given up when it has been silent for two seconds, however slow the machine is.
    let ended = run.end.ended_ns;
    assert!(gone + 2_000_000_000 <= ended, "{gone}, ended {ended}");
    let counts = &run.end.counts;
    assert!(counts.ok > 0 && counts.connect_failed > 0);
    assert_eq!(counts.ok + counts.reset, counts.sent);
}

fn a_server_that_never_was_there_ends_the_run_soon(backend: Backend) {
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

fn what_does_not_speak_http_is_named(backend: Backend) {
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

fn a_warm_up_is_real_load_kept_apart(backend: Backend) {
    let answered = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&answered);
    let address = serve(move |mut stream, _| answer_all(&mut stream, &count));
    let run = run(to(
        backend,
        address,
        Plan {
            threads: 2,
            warmup_s: 0.3,
            ..closed_plan(4, 500)
        },
    ));
    let warm = run.end.warmup_counts.unwrap();
    assert_eq!(warm.balance(), Ok(()));
    assert!(warm.ok > 0 && run.end.warmup_ns >= 300_000_000);
    assert_eq!(run.end.counts.ok, 500);
    assert_eq!(answered.load(Ordering::Relaxed), warm.ok + 500);
    assert_eq!(run.end.connects, 4, "connections outlive the warm-up");
}

fn the_answers_file_holds_every_number(backend: Backend) {
    let next = Arc::new(AtomicU64::new(1));
    let address = serve(move |mut stream, _| {
        while read_request(&mut stream) {
            let number = next.fetch_add(1, Ordering::SeqCst).to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{number}",
                number.len()
            );
            // In two pieces, so that bodies are gathered too.
            let (head, tail) = answer.split_at(answer.len() - 1);
            let _ = stream.write_all(head.as_bytes());
            if number.ends_with('0') {
                thread::sleep(Duration::from_micros(200));
            }
            let _ = stream.write_all(tail.as_bytes());
        }
    });
    let file = std::env::temp_dir().join(format!("floodmark-answers-{}", std::process::id()));
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
    assert!(
        words.chunks_exact(3).all(|t| t[1] < t[2]),
        "sent before done"
    );
    assert_eq!(run.end.answers.unwrap().count, 2000);
    assert_eq!((run.end.out_of_order, run.end.not_numbers), (0, 0));
}

fn a_server_that_closes_between_requests_costs_one_reconnect_each(backend: Backend) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Three answers on each connection and no word of closing, then the end.
    serve_on(listener, |mut stream, _| {
        for _ in 0..3 {
            if !read_request(&mut stream) || stream.write_all(ANSWER).is_err() {
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

fn answers_that_end_with_the_connection_work_with_every_way_to_close(backend: Backend) {
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
