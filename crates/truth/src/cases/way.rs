//! What a machine adds to every time that a client takes: the way there and back, and the wake-ups at its ends.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::Failure;
use super::reference::Sorted;
use crate::log::Log;
use crate::scenario::Scenario;
use crate::server::Server;

/// Requests of the plain client, and how far apart they are: a rate that loads nothing.
const REQUESTS: usize = 200;
const APART: Duration = Duration::from_millis(5);

/// How long the plain client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: truth\r\n\r\n";

/// How much longer, at the median, an answer takes for the simplest client there is than `truth` says of the server's log,
/// microseconds: one thread that writes a request and blocks in reading the answer. No client that sleeps while it waits can
/// do with less, so it is the machine's share of what floodmark sees, 20 to 30 µs on some, over 50 µs on others.
pub fn of_a_plain_client(truth: impl Fn(&Log) -> Sorted) -> Result<f64, Failure> {
    let server = Server::start(Scenario::default())?;
    let times = times(server.address()).map_err(|error| Failure::Run {
        what: "the plain client".to_owned(),
        error,
    })?;
    let log = server.stop()?;
    Ok((Sorted::new(times).quantile(0.5) - truth(&log).quantile(0.5)).max(0.0))
}

/// From writing to having the whole answer, of each request, microseconds.
fn times(to: SocketAddr) -> io::Result<Vec<f64>> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = Scenario::default().body.into_bytes();
    let mut answer = Vec::with_capacity(4096);
    (0..REQUESTS)
        .map(|_| {
            std::thread::sleep(APART);
            answer.clear();
            let begin = Instant::now();
            stream.write_all(REQUEST)?;
            while !answer.ends_with(&body) {
                let mut piece = [0; 1024];
                match stream.read(&mut piece)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    n => answer.extend_from_slice(&piece[..n]),
                }
            }
            Ok(begin.elapsed().as_secs_f64() * 1e6)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::reference;

    #[test]
    fn a_plain_client_gets_its_answers_and_takes_longer_than_the_server() {
        let way = of_a_plain_client(reference::service).unwrap();
        assert!(way > 0.0, "{way}");
        let of_nothing = of_a_plain_client(|_| Sorted::new(Vec::new())).unwrap();
        assert!(of_nothing > 0.0, "{of_nothing}");
    }
}
