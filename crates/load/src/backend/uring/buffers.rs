//! The ring of receive buffers that the kernel fills, shared by all connections of a thread.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Number of buffers, a power of two. It exceeds the number of completions that a thread handles at
/// once.
const COUNT: u16 = 512;

/// Size of each buffer in bytes. A typical response fits. Longer responses arrive in pieces.
const BYTES: usize = 4096;

/// Distance between buffers in bytes. Short responses use only the starts of the buffers. If this
/// distance were a multiple of the page size, these starts would share a few sets of the CPU
/// caches.
const STRIDE: usize = BYTES + 5 * 64;

/// Id of the buffer group within the ring.
pub const GROUP: u16 = 0;

/// Provided buffers (`IORING_REGISTER_PBUF_RING`, Linux 5.19).
pub struct ReceiveBuffers {
    /// Page-aligned memory that contains the entries, followed by the buffers.
    memory: NonNull<u8>,
    tail: u16,
}

/// Size of the entries in bytes, a multiple of the page size.
const ENTRIES_BYTES: usize = COUNT as usize * size_of::<BufRingEntry>();
const ALL_BYTES: usize = ENTRIES_BYTES + COUNT as usize * STRIDE;

impl ReceiveBuffers {
    /// Allocates the buffers and passes all of them to the kernel.
    ///
    /// # Errors
    /// Fails if there is not enough memory, or if the kernel does not support provided buffer
    /// rings.
    pub fn register(ring: &IoUring) -> io::Result<Self> {
        // SAFETY: an anonymous private mapping overlaps no other memory.
        let memory = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                ALL_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::POPULATE,
            )?
        };
        let Some(memory) = NonNull::new(memory.cast::<u8>()) else {
            return Err(io::Error::from_raw_os_error(libc::ENOMEM));
        };
        let mut buffers = ReceiveBuffers { memory, tail: 0 };
        // SAFETY: the entries are at the start of a page-aligned mapping that lives as long as
        // `buffers`. The owner drops `buffers` after the io_uring.
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

    /// Returns the first `length` bytes of a buffer that the kernel has filled.
    pub fn filled(&self, id: u16, length: usize) -> &[u8] {
        let start = ENTRIES_BYTES + usize::from(id % COUNT) * STRIDE;
        // SAFETY: the range is within the mapping. The kernel does not write to a filled buffer
        // until the buffer is returned, which requires `&mut self`.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(start), length.min(BYTES)) }
    }

    /// Returns a buffer to the ring. The kernel sees it after [`ReceiveBuffers::publish`].
    pub fn put(&mut self, id: u16) {
        let index = usize::from(self.tail % COUNT);
        let start = ENTRIES_BYTES + usize::from(id % COUNT) * STRIDE;
        // SAFETY: `index` is within the entries, which the kernel reads only up to the published
        // tail.
        // The tail occupies the first entry's reserved field. Setting only address, length and id
        // does not change the tail.
        unsafe {
            let entry = &mut *self.memory.as_ptr().cast::<BufRingEntry>().add(index);
            entry.set_addr(self.memory.as_ptr().add(start) as u64);
            entry.set_len(BYTES as u32);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Publishes the returned buffers to the kernel.
    pub fn publish(&self) {
        // SAFETY: the tail is an aligned 16-bit field of the first entry, in memory that lives as
        // long as `self`. Both sides access it atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.memory.as_ptr().cast::<BufRingEntry>()).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for ReceiveBuffers {
    fn drop(&mut self) {
        // SAFETY: the mapping was created with this size, and its owner has already closed the
        // io_uring.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), ALL_BYTES) };
    }
}
