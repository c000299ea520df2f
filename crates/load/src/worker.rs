//! A complete load process: its threads, its gatherer and the events that it emits.

mod end;

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use floodmark_record::Event;
use floodmark_record::events::{Connecting, GroupRow, Phase, WorkerReady};
use floodmark_record::plan::{Backend, Plan};
use floodmark_record::target::Address;
use floodmark_record::worker_input::{AgentShare, WorkerInput};

use crate::backend::IoBackend;
use crate::backend::epoll::Epoll;
use crate::backend::uring::{Uring, unavailable};
use crate::budget::{self, FileLimit, SocketLocation};
use crate::clock::{Clock, Ns};
use crate::core::{Core, ready_connections};
use crate::gather::Gatherer;
use crate::indices::ThreadShare;
use crate::libc_calls::monotonic_ns;
use crate::outgoing::Outgoing;
use crate::recorder::Recorder;
use crate::request::{EncodedRequest, RequestFault, longest, requests};
use crate::rows::Rows;
use crate::slice::{Message, PhaseEnd, SLICES, Slice};
use crate::thread::{LoadThread, PhaseShare, SharedState, request_short_slices, run_phases};
use crate::tls::{Secured, Tls, TlsError};
use crate::usage::process_cpu;

/// The reason why a worker could not run.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A request cannot be sent.
    #[error("invalid request: {0}")]
    EncodedRequest(#[from] RequestFault),
    /// TLS cannot be configured as planned.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A required system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A load thread panicked and printed its message to stderr.
    #[error("a load thread panicked; report the message above")]
    Thread,
}

impl WorkerError {
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| WorkerError::System { what, source }
    }
}

/// Returns the limit on open files that a plan's load process needs.
///
/// # Errors
/// A request cannot be sent.
pub fn files_needed(plan: &Plan) -> Result<u64, RequestFault> {
    Ok(budget::files_needed(plan, sockets(plan)?))
}

/// Returns where a plan's load process keeps its sockets on this host.
///
/// # Errors
/// A request cannot be sent.
pub fn sockets(plan: &Plan) -> Result<SocketLocation, RequestFault> {
    let longest = longest(&requests(plan)?);
    Ok(match plan.backend {
        Backend::Epoll => SocketLocation::Files,
        // If io_uring does not work, the run itself reports the reason.
        Backend::Uring => {
            Uring::probe(1).map_or(SocketLocation::Files, |able| able.sockets(plan, longest))
        }
    })
}

/// Stops a running worker.
#[derive(Debug, Clone, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Ends the run immediately. The results so far are reported.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns the flag that the load threads read.
    pub(crate) fn shared(&self) -> &Arc<AtomicBool> {
        &self.0
    }

    /// Returns whether the run was stopped.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Interval between two looks at whether all events of a phase were emitted.
const EMIT_PAUSE: Duration = Duration::from_micros(200);

/// What a coordinator decides for a worker that is one of its agents.
pub struct Coordinated<'a> {
    /// Waits until a phase shall start, and returns this time on the given clock.
    pub await_start: &'a (dyn Fn(&Clock) -> Ns + Sync),
    /// Destination of the responses kept for a check. Replaces the file named in the input.
    pub responses: &'a mut dyn Write,
}

/// Runs a plan. Calls `emit` for each event, from [`Event::Ready`] to [`Event::End`].
/// `coordinated` is `None` if a single worker sends the whole load.
///
/// # Errors
/// Fails if a request is invalid, or if the kernel refuses a required system call.
pub fn run(
    mut input: WorkerInput,
    files: Option<FileLimit>,
    stop: &StopFlag,
    coordinated: Option<Coordinated<'_>>,
    mut emit: impl FnMut(Event),
) -> Result<(), WorkerError> {
    let requests = requests(&input.plan)?;
    input.forget_bodies();
    let plan = &input.plan;
    let agent = input.share.unwrap_or(AgentShare::WHOLE);
    // Each thread of each agent needs a connection.
    let threads = (plan.connections / agent.count.max(1)).clamp(1, plan.threads.max(1));
    let (await_start, responses) = match coordinated {
        Some(by) => (by.await_start, Some(by.responses)),
        None => (&Clock::now as &(dyn Fn(&Clock) -> Ns + Sync), None),
    };
    // Other processes read times that are not earlier than those of this clock.
    let (clock_origin_ns, clock) = (monotonic_ns(), Clock::start());
    let job = Job {
        input: &input,
        requests,
        tls: (plan.tls.as_ref().map(|tls| Tls::new(tls, &input.anchors))).transpose()?,
        threads,
        agent,
        await_start,
        phases: if !plan.warmup.is_zero() {
            &[Phase::Warmup, Phase::Measure]
        } else {
            &[Phase::Measure]
        },
        shared: SharedState::new(threads, Arc::clone(&stop.0), clock, input.first_number),
    };
    let groups = groups(plan);
    // Encode a histogram before the clock starts, so that the memory for compressing rows is
    // already allocated.
    drop(Slice::new(0, 0).times[0].encode());
    // The channel has room for every slice in circulation and for each phase's messages, so that no
    // thread waits under load.
    // Messages about opening connections are sent before the load starts, so they may wait for the
    // gatherer.
    let room = threads as usize * (SLICES + 2 * job.phases.len());
    let (out, messages) = sync_channel(room);
    let (give_back, returns): (Vec<_>, Vec<_>) =
        (0..threads).map(|thread| stocked(thread, groups)).unzip();
    emit(Event::Ready(WorkerReady {
        pid: std::process::id(),
        notices: Vec::new(),
        fd_limit: files.map(|files| files.now),
        fd_limit_before: files.map(|files| files.before),
        clock_origin_ns: Some(clock_origin_ns),
    }));

    let (ends, cores) = thread::scope(|scope| -> Result<_, WorkerError> {
        let mut handles = Vec::new();
        for (thread, returned) in (0..threads).zip(returns) {
            let (job, out) = (&job, out.clone());
            let handle = thread::Builder::new()
                .name(format!("load-{thread}"))
                .spawn_scoped(scope, move || job.load_thread(thread, returned, &out))
                .map_err(WorkerError::system("starting a load thread"))?;
            handles.push(handle);
        }
        drop(out);
        let mut gatherer = Gatherer::new(give_back, Rows::of(plan), groups);
        let mut opening = Opening::new(plan, threads, agent);
        let ends: Result<Vec<_>, _> = job
            .phases
            .iter()
            .map(|phase| {
                let result = gather(*phase, &mut opening, &mut gatherer, &messages, &mut emit);
                job.shared.emitted.fetch_add(1, Ordering::Release);
                result
            })
            .collect();
        // Drop the gatherer, so that no thread keeps waiting for slices after a failure.
        drop(gatherer);
        let mut cores = Vec::new();
        for handle in handles {
            cores.extend(handle.join().map_err(|_| WorkerError::Thread)?);
        }
        Ok((ends?, cores))
    })?;
    let next_number = job.shared.next_number.load(Ordering::Relaxed);
    let end = job
        .end(ends, &cores, next_number, responses)
        .map_err(WorkerError::system(
            "writing the responses kept for the check",
        ))?;
    emit(Event::End(end));
    Ok(())
}

/// Creates a channel that contains a thread's spare slices.
pub(crate) fn stocked(thread: u32, groups: usize) -> (Sender<Box<Slice>>, Receiver<Box<Slice>>) {
    let (sender, receiver) = channel();
    // The thread creates its first slice itself.
    for _ in 1..SLICES {
        // The receiver exists, so this cannot fail.
        let _ = sender.send(Box::new(Slice::new(thread, groups)));
    }
    (sender, receiver)
}

/// Returns the number of groups in a plan, which is 0 without a mix.
fn groups(plan: &Plan) -> usize {
    plan.mix.as_ref().map_or(0, |mix| mix.requests.len())
}

/// Returns the part of `total` for thread `thread` of `threads`.
fn split(total: u64, (thread, threads): (u32, u32)) -> u64 {
    let (thread, threads) = (u64::from(thread), u64::from(threads));
    total / threads + u64::from(thread < total % threads)
}

/// Returns the maximum number of connections that a thread may open.
pub(crate) fn cap(plan: &Plan, share: ThreadShare) -> usize {
    split(plan.connections.max(1).into(), share.overall()) as usize
}

/// Inputs that all phases and threads of a worker have in common.
struct Job<'a> {
    input: &'a WorkerInput,
    requests: Vec<EncodedRequest>,
    tls: Option<Tls>,
    threads: u32,
    agent: AgentShare,
    /// Waits until a phase shall start, and returns this time.
    await_start: &'a (dyn Fn(&Clock) -> Ns + Sync),
    phases: &'static [Phase],
    shared: SharedState,
}

/// A load thread whose backend does not exist yet.
struct StartingThread<'a> {
    job: &'a Job<'a>,
    number: u32,
    core: Core,
    out: &'a SyncSender<Message>,
}

/// The result of a phase.
#[derive(Default)]
struct PhaseResult {
    totals: GroupRow,
    threads: Vec<PhaseEnd>,
    cpu: (f64, f64),
}

impl Job<'_> {
    fn share(&self, thread: u32) -> ThreadShare {
        ThreadShare {
            thread,
            threads: self.threads,
            agent: self.agent,
        }
    }

    /// Waits until all events of the first `phases` phases have been emitted, so that an agent sends
    /// `waiting` only after them.
    fn await_emitted(&self, phases: usize) {
        let shared = &self.shared;
        while shared.emitted.load(Ordering::Acquire) < phases
            && !shared.stop.load(Ordering::Relaxed)
        {
            thread::sleep(EMIT_PAUSE);
        }
    }

    fn load_thread(
        &self,
        number: u32,
        returned: Receiver<Box<Slice>>,
        out: &SyncSender<Message>,
    ) -> Option<Core> {
        let plan = &self.input.plan;
        let first = Box::new(Slice::new(number, groups(plan)));
        let deadline = plan.deadline.as_nanos() as Ns;
        let recorder = Recorder::new(first, out.clone(), returned, deadline, Rows::of(plan));
        let share = self.share(number);
        let cap = cap(plan, share);
        let core = Core::new(plan, share, cap, recorder);
        let thread = StartingThread {
            job: self,
            number,
            core: core.outlasting_server(self.input.outlasts_server),
            out,
        };
        let clock = self.shared.clock;
        // In the closed model, the thread is usually the bottleneck, and timestamps would take CPU
        // time for each response.
        let stamped = plan.is_open();
        match plan.backend {
            Backend::Epoll => thread.protect(epoll(plan, clock, stamped)),
            Backend::Uring => {
                let uring = uring(plan, &self.requests, cap, clock);
                thread.protect(uring.map(|uring| if stamped { uring.stamped() } else { uring }))
            }
        }
    }
}

/// Creates the epoll backend of a load thread.
pub(crate) fn epoll(plan: &Plan, clock: Clock, stamped: bool) -> io::Result<Epoll> {
    Epoll::new(clock, &targets(plan), stamped)
}

/// Creates the io_uring backend of a load thread that opens at most `cap` connections.
pub(crate) fn uring(
    plan: &Plan,
    requests: &[EncodedRequest],
    cap: usize,
    clock: Clock,
) -> io::Result<Uring> {
    // The last handshake message and the request that follows are consecutive small writes, which
    // Nagle's algorithm would delay. Like very long requests, TLS therefore needs sockets with
    // TCP_NODELAY.
    let longest = match plan.tls {
        Some(_) => usize::MAX,
        None => longest(requests),
    };
    Uring::new(clock, &targets(plan), cap, longest)
        .map_err(|error| io::Error::other(unavailable(&error)))
}

fn targets(plan: &Plan) -> Vec<Address> {
    plan.target.addresses().collect()
}

impl StartingThread<'_> {
    /// Wraps the backend in TLS if the plan requires TLS.
    fn protect<B: IoBackend>(self, backend: io::Result<B>) -> Option<Core> {
        let Some(tls) = &self.job.tls else {
            return self.drive(backend);
        };
        let clock = self.job.shared.clock;
        self.drive(backend.map(|inner| Secured::new(clock, inner, tls)))
    }

    /// Runs the thread with its backend through the phases.
    fn drive<B: IoBackend>(self, backend: io::Result<B>) -> Option<Core> {
        let StartingThread {
            job,
            number,
            core,
            out,
        } = self;
        let (plan, shared) = (&job.input.plan, &job.shared);
        if plan.is_open() {
            // Only the open model has requests that become due while the thread sleeps. If the
            // kernel refuses short slices, the lateness shows the effect.
            let _ = request_short_slices();
        }
        let made = backend.and_then(|backend| {
            let outgoing = Outgoing::new(&job.requests, plan.seed);
            let mut thread = LoadThread::new(shared.clock, core, backend, outgoing);
            // Sending fails only after the receiver is dropped. The message is then not needed.
            let report = |counts| drop(out.send(Message::Opening(number, counts)));
            thread.prepare(shared, report)?;
            Ok(thread)
        });
        let share = job.share(number);
        let share = PhaseShare {
            share,
            requests: plan.request_limit().map(|n| split(n, share.overall())),
        };
        let start = |phase| {
            job.await_emitted(phase);
            (job.await_start)(&shared.clock)
        };
        run_phases(made, plan, job.phases, share, start, shared, out)
    }
}

/// Emits a phase's parts and rows until all threads have ended the phase.
fn gather(
    phase: Phase,
    opening: &mut Opening,
    gatherer: &mut Gatherer,
    messages: &Receiver<Message>,
    emit: &mut impl FnMut(Event),
) -> Result<PhaseResult, WorkerError> {
    let mut cpu = (0.0, 0.0);
    let mut ends = Vec::new();
    let mut failed = None;
    let mut running = gatherer.back.len();
    while running > 0 {
        match messages.recv() {
            Ok(Message::Opening(thread, counts)) => {
                if let Some(progress) = opening.take(thread, counts) {
                    emit(Event::Connecting(progress));
                }
            }
            Ok(Message::Began(at_ns, used)) => {
                cpu = used;
                gatherer.begin(phase, used);
                emit(Event::Began { phase, at_ns });
            }
            Ok(Message::Slice(slice)) => gatherer.take(slice).into_iter().for_each(&mut *emit),
            Ok(Message::End(thread, end)) => {
                gatherer.ended(thread).into_iter().for_each(&mut *emit);
                running -= 1;
                match end {
                    Ok(end) => ends.push(*end),
                    Err(error) => failed = Some(error),
                }
            }
            Err(_) => return Err(WorkerError::Thread),
        }
    }
    let used = process_cpu();
    if let Some(error) = failed {
        return Err(WorkerError::system("waiting for sockets")(error));
    }
    let ended = ends.iter().map(|end| end.ended).max().unwrap_or(0);
    let (events, totals) = gatherer.end(ended);
    events.into_iter().for_each(emit);
    Ok(PhaseResult {
        totals,
        threads: ends,
        cpu: (used.0 - cpu.0, used.1 - cpu.1),
    })
}

/// The progress that the threads have reported.
#[derive(Debug)]
pub struct Opening {
    of: u64,
    threads: Vec<(u64, u64)>,
    /// Whether each thread has reported since the last event.
    reported: Vec<bool>,
}

impl Opening {
    /// Creates the progress for an agent's `threads` threads, which open a plan's connections in
    /// advance.
    #[must_use]
    pub fn new(plan: &Plan, threads: u32, agent: AgentShare) -> Self {
        let of = |thread| {
            let share = ThreadShare {
                thread,
                threads,
                agent,
            };
            ready_connections(plan, share.overall().1, cap(plan, share)) as u64
        };
        Opening {
            of: (0..threads).map(of).sum(),
            threads: vec![(0, 0); threads as usize],
            reported: vec![false; threads as usize],
        }
    }

    /// Records how many connections a thread has opened and failed to open.
    /// Returns an event when a thread reports for the second time since the last event.
    pub fn take(&mut self, thread: u32, (standing, failed): (u64, u64)) -> Option<Connecting> {
        let thread = thread as usize;
        let again = std::mem::replace(&mut self.reported[thread], true);
        let event = again.then(|| self.event());
        if again {
            self.reported.fill(false);
            self.reported[thread] = true;
        }
        self.threads[thread] = (standing, failed);
        event
    }

    fn event(&self) -> Connecting {
        let sum = |of: fn(&(u64, u64)) -> u64| self.threads.iter().map(of).sum();
        Connecting {
            standing: sum(|counts| counts.0),
            failed: sum(|counts| counts.1),
            of: self.of,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{closed_plan, held_plan, open_plan};
    use floodmark_record::plan::{Arrivals, ConnectionUse};

    #[test]
    fn reports_once_per_round() {
        let mut opening = Opening::new(&closed_plan(1000, 1), 2, AgentShare::WHOLE);
        assert_eq!(opening.take(0, (100, 0)), None);
        assert_eq!(opening.take(1, (90, 3)), None);
        let first = opening.take(1, (200, 4)).unwrap();
        assert_eq!((first.standing, first.failed, first.of), (190, 3, 1000));
        assert_eq!(opening.take(0, (220, 0)), None);
        // A thread that has opened all its connections stops reporting.
        assert_eq!(opening.take(0, (500, 0)).unwrap().standing, 420);
    }

    #[test]
    fn awaits_only_connections_opened_ahead() {
        let open = |rate| open_plan(Arrivals::Constant, rate, Some(1.0), None);
        for (plan, expected) in [
            (closed_plan(1001, 1), 1001),
            (open(1000.0), 4),
            (open(10_000.0), 20),
            (held_plan(open(1000.0)), 1000),
            (
                Plan {
                    connection_use: ConnectionUse::Fresh,
                    ..closed_plan(10, 1)
                },
                0,
            ),
        ] {
            assert_eq!(
                Opening::new(&plan, 4, AgentShare::WHOLE).of,
                expected,
                "{plan:?}"
            );
        }
    }
}
