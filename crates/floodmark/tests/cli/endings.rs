//! Tests of exit codes and their precedence. A record is written for every exit code except 2.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use floodmark_record::cause::Cause;
use floodmark_record::events::EndReason;
use floodmark_record::reason::joined;
use floodmark_record::run::Status;
use floodmark_record::verdict::Confidence;
use floodmark_truth::Scenario;

use crate::support::hostile::{Listener, answer_each};
use crate::support::{
    TEST_VALIDITY, code, finish, floodmark, judging, load, run, signal, start_load, start_load_as,
    text, truth,
};

fn hello() -> (floodmark_truth::TruthServer, String) {
    truth(Scenario::default())
}

#[test]
fn a_met_threshold_fails() {
    let (_server, url) = hello();
    let load = load(
        &url,
        &[
            "-n",
            "10",
            "--fail-if",
            "throughput > 1",
            "--fail-if",
            "p99 > 1h",
        ],
    );
    load.ends_with(1);
    assert!(
        load.stderr().contains("--fail-if 'throughput > 1'"),
        "{}",
        load.stderr()
    );
    let met: Vec<_> = load.record.thresholds.iter().map(|t| t.met).collect();
    assert_eq!(met, [Some(true), Some(false)]);
}

#[test]
fn a_missing_figure_fails_a_threshold() {
    let listener = Listener::answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let missing = ["-n", "10", "--fail-if", "p99 > 1h"];
    let last_line = |arguments: &[&str]| {
        let load = load(&listener.url, arguments);
        load.ends_with(1);
        load.stderr().lines().last().unwrap().to_owned()
    };
    let expected = "floodmark: --fail-if 'p99 > 1h' not evaluated: not measured";
    assert_eq!(last_line(&missing), expected);
    // A condition that is met takes precedence.
    let both = [&missing[..], &["--fail-if", "errors > 1%"]].concat();
    let expected = "floodmark: --fail-if 'errors > 1%' failed: 100 %";
    assert_eq!(last_line(&both), expected);
}

#[test]
fn a_run_without_ok_responses_is_invalid() {
    let listener = Listener::answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let load = start_load_as(&listener.url, &["-n", "10", "--quiet"], judging).end();
    load.ends_with(1);
    assert_eq!(load.run().validity.status, Status::Invalid);
    let reason = "no response was ok (mostly status 404: 10)";
    assert_eq!(joined(&load.run().validity.reasons), reason);
    assert!(load.stderr().contains(reason), "{}", load.stderr());
    // All requests were counted as failures.
    let verdict = load.run().verdict.as_ref().unwrap();
    let expected = (Cause::Errors, Confidence::Proven);
    assert_eq!((verdict.cause, verdict.confidence), expected);
}

#[test]
fn an_unexpected_response_before_the_load_stops_it() {
    let body = "HTTP/1.1 404 Not Found\r\nContent-Length: 7\r\n\r\nnothing";
    let listener = Listener::answering(body.as_bytes());
    let stopped = start_load(&listener.url, &["-d", "1s"]).end();
    stopped.ends_with(1);
    let printed = stopped.stderr();
    assert_eq!(printed.lines().count(), 1, "{printed}");
    for word in [
        "status 404",
        "\"nothing\"",
        "curl -i",
        "--expect status=404",
        "--anyway",
    ] {
        assert!(printed.contains(word), "{word}: {printed}");
    }
    assert_eq!(stopped.record.runs, []);
    assert_eq!(listener.accepted.load(Ordering::Relaxed), 3);
    let closing = Listener::start(drop);
    let stopped = start_load(&closing.url, &["-d", "1s"]).end();
    stopped.ends_with(3);
    let printed = stopped.stderr();
    assert!(
        printed.contains("without a response") && printed.contains("--anyway"),
        "{printed}"
    );
    // An accepted response, --anyway, and a request that may have an effect do not stop the load.
    for (more, said) in [
        (
            &["--expect", "status=404", "-v"][..],
            "before the load: status 404 after ",
        ),
        (&["--anyway"], ""),
        (&["-X", "POST", "-v"], "before the load: skipped"),
    ] {
        let load = load(&listener.url, &[&["-d", "100ms", "-c", "1"], more].concat());
        assert!(load.counts().sent > 0);
        assert!(load.stderr().contains(said), "{}", load.stderr());
    }
}

#[test]
fn a_server_that_sometimes_fails_is_loaded() {
    let next = AtomicU64::new(0);
    let listener = Listener::start(move |stream| {
        answer_each(stream, |_| {
            let status = match next.fetch_add(1, Ordering::Relaxed) {
                0 | 1 => "500 Internal Server Error",
                _ => "200 OK",
            };
            format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into()
        });
    });
    let load = load(&listener.url, &["-d", "100ms", "-c", "1", "-v"]);
    load.ends_with(0);
    let printed = load.stderr();
    let before = printed
        .lines()
        .filter(|line| line.contains("before the load: status "));
    assert_eq!(before.count(), 3, "{printed}");
    assert_eq!(load.counts().ok, load.counts().sent);
}

#[test]
fn a_repeated_number_fails_the_sequence_check() {
    let next = AtomicU64::new(0);
    let listener = Listener::start(move |stream| {
        answer_each(stream, |_| {
            let n = next.fetch_add(1, Ordering::Relaxed);
            // The hundredth response repeats the previous number.
            let number = (n + 1 - u64::from(n == 99)).to_string();
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{number}",
                number.len()
            )
            .into()
        });
    });
    let load = load(
        &listener.url,
        &["-n", "200", "-c", "4", "--check", "sequence"],
    );
    load.ends_with(1);
    assert_eq!(load.counts().ok, 200);
    let check = &load.run().checks[0];
    assert!(
        check.held == Some(false) && check.detail.contains("99"),
        "{}",
        check.detail
    );
}

#[test]
fn a_starved_client_is_invalid_and_outranks_a_threshold() {
    let (_server, url) = hello();
    let started = start_load_as(
        &url,
        &[
            "-r",
            "200",
            "-d",
            "3s",
            "--fresh",
            "--fail-if",
            "throughput > 1",
            "-q",
        ],
        judging,
    );
    let worker = started.worker();
    started.wait_for_a_second();
    signal(worker, libc::SIGSTOP);
    thread::sleep(Duration::from_millis(500));
    signal(worker, libc::SIGCONT);
    let load = started.end();
    assert_eq!(load.run().validity.status, Status::Invalid);
    assert_eq!(load.counts().intended, 600);
    assert_eq!(load.record.thresholds[0].met, Some(true));
    assert_eq!(load.code(), 4);
    let printed = load.stderr();
    let is_figure = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let masked = printed
        .split(' ')
        .map(|word| if is_figure(word) { "N" } else { word });
    let masked = masked.collect::<Vec<_>>().join(" ").replace("N ms", "N s");
    assert_eq!(
        masked,
        "floodmark: the result is invalid: the client (stalled for N s) sent requests late: p99 lateness N s is \
         more than a tenth of the response time (p99 N s); response times include this delay; \
         stop other programs on this host (see floodmark doctor) and repeat\n"
    );
}

#[test]
fn strict_fails_a_bound_or_unsteady_result() {
    let (_server, url) = hello();
    for (validity, message) in [
        ("bound", "the client was the bottleneck"),
        ("unsteady", "the run was unsteady, which --strict forbids"),
        (
            "unsteady-bound",
            "the run was unsteady and the client was the bottleneck",
        ),
    ] {
        let judged = |command: &mut Command| {
            command.env(TEST_VALIDITY, validity);
        };
        let load = start_load_as(&url, &["-n", "10"], judged).end();
        load.ends_with(0);
        let load = start_load_as(&url, &["-n", "10", "--strict"], judged).end();
        load.ends_with(4);
        assert!(load.stderr().contains(message), "{}", load.stderr());
    }
}

/// Sets what SIGHUP does to a command.
fn on_sighup(command: &mut Command, disposition: libc::sighandler_t) {
    // SAFETY: signal(2) is safe between fork and exec (signal-safety(7)).
    unsafe {
        command.pre_exec(move || match libc::signal(libc::SIGHUP, disposition) {
            libc::SIG_ERR => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}

#[test]
fn an_interrupted_run_reports_its_measurement() {
    let (_server, url) = hello();
    // SIGHUP: the terminal was closed.
    for number in [libc::SIGINT, libc::SIGHUP] {
        // The tests may run under nohup.
        let started = start_load_as(
            &url,
            &["-r", "200", "-d", "20s", "--fail-if", "throughput > 1"],
            |command| on_sighup(command, libc::SIG_DFL),
        );
        started.wait_for_a_second();
        signal(started.pid(), number);
        let load = started.end();
        assert_eq!(load.code(), 130);
        assert_eq!(load.run().ended.reason, EndReason::Interrupted);
        assert!(load.counts().ok >= 100, "{:?}", load.counts());
        // The interruption must be reported only once.
        assert_eq!(
            load.stderr().matches("interrupted").count(),
            1,
            "{}",
            load.stderr()
        );
    }
}

#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    let (_server, url) = hello();
    let started = start_load_as(&url, &["-r", "200", "-d", "2s"], |command| {
        on_sighup(command, libc::SIG_IGN);
    });
    started.wait_for_a_second();
    signal(started.pid(), libc::SIGHUP);
    let load = started.end();
    load.ends_with(0);
    assert_eq!(load.run().ended.reason, EndReason::Completed);
}

#[test]
fn a_killed_run_loses_less_than_half_a_second() {
    let (_server, url) = hello();
    let started = start_load(&url, &["-r", "200", "-d", "20s"]);
    let begin = started.wait_for("\"event\":\"part\"");
    thread::sleep(Duration::from_millis(650));
    let expected = 200.0 * (begin.elapsed().as_secs_f64() - 0.5);
    let directory = started.kill();
    let result = directory.path().join("result");
    let mut report = floodmark(&["report", result.to_str().unwrap(), "--json", "-"]);
    judging(&mut report);
    let output = finish(report.spawn().unwrap());
    assert_eq!(code(&output), 0, "{output:?}");
    let record: floodmark_record::Record = serde_json::from_slice(&output.stdout).unwrap();
    let run = &record.runs[0];
    assert!(run.requests.ok as f64 >= expected, "{:?}", run.requests);
    assert!(run.throughput_per_s.unwrap() > 100.0);
    assert_eq!(run.validity.status, Status::Invalid);
    let reason = joined(&run.validity.reasons);
    assert!(reason.starts_with("cut short after "), "{reason}");
}

#[test]
fn a_killed_worker_is_an_internal_error() {
    let (_server, url) = hello();
    let started = start_load(&url, &["-r", "200", "-d", "20s"]);
    started.wait_for_a_second();
    signal(started.worker(), libc::SIGKILL);
    let load = started.end();
    assert_eq!(load.code(), 5);
    assert!(load.counts().ok > 0);
    let message = "ended early (signal: 9 (SIGKILL)); another process or the kernel killed it";
    assert!(load.stderr().contains(message), "{}", load.stderr());
}

#[test]
fn names_an_unknown_host() {
    let load = load("http://no-such-host.invalid/", &[]);
    assert_eq!(load.code(), 3);
    assert_eq!(load.stderr().lines().count(), 1, "{}", load.stderr());
    assert!(
        load.stderr().contains("no-such-host.invalid"),
        "{}",
        load.stderr()
    );
    assert_eq!(load.record.skipped.len(), 1);
}

#[test]
fn names_a_refused_port() {
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for extra in [
        &["-n", "5"][..],
        &["-d", "5s"],
        &["-r", "100"],
        &["-d", "1ns"],
    ] {
        let mut arguments = extra.to_vec();
        arguments.push("-q");
        let load = load(&format!("http://{address}/"), &arguments);
        assert_eq!(load.code(), 3, "{extra:?}");
        let printed = load.stderr();
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(
            printed.contains(&address.to_string()) && printed.contains("refused"),
            "{printed}"
        );
        assert_eq!(load.counts().ok, 0);
    }
}

#[test]
fn names_a_silent_server() {
    let listener = Listener::silent();
    let load = load(&listener.url, &["-n", "5", "--timeout", "300ms", "-q"]);
    assert_eq!(load.code(), 3);
    assert_eq!(load.counts().timed_out, 5);
    assert!(load.stderr().contains("0.3 s"), "{}", load.stderr());
}

#[test]
fn names_a_server_that_does_not_speak_http() {
    let banner = |mut stream: std::net::TcpStream| {
        let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n");
        while stream.read(&mut [0; 512]).is_ok_and(|n| n > 0) {}
    };
    let listener = Listener::start(banner);
    let parrot = Listener::answering(b"220 mail.example ESMTP\r\n");
    for url in [&listener.url, &parrot.url] {
        for arguments in [["-d", "8s", "-q"], ["-n", "5", "-q"]] {
            let load = load(url, &arguments);
            assert_eq!(load.code(), 3, "{}", load.stderr());
            assert_eq!(load.stderr().lines().count(), 1, "{}", load.stderr());
            assert!(load.run().sending_s < 4.0, "the load ended late");
            assert_eq!(load.counts().ok, 0);
        }
    }
}

/// Starts a listener that speaks HTTP/2, and resets the first stream of each connection with this
/// error code.
fn resetting(code: u8) -> Listener {
    Listener::start(move |mut stream| {
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        // The frames follow the preface of 24 bytes.
        let has_headers = |bytes: &[u8]| {
            let mut frames = bytes.get(24..).unwrap_or_default();
            while let [0, high, low, kind, rest @ ..] = frames {
                if *kind == 1 {
                    return true;
                }
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                frames = rest.get(5 + length..).unwrap_or_default();
            }
            false
        };
        while !has_headers(&bytes) {
            match stream.read(&mut buffer) {
                Ok(n @ 1..) => bytes.extend_from_slice(&buffer[..n]),
                _ => return,
            }
        }
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, code];
        stream.write_all(&[&settings[..], &reset].concat()).unwrap();
        while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
    })
}

#[test]
fn names_the_fault_of_http2() {
    let http1 = Listener::answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let other = Listener::answering(b"220 mail.example ESMTP\r\n");
    let closing = Listener::start(drop);
    let internal_error = resetting(2);
    let http1_required = resetting(13);
    for (listener, words) in [
        (&http1, ["the server speaks HTTP/1.1", "use --http 1.1"]),
        (
            &other,
            ["first frame is not SETTINGS", "find out what listens"],
        ),
        (&closing, ["closed connections", "use --http 1.1"]),
        (
            &internal_error,
            ["INTERNAL_ERROR", "check the server's log"],
        ),
        (&http1_required, ["HTTP_1_1_REQUIRED", "use --http 1.1"]),
    ] {
        let load = load(&listener.url, &["-n", "1", "-q", "--http", "2"]);
        let message = load.stderr();
        assert_eq!(load.code(), 3, "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        for word in words {
            assert!(message.contains(word), "{message}");
        }
        let counts = load.counts();
        let outcomes = counts.malformed + counts.reset + counts.in_flight_at_end;
        assert_eq!(outcomes, counts.sent, "{counts:?}");
        assert_eq!(counts.sent + counts.unsent, counts.intended, "{counts:?}");
    }
}

#[test]
fn a_server_of_http1_is_found_before_the_load() {
    let server = Listener::answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let output = run(&["load", &server.url, "-d", "5s", "--http", "2"]);
    let message = text(&output.stderr);
    assert_eq!(code(&output), 3, "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    for word in ["the server speaks HTTP/1.1", "use --http 1.1", "--anyway"] {
        assert!(message.contains(word), "{message}");
    }
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn names_the_fault_of_a_response() {
    const CLOSING: &[u8] = b"";
    let big = &*format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(70_000)).leak();
    let [problem, fix] = [
        "neither Content-Length nor chunked encoding",
        "make the server send",
    ];
    for (answer, words) in [
        (&b"HTTP/1.1 200 OK\r\n\r\nhello"[..], [problem, fix]),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            ["RFC 9112 section 6.3", "send only one of them"],
        ),
        (
            big.as_bytes(),
            ["longer than 65536 bytes", "within this limit"],
        ),
        (
            b"\x15\x03\x03\0\x02\x02\x28",
            ["speaks TLS", "use https://"],
        ),
        (
            b"\0\0\0\x04\0\0\0\0\0",
            ["speaks HTTP/2", "enable HTTP/1.1"],
        ),
        (CLOSING, ["closed connections", "use https://"]),
    ] {
        let listener = Listener::start(move |stream| {
            if answer.is_empty() {
                drop(stream)
            } else {
                answer_each(stream, |_| answer.to_vec())
            }
        });
        let load = load(&listener.url, &["-n", "2", "-c", "1", "--timeout", "300ms"]);
        load.ends_with(3);
        let printed = load.stderr();
        let last = printed.lines().last().unwrap();
        assert!(words.iter().all(|word| last.contains(word)), "{last}");
        let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
        let summary = printed.strip_suffix(last).unwrap_or_default();
        let next = summary.rsplit(" next ").next().unwrap();
        assert!(next.contains(words[1]) && !next.contains("-c 1"), "{next}");
    }
}

#[test]
fn names_a_compressed_body() {
    let head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n";
    let answer = [head.as_bytes(), &[0x1f, 0x8b, 8, 0]].concat();
    let listener = Listener::answering(&answer);
    let load = load(&listener.url, &["-n", "5", "--expect", "body=x"]);
    assert_eq!(load.run().errors["compressed_body"], 5);
    let printed = load.stderr();
    assert!(printed.contains("Accept-Encoding"), "{printed}");
}

#[test]
fn a_refused_port_prints_one_line() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let load = load(&format!("http://{address}/"), &["--backend", "epoll"]);
    assert_eq!(load.code(), 3);
    assert_eq!(
        load.stderr(),
        format!(
            "floodmark: {address}: connection refused; start the server, or check host and port\n"
        )
    );
}

#[test]
fn a_url_without_a_scheme_is_http() {
    let (_server, url) = hello();
    let load = load(url.trim_start_matches("http://"), &["-n", "10"]);
    load.ends_with(0);
    assert_eq!(load.run().plan.target.url, url);
}

/// Returns a listener that answers each request and leaves the connection open.
fn answering_each(answer: &'static [u8]) -> Listener {
    Listener::start(move |stream| answer_each(stream, |_| answer.into()))
}

#[test]
fn closes_connections_that_the_server_should_have_closed() {
    let listener = answering_each(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let load = load(&listener.url, &["-n", "5", "-c", "1"]);
    load.ends_with(0);
    let run = load.run();
    assert_eq!(
        (run.requests.ok, run.errors["not_closed_by_server"]),
        (5, 1)
    );
    assert!(run.sending_s < 0.4, "{}", run.sending_s);
    let note = "the server left 1 connection open for 200 ms";
    assert!(
        run.validity.notes[0].starts_with(note),
        "{:?}",
        run.validity
    );
}

#[test]
fn counts_bytes_after_a_response() {
    let answer = b"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok";
    let load = load(&answering_each(answer).url, &["-n", "5", "-c", "1"]);
    load.ends_with(0);
    let run = load.run();
    assert_eq!((run.requests.ok, run.errors["unsolicited"]), (5, 5));
    assert_eq!(run.connections.opened, 5);
    let note = "the server sent bytes after 5 responses";
    assert!(
        run.validity.notes[0].starts_with(note),
        "{:?}",
        run.validity
    );
}

#[test]
fn a_handshake_that_never_ends_is_a_failed_connect() {
    let listener = Listener::silent();
    let url = listener.url.replace("http://", "https://");
    let load = load(&url, &["-c", "3", "-d", "2s", "--timeout", "1s", "-q"]);
    assert_eq!(load.code(), 3, "{}", load.stderr());
    let run = load.run();
    assert_eq!((run.requests.connect_failed, run.requests.unsent), (3, 0));
    assert_eq!(run.errors["tls_handshake_timed_out"], 6);
    assert_eq!(run.connections.unawaited["tls_handshake_timed_out"], 3);
    assert_eq!(run.verdict.as_ref().map(|verdict| verdict.cause), None);
}

/// A server that accepts every connection but serves only four.
#[test]
fn requests_that_hang_until_the_end_are_in_the_percentiles() {
    let connections = AtomicU64::new(0);
    let listener = Listener::start(move |mut stream| {
        if connections.fetch_add(1, Ordering::Relaxed) < 4 {
            answer_each(stream, |_| {
                thread::sleep(Duration::from_millis(5));
                b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into()
            });
        } else {
            while stream.read(&mut [0; 4096]).is_ok_and(|n| n > 0) {}
        }
    });
    let load = load(
        &listener.url,
        &[
            "-c",
            "20",
            "-d",
            "1s",
            "--no-drain",
            // The request before the load would use one of the four connections.
            "--anyway",
            "--fail-if",
            "p99 > 200ms",
        ],
    );
    assert_eq!(load.code(), 1, "{}", load.stderr());
    let times = &load.run().response_time_us;
    // A request on a served connection can also be older than all responses.
    assert!((16..=20).contains(&times.censored), "{times:?}");
    assert_eq!((times.p99, times.max), (None, None));
    assert!(times.p90.is_some(), "{times:?}");
    let notes = load.run().validity.notes.join("\n");
    let silent = "16 of 20 connections never received a response";
    assert!(notes.contains(silent), "{notes}");
}

#[test]
fn a_run_that_ends_before_the_first_response_is_invalid() {
    let listener = Listener::start(|stream| {
        answer_each(stream, |_| {
            thread::sleep(Duration::from_millis(600));
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".into()
        });
    });
    let arguments = ["-c", "2", "-d", "300ms"];
    let drained = start_load_as(&listener.url, &arguments, judging).end();
    assert_eq!(drained.counts().ok, 2);
    assert_eq!(drained.run().validity.status, Status::Invalid);
    let abandoned = load(&listener.url, &[&arguments[..], &["--no-drain"]].concat());
    let printed = abandoned.stderr();
    assert!(
        printed.contains("in flight at the end") && !printed.contains("timeout"),
        "{printed}"
    );
}
