//! A TCP proxy that adds one-way latency in both directions.
//!
//! A single thread reads bytes and forwards them after `delay`. The delay is constant, so one
//! chronological queue holds all bytes in transit. Bytes and the ends of streams are delayed, but
//! new connections are not.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use polling::{Event, Events, PollMode, Poller};

/// Minimum throughput in each direction of a connection, in bytes per second.
const MIN_BYTES_PER_S: f64 = 1e9;

/// Minimum capacity for bytes in transit, per connection and direction.
const MIN_IN_TRANSIT: usize = 1 << 20;

/// Maximum number of bytes per read.
const READ_SIZE: usize = 64 << 10;

/// Poller key of the listener. Each connection uses the next two keys.
const LISTENER: usize = 0;

/// Forwards connections from `listener` to `server` until the process exits.
///
/// For each direction of a connection, the proxy buffers up to 1 MiB or 1 GB/s × `delay`, whichever
/// is larger. At this limit, the proxy stops reading.
///
/// # Errors
/// Polling or accepting a connection fails, for example because no file descriptor is free.
pub fn serve(listener: &TcpListener, server: SocketAddr, delay: Duration) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let poller = Poller::new()?;
    // SAFETY: the listener outlives the poller.
    unsafe { poller.add_with_mode(listener, Event::readable(LISTENER), PollMode::Level)? };
    let capacity = MIN_IN_TRANSIT.max((MIN_BYTES_PER_S * delay.as_secs_f64()) as usize);
    let mut proxy = DelayForwarder {
        poller,
        server,
        delay,
        capacity,
        ends: BTreeMap::new(),
        in_transit: VecDeque::new(),
        next_key: LISTENER + 1,
        buffer: vec![0; READ_SIZE],
    };
    let mut events = Events::new();
    loop {
        let next = proxy.in_transit.front();
        let wait = next.map(|next| next.due.saturating_duration_since(Instant::now()));
        events.clear();
        proxy.poller.wait(&mut events, wait)?;
        for event in events.iter() {
            if event.key == LISTENER {
                proxy.accept(listener)?;
                continue;
            }
            if event.readable {
                proxy.read(event.key);
            }
            if event.writable {
                proxy.write(event.key);
            }
        }
        proxy.deliver();
    }
}

/// Bytes in transit.
struct DelayedBytes {
    due: Instant,
    /// Key of the receiving end.
    to: usize,
    /// The data. Empty at the end of the stream.
    bytes: Vec<u8>,
}

/// One end of a connection: the socket to the client or to the server.
struct ProxyEnd {
    stream: TcpStream,
    /// Key of the other end.
    other: usize,
    /// Bytes that are due but have not been written yet.
    waiting: VecDeque<u8>,
    /// Number of bytes read from this end but not yet written to the other end.
    in_transit: usize,
    /// Whether EOF was read from this socket.
    read_closed: bool,
    /// Whether EOF from the other socket is due.
    write_closed: bool,
}

impl ProxyEnd {
    /// Returns whether all bytes from the other socket were written and that socket's EOF is due.
    fn is_finished(&self) -> bool {
        self.write_closed && self.waiting.is_empty()
    }
}

struct DelayForwarder {
    poller: Poller,
    server: SocketAddr,
    delay: Duration,
    capacity: usize,
    ends: BTreeMap<usize, ProxyEnd>,
    in_transit: VecDeque<DelayedBytes>,
    next_key: usize,
    buffer: Vec<u8>,
}

impl DelayForwarder {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let client = match listener.accept() {
                Ok((client, _)) => client,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The client has already closed the connection.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            // Mirror the server's refusal by closing the client connection.
            let Ok(server) = TcpStream::connect(self.server) else {
                continue;
            };
            let key = self.next_key;
            self.next_key += 2;
            for (stream, key, other) in [(client, key, key + 1), (server, key + 1, key)] {
                stream.set_nonblocking(true)?;
                // Forward segments without coalescing.
                stream.set_nodelay(true)?;
                // SAFETY: `close` removes the stream from the poller before dropping the stream.
                unsafe {
                    self.poller
                        .add_with_mode(&stream, Event::all(key), PollMode::Edge)?;
                };
                let end = ProxyEnd {
                    stream,
                    other,
                    waiting: VecDeque::new(),
                    in_transit: 0,
                    read_closed: false,
                    write_closed: false,
                };
                self.ends.insert(key, end);
            }
        }
    }

    /// Reads from an end and queues the bytes. Stops when reading would block or too many bytes are
    /// in transit.
    fn read(&mut self, key: usize) {
        while let Some(end) = self.ends.get_mut(&key)
            && !end.read_closed
            && end.in_transit < self.capacity
        {
            let read = match end.stream.read(&mut self.buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A reset closes both directions.
                Err(_) => return self.close(key),
            };
            end.read_closed = read == 0;
            end.in_transit += read;
            self.in_transit.push_back(DelayedBytes {
                due: Instant::now() + self.delay,
                to: end.other,
                bytes: self.buffer[..read].to_vec(),
            });
        }
    }

    /// Delivers the bytes that are due.
    fn deliver(&mut self) {
        let now = Instant::now();
        while self.in_transit.front().is_some_and(|next| next.due <= now) {
            let Some(next) = self.in_transit.pop_front() else {
                return;
            };
            if let Some(end) = self.ends.get_mut(&next.to) {
                end.write_closed |= next.bytes.is_empty();
                end.waiting.extend(next.bytes);
                self.write(next.to);
            }
        }
    }

    /// Writes due bytes to an end until writing would block.
    fn write(&mut self, key: usize) {
        let Some(end) = self.ends.get_mut(&key) else {
            return;
        };
        let mut total = 0;
        while !end.waiting.is_empty() {
            match end.stream.write(end.waiting.as_slices().0) {
                Ok(written) => {
                    end.waiting.drain(..written);
                    total += written;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.close(key),
            }
        }
        let finished = end.is_finished();
        if finished {
            // If the stream is already closed, the next read detects this.
            let _ = end.stream.shutdown(Shutdown::Write);
        }
        let (read_closed, other) = (end.read_closed, end.other);
        let Some(sender) = self.ends.get_mut(&other) else {
            return;
        };
        let was_full = sender.in_transit >= self.capacity;
        sender.in_transit -= total;
        if finished && read_closed && sender.is_finished() {
            self.close(key);
        } else if was_full {
            self.read(other);
        }
    }

    /// Closes a connection immediately.
    fn close(&mut self, key: usize) {
        let Some(end) = self.ends.remove(&key) else {
            return;
        };
        // Deleting fails only for a stream that is not registered.
        let _ = self.poller.delete(&end.stream);
        self.close(end.other);
    }
}

#[cfg(test)]
#[path = "delay_tests.rs"]
mod tests;
