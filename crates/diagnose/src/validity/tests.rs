//! Tests of [`super`] and of the notes: each rule, and what looks like it.

use super::*;
use crate::testing::{closed, open, thread};
use floodmark_record::events::Held;

mod notes;

/// What a piece of evidence refers to.
struct Case {
    plan: Plan,
    counts: Counts,
    errors: BTreeMap<String, u64>,
    unawaited: BTreeMap<String, u64>,
    lateness_p99: Option<f64>,
    response: Times,
    throughput: f64,
    threads: Vec<ThreadUse>,
    addresses: Vec<AddressUse>,
    cpus: u32,
    seconds: f64,
    stall_ns: Option<u64>,
    host: HostCounters,
    held: Option<Held>,
    ended: EndReason,
    gone_s: Option<f64>,
    ceiling: Option<f64>,
    expected: Vec<String>,
}

impl Case {
    /// A run without a fault: 10,000 requests of 50 ms in ten seconds, by the plan.
    fn good(plan: Plan) -> Self {
        Case {
            plan,
            counts: Counts {
                intended: 10_000,
                sent: 10_000,
                ok: 10_000,
                ..Counts::default()
            },
            errors: BTreeMap::new(),
            unawaited: BTreeMap::new(),
            lateness_p99: Some(50.0),
            response: Times {
                count: 10_000,
                mean: Some(50_000.0),
                p99: Some(80_000.0),
                ..Times::default()
            },
            throughput: 1_000.0,
            threads: vec![thread(0.3, 0.1)],
            addresses: Vec::new(),
            cpus: 2,
            seconds: 10.0,
            stall_ns: Some(0),
            host: HostCounters::default(),
            held: None,
            ended: EndReason::Completed,
            gone_s: None,
            ceiling: None,
            expected: Vec::new(),
        }
    }

    fn unsent(mut self, n: u64, error: Option<&str>) -> Self {
        self.counts.sent -= n;
        self.counts.ok -= n;
        match error {
            Some(name) => {
                self.counts.connect_failed = n;
                self.errors.insert(name.to_owned(), n);
            }
            None => self.counts.unsent = n,
        }
        assert_eq!(self.counts.balance(), Ok(()));
        self
    }

    fn judge(&self) -> Validity {
        let lateness = Times {
            p99: self.lateness_p99,
            ..Times::default()
        };
        validity(&Evidence {
            plan: &self.plan,
            counts: &self.counts,
            errors: &self.errors,
            unawaited: &self.unawaited,
            lateness: &lateness,
            response: &self.response,
            throughput_per_s: Some(self.throughput),
            window_s: self.seconds,
            sending_s: self.seconds,
            threads: &self.threads,
            addresses: &self.addresses,
            cpus: self.cpus,
            longest_stall_ns: self.stall_ns,
            host: self.host,
            held: self.held.as_ref(),
            ended: self.ended,
            server_gone_since_s: self.gone_s,
            expected: &self.expected,
            ceiling_per_s: self.ceiling,
        })
    }

    fn is(&self, status: Status, words: &[&str]) {
        let judged = self.judge();
        assert_eq!(judged.status, status, "{judged:?}");
        let text = judged.reasons.join("\n");
        for word in words {
            assert!(text.contains(word), "no \"{word}\" in: {text}");
        }
        assert_eq!(status == Status::Valid, judged.reasons.is_empty());
    }

    fn notes_one(&self, words: &[&str]) {
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

    fn notes_nothing(&self) {
        assert_eq!(self.judge().notes, Vec::<String>::new());
    }
}

#[test]
fn a_good_run_is_valid_without_a_word() {
    for plan in [closed(), open()] {
        let case = Case::good(plan);
        case.is(Status::Valid, &[]);
        case.notes_nothing();
    }
}

#[test]
fn a_full_closed_client_is_a_bound_with_its_mend() {
    let mut case = Case::good(closed());
    case.threads = vec![thread(0.72, 0.27)];
    let judged = case.judge();
    assert_eq!(judged.status, Status::Bound);
    assert_eq!(
        judged.reasons,
        [
            "floodmark was the limit: its one thread was full (99 %: 72 % on a CPU, 27 % waiting for one); the server may take \
             more than this, and the latencies include waiting inside floodmark. Use -t 2"
        ]
    );
    case.threads = vec![thread(0.98, 0.01), thread(0.96, 0.02)];
    case.is(
        Status::Bound,
        &[
            "its 2 threads were full",
            "each of the 2 CPUs",
            "another machine",
        ],
    );
    case.threads = vec![thread(0.3, 0.68)];
    case.is(
        Status::Bound,
        &["share the CPUs", "more threads will not help", "taskset"],
    );
}

#[test]
fn threads_that_do_not_drive_load_do_not_count() {
    let mut case = Case::good(closed());
    case.threads = vec![thread(0.3, 0.0)];
    case.threads.push(ThreadUse {
        drives_load: false,
        ..thread(1.0, 0.0)
    });
    case.is(Status::Valid, &[]);
    case.threads = vec![
        ThreadUse {
            drives_load: false,
            ..thread(0.0, 0.0)
        },
        thread(0.99, 0.0),
    ];
    case.is(Status::Bound, &[]);
    case.threads.clear();
    case.is(Status::Valid, &[]);
}

#[test]
fn one_full_thread_of_two_is_no_bound() {
    let mut case = Case::good(closed());
    case.threads = vec![thread(1.0, 0.0), thread(0.5, 0.0)];
    case.is(Status::Valid, &[]);
}

#[test]
fn a_full_core_alone_never_invalidates_an_open_run() {
    let mut case = Case::good(open());
    case.threads = vec![thread(1.0, 0.0)];
    case.is(Status::Valid, &[]);
}

#[test]
fn lateness_needs_both_thresholds() {
    let mut case = Case::good(open());
    case.response.p99 = Some(9_000.0);
    case.lateness_p99 = Some(2_000.0);
    case.is(
        Status::Invalid,
        &["sent late", "2.00 ms", "p99 9.00 ms", "lower --rate"],
    );
    case.response.p99 = Some(21_000.0);
    case.is(Status::Valid, &[]);
    (case.response.p99, case.lateness_p99) = (Some(300.0), Some(900.0));
    case.is(Status::Valid, &[]);
    case.lateness_p99 = None;
    case.is(Status::Valid, &[]);
}

#[test]
fn lateness_names_its_cause() {
    let mut case = Case::good(open());
    (case.response.p99, case.lateness_p99) = (Some(9_000.0), Some(2_000.0));
    case.threads = vec![thread(0.9, 0.05)];
    case.is(Status::Invalid, &["busy 90 %", "-t 2"]);
    case.threads = vec![thread(0.1, 0.8)];
    case.is(Status::Invalid, &["waited for a CPU 80 %", "taskset"]);
    case.stall_ns = Some(500_000_000);
    case.is(
        Status::Invalid,
        &["stood still for 500 ms", "floodmark doctor"],
    );
}

#[test]
fn lateness_under_timeouts_is_weighed_against_the_timeout() {
    let mut case = Case::good(open());
    (case.response.p99, case.response.censored) = (None, 400);
    case.lateness_p99 = Some(100_000.0);
    case.is(Status::Valid, &[]);
    case.lateness_p99 = Some(600_000.0);
    case.is(Status::Invalid, &["p99 > 5.00 s"]);
}

#[test]
fn a_closed_run_has_no_lateness_to_be_judged_by() {
    let mut case = Case::good(closed());
    case.lateness_p99 = Some(60_000.0);
    case.is(Status::Valid, &[]);
}

#[test]
fn unsent_for_want_of_ports_or_files_is_ours() {
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
            .is(Status::Invalid, &["does not permit"]);
        Case::good(plan)
            .unsent(100, Some("ports_exhausted"))
            .is(Status::Valid, &[]);
    }
}

#[test]
fn what_the_experiment_is_about_does_not_spoil_it() {
    let mut case = Case::good(closed()).unsent(8_000, Some("ports_exhausted"));
    case.is(Status::Invalid, &["no local port"]);
    case.expected = vec!["client-fds".to_owned()];
    case.is(Status::Invalid, &["no local port"]);
    case.expected.push("ephemeral-ports".to_owned());
    let judged = case.judge();
    assert_eq!(judged.status, Status::Valid, "{judged:?}");
    assert!(
        judged.notes[0]
            .contains("no local port left for 8,000 connections, as the experiment expects"),
        "{judged:?}"
    );
    // Looking for ports fills a thread, which is no limit of floodmark's; sending does too, and is one.
    case.threads = vec![thread(0.96, 0.0)];
    case.is(Status::Valid, &[]);
    let mut case = Case::good(closed()).unsent(500, Some("ports_exhausted"));
    case.expected.push("ephemeral-ports".to_owned());
    case.threads = vec![thread(0.96, 0.0)];
    case.is(Status::Bound, &["its one thread was full"]);
}

#[test]
fn unsent_because_the_server_refused_or_died_is_the_servers() {
    for name in ["connect_refused", "connect_timed_out"] {
        Case::good(open())
            .unsent(5_000, Some(name))
            .is(Status::Valid, &[]);
    }
    let mut slow = Case::good(open()).unsent(5_000, None);
    slow.is(Status::Valid, &[]);
    (slow.ended, slow.gone_s) = (EndReason::ServerGone, Some(4.25));
    slow.notes_one(&["server went away", "4.2 s"]);
}

#[test]
fn a_failure_that_no_request_waited_for_kept_none_from_being_sent() {
    // Of 500 requests that the server refused none was kept back by the ports that idle connections lacked meanwhile.
    let mut case = Case::good(open()).unsent(500, Some("connect_refused"));
    case.errors.insert("ports_exhausted".to_owned(), 9_000);
    case.unawaited = case.errors.clone();
    case.unawaited.remove("connect_refused");
    case.is(Status::Valid, &[]);
    case.unawaited.insert("ports_exhausted".to_owned(), 8_800);
    case.is(Status::Invalid, &["no local port left for 200 connections"]);
}

#[test]
fn held_connections_that_were_not_opened() {
    let mut case = Case::good(Plan {
        connections: 1_000,
        ..open()
    });
    let held = |reasons: &[(&str, u64)]| {
        let failed = reasons.iter().map(|(_, n)| n).sum();
        Some(Held {
            standing: 1_000 - failed,
            failed,
            reasons: reasons.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect(),
            lost: 0,
            reopened: failed,
            opening_ns: 100_000_000,
        })
    };
    // The server's doing, or one in a hundred of ours: the run says what it was without them.
    let refused = ("connect_timed_out", 200);
    case.held = held(&[refused]);
    // What went wrong in the run itself is no reason.
    case.errors.insert("ports_exhausted".to_owned(), 50);
    case.notes_one(&["200 of 1,000 held connections", "run (connect timed out),"]);
    case.held = held(&[refused, ("ports_exhausted", 10)]);
    case.notes_one(&["210 of 1,000", "(connect timed out, ports exhausted)"]);
    case.held = held(&[refused, ("fds_exhausted", 1), ("ports_exhausted", 10)]);
    case.is(
        Status::Invalid,
        &[
            "11 of 1,000 connections",
            "(ports exhausted, fds exhausted)",
            "--sources",
        ],
    );
    let mut untold = held(&[refused]);
    untold.as_mut().unwrap().reasons.clear();
    case.held = untold;
    case.notes_one(&["200 of 1,000", "not known"]);
}

#[test]
fn unsent_through_a_stall_of_ours_is_ours() {
    let mut case = Case::good(open()).unsent(400, None);
    case.stall_ns = Some(500_000_000);
    case.is(
        Status::Invalid,
        &["400 of 10,000", "stood still for 500 ms"],
    );
    let mut refused = Case::good(open()).unsent(400, Some("connect_refused"));
    refused.stall_ns = Some(500_000_000);
    refused.is(Status::Valid, &[]);
}

#[test]
fn connections_that_broke_in_tls_do_not_excuse_a_stall_of_ours() {
    let mut broken = Case::good(open()).unsent(400, None);
    broken.stall_ns = Some(500_000_000);
    (broken.counts.ok, broken.counts.reset) = (9_200, 400);
    let name = "tls_closed_without_notify".to_owned();
    broken.errors.insert(name, 400);
    broken.is(Status::Invalid, &["stood still for 500 ms"]);
    // A handshake that failed kept its request from being sent.
    let mut refused = Case::good(open()).unsent(400, Some("tls_unknown_issuer"));
    refused.stall_ns = Some(500_000_000);
    refused.is(Status::Valid, &[]);
}

#[test]
fn a_stall_of_ours_in_a_closed_run_counts_by_its_time() {
    let mut case = Case::good(closed());
    case.stall_ns = Some(500_000_000);
    case.is(Status::Invalid, &["stood still for 500 ms of 10.0 s"]);
    case.seconds = 60.0;
    case.response.mean = None;
    case.is(Status::Valid, &[]);
    (case.seconds, case.stall_ns) = (5.0, Some(90_000_000));
    case.is(Status::Valid, &[]);
}

#[test]
fn invalid_comes_before_bound() {
    let mut case = Case::good(closed()).unsent(500, Some("ports_exhausted"));
    case.threads = vec![thread(1.0, 0.0)];
    case.is(Status::Invalid, &["no local port"]);
}

#[test]
fn an_open_run_that_full_threads_could_not_send_is_invalid() {
    let mut case = Case::good(open()).unsent(5_000, None);
    case.is(Status::Valid, &[]);
    case.threads = vec![thread(0.6, 0.37)];
    case.is(Status::Invalid, &["never sent", "97 %", "lower --rate"]);
    let mut refused = Case::good(open());
    refused.threads = vec![thread(0.6, 0.37)];
    refused
        .unsent(5_000, Some("connect_refused"))
        .is(Status::Valid, &[]);
}

#[test]
fn a_run_of_milliseconds_does_not_fill_a_thread() {
    let mut case = Case::good(closed());
    case.threads = vec![thread(0.99, 0.0)];
    case.is(Status::Bound, &["full"]);
    case.seconds = 0.003;
    case.is(Status::Valid, &[]);
}
