//! The dispatcher's numbers. Numbers start at 1, and each number is handed out once, in order.
//! There are no gaps while the server runs.
//!
//! With a state file, only numbers below a limit on disk are handed out. A separate thread raises
//! the limit when half a block is left. A response waits for the disk only if a write takes longer
//! than handing out half a block:
//!
//! ```text
//!            handed out          │ free to hand out │ not reserved
//!  1 ───────────────────────── next ───────────── limit ──────────►
//!                                      ▲ half a block before the limit: wake the reserver
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::state_file::{StateError, StateFile, failed};

/// Maximum time to wait for a reservation. After this time, the server responds with a 503.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Pause before retrying a failed reservation.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Hands out numbers to all threads.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: AtomicU64,
    limit: AtomicU64,
    /// Threshold for waking the reserver, in remaining numbers: half a block.
    refill: u64,
    /// Whether the last reservation failed.
    failing: AtomicBool,
    /// Notified after each attempt to reserve numbers.
    changed: Notify,
    reserver: Sender<ReserverSignal>,
}

#[derive(Debug, PartialEq, Eq)]
enum ReserverSignal {
    /// Half a block is left.
    Refill,
    Stop,
}

impl Numbers {
    fn new(next: u64, limit: u64, block: u64) -> (Arc<Self>, Receiver<ReserverSignal>) {
        let (reserver, signals) = mpsc::channel();
        let numbers = Numbers {
            next: AtomicU64::new(next),
            limit: AtomicU64::new(limit),
            refill: (block / 2).max(1),
            failing: AtomicBool::new(false),
            changed: Notify::new(),
            reserver,
        };
        (Arc::new(numbers), signals)
    }

    /// Creates a counter that starts at 1 and has no state file.
    pub(crate) fn volatile() -> Arc<Self> {
        Self::new(1, u64::MAX, u64::MAX).0
    }

    /// Returns the next number without taking it.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Takes the next number if it is reserved.
    pub(crate) fn try_take(&self) -> Option<u64> {
        let mut number = self.next.load(Ordering::Relaxed);
        loop {
            // An outdated limit is safe, because the limit never decreases.
            let limit = self.limit.load(Ordering::Acquire);
            if number >= limit {
                return None;
            }
            match self.next.compare_exchange_weak(
                number,
                number + 1,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    // Exactly one caller per limit wakes the reserver.
                    if limit - number == self.refill {
                        self.signal(ReserverSignal::Refill);
                    }
                    return Some(number);
                }
                Err(newer) => number = newer,
            }
        }
    }

    /// Takes a number, waiting up to one second for a reservation if necessary. Returns `None` if
    /// no number can be reserved.
    pub(crate) async fn take(&self) -> Option<u64> {
        let until = Instant::now() + MAX_WAIT;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Enable the notification before the check, so that no change is missed.
            changed.as_mut().enable();
            if let Some(number) = self.try_take() {
                return Some(number);
            }
            if self.failing.load(Ordering::SeqCst) || self.limit.load(Ordering::SeqCst) == u64::MAX
            {
                return None;
            }
            timeout_at(until, changed).await.ok()?;
        }
    }

    fn needs_more(&self) -> bool {
        let limit = self.limit.load(Ordering::SeqCst);
        limit < u64::MAX && limit - self.next() < self.refill
    }

    fn signal(&self, signal: ReserverSignal) {
        // Sending fails only if there is no state file or the reserver has panicked.
        let _ = self.reserver.send(signal);
    }
}

/// Reserves numbers in advance on a separate thread.
#[derive(Debug)]
pub(crate) struct Reserver {
    numbers: Arc<Numbers>,
    thread: JoinHandle<StateFile>,
}

impl Reserver {
    /// Opens the state file, and reserves the first block of numbers.
    pub(crate) fn start(path: &Path, block: u64) -> Result<(Arc<Numbers>, Self), StateError> {
        let (file, next) = StateFile::open(path)?;
        let limit = next
            .checked_add(block)
            .ok_or_else(|| StateError::Exhausted(path.to_owned()))?;
        file.write(limit)?;
        let (numbers, signals) = Numbers::new(next, limit, block);
        let shared = Arc::clone(&numbers);
        let thread = thread::Builder::new()
            .name("reserver".into())
            .spawn(move || {
                reserve(&shared, &file, block, &signals);
                file
            })
            .map_err(|source| failed("start the thread that writes", path, source))?;
        let shared = Arc::clone(&numbers);
        let reserver = Reserver { numbers, thread };
        Ok((shared, reserver))
    }

    /// Writes the exact next number, so that a restart leaves no gap. Must be called after the last
    /// number has been taken.
    pub(crate) fn finish(self) -> Result<u64, StateError> {
        self.numbers.signal(ReserverSignal::Stop);
        let Ok(file) = self.thread.join() else {
            // The reserver has panicked. The limit on disk still exceeds all numbers handed out.
            return Ok(self.numbers.next());
        };
        let next = self.numbers.next();
        file.write(next)?;
        Ok(next)
    }
}

fn reserve(numbers: &Numbers, file: &StateFile, block: u64, signals: &Receiver<ReserverSignal>) {
    while signals.recv() == Ok(ReserverSignal::Refill) {
        while numbers.needs_more() {
            let limit = numbers.limit.load(Ordering::SeqCst).saturating_add(block);
            let written = file.write(limit);
            numbers.failing.store(written.is_err(), Ordering::SeqCst);
            if written.is_ok() {
                numbers.limit.store(limit, Ordering::SeqCst);
            }
            numbers.changed.notify_waiters();
            if written.is_err() && signals.recv_timeout(RETRY_PAUSE) == Ok(ReserverSignal::Stop) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn threads_get_each_number_once_without_gaps() {
        let folder = tempfile::tempdir().unwrap();
        for block in [1, 2, 3, 500] {
            let path = folder.path().join(format!("state-{block}"));
            let (numbers, reserver) = Reserver::start(&path, block).unwrap();
            let each = if block < 4 { 20 } else { 2_000 };
            let taken: Vec<Vec<u64>> = thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            run(async {
                                let mut taken = Vec::new();
                                while taken.len() < each {
                                    taken.extend(numbers.take().await);
                                }
                                taken
                            })
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).collect()
            });
            for one in &taken {
                assert!(one.is_sorted_by(|a, b| a < b));
            }
            let mut all: Vec<u64> = taken.concat();
            all.sort_unstable();
            let expected: Vec<u64> = (1..=4 * each as u64).collect();
            assert_eq!(all, expected, "block {block}");
            assert_eq!(reserver.finish().unwrap(), 4 * each as u64 + 1);
            assert_eq!(StateFile::open(&path).unwrap().1, 4 * each as u64 + 1);
        }
    }

    #[test]
    fn the_limit_on_disk_exceeds_all_numbers_handed_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (numbers, _reserver) = Reserver::start(&path, 8).unwrap();
        for _ in 0..200 {
            // The number is `None` if the disk takes longer than one second.
            let Some(number) = run(numbers.take()) else {
                continue;
            };
            let text = fs::read_to_string(&path).unwrap();
            let next = text.lines().nth(1).and_then(|l| l.strip_prefix("next "));
            assert!(number < next.unwrap().parse().unwrap(), "{number}: {text}");
        }
        assert!(numbers.next() > 100, "most numbers were handed out");
    }

    #[test]
    fn stops_at_the_limit_while_the_disk_fails_and_continues_without_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        let (numbers, reserver) = Reserver::start(&home.join("state"), 10).unwrap();
        let away = folder.path().join("away");
        fs::rename(&home, &away).unwrap();
        for expected in 1..=10 {
            assert_eq!(run(numbers.take()), Some(expected));
        }
        assert_eq!(run(numbers.take()), None);
        assert_eq!(numbers.next(), 11, "a refused request takes no number");
        fs::rename(&away, &home).unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(5);
        let number = loop {
            if let Some(number) = run(numbers.take()) {
                break number;
            }
            assert!(std::time::Instant::now() < until, "never recovered");
            thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(number, 11);
        assert_eq!(reserver.finish().unwrap(), 12);
    }

    #[test]
    fn refuses_to_wrap_around() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        StateFile::open(&path)
            .unwrap()
            .0
            .write(u64::MAX - 3)
            .unwrap();
        let error = Reserver::start(&path, 10).unwrap_err();
        assert!(matches!(error, StateError::Exhausted(_)), "{error}");
    }
}
