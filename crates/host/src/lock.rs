//! Advisory file locks (`flock(2)`), and folders whose entries are locked while in use.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Locks a file until it is closed. Returns false if another process holds the lock.
///
/// # Errors
/// The file system does not support locks.
pub fn lock(file: &File) -> io::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Runs `create` while no other process creates or sweeps entries in a folder.
/// Creates the folder if necessary. Returns the locked entry. Once its file is closed, the entry is
/// abandoned.
pub(crate) fn create_in_use(
    folder: &Path,
    create: impl FnOnce() -> io::Result<File>,
) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let guard = File::open(folder)?;
    flock(&guard, FlockOperation::LockExclusive)?;
    let entry = create()?;
    flock(&entry, FlockOperation::NonBlockingLockExclusive)?;
    Ok(entry)
}

/// Calls `remove` for each unused entry in a folder. The folder may be missing.
pub(crate) fn sweep_abandoned(
    folder: &Path,
    mut remove: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let guard = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        guard => guard?,
    };
    flock(&guard, FlockOperation::LockExclusive)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match File::open(&path) {
            // The process that used the entry has just removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            entry => {
                if lock(&entry?)? {
                    remove(&path)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_second_lock() {
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let first = File::open(&path).unwrap();
        assert!(lock(&first).unwrap());
        assert!(!lock(&File::open(&path).unwrap()).unwrap());
        drop(first);
        assert!(lock(&File::open(&path).unwrap()).unwrap());
    }
}
