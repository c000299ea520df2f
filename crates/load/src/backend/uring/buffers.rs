//! The ring of buffers that the kernel puts received bytes into, shared by all connections of a thread.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

/// Buffers in the ring, a power of two: more than a thread has completions at hand at once.
const COUNT: u16 = 512;

/// Size of each: an ordinary answer fits; longer ones come in pieces.
const BYTES: usize = 4096;

/// From one to the next. A multiple of the page size would put the beginnings of all, which are what short answers fill, into the
/// same few sets of the processor's caches.
const STRIDE: usize = BYTES + 5 * 64;

/// The ring's group within its io_uring.
pub const GROUP: u16 = 0;

/// Provided buffers (`IORING_REGISTER_PBUF_RING`, Linux 5.19).
pub struct Buffers {
    /// Page-aligned: the entries, then the buffers.
    memory: NonNull<u8>,
    tail: u16,
}

/// The entries' part of the memory; a multiple of the page size.
const ENTRIES_BYTES: usize = COUNT as usize * size_of::<BufRingEntry>();
const ALL_BYTES: usize = ENTRIES_BYTES + COUNT as usize * STRIDE;

impl Buffers {
    /// Makes the buffers and hands them all to the kernel.
    ///
    /// # Errors
    /// No memory, or a kernel without provided buffer rings.
    pub fn register(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: an anonymous private mapping of a constant size; the result is checked.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                ALL_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(memory) = NonNull::new(memory.cast::<u8>()) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        let mut buffers = Buffers { memory, tail: 0 };
        // SAFETY: the entries lie at the start of a page-aligned mapping that lives as long as `buffers`, which its owner drops
        // after the io_uring.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                memory.as_ptr() as u64,
                COUNT,
                GROUP,
                0,
            )?
        };
        for id in 0..COUNT {
            buffers.put(id);
        }
        buffers.publish();
        Ok(buffers)
    }

    /// The first `length` bytes of a buffer that the kernel has filled.
    pub fn filled(&self, id: u16, length: usize) -> &[u8] {
        let start = ENTRIES_BYTES + usize::from(id % COUNT) * STRIDE;
        // SAFETY: the range lies within the mapping, and the kernel does not write to a buffer between filling it and
        // being given it back, which takes `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(start), length.min(BYTES)) }
    }

    /// Gives a buffer back; the kernel sees it after [`Buffers::publish`].
    pub fn put(&mut self, id: u16) {
        let index = usize::from(self.tail % COUNT);
        let start = ENTRIES_BYTES + usize::from(id % COUNT) * STRIDE;
        // SAFETY: `index` is within the entries, which the kernel only reads up to the published tail; address, length and id
        // are set without touching the tail, which shares the first entry's reserved field.
        unsafe {
            let entry = &mut *self.memory.as_ptr().cast::<BufRingEntry>().add(index);
            entry.set_addr(self.memory.as_ptr().add(start) as u64);
            entry.set_len(BYTES as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Lets the kernel see the buffers that were given back.
    pub fn publish(&self) {
        // SAFETY: the tail is a 16-bit field of the first entry, aligned, in memory that lives as long as `self`; both sides
        // access it atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.memory.as_ptr().cast::<BufRingEntry>()).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this size, and its owner has closed the io_uring before.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), ALL_BYTES) };
    }
}
