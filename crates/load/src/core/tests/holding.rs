//! Tests for connections that are opened before requests need them.

use super::lab::Lab;
use super::{MS, RESPONSE};
use floodmark_record::events::{EndReason, Phase};
use floodmark_record::plan::{Arrivals as Spacing, Plan};

use crate::arrivals::{ArrivalQueue, RequestSource};
use crate::backend::{Completion, Route};
use crate::clock::{Ns, seconds};
use crate::core::opening::GONE_NS;
use crate::core::{Action, Core};
use crate::mix::Picks;
use crate::schedule::{ArrivalSchedule, alone};
use crate::testing::open_plan;

/// Creates a core with three held connections, and starts a phase.
fn held(plan: &Plan) -> (Lab, Ns) {
    let mut lab = Lab::new(plan);
    let now = seconds(1.0);
    lab.core.prepare(now);
    lab.core.actions.clear();
    for slot in 0..3 {
        stands(&mut lab.core, slot, now);
    }
    assert!(lab.core.prepared());
    lab.core.recorder.begin(Phase::Measure, now, None);
    let schedule = ArrivalSchedule::new(plan, alone()).unwrap();
    let picks = Picks::new(plan, alone(), 1);
    let arrivals = RequestSource::Open(ArrivalQueue::new(schedule, now, picks));
    lab.core.begin(arrivals, now);
    (lab, now)
}

fn stands(core: &mut Core, slot: u32, at: Ns) {
    let sent = false;
    core.on(Completion::Connected { slot, at, sent }, at);
}

fn held_plan() -> Plan {
    Plan {
        connections: 3,
        ..crate::testing::held_plan(open_plan(Spacing::Constant, 1000.0, None, Some(7)))
    }
}

#[test]
fn uses_held_connections_in_turn() {
    let (mut lab, start) = held(&held_plan());
    let core = &mut lab.core;
    for request in 0..7 {
        let at = start + request as Ns * MS;
        core.turn(at);
        let slot = request % 3;
        assert_eq!(core.actions, [Action::Send { slot }]);
        core.actions.clear();
        core.sent(slot, at);
        let data = RESPONSE;
        core.on(
            Completion::Received {
                slot,
                data,
                at: None,
                is_sending: false,
            },
            at + 1,
        );
    }
    assert!(core.finished());
    let held = core.held().unwrap();
    assert_eq!((held.standing, held.failed, held.lost), (3, 0, 0));
}

#[test]
fn reopens_a_held_connection_that_the_server_closes() {
    let (mut lab, start) = held(&held_plan());
    let core = &mut lab.core;
    core.actions.clear();
    core.on(Completion::Ended { slot: 2 }, start + 1);
    core.actions.clear();
    core.turn(start + 2);
    let open = Action::Open {
        slot: 2,
        route: Route::default(),
        first: false,
    };
    assert_eq!(core.actions, [open]);
    stands(core, 2, start + 3);
    let held = core.held().unwrap();
    assert_eq!((held.standing, held.lost, held.reopened), (3, 1, 1));
    // After the end of the window, no request needs this connection.
    core.wind_up();
    core.on(Completion::Ended { slot: 2 }, start + 4);
    core.actions.clear();
    core.turn(start + 5);
    assert!(core.actions.is_empty(), "{:?}", core.actions);
}

#[test]
fn retries_failed_held_connections_after_a_pause() {
    let mut lab = Lab::new(&held_plan());
    let core = &mut lab.core;
    let start = seconds(1.0);
    core.prepare(start);
    core.actions.clear();
    for slot in 0..3 {
        let error = std::io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        core.on(Completion::ConnectFailed { slot, error }, start);
    }
    assert!(core.prepared());
    let schedule = ArrivalSchedule::new(&held_plan(), alone()).unwrap();
    let picks = Picks::new(&held_plan(), alone(), 1);
    let waiting = ArrivalQueue::new(schedule, start + MS, picks);
    core.begin(RequestSource::Open(waiting), start);
    let opened = core.actions.len();
    assert_eq!((core.held().unwrap().failed, opened), (3, 3));
    assert_eq!(core.held().unwrap().standing, 0);
    let reasons = &core.held().unwrap().reasons;
    assert!(
        reasons.iter().eq([(&"ports_exhausted".to_owned(), &3)]),
        "{reasons:?}"
    );
    // After the clock has started, a failure causes a pause.
    let fail = |core: &mut Core, at| {
        let opened: Vec<Action> = core.actions.drain(..).collect();
        for action in &opened {
            let &Action::Open { slot, .. } = action else {
                panic!("{action:?}");
            };
            let error = std::io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
            core.on(Completion::ConnectFailed { slot, error }, at);
        }
        opened.len()
    };
    assert_eq!(fail(core, start), 3);
    core.turn(start + 1);
    assert!(core.actions.is_empty(), "{:?}", core.actions);
    assert_eq!(core.next_ahead(), start + 10 * MS);
    // Requests do not wait for these connections or for the pause.
    let errors = |core: &Core| core.recorder.errors["ports_exhausted"];
    let unawaited = |core: &Core| core.recorder.unawaited["ports_exhausted"];
    assert_eq!((errors(core), unawaited(core)), (6, 6));
    core.turn(start + MS);
    assert_eq!(fail(core, start + MS), 1);
    assert_eq!((errors(core), unawaited(core)), (7, 6));
}

#[test]
fn a_held_connection_proves_that_the_server_is_running() {
    let plan = held_plan();
    let mut lab = Lab::new(&plan);
    let core = &mut lab.core;
    let start = seconds(1.0);
    core.prepare(start);
    stands(core, 0, start);
    let refuse = |core: &mut Core, slot, at| {
        let error = std::io::Error::from_raw_os_error(libc::ECONNREFUSED);
        core.on(Completion::ConnectFailed { slot, error }, at);
    };
    refuse(core, 1, start);
    refuse(core, 2, start + 2 * GONE_NS);
    assert_eq!(core.hopeless(), None);
    // The time until the server is considered unreachable starts when the last connection ends.
    let ended = start + 3 * GONE_NS;
    core.on(Completion::Ended { slot: 0 }, ended);
    for (at, expected) in [
        (ended + GONE_NS - 1, None),
        (ended + GONE_NS, Some(EndReason::ServerGone)),
    ] {
        core.actions.clear();
        core.open_unclaimed(at, 0);
        let [Action::Open { slot, .. }] = core.actions[..] else {
            panic!("{:?}", core.actions);
        };
        refuse(core, slot, at);
        assert_eq!(core.hopeless(), expected);
    }
}

#[test]
fn outlasts_a_server_that_was_reached_before() {
    for (reached, expected) in [(true, None), (false, Some(EndReason::ServerGone))] {
        let mut lab = Lab::new(&held_plan());
        lab.core.outlasts_server = true;
        let core = &mut lab.core;
        let start = seconds(1.0);
        core.prepare(start);
        if reached {
            stands(core, 0, start);
            core.on(Completion::Ended { slot: 0 }, start);
        }
        for (slot, at) in [(1, start), (2, start + 10 * GONE_NS)] {
            let error = std::io::Error::from_raw_os_error(libc::ECONNREFUSED);
            core.on(Completion::ConnectFailed { slot, error }, at);
        }
        assert_eq!(core.hopeless(), expected, "reached: {reached}");
    }
}
