//! Tests of [`super`].

use floodmark_record::events::{EndReason, Phase};
use floodmark_record::plan::{Arrivals as Spacing, Plan};

use super::*;
use crate::arrivals::{Arrivals, Waiting};
use crate::backend::{Completion, Route};
use crate::clock::seconds;
use crate::core::Action;
use crate::core::opening::GONE_NS;
use crate::core::tests::{ANSWER, Lab, MS};
use crate::mix::Picks;
use crate::schedule::Schedule;
use crate::testing::open_plan;

/// Three held connections that stand, and the actions of the turns that follow.
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
    let schedule = Schedule::new(plan, plan.duration_s, 0, 1).unwrap();
    let picks = Picks::new(plan, (0, 1), 1);
    let arrivals = Arrivals::Open(Waiting::new(schedule, now, picks));
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
        hold: true,
        ..open_plan(Spacing::Constant, 1000.0, None, Some(7))
    }
}

#[test]
fn held_connections_have_their_turns() {
    let (mut lab, start) = held(&held_plan());
    let core = &mut lab.core;
    for request in 0..7 {
        let at = start + request as Ns * MS;
        core.turn(at);
        let slot = request % 3;
        assert_eq!(core.actions, [Action::Send { slot }]);
        core.actions.clear();
        core.sent(slot, at);
        let data = ANSWER;
        core.on(
            Completion::Received {
                slot,
                data,
                at: None,
            },
            at + 1,
        );
    }
    assert!(core.finished());
    let held = core.held().unwrap();
    assert_eq!((held.standing, held.failed, held.lost), (3, 0, 0));
}

#[test]
fn a_held_connection_that_the_server_closes_is_opened_again() {
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
    // After the end of the window nobody needs it.
    core.wind_up();
    core.on(Completion::Ended { slot: 2 }, start + 4);
    core.actions.clear();
    core.turn(start + 5);
    assert!(core.actions.is_empty(), "{:?}", core.actions);
}

#[test]
fn held_connections_that_cannot_be_opened_are_counted_and_tried_again_after_a_rest() {
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
    let schedule = Schedule::new(&held_plan(), None, 0, 1).unwrap();
    let picks = Picks::new(&held_plan(), (0, 1), 1);
    let waiting = Waiting::new(schedule, start + MS, picks);
    core.begin(Arrivals::Open(waiting), start);
    let opened = core.actions.len();
    assert_eq!((core.held().unwrap().failed, opened), (3, 3));
    assert_eq!(core.held().unwrap().standing, 0);
    let reasons = &core.held().unwrap().reasons;
    assert!(reasons.iter().eq([(&"ports_exhausted", &3)]), "{reasons:?}");
    // In the run a failure is followed by a rest.
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
    // A request waits for none of these, and not for the rest.
    let errors = |core: &Core| core.recorder.totals().0["ports_exhausted"];
    let unawaited = |core: &Core| core.recorder.unawaited_errors()["ports_exhausted"];
    assert_eq!((errors(core), unawaited(core)), (6, 6));
    core.turn(start + MS);
    assert_eq!(fail(core, start + MS), 1);
    assert_eq!((errors(core), unawaited(core)), (7, 6));
}

#[test]
fn a_server_that_refuses_is_there_while_a_held_connection_stands() {
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
    // Without it, patience begins.
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
