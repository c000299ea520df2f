//! Checks whether io_uring is available by setting up a ring and closing it.

use floodmark_record::host::IoUringFacts;
use rustix::io_uring::{io_uring_params, io_uring_setup};

use crate::{Root, sysctl};

/// Sets up a ring with one entry and closes it.
#[must_use]
pub fn read(root: &Root) -> IoUringFacts {
    let mut parameters = io_uring_params::default();
    // SAFETY: the parameters request a plain ring, which refers to no memory of this process.
    let ring = unsafe { io_uring_setup(1, &mut parameters) };
    let errno = ring.err().map(|error| error.raw_os_error());
    IoUringFacts {
        available: errno.is_none(),
        errno,
        disabled: sysctl::number(root, "kernel.io_uring_disabled"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_known_error_and_leaves_no_ring_open() {
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
