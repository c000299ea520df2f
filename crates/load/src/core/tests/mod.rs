//! Tests of the core in a simulated world: whatever happens, every request has an outcome and
//! nothing leaks.

mod blocked;
mod checked;
mod holding;
mod http2;
mod lab;
mod stream_ids;
mod streams;
mod world;

use std::time::Duration;

use floodmark_record::events::{EndReason, Phase};
use floodmark_record::plan::{
    Arrivals as Spacing, CloseFirst, ConnectionUse, Http, Http2, Model, Plan, RequestPlan, Retry,
    Target,
};
use floodmark_record::{Counts, SecondRow, TimeKind};
use floodmark_wire::h2::frame::MAX_31_BITS;
use proptest::prelude::*;

use self::lab::Lab;
use self::world::World;
use super::Core;
use crate::arrivals::{ArrivalQueue, RequestSource};
use crate::backend::Completion;
use crate::clock::{Ns, seconds};
use crate::exchange::ExchangeState;
use crate::mix::Picks;
use crate::schedule::{ArrivalSchedule, alone};
use crate::testing::{closed_plan, held_plan, length, open_plan, with_mix};

/// Checks that each group's counts add up, and that the groups add up to the total.
fn groups_add_up(rows: &[SecondRow], plan: &Plan, whole: &Counts) {
    let Some(mix) = &plan.mix else {
        return assert!(rows.iter().all(|row| row.groups.is_empty()));
    };
    let mut all = Counts::default();
    for group in 0..mix.requests.len() {
        let mut counts = Counts::default();
        rows.iter()
            .filter_map(|row| row.groups.get(group))
            .for_each(|row| counts.merge(&row.counts));
        assert_eq!(counts.balance(), Ok(()));
        all.merge(&counts);
    }
    assert_eq!(&all, whole);
}

fn sum(rows: &[SecondRow]) -> Counts {
    let mut sum = Counts::default();
    rows.iter().for_each(|row| sum.merge(&row.counts));
    sum
}

prop_compose! {
    pub(super) fn plans()(
        open in any::<bool>(),
        connections in 1u32..9,
        requests in 1u64..150,
        duration_s in prop::option::of(0.05f64..1.5),
        rate in 20.0f64..3000.0,
        arrivals in prop_oneof![Just(Spacing::Constant), Just(Spacing::Poisson), Just(Spacing::Burst)],
        connection_use in prop_oneof![Just(ConnectionUse::Kept), Just(ConnectionUse::Fresh), (1u64..5).prop_map(ConnectionUse::PerConnection)],
        close_first in prop_oneof![Just(CloseFirst::Server), Just(CloseFirst::Client), Just(CloseFirst::Reset)],
        timeout_s in 0.02f64..0.3,
        drain in any::<bool>(),
        warmup_s in prop_oneof![Just(0.0), 0.01f64..0.5],
        is_limited in any::<bool>(),
        further in 0u8..3,
        hold in any::<bool>(),
        method in prop_oneof![Just("GET"), Just("POST")],
        retry in prop_oneof![Just(Retry::Never), Just(Retry::Idempotent)],
        weights in proptest::collection::vec(1u32..4, 0..3),
        streams in prop::option::of(1u32..9),
    ) -> Plan {
        let requests = (is_limited || duration_s.is_none() || arrivals == Spacing::Burst).then_some(requests);
        let plan = if open {
            open_plan(arrivals, rate, duration_s, requests)
        } else {
            Plan { model: Model::Closed { length: length(duration_s, requests) }, ..closed_plan(1, 1) }
        };
        let plan = if hold && connection_use == ConnectionUse::Kept { held_plan(plan) } else { plan };
        let address = |i| ([127, 0, 0, 2 + i], 1).into();
        let plan = Plan {
            target: Target {
                further_addresses: (0..further).map(address).collect(),
                ..plan.target
            },
            http: streams.map_or(Http::V1, |streams| {
                Http::V2(Http2 { streams, ..Http2::default() })
            }),
            connections,
            connection_use,
            close_first,
            retry,
            request: RequestPlan { method: method.to_owned(), ..plan.request },
            timeout: Duration::from_secs_f64(timeout_s),
            drain,
            warmup: Duration::from_secs_f64(warmup_s),
            ..plan
        };
        if weights.is_empty() { plan } else { with_mix(plan, &weights) }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn accounts_for_every_request(
        plan in plans(),
        seed in any::<u64>(),
        hostile in any::<bool>(),
        dies_after in prop::option::of(0u64..1_000_000_000),
        interrupt in prop::option::of(0u64..500_000_000),
        absent in 0u32..8,
        holds_back in any::<bool>(),
        identifiers in prop::option::of(1u32..20),
    ) {
        let mut world = World::new(seed, hostile);
        world.absent = absent;
        world.holds_back = holds_back;
        world.dead_from = dies_after.map_or(Ns::MAX, |after| world.now + after);
        let mut lab = Lab::new(&plan);
        if let Some(identifiers) = identifiers {
            lab.core.set_first_stream(MAX_31_BITS - 2 * (identifiers - 1));
        }
        lab.prepare(&mut world);
        let mut interrupted = false;
        if !plan.warmup.is_zero() {
            let (reason, totals) = lab.phase(&mut world, &plan, Phase::Warmup, None);
            prop_assert_eq!(totals.counts.balance(), Ok(()));
            interrupted = reason != EndReason::Completed;
        }
        let before = world.sends;
        let (reason, totals) = lab.phase(&mut world, &plan, Phase::Measure, interrupt);
        let counts = &totals.counts;
        prop_assert_eq!(counts.balance(), Ok(()));
        prop_assert_eq!(&sum(&lab.rows), counts);
        groups_add_up(&lab.rows, &plan, counts);
        let of_groups: u64 = lab.core.recorder.group_times.count(TimeKind::Lateness);
        prop_assert_eq!(of_groups, plan.mix.as_ref().map_or(0, |_| counts.sent));
        // An HTTP/2 server can reject a request without a response.
        let without_status = counts.ok + counts.rejected + counts.wrong - counts.statuses.values().sum::<u64>();
        let most = if lab.core.is_http2() { counts.rejected } else { 0 };
        prop_assert!(without_status <= most);
        let responded = lab.times(TimeKind::Response).count();
        prop_assert_eq!(responded, counts.ok);
        prop_assert_eq!(lab.times(TimeKind::Censored).count(), counts.timed_out);
        prop_assert_eq!(lab.times(TimeKind::InFlight).count(), counts.in_flight_at_end);
        prop_assert_eq!(lab.times(TimeKind::Blocked).count(), counts.sent);
        prop_assert_eq!(lab.times(TimeKind::Lateness).count(), counts.sent);
        prop_assert_eq!(lab.times(TimeKind::Error).count(),
            counts.rejected + counts.wrong + counts.malformed + counts.reset + counts.connect_failed);
        let (sends, sent) = (world.sends - before, counts.sent + counts.reconnects);
        // After GOAWAY, the output of an HTTP/2 connection may contain a request that does not count
        // as sent, because the server ignores it.
        prop_assert!(sends == sent || sends > sent && hostile && lab.core.is_http2(), "{} {}", sends, sent);
        prop_assert!(plan.retry == Retry::Idempotent || counts.reconnects == 0);
        if let Some(n) = plan.request_limit() {
            prop_assert!(counts.intended <= n);
            let is_exact = plan.duration_s().is_none() && (plan.drain || !plan.is_open());
            if !interrupted && reason == EndReason::Completed && is_exact {
                prop_assert_eq!(counts.intended, n);
                prop_assert_eq!(counts.in_flight_at_end, 0);
            }
        }
        if hostile && plan.drain && reason == EndReason::Completed {
            prop_assert_eq!(counts.in_flight_at_end, 0);
        }
        if let Some(held) = lab.core.held() {
            prop_assert!(plan.hold() && held.standing + held.failed <= plan.connections.into(), "{:?}", held);
            prop_assert_eq!(held.failed, held.reasons.values().sum::<u64>());
            // A connection that was abandoned together with its request does not count as lost.
            if counts.in_flight_at_end == 0 && plan.warmup.is_zero() {
                let standing = lab.core.recorder.open;
                prop_assert_eq!(held.standing + held.reopened, held.lost + standing);
            }
        }
        if !hostile && dies_after.is_none() {
            prop_assert_eq!(counts.malformed + counts.reset + counts.rejected + counts.wrong + counts.reconnects, 0);
            prop_assert!(matches!(reason, EndReason::Completed | EndReason::Interrupted | EndReason::ServerGone), "{:?}", reason);
        }
    }

    #[test]
    fn times_add_up_and_an_absent_address_costs_no_request(
        plan in plans(),
        seed in any::<u64>(),
        absent in 0u32..8,
        present in 0u32..3,
        holds_back in any::<bool>(),
    ) {
        let plan = Plan { warmup: Duration::ZERO, drain: true, timeout: Duration::from_secs(60), ..plan };
        let mut world = World::new(seed, false);
        world.holds_back = holds_back;
        let present = present % plan.target.addresses().count() as u32;
        world.absent = absent & !(1 << present);
        let mut lab = Lab::new(&plan);
        let (reason, totals) = lab.phase(&mut world, &plan, Phase::Measure, None);
        prop_assert_eq!(reason, EndReason::Completed);
        prop_assert_eq!(totals.counts.ok + totals.counts.unsent, totals.counts.intended);
        blocked::times_add_up(&lab)?;
    }
}

/// Creates a core that a test drives by hand, with one established connection.
fn by_hand(plan: &Plan) -> (Lab, Ns) {
    let mut lab = Lab::new(plan);
    let now = seconds(1.0);
    lab.core.recorder.begin(Phase::Measure, now, None);
    let schedule = ArrivalSchedule::new(plan, alone()).unwrap();
    let picks = Picks::new(plan, alone(), 1);
    lab.core.begin(
        RequestSource::Open(ArrivalQueue::new(schedule, now, picks)),
        now,
    );
    (lab, now)
}

pub(super) const MS: Ns = 1_000_000;
pub(super) const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

pub(super) fn connect(core: &mut Core, at: Ns) {
    core.actions.clear();
    let sent = core.exchanges[0].state == ExchangeState::Waiting;
    core.on(Completion::Connected { slot: 0, at, sent }, at);
}

fn send(core: &mut Core, at: Ns) {
    assert_eq!(core.actions.len(), 1, "{:?}", core.actions);
    core.actions.clear();
    core.sent(0, at);
}

pub(super) fn response(core: &mut Core, at: Ns) {
    let data = RESPONSE;
    core.on(
        Completion::Received {
            slot: 0,
            data,
            at: None,
            is_sending: false,
        },
        at,
    );
}

#[test]
fn a_long_idle_connection_does_not_time_out_its_next_request() {
    let plan = Plan {
        timeout: Duration::from_millis(500),
        connections: 1,
        ..open_plan(Spacing::Constant, 1.0, None, Some(2))
    };
    let (mut lab, start) = by_hand(&plan);
    let core = &mut lab.core;
    connect(core, start + MS);
    send(core, start + MS);
    response(core, start + 2 * MS);
    core.turn(start + 1000 * MS);
    send(core, start + 1000 * MS);
    core.turn(start + 1001 * MS);
    assert_eq!((core.in_flight, core.actions.len()), (1, 0));
    response(core, start + 1002 * MS);
    assert!(core.finished());
}

#[test]
fn waiting_for_the_only_connection_is_blocked_time() {
    for connection_use in [ConnectionUse::Kept, ConnectionUse::Fresh] {
        let plan = Plan {
            connections: 1,
            connection_use,
            close_first: CloseFirst::Client,
            ..open_plan(Spacing::Constant, 1000.0, None, Some(3))
        };
        let (mut lab, start) = by_hand(&plan);
        for request in 0..3 {
            let core = &mut lab.core;
            let at = start + 100 * MS * request;
            if connection_use == ConnectionUse::Fresh || request == 0 {
                connect(core, at);
            }
            if connection_use == ConnectionUse::Kept {
                send(core, at);
            }
            assert_eq!(core.exchanges[0].moments.intended, start + request * MS);
            if request == 0 {
                core.turn(start + MS);
                core.turn(start + 2 * MS);
            }
            response(core, at + 100 * MS);
            lab.gather();
        }
        let totals = lab.end(start + 300 * MS, 300 * MS);
        assert_eq!(totals.counts.ok, 3);
        assert_eq!(lab.times(TimeKind::Lateness).max(), Some(0));
        let blocked = lab.times(TimeKind::Blocked).max().unwrap();
        assert!(blocked.abs_diff(198 * MS) < MS, "{blocked}");
    }
}

#[test]
fn reuses_the_most_recent_connection_first() {
    let plan = Plan {
        connections: 3,
        ..open_plan(Spacing::Constant, 1000.0, None, Some(4))
    };
    let (mut lab, start) = by_hand(&plan);
    let core = &mut lab.core;
    core.turn(start + 2 * MS);
    core.actions.clear();
    for slot in [0, 1, 2] {
        let at = start + 2 * MS;
        core.on(
            Completion::Connected {
                slot,
                at,
                sent: false,
            },
            at,
        );
        core.sent(slot, at);
    }
    for slot in [2, 0, 1] {
        let data = RESPONSE;
        core.on(
            Completion::Received {
                slot,
                data,
                at: None,
                is_sending: false,
            },
            start + 2 * MS + 1,
        );
    }
    core.actions.clear();
    core.turn(start + 3 * MS);
    assert_eq!(core.actions, [super::Action::Send { slot: 1 }]);
}

/// Returns the counts of two requests on one connection, which ends before the second response.
/// `sent` is whether the second request is passed to the kernel before the connection ends.
fn counts_after_loss(method: &str, retry: Retry, sent: bool) -> Counts {
    let mut plan = open_plan(Spacing::Constant, 1000.0, None, Some(2));
    plan.request.method = method.to_owned();
    plan.retry = retry;
    let (mut lab, start) = by_hand(&plan);
    let core = &mut lab.core;
    connect(core, start);
    send(core, start);
    response(core, start);
    core.turn(start + MS);
    if sent {
        send(core, start + MS);
    }
    core.on(Completion::Ended { slot: 0 }, start + MS);
    if core.exchanges[0].retried.is_some() {
        connect(core, start + MS);
        response(core, start + MS);
    }
    assert!(core.finished());
    lab.gather();
    lab.end(start + 2 * MS, 2 * MS).counts
}

#[test]
fn retries_only_requests_that_cannot_take_effect_twice() {
    for (method, retry, sent, is_retried) in [
        ("GET", Retry::Idempotent, true, true),
        ("DELETE", Retry::Idempotent, true, true),
        ("POST", Retry::Idempotent, true, false),
        ("PATCH", Retry::Idempotent, true, false),
        ("POST", Retry::Idempotent, false, true),
        ("GET", Retry::Never, true, false),
        ("POST", Retry::Never, false, false),
    ] {
        let counts = counts_after_loss(method, retry, sent);
        let (retried, reset) = (u64::from(is_retried), u64::from(!is_retried));
        assert_eq!(counts.balance(), Ok(()));
        assert_eq!(
            (counts.ok, counts.reconnects, counts.reset),
            (1 + retried, retried, reset),
            "{method}, {retry:?}, sent: {sent}"
        );
    }
}
