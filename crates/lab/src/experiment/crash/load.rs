//! The load of a crash round, which continues while the server is down.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};

use floodmark_host::{ProcessPlacement, Stop};
use floodmark_record::events::Phase;
use floodmark_record::worker_input::WorkerInput;
use floodmark_record::{Event, WorkerEnd};
use rustix::time::{ClockId, clock_gettime};

use floodmark_workers::{self as workers, WorkerFailure};

/// Returns the time of the host's monotonic clock in ns.
fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

/// A load that runs in its own process.
pub struct RunningLoad<'scope> {
    progress: Arc<Mutex<WorkerReports>>,
    stop: Stop,
    thread: ScopedJoinHandle<'scope, Result<(), WorkerFailure>>,
}

/// Ok responses in a part of a second.
#[derive(Debug, Clone, Copy)]
struct OkPart {
    /// Start, in ns since the start of the measurement.
    from_ns: u64,
    /// End, in ns since the start of the measurement.
    to_ns: u64,
    ok: u64,
}

/// What the worker has reported so far.
#[derive(Debug, Default)]
struct WorkerReports {
    /// Origin of the worker's clock on the host's monotonic clock.
    origin_ns: Option<u64>,
    /// Start of the measurement on the worker's clock.
    began_ns: Option<u64>,
    /// A part takes 24 bytes and lasts up to 100 ms, so an hour of load takes less than 1 MB.
    parts: Vec<OkPart>,
    end: Option<WorkerEnd>,
}

impl WorkerReports {
    fn take(&mut self, event: Event) {
        match event {
            Event::Ready(ready) => self.origin_ns = ready.clock_origin_ns,
            Event::Began {
                phase: Phase::Measure,
                at_ns,
            } => self.began_ns = Some(at_ns),
            Event::Part(part) if part.phase == Phase::Measure => self.parts.push(OkPart {
                from_ns: part.from_ns,
                to_ns: part.to_ns,
                ok: part.sums.counts.ok,
            }),
            Event::End(end) => self.end = Some(end),
            _ => {}
        }
    }
}

impl<'scope> RunningLoad<'scope> {
    /// Starts the load.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        scope: &'scope Scope<'scope, '_>,
        side: &'scope ProcessPlacement,
        input: &'scope WorkerInput,
    ) -> Result<Self, WorkerFailure> {
        let progress: Arc<Mutex<WorkerReports>> = Arc::default();
        let stop = Stop::new();
        let (reported, stopped) = (Arc::clone(&progress), stop.clone());
        // The thread that starts the worker waits until the worker ends, as `Child` requires.
        let thread = Builder::new().name("crash-load".to_owned());
        let thread = thread.spawn_scoped(scope, move || {
            workers::run(side, input, &stopped, |event| lock(&reported).take(event))
        });
        Ok(RunningLoad {
            progress,
            stop,
            thread: thread.map_err(WorkerFailure::Thread)?,
        })
    }

    /// Returns whether the load has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.is_finished()
    }

    /// Returns the start of the measurement on the worker's clock, once the measurement has
    /// started.
    pub fn began_ns(&self) -> Option<u64> {
        lock(&self.progress).began_ns
    }

    /// Returns the current time on the worker's clock.
    pub fn now_ns(&self) -> u64 {
        let origin = lock(&self.progress).origin_ns.unwrap_or(0);
        monotonic_ns().saturating_sub(origin)
    }

    /// Returns the mean number of ok responses per second between two times on the worker's clock.
    /// Returns `None` if no complete part lies between these times.
    pub fn rate_per_s(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let parts = self.parts(from_ns, to_ns);
        let (ok, ns) = parts.fold((0, 0), |(ok, ns), part| {
            (ok + part.ok, ns + part.to_ns - part.from_ns)
        });
        (ns > 0).then(|| ok as f64 / (ns as f64 / 1e9))
    }

    /// Returns the highest rate of ok responses in any single part since a time on the worker's
    /// clock.
    pub fn highest_rate_since(&self, from_ns: u64) -> f64 {
        let parts = self.parts(from_ns, u64::MAX);
        let rates = parts.map(|part| part.ok as f64 / ((part.to_ns - part.from_ns) as f64 / 1e9));
        rates.fold(0.0, f64::max)
    }

    fn parts(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = OkPart> + use<> {
        let progress = lock(&self.progress);
        let began = progress.began_ns.unwrap_or(0);
        let (from, to) = (from_ns.saturating_sub(began), to_ns.saturating_sub(began));
        let parts = progress.parts.iter().rev();
        let parts = parts.take_while(|part| part.from_ns >= from);
        let parts = parts.filter(|part| part.to_ns <= to && part.to_ns > part.from_ns);
        parts.copied().collect::<Vec<_>>().into_iter()
    }

    /// Ends the load and returns the worker's last event.
    ///
    /// # Errors
    /// The worker failed.
    pub fn end(self) -> Result<WorkerEnd, WorkerFailure> {
        self.stop.set();
        let ended = self.thread.join();
        ended.unwrap_or_else(|_| Err(WorkerFailure::Invalid("its reader panicked".to_owned())))?;
        let end = lock(&self.progress).end.take();
        end.ok_or_else(|| WorkerFailure::Invalid("no end of the run".to_owned()))
    }
}

fn lock(progress: &Mutex<WorkerReports>) -> MutexGuard<'_, WorkerReports> {
    progress.lock().unwrap_or_else(PoisonError::into_inner)
}
