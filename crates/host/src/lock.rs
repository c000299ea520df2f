//! A lock on a file that its writer holds, so that no two processes write it at once.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Locks a file for as long as it is open, unless another process has: then false.
///
/// The lock is advisory (`flock(2)`) and ends with the process, however that ends.
///
/// # Errors
/// A file system without locks.
pub fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: flock takes plain numbers; the descriptor is open for the length of the call.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(false),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let first = File::open(&path).unwrap();
        assert!(lock(&first).unwrap());
        assert!(!lock(&File::open(&path).unwrap()).unwrap());
        drop(first);
        assert!(lock(&File::open(&path).unwrap()).unwrap());
    }
}
