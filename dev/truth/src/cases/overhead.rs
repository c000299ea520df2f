//! The overhead that the host adds to the times of every client: the network path and the
//! server's wake-up.

use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::thread::JoinHandle;
use std::time::Duration;

use floodmark_host::Stop;

use super::CaseError;
use super::reference::Sorted;
use crate::log::Log;
use crate::scenario::Scenario;
use crate::server::TruthServer;
use crate::sys;

/// Number of requests that the plain client sends, and the gap between two requests.
const REQUESTS: usize = 200;
const GAP: Duration = Duration::from_millis(5);

/// Response timeout of the plain client.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Additional overhead that a client with many connections may have, in microseconds.
const MANY_CONNECTIONS_US: f64 = 15.0;

/// Maximum overhead on an undisturbed host, in microseconds.
const MAX_US: f64 = 100.0;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: truth\r\n\r\n";

/// Median overhead of the simplest client, in microseconds: measured time minus the time in the
/// server's log.
///
/// The client is one thread that writes a request and blocks until the response arrives. Like
/// floodmark in the open model, the client uses the kernel's timestamps. No client has less
/// overhead, so the value is the host's share of floodmark's times. On a virtual machine, the
/// overhead is mostly 10 to 50 µs and varies from second to second.
#[derive(Debug, Clone, Copy)]
pub struct Overhead {
    min_us: f64,
    max_us: f64,
}

impl Overhead {
    /// Measures the overhead. `truth` reads the server's times from the log.
    pub fn measure(truth: fn(&Log) -> Sorted) -> Result<Self, CaseError> {
        let server = TruthServer::start(Scenario::default())?;
        let times = times(server.address()).map_err(CaseError::run("the plain client"))?;
        let log = server.stop()?;
        let us = Sorted::new(times).quantile(0.5) - truth(&log).quantile(0.5);
        let [min_us, max_us] = [us.max(0.0); 2];
        Ok(Overhead { min_us, max_us })
    }

    /// Returns the smallest range that contains both measurements.
    pub fn with(self, other: Self) -> Self {
        Overhead {
            min_us: self.min_us.min(other.min_us),
            max_us: self.max_us.max(other.max_us),
        }
    }

    /// Returns the bounds, in microseconds, for a time that is `truth` plus this overhead. The
    /// upper bound allows for the tolerance or for the overhead, whichever is greater.
    pub fn around(&self, truth: f64, tolerance: f64) -> (f64, f64) {
        (
            truth + self.min_us - tolerance,
            truth + tolerance.max(self.max_us + MANY_CONNECTIONS_US),
        )
    }

    /// Returns a description of the disturbance if the overhead is too large.
    pub fn disturbance(&self) -> Option<String> {
        let max_us = self.max_us;
        (max_us > MAX_US).then(|| {
            format!("the overhead of a plain client was {max_us:.0} µs (maximum {MAX_US:.0} µs)")
        })
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "overhead of a plain client {:.0} to {:.0} µs",
            self.min_us, self.max_us
        )
    }
}

/// Sends the requests and returns the time for each request, in microseconds: from writing the
/// request until the kernel has received the whole response.
fn times(to: SocketAddr) -> io::Result<Vec<f64>> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    sys::stamp_arrivals(stream.as_fd())?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let body = Scenario::default().body.into_bytes();
    let mut response = Vec::with_capacity(4096);
    (0..REQUESTS)
        .map(|_| {
            std::thread::sleep(GAP);
            response.clear();
            let begin_ns = sys::monotonic_ns();
            let mut end_ns = begin_ns;
            stream.write_all(REQUEST)?;
            while !response.ends_with(&body) {
                let mut piece = [0; 1024];
                let (n, stamp_ns) = sys::receive(stream.as_fd(), &mut piece)?;
                if n == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                response.extend_from_slice(&piece[..n]);
                end_ns = stamp_ns.unwrap_or_else(sys::monotonic_ns);
            }
            Ok(end_ns.saturating_sub(begin_ns) as f64 / 1e3)
        })
        .collect()
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::reference;

    #[test]
    fn a_plain_client_takes_longer_than_the_server() {
        let first = Overhead::measure(reference::service).unwrap();
        assert!(first.min_us > 0.0, "{first:?}");
        let both = first.with(Overhead::measure(reference::service).unwrap());
        assert!(both.min_us <= both.max_us);
    }

    fn overhead(min_us: f64, max_us: f64) -> Overhead {
        Overhead { min_us, max_us }
    }

    #[test]
    fn tolerances_include_the_overhead() {
        assert_eq!(overhead(20.0, 30.0).around(1_000.0, 50.0), (970.0, 1_050.0));
        assert_eq!(overhead(20.0, 60.0).around(1_000.0, 50.0), (970.0, 1_075.0));
        assert_eq!(
            overhead(20.0, 60.0).around(1_000.0, 500.0),
            (520.0, 1_500.0)
        );
    }

    #[test]
    fn a_long_overhead_is_a_disturbance() {
        assert_eq!(overhead(20.0, 100.0).disturbance(), None);
        let text = overhead(20.0, 101.0).disturbance().unwrap();
        assert!(text.contains("101 µs"), "{text}");
    }
}
