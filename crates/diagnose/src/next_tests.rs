//! Table-driven tests for the next step.

use std::collections::BTreeMap;

use floodmark_record::grpc::GrpcStatus;
use floodmark_record::outcome::Counts;
use floodmark_record::plan::{Check, Ramp, RateStep, Replay, RequestPlan, Schedule, Spacing};
use floodmark_record::run::{
    CheckResult, ClientUsage, Connections, FellBehind, HttpBytes, RunEnd, Saturation, Steady,
    StepFigures, Validity, Window,
};
use floodmark_record::times::{BlockedTimes, Times};
use floodmark_record::units::Bytes;

use super::*;
use crate::testing::{burst, closed, open, scheduled, thread};

fn check(name: &str, held: Option<bool>) -> CheckResult {
    CheckResult {
        name: name.to_owned(),
        held,
        detail: String::new(),
        history: Vec::new(),
    }
}

/// Returns a valid and steady ten-second run at 1,000/s.
pub(crate) fn run(plan: floodmark_record::Plan) -> Run {
    let n = 10_000;
    Run {
        system: "localhost:8080".to_owned(),
        workload: "/hello".to_owned(),
        attempt: 1,
        process: 1,
        setting: BTreeMap::new(),
        trial: None,
        place: None,
        started_unix_ms: 0,
        plan,
        ended: RunEnd {
            reason: EndReason::Completed,
            detail: None,
            abort: None,
        },
        sending_s: 10.0,
        longest_stall_ns: Some(0),
        server_gone_since_s: None,
        silence: None,
        window: Window {
            from_s: 0.0,
            to_s: 10.0,
            why: String::new(),
        },
        warmup: None,
        validity: Validity {
            status: Status::Valid,
            reasons: Vec::new(),
            unsteady_bound: false,
            notes: Vec::new(),
        },
        throughput_per_s: Some(1_000.0),
        throughput_interval: None,
        goodput_per_s: None,
        requests: Counts {
            intended: n,
            sent: n,
            ok: n,
            statuses: BTreeMap::from([(200, n)]),
            ..Counts::default()
        },
        errors: BTreeMap::new(),
        not_ok_responses: Vec::new(),
        request_log: None,
        response_time_us: Times::default(),
        service_time_us: Times::default(),
        least_service_time_us: None,
        least_connect_time_us: None,
        blocked_us: Times::default(),
        blocked_by: BlockedTimes::default(),
        lateness_us: Times::default(),
        connect_time_us: Times::default(),
        handshake_time_us: Times::default(),
        tls: None,
        http2: None,
        first_byte_us: Times::default(),
        error_time_us: Times::default(),
        window_us: Times::default(),
        ping_us: Times::default(),
        groups: Vec::new(),
        bytes: HttpBytes::default(),
        connections: Connections::default(),
        client: ClientUsage {
            threads: vec![thread(0.98, 0.0)],
            ..ClientUsage::default()
        },
        series: Vec::new(),
        fine_throughput: None,
        steps: Vec::new(),
        saturation: None,
        observations: Vec::new(),
        measured_from_ms: None,
        server: None,
        store: None,
        other_processes: Vec::new(),
        watcher: None,
        remote: None,
        agents: Vec::new(),
        missing: Vec::new(),
        steady: Steady {
            class: SteadyClass::Steady,
            from_s: Some(0.0),
            changes_s: Vec::new(),
        },
        checks: Vec::new(),
        perturbed: Vec::new(),
        verdict: None,
        runtime: None,
        log_errors: Vec::new(),
    }
}

fn with(plan: floodmark_record::Plan, change: impl FnOnce(&mut Run)) -> Run {
    let mut run = run(plan);
    change(&mut run);
    run
}

/// Changes the outcome of `n` ok responses.
fn fail(run: &mut Run, n: u64, kind: fn(&mut Counts) -> &mut u64) {
    run.requests.ok -= n;
    *kind(&mut run.requests) += n;
}

/// Adds a server stall of 1.3 s that delays fewer than one in a hundred requests.
fn stall(run: &mut Run) {
    run.silence = Some(Silence {
        from_s: 3.0,
        to_s: 4.3,
        in_flight: 1300,
        total_s: 1.3,
    });
    run.longest_stall_ns = Some(0);
    run.service_time_us.p50 = Some(500.0);
    run.service_time_us.max = Some(1_300_000.0);
    run.response_time_us.p99 = Some(2_000.0);
}

#[test]
fn suggests_a_next_step_for_each_run() {
    let table: Vec<(&str, Run, &str)> = vec![
        ("closed", run(closed()), "below the limit: --rate 700"),
        (
            "open, met",
            run(open()),
            "the offered rate was met; try a higher rate: --rate 1500",
        ),
        (
            "open, met, with a stall",
            with(open(), |r| {
                stall(r);
                r.response_time_us.p99 = Some(700_000.0);
            }),
            "check the server's log: the server sent no response for 1.30 s from 3.0 s on",
        ),
        (
            "open, met, with a stall that delays few requests",
            with(open(), stall),
            "try a higher rate: --rate 1500",
        ),
        (
            "open, unmet",
            with(open(), |r| r.throughput_per_s = Some(612.0)),
            "the offered rate was not met; measure latency below the limit: --rate 430",
        ),
        (
            "bound",
            with(closed(), |r| r.validity.status = Status::Bound),
            "use more client threads: -t 2",
        ),
        (
            "bound, no CPU left",
            with(closed(), |r| {
                r.validity.status = Status::Bound;
                r.client.threads = vec![thread(0.3, 0.7)];
            }),
            "taskset",
        ),
        (
            "no ports",
            with(open(), |r| {
                r.validity.status = Status::Invalid;
                r.errors.insert("ports_exhausted".to_owned(), 900);
            }),
            "--sources",
        ),
        (
            "no files",
            with(open(), |r| {
                r.validity.status = Status::Invalid;
                r.errors.insert("fds_exhausted".to_owned(), 900);
            }),
            "ulimit -n",
        ),
        (
            "late",
            with(open(), |r| r.validity.status = Status::Invalid),
            "(floodmark doctor) and repeat, or use --rate 500",
        ),
        (
            "stalled",
            with(closed(), |r| r.validity.status = Status::Invalid),
            "(floodmark doctor) and repeat",
        ),
        (
            "server gone",
            with(closed(), |r| r.server_gone_since_s = Some(2.0)),
            "check the server's log, restart the server and repeat",
        ),
        (
            "interrupted after the server stopped",
            with(closed(), |r| {
                r.ended.reason = EndReason::Interrupted;
                r.server_gone_since_s = Some(2.0);
            }),
            "check the server's log, restart the server and repeat",
        ),
        (
            "interrupted",
            with(closed(), |r| r.ended.reason = EndReason::Interrupted),
            "without interruption",
        ),
        (
            "check failed",
            with(closed(), |r| {
                r.checks = vec![check("set", None), check("sequence", Some(false))];
            }),
            "the failed check \"sequence\"",
        ),
        (
            "check not evaluated",
            with(closed(), |r| {
                r.checks = vec![check("sequence", Some(true)), check("set", None)];
            }),
            "the check \"set\" was not evaluated",
        ),
        (
            "connection refused",
            with(closed(), |r| {
                r.requests = Counts {
                    intended: 50,
                    connect_failed: 50,
                    ..Counts::default()
                };
            }),
            "check that a server listens on localhost:8080 (127.0.0.1:8080)",
        ),
        (
            "404",
            with(closed(), |r| {
                fail(r, 10_000, |c| &mut c.wrong);
                r.requests.statuses = BTreeMap::from([(404, 10_000)]);
            }),
            "10,000 unexpected responses (mostly status 404): find out why (curl -i http://localhost:8080/hello), or accept them: --expect status=404",
        ),
        (
            "a failed request with a body, under a check",
            with(closed(), |r| {
                fail(r, 10_000, |c| &mut c.wrong);
                r.requests.statuses = BTreeMap::from([(415, 10_000)]);
                r.plan.check = Some(Check::Scoring { score: 10.0 });
                r.plan.request = RequestPlan {
                    method: "POST".to_owned(),
                    headers: vec![("X-Name".to_owned(), "it's".to_owned())],
                    body: b"{\"score\": 10}".to_vec().into(),
                    is_grpc: false,
                };
            }),
            "415): find out why (curl -i -X POST -H 'X-Name: it'\\''s' --data-binary '{\"score\": 10}' http://localhost:8080/hello)",
        ),
        (
            "unexpected body",
            with(closed(), |r| fail(r, 500, |c| &mut c.wrong)),
            "did not match --expect",
        ),
        (
            "rejected",
            with(open(), |r| fail(r, 500, |c| &mut c.rejected)),
            "500 requests were rejected (429 or 503): retry with --rate 500",
        ),
        (
            "a gRPC status",
            with(closed(), |r| {
                fail(r, 10_000, |c| &mut c.wrong);
                r.requests.statuses = BTreeMap::from([(200, 10_000)]);
                r.requests.grpc_statuses = BTreeMap::from([(GrpcStatus::NotFound, 10_000)]);
                r.plan.request.is_grpc = true;
            }),
            "(mostly status NOT_FOUND): find out why (check the server's log), or accept them: --expect grpc-status=NOT_FOUND",
        ),
        (
            "gRPC calls that the server rejects",
            with(open(), |r| {
                fail(r, 500, |c| &mut c.rejected);
                r.requests.grpc_statuses = BTreeMap::from([(GrpcStatus::Unavailable, 500)]);
            }),
            "500 requests were rejected (UNAVAILABLE): retry with --rate 500",
        ),
        (
            "gRPC calls that a proxy rejects",
            with(open(), |r| {
                fail(r, 500, |c| &mut c.rejected);
                r.requests.statuses = BTreeMap::from([(200, 9_500), (503, 500)]);
                r.requests.grpc_statuses = BTreeMap::from([(GrpcStatus::Ok, 9_500)]);
            }),
            "500 requests were rejected (503): retry with --rate 500",
        ),
        (
            "timeouts",
            with(closed(), |r| fail(r, 500, |c| &mut c.timed_out)),
            "-c 25",
        ),
        (
            "timeouts of one connection",
            with(closed(), |r| {
                r.plan.connections = 1;
                fail(r, 500, |c| &mut c.timed_out);
            }),
            "500 requests timed out: check the server's log, or use a longer --timeout",
        ),
        (
            "failed connects",
            with(closed(), |r| fail(r, 500, |c| &mut c.connect_failed)),
            "or open fewer at once: -c 25",
        ),
        (
            "an outage",
            with(closed(), |r| {
                fail(r, 500, |c| &mut c.connect_failed);
                r.errors.insert("connect_refused".to_owned(), 400);
            }),
            "failed to open: check whether the server stopped or restarted",
        ),
        (
            "an outage in which connections time out",
            with(closed(), |r| {
                fail(r, 500, |c| &mut c.connect_failed);
                r.errors.insert("connect_timed_out".to_owned(), 500);
                r.series = (0..10)
                    .map(|second| SeriesRow {
                        from_s: f64::from(second),
                        to_s: f64::from(second + 1),
                        throughput_per_s: if second == 4 { 0.0 } else { 1_000.0 },
                        failed: if second == 4 { 500 } else { 0 },
                        ..SeriesRow::default()
                    })
                    .collect();
            }),
            "failed to open: check whether the server stopped or restarted",
        ),
        (
            "compressed",
            with(closed(), |r| {
                fail(r, 500, |c| &mut c.wrong);
                r.errors.insert("compressed_body".to_owned(), 500);
            }),
            "remove the Accept-Encoding header",
        ),
        (
            "no HTTP, known reason",
            with(closed(), |r| {
                fail(r, 500, |c| &mut c.malformed);
                r.errors.insert("too_many_headers".to_owned(), 500);
            }),
            "more than 100 headers",
        ),
        (
            "resets",
            with(closed(), |r| fail(r, 500, |c| &mut c.reset)),
            "500 connections closed without a response: check the server's log",
        ),
        (
            "resets of a server that never responded",
            with(closed(), |r| {
                fail(r, 10_000, |c| &mut c.reset);
                r.requests.statuses.clear();
                r.errors.insert("closed_before_answer".to_owned(), 10_000);
            }),
            "10,000 connections closed without a response: check the server's log; if the port",
        ),
        (
            "no HTTP",
            with(closed(), |r| fail(r, 500, |c| &mut c.malformed)),
            "speaks HTTP/1.1",
        ),
        (
            "a few failures",
            with(closed(), |r| fail(r, 50, |c| &mut c.reset)),
            "--rate 700",
        ),
        ("short", with(closed(), |r| r.sending_s = 2.0), "-d 10s"),
        (
            "unsteady",
            with(closed(), |r| {
                r.steady.class = SteadyClass::Unsteady;
                r.steady.changes_s = vec![4.0];
            }),
            "--warmup 10s, or run longer: -d 30s",
        ),
        ("burst, met", with(burst(), |_| ()), "--burst 20000"),
    ];
    for (name, run, step) in table {
        let got = next_step(&run, 2);
        assert!(got.contains(step), "{name}: {got}");
        assert!(!got.contains('\n'), "{name}: {got}");
    }
}

#[test]
fn suggests_the_same_flag_for_a_changing_rate() {
    let ramp = || {
        scheduled(Schedule::Ramp {
            ramp: Ramp {
                from_per_s: 0.0,
                to_per_s: 2000.0,
                duration_s: 10.0,
            },
            spacing: Spacing::Constant,
        })
    };
    let steps = || {
        let steps = vec![
            RateStep {
                rate_per_s: 500.0,
                duration_s: 4.0,
            },
            RateStep {
                rate_per_s: 0.0,
                duration_s: 1.5,
            },
            RateStep {
                rate_per_s: 1500.0,
                duration_s: 4.5,
            },
        ];
        scheduled(Schedule::Steps {
            steps,
            spacing: Spacing::Constant,
        })
    };
    let replay = || {
        let replay = Replay {
            file: "x".to_owned(),
            speed: 2.0,
            peak_per_s: 5000,
            window_s: 10.0,
            timetable_bytes: Bytes(0),
            timetable_checksum: String::new(),
            timetable: floodmark_record::Timetable::default(),
        };
        let requests = 10_000;
        scheduled(Schedule::Replay { replay, requests })
    };
    let invalid = |r: &mut Run| r.validity.status = Status::Invalid;
    let shed = |r: &mut Run| fail(r, 500, |c| &mut c.rejected);
    let beyond = |r: &mut Run| {
        r.saturation = Some(Saturation::FellBehind(FellBehind {
            at_s: 6.0,
            offered_per_s: 1200.0,
            achieved_per_s: 1100.0,
            method: String::new(),
        }));
    };
    let undecided = |r: &mut Run| {
        let why = String::new();
        r.saturation = Some(Saturation::Undecided { why });
    };
    let unmet = |r: &mut Run| {
        r.steps = [(500.0, 500.0), (0.0, 0.0), (1500.0, 900.0)]
            .map(|(offered_per_s, throughput_per_s)| StepFigures {
                from_s: 0.0,
                to_s: 1.0,
                offered_per_s,
                throughput_per_s,
                goodput_per_s: 0.0,
                requests: Counts::default(),
                response_time_us: Times::default(),
            })
            .to_vec();
    };
    let short = |r: &mut Run| r.sending_s = 2.0;
    let less = |r: &mut Run| r.throughput_per_s = Some(700.0);
    let table: Vec<(&str, Run, &str)> = vec![
        (
            "ramp",
            with(ramp(), |_| ()),
            "the offered rate was met; try a higher rate: --ramp 0-3000",
        ),
        (
            "ramp, beyond",
            with(ramp(), beyond),
            "the server fell behind at 1,200/s; measure latency below that rate: --rate 770",
        ),
        (
            "ramp, undecided",
            with(ramp(), undecided),
            "use a longer ramp: -d 20s",
        ),
        (
            "falling ramp, never met",
            with(
                scheduled(Schedule::Ramp {
                    ramp: Ramp {
                        from_per_s: 2000.0,
                        to_per_s: 0.0,
                        duration_s: 10.0,
                    },
                    spacing: Spacing::Constant,
                }),
                less,
            ),
            "the offered rate was not met; try a lower rate: --ramp 1000-0",
        ),
        (
            "ramp, invalid",
            with(ramp(), invalid),
            "or use --ramp 0-1000",
        ),
        ("ramp, short", with(ramp(), short), "run longer: -d 10s"),
        (
            "steps",
            with(steps(), |_| ()),
            "try a higher rate: --steps 750:4s,0:1.5s,2300:4.5s",
        ),
        (
            "steps, beyond",
            with(steps(), unmet),
            "the 1,500/s step was not met; measure latency below the achieved rate: --rate 630",
        ),
        (
            "steps, shed",
            with(steps(), shed),
            "retry with --steps 250:4s,0:1.5s,750:4.5s",
        ),
        (
            "steps, short",
            with(steps(), short),
            "run longer: --steps 500:26.667s,0:10s,1500:30s",
        ),
        (
            "replay",
            with(replay(), |_| ()),
            "try a higher rate: --replay-speed 3x",
        ),
        (
            "replay, unmet",
            with(replay(), less),
            "try a lower rate: --replay-speed 1x",
        ),
        ("replay, short", with(replay(), short), "--replay-speed 3x"),
        ("replay, shed", with(replay(), shed), "--replay-speed 1x"),
    ];
    for (name, run, step) in table {
        let got = next_step(&run, 2);
        assert!(got.contains(step), "{name}: {got}");
        assert!(!got.contains('\n'), "{name}: {got}");
    }
}
