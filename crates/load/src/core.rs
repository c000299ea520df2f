//! The load engine without I/O: a state machine between schedule, `wire` and backend. Completions go in,
//! actions come out; time is an argument.

use std::net::IpAddr;

use floodmark_record::Outcome;
use floodmark_record::plan::{CloseFirst, ConnectionUse, Plan};
use floodmark_wire::ReadError;

use crate::answers::Answers;
use crate::arrivals::Arrivals;
use crate::backend::{Completion, Slot};
use crate::clock::{Ns, seconds};
use crate::connection::{Connection, State};
use crate::failure;
use crate::judge::{self, Judge};
use crate::linked::List;
use crate::recorder::{Moments, Recorder};
use crate::sources::SourceCycle;

/// Pause after a connect that failed, before the closed model tries again on that connection: short against any
/// human's patience, long enough that a dead server does not turn the client into a spinning loop.
const PAUSE_NS: Ns = 10_000_000;

/// With no connection and no answer for this long while connects are refused, the server is gone.
const GONE_NS: Ns = 2_000_000_000;

/// The same before anything was ever reached: there is nothing to wait for.
const NEVER_THERE_NS: Ns = 300_000_000;

/// Connections opened in one turn at most. Opening costs several times what a request costs, so a thread that is behind catches
/// up by using the connections it has, and does not bury itself and the server under new ones.
const OPENS_PER_TURN: u32 = 8;

/// The open model's kept connections opened before the clock starts: as many as arrive in this time, seconds.
const READY_FOR_S: f64 = 0.002;

/// At most this many of those, so that no server's accept queue is filled by them.
const READY_AT_MOST: f64 = 100.0;

/// This many answers in something else than HTTP, and none in HTTP, and there is no use in going on.
const NOT_HTTP: u64 = 20;

/// What the backend is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Connect, and send the request along when `first`.
    Open {
        /// Which.
        slot: Slot,
        /// From where.
        source: Option<IpAddr>,
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

/// Sizes of the two forms of the request.
#[derive(Debug, Clone, Copy)]
pub struct RequestSizes {
    /// As sent on a connection that stays.
    pub kept: usize,
    /// As sent when it is the connection's last.
    pub last: usize,
}

/// The state of one load thread.
pub struct Core {
    /// What is to be done; emptied by the engine after each call.
    pub actions: Vec<Action>,
    /// What is counted and timed.
    pub recorder: Recorder,
    /// Numbers kept for a check.
    pub answers: Answers,
    connections: Vec<Connection>,
    free: Vec<Slot>,
    idle: List,
    /// Connections with a deadline, in its order: the timeout is the same for all.
    pressing: List,
    /// Connections that wait before they try again, in order.
    paused: List,
    arrivals: Arrivals,
    judge: Judge,
    sources: Option<SourceCycle>,
    sizes: RequestSizes,
    cap: usize,
    uses: Uses,
    close_first: CloseFirst,
    to_head: bool,
    timeout: Ns,
    /// Connections whose handshake is under way and that no request was given to.
    opening_unclaimed: u64,
    opens_left: u32,
    /// Connections to open before the clock starts.
    ready: usize,
    open: usize,
    in_flight: u64,
    /// Requests given to connections that do not stand yet.
    carried: u64,
    preparing: bool,
    winding_up: bool,
    ever_connected: bool,
    last_life: Ns,
    last_answer: Option<Ns>,
    refusals: u64,
    gone: bool,
    not_http: u64,
    body: Vec<u8>,
}

/// How many requests a connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uses {
    Unlimited,
    Limited(u64),
}

/// How many connections a thread opens before the clock starts, of the `cap` it may have.
fn ready_connections(plan: &Plan, cap: usize) -> usize {
    if plan.connection_use == ConnectionUse::Fresh {
        return 0;
    }
    let Some(rate) = plan.rate_per_s else {
        return cap;
    };
    let ready = (rate / f64::from(plan.threads.max(1)) * READY_FOR_S).ceil();
    cap.min(ready.clamp(1.0, READY_AT_MOST) as usize)
}

impl Core {
    /// The state of thread `thread`, whose share of the connections is `cap`.
    #[must_use]
    pub fn new(
        plan: &Plan,
        thread: u32,
        cap: usize,
        sizes: RequestSizes,
        recorder: Recorder,
    ) -> Self {
        let uses = match plan.connection_use {
            ConnectionUse::Kept => Uses::Unlimited,
            ConnectionUse::Fresh => Uses::Limited(1),
            ConnectionUse::PerConnection => {
                Uses::Limited(plan.requests_per_connection.unwrap_or(1))
            }
        };
        Core {
            actions: Vec::with_capacity(64),
            recorder,
            answers: Answers::default(),
            connections: Vec::new(),
            free: Vec::new(),
            idle: List::default(),
            pressing: List::default(),
            paused: List::default(),
            arrivals: Arrivals::Closed {
                left: Some(0),
                until: None,
            },
            judge: Judge::new(plan),
            sources: plan
                .sources
                .map(|s| SourceCycle::new(s, thread, plan.threads)),
            sizes,
            cap,
            uses,
            close_first: plan.close_first,
            to_head: plan.request.method == "HEAD",
            timeout: seconds(plan.timeout_s).max(1),
            opening_unclaimed: 0,
            opens_left: OPENS_PER_TURN,
            ready: ready_connections(plan, cap),
            open: 0,
            in_flight: 0,
            carried: 0,
            preparing: false,
            winding_up: false,
            ever_connected: false,
            last_life: 0,
            last_answer: None,
            refusals: 0,
            gone: false,
            not_http: 0,
            body: Vec::new(),
        }
    }

    /// Opens kept connections before the clock starts, so that no figure holds their set-up: all of the closed model's, and
    /// those that the open model's first arrivals need.
    pub fn prepare(&mut self, now: Ns) {
        self.preparing = true;
        self.last_life = now;
        while self.open < self.ready {
            self.open_unclaimed(now, 0);
        }
    }

    /// Whether nothing is being prepared any more.
    #[must_use]
    pub fn prepared(&self) -> bool {
        self.opening_unclaimed == 0
    }

    /// Begins a phase.
    pub fn begin(&mut self, arrivals: Arrivals, now: Ns) {
        self.preparing = false;
        self.winding_up = false;
        self.arrivals = arrivals;
        self.last_life = now;
        if matches!(self.arrivals, Arrivals::Closed { .. }) {
            while let Some(slot) = self.idle.front() {
                self.idle.remove(&mut self.connections, slot);
                if !self.next_on(slot, now) {
                    self.idle.push_front(&mut self.connections, slot);
                    break;
                }
            }
            while self.open < self.cap && self.open_claimed(now) {}
        } else {
            self.turn(now);
        }
    }

    /// What time alone brings: arrivals, ends of pauses, timeouts, the next row.
    pub fn turn(&mut self, now: Ns) {
        self.recorder.tick(now);
        self.opens_left = OPENS_PER_TURN;
        self.arrive(now);
        self.serve_waiting(now);
        while let Some(slot) = self.paused.front() {
            if self.connections[slot as usize].gives_up > now {
                break;
            }
            self.paused.remove(&mut self.connections, slot);
            self.release(slot);
            self.refill(now);
        }
        while let Some(slot) = self.pressing.front() {
            if self.connections[slot as usize].gives_up > now {
                break;
            }
            self.time_out(slot, now);
        }
        self.notice_gone(now);
    }

    /// Lets arrivals that are due in, and gives them connections.
    #[inline]
    pub fn arrive(&mut self, now: Ns) {
        let Arrivals::Open(waiting) = &mut self.arrivals else {
            return;
        };
        let mut due = 0;
        while waiting.arrive(now) {
            due += 1;
        }
        if due > 0 {
            self.recorder.intended(due);
            self.serve_waiting(now);
        }
    }

    /// When [`Core::turn`] must be called at the latest, as far as it is known.
    pub fn next_turn(&mut self) -> Ns {
        let mut at = self.recorder.row_end();
        if let Arrivals::Open(waiting) = &mut self.arrivals {
            if self.opens_left == 0
                && waiting.waiting() > self.opening_unclaimed
                && self.open < self.cap
            {
                return 0;
            }
            at = at.min(waiting.next_due().unwrap_or(Ns::MAX));
        }
        if let Some(slot) = self.pressing.front() {
            at = at.min(self.connections[slot as usize].gives_up);
        }
        if let Some(slot) = self.paused.front() {
            at = at.min(self.connections[slot as usize].gives_up);
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

    /// Takes note of when a request was handed to the kernel. Returns whether it is its connection's last.
    #[inline]
    pub fn sending(&mut self, slot: Slot, now: Ns) -> bool {
        let connection = &mut self.connections[slot as usize];
        connection.moments.sent = now;
        connection.gives_up = now + self.timeout;
        let bytes = if connection.last {
            self.sizes.last
        } else {
            self.sizes.kept
        };
        if connection.retried {
            self.recorder.resent(bytes);
        } else {
            self.recorder.sent(&connection.moments, bytes);
        }
        connection.last
    }

    /// Whether the request that goes with the slot's handshake asks the server to close.
    #[must_use]
    pub fn carries_last(&self, slot: Slot) -> bool {
        self.connections[slot as usize].last
    }

    /// The end of the sending window: nothing more is begun.
    pub fn wind_up(&mut self) {
        self.winding_up = true;
        match &mut self.arrivals {
            Arrivals::Closed { left, until } => {
                *left = Some(0);
                *until = None;
            }
            Arrivals::Open(waiting) => {
                let given_up = waiting.give_up_beyond(self.opening_unclaimed);
                self.recorder.unsent(given_up);
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
            Arrivals::Closed { left, until } => *left == Some(0) && until.is_none(),
            Arrivals::Open(waiting) => waiting.waiting() == 0 && waiting.next_due().is_none(),
        }
    }

    /// Whether the server is gone.
    #[must_use]
    pub fn gone(&self) -> bool {
        self.gone
    }

    /// Whether what answers does not speak HTTP/1.1.
    #[must_use]
    pub fn not_http(&self) -> bool {
        self.not_http >= NOT_HTTP && self.last_answer.is_none()
    }

    /// When the last answer came.
    #[must_use]
    pub fn last_answer(&self) -> Option<Ns> {
        self.last_answer
    }

    /// Gives up everything that is out, so that the counts add up.
    pub fn abandon(&mut self) {
        if let Arrivals::Open(waiting) = &mut self.arrivals {
            let given_up = waiting.give_up_beyond(0);
            self.recorder.unsent(given_up);
        }
        for slot in 0..self.connections.len() {
            let connection = &mut self.connections[slot];
            match connection.state {
                State::Busy => {
                    self.recorder.in_flight_at_end();
                    self.in_flight -= 1;
                }
                State::Connecting if connection.carries => {
                    if connection.retried {
                        self.recorder.in_flight_at_end();
                    } else {
                        self.recorder.unsent(1);
                    }
                    self.carried -= 1;
                }
                _ => continue,
            }
            connection.carries = false;
            self.pressing.remove(&mut self.connections, slot as Slot);
            self.shut(slot as Slot, CloseFirst::Client);
        }
    }

    /// Takes in what the backend has to say.
    #[inline]
    pub fn on(&mut self, completion: Completion<'_>, now: Ns) {
        match completion {
            Completion::Received { slot, data } => self.received(slot, data, now),
            Completion::Connected { slot, at, sent } => self.connected(slot, at, sent, now),
            Completion::Ended { slot } => self.ended(slot, now),
            Completion::Failed { slot, error } => {
                self.broken(slot, failure::broken(&error), now);
            }
            Completion::ConnectFailed { slot, error } => {
                let failure = failure::connect(&error);
                self.connect_failed(slot, failure.name, failure.by_server, now);
            }
        }
    }

    fn connected(&mut self, slot: Slot, at: Ns, sent: bool, now: Ns) {
        self.ever_connected = true;
        self.last_life = now;
        self.refusals = 0;
        let connection = &mut self.connections[slot as usize];
        self.recorder
            .connected(at.saturating_sub(connection.opening));
        self.pressing.remove(&mut self.connections, slot);
        let connection = &mut self.connections[slot as usize];
        connection.moments.free = at.saturating_sub(connection.opened_late);
        if connection.carries {
            connection.carries = false;
            self.carried -= 1;
            self.dispatch(slot);
            if sent {
                self.sending(slot, at);
            } else {
                self.actions.push(Action::Send { slot });
            }
            return;
        }
        self.opening_unclaimed -= 1;
        connection.state = State::Idle;
        if self.preparing {
            self.idle.push_front(&mut self.connections, slot);
            return;
        }
        let free = connection.moments.free;
        self.vacant(slot, free, now);
    }

    /// Marks the slot's request as out.
    fn dispatch(&mut self, slot: Slot) {
        let connection = &mut self.connections[slot as usize];
        connection.state = State::Busy;
        connection.reader.expect_answer(self.to_head);
        connection.body.clear();
        self.in_flight += 1;
        self.pressing.push_back(&mut self.connections, slot);
    }

    /// A connection stands without a request since `free`: it takes the next one, or waits.
    fn vacant(&mut self, slot: Slot, free: Ns, now: Ns) {
        let next = match &mut self.arrivals {
            Arrivals::Open(waiting) => waiting.take(),
            Arrivals::Closed { .. } => self.claim(now).then_some(now),
        };
        match next {
            Some(intended) => self.assign(slot, intended, free.max(intended)),
            None => {
                self.connections[slot as usize].state = State::Idle;
                self.idle.push_front(&mut self.connections, slot);
            }
        }
    }

    fn assign(&mut self, slot: Slot, intended: Ns, free: Ns) {
        let uses = self.uses;
        let connection = &mut self.connections[slot as usize];
        connection.moments = Moments {
            intended,
            free,
            ..Moments::default()
        };
        connection.retried = false;
        connection.last = self.close_first == CloseFirst::Server
            && matches!(uses, Uses::Limited(n) if connection.used + 1 >= n);
        self.dispatch(slot);
        self.actions.push(Action::Send { slot });
    }

    /// Begins a request of the closed model, if there is one to begin.
    fn claim(&mut self, now: Ns) -> bool {
        let Arrivals::Closed { left, until } = &mut self.arrivals else {
            return false;
        };
        if until.is_some_and(|until| now >= until) {
            return false;
        }
        match left {
            Some(0) => return false,
            Some(n) => *n -= 1,
            None => {}
        }
        self.recorder.intended(1);
        true
    }

    /// The closed model's next request on a connection that stands.
    fn next_on(&mut self, slot: Slot, now: Ns) -> bool {
        if !self.claim(now) {
            return false;
        }
        self.assign(slot, now, now);
        true
    }

    fn serve_waiting(&mut self, now: Ns) {
        let fresh = self.uses == Uses::Limited(1);
        loop {
            let Arrivals::Open(waiting) = &mut self.arrivals else {
                return;
            };
            if waiting.waiting() == 0 {
                return;
            }
            if fresh {
                if self.open >= self.cap || self.opens_left == 0 {
                    return;
                }
                self.opens_left -= 1;
                let Some(intended) = waiting.take() else {
                    return;
                };
                self.open_for(intended, now);
            } else if let Some(slot) = self.idle.front() {
                let Some(intended) = waiting.take() else {
                    return;
                };
                self.idle.remove(&mut self.connections, slot);
                self.assign(slot, intended, intended);
            } else {
                let waiting_now = waiting.waiting();
                if self.opening_unclaimed >= waiting_now
                    || self.open >= self.cap
                    || self.opens_left == 0
                {
                    return;
                }
                self.opens_left -= 1;
                let late = self.newest_arrival_lateness(now);
                self.open_unclaimed(now, late);
            }
        }
    }

    /// How late the handshake is that is begun at `now` for an arrival that came just before.
    fn newest_arrival_lateness(&mut self, now: Ns) -> Ns {
        match &self.arrivals {
            Arrivals::Open(waiting) => waiting
                .newest_due()
                .map_or(0, |due| now.saturating_sub(due)),
            Arrivals::Closed { .. } => 0,
        }
    }

    fn slot(&mut self) -> Slot {
        self.open += 1;
        self.free.pop().unwrap_or_else(|| {
            self.connections.push(Connection::new());
            (self.connections.len() - 1) as Slot
        })
    }

    fn release(&mut self, slot: Slot) {
        self.connections[slot as usize].state = State::Closed;
        self.open -= 1;
        self.free.push(slot);
    }

    fn open_unclaimed(&mut self, now: Ns, late: Ns) {
        let slot = self.slot();
        self.opening_unclaimed += 1;
        self.connections[slot as usize].carries = false;
        self.start_opening(slot, now, late, false);
    }

    /// The closed model's next request on a connection to be opened for it.
    fn open_claimed(&mut self, now: Ns) -> bool {
        if !self.claim(now) {
            return false;
        }
        self.open_for(now, now);
        true
    }

    fn open_for(&mut self, intended: Ns, now: Ns) {
        let slot = self.slot();
        let connection = &mut self.connections[slot as usize];
        connection.moments = Moments {
            intended,
            free: intended,
            ..Moments::default()
        };
        connection.retried = false;
        connection.used = 0;
        self.carry(slot, now, now - intended);
    }

    /// Opens the slot for the request that its moments are of.
    fn carry(&mut self, slot: Slot, now: Ns, late: Ns) {
        let connection = &mut self.connections[slot as usize];
        connection.carries = true;
        connection.last = self.close_first == CloseFirst::Server && self.uses == Uses::Limited(1);
        self.carried += 1;
        self.start_opening(slot, now, late, true);
    }

    fn start_opening(&mut self, slot: Slot, now: Ns, late: Ns, first: bool) {
        let source = self.sources.as_mut().map(SourceCycle::take);
        let connection = &mut self.connections[slot as usize];
        connection.state = State::Connecting;
        connection.used = 0;
        connection.last_number = None;
        connection.opening = now;
        connection.opened_late = late;
        connection.source = source;
        connection.gives_up = now + self.timeout;
        connection.reader = floodmark_wire::Reader::new();
        self.pressing.push_back(&mut self.connections, slot);
        self.actions.push(Action::Open {
            slot,
            source,
            first,
        });
    }

    fn received(&mut self, slot: Slot, data: &[u8], now: Ns) {
        self.recorder.received(data.len());
        let keep_body = self.judge.needs_body();
        let connection = &mut self.connections[slot as usize];
        match connection.state {
            State::Busy => {}
            State::Closing => {
                self.recorder.error(ReadError::DataAfterClose.name());
                return self.done_with(slot, now);
            }
            State::Idle => {
                self.recorder.error(ReadError::Unsolicited.name());
                self.idle.remove(&mut self.connections, slot);
                self.shut(slot, CloseFirst::Client);
                return;
            }
            State::Closed | State::Connecting | State::Paused => return,
        }
        if !connection.reader.started() && connection.moments.first <= connection.moments.sent {
            connection.moments.first = now;
        }
        let fed = if keep_body {
            self.body.clear();
            let fed = connection.reader.feed(data, &mut self.body);
            let room = judge::LONGEST_BODY + 1 - connection.body.len().min(judge::LONGEST_BODY + 1);
            if connection.body.is_empty() && matches!(&fed, Ok(fed) if fed.answer.is_some()) {
                std::mem::swap(&mut self.body, &mut connection.body);
            } else {
                connection
                    .body
                    .extend_from_slice(&self.body[..self.body.len().min(room)]);
            }
            fed
        } else {
            connection.reader.feed(data, &mut ())
        };
        match fed {
            Err(error) => self.malformed(slot, error.name(), now),
            Ok(fed) => {
                let Some(answer) = fed.answer else { return };
                if fed.consumed < data.len() {
                    let error = if answer.keep_alive {
                        ReadError::Unsolicited
                    } else {
                        ReadError::DataAfterClose
                    };
                    return self.malformed(slot, error.name(), now);
                }
                self.answered(slot, answer.status, answer.keep_alive, now);
            }
        }
    }

    fn answered(&mut self, slot: Slot, status: u16, keep_alive: bool, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        let outcome = self.judge.outcome(status, &connection.body);
        self.recorder
            .answered(&connection.moments, now, status, outcome);
        if self.judge.wants_numbers() {
            match judge::number(&connection.body) {
                Some(number) if outcome == Outcome::Ok => {
                    let sent = connection.moments.sent;
                    self.answers
                        .add(number, sent, now, &mut connection.last_number);
                }
                _ if (200..400).contains(&status) => self.recorder.error("not_a_number"),
                _ => {}
            }
        }
        connection.used += 1;
        if connection.body.capacity() > 4096 {
            connection.body = Vec::new();
        }
        connection.body.clear();
        self.last_life = now;
        self.last_answer = Some(now);
        self.in_flight -= 1;
        self.pressing.remove(&mut self.connections, slot);
        let connection = &mut self.connections[slot as usize];
        let used_up = matches!(self.uses, Uses::Limited(n) if connection.used >= n);
        if used_up && self.close_first != CloseFirst::Server {
            self.shut(slot, self.close_first);
            self.refill(now);
        } else if used_up || !keep_alive {
            connection.state = State::Closing;
            connection.gives_up = now + self.timeout;
            self.pressing.push_back(&mut self.connections, slot);
        } else {
            connection.state = State::Idle;
            self.vacant(slot, now, now);
        }
    }

    /// The peer sends no more.
    fn ended(&mut self, slot: Slot, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        match connection.state {
            State::Busy => match connection.reader.end() {
                Ok(Some(answer)) => {
                    self.answered(slot, answer.status, false, now);
                    self.done_with(slot, now);
                }
                Ok(None) => self.lost(slot, failure::CLOSED_EARLY, now),
                Err(error) => self.malformed(slot, error.name(), now),
            },
            State::Closing => self.done_with(slot, now),
            State::Idle => {
                self.idle.remove(&mut self.connections, slot);
                self.shut(slot, CloseFirst::Client);
            }
            State::Closed | State::Connecting | State::Paused => {}
        }
    }

    /// The connection broke.
    fn broken(&mut self, slot: Slot, name: &'static str, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        match connection.state {
            State::Busy if connection.reader.started() => self.malformed(slot, name, now),
            State::Busy => self.lost(slot, name, now),
            _ => self.ended(slot, now),
        }
    }

    /// The connection went away without a byte of an answer: retried once if it had been used before.
    fn lost(&mut self, slot: Slot, name: &'static str, now: Ns) {
        let connection = &self.connections[slot as usize];
        if connection.used > 0 && !connection.retried && !self.gone {
            self.in_flight -= 1;
            self.pressing.remove(&mut self.connections, slot);
            self.recorder.disconnected();
            self.actions.push(Action::Close {
                slot,
                how: CloseFirst::Client,
            });
            self.connections[slot as usize].retried = true;
            self.carry(slot, now, 0);
            return;
        }
        self.fail(slot, name, Outcome::Reset, now);
    }

    fn malformed(&mut self, slot: Slot, name: &'static str, now: Ns) {
        self.not_http += u64::from(name == ReadError::NotHttp.name());
        self.fail(slot, name, Outcome::Malformed, now);
    }

    fn fail(&mut self, slot: Slot, name: &'static str, outcome: Outcome, now: Ns) {
        self.recorder.error(name);
        let moments = self.connections[slot as usize].moments;
        self.recorder.failed(&moments, now, outcome);
        self.in_flight -= 1;
        self.done_with(slot, now);
    }

    /// Closes a connection that is on the list of those with a deadline, and goes on without it.
    fn done_with(&mut self, slot: Slot, now: Ns) {
        self.pressing.remove(&mut self.connections, slot);
        self.shut(slot, CloseFirst::Client);
        self.refill(now);
    }

    /// Closes a connection that stands and is in no list.
    fn shut(&mut self, slot: Slot, how: CloseFirst) {
        if self.connections[slot as usize].state != State::Connecting {
            self.recorder.disconnected();
        }
        self.actions.push(Action::Close { slot, how });
        self.release(slot);
    }

    /// A slot has become free: the closed model opens the next connection, the open model serves who waits.
    fn refill(&mut self, now: Ns) {
        match self.arrivals {
            Arrivals::Closed { .. } => {
                if self.open < self.cap {
                    self.open_claimed(now);
                }
            }
            Arrivals::Open(_) => self.serve_waiting(now),
        }
    }

    fn connect_failed(&mut self, slot: Slot, name: &'static str, by_server: bool, now: Ns) {
        if self.connections[slot as usize].state != State::Connecting {
            return;
        }
        self.recorder.error(name);
        self.pressing.remove(&mut self.connections, slot);
        if by_server {
            self.refusals += 1;
        }
        let connection = &mut self.connections[slot as usize];
        let moments = connection.moments;
        let carried = std::mem::replace(&mut connection.carries, false);
        if carried {
            self.carried -= 1;
            if connection.retried {
                self.recorder.failed(&moments, now, Outcome::Reset);
            } else {
                self.recorder.connect_failed(moments.intended, now);
            }
        } else {
            self.opening_unclaimed -= 1;
            // The arrival that the connection was opened for fails with it, unless another connection has
            // taken it meanwhile.
            if let Arrivals::Open(waiting) = &mut self.arrivals
                && waiting.waiting() > self.opening_unclaimed
                && let Some(intended) = waiting.take()
            {
                self.recorder.connect_failed(intended, now);
            }
        }
        let closed_model = matches!(self.arrivals, Arrivals::Closed { .. });
        if closed_model && !self.preparing && !self.winding_up {
            let connection = &mut self.connections[slot as usize];
            connection.state = State::Paused;
            connection.gives_up = now + PAUSE_NS;
            self.paused.push_back(&mut self.connections, slot);
        } else {
            self.release(slot);
        }
        self.notice_gone(now);
    }

    fn time_out(&mut self, slot: Slot, now: Ns) {
        let connection = &mut self.connections[slot as usize];
        match connection.state {
            State::Busy => {
                let moments = connection.moments;
                self.recorder.failed(&moments, now, Outcome::TimedOut);
                self.in_flight -= 1;
                self.done_with(slot, now);
            }
            State::Connecting => {
                self.actions.push(Action::Close {
                    slot,
                    how: CloseFirst::Client,
                });
                self.connect_failed(slot, failure::CONNECT_TIMED_OUT, true, now);
            }
            State::Closing => {
                self.recorder.error(failure::NOT_CLOSED);
                self.done_with(slot, now);
            }
            State::Closed | State::Idle | State::Paused => {
                self.pressing.remove(&mut self.connections, slot);
            }
        }
    }

    fn notice_gone(&mut self, now: Ns) {
        if self.refusals == 0 || self.in_flight > 0 {
            return;
        }
        let patience = if self.ever_connected {
            GONE_NS
        } else {
            NEVER_THERE_NS
        };
        if now.saturating_sub(self.last_life) >= patience {
            self.gone = true;
        }
    }
}
