//! Responses of one worker that wait until their records are durable.
//!
//! The worker asks the journal for a write once per turn of its event loop, and the journal wakes
//! the worker once per batch. Neither costs a system call per request.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use floodmark_journal::{Journal, JournalError};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use crate::pace::{ClockSteps, Register, STEP, steps};
use crate::scoring::ScoreFault;

/// Maximum time to wait for a record to become durable, in clock steps (50 steps are 5 s). After
/// this time, the server responds with a 503. The record may still become durable later.
const COMMIT_TIMEOUT: ClockSteps = 50;

/// The waiting responses of a worker. Entries of closed connections stay until their records are
/// durable or overdue, so the journal's queue bounds the number of entries.
#[derive(Debug)]
pub(crate) struct Commits {
    /// New records are refused while the oldest response has waited longer than this time.
    max_wait: ClockSteps,
    signal: Arc<CommitSignal>,
    /// In the order of their numbers.
    waiting: RefCell<VecDeque<WaitingResponse>>,
    /// Whether records were appended in this turn of the event loop.
    is_uncommitted: Cell<bool>,
    /// Highest number that the worker no longer waits for.
    given_up: Cell<u64>,
}

/// Wakes the worker.
#[derive(Debug, Default)]
struct CommitSignal {
    changed: Notify,
    has_waiting: AtomicBool,
}

/// A response that waits.
#[derive(Debug)]
struct WaitingResponse {
    number: u64,
    since: ClockSteps,
    waker: Waker,
}

impl Commits {
    /// Creates an empty collection. While the oldest response has waited longer than `max_wait`, no
    /// record may be appended.
    pub(crate) fn new(max_wait: Duration) -> Self {
        Commits {
            max_wait: steps(max_wait) + 1, // the coarse clock may be one step late
            signal: Arc::default(),
            waiting: RefCell::default(),
            is_uncommitted: Cell::default(),
            given_up: Cell::default(),
        }
    }

    /// Makes the journal wake this worker after each batch, if a response waits.
    pub(crate) fn listen(&self, journal: &Journal) {
        let signal = Arc::clone(&self.signal);
        journal.listen(move || {
            if signal.has_waiting.load(Ordering::SeqCst) {
                signal.changed.notify_one();
            }
        });
    }

    /// Prepares to wait for a record. Must be called before the record is appended, so that its
    /// batch wakes the worker.
    ///
    /// # Errors
    /// An earlier record has timed out and is still not durable, or the oldest response has waited
    /// longer than the limit.
    pub(crate) fn begin(&self, journal: &Journal, now: ClockSteps) -> Result<(), ScoreFault> {
        let durable = journal.progress().durable;
        if self.given_up.get() > durable {
            return Err(ScoreFault::Slow);
        }
        let is_overdue = |oldest: &WaitingResponse| {
            oldest.number > durable && now.saturating_sub(oldest.since) > self.max_wait
        };
        if self.waiting.borrow().front().is_some_and(is_overdue) {
            return Err(ScoreFault::Overloaded);
        }
        // Only the worker changes the flag, and a load costs less than a store.
        if !self.signal.has_waiting.load(Ordering::SeqCst) {
            self.signal.has_waiting.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Waits until the record with this number is durable. Numbers must ascend from call to call.
    pub(crate) async fn wait(
        &self,
        journal: &Journal,
        number: u64,
        now: ClockSteps,
    ) -> Result<(), ScoreFault> {
        if !self.is_uncommitted.replace(true) {
            // The task runs after the tasks that are ready now.
            self.signal.changed.notify_one();
        }
        let mut is_queued = false;
        poll_fn(|cx| {
            let progress = journal.progress();
            if progress.durable >= number {
                return Poll::Ready(Ok(()));
            }
            if progress.failure.is_some() {
                return Poll::Ready(Err(ScoreFault::Failed));
            }
            if self.given_up.get() >= number {
                return Poll::Ready(Err(ScoreFault::Slow));
            }
            if !is_queued {
                is_queued = true;
                self.waiting.borrow_mut().push_back(WaitingResponse {
                    number,
                    since: now,
                    waker: cx.waker().clone(),
                });
            }
            Poll::Pending
        })
        .await
    }

    /// Runs forever: commits appended records, and wakes the responses whose records are durable or
    /// overdue. Calls `on_failure` once if the journal fails.
    pub(crate) async fn attend(
        &self,
        journal: &Journal,
        register: &Register,
        on_failure: impl Fn(&Arc<JournalError>),
    ) {
        let mut has_failed = false;
        let mut ticks = interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.signal.changed.notified() => {}
                _ = ticks.tick() => self.give_up(register.now.get()),
            }
            if self.is_uncommitted.take() {
                journal.commit();
            }
            self.wake_durable(journal);
            if let Some(failure) = journal.progress().failure
                && !has_failed
            {
                has_failed = true;
                on_failure(failure);
            }
        }
    }

    /// Wakes the responses whose records are durable, or all responses after a failure.
    fn wake_durable(&self, journal: &Journal) {
        let progress = journal.progress();
        let is_done = |first: &WaitingResponse| {
            first.number <= progress.durable || progress.failure.is_some()
        };
        self.wake_while(is_done);
        if self.waiting.borrow().is_empty() && !self.is_uncommitted.get() {
            self.signal.has_waiting.store(false, Ordering::SeqCst);
        }
    }

    /// Wakes the responses that have waited too long.
    fn give_up(&self, now: ClockSteps) {
        self.wake_while(|first| {
            let is_overdue = now.saturating_sub(first.since) > COMMIT_TIMEOUT;
            if is_overdue {
                self.given_up.set(first.number);
            }
            is_overdue
        });
    }

    fn wake_while(&self, is_done: impl Fn(&WaitingResponse) -> bool) {
        let mut waiting = self.waiting.borrow_mut();
        while waiting.front().is_some_and(&is_done)
            && let Some(first) = waiting.pop_front()
        {
            first.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_journal::JournalOptions;
    use std::pin::pin;
    use std::task::Context;
    use std::thread;
    use std::time::Instant;

    /// Waits until the journal has stored its records.
    fn stored(journal: &Journal, records: u64) {
        journal.commit();
        let until = Instant::now() + Duration::from_secs(30);
        while journal.progress().durable < records {
            assert!(Instant::now() < until, "never stored");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn gives_up_on_a_slow_journal_until_it_has_caught_up() {
        // The journal stores no records until `commit` is called.
        let journal = Journal::in_memory(&JournalOptions::default()).unwrap();
        let commits = Commits::new(Duration::from_secs(60));
        commits.listen(&journal);
        let mut cx = Context::from_waker(Waker::noop());
        let mut number = 0;
        let mut append = || {
            assert_eq!(commits.begin(&journal, 0), Ok(()));
            number = journal.append(&[0; 8]).unwrap();
            number
        };
        let mut early = pin!(commits.wait(&journal, append(), 0));
        let mut late = pin!(commits.wait(&journal, append(), 10));
        assert!(early.as_mut().poll(&mut cx).is_pending());
        assert!(late.as_mut().poll(&mut cx).is_pending());
        commits.give_up(COMMIT_TIMEOUT);
        assert!(early.as_mut().poll(&mut cx).is_pending());
        commits.give_up(COMMIT_TIMEOUT + 1);
        assert_eq!(
            early.as_mut().poll(&mut cx),
            Poll::Ready(Err(ScoreFault::Slow))
        );
        assert!(late.as_mut().poll(&mut cx).is_pending());
        assert_eq!(
            commits.begin(&journal, 0),
            Err(ScoreFault::Slow),
            "refused at once"
        );
        stored(&journal, 2);
        assert_eq!(late.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
        assert_eq!(commits.begin(&journal, 0), Ok(()));
    }

    #[test]
    fn refuses_records_while_the_oldest_response_has_waited_too_long() {
        let journal = Journal::in_memory(&JournalOptions::default()).unwrap();
        let commits = Commits::new(Duration::from_secs(1));
        commits.listen(&journal);
        assert_eq!(commits.begin(&journal, 5), Ok(()));
        let number = journal.append(&[0; 8]).unwrap();
        let mut oldest = pin!(commits.wait(&journal, number, 5));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(oldest.as_mut().poll(&mut cx).is_pending());
        assert_eq!(commits.begin(&journal, 16), Ok(()));
        assert_eq!(
            commits.begin(&journal, 17),
            Err(ScoreFault::Overloaded),
            "waited for 1.2 s"
        );
        stored(&journal, 1);
        assert_eq!(commits.begin(&journal, 17), Ok(()), "durable");
    }
}
