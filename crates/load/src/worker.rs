//! A whole load process: threads, gathering, and the events it emits.

mod end;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use floodmark_record::Event;
use floodmark_record::events::{Phase, WorkerReady};
use floodmark_record::plan::{Backend, Model, Plan, WorkerInput};

use crate::backend as io_backend;
use crate::backend::epoll::Epoll;
use crate::backend::uring::{Uring, unavailable};
use crate::budget::{self, FileLimit, Sockets};
use crate::clock::{Clock, seconds};
use crate::core::Core;
use crate::gather::{Gatherer, Totals};
use crate::message::{Message, PhaseEnd};
use crate::opening::Opening;
use crate::outgoing::Outgoing;
use crate::recorder::Recorder;
use crate::request::{Request, RequestFault, longest, requests};
use crate::rows::Rows;
use crate::scheduling::ask_for_short_turns;
use crate::slice::{SLICES, Slice};
use crate::thread::{LoadThread, Share, Shared, run_phases};
use crate::tls::{Secured, Tls, TlsError};
use crate::usage::process_cpu;

/// Why a worker could not run.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A request cannot be sent.
    #[error("the request: {0}")]
    Request(#[from] RequestFault),
    /// TLS cannot be set up as the plan says.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The kernel refused something without which nothing goes.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A load thread panicked; its message is on stderr.
    #[error("a load thread failed; please report the message above")]
    Thread,
}

impl WorkerError {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| WorkerError::System { what, source }
    }
}

/// The limit on open files that the load process of a plan needs.
///
/// # Errors
/// A request that cannot be sent.
pub fn files_needed(plan: &Plan) -> Result<u64, RequestFault> {
    let longest = longest(&requests(plan)?);
    let sockets = match plan.backend {
        Backend::Epoll => Sockets::Files,
        // Where there is none the run says so.
        Backend::Uring => {
            Uring::probe(1).map_or(Sockets::Files, |able| able.sockets(plan, longest))
        }
    };
    Ok(budget::files_needed(plan, sockets))
}

/// A handle by which a running worker can be stopped.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Ends the run at once; what was measured is reported.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs a plan, calling `emit` for each event, from [`Event::Ready`] to [`Event::End`].
///
/// # Errors
/// When the request is impossible or the kernel refuses what a run needs.
pub fn run(
    input: &WorkerInput,
    files: Option<FileLimit>,
    stop: &StopFlag,
    mut emit: impl FnMut(Event),
) -> Result<(), WorkerError> {
    let plan = &input.plan;
    let job = Job {
        input,
        requests: requests(plan)?,
        tls: (plan.tls.as_ref().map(|tls| Tls::new(tls, &input.anchors))).transpose()?,
        threads: plan.threads.clamp(1, plan.connections.max(1)),
        phases: if plan.warmup_s > 0.0 {
            &[Phase::Warmup, Phase::Measure]
        } else {
            &[Phase::Measure]
        },
        clock: Clock::start(),
    };
    let first_number = input.first_number;
    let shared = Shared::new(job.threads, Arc::clone(&stop.0), job.clock, first_number);
    let groups = groups(plan);
    // One encoding before the clock starts: what compressing rows takes is in memory from the beginning.
    drop(Slice::new(0, 0).times[0].encode());
    // Room for every slice in circulation and for what is said of each phase: no load thread waits here while requests fly. What is
    // said before that, of connections being opened, waits for the gatherer.
    let room = job.threads as usize * (SLICES + 2 * job.phases.len());
    let (out, messages) = sync_channel(room);
    let (give_back, returns): (Vec<_>, Vec<_>) = (0..job.threads)
        .map(|thread| stocked(thread, groups))
        .unzip();
    emit(Event::Ready(WorkerReady {
        pid: std::process::id(),
        notices: Vec::new(),
        fd_limit: files.map(|files| files.now),
        fd_limit_before: files.map(|files| files.before),
    }));

    let (ends, cores) = thread::scope(|scope| -> Result<_, WorkerError> {
        let mut handles = Vec::new();
        for (thread, returned) in (0..job.threads).zip(returns) {
            let (job, shared, out) = (&job, &shared, out.clone());
            let handle = thread::Builder::new()
                .name(format!("load-{thread}"))
                .spawn_scoped(scope, move || {
                    job.load_thread(thread, shared, returned, &out)
                })
                .map_err(WorkerError::system("starting a load thread"))?;
            handles.push(handle);
        }
        drop(out);
        let mut gatherer = Gatherer::new(give_back, Rows::of(plan));
        let mut opening = Opening::new(plan, job.threads);
        let ends: Result<Vec<_>, _> = job
            .phases
            .iter()
            .map(|phase| gather(*phase, &mut opening, &mut gatherer, &messages, &mut emit))
            .collect();
        // After a failure nobody waits for slices to come back.
        drop(gatherer);
        let mut cores = Vec::new();
        for handle in handles {
            cores.extend(handle.join().map_err(|_| WorkerError::Thread)?);
        }
        Ok((ends?, cores))
    })?;
    let next_number = shared.next_number.load(Ordering::Relaxed);
    let end = job
        .end(ends, &cores, next_number)
        .map_err(WorkerError::system(
            "writing the answers kept for the check",
        ))?;
    emit(Event::End(end));
    Ok(())
}

/// A channel with a thread's empty slices in it.
fn stocked(thread: u32, groups: usize) -> (Sender<Box<Slice>>, Receiver<Box<Slice>>) {
    let (sender, receiver) = channel();
    for _ in 0..SLICES {
        // The receiver is at hand, so this cannot fail.
        let _ = sender.send(Box::new(Slice::new(thread, groups)));
    }
    (sender, receiver)
}

/// How many groups a plan's figures have; none without a mix.
fn groups(plan: &Plan) -> usize {
    plan.mix.as_ref().map_or(0, |mix| mix.requests.len())
}

/// The part of `total` that falls to `thread` of `threads`.
fn split(total: u64, thread: u32, threads: u32) -> u64 {
    let (thread, threads) = (u64::from(thread), u64::from(threads));
    total / threads + u64::from(thread < total % threads)
}

/// The most connections that a thread of a plan may have open.
pub(crate) fn cap(plan: &Plan, thread: u32, threads: u32) -> usize {
    split(plan.connections.max(1).into(), thread, threads) as usize
}

/// What all phases and threads of a worker have in common.
struct Job<'a> {
    input: &'a WorkerInput,
    requests: Vec<Request>,
    tls: Option<Tls>,
    threads: u32,
    phases: &'static [Phase],
    clock: Clock,
}

/// What a phase came to.
struct Ended {
    totals: Totals,
    threads: Vec<PhaseEnd>,
    cpu: (f64, f64),
}

impl Job<'_> {
    fn load_thread(
        &self,
        thread: u32,
        shared: &Shared,
        returned: Receiver<Box<Slice>>,
        out: &SyncSender<Message>,
    ) -> Option<Core> {
        let plan = &self.input.plan;
        let first = returned
            .recv()
            .unwrap_or_else(|_| Box::new(Slice::new(thread, groups(plan))));
        let recorder = Recorder::new(
            first,
            out.clone(),
            returned,
            seconds(plan.deadline_s),
            Rows::of(plan),
        );
        let cap = cap(plan, thread, self.threads);
        let core = Core::new(plan, (thread, self.threads), cap, recorder);
        let (clock, targets) = (self.clock, plan.target.addresses().collect::<Vec<_>>());
        // In the closed model the thread is the load's limit more often than not, and stamps are one more thing to do for each answer.
        let stamped = plan.model == Model::Open;
        match plan.backend {
            Backend::Epoll => {
                let epoll = Epoll::new(clock, &targets);
                let epoll = epoll.map(|epoll| if stamped { epoll.stamped() } else { epoll });
                self.protect(epoll, core, thread, shared, out)
            }
            Backend::Uring => {
                // A handshake's last message and the request behind it are small writes in a row, which Nagle's algorithm would
                // hold back: TLS needs sockets that can be told otherwise, as requests beyond any length do.
                let longest = match self.tls {
                    Some(_) => usize::MAX,
                    None => longest(&self.requests),
                };
                let uring = Uring::new(clock, &targets, cap, longest)
                    .map(|uring| if stamped { uring.stamped() } else { uring })
                    .map_err(|error| io::Error::other(unavailable(&error)));
                self.protect(uring, core, thread, shared, out)
            }
        }
    }

    /// Puts TLS around the backend where the plan has it.
    fn protect<B: io_backend::Backend>(
        &self,
        backend: io::Result<B>,
        core: Core,
        thread: u32,
        shared: &Shared,
        out: &SyncSender<Message>,
    ) -> Option<Core> {
        let Some(tls) = &self.tls else {
            return self.drive(backend, core, thread, shared, out);
        };
        let secured = backend.map(|inner| {
            let config = tls.for_thread();
            Secured::new(self.clock, inner, config, tls.name.clone())
        });
        self.drive(secured, core, thread, shared, out)
    }

    /// Takes a thread through the phases on the backend that was made for it.
    fn drive<B: io_backend::Backend>(
        &self,
        backend: io::Result<B>,
        core: Core,
        number: u32,
        shared: &Shared,
        out: &SyncSender<Message>,
    ) -> Option<Core> {
        let plan = &self.input.plan;
        if plan.model == Model::Open {
            // In the closed model nothing is ever due. Where the kernel refuses, lateness says what that costs.
            let _ = ask_for_short_turns();
        }
        let made = backend.and_then(|backend| {
            let outgoing = Outgoing::new(&self.requests, plan.seed);
            let mut thread = LoadThread::new(self.clock, core, backend, outgoing);
            // Were the gatherer gone, there would be nobody to tell.
            let say = |counts| drop(out.send(Message::Opening(number, counts)));
            thread.prepare(shared, say)?;
            Ok(thread)
        });
        let share = Share {
            thread: number,
            threads: self.threads,
            requests: plan.requests.map(|n| split(n, number, self.threads)),
        };
        let start = || wait_until(self.input.start_unix_ns, &shared.stop);
        run_phases(made, plan, self.phases, share, start, shared, out)
    }
}

/// Emits a phase's rows until all threads have ended it.
fn gather(
    phase: Phase,
    opening: &mut Opening,
    gatherer: &mut Gatherer,
    messages: &Receiver<Message>,
    emit: &mut impl FnMut(Event),
) -> Result<Ended, WorkerError> {
    let mut cpu = (0.0, 0.0);
    let mut ends = Vec::new();
    let mut failed = None;
    while ends.len() < gatherer.threads() {
        match messages.recv() {
            Ok(Message::Opening(thread, counts)) => opening
                .take(thread, counts)
                .into_iter()
                .for_each(|word| emit(Event::Connecting(word))),
            Ok(Message::Began(used)) => {
                cpu = used;
                gatherer.begin(phase, used);
                emit(Event::Began { phase });
            }
            Ok(Message::Slice(slice)) => gatherer
                .take(slice)
                .into_iter()
                .for_each(|row| emit(Event::Second(row))),
            Ok(Message::End(thread, end)) => {
                gatherer
                    .ended(thread)
                    .into_iter()
                    .for_each(|row| emit(Event::Second(row)));
                ends.push(end.map(|end| *end).unwrap_or_else(|error| {
                    failed = Some(error);
                    PhaseEnd::nothing()
                }));
            }
            Err(_) => return Err(WorkerError::Thread),
        }
    }
    let used = process_cpu();
    if let Some(error) = failed {
        return Err(WorkerError::System {
            what: "waiting for sockets",
            source: error,
        });
    }
    let ended = ends.iter().map(|end| end.ended).max().unwrap_or(0);
    let (rows, totals) = gatherer.end(ended);
    rows.into_iter().for_each(|row| emit(Event::Second(row)));
    Ok(Ended {
        totals,
        threads: ends,
        cpu: (used.0 - cpu.0, used.1 - cpu.1),
    })
}

/// Sleeps until a moment of the wall clock, in pieces short enough to notice a stop.
fn wait_until(unix_ns: Option<u64>, stop: &AtomicBool) {
    let Some(at) = unix_ns.map(Duration::from_nanos) else {
        return;
    };
    while !stop.load(Ordering::Relaxed) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let Some(left) = at.checked_sub(now).filter(|left| !left.is_zero()) else {
            return;
        };
        thread::sleep(left.min(Duration::from_millis(50)));
    }
}
