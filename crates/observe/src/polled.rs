//! Finds what a thread waits for in poll(2) or select(2).
//!
//! Many runtimes poll the descriptor that they read or write together with descriptors that only
//! wake the thread up: an eventfd, or a pipe to itself. A sleep can be such a call as well.

use std::fs::File;
use std::os::unix::fs::FileExt;

use floodmark_record::metric::{WaitKind, WaitObject};

use crate::Root;
use crate::descriptors::{Descriptors, Direction};

/// Maximum number of descriptors that are resolved. A thread that polls more waits for any event.
const MAX_POLLED: usize = 8;

/// Size of `struct pollfd` in bytes.
const POLLFD_BYTES: usize = 8;

/// Size of `fd_set` in bytes.
const FD_SET_BYTES: usize = 128;

/// The descriptors that a thread polls.
pub(crate) struct Polled {
    pid: u32,
    descriptors: Vec<(i32, Direction)>,
    has_timeout: bool,
}

impl Polled {
    /// Reads the first two arguments of poll(2) or ppoll(2). Returns `None` if there are too many
    /// descriptors, or if they cannot be read.
    pub(crate) fn poll(
        root: &Root,
        pid: u32,
        [address, count]: [u64; 2],
        has_timeout: bool,
    ) -> Option<Self> {
        let count = usize::try_from(count).ok()?;
        if count > MAX_POLLED {
            return None;
        }
        let mut bytes = [0; MAX_POLLED * POLLFD_BYTES];
        let bytes = &mut bytes[..count * POLLFD_BYTES];
        read_memory(root, pid, address, bytes)?;
        // struct pollfd: descriptor, requested events, returned events.
        let (polled, _) = bytes.as_chunks::<POLLFD_BYTES>();
        let descriptors = polled.iter().map(|[a, b, c, d, events, ..]| {
            let to = match i16::from(*events) & libc::POLLIN {
                0 => Direction::Write,
                _ => Direction::Read,
            };
            (i32::from_ne_bytes([*a, *b, *c, *d]), to)
        });
        Some(Self {
            pid,
            // The kernel ignores negative descriptors.
            descriptors: descriptors.filter(|(of, _)| *of >= 0).collect(),
            has_timeout,
        })
    }

    /// Reads the first three arguments of select(2) or pselect(2). Returns `None` if there are too
    /// many descriptors, or if they cannot be read.
    pub(crate) fn select(
        root: &Root,
        pid: u32,
        [count, read, write]: [u64; 3],
        has_timeout: bool,
    ) -> Option<Self> {
        let count = (count as i32).clamp(0, 8 * FD_SET_BYTES as i32);
        let mut descriptors = Vec::new();
        for (address, to) in [(read, Direction::Read), (write, Direction::Write)] {
            let mut set = [0; FD_SET_BYTES];
            let set = &mut set[..(count as usize).div_ceil(64) * 8];
            if address == 0 || set.is_empty() {
                continue;
            }
            read_memory(root, pid, address, set)?;
            let is_set = |of: &i32| set[*of as usize / 8] & (1 << (*of % 8)) != 0;
            descriptors.extend((0..count).filter(is_set).map(|of| (of, to)));
        }
        (descriptors.len() <= MAX_POLLED).then_some(Self {
            pid,
            descriptors,
            has_timeout,
        })
    }

    /// Returns what the thread waits for.
    pub(crate) fn object(&self, descriptors: &mut Descriptors) -> WaitObject {
        use WaitKind::{Events, PipeRead, Signal, Timer};
        let polled = self.descriptors.iter();
        let polled = polled.filter(|(of, _)| !descriptors.is_eventfd(self.pid, *of));
        let polled: Vec<(i32, Direction)> = polled.copied().collect();
        let objects = polled.iter();
        let mut objects: Vec<WaitObject> = objects
            .map(|(of, to)| descriptors.object(self.pid, *of, *to))
            .collect();
        let pipe = WaitObject::Kind(PipeRead);
        if objects.iter().any(|object| *object != pipe) {
            objects.retain(|object| *object != pipe);
        }
        match objects.split_first() {
            Some((first, rest)) if rest.iter().all(|other| other == first) => first.clone(),
            Some(_) => WaitObject::Kind(Events),
            None if self.has_timeout => WaitObject::Kind(Timer),
            None if self.descriptors.is_empty() => WaitObject::Kind(Signal),
            None => WaitObject::Kind(Events),
        }
    }
}

/// Reads the memory of a process.
fn read_memory(root: &Root, pid: u32, address: u64, into: &mut [u8]) -> Option<()> {
    if into.is_empty() {
        return Some(());
    }
    let memory = File::open(root.path(format!("/proc/{pid}/mem"))).ok()?;
    memory.read_exact_at(into, address).ok()
}
