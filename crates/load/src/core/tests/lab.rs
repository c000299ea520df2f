//! A simulated worker for the tests: a core, its gatherer and a [`World`].

use std::sync::mpsc::{Receiver, TryRecvError, channel, sync_channel};
use std::thread;
use std::time::Duration;

use floodmark_record::events::{EndReason, GroupRow, Phase};
use floodmark_record::plan::Plan;
use floodmark_record::{Event, SecondRow, TimeKind, WorkerEnd};
use floodmark_stats::Histogram;

use super::world::World;
use crate::arrivals::{ArrivalQueue, RequestSource};
use crate::clock::{Ns, seconds};
use crate::connection::ConnectionState;
use crate::core::Core;
use crate::exchange::ExchangeState;
use crate::gather::Gatherer;
use crate::mix::Picks;
use crate::recorder::Recorder;
use crate::request::PlanRequests;
use crate::rows::Rows;
use crate::schedule::{ArrivalSchedule, alone};
use crate::slice::{Message, SLICES, Slice};
use crate::thread::plan_of_phase;

/// Maximum time between a message and its processing while a load thread runs.
const POLL: Duration = Duration::from_millis(1);

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
    pub(super) rows: Vec<SecondRow>,
}

impl Lab {
    pub(super) fn new(plan: &Plan) -> Self {
        let (out, messages) = sync_channel(100);
        let groups = plan.mix.as_ref().map_or(0, |mix| mix.requests.len());
        let (give_back, back) = channel();
        for _ in 1..SLICES {
            give_back.send(Box::new(Slice::new(0, groups))).unwrap();
        }
        let recorder = Recorder::new(plan, Slice::new(0, groups), out, back);
        let requests = PlanRequests::of(plan).unwrap();
        let core = Core::new(plan, alone(), recorder, &requests);
        let gatherer = Gatherer::new(vec![give_back], Rows::of(plan), groups);
        let rows = Vec::new();
        Lab {
            core,
            gatherer,
            messages,
            rows,
        }
    }

    /// Runs the measurement with a load thread. Returns the thread's core and end, and the totals.
    pub(super) fn measure(
        self,
        run: impl FnOnce(Core) -> (Core, Box<WorkerEnd>),
    ) -> (Core, Box<WorkerEnd>, GroupRow) {
        let Lab {
            core,
            mut gatherer,
            messages,
            ..
        } = self;
        gatherer.begin(Phase::Measure, (0.0, 0.0));
        let gatherer_of_run = &mut gatherer;
        let (core, end) = thread::scope(|scope| {
            let (running, ended) = channel::<()>();
            scope.spawn(move || {
                let is_running = || ended.try_recv() != Err(TryRecvError::Disconnected);
                let mut is_last = false;
                while !is_last {
                    // Read the last messages after the end.
                    is_last = !is_running();
                    while let Ok(message) = messages.recv_timeout(POLL) {
                        if let Message::Slice(slice) = message {
                            gatherer_of_run.take(slice);
                        }
                    }
                }
            });
            let _running = running;
            run(core)
        });
        let (_, totals) = gatherer.end(end.window_ns);
        (core, end, totals)
    }

    pub(super) fn gather(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            if let Message::Slice(slice) = message {
                self.rows.extend(rows(self.gatherer.take(slice)));
            }
        }
    }

    /// Opens the connections that the plan needs before the load starts.
    pub(super) fn prepare(&mut self, world: &mut World) {
        self.core.prepare(world.now);
        world.act(&mut self.core);
        while !self.core.prepared() {
            self.core.turn(world.now);
            world.act(&mut self.core);
            self.core.check(world);
            let until = self.core.next_turn().min(world.now + 50_000_000);
            world.wait(&mut self.core, until);
            world.take_in(&mut self.core);
        }
    }

    /// Waits until no event is pending in the world.
    pub(super) fn settle(&mut self, world: &mut World) {
        while world.is_waiting() {
            world.wait(&mut self.core, world.now + 1_000_000);
            world.take_in(&mut self.core);
        }
    }

    /// Runs one phase in the same way as a load thread.
    pub(super) fn phase(
        &mut self,
        world: &mut World,
        plan: &Plan,
        phase: Phase,
        interrupt: Option<Ns>,
    ) -> (EndReason, GroupRow) {
        let start = world.now;
        let of_phase = plan_of_phase(plan, phase);
        let duration_s = of_phase.duration_s();
        let picks = Picks::new(plan, alone(), 1);
        let (arrivals, window) = match ArrivalSchedule::new(&of_phase, alone()) {
            None => {
                let until = duration_s.map(|s| start + seconds(s));
                let left = of_phase.request_limit();
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
            let is_over = over || window.is_none() || core.has_used_quota();
            if is_over && core.finished() {
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
        (reason, self.end(world.now, world.now - start))
    }

    /// Ends a phase of this length, in ns. Returns its totals.
    pub(super) fn end(&mut self, now: Ns, length: Ns) -> GroupRow {
        self.core.recorder.end(now);
        self.gather();
        let (events, totals) = self.gatherer.end(length);
        self.rows.extend(rows(events));
        totals
    }

    /// Returns the sum of the times of a kind, in ns.
    pub(super) fn total(&self, kind: TimeKind) -> f64 {
        let times = self.times(kind);
        times.mean().unwrap_or(0.0) * times.count() as f64
    }

    pub(super) fn times(&self, kind: TimeKind) -> Histogram {
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
            self.connecting.members(&mut self.connections),
            self.pressing.members(&mut self.exchanges),
            self.paused.members(&mut self.connections),
            self.closing.members(&mut self.connections),
            self.free.clone(),
        ];
        let mut seen: Vec<u32> = lists.concat();
        seen.sort_unstable();
        let (mut busy, mut carried, mut unclaimed) = (0, 0, 0);
        if self.is_http2() {
            return self.check_http2(&lists, world);
        }
        assert!(seen.iter().copied().eq(0..self.connections.len() as u32));
        let all = self.connections.iter().zip(&self.exchanges);
        for (slot, (connection, exchange)) in all.enumerate() {
            let state = (connection.state, exchange.state);
            let list = match state {
                (ConnectionState::Established, ExchangeState::Ended) => 0,
                (ConnectionState::Connecting, ExchangeState::Ended | ExchangeState::Waiting) => 1,
                (ConnectionState::Established, ExchangeState::InFlight) => 2,
                (ConnectionState::Paused, ExchangeState::Ended) => 3,
                (ConnectionState::Closing, ExchangeState::Ended) => 4,
                (ConnectionState::Closed, ExchangeState::Ended) => 5,
                _ => panic!("{connection:?} {exchange:?}"),
            };
            assert!(lists[list].contains(&(slot as u32)), "{connection:?}");
            busy += u64::from(exchange.state == ExchangeState::InFlight);
            carried += u64::from(exchange.state == ExchangeState::Waiting);
            unclaimed += u64::from(state == (ConnectionState::Connecting, ExchangeState::Ended));
        }
        assert_eq!(busy, self.in_flight);
        assert_eq!(carried, self.carried);
        assert_eq!(unclaimed, self.opening_unclaimed);
        assert_eq!(self.open, self.connections.len() - self.free.len());
        assert!(self.open <= self.cap, "too many connections");
        assert_eq!(self.open - lists[3].len(), world.open_sockets());
    }

    /// Checks the same for HTTP/2.
    fn check_http2(&self, lists: &[Vec<u32>; 6], world: &World) {
        let mut in_flight = Vec::new();
        let (mut carried, mut unclaimed) = (0, 0);
        for (slot, connection) in (0..).zip(&self.connections) {
            let exchanges = self.exchanges_of(slot);
            let states = exchanges
                .clone()
                .map(|index| self.exchanges[index as usize].state);
            let waiting = states
                .clone()
                .filter(|of| *of == ExchangeState::Waiting)
                .count();
            let open: Vec<u32> = exchanges
                .filter(|index| self.is_in_flight(*index))
                .collect();
            let http2 = connection.http2.as_ref();
            let listed = (0..lists.len()).filter(|list| *list != 2 && lists[*list].contains(&slot));
            let listed: Vec<usize> = listed.collect();
            let expected = match connection.state {
                ConnectionState::Established => {
                    let http2 = http2.unwrap();
                    assert_eq!(http2.session.open_streams() as usize, open.len());
                    assert_eq!(http2.is_listed, self.has_room(slot), "{connection:?}");
                    assert!(http2.is_flush_due || http2.session.output().is_empty());
                    assert!(!http2.is_draining || !open.is_empty());
                    match (http2.is_listed, http2.is_starved) {
                        (true, is_starved) => {
                            assert!(!is_starved);
                            vec![0]
                        }
                        (false, true) => {
                            assert!(open.is_empty());
                            vec![4]
                        }
                        (false, false) => vec![],
                    }
                }
                ConnectionState::Connecting => {
                    carried += waiting as u64;
                    unclaimed += u64::from(waiting == 0);
                    vec![1]
                }
                ConnectionState::Paused => vec![3],
                ConnectionState::Closed => vec![5],
                ConnectionState::Closing => panic!("{connection:?}"),
            };
            assert_eq!(listed, expected, "{connection:?}");
            if connection.state != ConnectionState::Established {
                assert!(open.is_empty() && http2.is_none());
            }
            in_flight.extend(open);
        }
        let mut pressing = lists[2].clone();
        pressing.sort_unstable();
        assert_eq!(pressing, in_flight);
        assert_eq!(in_flight.len() as u64, self.in_flight);
        assert_eq!((carried, unclaimed), (self.carried, self.opening_unclaimed));
        assert_eq!(self.open, self.connections.len() - self.free.len());
        assert!(self.open <= self.cap, "too many connections");
        assert_eq!(self.open - lists[3].len(), world.open_sockets());
    }
}
