//! States for tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use floodmark_record::capacity::{
    CapacityKind, CapacityPlan, CapacityResult, CapacityTrial, TrialOutcome, TrialPurpose,
    TrialStart,
};
use floodmark_record::events::{EndReason, GroupRow, PartRow, Phase, RunId, SecondRow, WorkerEnd};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::{Length, Model, Plan, RateStep, Replay, Schedule, Spacing};
use floodmark_record::times::TimeKind;
use floodmark_record::units::{Bytes, Rate};
use floodmark_record::watch::{HostUsed, ServerUsed};
use floodmark_record::{Event, Timetable};
use floodmark_stats::Histogram;

use crate::LiveState;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

pub(crate) fn closed_plan() -> Plan {
    Plan::of("127.0.0.1:8080".parse::<SocketAddr>().unwrap().into())
}

fn open_plan(schedule: Schedule) -> Plan {
    let mut plan = closed_plan();
    let hold = false;
    plan.model = Model::Open { schedule, hold };
    plan
}

/// Returns a plan with a constant rate for 10 s.
pub(crate) fn constant_plan(rate_per_s: f64) -> Plan {
    open_plan(Schedule::Constant {
        rate: Rate::new(rate_per_s).unwrap(),
        spacing: Spacing::Constant,
        length: Length::seconds(10.0),
    })
}

/// Returns a plan with three steps that take 10 s in total.
pub(crate) fn steps_plan() -> Plan {
    let steps = [1000.0, 2000.0, 5000.0].map(|rate_per_s| RateStep {
        rate_per_s,
        duration_s: 10.0 / 3.0,
    });
    open_plan(Schedule::Steps {
        steps: steps.to_vec(),
        spacing: Spacing::Constant,
    })
}

/// Returns a plan that replays arrivals for 8 s.
pub(crate) fn replay_plan() -> Plan {
    let replay = Replay {
        file: "access.log".to_owned(),
        speed: 2.0,
        peak_per_s: 1800,
        window_s: 8.0,
        timetable_bytes: Bytes(0),
        timetable_checksum: String::new(),
        timetable: Timetable::default(),
    };
    let requests = 12_000;
    open_plan(Schedule::Replay { replay, requests })
}

/// Returns one second with `ok` responses that took up to 1 ms, and `failed` requests that ended
/// with a reset.
pub(crate) fn second_row(index: u64, ok: u64, failed: u64) -> SecondRow {
    let Event::Second(row) = second(index, ok, failed) else {
        unreachable!("a second is a row")
    };
    let mut response = Histogram::new();
    (1..=ok).for_each(|i| response.record(i * 1_000_000 / ok));
    SecondRow {
        counts: Counts {
            intended: ok + failed,
            sent: ok + failed,
            ok,
            reset: failed,
            ..Counts::default()
        },
        user_s: 0.3,
        system_s: 0.51,
        histograms: BTreeMap::from([(TimeKind::Response, response.encode())]),
        ..row
    }
}

pub(crate) fn began(trial: Option<&str>) -> Event {
    Event::RunBegan {
        run: RunId {
            system: "hello".to_owned(),
            workload: "hello".to_owned(),
            trial: trial.map(str::to_owned),
            setting: BTreeMap::new(),
            process: 1,
            attempt: 1,
        },
        plan: closed_plan(),
        unix_ms: 0,
    }
}

pub(crate) fn counts(ok: u64, failed: u64) -> Counts {
    Counts {
        intended: ok + failed,
        sent: ok + failed,
        ok,
        rejected: failed,
        statuses: BTreeMap::from([(200, ok), (503, failed)]),
        ..Counts::default()
    }
}

/// Returns the event for a part of a second. The part is 100 ms long.
pub(crate) fn part(from_ns: u64, ok: u64) -> Event {
    Event::Part(PartRow {
        phase: Phase::Measure,
        from_ns,
        to_ns: from_ns + SECOND_NS / 10,
        sums: GroupRow {
            counts: counts(ok, 0),
            ..GroupRow::default()
        },
        groups: Vec::new(),
    })
}

/// Returns one second with `ok` responses, which took 100 µs to 1 ms.
pub(crate) fn second(index: u64, ok: u64, failed: u64) -> Event {
    let mut response = Histogram::new();
    (1..=1000).for_each(|i| response.record(100_000 + i * i * 9 / 10));
    Event::Second(SecondRow {
        phase: Phase::Measure,
        index,
        from_ns: index * SECOND_NS,
        to_ns: (index + 1) * SECOND_NS,
        counts: counts(ok, failed),
        good: ok,
        ok_in_window: ok,
        good_in_window: ok,
        bytes_sent: 80 * ok,
        bytes_received: 132 * ok,
        connects: 0,
        open_connections: 50,
        user_s: 0.4,
        system_s: 0.57,
        histograms: BTreeMap::from([(TimeKind::Response, response.encode())]),
        groups: Vec::new(),
    })
}

/// Returns the end of a run of 10 s.
pub(crate) fn end(failed: u64) -> Event {
    Event::End(WorkerEnd {
        reason: EndReason::Completed,
        last_response_ns: None,
        window_ns: 10 * SECOND_NS,
        ended_ns: 10 * SECOND_NS,
        counts: counts(550_000, failed),
        warmup_counts: None,
        warmup_ns: 0,
        bytes_sent: 0,
        bytes_received: 0,
        connects: 50,
        peak_connections: 50,
        silent_connections: 0,
        held: None,
        longest_stall_ns: 0,
        errors: BTreeMap::new(),
        not_ok_responses: Vec::new(),
        request_log: None,
        unawaited: BTreeMap::new(),
        user_s: 4.0,
        system_s: 5.7,
        peak_rss_bytes: None,
        threads: Vec::new(),
        addresses: Vec::new(),
        answers: None,
        out_of_order: 0,
        offenders: Vec::new(),
        not_numbers: 0,
        scored: None,
        tls: None,
        http2: None,
        groups: Vec::new(),
        next_number: 550_001,
    })
}

/// Adds the events of `count` seconds with a varying throughput.
pub(crate) fn feed(state: &mut LiveState, count: u64, failed: u64) {
    for index in 0..count {
        state.on(&Event::ServerUsed(ServerUsed {
            over_s: 1.0,
            user_s: 0.5,
            system_s: 0.7,
        }));
        state.on(&Event::HostUsed(HostUsed {
            over_s: 1.0,
            busy_s: 2.4,
            total_s: 4.0,
        }));
        state.on(&second(index, 50_000 + 4_000 * (index % 4), failed));
    }
}

/// Returns the state of a load after four seconds.
pub(crate) fn load(failed: u64) -> LiveState {
    let mut state = LiveState::default();
    state.on(&began(None));
    feed(&mut state, 4, failed);
    state
}

/// Returns the state of a search after trials with these rates and outcomes.
pub(crate) fn search(trials: &[(f64, TrialOutcome)]) -> LiveState {
    let mut state = load(0);
    for n in 1..=trials.len() {
        state.record_search(&result(&trials[..n]));
    }
    state
}

pub(crate) fn result(trials: &[(f64, TrialOutcome)]) -> CapacityResult {
    let trials = trials.iter().enumerate();
    let trials = trials.map(|(index, (rate_per_s, outcome))| trial(index, *rate_per_s, *outcome));
    CapacityResult {
        trial: None,
        process: 1,
        settings: CapacityPlan {
            objectives: vec!["p99 < 5ms".to_owned()],
            start_per_s: 10_000.0,
            lowest_per_s: 10.0,
            highest_per_s: 1e7,
            precision: 0.02,
            budget_s: 60.0,
            closed: None,
        },
        finding: CapacityKind::Unfinished,
        rate_per_s: None,
        low: None,
        high: None,
        level: 0.95,
        bound: None,
        answered_per_s: None,
        levels: Vec::new(),
        proved_per_s: None,
        falling: None,
        last_per_s: None,
        scatter: None,
        is_confirmed: false,
        end: None,
        trials: trials.collect(),
    }
}

fn trial(index: usize, rate_per_s: f64, outcome: TrialOutcome) -> CapacityTrial {
    CapacityTrial {
        rate_per_s,
        purpose: TrialPurpose::Bracket,
        start: TrialStart::Idle,
        at_s: 2.0 * index as f64,
        transient_s: 0.5,
        judged_s: 1.5,
        required_s: None,
        flow: None,
        tail: Vec::new(),
        outcome,
        fault: None,
        figures: Vec::new(),
        throughput_per_s: None,
        error_share: None,
        p50_us: None,
        p99_us: None,
        design_effect: None,
        server_cpus: None,
        slow_cpu_share: None,
    }
}
