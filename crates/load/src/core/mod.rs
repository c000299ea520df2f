//! The load engine without I/O: a state machine between schedule, `wire` and backend. Completions go in,
//! actions come out; time is an argument.
//!
//! ```text
//! arrivals ──► starting ──► opening ──► (backend) ──► answering ──► ending ──► starting …
//!              who sends     connects                  reads         what became of a
//!              on what       and their failures        answers       request or connection
//! ```

mod answering;
mod ending;
mod holding;
mod opening;
mod starting;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use floodmark_record::events::EndReason;
use floodmark_record::plan::{CloseFirst, ConnectionUse, Plan};

use crate::answers::Answers;
use crate::arrivals::Arrivals;
use crate::backend::{Completion, Route, Slot};
use crate::clock::{Ns, seconds};
use crate::connection::{Connection, State};
use crate::failure;
use crate::judge::Judge;
use crate::linked::List;
use crate::mix::Picks;
use crate::recorder::Recorder;
use crate::targets::Targets;

use self::holding::Ahead;
pub use self::holding::HeldSoFar;
pub use self::opening::ready_connections;

/// Connections opened in one turn at most. Opening costs several times what a request costs, so a thread that is behind catches
/// up by using the connections it has, and does not bury itself and the server under new ones.
const OPENS_PER_TURN: u32 = 8;

/// This many answers in something else than HTTP, and none in HTTP, and there is no use in going on.
const NOT_HTTP: u64 = 20;

/// What the backend is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Connect, and send the request along when `first`.
    Open {
        /// Which.
        slot: Slot,
        /// Where to, and from where.
        route: Route,
        /// Whether the request goes with it.
        first: bool,
    },
    /// Send the slot's request.
    Send {
        /// Which.
        slot: Slot,
    },
    /// Close.
    Close {
        /// Which.
        slot: Slot,
        /// How.
        how: CloseFirst,
    },
}

/// The state of one load thread.
pub struct Core {
    /// What is to be done; emptied by the engine after each call.
    pub actions: Vec<Action>,
    /// What is counted and timed.
    pub recorder: Recorder,
    /// Numbers kept for a check.
    pub answers: Answers,
    /// The target's addresses, and what became of them.
    pub targets: Targets,
    connections: Vec<Connection>,
    free: Vec<Slot>,
    idle: List,
    /// Connections with a deadline, in its order: the timeout is the same for all.
    pressing: List,
    /// Slots that wait before a connection is tried again, in order.
    paused: List,
    arrivals: Arrivals,
    /// Judges of the answers, one for each request of the mix.
    judges: Vec<Judge>,
    cap: usize,
    uses: Uses,
    close_first: CloseFirst,
    timeout: Ns,
    /// Connections whose handshake is under way and that no request was given to.
    opening_unclaimed: u64,
    opens_left: u32,
    ahead: Ahead,
    /// Slots in use, those that wait before they try again included.
    open: usize,
    /// Since when not all slots have been in use.
    room_since: Ns,
    in_flight: u64,
    /// Requests given to connections that do not stand yet.
    carried: u64,
    preparing: bool,
    winding_up: bool,
    ever_connected: bool,
    last_life: Ns,
    last_answer: Option<Ns>,
    /// Since when nothing but refusals has come from the server.
    refused_since: Option<Ns>,
    gone: bool,
    not_http: u64,
    /// Body of the piece that is being read.
    body: Vec<u8>,
}

/// How many requests a connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uses {
    Unlimited,
    Limited(u64),
}

impl Uses {
    fn of(plan: &Plan) -> Self {
        match plan.connection_use {
            ConnectionUse::Kept => Uses::Unlimited,
            ConnectionUse::Fresh => Uses::Limited(1),
            ConnectionUse::PerConnection => {
                Uses::Limited(plan.requests_per_connection.unwrap_or(1).max(1))
            }
        }
    }
}

impl Core {
    /// The state of thread `thread` of `threads`, whose share of the connections is `cap`.
    #[must_use]
    pub fn new(plan: &Plan, (thread, threads): (u32, u32), cap: usize, recorder: Recorder) -> Self {
        let uses = Uses::of(plan);
        let ready = ready_connections(plan, threads, cap);
        Core {
            actions: Vec::with_capacity(64),
            recorder,
            answers: Answers::default(),
            targets: Targets::new(plan, thread, threads),
            connections: Vec::new(),
            free: Vec::new(),
            idle: List::default(),
            pressing: List::default(),
            paused: List::default(),
            arrivals: Arrivals::Closed {
                left: Some(0),
                until: None,
                picks: Picks::new(plan, (thread.into(), threads.into()), 1),
            },
            judges: Judge::of_plan(plan),
            cap,
            uses,
            close_first: plan.close_first,
            timeout: seconds(plan.timeout_s).max(1),
            opening_unclaimed: 0,
            opens_left: OPENS_PER_TURN,
            ahead: Ahead::new(ready, threads, holding::holds(plan.hold, uses)),
            open: 0,
            room_since: 0,
            in_flight: 0,
            carried: 0,
            preparing: false,
            winding_up: false,
            ever_connected: false,
            last_life: 0,
            last_answer: None,
            refused_since: None,
            gone: false,
            not_http: 0,
            body: Vec::new(),
        }
    }

    /// Requests that are out, or that a connection is being opened for.
    #[inline]
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.in_flight + self.carried
    }

    /// Whether a busy thread may take several answers at a time: in the closed model, where answers wait for such a thread anyhow.
    #[must_use]
    pub fn coalescible(&self) -> bool {
        matches!(self.arrivals, Arrivals::Closed { .. })
    }

    /// What time alone brings: arrivals, ends of pauses, timeouts, the next row.
    pub fn turn(&mut self, now: Ns) {
        self.recorder.tick(now);
        self.opens_left = OPENS_PER_TURN;
        self.arrive(now);
        self.serve_waiting(now);
        self.open_ahead(now);
        while let Some(slot) = self.paused.front() {
            if self.connections[slot as usize].gives_up > now {
                break;
            }
            self.paused.remove(&mut self.connections, slot);
            self.release(slot, now);
            self.refill(now);
        }
        while let Some(slot) = self.pressing.front() {
            if self.connections[slot as usize].gives_up > now {
                break;
            }
            self.time_out(slot, now);
        }
    }

    /// When [`Core::turn`] must be called at the latest, as far as it is known.
    pub fn next_turn(&mut self) -> Ns {
        if let Arrivals::Open(waiting) = &self.arrivals
            && self.opens_left == 0
            && waiting.waiting() > self.opening_unclaimed
            && self.open < self.cap
        {
            return 0;
        }
        let mut at = self
            .recorder
            .row_end()
            .min(self.next_arrival())
            .min(self.next_ahead());
        for list in [&self.pressing, &self.paused] {
            if let Some(slot) = list.front() {
                at = at.min(self.connections[slot as usize].gives_up);
            }
        }
        at
    }

    /// When the next arrival is due; never for the closed model.
    #[inline]
    pub fn next_arrival(&mut self) -> Ns {
        match &mut self.arrivals {
            Arrivals::Open(waiting) => waiting.next_due().unwrap_or(Ns::MAX),
            Arrivals::Closed { .. } => Ns::MAX,
        }
    }

    /// Takes in what the backend has to say. What happens to a connection whose request is still held back ends that request:
    /// it counts as sent by then.
    #[inline]
    pub fn on(&mut self, completion: Completion<'_>, now: Ns) {
        match completion {
            Completion::Received { slot, data, at } => {
                self.sent(slot, now);
                self.received(slot, data, at, now);
            }
            Completion::Connected { slot, at, sent } => self.connected(slot, at, sent, now),
            Completion::Reached { slot, at } => self.reached(slot, at),
            Completion::Ended { slot } => {
                self.sent(slot, now);
                self.ended(slot, now);
            }
            Completion::Failed { slot, error } => {
                self.sent(slot, now);
                self.broken(slot, failure::broken(&error), now);
            }
            Completion::ConnectFailed { slot, error } => {
                self.connect_failed(slot, failure::connect(&error), now);
            }
        }
    }

    /// The end of the sending window: nothing more is begun.
    pub fn wind_up(&mut self) {
        self.winding_up = true;
        match &mut self.arrivals {
            Arrivals::Closed { left, until, .. } => {
                *left = Some(0);
                *until = None;
            }
            Arrivals::Open(waiting) => {
                let recorder = &mut self.recorder;
                waiting.give_up_beyond(self.opening_unclaimed, |group, n| {
                    recorder.unsent(group, n);
                });
            }
        }
    }

    /// Whether all that was to be begun has been, and has its outcome.
    #[must_use]
    pub fn finished(&mut self) -> bool {
        self.in_flight == 0 && self.carried == 0 && self.exhausted()
    }

    fn exhausted(&mut self) -> bool {
        match &mut self.arrivals {
            Arrivals::Closed { left, until, .. } => *left == Some(0) && until.is_none(),
            Arrivals::Open(waiting) => waiting.waiting() == 0 && waiting.next_due().is_none(),
        }
    }

    /// Why there is no use in going on, if there is none.
    #[must_use]
    pub fn hopeless(&self) -> Option<EndReason> {
        if self.gone {
            Some(EndReason::ServerGone)
        } else if self.not_http >= NOT_HTTP && self.last_answer.is_none() {
            Some(EndReason::NotHttp)
        } else {
            None
        }
    }

    /// Whether a run that came to its end before [`Core::hopeless`] was sure had a server then; completed where it had.
    #[must_use]
    pub fn completed(&self) -> EndReason {
        let standing =
            |c: &Connection| matches!(c.state, State::Idle | State::Busy | State::Closing);
        if self.refused_since.is_some() && !self.connections.iter().any(standing) {
            EndReason::ServerGone
        } else if self.not_http > 0 && self.last_answer.is_none() {
            EndReason::NotHttp
        } else {
            EndReason::Completed
        }
    }

    /// A request number above all that have been used.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        match &self.arrivals {
            Arrivals::Closed { picks, .. } => picks.next_number(),
            Arrivals::Open(waiting) => waiting.next_number(),
        }
    }

    /// When the last answer came.
    #[must_use]
    pub fn last_answer(&self) -> Option<Ns> {
        self.last_answer
    }
}
