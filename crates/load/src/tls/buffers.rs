//! Memory that a thread's connections take turns with, so that nothing is allocated per record.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::record::LONGEST;
use crate::backend::Bytes;

/// Buffers for what is sealed, with rooms of a few sizes: requests with templates differ in length.
///
/// A buffer comes back when nobody else holds it. There are never more than connections have been sending at once, and one
/// for each entry of the backend's queue.
#[derive(Debug)]
pub struct SealedBuffers {
    spare: HashMap<usize, Vec<Bytes>>,
    /// Replaced by a later one on their connection; a backend may hold them until its queue has gone to the kernel.
    retired: VecDeque<Bytes>,
}

/// Room for a usual request.
const USUAL: usize = 512;

/// Buffers of usual room that are there from the start: as many as a backend holds at once when little is sent on many connections, so
/// that a busy moment in the midst of a run finds them.
const STOCK: usize = 64;

impl Default for SealedBuffers {
    fn default() -> Self {
        let mut usual = Vec::with_capacity(4 * STOCK);
        usual.extend((0..STOCK).map(|_| Rc::new(Vec::with_capacity(USUAL))));
        SealedBuffers {
            spare: HashMap::from([(USUAL, usual)]),
            retired: VecDeque::with_capacity(4 * STOCK),
        }
    }
}

impl SealedBuffers {
    /// A buffer of `length` bytes that nobody else holds.
    pub fn take(&mut self, length: usize) -> Bytes {
        while self
            .retired
            .front()
            .is_some_and(|old| Rc::strong_count(old) == 1)
        {
            let free = self.retired.pop_front();
            free.into_iter().for_each(|free| self.put(free));
        }
        let room = room(length);
        let spare = self.spare.get_mut(&room).and_then(Vec::pop);
        let mut buffer = spare.unwrap_or_else(|| Rc::new(Vec::with_capacity(room)));
        if let Some(bytes) = Rc::get_mut(&mut buffer) {
            bytes.resize(length, 0);
        }
        buffer
    }

    /// Gives back what has been handed to a backend: `sent` at once where that is through with it; else it becomes the one
    /// that `last` holds, and the one before is free as soon as the backend lets go of it.
    pub fn handed(&mut self, sent: Bytes, last: &mut Option<Bytes>) {
        if Rc::strong_count(&sent) == 1 {
            self.put(sent);
        } else if let Some(old) = last.replace(sent) {
            self.retired.push_back(old);
        }
    }

    fn put(&mut self, free: Bytes) {
        self.spare.entry(room(free.len())).or_default().push(free);
    }
}

/// The room that a buffer for so many bytes has: that of a usual request, or the next power of two.
fn room(length: usize) -> usize {
    length.max(USUAL).next_power_of_two()
}

/// A record that has come in part.
#[derive(Debug)]
pub struct Partial {
    bytes: Box<[u8; LONGEST]>,
    /// How many of them have come.
    pub filled: usize,
}

impl Partial {
    /// Takes from `data` up to `length` bytes in all; what is left of `data`.
    pub fn fill<'a>(&mut self, length: usize, data: &'a [u8]) -> &'a [u8] {
        let n = length.saturating_sub(self.filled).min(data.len());
        let (taken, rest) = data.split_at(n);
        self.bytes[self.filled..self.filled + n].copy_from_slice(taken);
        self.filled += n;
        rest
    }

    /// What has come.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }
}

/// Room for records that have come in part: held only while one has, so an idle connection has none. There are never more
/// than connections that were in the midst of a record at once.
#[derive(Debug, Default)]
pub struct PartialBuffers(Vec<Box<[u8; LONGEST]>>);

impl PartialBuffers {
    /// Room for one.
    pub fn take(&mut self) -> Partial {
        let bytes = self.0.pop().unwrap_or_else(|| Box::new([0; LONGEST]));
        Partial { bytes, filled: 0 }
    }

    /// Gives it back.
    pub fn put(&mut self, partial: Partial) {
        self.0.push(partial.bytes);
    }
}
