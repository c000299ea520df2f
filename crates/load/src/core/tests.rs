//! Tests of the core in a simulated world: whatever happens, every request has an outcome and
//! nothing leaks.

use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::time::Duration;

use floodmark_record::events::{EndReason, Phase};
use floodmark_record::groups::GroupRow;
use floodmark_record::plan::{Arrivals as Spacing, CloseFirst, ConnectionUse, Model, Plan, Target};
use floodmark_record::{Counts, Event, SecondRow, TimeKind};
use floodmark_stats::Histogram;
use proptest::prelude::*;

use super::Core;
use super::world::World;
use crate::arrivals::{ArrivalQueue, RequestSource};
use crate::backend::Completion;
use crate::clock::{Ns, seconds};
use crate::connection::ConnectionState;
use crate::gather::Gatherer;
use crate::message::Message;
use crate::mix::Picks;
use crate::recorder::Recorder;
use crate::rows::Rows;
use crate::schedule::ArrivalSchedule;
use crate::slice::{SLICES, Slice};
use crate::testing::{closed_plan, held_plan, open_plan, with_mix};

/// Returns the rows among a gatherer's events.
fn rows(events: Vec<Event>) -> impl Iterator<Item = SecondRow> {
    events.into_iter().filter_map(|event| match event {
        Event::Second(row) => Some(row),
        _ => None,
    })
}

/// A core and its gatherer, as in a worker with one thread.
pub(super) struct Lab {
    pub(super) core: Core,
    gatherer: Gatherer,
    messages: Receiver<Message>,
    rows: Vec<SecondRow>,
}

impl Lab {
    pub(super) fn new(plan: &Plan) -> Self {
        let (out, messages) = sync_channel(100);
        let groups = plan.mix.as_ref().map_or(0, |mix| mix.requests.len());
        let (give_back, back) = channel();
        for _ in 1..SLICES {
            give_back.send(Box::new(Slice::new(0, groups))).unwrap();
        }
        let deadline = plan.deadline.as_nanos() as Ns;
        let recorder = Recorder::new(
            Box::new(Slice::new(0, groups)),
            out,
            back,
            deadline,
            Rows::default(),
        );
        let core = Core::new(plan, (0, 1), plan.connections as usize, recorder);
        let gatherer = Gatherer::new(vec![give_back], Rows::default(), groups);
        let rows = Vec::new();
        Lab {
            core,
            gatherer,
            messages,
            rows,
        }
    }

    fn gather(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            if let Message::Slice(slice) = message {
                self.rows.extend(rows(self.gatherer.take(slice)));
            }
        }
    }

    /// Runs one phase in the same way as a load thread.
    fn phase(
        &mut self,
        world: &mut World,
        plan: &Plan,
        phase: Phase,
        interrupt: Option<Ns>,
    ) -> (EndReason, GroupRow) {
        let start = world.now;
        let duration_s = match phase {
            Phase::Warmup => Some(plan.warmup.as_secs_f64()),
            Phase::Measure => plan.duration_s(),
        };
        let picks = Picks::new(plan, (0, 1), 1);
        let (arrivals, window) = match ArrivalSchedule::new(plan, duration_s, 0, 1) {
            None => {
                let until = duration_s.map(|s| start + seconds(s));
                let left = plan.request_limit().filter(|_| until.is_none());
                (RequestSource::Closed { left, until, picks }, until)
            }
            Some(schedule) => {
                let length = schedule.window;
                let waiting = ArrivalQueue::new(schedule, start, picks);
                (RequestSource::Open(waiting), Some(start + length))
            }
        };
        self.gatherer.begin(phase, (0.0, 0.0));
        self.rows.clear();
        self.core.recorder.begin(phase, start, window);
        self.core.begin(arrivals, world.now);
        let mut over = false;
        let reason = loop {
            self.gather();
            let core = &mut self.core;
            world.act(core);
            core.turn(world.now);
            world.act(core);
            core.check(world);
            if !over && window.is_some_and(|end| world.now >= end) {
                over = true;
                if duration_s.is_some() {
                    core.wind_up();
                }
            }
            if interrupt.is_some_and(|at| world.now >= start + at) {
                break EndReason::Interrupted;
            }
            if let Some(reason) = core.hopeless() {
                break reason;
            }
            if (over || window.is_none()) && core.finished() {
                break core.completed();
            }
            if over && !plan.drain {
                break EndReason::Completed;
            }
            assert!(world.now < start + seconds(600.0), "the run never ends");
            let ends = window.filter(|end| *end > world.now).unwrap_or(Ns::MAX);
            let until = core.next_turn().min(ends).min(world.now + 50_000_000);
            world.wait(core, until);
            world.take_in(core);
            core.check(world);
        };
        let core = &mut self.core;
        world.leave(core);
        core.abandon(world.now);
        world.act(core);
        core.check(world);
        assert_eq!((core.in_flight, core.carried), (0, 0), "abandoned");
        core.recorder.end(world.now);
        self.gather();
        let (events, totals) = self.gatherer.end(world.now - start);
        self.rows.extend(rows(events));
        (reason, totals)
    }

    fn times(&self, kind: TimeKind) -> Histogram {
        let mut all = Histogram::new();
        let texts = self.rows.iter().filter_map(|r| r.histograms.get(&kind));
        texts.for_each(|text| all.merge(&Histogram::decode(text).unwrap()));
        all
    }
}

impl Core {
    /// Checks that each slot is in the list for its state, and that the stored counts match the
    /// slots.
    fn check(&mut self, world: &World) {
        let lists = [
            self.idle.members(&mut self.connections),
            self.pressing.members(&mut self.connections),
            self.paused.members(&mut self.connections),
            self.closing.members(&mut self.connections),
            self.free.clone(),
        ];
        let mut seen: Vec<u32> = lists.concat();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..self.connections.len() as u32));
        let (mut busy, mut carried, mut unclaimed) = (0, 0, 0);
        for (slot, connection) in self.connections.iter().enumerate() {
            let list = match connection.state {
                ConnectionState::Idle => 0,
                ConnectionState::Connecting | ConnectionState::Busy => 1,
                ConnectionState::Paused => 2,
                ConnectionState::Closing => 3,
                ConnectionState::Closed => 4,
            };
            assert!(lists[list].contains(&(slot as u32)), "{connection:?}");
            let connecting = connection.state == ConnectionState::Connecting;
            busy += u64::from(connection.state == ConnectionState::Busy);
            carried += u64::from(connecting && connection.carries);
            unclaimed += u64::from(connecting && !connection.carries);
        }
        assert_eq!(busy, self.in_flight);
        assert_eq!(carried, self.carried);
        assert_eq!(unclaimed, self.opening_unclaimed);
        assert_eq!(self.open, self.connections.len() - self.free.len());
        assert!(self.open <= self.cap, "too many connections");
        assert_eq!(self.open - lists[2].len(), world.open_sockets());
    }
}

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
    fn plans()(
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
        further in 0u8..3,
        hold in any::<bool>(),
        weights in proptest::collection::vec(1u32..4, 0..3),
    ) -> Plan {
        let plan = match (open, duration_s) {
            (true, _) => open_plan(arrivals, rate, duration_s, Some(requests)),
            (false, Some(seconds)) => Plan { model: Model::closed(seconds), ..closed_plan(1, 1) },
            (false, None) => closed_plan(1, requests),
        };
        let plan = if hold && connection_use == ConnectionUse::Kept { held_plan(plan) } else { plan };
        let address = |i| ([127, 0, 0, 2 + i], 1).into();
        let plan = Plan {
            target: Target {
                further_addresses: (0..further).map(address).collect(),
                ..plan.target
            },
            connections,
            connection_use,
            close_first,
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
    ) {
        let mut world = World::new(seed, hostile);
        world.absent = absent;
        world.holds_back = holds_back;
        world.dead_from = dies_after.map_or(Ns::MAX, |after| world.now + after);
        let mut lab = Lab::new(&plan);
        lab.core.prepare(world.now);
        world.act(&mut lab.core);
        while !lab.core.prepared() {
            lab.core.turn(world.now);
            world.act(&mut lab.core);
            lab.core.check(&world);
            let until = lab.core.next_turn().min(world.now + 50_000_000);
            world.wait(&mut lab.core, until);
            world.take_in(&mut lab.core);
        }
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
        prop_assert_eq!(counts.statuses.values().sum::<u64>(), counts.ok + counts.rejected + counts.wrong);
        let responded = lab.times(TimeKind::Response).count();
        prop_assert_eq!(responded, counts.ok);
        prop_assert_eq!(lab.times(TimeKind::Censored).count(), counts.timed_out);
        prop_assert_eq!(lab.times(TimeKind::Blocked).count(), counts.sent);
        prop_assert_eq!(lab.times(TimeKind::Lateness).count(), counts.sent);
        prop_assert_eq!(lab.times(TimeKind::Error).count(),
            counts.rejected + counts.wrong + counts.malformed + counts.reset + counts.connect_failed);
        // In this world, a request may already have been sent even if its handshake is still in
        // progress at the end.
        prop_assert!(world.sends - before >= counts.sent + counts.reconnects);
        if let Some(n) = plan.request_limit() {
            prop_assert!(counts.intended <= n);
            if !interrupted && reason == EndReason::Completed && (plan.drain || !plan.is_open()) {
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
        let whole = |kind| {
            let times = lab.times(kind);
            times.mean().unwrap_or(0.0) * times.count() as f64
        };
        let parts = whole(TimeKind::Blocked) + whole(TimeKind::Lateness) + whole(TimeKind::Service);
        let response = whole(TimeKind::Response);
        prop_assert!((parts - response).abs() <= response * 2e-3 + 1000.0, "{} {}", parts, response);
    }
}

/// Creates a core that a test drives by hand, with one established connection.
fn by_hand(plan: &Plan) -> (Lab, Ns) {
    let mut lab = Lab::new(plan);
    let now = seconds(1.0);
    lab.core.recorder.begin(Phase::Measure, now, None);
    let schedule = ArrivalSchedule::new(plan, plan.duration_s(), 0, 1).unwrap();
    let picks = Picks::new(plan, (0, 1), 1);
    lab.core.begin(
        RequestSource::Open(ArrivalQueue::new(schedule, now, picks)),
        now,
    );
    (lab, now)
}

pub(super) const MS: Ns = 1_000_000;
pub(super) const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

fn connect(core: &mut Core, at: Ns) {
    core.actions.clear();
    let sent = core.connections[0].carries;
    core.on(Completion::Connected { slot: 0, at, sent }, at);
}

fn send(core: &mut Core, at: Ns) {
    assert_eq!(core.actions.len(), 1, "{:?}", core.actions);
    core.actions.clear();
    core.sent(0, at);
}

fn response(core: &mut Core, at: Ns) {
    let data = RESPONSE;
    core.on(
        Completion::Received {
            slot: 0,
            data,
            at: None,
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
            assert_eq!(core.connections[0].moments.intended, start + request * MS);
            if request == 0 {
                core.turn(start + MS);
                core.turn(start + 2 * MS);
            }
            response(core, at + 100 * MS);
            lab.gather();
        }
        lab.core.recorder.end(start + 300 * MS);
        lab.gather();
        let (events, totals) = lab.gatherer.end(300 * MS);
        lab.rows.extend(rows(events));
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
            },
            start + 2 * MS + 1,
        );
    }
    core.actions.clear();
    core.turn(start + 3 * MS);
    assert_eq!(core.actions, [super::Action::Send { slot: 1 }]);
}
