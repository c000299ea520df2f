//! One load thread: the loop between the core and a backend.

use std::borrow::Cow;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;

use floodmark_record::events::{EndReason, Phase};
use floodmark_record::plan::{Arrivals, Length, Model, Plan, Schedule, Spacing};
use floodmark_record::units::Rate;
use floodmark_record::{ThreadUsage, WorkerEnd};

use crate::arrivals::{ArrivalQueue, RequestSource};
use crate::backend::{Completion, IoBackend, Slot};
use crate::clock::{Clock, Ns, seconds, thread_cpu};
use crate::coalescing::{Batch, Coalescing, ThreadWork};
use crate::core::{Action, Core};
use crate::mix::Picks;
use crate::outgoing::Outgoing;
use crate::rate_control::{NOTICE_NS, RateControl};
use crate::schedule::{ArrivalSchedule, ThreadShare};
use crate::slice::Message;
use crate::usage::{ThreadReading, process_cpu};
use crate::worker::StopFlag;

/// Maximum wait in ns, so that the thread notices stop requests and changes of the rate, and sends
/// its slices to the gatherer in time.
const LONGEST_WAIT: Ns = NOTICE_NS / 2;

/// Number of delayed commands at which the loop asks the backend to submit.
/// Submitting commands together saves most of the cost of the system calls. The delay is short
/// compared with response times.
const HELD_BACK: usize = 32;

/// The higher limit while the thread coalesces, so that the requests that follow a batch are
/// submitted together.
/// Every backend's queue has room for this number.
pub(crate) const HELD_BACK_COALESCING: usize = 160;

/// Interval in ns between progress reports while connections are opened in advance.
const REPORT_EVERY: Ns = 500_000_000;

/// State that a worker's threads share.
/// Under load, each thread reads only `stop` and the number of changes in `rates`, once per
/// iteration.
pub struct SharedState {
    /// Set to end the run immediately.
    pub stop: StopFlag,
    /// Changes the rate of the measurement.
    pub rates: RateControl,
    /// Synchronizes the threads before and after each phase.
    pub barrier: Barrier,
    /// Start of the phase, set by one thread at the barrier.
    pub start: AtomicU64,
    /// Number of the phase's first request, which is also set by one thread at the barrier.
    pub first_number: AtomicU64,
    /// A number greater than any request number used so far.
    /// Each thread updates this number at the end of a phase.
    pub next_number: AtomicU64,
    /// The clock of all threads.
    pub clock: Clock,
    /// Number of phases whose events have all been emitted.
    pub emitted: AtomicUsize,
}

impl SharedState {
    /// Creates the state for `threads` threads. `first_number` is the number of the first request.
    pub fn new(threads: u32, stop: StopFlag, clock: Clock, first_number: u64) -> Self {
        SharedState {
            stop,
            rates: RateControl::default(),
            barrier: Barrier::new(threads as usize),
            start: AtomicU64::new(0),
            first_number: AtomicU64::new(first_number),
            next_number: AtomicU64::new(first_number),
            clock,
            emitted: AtomicUsize::new(0),
        }
    }
}

/// One thread's work in a phase, which is prepared before the phase starts.
#[derive(Debug)]
pub struct PhaseJob {
    phase: Phase,
    /// Arrivals in the open model.
    schedule: Option<ArrivalSchedule>,
    /// Maximum number of requests in the closed model. `None` if only a duration ends the phase.
    requests: Option<u64>,
    /// Number of the last request for which feeds have a row; `None` if rows are used again.
    last_row: Option<u64>,
    share: ThreadShare,
    /// Length of the sending window, if known in advance.
    length: Option<Ns>,
    /// Whether a duration limits the phase.
    timed: bool,
    /// Whether to wait for requests that are in flight at the end of the window.
    drain: bool,
    thread: u32,
    picks: Picks,
    /// Number of arrivals of all agents; 0 if there is only one agent, or in the closed model.
    arrivals: u64,
}

impl PhaseJob {
    /// Prepares a thread's share of a phase.
    pub fn new(plan: &Plan, phase: Phase, share: ThreadShare) -> Self {
        let of_phase = plan_of_phase(plan, phase);
        let duration_s = of_phase.duration_s();
        let schedule = ArrivalSchedule::new(&of_phase, share);
        let window = schedule.as_ref().map(|schedule| schedule.window);
        let divided = schedule.as_ref().filter(|_| share.agent.count > 1);
        PhaseJob {
            arrivals: divided.map_or(0, |schedule| schedule.total),
            phase,
            schedule,
            requests: of_phase.request_limit().map(|n| share.part_of(n)),
            last_row: plan.unique_rows(),
            share,
            length: window.or_else(|| duration_s.map(seconds)),
            timed: duration_s.is_some(),
            drain: plan.drain,
            thread: share.thread,
            picks: Picks::new(plan, share, 1),
        }
    }
}

/// Returns the plan of a phase. The warm-up keeps the measurement's initial rate.
pub(crate) fn plan_of_phase(plan: &Plan, phase: Phase) -> Cow<'_, Plan> {
    if phase == Phase::Measure {
        return Cow::Borrowed(plan);
    }
    let mut plan = plan.clone();
    let warmup = Length::Duration(plan.warmup);
    match &mut plan.model {
        Model::Closed { length } => *length = warmup,
        Model::Open { schedule, .. } => {
            if let Some(rate) = schedule.first_per_s().and_then(Rate::new) {
                let spacing = match schedule.arrivals() {
                    Arrivals::Poisson => Spacing::Poisson,
                    _ => Spacing::Constant,
                };
                *schedule = Schedule::Constant {
                    rate,
                    spacing,
                    length: warmup,
                };
            }
        }
    }
    Cow::Owned(plan)
}

/// A core and its backend.
pub struct LoadThread<B> {
    /// The clock that all of the worker's threads share.
    pub clock: Clock,
    /// The state machine.
    pub core: Core,
    /// I/O.
    pub backend: B,
    /// Request bytes.
    pub outgoing: Outgoing,
    /// Slots whose request the backend has not submitted yet.
    leaving: Vec<Slot>,
    /// HTTP/2 connections whose output waits until the backend has sent their earlier output.
    queued: Vec<Slot>,
    /// Maximum number of delayed commands.
    hold_back: usize,
    /// The latest timestamp, stored so that time never goes backwards.
    latest: Ns,
    /// Number of receive completions so far.
    received: u64,
    /// Number of receive completions with a kernel timestamp.
    stamped: u64,
}

/// Runs a thread through its phases. All threads start each phase together.
/// A thread that fails stops the run, but still waits at the barrier. Otherwise the other threads
/// would wait forever.
pub fn run_phases<B: IoBackend>(
    mut made: io::Result<LoadThread<B>>,
    plan: &Plan,
    phases: &[Phase],
    share: ThreadShare,
    await_start: impl Fn(usize) -> Ns,
    shared: &SharedState,
    out: &SyncSender<Message>,
) -> Option<Core> {
    if made.is_err() {
        shared.stop.stop();
    }
    for (index, phase) in phases.iter().enumerate() {
        // Create the job before the clock starts, because counting random arrivals requires drawing
        // all of them.
        let job = PhaseJob::new(plan, *phase, share);
        if shared.barrier.wait().is_leader() {
            let first = shared.first_number.load(Ordering::Relaxed);
            let next = shared.next_number.load(Ordering::Relaxed);
            let first_number = share.first_number(plan, first, next);
            shared.first_number.store(first_number, Ordering::Relaxed);
            let start = await_start(index);
            if *phase == Phase::Measure {
                shared.rates.begin(plan, shared.clock, start);
            }
            let _ = out.send(Message::Began(start, process_cpu()));
            shared.start.store(start, Ordering::Release);
        }
        shared.barrier.wait();
        let start = shared.start.load(Ordering::Acquire);
        let end = match &mut made {
            // Convert a panic into an error, so that this thread still reaches the barrier.
            Ok(thread) => catch_unwind(AssertUnwindSafe(|| thread.run(job, start, shared)))
                .unwrap_or_else(|_| Err(io::Error::other("a load thread panicked"))),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        if end.is_err() {
            shared.stop.stop();
        }
        // Sending fails only after the receiver is dropped. The message is then not needed.
        let _ = out.send(Message::End(share.thread, end));
    }
    made.ok().map(|thread| thread.core)
}

impl<B: IoBackend> LoadThread<B> {
    /// Creates an idle thread.
    pub fn new(clock: Clock, core: Core, backend: B, outgoing: Outgoing) -> Self {
        LoadThread {
            clock,
            core,
            backend,
            outgoing,
            leaving: Vec::with_capacity(2 * HELD_BACK_COALESCING),
            queued: Vec::new(),
            hold_back: HELD_BACK,
            latest: 0,
            received: 0,
            stamped: 0,
        }
    }

    /// Opens the connections that must exist before the clock starts.
    /// Regularly calls `report` with the number of open connections and the number of failed
    /// connections.
    ///
    /// # Errors
    /// Returns the error of [`IoBackend::wait`].
    pub fn prepare(&mut self, shared: &SharedState, report: impl Fn((u64, u64))) -> io::Result<()> {
        let mut now = self.clock.now();
        let mut next_report = now + REPORT_EVERY;
        self.core.prepare(now);
        self.act();
        while !self.core.prepared() && self.core.hopeless().is_none() && !shared.stop.is_set() {
            now = self.clock.now();
            self.core.turn(now);
            self.act();
            if now >= next_report {
                next_report = now + REPORT_EVERY;
                report(self.core.standing());
            }
            self.wait(now, Ns::MAX)?;
        }
        Ok(())
    }

    /// Waits for completions until the core must act again, but no longer than `until`, and handles
    /// the completions. Returns the latest time at which the wait should have ended.
    #[inline]
    fn wait(&mut self, now: Ns, until: Ns) -> io::Result<Ns> {
        let until = self.core.next_turn().min(now + LONGEST_WAIT).min(until);
        self.leave();
        let backend = &self.backend;
        let confirms = self.queued.iter().any(|slot| backend.is_unconfirmed(*slot));
        self.backend.wait(if confirms { now } else { until })?;
        self.take_in();
        self.flush_queued();
        Ok(until.max(now))
    }

    /// Runs one phase from `start` on.
    ///
    /// # Errors
    /// Returns the error of [`IoBackend::wait`].
    pub fn run(
        &mut self,
        job: PhaseJob,
        start: Ns,
        shared: &SharedState,
    ) -> io::Result<Box<WorkerEnd>> {
        let first_number = shared.first_number.load(Ordering::Relaxed);
        let picks = job.picks.numbered_from(first_number);
        let window = job.length.map(|length| start + length);
        self.core.recorder.begin(job.phase, start, window);
        if let Some(log) = &mut self.core.request_log {
            log.begin(job.phase, start);
        }
        let before = ThreadReading::now();
        let tls_before = self.backend.tls();
        let unused_rows = job
            .last_row
            .map(|last| (last + 1).saturating_sub(first_number));
        let is_open = job.schedule.is_some();
        let mut lacks_rows = false;
        if !shared.stop.is_set() {
            let arrivals = match job.schedule {
                None => {
                    let (left, until) = (job.requests, window.filter(|_| job.timed));
                    let rows = unused_rows.map(|rows| job.share.part_of(rows));
                    lacks_rows = rows.is_some_and(|rows| left.is_none_or(|left| rows < left));
                    let left = if lacks_rows { rows } else { left };
                    RequestSource::Closed { left, until, picks }
                }
                Some(mut schedule) => {
                    if let Some(rows) = unused_rows {
                        lacks_rows = rows < schedule.total;
                        schedule.limit(rows);
                    }
                    RequestSource::Open(ArrivalQueue::new(schedule, start, picks))
                }
            };
            self.core.begin(arrivals, self.clock.now().max(start));
            self.act();
            self.take_in();
        }
        let mut usage: Option<(ThreadReading, Ns)> = None;
        let mut coalesced = 0;
        let stamped_before = self.stamped;
        let mut longest_stall = 0;
        let mut due_back = Ns::MAX;
        let mut coalescing = Coalescing::new(self.work(self.clock.now()));
        let coalesces = self.core.coalescible() && self.backend.coalesce(None);
        let mut rate_changes = 0;
        let (reason, ended) = loop {
            let now = self.clock.now();
            // A change applies after `now`, because it was announced in advance.
            if let Some(schedule) = shared.rates.newer(&mut rate_changes) {
                self.core.change_schedule(&schedule);
            }
            longest_stall = longest_stall.max(now.saturating_sub(due_back));
            self.core.turn(now);
            self.act();
            if usage.is_none() && window.is_some_and(|end| now >= end) {
                usage = Some((ThreadReading::now(), now));
                coalesced = coalescing.total(now);
                if job.timed {
                    self.core.wind_up();
                }
            }
            if shared.stop.is_set() {
                break (EndReason::Interrupted, now);
            }
            if let Some(reason) = self.core.hopeless() {
                break (reason, now);
            }
            let is_past_window = window.is_none_or(|end| now >= end);
            let over = is_past_window || self.core.has_used_quota() || lacks_rows;
            if over && self.core.finished() {
                // In the closed model, a duration can end the load before the rows are used.
                let used_up = lacks_rows && (is_open || window.is_none_or(|end| now < end));
                let reason = match self.core.completed() {
                    EndReason::Completed if used_up => EndReason::RowsUsedUp,
                    reason => reason,
                };
                break (reason, now);
            }
            if usage.is_some() && !job.drain {
                break (EndReason::Completed, now);
            }
            if coalesces && coalescing.due(now) {
                let batch = coalescing.update(self.work(now), self.core.under_way());
                self.coalesce(batch);
            }
            due_back = self.wait(now, window.filter(|end| *end > now).unwrap_or(Ns::MAX))?;
        };
        let ended = self.finish(ended);
        // The other agents' arrivals also have numbers.
        let next_number = (self.core.next_number()).max(first_number + job.arrivals);
        shared.next_number.fetch_max(next_number, Ordering::Relaxed);
        let (after, sending_ended) = usage.unwrap_or_else(|| {
            coalesced = coalescing.total(ended);
            (ThreadReading::now(), ended)
        });
        self.coalesce(None);
        // If the run was interrupted, or if all requests of the closed model were sent, the window
        // ends here.
        let window = window.map_or(ended, |end| end.min(ended)).max(start);
        let usage = ThreadUsage {
            coalesced_s: Some(coalesced as f64 / 1e9),
            kernel_stamped: Some(self.stamped - stamped_before),
            ..after.since(&before, job.thread, sending_ended.saturating_sub(start))
        };
        Ok(Box::new(WorkerEnd {
            reason,
            last_response_ns: (self.core.last_response).map(|at| at.saturating_sub(start)),
            window_ns: window - start,
            ended_ns: ended.saturating_sub(start),
            longest_stall_ns: longest_stall,
            threads: vec![usage],
            tls: self.backend.tls().map(|tls| tls.since(tls_before.as_ref())),
            ..WorkerEnd::default()
        }))
    }

    /// Ends a phase: abandons the requests in flight, and sends the last slice. Returns the end of
    /// the phase.
    fn finish(&mut self, ended: Ns) -> Ns {
        self.core.wind_up();
        self.take_in();
        self.leave();
        let ended = ended.max(self.latest);
        self.core.abandon(ended);
        self.act();
        self.core.recorder.end(ended);
        ended
    }

    /// Starts a closed-model phase that consists of turns.
    pub(crate) fn begin_turns(&mut self, phase: Phase, picks: Picks) {
        let now = self.clock.now();
        self.core.recorder.begin(phase, now, None);
        let source = RequestSource::Closed {
            left: Some(0),
            until: None,
            picks,
        };
        self.core.begin(source, now);
    }

    /// Sends requests until `end`, and waits for their outcomes. Returns early with the reason if
    /// the load must end.
    ///
    /// # Errors
    /// Returns the error of [`IoBackend::wait`].
    pub(crate) fn take_turn(
        &mut self,
        end: Ns,
        shared: &SharedState,
    ) -> io::Result<Option<EndReason>> {
        self.core.resume(end, self.clock.now());
        self.act();
        self.take_in();
        loop {
            let now = self.clock.now();
            self.core.turn(now);
            self.act();
            if now >= end {
                self.core.wind_up();
            }
            if shared.stop.is_set() {
                return Ok(Some(EndReason::Interrupted));
            }
            if let Some(reason) = self.core.hopeless() {
                return Ok(Some(reason));
            }
            if now >= end && self.core.finished() {
                return Ok(None);
            }
            self.wait(now, if now < end { end } else { Ns::MAX })?;
        }
    }

    /// Ends the warm-up and starts the measurement between two turns.
    pub(crate) fn begin_measurement(&mut self) {
        let now = self.clock.now();
        self.core.recorder.end(now);
        self.core.recorder.begin(Phase::Measure, now, None);
    }

    /// Ends a phase that consists of turns.
    pub(crate) fn end_turns(&mut self) {
        let now = self.clock.now();
        self.finish(now);
    }

    /// Sets whether responses are handled in batches.
    fn coalesce(&mut self, batch: Option<Batch>) {
        self.hold_back = batch.map_or(HELD_BACK, |_| HELD_BACK_COALESCING);
        self.backend.coalesce(batch);
    }

    /// Returns the thread's CPU time and receive completions up to `now`.
    fn work(&self, now: Ns) -> ThreadWork {
        ThreadWork {
            at: now,
            cpu: thread_cpu(),
            received: self.received,
        }
    }

    /// Passes all completions to the core. The core then knows which requests a backend has sent
    /// together with a connect, so it can safely time out or abandon the other connections.
    fn take_in(&mut self) {
        loop {
            // Use the time at which the response was observed. Handling earlier responses in the
            // same batch must not delay this time.
            let seen = self.backend.seen();
            let Some(completion) = self.backend.next() else {
                return;
            };
            let now = seen.unwrap_or_else(|| self.clock.now()).max(self.latest);
            self.latest = now;
            if let Completion::Received { at, .. } = &completion {
                self.received += 1;
                self.stamped += u64::from(at.is_some());
            }
            self.core.on(completion, now);
            let due = self.core.next_arrival();
            if due != Ns::MAX {
                let now = seen.map_or(now, |_| self.clock.now());
                if now >= due {
                    self.latest = now;
                    self.core.arrive(now);
                }
            }
            self.act();
        }
    }

    /// Records the send time of the requests that the backend is about to submit.
    #[inline]
    fn leave(&mut self) {
        if !self.leaving.is_empty() {
            let now = self.clock.now();
            self.latest = now;
            for slot in self.leaving.drain(..) {
                self.core.sent(slot, now);
            }
        }
    }

    /// Sends the output of an HTTP/2 connection, unless earlier output is still being sent.
    fn flush(&mut self, slot: Slot) {
        if self.backend.is_sending(slot) {
            self.queued.push(slot);
            return;
        }
        let output = self.core.output(slot);
        if output.is_empty() {
            return;
        }
        let bytes = self.outgoing.copy(slot, output);
        let now = self.clock.now();
        self.core.handed_over(slot, now);
        if self.backend.held().is_some() {
            self.leaving.push(slot);
        } else {
            self.core.sent(slot, now);
        }
        self.backend.send(slot, &bytes);
    }

    /// Sends the rest of the output of an HTTP/2 connection, which ends with a GOAWAY if the server
    /// violated the protocol. The rest is lost if the server does not read.
    fn flush_last(&mut self, slot: Slot) {
        let output = self.core.last_output(slot);
        let is_sending = !output.is_empty() && self.backend.is_sending(slot);
        if output.is_empty() || is_sending && !self.backend.is_unconfirmed(slot) {
            return;
        }
        let bytes = self.outgoing.copy(slot, output);
        self.backend.send(slot, &bytes);
    }

    /// Sends the output of connections whose earlier output has been sent.
    fn flush_queued(&mut self) {
        let waiting = self.queued.len();
        for i in 0..waiting {
            self.flush(self.queued[i]);
        }
        // The rest must wait again.
        self.queued.drain(..waiting);
        self.act();
    }

    #[inline]
    fn act(&mut self) {
        // In this loop, only `flush` adds further actions.
        let mut i = 0;
        while let Some(action) = self.core.actions.get(i).copied() {
            i += 1;
            match action {
                Action::Send { slot } if self.core.is_http2() => self.flush(slot),
                Action::Send { slot } => {
                    let bytes = self.outgoing.bytes(slot, self.core.due(slot));
                    self.core.has_length(slot, bytes.len());
                    if self.backend.held().is_some() {
                        self.leaving.push(slot);
                    } else {
                        self.core.sent(slot, self.clock.now());
                    }
                    self.backend.send(slot, bytes);
                }
                Action::Open { slot, route, first } => {
                    let first = first.then(|| self.outgoing.bytes(slot, self.core.due(slot)));
                    if let Some(bytes) = first {
                        self.core.has_length(slot, bytes.len());
                    }
                    self.backend.open(slot, route, first);
                }
                Action::Close { slot, how } => {
                    self.flush_last(slot);
                    self.core.drop_session(slot);
                    self.backend.close(slot, how);
                }
            }
            if self
                .backend
                .held()
                .is_some_and(|held| held >= self.hold_back)
            {
                self.leave();
                self.backend.submit();
            }
        }
        self.core.actions.clear();
    }
}
