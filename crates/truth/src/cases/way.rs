//! What a machine adds to every time that a client takes: the way there and back, and the server's wake-up.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use super::Failure;
use super::reference::Sorted;
use crate::log::Log;
use crate::scenario::Scenario;
use crate::server::Server;
use crate::sys;

/// Requests of the plain client, and how far apart they are: a rate that loads nothing.
const REQUESTS: usize = 200;
const APART: Duration = Duration::from_millis(5);

/// How long the plain client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client that serves many connections may take this much longer than the plain one, which serves one, microseconds.
const MORE_US: f64 = 15.0;

/// A way above this is no machine's share that a client could be held against, microseconds.
const LONGEST_US: f64 = 100.0;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: truth\r\n\r\n";

/// How much longer, at the median, an answer takes for the simplest client there is than the server's log says, microseconds,
/// looked at before and after a case.
///
/// That client is one thread that writes a request and blocks in reading the answer, which it times by the kernel's stamp as floodmark
/// does in the open model. No client can do with less, so it is the machine's share of what floodmark sees: on a virtual one mostly 10
/// to 50 µs, and not the same from one second to the next.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    least_us: f64,
    most_us: f64,
    truth: fn(&Log) -> Sorted,
}

impl Way {
    /// As it is now; `truth` reads the server's times off its log.
    pub fn before(truth: fn(&Log) -> Sorted) -> Result<Way, Failure> {
        let us = of_a_plain_client(truth)?;
        Ok(Way {
            least_us: us,
            most_us: us,
            truth,
        })
    }

    /// Together with what it is when the case is over.
    pub fn and_after(self) -> Result<Way, Failure> {
        let us = of_a_plain_client(self.truth)?;
        Ok(Way {
            least_us: self.least_us.min(us),
            most_us: self.most_us.max(us),
            ..self
        })
    }

    /// Where a time lies that is `truth` and the way, all in microseconds. `tolerance` has room for the way: it gives way to a
    /// longer one, and is not added to it.
    pub fn around(&self, truth: f64, tolerance: f64) -> (f64, f64) {
        (
            truth + self.least_us - tolerance,
            truth + tolerance.max(self.most_us + MORE_US),
        )
    }

    /// What of it may explain a miss, in words; none where it was as short as it should be.
    pub fn disturbance(&self) -> Option<String> {
        (self.most_us > LONGEST_US).then(|| {
            format!(
                "the way of a plain client took {:.0} µs, where {LONGEST_US:.0} µs are much",
                self.most_us
            )
        })
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (least, most) = (self.least_us, self.most_us);
        write!(f, "way of a plain client {least:.0} to {most:.0} µs")
    }
}

fn of_a_plain_client(truth: fn(&Log) -> Sorted) -> Result<f64, Failure> {
    let server = Server::start(Scenario::default())?;
    let times = times(server.address()).map_err(|error| Failure::Run {
        what: "the plain client".to_owned(),
        error,
    })?;
    let log = server.stop()?;
    Ok((Sorted::new(times).quantile(0.5) - truth(&log).quantile(0.5)).max(0.0))
}

/// From writing until the kernel has the whole answer, of each request, microseconds.
fn times(to: SocketAddr) -> io::Result<Vec<f64>> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    sys::stamp_arrivals(stream.as_fd())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = Scenario::default().body.into_bytes();
    let mut answer = Vec::with_capacity(4096);
    (0..REQUESTS)
        .map(|_| {
            std::thread::sleep(APART);
            answer.clear();
            let begin_ns = sys::monotonic_ns();
            let mut end_ns = begin_ns;
            stream.write_all(REQUEST)?;
            while !answer.ends_with(&body) {
                let mut piece = [0; 1024];
                let (n, stamp_ns) = sys::receive(stream.as_fd(), &mut piece)?;
                if n == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                answer.extend_from_slice(&piece[..n]);
                end_ns = stamp_ns.unwrap_or_else(sys::monotonic_ns);
            }
            Ok(end_ns.saturating_sub(begin_ns) as f64 / 1e3)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::reference;

    #[test]
    fn a_plain_client_gets_its_answers_and_takes_longer_than_the_server() {
        let way = Way::before(reference::service).unwrap();
        assert!(way.least_us > 0.0, "{way:?}");
        let way = way.and_after().unwrap();
        assert!(way.least_us <= way.most_us);
    }

    fn way(least_us: f64, most_us: f64) -> Way {
        Way {
            least_us,
            most_us,
            truth: reference::service,
        }
    }

    #[test]
    fn a_tolerance_has_room_for_the_way() {
        assert_eq!(way(20.0, 30.0).around(1_000.0, 50.0), (970.0, 1_050.0));
        assert_eq!(way(20.0, 60.0).around(1_000.0, 50.0), (970.0, 1_075.0));
        assert_eq!(way(20.0, 60.0).around(1_000.0, 500.0), (520.0, 1_500.0));
    }

    #[test]
    fn a_long_way_is_a_disturbance() {
        assert_eq!(way(20.0, 100.0).disturbance(), None);
        let why = way(20.0, 101.0).disturbance().unwrap();
        assert!(why.contains("101 µs"), "{why}");
    }
}
