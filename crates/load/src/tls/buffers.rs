//! Memory that a thread's connections take turns with, so that nothing is allocated per record.

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use super::record::LONGEST;

/// Buffers for what is sealed, each of exactly the length of what it holds, as backends take it.
///
/// A buffer comes back when nobody else holds it. There are never more than connections have been sending at once, and one
/// for each entry of the backend's queue.
#[derive(Debug, Default)]
pub struct SealedBuffers {
    spare: HashMap<usize, Vec<Rc<[u8]>>>,
    /// Replaced by a later one on their connection; a backend may hold them until its queue has gone to the kernel.
    retired: VecDeque<Rc<[u8]>>,
}

impl SealedBuffers {
    /// A buffer of `length` bytes that nobody else holds.
    pub fn take(&mut self, length: usize) -> Rc<[u8]> {
        while self
            .retired
            .front()
            .is_some_and(|old| Rc::strong_count(old) == 1)
        {
            let free = self.retired.pop_front();
            free.into_iter().for_each(|free| self.put(free));
        }
        self.spare
            .get_mut(&length)
            .and_then(Vec::pop)
            .unwrap_or_else(|| std::iter::repeat_n(0, length).collect())
    }

    /// Gives back what has been handed to a backend: `sent` at once where that is through with it; else it becomes the one
    /// that `last` holds, and the one before is free as soon as the backend lets go of it.
    pub fn handed(&mut self, sent: Rc<[u8]>, last: &mut Option<Rc<[u8]>>) {
        if Rc::strong_count(&sent) == 1 {
            self.put(sent);
        } else if let Some(old) = last.replace(sent) {
            self.retired.push_back(old);
        }
    }

    fn put(&mut self, free: Rc<[u8]>) {
        self.spare.entry(free.len()).or_default().push(free);
    }
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
