//! Keeping the CPUs out of their idle states while microseconds are compared.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::sys;

/// One thread for each CPU that spins at the lowest priority there is, below every other process.
///
/// An idle CPU takes some 50 µs to wake, in a virtual machine mostly in the hypervisor: that is the machine's
/// delay and neither the client's nor the server's, and as large as what is to be seen. A thread under
/// SCHED_IDLE gives way to any other at once, so it takes no CPU from those that are measured.
#[derive(Debug)]
pub struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Without effect where the kernel refuses the priority.
    #[must_use]
    pub fn keep() -> Awake {
        let stop = Arc::new(AtomicBool::new(false));
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..cpus)
            .map(|_| {
                let stop = Arc::clone(&stop);
                std::thread::spawn(move || {
                    if sys::lowest_priority().is_ok() {
                        while !stop.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    }
                })
            })
            .collect();
        Awake { stop, threads }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A spinner that panicked has ended, which is all that is wanted of it.
            let _ = thread.join();
        }
    }
}
