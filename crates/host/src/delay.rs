//! A way between a client and a server on which every byte takes a given time longer, either way: a network of that distance.
//!
//! It passes TCP on, byte for byte, in one thread. What is read at a moment is written `delay` later; since that is the same for
//! all, what is under way is one queue in order of time. Connections stand at once, as with a server that is near: only bytes, and
//! the end of them, take time.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use polling::{Event, Events, PollMode, Poller};

/// Bytes per second that each direction of a connection carries at least, however long the delay.
const LEAST_PER_S: f64 = 1e9;

/// Bytes under way in one direction of a connection: not below this.
const LEAST_UNDER_WAY: usize = 1 << 20;

/// Largest piece that is read at once, bytes.
const PIECE: usize = 64 << 10;

/// Key of the listener; connections have those from 1 on, two each.
const LISTENER: usize = 0;

/// Passes connections that come to `listener` on to `server`, until the process ends.
///
/// Memory: what is under way, at most the larger of 1 MiB and 1 GB/s × `delay` for each direction of each connection; one that is
/// full is not read from until there is room.
///
/// # Errors
/// The machine gives no poller, or no descriptor for it.
pub fn serve(listener: &TcpListener, server: SocketAddr, delay: Duration) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let poller = Poller::new()?;
    // SAFETY: the listener outlives the poller.
    unsafe { poller.add_with_mode(listener, Event::readable(LISTENER), PollMode::Level)? };
    let most = LEAST_UNDER_WAY.max((LEAST_PER_S * delay.as_secs_f64()) as usize);
    let mut way = Way {
        poller,
        server,
        delay,
        most,
        ends: BTreeMap::new(),
        under_way: VecDeque::new(),
        next_key: LISTENER + 1,
        buffer: vec![0; PIECE],
    };
    let mut events = Events::new();
    loop {
        let wait = way
            .under_way
            .front()
            .map(|piece| piece.due.saturating_duration_since(Instant::now()));
        events.clear();
        way.poller.wait(&mut events, wait)?;
        for event in events.iter() {
            if event.key == LISTENER {
                way.accept(listener)?;
                continue;
            }
            if event.readable {
                way.read(event.key);
            }
            if event.writable {
                way.write(event.key);
            }
        }
        way.deliver();
    }
}

/// What was read and is to be written.
struct Piece {
    due: Instant,
    /// Which end is to write it.
    to: usize,
    /// Empty where the bytes are at their end.
    bytes: Vec<u8>,
}

/// One end of a connection: a socket towards the client or towards the server.
struct End {
    stream: TcpStream,
    /// The key of the other one.
    other: usize,
    /// What is due and not yet written.
    waiting: VecDeque<u8>,
    /// Bytes on their way to this end, those of `waiting` among them.
    coming: usize,
    /// What of it is heard of: that it can be read, that it can be written.
    heard: (bool, bool),
    /// Whether it has said its last byte.
    read_out: bool,
    /// Whether nothing will come for it any more.
    written_out: bool,
}

struct Way {
    poller: Poller,
    server: SocketAddr,
    delay: Duration,
    most: usize,
    ends: BTreeMap<usize, End>,
    under_way: VecDeque<Piece>,
    next_key: usize,
    buffer: Vec<u8>,
}

impl Way {
    fn accept(&mut self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let client = match listener.accept() {
                Ok((client, _)) => client,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // It was gone before it was taken.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            // Where the server refuses, so does this: the client's connection is closed.
            let Ok(server) = TcpStream::connect(self.server) else {
                continue;
            };
            let key = self.next_key;
            self.next_key += 2;
            for (stream, key, other) in [(client, key, key + 1), (server, key + 1, key)] {
                stream.set_nonblocking(true)?;
                // The pieces are those that were sent: none waits for others here.
                stream.set_nodelay(true)?;
                // SAFETY: the stream is taken out of the poller before it is dropped, in `close`.
                unsafe {
                    self.poller
                        .add_with_mode(&stream, Event::readable(key), PollMode::Level)?;
                };
                let end = End {
                    stream,
                    other,
                    waiting: VecDeque::new(),
                    coming: 0,
                    heard: (true, false),
                    read_out: false,
                    written_out: false,
                };
                self.ends.insert(key, end);
            }
        }
    }

    /// Takes what an end has sent.
    fn read(&mut self, key: usize) {
        let Some(end) = self.ends.get_mut(&key) else {
            return;
        };
        let other = end.other;
        let read = match end.stream.read(&mut self.buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            // Whoever resets a connection is done with both directions.
            Err(_) => return self.close(key),
            Ok(read) => read,
        };
        end.read_out |= read == 0;
        if let Some(other) = self.ends.get_mut(&other) {
            other.coming += read;
        }
        self.under_way.push_back(Piece {
            due: Instant::now() + self.delay,
            to: other,
            bytes: self.buffer[..read].to_vec(),
        });
        self.heed(key);
    }

    /// Hands over what is due.
    fn deliver(&mut self) {
        let now = Instant::now();
        while self.under_way.front().is_some_and(|piece| piece.due <= now) {
            let Some(piece) = self.under_way.pop_front() else {
                return;
            };
            if let Some(end) = self.ends.get_mut(&piece.to) {
                end.written_out |= piece.bytes.is_empty();
                end.waiting.extend(piece.bytes);
                self.write(piece.to);
            }
        }
    }

    /// Writes what is due to an end, so far as it takes it.
    fn write(&mut self, key: usize) {
        let Some(end) = self.ends.get_mut(&key) else {
            return;
        };
        while !end.waiting.is_empty() {
            match end.stream.write(end.waiting.as_slices().0) {
                Ok(written) => {
                    end.waiting.drain(..written);
                    end.coming -= written;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return self.close(key),
            }
        }
        let other = end.other;
        if end.written_out && end.waiting.is_empty() {
            // One that is closed already is found out by its reading.
            let _ = end.stream.shutdown(Shutdown::Write);
            let over = end.read_out
                && self
                    .ends
                    .get(&other)
                    .is_none_or(|other| other.written_out && other.waiting.is_empty());
            if over {
                return self.close(key);
            }
        }
        self.heed(key);
        self.heed(other);
    }

    /// Says what of an end is to be heard of: that it can be read, while there is room for what it says; that it can be written, while
    /// something waits.
    fn heed(&mut self, key: usize) {
        let Some(end) = self.ends.get(&key) else {
            return;
        };
        let room = self
            .ends
            .get(&end.other)
            .is_none_or(|other| other.coming < self.most);
        let hear = (!end.read_out && room, !end.waiting.is_empty());
        if hear == end.heard {
            return;
        }
        let event = Event::new(key, hear.0, hear.1);
        let heeded = self
            .poller
            .modify_with_mode(end.stream.as_fd(), event, PollMode::Level);
        match (heeded, self.ends.get_mut(&key)) {
            (Ok(()), Some(end)) => end.heard = hear,
            _ => self.close(key),
        }
    }

    /// Ends a connection at once.
    fn close(&mut self, key: usize) {
        let Some(end) = self.ends.remove(&key) else {
            return;
        };
        // What is not in the poller cannot be taken out of it, which is as well.
        let _ = self.poller.delete(&end.stream);
        self.close(end.other);
    }
}

#[cfg(test)]
#[path = "delay_tests.rs"]
mod tests;
