//! The dispatcher's numbers: from 1, each handed out once, in rising order, none left out while the server lives.
//!
//! With a state file, numbers are handed out only below a limit that is on the disk already. A thread of its own raises the
//! limit when half of a block is left, so an answer waits for the disk only when the disk is slower than half a block:
//!
//! ```text
//!            handed out          │ free to hand out │ not reserved
//!  1 ───────────────────────── next ───────────── limit ──────────►
//!                                      ▲ half a block before the limit: the reserver is woken
//! ```

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::state_file::{StateError, StateFile};

/// An answer waits so long for a reservation in progress before it becomes a 503.
const WAIT: Duration = Duration::from_secs(1);
/// Pause between attempts to reserve after one failed.
const RETRY: Duration = Duration::from_millis(250);

/// Hands out numbers to any number of threads.
#[derive(Debug)]
pub(crate) struct Numbers {
    next: AtomicU64,
    limit: AtomicU64,
    /// Half a block; the reserver is woken when as many are left.
    refill: u64,
    /// The last reservation failed.
    failing: AtomicBool,
    /// Rings when the limit rose or a reservation failed.
    changed: Notify,
    signal: Mutex<Signal>,
    signalled: Condvar,
}

#[derive(Debug, Default)]
struct Signal {
    look: bool,
    stop: bool,
}

impl Numbers {
    fn new(next: u64, limit: u64, block: u64) -> Arc<Self> {
        Arc::new(Numbers {
            next: AtomicU64::new(next),
            limit: AtomicU64::new(limit),
            refill: (block / 2).max(1),
            failing: AtomicBool::new(false),
            changed: Notify::new(),
            signal: Mutex::default(),
            signalled: Condvar::new(),
        })
    }

    /// Numbers that begin at 1 and are forgotten with the process.
    pub(crate) fn volatile() -> Arc<Self> {
        Self::new(1, u64::MAX, u64::MAX)
    }

    /// The number that comes next.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// A number, unless none is free just now.
    pub(crate) fn try_take(&self) -> Option<u64> {
        let mut number = self.next.load(Ordering::Relaxed);
        loop {
            // The limit only ever rises: what is below a limit once read stays reserved.
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
                    // Exactly one taker meets the mark of each limit.
                    if limit - number == self.refill {
                        self.signal(|s| s.look = true);
                    }
                    return Some(number);
                }
                Err(newer) => number = newer,
            }
        }
    }

    /// A number; where none is free, waits a bounded time for one. `None`: none can be reserved, answer 503.
    pub(crate) async fn take(&self) -> Option<u64> {
        let until = Instant::now() + WAIT;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Before looking, so that a change between looking and waiting is not missed.
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

    fn signal(&self, change: impl FnOnce(&mut Signal)) {
        change(&mut self.locked());
        self.signalled.notify_one();
    }

    fn locked(&self) -> MutexGuard<'_, Signal> {
        // Two flags cannot be left half changed by a panic.
        self.signal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a signal, at most so long; `true`: stop.
    fn await_signal(&self, at_most: Option<Duration>) -> bool {
        let mut signal = self.locked();
        while !signal.look && !signal.stop {
            match at_most {
                None => {
                    signal = self
                        .signalled
                        .wait(signal)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                Some(time) => {
                    let waited = self.signalled.wait_timeout(signal, time);
                    signal = waited.unwrap_or_else(PoisonError::into_inner).0;
                    break;
                }
            }
        }
        signal.look = false;
        signal.stop
    }
}

/// Reserves numbers ahead, on a thread of its own.
#[derive(Debug)]
pub(crate) struct Reserver {
    numbers: Arc<Numbers>,
    thread: JoinHandle<StateFile>,
}

impl Reserver {
    /// Opens the state file and reserves the first block before anything is handed out.
    pub(crate) fn start(path: &Path, block: u64) -> Result<(Arc<Numbers>, Self), StateError> {
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
                reserve(&shared, &file, block);
                file
            })
            .map_err(|source| StateError::Io {
                doing: "start the thread that writes",
                path: path.to_owned(),
                source,
            })?;
        let reserver = Reserver {
            numbers: Arc::clone(&numbers),
            thread,
        };
        Ok((numbers, reserver))
    }

    /// Ends it when nothing takes numbers any more: writes the exact next one, so that a restart leaves no gap.
    pub(crate) fn finish(self) -> Result<u64, StateError> {
        self.numbers.signal(|s| s.stop = true);
        let Ok(file) = self.thread.join() else {
            // What is on the disk still lies above everything that was handed out.
            return Ok(self.numbers.next());
        };
        let next = self.numbers.next();
        file.write(next)?;
        Ok(next)
    }
}

fn reserve(numbers: &Numbers, file: &StateFile, block: u64) {
    let mut pause = None;
    while !numbers.await_signal(pause) {
        pause = None;
        while numbers.needs_more() {
            let limit = numbers.limit.load(Ordering::SeqCst).saturating_add(block);
            let written = file.write(limit);
            numbers.failing.store(written.is_err(), Ordering::SeqCst);
            if written.is_ok() {
                numbers.limit.store(limit, Ordering::SeqCst);
            }
            numbers.changed.notify_waiters();
            if written.is_err() {
                pause = Some(RETRY);
                break;
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
    fn threads_share_the_numbers_without_doubles_or_gaps_over_many_blocks() {
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
    fn the_disk_is_always_ahead_of_what_was_handed_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (numbers, _reserver) = Reserver::start(&path, 8).unwrap();
        for _ in 0..200 {
            // None where this disk takes longer than an answer waits.
            let Some(number) = run(numbers.take()) else {
                continue;
            };
            let text = fs::read_to_string(&path).unwrap();
            let next = text.lines().nth(1).and_then(|l| l.strip_prefix("next "));
            assert!(number < next.unwrap().parse().unwrap(), "{number}: {text}");
        }
        assert!(numbers.next() > 100, "most were handed out");
    }

    #[test]
    fn a_failing_disk_ends_the_numbers_at_the_limit_and_a_mended_one_goes_on_without_a_gap() {
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
        assert_eq!(numbers.next(), 11, "a refusal uses no number up");
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
    fn the_last_number_is_refused_rather_than_wrapped() {
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
