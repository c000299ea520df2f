//! One load thread: the loop between the core and a backend.

use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Barrier};

use floodmark_record::ThreadUse;
use floodmark_record::events::{EndReason, Phase};
use floodmark_record::plan::{Arrivals as Spacing, Model, Plan};

use crate::arrivals::{Arrivals, Waiting};
use crate::backend::Backend;
use crate::clock::{Clock, Ns, seconds};
use crate::core::{Action, Core};
use crate::recorder::Slice;
use crate::schedule::Schedule;
use crate::usage::{ThreadReading, process_cpu};

/// The longest wait, so that a request to stop is noticed and the gatherer gets its rows.
const LONGEST_WAIT: Ns = 50_000_000;

/// The two forms of the request.
pub struct Requests {
    /// As sent on a connection that stays.
    pub kept: Rc<[u8]>,
    /// As sent when it is the connection's last.
    pub last: Rc<[u8]>,
}

/// What the threads of a worker share; none of it is touched while requests fly, but for two flags read once a turn.
pub struct Shared {
    /// Set to end the run at once.
    pub stop: Arc<AtomicBool>,
    /// Where the threads meet before and after each phase.
    pub meet: Barrier,
    /// Start of the phase, set by one thread at the meeting point.
    pub start: AtomicU64,
}

impl Shared {
    /// What `threads` threads share.
    #[must_use]
    pub fn new(threads: u32, stop: Arc<AtomicBool>) -> Self {
        Shared {
            stop,
            meet: Barrier::new(threads as usize),
            start: AtomicU64::new(0),
        }
    }
}

/// What threads send to the gatherer.
#[derive(Debug)]
pub enum Message {
    /// A phase begins; what the process has used so far: user and kernel seconds.
    Began((f64, f64)),
    /// A second is over.
    Slice(Box<Slice>),
    /// A thread has ended a phase.
    End(io::Result<PhaseEnd>),
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

/// What one thread has to report of one phase.
#[derive(Debug, Clone)]
pub struct PhaseEnd {
    /// Why it ended.
    pub reason: EndReason,
    /// Since when no answer had come, where the server went away, ns from the phase's start.
    pub gone_since: Option<Ns>,
    /// End of its sending window, ns from the phase's start.
    pub window: Ns,
    /// When its last request had its outcome, ns from the phase's start.
    pub ended: Ns,
    /// Longest time by which the thread came back late from a wait or a turn: a stall of our own.
    pub longest_stall: Ns,
    /// What it used within the sending window.
    pub usage: ThreadUse,
}

impl PhaseEnd {
    /// The end of a phase that could not be run.
    #[must_use]
    pub fn nothing() -> Self {
        PhaseEnd {
            reason: EndReason::Interrupted,
            gone_since: None,
            window: 0,
            ended: 0,
            longest_stall: 0,
            usage: ThreadReading::default().since(
                &ThreadReading::default(),
                String::new(),
                true,
                0,
            ),
        }
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
    pub requests: Requests,
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
    out: &Sender<Message>,
) -> Option<Core> {
    for phase in phases {
        if shared.meet.wait().is_leader() {
            start_after();
            let _ = out.send(Message::Began(process_cpu()));
            let now = made.as_ref().map_or(0, |thread| thread.clock.now());
            shared.start.store(now, Ordering::Release);
        }
        shared.meet.wait();
        let start = shared.start.load(Ordering::Acquire);
        let end = match &mut made {
            Ok(thread) => thread.run(plan, *phase, share, start, shared),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        if end.is_err() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        // The gatherer outlives the threads; were it gone, there would be nobody to tell.
        let _ = out.send(Message::End(end));
    }
    made.ok().map(|thread| thread.core)
}

impl<B: Backend> LoadThread<B> {
    /// Opens the connections that are to stand before the clock starts.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn prepare(&mut self, shared: &Shared) -> io::Result<()> {
        let now = self.clock.now();
        self.core.prepare(now);
        self.act();
        while !self.core.prepared() && !shared.stop.load(Ordering::Relaxed) {
            let now = self.clock.now();
            self.core.turn(now);
            self.act();
            let until = self.core.next_turn().min(now + LONGEST_WAIT);
            self.backend.wait(until)?;
            self.take_in();
        }
        Ok(())
    }

    /// Runs one phase from `start` on.
    ///
    /// # Errors
    /// When the kernel refuses to wait.
    pub fn run(
        &mut self,
        plan: &Plan,
        phase: Phase,
        share: Share,
        start: Ns,
        shared: &Shared,
    ) -> io::Result<PhaseEnd> {
        let duration_s = match phase {
            Phase::Warmup => Some(plan.warmup_s),
            Phase::Measure => plan.duration_s,
        };
        let (arrivals, window) = self.arrivals(plan, duration_s, share, start);
        self.core.recorder.begin(phase, start, window);
        let before = ThreadReading::now();
        self.core.begin(arrivals, self.clock.now().max(start));
        let mut usage: Option<(ThreadReading, Ns)> = None;
        let mut longest_stall = 0;
        let mut reason = EndReason::Completed;
        let mut due_back = Ns::MAX;
        let ended = loop {
            self.act();
            let now = self.clock.now();
            longest_stall = longest_stall.max(now.saturating_sub(due_back));
            if usage.is_none() && window.is_some_and(|end| now >= end) {
                usage = Some((ThreadReading::now(), now));
                if duration_s.is_some() {
                    self.core.wind_up();
                }
            }
            self.core.turn(now);
            self.act();
            if shared.stop.load(Ordering::Relaxed) {
                reason = EndReason::Interrupted;
                break now;
            }
            if self.core.gone() {
                reason = EndReason::ServerGone;
                break now;
            }
            if self.core.not_http() {
                reason = EndReason::NotHttp;
                break now;
            }
            if self.core.finished() && window.is_none_or(|end| now >= end) {
                break now;
            }
            if usage.is_some() && !plan.drain {
                break now;
            }
            let until = self
                .core
                .next_turn()
                .min(now + LONGEST_WAIT)
                .min(window.filter(|end| *end > now).unwrap_or(Ns::MAX));
            self.backend.wait(until)?;
            due_back = until.max(now);
            self.take_in();
        };
        self.core.abandon();
        self.act();
        self.core.recorder.end(ended);
        let (after, sending_ended) = usage.unwrap_or_else(|| (ThreadReading::now(), ended));
        // A run that was cut short ends its window there; so does a closed run of a given number of requests.
        let window = window.map_or(ended, |end| end.min(ended)).max(start);
        Ok(PhaseEnd {
            reason,
            gone_since: (reason == EndReason::ServerGone).then(|| {
                self.core
                    .last_answer()
                    .map_or(0, |at| at.saturating_sub(start))
            }),
            window: window - start,
            ended: ended.saturating_sub(start),
            longest_stall,
            usage: after.since(
                &before,
                format!("load-{}", share.thread),
                true,
                sending_ended.saturating_sub(start),
            ),
        })
    }

    /// The thread's arrivals and the end of the sending window, where it is known beforehand.
    fn arrivals(
        &self,
        plan: &Plan,
        duration_s: Option<f64>,
        share: Share,
        start: Ns,
    ) -> (Arrivals, Option<Ns>) {
        match plan.model {
            Model::Closed => {
                let until = duration_s.map(|s| start + seconds(s));
                let left = if duration_s.is_some() {
                    None
                } else {
                    share.requests
                };
                (Arrivals::Closed { left, until }, until)
            }
            Model::Open => {
                let schedule = Schedule::new(
                    plan,
                    duration_s,
                    u64::from(share.thread),
                    u64::from(share.threads),
                );
                let Some(schedule) = schedule else {
                    return (
                        Arrivals::Closed {
                            left: Some(0),
                            until: None,
                        },
                        Some(start),
                    );
                };
                let rate = plan.rate_per_s.unwrap_or(1.0);
                let length = match (duration_s, plan.arrivals) {
                    (Some(s), _) => s,
                    (None, Some(Spacing::Poisson)) => schedule.clone().last_at() as f64 / 1e9,
                    (None, _) => schedule.total() as f64 / rate,
                };
                (
                    Arrivals::Open(Waiting::new(schedule, start)),
                    Some(start + seconds(length)),
                )
            }
        }
    }

    fn take_in(&mut self) {
        while let Some(completion) = self.backend.next() {
            let now = self.clock.now();
            self.core.on(completion, now);
            if now >= self.core.next_arrival() {
                self.core.arrive(now);
            }
            self.act();
        }
    }

    #[inline]
    fn act(&mut self) {
        // Actions lead to completions, never straight to further actions, so one pass is enough.
        for i in 0..self.core.actions.len() {
            match self.core.actions[i] {
                Action::Send { slot } => {
                    let last = self.core.sending(slot, self.clock.now());
                    let bytes = if last {
                        &self.requests.last
                    } else {
                        &self.requests.kept
                    };
                    self.backend.send(slot, bytes);
                }
                Action::Open {
                    slot,
                    source,
                    first,
                } => {
                    let bytes = if self.core.carries_last(slot) {
                        &self.requests.last
                    } else {
                        &self.requests.kept
                    };
                    self.backend.open(slot, source, first.then_some(bytes));
                }
                Action::Close { slot, how } => self.backend.close(slot, how),
            }
        }
        self.core.actions.clear();
    }
}
