//! Tests of the reasons for blocked times, in a simulated world and by hand.

use std::time::Duration;

use floodmark_record::TimeKind;
use floodmark_record::events::{EndReason, Phase};
use floodmark_record::plan::{Arrivals, CloseFirst, ConnectionUse, Plan, RequestPlan, Retry};
use proptest::prelude::*;

use super::lab::Lab;
use super::world::World;
use super::{MS, by_hand, connect, plans, response, send};
use crate::backend::Completion;
use crate::testing::{held_plan, open_plan};

const REASONS: [TimeKind; 4] = [
    TimeKind::BlockedConnecting,
    TimeKind::BlockedOwnLimit,
    TimeKind::BlockedServerLimit,
    TimeKind::BlockedRetried,
];

/// Checks the sums of times, if all requests are ok: response time = blocked time + lateness +
/// service time, and each blocked request has exactly one reason.
pub(super) fn times_add_up(lab: &Lab) -> Result<(), TestCaseError> {
    let parts = [TimeKind::Blocked, TimeKind::Lateness, TimeKind::Service];
    let parts: f64 = parts.map(|kind| lab.total(kind)).iter().sum();
    let response = lab.total(TimeKind::Response);
    let is_near = |a: f64, b: f64| (a - b).abs() <= b * 2e-3 + 1000.0;
    prop_assert!(is_near(parts, response), "{} {}", parts, response);
    let blocked = lab.times(TimeKind::Blocked);
    let by_reason = REASONS.map(|kind| lab.times(kind).count());
    let number: u64 = by_reason.iter().sum();
    prop_assert_eq!(number, blocked.count() - blocked.count_up_to(0));
    let total: f64 = REASONS.map(|kind| lab.total(kind)).iter().sum();
    prop_assert!(is_near(total, lab.total(TimeKind::Blocked)));
    Ok(())
}

/// Runs a plan without network faults. Returns its times, and the number of failed requests.
fn run(plan: &Plan, world: &mut World) -> (Lab, u64) {
    let mut lab = Lab::new(plan);
    lab.prepare(world);
    lab.settle(world);
    let (reason, totals) = lab.phase(world, plan, Phase::Measure, None);
    assert_eq!(reason, EndReason::Completed);
    let failed = totals.counts.ended() - totals.counts.ok;
    (lab, failed)
}

/// Returns the plan with settings under which no request fails.
fn patient(plan: Plan) -> Plan {
    Plan {
        warmup: Duration::ZERO,
        drain: true,
        timeout: Duration::from_secs(60),
        retry: Retry::Idempotent,
        request: RequestPlan {
            method: "GET".to_owned(),
            ..plan.request
        },
        ..plan
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn times_of_repeated_requests_add_up(plan in plans(), seed in any::<u64>()) {
        let plan = Plan { connection_use: ConnectionUse::Kept, ..patient(plan) };
        let mut world = World::new(seed, false);
        world.http2.refuses = true;
        let (lab, failed) = run(&plan, &mut world);
        let count = |kind| lab.times(kind).count();
        if failed == 0 {
            times_add_up(&lab)?;
        }
        let again: u64 = lab.rows.iter().map(|row| row.counts.reconnects).sum();
        prop_assert!(count(TimeKind::BlockedRetried) <= again);
        prop_assert_eq!(count(TimeKind::BlockedRetried) > 0, again > 0);
    }

    #[test]
    fn requests_below_the_limit_wait_only_for_handshakes(plan in plans(), seed in any::<u64>()) {
        // More connections than requests.
        let plan = Plan { connections: 200, ..patient(plan) };
        let mut world = World::new(seed, false);
        world.http2.max_streams = Some(100);
        let (lab, _) = run(&plan, &mut world);
        times_add_up(&lab)?;
        for other in &REASONS[1..] {
            prop_assert_eq!(lab.times(*other).count(), 0, "{}", other);
        }
    }

    #[test]
    fn requests_on_established_connections_wait_only_for_limits(
        plan in plans(),
        seed in any::<u64>(),
        max_streams in 1u32..12,
    ) {
        let plan = Plan { connection_use: ConnectionUse::Kept, ..patient(plan) };
        let plan = if plan.is_open() { held_plan(plan) } else { plan };
        let mut world = World::new(seed, false);
        world.http2.max_streams = Some(max_streams);
        let (lab, _) = run(&plan, &mut world);
        times_add_up(&lab)?;
        let expected = if max_streams < plan.http.streams() {
            TimeKind::BlockedServerLimit
        } else {
            TimeKind::BlockedOwnLimit
        };
        for kind in REASONS.into_iter().filter(|kind| *kind != expected) {
            prop_assert_eq!(lab.times(kind).count(), 0, "{}", kind);
        }
    }
}

/// The first connection is kept, and ends when its second request is in flight.
#[test]
fn the_time_between_two_sends_is_blocked() {
    let (mut lab, start) = by_hand(&open_plan(Arrivals::Constant, 1000.0, None, Some(2)));
    let core = &mut lab.core;
    connect(core, start);
    send(core, start);
    response(core, start);
    core.turn(start + 3 * MS);
    send(core, start + 3 * MS);
    core.on(Completion::Ended { slot: 0 }, start + 50 * MS);
    connect(core, start + 60 * MS);
    response(core, start + 65 * MS);
    assert!(core.finished());
    lab.gather();
    lab.end(start + 70 * MS, 70 * MS);
    let max = |kind| lab.times(kind).max().unwrap_or(0);
    let expected = [
        (TimeKind::BlockedRetried, 57),
        (TimeKind::Blocked, 57),
        (TimeKind::Lateness, 2),
        (TimeKind::Service, 5),
        (TimeKind::Response, 64),
    ];
    for (kind, ms) in expected {
        assert!(
            max(kind).abs_diff(ms * MS) < MS / 10,
            "{kind}: {}",
            max(kind)
        );
    }
    assert_eq!(lab.times(TimeKind::Blocked).count(), 2);
    times_add_up(&lab).unwrap();
}

/// The second request waits for the only connection, and then for a new connection's handshake. The
/// longer wait is the reason.
#[test]
fn the_longest_wait_is_the_reason() {
    for (handshake, response_time, expected) in [
        (5, 100, TimeKind::BlockedOwnLimit),
        (100, 5, TimeKind::BlockedConnecting),
    ] {
        let plan = Plan {
            connections: 1,
            connection_use: ConnectionUse::Fresh,
            close_first: CloseFirst::Client,
            ..open_plan(Arrivals::Constant, 1000.0, None, Some(2))
        };
        let (mut lab, start) = by_hand(&plan);
        lab.core.turn(start + MS);
        let mut at = start + MS;
        for handshake in [0, handshake] {
            at += handshake * MS;
            connect(&mut lab.core, at);
            at += response_time * MS;
            response(&mut lab.core, at);
            lab.gather();
        }
        lab.end(at, at - start);
        let longest = lab.times(expected).max().unwrap_or(0);
        assert!(longest.abs_diff(105 * MS) < MS, "{expected}: {longest}");
        times_add_up(&lab).unwrap();
    }
}
