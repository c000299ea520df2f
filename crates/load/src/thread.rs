//! One load thread: the loop between the core and a backend.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Barrier};

use floodmark_record::events::{EndReason, Phase};
use floodmark_record::plan::Plan;
use floodmark_record::{Profile, ThreadUse};

use crate::arrivals::{Arrivals, Waiting};
use crate::backend::{Backend, Completion, Slot};
use crate::clock::{Clock, Ns, seconds};
use crate::coalescing::{Batch, Coalescing, Work};
use crate::core::{Action, Core};
use crate::message::{Message, PhaseEnd};
use crate::mix::Picks;
use crate::outgoing::Outgoing;
use crate::schedule::Schedule;
use crate::usage::{ThreadReading, process_cpu, thread_cpu};

/// The longest wait, so that a request to stop is noticed and the gatherer gets its rows.
const LONGEST_WAIT: Ns = 50_000_000;

/// A backend that holds back is asked to submit when it holds this much: a good share of an enter call's cost is saved by
/// then, and the first in the queue has not waited long against a response time.
const HELD_BACK: usize = 32;

/// The same while answers are taken several at a time: what a batch leads to goes out together. It fits into any backend's queue.
pub(crate) const HELD_BACK_COALESCING: usize = 160;

/// How often it is said how many connections stand, before the clock starts.
const WORD_EVERY: Ns = 500_000_000;

/// What the threads of a worker share; none of it is touched while requests fly, but for two flags read once a turn.
pub struct Shared {
    /// Set to end the run at once.
    pub stop: Arc<AtomicBool>,
    /// Where the threads meet before and after each phase.
    pub meet: Barrier,
    /// Start of the phase, set by one thread at the meeting point.
    pub start: AtomicU64,
    /// Number of the phase's first request, set likewise.
    pub first_number: AtomicU64,
    /// A number above all that were used in the phases so far; each thread adds its own when it has ended one.
    pub next_number: AtomicU64,
    /// The clock that all threads read.
    pub clock: Clock,
}

impl Shared {
    /// What `threads` threads share, whose first request has a given number.
    #[must_use]
    pub fn new(threads: u32, stop: Arc<AtomicBool>, clock: Clock, first_number: u64) -> Self {
        Shared {
            stop,
            meet: Barrier::new(threads as usize),
            start: AtomicU64::new(0),
            first_number: AtomicU64::new(first_number),
            next_number: AtomicU64::new(first_number),
            clock,
        }
    }
}

/// One thread's part in a phase.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Which thread.
    pub thread: u32,
    /// Of how many.
    pub threads: u32,
    /// Its part of a closed model's requests.
    pub requests: Option<u64>,
}

/// What one thread is to do in a phase, worked out before it begins.
#[derive(Debug)]
pub struct PhaseJob {
    phase: Phase,
    source: Source,
    /// Length of the sending window, where it is known beforehand.
    length: Option<Ns>,
    /// Whether time ends the phase; else a number of requests does.
    timed: bool,
    /// Whether what is out at the end of the window is awaited.
    drain: bool,
    thread: u32,
    picks: Picks,
}

/// Where a phase's requests come from, before it has a start.
#[derive(Debug)]
enum Source {
    Closed { left: Option<u64> },
    Open(Schedule),
}

impl Source {
    fn arrivals(self, start: Ns, until: Option<Ns>, picks: Picks) -> Arrivals {
        match self {
            Source::Closed { left } => Arrivals::Closed { left, until, picks },
            Source::Open(schedule) => Arrivals::Open(Waiting::new(schedule, start, picks)),
        }
    }
}

impl PhaseJob {
    /// A thread's part in a phase of a plan.
    #[must_use]
    pub fn new(plan: &Plan, phase: Phase, share: Share) -> Self {
        let duration_s = match phase {
            Phase::Warmup => Some(plan.warmup_s),
            Phase::Measure => plan.duration_s,
        };
        let (thread, threads) = (u64::from(share.thread), u64::from(share.threads));
        let schedule = match phase {
            Phase::Warmup => Schedule::new(&warming_up(plan), duration_s, thread, threads),
            Phase::Measure => Schedule::new(plan, duration_s, thread, threads),
        };
        let length = match &schedule {
            Some(schedule) => Some(schedule.window()),
            None => duration_s.map(seconds),
        };
        let left = share.requests.filter(|_| duration_s.is_none());
        PhaseJob {
            phase,
            source: schedule.map_or(Source::Closed { left }, Source::Open),
            length,
            timed: duration_s.is_some(),
            drain: plan.drain,
            thread: share.thread,
            picks: Picks::new(plan, (thread, threads), 1),
        }
    }
}

/// What a plan's warm-up does: the rate with which the measurement begins, throughout.
fn warming_up(plan: &Plan) -> Plan {
    let profile = plan.profile.as_ref();
    Plan {
        rate_per_s: profile.and_then(Profile::first_per_s).or(plan.rate_per_s),
        profile: None,
        ..plan.clone()
    }
}

/// A core with its backend.
pub struct LoadThread<B> {
    /// Clock shared by the worker's threads.
    pub clock: Clock,
    /// State.
    pub core: Core,
    /// I/O.
    pub backend: B,
    /// What is sent.
    pub outgoing: Outgoing,
    /// Slots whose request the backend holds back.
    leaving: Vec<Slot>,
    /// How much the backend holds back at most.
    hold_back: usize,
    /// The latest moment that anything was stamped with: time does not go back.
    latest: Ns,
    /// Pieces of answers received so far.
    received: u64,
    /// How many of them the kernel stamped.
    stamped: u64,
}

/// Takes a thread through its phases, each begun by all threads at once. A thread that cannot go on stops the run but
/// keeps coming to the meeting points, where the others would wait for it forever.
pub fn run_phases<B: Backend>(
    mut made: io::Result<LoadThread<B>>,
    plan: &Plan,
    phases: &[Phase],
    share: Share,
    start_after: impl Fn(),
    shared: &Shared,
    out: &SyncSender<Message>,
) -> Option<Core> {
    if made.is_err() {
        shared.stop.store(true, Ordering::Relaxed);
    }
    for phase in phases {
        // Before the clock starts: random arrivals are counted by drawing them all.
        let job = PhaseJob::new(plan, *phase, share);
        if shared.meet.wait().is_leader() {
            start_after();
            let _ = out.send(Message::Began(process_cpu()));
            let first_number = shared.next_number.load(Ordering::Relaxed);
            shared.first_number.store(first_number, Ordering::Relaxed);
            shared.start.store(shared.clock.now(), Ordering::Release);
        }
        shared.meet.wait();
        let start = shared.start.load(Ordering::Acquire);
        let end = match &mut made {
            // A panic is passed on as an error: the other threads wait at the meeting point.
            Ok(thread) => catch_unwind(AssertUnwindSafe(|| thread.run(job, start, shared)))
                .unwrap_or_else(|_| Err(io::Error::other("a load thread failed"))),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        if end.is_err() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        // The gatherer outlives the threads; were it gone, there would be nobody to tell.
        let _ = out.send(Message::End(share.thread, end));
    }
    made.ok().map(|thread| thread.core)
}

impl<B: Backend> LoadThread<B> {
    /// A thread that has done nothing yet.
    #[must_use]
    pub fn new(clock: Clock, core: Core, backend: B, outgoing: Outgoing) -> Self {
        LoadThread {
            clock,
            core,
            backend,
            outgoing,
            leaving: Vec::with_capacity(2 * HELD_BACK_COALESCING),
            hold_back: HELD_BACK,
            latest: 0,
            received: 0,
            stamped: 0,
        }
    }

    /// Opens the connections that are to stand before the clock starts, calling `say` now and then with how many stand and how
    /// many could not be opened.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn prepare(&mut self, shared: &Shared, say: impl Fn((u64, u64))) -> io::Result<()> {
        let mut now = self.clock.now();
        let mut next_word = now + WORD_EVERY;
        self.core.prepare(now);
        self.act();
        while !self.core.prepared()
            && self.core.hopeless().is_none()
            && !shared.stop.load(Ordering::Relaxed)
        {
            now = self.clock.now();
            self.core.turn(now);
            self.act();
            if now >= next_word {
                next_word = now + WORD_EVERY;
                say(self.core.standing());
            }
            let until = self.core.next_turn().min(now + LONGEST_WAIT);
            self.leave();
            self.backend.wait(until)?;
            self.take_in();
        }
        Ok(())
    }

    /// Runs one phase from `start` on.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn run(&mut self, job: PhaseJob, start: Ns, shared: &Shared) -> io::Result<Box<PhaseEnd>> {
        let PhaseJob {
            phase,
            source,
            length,
            timed,
            drain,
            thread,
            picks,
        } = job;
        let picks = picks.numbered_from(shared.first_number.load(Ordering::Relaxed));
        let window = length.map(|length| start + length);
        self.core.recorder.begin(phase, start, window);
        let before = ThreadReading::now();
        let tls_before = self.backend.tls();
        if !shared.stop.load(Ordering::Relaxed) {
            let arrivals = source.arrivals(start, window.filter(|_| timed), picks);
            self.core.begin(arrivals, self.clock.now().max(start));
        }
        let mut usage: Option<(ThreadReading, Ns)> = None;
        let mut coalesced = 0;
        let stamped_before = self.stamped;
        let mut longest_stall = 0;
        let mut due_back = Ns::MAX;
        let mut coalescing = Coalescing::new(self.work(self.clock.now()));
        let coalesces = self.core.coalescible() && self.backend.coalesce(None);
        let (reason, ended) = loop {
            self.act();
            let now = self.clock.now();
            longest_stall = longest_stall.max(now.saturating_sub(due_back));
            self.core.turn(now);
            self.act();
            if usage.is_none() && window.is_some_and(|end| now >= end) {
                usage = Some((ThreadReading::now(), now));
                coalesced = coalescing.total(now);
                if timed {
                    self.core.wind_up();
                }
            }
            if shared.stop.load(Ordering::Relaxed) {
                break (EndReason::Interrupted, now);
            }
            if let Some(reason) = self.core.hopeless() {
                break (reason, now);
            }
            let over = window.is_none_or(|end| now >= end);
            if over && self.core.finished() {
                break (self.core.completed(), now);
            }
            if usage.is_some() && !drain {
                break (EndReason::Completed, now);
            }
            if coalesces && coalescing.due(now) {
                let batch = coalescing.look(self.work(now), self.core.under_way());
                self.coalesce(batch);
            }
            let until = self
                .core
                .next_turn()
                .min(now + LONGEST_WAIT)
                .min(window.filter(|end| *end > now).unwrap_or(Ns::MAX));
            self.leave();
            self.backend.wait(until)?;
            due_back = until.max(now);
            self.take_in();
        };
        self.leave();
        self.core.abandon(ended);
        self.act();
        self.core.recorder.end(ended);
        let next_number = self.core.next_number();
        shared.next_number.fetch_max(next_number, Ordering::Relaxed);
        let (after, sending_ended) = usage.unwrap_or_else(|| {
            coalesced = coalescing.total(ended);
            (ThreadReading::now(), ended)
        });
        self.coalesce(None);
        // A run that was cut short ends its window there; so does a closed run of a given number of requests.
        let window = window.map_or(ended, |end| end.min(ended)).max(start);
        Ok(Box::new(PhaseEnd {
            reason,
            gone_since: (reason == EndReason::ServerGone).then(|| {
                self.core
                    .last_answer()
                    .map_or(0, |at| at.saturating_sub(start))
            }),
            window: window - start,
            ended: ended.saturating_sub(start),
            longest_stall,
            tls: self.backend.tls().map(|tls| tls.since(tls_before.as_ref())),
            usage: ThreadUse {
                coalesced_s: Some(coalesced as f64 / 1e9),
                kernel_stamped: Some(self.stamped - stamped_before),
                ..after.since(
                    &before,
                    format!("load-{thread}"),
                    true,
                    sending_ended.saturating_sub(start),
                )
            },
        }))
    }

    /// Has answers taken in batches from now on, or each at once.
    fn coalesce(&mut self, batch: Option<Batch>) {
        self.hold_back = match batch {
            Some(_) => HELD_BACK_COALESCING,
            None => HELD_BACK,
        };
        self.backend.coalesce(batch);
    }

    /// What the thread has done up to now.
    fn work(&self, now: Ns) -> Work {
        Work {
            at: now,
            cpu: thread_cpu(),
            received: self.received,
        }
    }

    fn take_in(&mut self) {
        loop {
            // An answer is as late as it was seen, not as late as those before it in the batch were worked off.
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

    /// Stamps the requests that the backend holds back, which is about to hand them to the kernel.
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

    #[inline]
    fn act(&mut self) {
        // Actions lead to completions, never straight to further actions, so one pass is enough.
        for i in 0..self.core.actions.len() {
            match self.core.actions[i] {
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
                Action::Close { slot, how } => self.backend.close(slot, how),
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
