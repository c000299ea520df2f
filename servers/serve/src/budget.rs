//! The limit on connections. Further connections wait in the kernel's accept queue.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Number of file descriptors that the server reserves for event loops, the state file and other
/// uses.
pub(crate) const RESERVED_FILES: usize = 64;

/// Slots for connections, shared by all workers.
#[derive(Debug)]
pub(crate) struct ConnectionBudget {
    max: usize,
    /// Number of slots in use.
    used: AtomicUsize,
    /// Notified when a slot becomes free.
    freed: Notify,
    /// Whether connections wait in the accept queue because no slot is free.
    is_exceeded: AtomicBool,
}

impl ConnectionBudget {
    pub(crate) fn new(max: usize) -> Self {
        ConnectionBudget {
            max,
            used: AtomicUsize::new(0),
            freed: Notify::new(),
            is_exceeded: AtomicBool::new(false),
        }
    }

    /// Takes a slot. Returns false if none is free.
    pub(crate) fn try_take(&self) -> bool {
        let free = |used| (used < self.max).then_some(used + 1);
        let taken = (self.used).fetch_update(Ordering::SeqCst, Ordering::Relaxed, free);
        taken.is_ok()
    }

    /// Frees a slot.
    pub(crate) fn release(&self) {
        self.used.fetch_sub(1, Ordering::SeqCst);
        self.freed.notify_one();
    }

    /// Waits until a slot is free.
    pub(crate) async fn wait_for_slot(&self) {
        let is_full = || self.used.load(Ordering::SeqCst) >= self.max;
        while is_full() {
            let mut freed = pin!(self.freed.notified());
            // Enable the notification before the check, so that no release is missed.
            freed.as_mut().enable();
            if is_full() {
                freed.await;
            }
        }
    }

    /// Records whether connections wait in the accept queue.
    pub(crate) fn set_exceeded(&self, is_exceeded: bool) {
        // Most calls change nothing, and a store would take the cache line from other threads.
        if self.is_exceeded() != is_exceeded {
            self.is_exceeded.store(is_exceeded, Ordering::Relaxed);
        }
    }

    /// Returns whether connections wait in the accept queue. If so, each connection ends after its
    /// next response, so that all clients are served in turn.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn never_exceeds_the_limit_and_wakes_all_waiting_threads() {
        const MAX: usize = 3;
        let budget = Arc::new(ConnectionBudget::new(MAX));
        let open = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (budget, open) = (Arc::clone(&budget), Arc::clone(&open));
                thread::spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread();
                    let runtime = { runtime }.build().unwrap();
                    for _ in 0..2_000 {
                        while !budget.try_take() {
                            runtime.block_on(budget.wait_for_slot());
                        }
                        assert!(open.fetch_add(1, Ordering::SeqCst) < MAX);
                        thread::yield_now();
                        open.fetch_sub(1, Ordering::SeqCst);
                        budget.release();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(budget.used.load(Ordering::SeqCst), 0);
    }
}
