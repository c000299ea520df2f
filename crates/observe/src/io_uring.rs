//! Whether io_uring can be used: asked of the kernel by setting up a ring and closing it.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use floodmark_record::host::IoUringFacts;

use crate::{Root, sysctl};

/// `struct io_uring_params` of the kernel's `io_uring.h` is 120 bytes; all zero asks for a plain ring.
#[repr(C, align(8))]
struct Params([u8; 120]);

/// Sets up a ring of one entry and closes it again.
#[must_use]
pub fn read(root: &Root) -> IoUringFacts {
    let errno = probe().err().and_then(|error| error.raw_os_error());
    IoUringFacts {
        available: errno.is_none(),
        errno,
        disabled: sysctl::number(root, "kernel.io_uring_disabled"),
    }
}

fn probe() -> io::Result<()> {
    let mut params = Params([0; 120]);
    // SAFETY: the kernel writes at most the 120 bytes of its io_uring_params, which `params` holds with their alignment;
    // on success the call returns a new descriptor.
    let result = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1_u32, &raw mut params) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let fd = RawFd::try_from(result).map_err(io::Error::other)?;
    // SAFETY: the descriptor was just made for us and nobody else has it; dropping it closes the ring.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_the_kernel_gives_and_no_ring_left() {
        let facts = read(&Root::host());
        if facts.disabled == Some(2) {
            assert!(!facts.available, "{facts:?}");
        }
        let known = [
            None,
            Some(libc::ENOSYS),
            Some(libc::EPERM),
            Some(libc::ENOMEM),
        ];
        assert!(known.contains(&facts.errno), "{facts:?}");
        let rings = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
            .filter(|link| link.to_string_lossy().contains("io_uring"))
            .count();
        assert_eq!(rings, 0);
    }
}
