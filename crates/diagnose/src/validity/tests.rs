//! Tests for validity and notes.

use super::*;
use crate::testing::{closed, open, thread};
use crate::why::tests::{machine, run_with};
use floodmark_record::events::{AddressUse, EndReason, HeldConnections, ThreadUsage};
use floodmark_record::grpc::GrpcStatus;
use floodmark_record::host::BusyProcess;
use floodmark_record::interval::Interval;
use floodmark_record::plan::Plan;
use floodmark_record::reason::joined;
use floodmark_record::run::Silence;
use floodmark_record::times::Times;

mod notes;

/// A run and the facts needed to judge the run.
pub(super) struct Case {
    pub(super) run: Run,
    cpus: u32,
    pub(super) expected: Vec<String>,
}

impl Case {
    /// Returns a valid ten-second run with 10,000 requests that take 50 ms each.
    pub(super) fn good(plan: Plan) -> Self {
        let mut run = crate::next::tests::run(plan);
        run.lateness_us.p99 = Some(50.0);
        run.response_time_us = Times {
            count: 10_000,
            mean: Some(50_000.0),
            p99: Some(80_000.0),
            ..Times::default()
        };
        run.client.threads = vec![thread(0.3, 0.1)];
        Case {
            run,
            cpus: 2,
            expected: Vec::new(),
        }
    }

    fn set_seconds(&mut self, seconds: f64) {
        self.run.sending_s = seconds;
        self.run.window.to_s = seconds;
    }

    fn add_counter(&mut self, metric: &str, increase: f64) {
        self.run.observations.push(crate::why::tests::series(
            "network",
            metric,
            increase / 10.0,
        ));
    }

    pub(super) fn unsent(mut self, n: u64, error: Option<&str>) -> Self {
        self.run.requests.sent -= n;
        self.run.requests.ok -= n;
        match error {
            Some(name) => {
                self.run.requests.connect_failed = n;
                self.run.errors.insert(name.to_owned(), n);
            }
            None => self.run.requests.unsent = n,
        }
        assert_eq!(self.run.requests.balance(), Ok(()));
        self
    }

    pub(super) fn judge(&self) -> Validity {
        validity(&self.run, self.cpus, &self.expected)
    }

    pub(super) fn is(&self, status: Status, words: &[&str]) {
        let judged = self.judge();
        assert_eq!(judged.status, status, "{judged:?}");
        let text = joined(&judged.reasons);
        for word in words {
            assert!(text.contains(word), "no \"{word}\" in: {text}");
        }
        assert_eq!(status == Status::Valid, judged.reasons.is_empty());
    }

    pub(super) fn notes_one(&self, words: &[&str]) {
        let judged = self.judge();
        assert_eq!(judged.status, Status::Valid, "{judged:?}");
        assert_eq!(judged.notes.len(), 1, "{:?}", judged.notes);
        for word in words {
            assert!(
                judged.notes[0].contains(word),
                "no \"{word}\" in: {}",
                judged.notes[0]
            );
        }
    }

    pub(super) fn notes_nothing(&self) {
        assert_eq!(self.judge().notes, Vec::<String>::new());
    }
}

#[test]
fn valid_run_has_no_notes() {
    for plan in [closed(), open()] {
        let case = Case::good(plan);
        case.is(Status::Valid, &[]);
        case.notes_nothing();
    }
}

#[test]
fn saturated_closed_client_gives_a_lower_bound() {
    let mut case = Case::good(closed());
    case.run.client.threads = vec![thread(0.72, 0.27)];
    let judged = case.judge();
    assert_eq!(judged.status, Status::Bound);
    assert_eq!(
        joined(&judged.reasons),
        "the client was the limit (1 thread, 72 % on a CPU, 27 % runnable); the server may be \
             faster, and latencies include waiting in the client; use more client threads: -t 2"
    );
    case.run.client.threads = vec![thread(0.98, 0.01), thread(0.96, 0.02)];
    case.is(
        Status::Bound,
        &[
            "2 threads, 97 % on a CPU",
            "each CPU of the client",
            "another host",
        ],
    );
    case.run.client.threads = vec![thread(0.3, 0.68)];
    case.is(Status::Bound, &["compete", "taskset"]);
}

#[test]
fn ignores_threads_that_do_not_drive_load() {
    let mut case = Case::good(closed());
    case.run.client.threads = vec![thread(0.3, 0.0)];
    case.run.client.threads.push(ThreadUsage {
        drives_load: false,
        ..thread(1.0, 0.0)
    });
    case.is(Status::Valid, &[]);
    case.run.client.threads = vec![
        ThreadUsage {
            drives_load: false,
            ..thread(0.0, 0.0)
        },
        thread(0.99, 0.0),
    ];
    case.is(Status::Bound, &[]);
    case.run.client.threads.clear();
    case.is(Status::Valid, &[]);
}

#[test]
fn one_saturated_thread_of_two_is_valid() {
    let mut case = Case::good(closed());
    case.run.client.threads = vec![thread(1.0, 0.0), thread(0.5, 0.0)];
    case.is(Status::Valid, &[]);
}

#[test]
fn a_saturated_client_refers_to_another_cause() {
    let mut case = Case::good(closed());
    case.run = run_with(3.98, 3.0, 0.8);
    case.run.client.threads = vec![thread(0.72, 0.27)];
    case.run.verdict = crate::why::tests::verdict(&case.run, &machine());
    let advice = "profile the server";
    case.is(Status::Bound, &["(server-cpu): ", advice]);
    case.run.validity = case.judge();
    let next = crate::next_step(&case.run, case.cpus);
    assert!(next.starts_with(advice), "{next}");
}

#[test]
fn saturated_thread_alone_does_not_invalidate_an_open_run() {
    let mut case = Case::good(open());
    case.run.client.threads = vec![thread(1.0, 0.0)];
    case.is(Status::Valid, &[]);
}

#[test]
fn lateness_needs_both_thresholds() {
    let mut case = Case::good(open());
    case.run.response_time_us.p99 = Some(9_000.0);
    case.run.lateness_us.p99 = Some(2_000.0);
    case.is(
        Status::Invalid,
        &["requests late", "2.00 ms", "p99 9.00 ms", "lower rate"],
    );
    case.run.response_time_us.p99 = Some(21_000.0);
    case.is(Status::Valid, &[]);
    (case.run.response_time_us.p99, case.run.lateness_us.p99) = (Some(300.0), Some(900.0));
    case.is(Status::Valid, &[]);
    case.run.lateness_us.p99 = None;
    case.is(Status::Valid, &[]);
}

#[test]
fn lateness_names_its_cause() {
    let mut case = Case::good(open());
    (case.run.response_time_us.p99, case.run.lateness_us.p99) = (Some(9_000.0), Some(2_000.0));
    case.run.client.threads = vec![thread(0.9, 0.05)];
    case.is(Status::Invalid, &["90 % on a CPU", "-t 2"]);
    case.run.client.threads = vec![thread(0.1, 0.8)];
    case.is(Status::Invalid, &["80 % runnable", "taskset"]);
    case.run.longest_stall_ns = Some(500_000_000);
    case.is(Status::Invalid, &["stalled for 500 ms", "floodmark doctor"]);
}

#[test]
fn compares_lateness_with_the_timeout() {
    let mut case = Case::good(open());
    (
        case.run.response_time_us.p99,
        case.run.response_time_us.censored,
    ) = (None, 400);
    case.run.lateness_us.p99 = Some(100_000.0);
    case.is(Status::Valid, &[]);
    case.run.lateness_us.p99 = Some(600_000.0);
    case.is(Status::Invalid, &["p99 > 5.00 s"]);
}

#[test]
fn ignores_lateness_of_a_closed_run() {
    let mut case = Case::good(closed());
    case.run.lateness_us.p99 = Some(60_000.0);
    case.is(Status::Valid, &[]);
}

#[test]
fn client_errors_invalidate_a_run() {
    for plan in [closed(), open()] {
        Case::good(plan.clone())
            .unsent(200, Some("ports_exhausted"))
            .is(
                Status::Invalid,
                &[
                    "200 of 10,000 requests (2.0 %)",
                    "no local port",
                    "--sources",
                ],
            );
        Case::good(plan.clone())
            .unsent(200, Some("fds_exhausted"))
            .is(Status::Invalid, &["ulimit -n", "-c"]);
        Case::good(plan.clone())
            .unsent(200, Some("no_memory_for_socket"))
            .is(Status::Invalid, &["no memory for 200 sockets"]);
        Case::good(plan.clone())
            .unsent(200, Some("connect_not_permitted"))
            .is(Status::Invalid, &["rule blocked 200 connections"]);
        Case::good(plan)
            .unsent(100, Some("ports_exhausted"))
            .is(Status::Valid, &[]);
    }
}

#[test]
fn expected_client_errors_are_valid() {
    let mut case = Case::good(closed()).unsent(8_000, Some("ports_exhausted"));
    case.is(Status::Invalid, &["no local port"]);
    case.expected = vec!["client-fds".to_owned()];
    case.is(Status::Invalid, &["no local port"]);
    case.expected.push("ephemeral-ports".to_owned());
    let judged = case.judge();
    assert_eq!(judged.status, Status::Valid, "{judged:?}");
    assert!(
        judged.notes[0]
            .contains("no local port was left for 8,000 connections, as the experiment expects"),
        "{judged:?}"
    );
    // Threads saturated by an expected search for ports do not bound the run, but threads saturated
    // by sending do.
    case.run.client.threads = vec![thread(0.96, 0.0)];
    case.is(Status::Valid, &[]);
    let mut case = Case::good(closed()).unsent(500, Some("ports_exhausted"));
    case.expected.push("ephemeral-ports".to_owned());
    case.run.client.threads = vec![thread(0.96, 0.0)];
    case.is(Status::Bound, &["the client was the limit (1 thread"]);
}

#[test]
fn server_errors_are_valid_unless_the_server_stops_responding() {
    for name in ["connect_refused", "connect_timed_out"] {
        Case::good(open())
            .unsent(5_000, Some(name))
            .is(Status::Valid, &[]);
    }
    let mut slow = Case::good(open()).unsent(5_000, None);
    slow.is(Status::Valid, &[]);
    (slow.run.ended.reason, slow.run.server_gone_since_s) = (EndReason::ServerGone, Some(4.25));
    slow.is(
        Status::Invalid,
        &[
            "stopped responding after 4.25 s",
            "the 5.75 s without responses; no new connection could be opened, so the run ended after 10.0 s",
        ],
    );
}

#[test]
fn ignores_failed_connects_without_a_waiting_request() {
    // The server refused 500 requests. Meanwhile, no local ports were left for idle connections.
    let mut case = Case::good(open()).unsent(500, Some("connect_refused"));
    case.run.errors.insert("ports_exhausted".to_owned(), 9_000);
    case.run.connections.unawaited = case.run.errors.clone();
    case.run.connections.unawaited.remove("connect_refused");
    case.is(Status::Valid, &[]);
    case.run
        .connections
        .unawaited
        .insert("ports_exhausted".to_owned(), 8_800);
    case.is(
        Status::Invalid,
        &["no local port was left for 200 connections"],
    );
}

#[test]
fn judges_held_connections_that_failed_to_open() {
    let mut case = Case::good(Plan {
        connections: 1_000,
        ..open()
    });
    let held = |reasons: &[(&str, u64)]| {
        let failed = reasons.iter().map(|(_, n)| n).sum();
        Some(HeldConnections {
            standing: 1_000 - failed,
            failed,
            reasons: reasons.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect(),
            lost: 0,
            reopened: failed,
            opening_ns: 100_000_000,
        })
    };
    // Server errors cause only a note. Client errors on at most 1 % of the connections also cause
    // only a note.
    let refused = ("connect_timed_out", 200);
    case.run.connections.held = held(&[refused]);
    // Errors during the run do not invalidate the run.
    case.run.errors.insert("ports_exhausted".to_owned(), 50);
    case.notes_one(&["200 of 1,000 held connections", "run (connect timed out)"]);
    case.run.connections.held = held(&[refused, ("ports_exhausted", 10)]);
    case.notes_one(&["210 of 1,000", "(connect timed out, ports exhausted)"]);
    case.run.connections.held = held(&[refused, ("fds_exhausted", 1), ("ports_exhausted", 10)]);
    case.is(
        Status::Invalid,
        &[
            "11 of 1,000 connections",
            "(ports exhausted, fds exhausted)",
            "--sources",
        ],
    );
    let mut unknown = held(&[refused]);
    unknown.as_mut().unwrap().reasons.clear();
    case.run.connections.held = unknown;
    case.notes_one(&["200 of 1,000", "reason unknown"]);
}

#[test]
fn requests_unsent_in_a_stall_invalidate_a_run() {
    let mut case = Case::good(open()).unsent(400, None);
    case.run.longest_stall_ns = Some(500_000_000);
    case.is(Status::Invalid, &["400 of 10,000", "stalled for 500 ms"]);
    // With HTTP/2, requests also remain unsent if their connections end before sending them.
    let by_server = [
        "connect_refused",
        "connection_reset",
        "go_away",
        "no_settings",
        "not_read_by_server",
    ];
    for name in by_server {
        let mut refused = Case::good(open()).unsent(400, Some(name));
        refused.run.longest_stall_ns = Some(500_000_000);
        refused.is(Status::Valid, &[]);
    }
}

#[test]
fn tls_failures_after_sending_do_not_explain_unsent_requests() {
    let mut broken = Case::good(open()).unsent(400, None);
    broken.run.longest_stall_ns = Some(500_000_000);
    (broken.run.requests.ok, broken.run.requests.reset) = (9_200, 400);
    let name = "tls_closed_without_notify".to_owned();
    broken.run.errors.insert(name, 400);
    broken.is(Status::Invalid, &["stalled for 500 ms"]);
    // A failed handshake explains the unsent request.
    let mut refused = Case::good(open()).unsent(400, Some("tls_unknown_issuer"));
    refused.run.longest_stall_ns = Some(500_000_000);
    refused.is(Status::Valid, &[]);
}

#[test]
fn stall_in_a_closed_run_counts_by_its_length() {
    let mut case = Case::good(closed());
    case.run.longest_stall_ns = Some(500_000_000);
    case.is(Status::Invalid, &["stalled for 500 ms of 10.0 s"]);
    case.set_seconds(60.0);
    case.run.response_time_us.mean = None;
    case.is(Status::Valid, &[]);
    case.set_seconds(5.0);
    case.run.longest_stall_ns = Some(90_000_000);
    case.is(Status::Valid, &[]);
}

#[test]
fn invalid_takes_precedence_over_bound() {
    let mut case = Case::good(closed()).unsent(500, Some("ports_exhausted"));
    case.run.client.threads = vec![thread(1.0, 0.0)];
    case.is(Status::Invalid, &["no local port"]);
}

#[test]
fn requests_unsent_by_saturated_threads_invalidate_an_open_run() {
    let mut case = Case::good(open()).unsent(5_000, None);
    case.is(Status::Valid, &[]);
    case.run.client.threads = vec![thread(0.6, 0.37)];
    case.is(
        Status::Invalid,
        &["never sent", "60 % on a CPU", "lower rate"],
    );
    let mut refused = Case::good(open());
    refused.run.client.threads = vec![thread(0.6, 0.37)];
    refused
        .unsent(5_000, Some("connect_refused"))
        .is(Status::Valid, &[]);
}

#[test]
fn short_run_does_not_saturate_a_thread() {
    let mut case = Case::good(closed());
    case.run.client.threads = vec![thread(0.99, 0.0)];
    case.is(Status::Bound, &["the client was the limit"]);
    case.set_seconds(0.003);
    case.is(Status::Valid, &[]);
}

#[test]
fn a_wide_interval_is_unsteady_and_names_the_disturbance() {
    let interval = |low, high| {
        Some(Interval {
            low,
            high,
            confidence: 0.95,
            method: String::new(),
        })
    };
    let mut case = Case::good(closed());
    case.run.throughput_per_s = Some(1_000.0);
    case.run.throughput_interval = interval(910.0, 1_090.0);
    case.is(Status::Valid, &[]);
    case.run.throughput_interval = interval(600.0, 1_400.0);
    case.is(
        Status::Unsteady,
        &[
            "± 40 %",
            "no disturbance of the client or its host was observed",
        ],
    );
    case.run.silence = Some(Silence {
        from_s: 2.0,
        to_s: 3.0,
        in_flight: 50,
        total_s: 2.0,
    });
    case.is(
        Status::Unsteady,
        &["the server sent no response for 2.00 s in total"],
    );
    case.run.other_processes = vec![BusyProcess {
        pid: 7,
        name: "backup".to_owned(),
        cpus: 0.8,
    }];
    case.is(Status::Unsteady, &["other programs used 0.80 CPUs"]);
    let steal = crate::why::tests::series("host", "steal", 0.5);
    case.run.observations.push(steal);
    case.is(Status::Unsteady, &["the hypervisor took 0.50 CPUs"]);
    case.run.longest_stall_ns = Some(100_000_000);
    case.is(Status::Unsteady, &["the client stalled for 100 ms"]);
}

#[test]
fn an_unsteady_throughput_can_be_a_lower_bound() {
    let interval = |half_width: f64| {
        Some(Interval {
            low: 1_000.0 - half_width,
            high: 1_000.0 + half_width,
            confidence: 0.95,
            method: String::new(),
        })
    };
    let mut case = Case::good(closed());
    case.run.throughput_per_s = Some(1_000.0);
    case.run.client.threads = vec![thread(0.99, 0.0)];
    for (half_width, is_saturated, expected) in [
        (90.0, true, Status::Bound),
        (130.0, true, Status::Unsteady),
        (130.0, false, Status::Unsteady),
    ] {
        case.run.throughput_interval = interval(half_width);
        if !is_saturated {
            case.run.client.threads.clear();
        }
        let judged = validity(&case.run, 2, &[]);
        assert_eq!(
            (judged.status, judged.is_lower_bound()),
            (expected, is_saturated),
            "{half_width}: {judged:?}"
        );
        let reasons: Vec<String> = judged.reasons.iter().map(ToString::to_string).collect();
        let is_wide = half_width > 100.0;
        assert_eq!(reasons[0].contains("± 13 %"), is_wide, "{reasons:?}");
        assert_eq!(
            reasons
                .iter()
                .any(|of| of.contains("the client was the limit")),
            is_saturated,
            "{reasons:?}"
        );
        assert_eq!(wide_interval(&case.run).is_some(), is_wide);
    }
}

#[test]
fn a_run_without_ok_responses_in_time_is_invalid() {
    let mut case = Case::good(closed());
    case.run.throughput_per_s = Some(0.0);
    let reason = "no ok response arrived within the 10.0 s in which requests were sent";
    case.is(Status::Invalid, &[reason, "--duration"]);
}

#[test]
fn a_run_without_ok_responses_is_invalid() {
    for plan in [closed(), open()] {
        let mut case = Case::good(plan);
        let sent = case.run.requests.sent;
        (case.run.requests.ok, case.run.requests.wrong) = (0, sent);
        case.run.requests.statuses = [(404, sent - 1), (500, 1)].into();
        case.is(
            Status::Invalid,
            &["no response was ok (mostly status 404: 9,999)"],
        );
        case.run.validity = case.judge();
        assert!(is_only_not_ok(&case.run));
        case.run.requests.statuses = [(200, sent)].into();
        case.run.requests.grpc_statuses = [(GrpcStatus::Internal, sent)].into();
        case.is(
            Status::Invalid,
            &["no response was ok (mostly status INTERNAL: 10,000)"],
        );
        // If the client did not send the load as planned, that fault takes precedence.
        case.run.lateness_us.p99 = Some(50_000.0);
        case.run.longest_stall_ns = Some(5_000_000_000);
        case.run.validity = case.judge();
        assert_eq!(case.run.validity.status, Status::Invalid);
        assert!(!is_only_not_ok(&case.run));
    }
}
