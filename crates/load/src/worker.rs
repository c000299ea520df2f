//! A complete load process: its threads, its gatherer and the events that it emits.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Duration;

use floodmark_record::events::{AnswersFile, Connecting, Phase, WorkerReady};
use floodmark_record::plan::{Backend, Plan};
use floodmark_record::worker_input::{AgentShare, WorkerInput};
use floodmark_record::{Event, WorkerEnd};

use crate::backend::IoBackend;
use crate::backend::epoll::Epoll;
use crate::backend::uring::{Uring, unavailable};
use crate::budget::{self, FileLimit, SocketLocation};
use crate::clock::{Clock, Ns, monotonic_ns};
use crate::core::{Core, ready_connections};
use crate::gather::Gatherer;
use crate::judge::{NO_VALUE, NOT_A_NUMBER, NOT_A_SCORE};
use crate::kept_responses::KeptResponses;
use crate::outgoing::Outgoing;
use crate::recorder::Recorder;
use crate::request::{PlanRequests, RequestFault};
use crate::request_log::{RequestLog, RequestLogWriter, request_logs};
use crate::rows::Rows;
use crate::schedule::ThreadShare;
use crate::slice::{GroupTimes, Message, SLICES, Slice};
use crate::thread::{LoadThread, SharedState, run_phases};
use crate::tls::{Secured, Tls, TlsError};
use crate::usage::{peak_rss_bytes, process_cpu, request_short_slices};

pub use crate::rate_control::RateControl;

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
    let longest = PlanRequests::of(plan)?.longest();
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

    /// Returns whether the run was stopped.
    #[inline]
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Polling interval while waiting until all events of a phase have been emitted.
const EMIT_PAUSE: Duration = Duration::from_micros(200);

/// What a coordinator provides to a worker that is one of its agents.
pub struct Coordinated<'a> {
    /// Waits until a phase is due to start, and returns the start time on the given clock.
    pub await_start: &'a (dyn Fn(&Clock) -> Ns + Sync),
    /// Destination of the responses kept for a check. Replaces the file named in the input.
    pub responses: &'a mut dyn Write,
}

/// Runs a plan. Calls `emit` for each event, from [`Event::Ready`] to [`Event::End`].
/// `rates` can change the rate of the measurement. `coordinated` is `None` if a single worker sends
/// the whole load.
///
/// # Errors
/// Fails if a request is invalid, or if the kernel refuses a required system call.
pub fn run(
    mut input: WorkerInput,
    files: Option<FileLimit>,
    stop: &StopFlag,
    rates: &RateControl,
    coordinated: Option<Coordinated<'_>>,
    mut emit: impl FnMut(Event),
) -> Result<(), WorkerError> {
    let requests = PlanRequests::of(&input.plan)?;
    input.forget_bodies();
    let plan = &input.plan;
    let agent = input.share.unwrap_or(AgentShare::WHOLE);
    // Each thread of each agent needs a connection.
    let threads = (plan.connections / agent.count.max(1)).clamp(1, plan.threads.max(1));
    let (await_start, responses) = match coordinated {
        Some(by) => (by.await_start, Some(by.responses)),
        None => (&Clock::now as &(dyn Fn(&Clock) -> Ns + Sync), None),
    };
    // The origin is read before the clock starts. A time of this clock, converted with the origin,
    // is therefore never in the future for other processes.
    let (clock_origin_ns, clock) = (monotonic_ns(), Clock::start());
    let job = Job {
        input: &input,
        requests,
        tls: Tls::of(plan, &input.credentials)?,
        await_start,
        phases: if !plan.warmup.is_zero() {
            &[Phase::Warmup, Phase::Measure]
        } else {
            &[Phase::Measure]
        },
        shared: SharedState {
            rates: rates.clone(),
            ..SharedState::new(threads, stop.clone(), clock, input.first_number)
        },
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

    let (ends, cores, request_log) = thread::scope(|scope| -> Result<_, WorkerError> {
        let log = input.request_log.as_ref();
        let (logs, writer) = log.map(|log| request_logs(log, plan, threads)).unzip();
        let writer = writer.map(|writer: RequestLogWriter<'_>| {
            let builder = thread::Builder::new().name("request-log".to_owned());
            let spawned = builder.spawn_scoped(scope, move || writer.run());
            spawned.map_err(WorkerError::system(
                "starting the thread for the request log",
            ))
        });
        let writer = writer.transpose()?;
        let mut logs = logs.into_iter().flatten();
        let mut handles = Vec::new();
        for (share, returned) in ThreadShare::of_agent(agent, threads).zip(returns) {
            let (job, out) = (&job, out.clone());
            let log = logs.next();
            let handle = thread::Builder::new()
                .name(format!("load-{}", share.thread))
                .spawn_scoped(scope, move || job.load_thread(share, returned, log, &out))
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
                let result = gather(
                    *phase,
                    &mut opening,
                    &mut gatherer,
                    &messages,
                    rates,
                    &mut emit,
                );
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
        let request_log = writer.map(|writer| writer.join().map_err(|_| WorkerError::Thread));
        Ok((ends?, cores, request_log.transpose()?))
    })?;
    let end = job.end(ends, &cores, responses);
    let writing = WorkerError::system("writing the responses kept for the check");
    let end = WorkerEnd {
        request_log,
        ..end.map_err(writing)?
    };
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

/// Inputs that all phases and threads of a worker share.
struct Job<'a> {
    input: &'a WorkerInput,
    requests: PlanRequests,
    tls: Option<Tls>,
    /// Waits until a phase is due to start, and returns the start time.
    await_start: &'a (dyn Fn(&Clock) -> Ns + Sync),
    phases: &'static [Phase],
    shared: SharedState,
}

/// A load thread whose backend does not exist yet.
struct StartingThread<'a> {
    job: &'a Job<'a>,
    share: ThreadShare,
    core: Core,
    out: &'a SyncSender<Message>,
}

impl Job<'_> {
    /// Waits until all events of the first `phases` phases have been emitted, so that an agent
    /// sends `waiting` only after them.
    fn await_emitted(&self, phases: usize) {
        let shared = &self.shared;
        while shared.emitted.load(Ordering::Acquire) < phases && !shared.stop.is_set() {
            thread::sleep(EMIT_PAUSE);
        }
    }

    fn load_thread(
        &self,
        share: ThreadShare,
        returned: Receiver<Box<Slice>>,
        log: Option<RequestLog>,
        out: &SyncSender<Message>,
    ) -> Option<Core> {
        let plan = &self.input.plan;
        let first = Slice::new(share.thread, groups(plan));
        let recorder = Recorder::new(plan, first, out.clone(), returned);
        let mut core = Core::new(plan, share, recorder, &self.requests);
        core.outlasts_server = self.input.outlasts_server;
        core.request_log = log;
        let thread = StartingThread {
            job: self,
            share,
            core,
            out,
        };
        let sides = [(plan, &self.requests)];
        with_backends(sides, self.tls.as_ref(), share, self.shared.clock, thread)
    }
}

/// The work of a load thread that has a backend for each of `N` servers.
pub(crate) trait BackendWork<const N: usize> {
    /// The result of the work.
    type Done;

    /// Does the work with any kind of backend.
    fn run<B: IoBackend>(self, backends: [io::Result<B>; N]) -> Self::Done;
}

/// Runs a thread's work with a backend for each server. The plans for all servers must have the
/// same backend and the same TLS settings.
pub(crate) fn with_backends<const N: usize, W: BackendWork<N>>(
    servers: [(&Plan, &PlanRequests); N],
    tls: Option<&Tls>,
    share: ThreadShare,
    clock: Clock,
    work: W,
) -> W::Done {
    let addresses = |plan: &Plan| plan.target.addresses().collect::<Vec<_>>();
    // Timestamps take CPU time for each response. The closed model does without them, because the
    // thread is usually the bottleneck there.
    let epoll = |(plan, _): (&Plan, _)| Epoll::new(clock, &addresses(plan), plan.is_open());
    let uring = |(plan, requests): (&Plan, &PlanRequests)| {
        // The last handshake message and the request that follows are consecutive small writes,
        // which Nagle's algorithm would delay. Like very long requests, TLS therefore needs sockets
        // with TCP_NODELAY.
        let longest = tls.map_or_else(|| requests.longest(), |_| usize::MAX);
        match Uring::new(clock, &addresses(plan), share.connections(plan), longest) {
            Ok(uring) if plan.is_open() => Ok(uring.stamped()),
            made => made.map_err(|error| io::Error::other(unavailable(&error))),
        }
    };
    match servers[0].0.backend {
        Backend::Epoll => with_tls(servers.map(epoll), tls, clock, work),
        Backend::Uring => with_tls(servers.map(uring), tls, clock, work),
    }
}

/// Wraps the backends in TLS if required.
fn with_tls<const N: usize, B: IoBackend, W: BackendWork<N>>(
    backends: [io::Result<B>; N],
    tls: Option<&Tls>,
    clock: Clock,
    work: W,
) -> W::Done {
    let Some(tls) = tls else {
        return work.run(backends);
    };
    work.run(backends.map(|made| made.map(|inner| Secured::new(clock, inner, tls))))
}

impl BackendWork<1> for StartingThread<'_> {
    type Done = Option<Core>;

    /// Runs all phases on this thread with its backend.
    fn run<B: IoBackend>(self, [backend]: [io::Result<B>; 1]) -> Option<Core> {
        let StartingThread {
            job,
            share,
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
            let outgoing = Outgoing::new(job.requests.http1(), plan.seed);
            let mut thread = LoadThread::new(shared.clock, core, backend, outgoing);
            // Sending fails only after the receiver is dropped. The message is then not needed.
            let report = |counts| drop(out.send(Message::Opening(share.thread, counts)));
            thread.prepare(shared, report)?;
            Ok(thread)
        });
        let start = |phase| {
            job.await_emitted(phase);
            (job.await_start)(&shared.clock)
        };
        let mut core = run_phases(made, plan, job.phases, share, start, shared, out)?;
        if let Some(log) = core.request_log.take() {
            log.finish();
        }
        Some(core)
    }
}

/// Emits a phase's parts and rows until all threads have ended the phase.
fn gather(
    phase: Phase,
    opening: &mut Opening,
    gatherer: &mut Gatherer,
    messages: &Receiver<Message>,
    rates: &RateControl,
    emit: &mut impl FnMut(Event),
) -> Result<WorkerEnd, WorkerError> {
    let mut cpu = (0.0, 0.0);
    let mut sum = WorkerEnd::default();
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
            Ok(Message::Slice(slice)) => {
                let changes = rates.take_unreported().into_iter();
                changes.map(Event::RateChanged).for_each(&mut *emit);
                gatherer.take(slice).into_iter().for_each(&mut *emit);
            }
            Ok(Message::End(thread, end)) => {
                gatherer.ended(thread).into_iter().for_each(&mut *emit);
                running -= 1;
                match end {
                    Ok(end) => sum.merge(&end),
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
    let (events, totals) = gatherer.end(sum.ended_ns);
    events.into_iter().for_each(emit);
    Ok(WorkerEnd {
        counts: totals.counts,
        bytes_sent: totals.bytes_sent,
        bytes_received: totals.bytes_received,
        user_s: used.0 - cpu.0,
        system_s: used.1 - cpu.1,
        ..sum
    })
}

/// The threads' progress in opening connections, as reported so far.
#[derive(Debug)]
struct Opening {
    of: u64,
    threads: Vec<(u64, u64)>,
    /// For each thread, whether it has reported since the last event.
    reported: Vec<bool>,
}

impl Opening {
    /// Creates the progress for an agent's `threads` threads, which open a plan's connections in
    /// advance.
    pub fn new(plan: &Plan, threads: u32, agent: AgentShare) -> Self {
        let ready = |share| ready_connections(plan, share) as u64;
        Opening {
            of: ThreadShare::of_agent(agent, threads).map(ready).sum(),
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

impl Job<'_> {
    /// Combines the results of all phases, and writes the kept responses.
    ///
    /// # Errors
    /// Fails if the responses cannot be written.
    fn end(
        &self,
        mut phases: Vec<WorkerEnd>,
        cores: &[Core],
        responses: Option<&mut dyn Write>,
    ) -> io::Result<WorkerEnd> {
        let mut end = phases.pop().unwrap_or_default();
        if let Some(warmup) = phases.pop() {
            end.warmup_ns = warmup.ended_ns;
            end.warmup_counts = Some(warmup.counts);
        }
        let mut group_times = GroupTimes::new(groups(&self.input.plan));
        for core in cores {
            group_times.merge(&core.recorder.group_times);
            end.merge(&core.end());
        }
        end.not_numbers = [NOT_A_NUMBER, NOT_A_SCORE, NO_VALUE]
            .iter()
            .filter_map(|name| end.errors.get(*name))
            .sum();
        end.peak_rss_bytes = peak_rss_bytes();
        end.answers = self.write_kept_responses(cores, responses)?;
        end.groups = group_times.encode().collect();
        end.next_number = self.shared.next_number.load(Ordering::Relaxed);
        Ok(end)
    }

    /// Writes the kept responses to `responses`, or to the file that the input names.
    fn write_kept_responses(
        &self,
        cores: &[Core],
        responses: Option<&mut dyn Write>,
    ) -> io::Result<Option<AnswersFile>> {
        let Some(path) = &self.input.answers_file else {
            return Ok(None);
        };
        let mut file;
        let out: &mut dyn Write = match responses {
            Some(responses) => responses,
            None => {
                file = BufWriter::with_capacity(1 << 20, File::create(path)?);
                &mut file
            }
        };
        let line = KeptResponses::line(cores.iter().map(|core| &core.responses));
        let mut count = 0;
        for core in cores {
            core.responses.write(line, out)?;
            count += core.responses.count() as u64;
        }
        out.flush()?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Some(AnswersFile { file: name, count }))
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
