//! Keeps CPUs out of idle states while times of a few microseconds are measured.

use std::thread::JoinHandle;

use floodmark_host::Stop;

use crate::sys;

/// Threads that spin at the lowest priority, one per CPU.
///
/// An idle CPU takes about 50 µs to wake up. In a virtual machine, most of this delay is in the
/// hypervisor. The delay is as long as the measured times, but is caused neither by the client nor
/// by the server. A thread under SCHED_IDLE yields to any other thread immediately, so the spinning
/// threads take no CPU time from other threads.
#[derive(Debug)]
pub struct Awake {
    stop: Stop,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Starts the threads. A thread ends immediately if the kernel refuses the priority.
    #[must_use]
    pub fn keep() -> Awake {
        let stop = Stop::new();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..cpus)
            .map(|_| {
                let stop = stop.clone();
                std::thread::spawn(move || {
                    if sys::lowest_priority().is_ok() {
                        while !stop.is_set() {
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
        self.stop.set();
        for thread in self.threads.drain(..) {
            // A thread that has panicked has also ended.
            let _ = thread.join();
        }
    }
}
