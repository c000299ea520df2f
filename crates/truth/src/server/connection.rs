//! One connection: what has come in, and what is still to go out.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;

use super::answers::Step;
use super::request::{BadRequest, HEAD_LIMIT, Head, read_head};
use crate::sys;

/// Most bytes of input held for one connection; a client that sends ahead of its answers beyond that is cut off.
const INPUT_LIMIT: usize = 4 * HEAD_LIMIT;

/// A connection and the request it is at.
#[derive(Debug)]
pub struct Connection {
    pub stream: TcpStream,
    /// Its number, in order of acceptance.
    pub number: u32,
    /// Requests that were whole on it.
    pub requests: u64,
    /// Steps that are left of the answer that is under way; empty between requests.
    pub steps: VecDeque<Step>,
    /// Whether epoll watches for room to write.
    pub watches_writing: bool,
    /// When the kernel got what was read last, where it stamped it.
    pub stamp_ns: Option<u64>,
    /// Entry of the request that is being answered, where the log still took it.
    pub entry: Option<usize>,
    input: Vec<u8>,
    head: Option<Head>,
    body_left: u64,
    written: usize,
}

/// A request that is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// Bytes of head and body.
    pub bytes: u64,
    /// Whether it asks for the connection to be closed.
    pub close: bool,
}

/// What a read found.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// This many bytes, 0 when there are none yet.
    Bytes(usize),
    /// FIN.
    End,
    /// RST.
    Reset,
    /// More than is held.
    TooMuch,
}

impl Connection {
    pub fn new(stream: TcpStream, number: u32) -> Connection {
        Connection {
            stream,
            number,
            requests: 0,
            steps: VecDeque::new(),
            watches_writing: false,
            stamp_ns: None,
            entry: None,
            input: Vec::new(),
            head: None,
            body_left: 0,
            written: 0,
        }
    }

    /// Reads once; level-triggered epoll comes back when there is more.
    pub fn read(&mut self, buffer: &mut [u8]) -> Input {
        match sys::receive(self.stream.as_fd(), buffer) {
            Ok((0, _)) => Input::End,
            Ok((n, _)) if self.input.len() + n > INPUT_LIMIT => Input::TooMuch,
            Ok((n, stamp_ns)) => {
                self.stamp_ns = stamp_ns;
                // A body is counted and not kept.
                let body = self.body_left.min(n as u64) as usize;
                self.body_left -= body as u64;
                self.input.extend_from_slice(&buffer[body..n]);
                Input::Bytes(n)
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Input::Bytes(0)
            }
            Err(_) => Input::Reset,
        }
    }

    /// Takes the next request that is whole.
    pub fn take_request(&mut self) -> Result<Option<Whole>, BadRequest> {
        if self.head.is_none() {
            if self.input.is_empty() {
                return Ok(None);
            }
            let Some(head) = read_head(&self.input)? else {
                return Ok(None);
            };
            let here = (self.input.len() - head.length)
                .min(usize::try_from(head.body).unwrap_or(usize::MAX));
            self.input.drain(..head.length + here);
            self.body_left = head.body - here as u64;
            self.head = Some(head);
        }
        if self.body_left > 0 {
            return Ok(None);
        }
        Ok(self.head.take().map(|head| Whole {
            bytes: head.length as u64 + head.body,
            close: head.close,
        }))
    }

    /// Writes the rest of `bytes`, which is the current step. Returns how many the kernel took, and whether
    /// that was all of it.
    ///
    /// # Errors
    /// The client is gone.
    pub fn write(&mut self, bytes: &Arc<[u8]>) -> io::Result<(usize, bool)> {
        match self.stream.write(&bytes[self.written..]) {
            Ok(n) if self.written + n == bytes.len() => {
                self.written = 0;
                Ok((n, true))
            }
            Ok(n) => {
                self.written += n;
                Ok((n, false))
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok((0, false))
            }
            Err(e) => Err(e),
        }
    }
}
