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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::error::ServeError;
use crate::state_file::{StateError, StateFile, failed};

/// Maximum time to wait for a reservation. After this time, the server responds with a 503.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Pause before checking again whether a moved state file is back.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Hands out numbers to all threads.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    next: AtomicU64,
    limit: AtomicU64,
    /// The reserver is woken when this many reserved numbers are left: half a block.
    refill: u64,
    /// Whether the last reservation failed.
    failing: AtomicBool,
    /// Notified after each attempt to reserve numbers.
    changed: Notify,
    /// Whether the reserver must end.
    stopping: AtomicBool,
    /// Thread of the reserver; not set without a state file.
    reserver: OnceLock<Thread>,
}

impl Numbers {
    fn new(next: u64, limit: u64, block: u64) -> Arc<Self> {
        Arc::new(Numbers {
            next: AtomicU64::new(next),
            limit: AtomicU64::new(limit),
            refill: (block / 2).max(1),
            ..Numbers::default()
        })
    }

    /// Creates a counter that starts at 1 and has no state file.
    pub(crate) fn volatile() -> Arc<Self> {
        Self::new(1, u64::MAX, u64::MAX)
    }

    /// Returns the next number without taking it.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Takes the next number if it is reserved.
    pub(crate) fn try_take(&self) -> Option<u64> {
        let mut limit = 0;
        let reserved = |number| {
            // An outdated limit is safe, because the limit never decreases.
            limit = self.limit.load(Ordering::Acquire);
            (number < limit).then_some(number + 1)
        };
        let taken = (self.next).fetch_update(Ordering::SeqCst, Ordering::Relaxed, reserved);
        let number = taken.ok()?;
        // Exactly one caller per limit wakes the reserver.
        if limit - number == self.refill
            && let Some(thread) = self.reserver.get()
        {
            thread.unpark();
        }
        Some(number)
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
}

/// Reserves numbers in advance on a separate thread.
#[derive(Debug)]
pub(crate) struct Reserver {
    numbers: Arc<Numbers>,
    thread: JoinHandle<Result<u64, ServeError>>,
}

impl Reserver {
    /// Opens the state file, and reserves the first block of numbers. Calls `on_failure` if a later
    /// reservation fails permanently.
    pub(crate) fn start(
        path: &Path,
        block: u64,
        on_failure: fn(&ServeError),
    ) -> Result<(Arc<Numbers>, Self), StateError> {
        let (file, next) = StateFile::open(path)?;
        let limit = next
            .checked_add(block)
            .ok_or_else(|| StateError::Exhausted(path.to_owned()))?;
        file.write(limit)?;
        let numbers = Numbers::new(next, limit, block);
        let shared = Arc::clone(&numbers);
        let thread = thread::Builder::new()
            .name("reserver".into())
            .spawn(move || {
                let reserved = reserve(&shared, &file, block).map_err(ServeError::StateFailed);
                if let Err(error) = &reserved {
                    on_failure(error);
                }
                // Keep the file locked until the server stops.
                while !shared.stopping.load(Ordering::SeqCst) {
                    thread::park();
                }
                reserved?;
                let next = shared.next();
                let written = file.write(next).map_err(ServeError::StateFailed);
                written.map(|()| next)
            })
            .map_err(|source| failed("start the thread that writes", path, source))?;
        numbers.reserver.get_or_init(|| thread.thread().clone());
        Ok((Arc::clone(&numbers), Reserver { numbers, thread }))
    }

    /// Writes the exact next number, so that a restart leaves no gap, and returns the number. Must
    /// be called after the last number has been taken. Returns the first write or sync error.
    pub(crate) fn finish(self) -> Result<u64, ServeError> {
        self.numbers.stopping.store(true, Ordering::SeqCst);
        self.thread.thread().unpark();
        // If the reserver has panicked, the limit on disk still exceeds all numbers handed out.
        let written = self.thread.join();
        written.unwrap_or_else(|_| Ok(self.numbers.next()))
    }
}

/// Reserves numbers until the server stops. A failed write or sync is final, because a later sync
/// can succeed although the kernel has dropped the data.
fn reserve(numbers: &Numbers, file: &StateFile, block: u64) -> Result<(), StateError> {
    while !numbers.stopping.load(Ordering::SeqCst) {
        let limit = numbers.limit.load(Ordering::SeqCst);
        if limit == u64::MAX || limit - numbers.next() >= numbers.refill {
            thread::park();
            continue;
        }
        let limit = limit.saturating_add(block);
        let written = file.write(limit);
        numbers.failing.store(written.is_err(), Ordering::SeqCst);
        if written.is_ok() {
            numbers.limit.store(limit, Ordering::SeqCst);
        }
        numbers.changed.notify_waiters();
        match written {
            Ok(()) => {}
            // Nothing was written.
            Err(StateError::Replaced(_)) => thread::park_timeout(RETRY_PAUSE),
            Err(error) => return Err(error),
        }
    }
    Ok(())
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
        let directory = tempfile::tempdir().unwrap();
        for block in [1, 2, 3, 500] {
            let path = directory.path().join(format!("state-{block}"));
            let (numbers, reserver) = Reserver::start(&path, block, |_| {}).unwrap();
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
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let (numbers, _reserver) = Reserver::start(&path, 8, |_| {}).unwrap();
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
    fn stops_at_the_limit_while_the_file_is_away_and_continues_without_a_gap() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("home");
        fs::create_dir(&home).unwrap();
        let (numbers, reserver) = Reserver::start(&home.join("state"), 10, |_| {}).unwrap();
        let away = directory.path().join("away");
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
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        StateFile::open(&path)
            .unwrap()
            .0
            .write(u64::MAX - 3)
            .unwrap();
        let error = Reserver::start(&path, 10, |_| {}).unwrap_err();
        assert!(matches!(error, StateError::Exhausted(_)), "{error}");
    }
}
