//! Starts a server on post-crash images and checks what it recovers.

mod server;

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_host::{ChildError, failure_line};
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::model::{Crash, DiskHistory, Fate, Persistence, below};
use crate::probe::{RecoveryProbe, ServerCommand};
use crate::trace::Trace;
use server::ImageOutcome;

pub use server::check_space;

/// Maximum number of failures whose missing effects are reduced.
const MAX_REDUCED: usize = 3;
/// Maximum number of server starts to reduce one failure.
const MAX_REDUCING_STARTS: usize = 200;

/// An error of the test itself. Failures of the server are part of the report.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// The directory for the images cannot be written.
    #[error("cannot write {}: {source}; free up disk space, or choose another directory", .path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The listening sockets cannot be listed.
    #[error("cannot list the listening sockets: {0}; load the kernel module tcp_diag")]
    Listeners(io::Error),
    /// No local port is available.
    #[error("another process listens on each port from 10000 to 29999; stop some processes")]
    NoFreePort,
    /// The server cannot be started or stopped.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// The started server does not listen on its address, but another process does.
    #[error(
        "{0}: another process listens here, not the started server; in the server command, pass \
         the listen address to the server, and keep the server in the foreground"
    )]
    ForeignServer(SocketAddr),
    /// The server does not start on the directory that contains all its writes.
    #[error(
        "the server does not start on its own complete directory: {0}; check that the server can \
         restart after kill -9"
    )]
    NotRestarted(String),
    /// The server returns all acknowledged data even from a directory that lacks its writes.
    #[error(
        "the server returns all acknowledged data even from a directory that lacks its writes, so \
         the test proves nothing; make the server keep all its data in {{run}}"
    )]
    StoredElsewhere,
}

/// A test of a server on post-crash images.
#[derive(Debug)]
pub struct ImageTest<'a, P> {
    /// Trace of the server under load.
    pub trace: &'a Trace,
    /// Starts the server on an image.
    pub server: &'a ServerCommand,
    /// Reads back what the server had acknowledged.
    pub probe: &'a P,
    /// Which directory entries a sync makes durable.
    pub persistence: Persistence,
    /// Directory for the images. A memory-backed file system is fastest.
    pub scratch: &'a Path,
    /// Number of images. The first one has all effects, later ones are drawn at random.
    pub images: u64,
    /// Seed of the crash points and fates. The same trace and seed give the same images.
    pub seed: u64,
    /// Number of servers that run at the same time.
    pub threads: usize,
    /// Whether to run two controls. On the image with all effects, the server must start. On the
    /// image without any effect, it must not return everything that it had acknowledged. If it
    /// fails a control, the test proves nothing.
    pub has_controls: bool,
}

impl<P: RecoveryProbe> ImageTest<'_, P> {
    /// Runs the test. If `stop` becomes true, returns the result so far. Its failures may then list
    /// missing effects that are not needed to reproduce them.
    ///
    /// # Errors
    /// An image cannot be written, the server cannot be started, or it fails a control.
    pub fn run(&self, stop: &AtomicBool) -> Result<ImageReport, TestError> {
        let history = DiskHistory::new(self.trace, self.persistence);
        let points = CrashPoints::new(self.trace);
        let (next, is_failed) = (AtomicU64::new(1), AtomicBool::new(false));
        let report = Mutex::new(ImageReport::default());
        let begin = Instant::now();
        if self.images > 0 && !stop.load(Ordering::Relaxed) {
            // A probe may change state outside the directory, so test the image without any effect
            // first.
            if self.has_controls {
                self.check_base(&history)?;
            }
            let crash = Crash::new(&history, points.last_answered);
            let fates = vec![Fate::Kept; crash.effects.len()];
            let outcome = self.test(0, &crash, fates, &report)?;
            if self.has_controls {
                check_complete(outcome)?;
            }
        }
        let work = |worker: usize| -> Result<(), TestError> {
            while !stop.load(Ordering::Relaxed) && !is_failed.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= self.images {
                    break;
                }
                let mut random = self.random(number);
                let crash = Crash::new(&history, points.draw(&mut random));
                let fates = crash.draw(&mut random);
                let result = self.test(worker, &crash, fates, &report);
                is_failed.fetch_or(result.is_err(), Ordering::Relaxed);
                result?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let start = |worker| {
                let work = &work;
                scope.spawn(move || work(worker))
            };
            let threads = Vec::from_iter((0..self.threads.max(1)).map(start));
            threads.into_iter().try_for_each(|thread| {
                let result = thread.join();
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
        report.elapsed = begin.elapsed();
        report.failures.sort_by_key(|failure| failure.at);
        for failure in report.failures.iter_mut().take(MAX_REDUCED) {
            self.reduce(&history, failure, stop)?;
        }
        Ok(report)
    }

    /// Returns the random number generator for an image.
    fn random(&self, number: u64) -> Xoshiro256PlusPlus {
        // An odd factor maps different numbers to different states.
        let state = self.seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d);
        Xoshiro256PlusPlus::seed_from_u64(state)
    }

    fn test(
        &self,
        worker: usize,
        crash: &Crash<'_>,
        fates: Vec<Fate>,
        report: &Mutex<ImageReport>,
    ) -> Result<ImageOutcome, TestError> {
        let begin = Instant::now();
        let image = crash.image(&fates);
        let sent = self.trace.sent_before(crash.at);
        let acknowledged = self.probe.acknowledged(&sent);
        let outcome = self.try_image(worker, &image, &acknowledged)?;
        let took = begin.elapsed();
        let mut hasher = DefaultHasher::new();
        image.hash(&mut hasher);
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        report.add(hasher.finish(), &outcome, took);
        if let Some(reason) = outcome.failure() {
            let missing = crash.describe(&fates);
            report.add_failure(ImageFailure {
                at: crash.at,
                fates,
                reason: reason.to_owned(),
                missing,
            });
        }
        Ok(outcome)
    }

    /// Tests the image without any effect.
    fn check_base(&self, history: &DiskHistory<'_>) -> Result<(), TestError> {
        let base = Crash::new(history, 0).image(&[]);
        let acknowledged = self.probe.acknowledged(&self.trace.sent(|_| true));
        match self.try_image(0, &base, &acknowledged)? {
            ImageOutcome::Recovered => Err(TestError::StoredElsewhere),
            _ => Ok(()),
        }
    }

    /// Restores as many missing effects as possible while the server still fails, so that the
    /// remaining ones explain the failure. Stops early if `stop` becomes true.
    fn reduce(
        &self,
        history: &DiskHistory<'_>,
        failure: &mut ImageFailure,
        stop: &AtomicBool,
    ) -> Result<(), TestError> {
        let is_running = || !stop.load(Ordering::Relaxed);
        let crash = Crash::new(history, failure.at);
        let acknowledged = self.probe.acknowledged(&self.trace.sent_before(failure.at));
        let is_missing = |fates: &[Fate], index: &usize| fates[*index] != Fate::Kept;
        let mut starts = 0;
        let mut chunk = failure.fates.len().max(1);
        while chunk > 0 && starts < MAX_REDUCING_STARTS && is_running() {
            let missing =
                (0..failure.fates.len()).filter(|index| is_missing(&failure.fates, index));
            let missing: Vec<usize> = missing.collect();
            let parts = missing.chunks(chunk).take(MAX_REDUCING_STARTS - starts);
            for part in parts.take_while(|_| is_running()) {
                let mut fates = failure.fates.clone();
                part.iter().for_each(|index| fates[*index] = Fate::Kept);
                let image = crash.image(&fates);
                starts += 1;
                let outcome = self.try_image(0, &image, &acknowledged)?;
                if let Some(reason) = outcome.failure() {
                    failure.fates = fates;
                    failure.reason = reason.to_owned();
                }
            }
            chunk /= 2;
        }
        failure.missing = crash.describe(&failure.fates);
        Ok(())
    }
}

/// Checks the outcome on the image that contains all effects from before the shutdown. A server
/// that starts passes this control even if it lost something, because the loss is reported as a
/// failure.
fn check_complete(outcome: ImageOutcome) -> Result<(), TestError> {
    match outcome {
        ImageOutcome::Recovered | ImageOutcome::Lost(_) => Ok(()),
        ImageOutcome::Refused(what) | ImageOutcome::Crashed(what) | ImageOutcome::Failed(what) => {
            let line = failure_line(&what).unwrap_or(what);
            Err(TestError::NotRestarted(line))
        }
    }
}

/// Number of crash points that are considered close to the injected error before them.
const SOON: usize = 16;

/// The crash points of a trace.
///
/// In a trace with an injected error, no points before the error are used, because the test without
/// errors covers them. Half of the crash points are drawn from the first [`SOON`] of the remaining
/// points. The next write can make the lost data durable after all, so a server that ignores the
/// error often loses data only in a crash before this write.
#[derive(Debug)]
struct CrashPoints {
    all: Vec<u64>,
    soon: usize,
    /// The last crash point that is not later than the end of the last send to a TCP peer. It
    /// precedes the shutdown of the server, which may remove a file that prevents a restart.
    last_answered: u64,
}

impl CrashPoints {
    fn new(trace: &Trace) -> Self {
        let mut all = trace.crash_points();
        let error = trace.first_error;
        let answered = trace.last_send();
        let last_answered = all.iter().rev().find(|at| **at <= answered);
        let last_answered = last_answered.copied().unwrap_or(0);
        // The error itself is a point.
        all.retain(|at| error.is_none_or(|error| *at >= error));
        CrashPoints {
            soon: error.map_or(all.len(), |_| SOON.min(all.len())),
            all,
            last_answered,
        }
    }

    /// Draws a crash point.
    fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let among = match below(random, 2) {
            0 => self.soon,
            _ => self.all.len(),
        };
        self.all[below(random, among)]
    }
}

/// Maximum number of failures, and of distinct refusals, in a report.
const MAX_LISTED: usize = 100;

/// Result of a test on post-crash images.
#[derive(Debug, Clone, Default)]
pub struct ImageReport {
    /// Number of images on which the server was started.
    pub images: u64,
    /// Number of images on which the server returned everything that it had acknowledged.
    pub recovered: u64,
    /// Number of images that the server refused with a message.
    pub refused: u64,
    /// Number of images on which the server lost an acknowledged write, returned something that was
    /// never written, crashed, did not respond, or exited without an error message.
    pub failed: u64,
    /// Number of images on which the server crashed; also counted in `failed`.
    pub crashed: u64,
    /// Number of refusals, grouped by the line of the server's message that best explains the
    /// refusal.
    pub refusals: BTreeMap<String, u64>,
    /// The first failures, in the order of their crash points.
    pub failures: Vec<ImageFailure>,
    /// Test time of the slowest image.
    pub longest: Duration,
    /// Total test time of all images. It can exceed `elapsed`, because images are tested in
    /// parallel.
    pub total: Duration,
    /// Time of the whole test.
    pub elapsed: Duration,
    distinct: HashSet<u64>,
}

/// An image on which the server failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFailure {
    /// Crash point, as a position in the trace.
    pub at: u64,
    /// Fates of the effects that were not durable.
    pub fates: Vec<Fate>,
    /// What the server lost, or how it failed.
    pub reason: String,
    /// Effects that were lost, one line each.
    pub missing: Vec<String>,
}

impl ImageReport {
    /// Returns the number of distinct images.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.distinct.len()
    }

    /// Returns the mean time to build an image, start the server on it, and read the data back.
    #[must_use]
    pub fn mean(&self) -> Duration {
        match u32::try_from(self.images) {
            Ok(images) if images > 0 => self.total / images,
            _ => Duration::ZERO,
        }
    }

    fn add(&mut self, digest: u64, outcome: &ImageOutcome, took: Duration) {
        self.images += 1;
        self.distinct.insert(digest);
        self.total += took;
        self.longest = self.longest.max(took);
        self.failed += u64::from(outcome.failure().is_some());
        match outcome {
            ImageOutcome::Recovered => self.recovered += 1,
            ImageOutcome::Crashed(_) => self.crashed += 1,
            ImageOutcome::Lost(_) | ImageOutcome::Failed(_) => {}
            ImageOutcome::Refused(message) => {
                self.refused += 1;
                let line = failure_line(message).unwrap_or_default();
                if self.refusals.len() < MAX_LISTED || self.refusals.contains_key(&line) {
                    *self.refusals.entry(line).or_default() += 1;
                }
            }
        }
    }

    fn add_failure(&mut self, failure: ImageFailure) {
        if self.failures.len() < MAX_LISTED {
            self.failures.push(failure);
        }
    }
}
