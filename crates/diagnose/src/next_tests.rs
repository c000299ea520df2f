//! Table tests of [`super`].

use std::collections::BTreeMap;

use floodmark_record::outcome::Counts;
use floodmark_record::plan::Arrivals;
use floodmark_record::profile::{Profile, Ramp, Replay, Step};
use floodmark_record::run::{
    Bytes, CheckResult, Client, Connections, Ended, FellBehind, Saturation, Steady, StepFigures,
    Validity, Window,
};
use floodmark_record::times::Times;

use super::*;
use crate::testing::{closed, open, thread};

/// A valid, steady run by the plan that gave 1,000/s for ten seconds.
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
        ended: Ended {
            reason: EndReason::Completed,
            detail: None,
        },
        sending_s: 10.0,
        longest_stall_ns: Some(0),
        server_gone_since_s: None,
        window: Window {
            from_s: 0.0,
            to_s: 10.0,
            why: String::new(),
        },
        warmup: None,
        validity: Validity {
            status: Status::Valid,
            reasons: Vec::new(),
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
        response_time_us: Times::default(),
        service_time_us: Times::default(),
        least_service_time_us: None,
        blocked_us: Times::default(),
        lateness_us: Times::default(),
        connect_time_us: Times::default(),
        handshake_time_us: Times::default(),
        tls: None,
        first_byte_us: Times::default(),
        error_time_us: Times::default(),
        groups: Vec::new(),
        bytes: Bytes::default(),
        connections: Connections::default(),
        client: Client {
            threads: vec![thread(0.98, 0.0)],
            ..Client::default()
        },
        series: Vec::new(),
        steps: Vec::new(),
        saturation: None,
        observations: Vec::new(),
        measured_from_ms: None,
        server: None,
        store: None,
        watcher: None,
        elsewhere: None,
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

/// Moves `n` of the ok answers to another outcome.
fn fail(run: &mut Run, n: u64, kind: fn(&mut Counts) -> &mut u64) {
    run.requests.ok -= n;
    *kind(&mut run.requests) += n;
}

#[test]
fn each_situation_has_its_step() {
    let table: Vec<(&str, Run, &str)> = vec![
        ("closed", run(closed()), "below the limit: --rate 700"),
        (
            "open, met",
            run(open()),
            "the load was met; see how much more it takes: --rate 1500",
        ),
        (
            "open, unmet",
            with(open(), |r| r.throughput_per_s = Some(612.0)),
            "less than it was asked for; see how it answers below that: --rate 430",
        ),
        (
            "bound",
            with(closed(), |r| r.validity.status = Status::Bound),
            "the server's own limit: -t 2",
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
            "floodmark doctor), then repeat, or use --rate 500",
        ),
        (
            "stalled",
            with(closed(), |r| r.validity.status = Status::Invalid),
            "floodmark doctor), then repeat",
        ),
        (
            "server gone",
            with(closed(), |r| r.ended.reason = EndReason::ServerGone),
            "localhost:8080 went away",
        ),
        (
            "interrupted",
            with(closed(), |r| r.ended.reason = EndReason::Interrupted),
            "let it run to its end",
        ),
        (
            "check failed",
            with(closed(), |r| {
                r.checks.push(CheckResult {
                    name: "sequence".to_owned(),
                    held: false,
                    detail: String::new(),
                });
            }),
            "the check \"sequence\"",
        ),
        (
            "nobody listens",
            with(closed(), |r| {
                r.requests = Counts {
                    intended: 50,
                    connect_failed: 50,
                    ..Counts::default()
                };
            }),
            "see that a server listens at localhost:8080 (127.0.0.1:8080)",
        ),
        (
            "404",
            with(closed(), |r| {
                fail(r, 10_000, |c| &mut c.wrong);
                r.requests.statuses = BTreeMap::from([(404, 10_000)]);
            }),
            "10,000 answers had status 404 (curl -i http://localhost:8080/hello), or say that it is right: --expect status=404",
        ),
        (
            "wrong body",
            with(closed(), |r| fail(r, 500, |c| &mut c.wrong)),
            "not what --expect asks for",
        ),
        (
            "shed",
            with(open(), |r| fail(r, 500, |c| &mut c.rejected)),
            "declined 500 requests (429 or 503): see what it takes with --rate 500",
        ),
        (
            "timeouts",
            with(closed(), |r| fail(r, 500, |c| &mut c.timed_out)),
            "-c 25",
        ),
        (
            "resets",
            with(closed(), |r| fail(r, 500, |c| &mut c.reset)),
            "closed connections without an answer (500 times)",
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
            "unsettled",
            with(closed(), |r| {
                r.steady.class = SteadyClass::Unsteady;
                r.steady.changes_s = vec![4.0];
            }),
            "--warmup 10s, or measure for longer: -d 30s",
        ),
        (
            "burst, met",
            with(open(), |r| r.plan.arrivals = Some(Arrivals::Burst)),
            "--burst 20000",
        ),
    ];
    for (name, run, step) in table {
        let got = next_step(&run, 2);
        assert!(got.contains(step), "{name}: {got}");
        assert!(!got.contains('\n'), "{name}: {got}");
    }
}

#[test]
fn a_rate_that_changes_is_asked_for_again_with_its_own_flag() {
    let ramp = || {
        changing(Profile::Ramp(Ramp {
            from_per_s: 0.0,
            to_per_s: 2000.0,
            duration_s: 10.0,
        }))
    };
    let steps = || {
        changing(Profile::Steps(vec![
            Step {
                rate_per_s: 500.0,
                duration_s: 4.0,
            },
            Step {
                rate_per_s: 0.0,
                duration_s: 1.5,
            },
            Step {
                rate_per_s: 1500.0,
                duration_s: 4.5,
            },
        ]))
    };
    let replay = || {
        let mut plan = changing(Profile::Replay(Replay {
            file: "x".to_owned(),
            speed: 2.0,
            peak_per_s: 5000,
            window_s: 10.0,
            timetable_bytes: 0,
            timetable_checksum: String::new(),
            timetable: floodmark_record::Timetable::default(),
        }));
        plan.arrivals = Some(Arrivals::Replay);
        plan
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
            "it kept up; see how much more it takes: --ramp 0-3000",
        ),
        (
            "ramp, beyond",
            with(ramp(), beyond),
            "it fell behind at 1,200/s; see how it answers below that for longer: --rate 770",
        ),
        (
            "ramp, undecided",
            with(ramp(), undecided),
            "cannot be told; let the rate grow for longer: -d 20s",
        ),
        (
            "falling ramp, never met",
            with(
                changing(Profile::Ramp(Ramp {
                    from_per_s: 2000.0,
                    to_per_s: 0.0,
                    duration_s: 10.0,
                })),
                less,
            ),
            "gave less than it was asked for; see how it answers less: --ramp 1000-0",
        ),
        (
            "ramp, invalid",
            with(ramp(), invalid),
            "or use --ramp 0-1000",
        ),
        (
            "ramp, short",
            with(ramp(), short),
            "measure for longer: -d 10s",
        ),
        (
            "steps",
            with(steps(), |_| ()),
            "how much more it takes: --steps 750:4s,0:1.5s,2300:4.5s",
        ),
        (
            "steps, beyond",
            with(steps(), unmet),
            "the step of 1,500/s was not met; see how it answers below what it gave: --rate 630",
        ),
        (
            "steps, shed",
            with(steps(), shed),
            "see what it takes with --steps 250:4s,0:1.5s,750:4.5s",
        ),
        (
            "steps, short",
            with(steps(), short),
            "measure for longer: --steps 500:26.667s,0:10s,1500:30s",
        ),
        (
            "replay",
            with(replay(), |_| ()),
            "twice as fast: --replay-speed 4x",
        ),
        (
            "replay, unmet",
            with(replay(), less),
            "see how it answers less: --replay-speed 1x",
        ),
        ("replay, short", with(replay(), short), "--replay-speed 4x"),
        ("replay, shed", with(replay(), shed), "--replay-speed 1x"),
    ];
    for (name, run, step) in table {
        let got = next_step(&run, 2);
        assert!(got.contains(step), "{name}: {got}");
        assert!(!got.contains('\n'), "{name}: {got}");
    }
}

/// An open plan whose rate changes around 1,000/s.
fn changing(profile: Profile) -> floodmark_record::Plan {
    floodmark_record::Plan {
        profile: Some(profile),
        ..open()
    }
}
