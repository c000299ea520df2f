//! Files: advisory locks (`flock(2)`), atomic replacement, durable names, and temporary
//! directories.
//!
//! When floodmark starts, it removes the temporary directories that a killed floodmark process left
//! behind.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

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

/// Locks a directory and runs `create`, so that no other process creates or sweeps entries in the
/// meantime. Creates the directory if necessary. Returns the locked file of the entry. Once this
/// file is closed, the entry counts as abandoned.
pub(crate) fn create_in_use(
    directory: &Path,
    create: impl FnOnce() -> io::Result<File>,
) -> io::Result<File> {
    fs::create_dir_all(directory)?;
    let guard = File::open(directory)?;
    flock(&guard, FlockOperation::LockExclusive)?;
    let entry = create()?;
    flock(&entry, FlockOperation::NonBlockingLockExclusive)?;
    Ok(entry)
}

/// Calls `remove` for each abandoned entry in a directory. The directory may be missing.
pub(crate) fn sweep_abandoned(
    directory: &Path,
    mut remove: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let guard = match File::open(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        guard => guard?,
    };
    flock(&guard, FlockOperation::LockExclusive)?;
    for entry in fs::read_dir(directory)? {
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

/// Replaces the content of a file atomically and durably.
///
/// Writes and syncs `PATH.new`, renames it to `path`, and syncs the directory.
/// Keeps the permissions of an existing file.
///
/// # Errors
/// One of these steps fails. `PATH.new` is then removed. `path` is unchanged, unless the failed
/// step is syncing the directory.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = OsString::from(path);
    temporary.push(".new");
    let write = || {
        let mut file = File::create(&temporary)?;
        if let Ok(existing) = fs::metadata(path) {
            file.set_permissions(existing.permissions())?;
        }
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })?;
    sync_directory(path)
}

/// Syncs the directory of a file, so that the file's name survives a crash of the host.
///
/// # Errors
/// The directory cannot be opened or synced.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

/// A directory that is removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Locked until this process exits.
    _lock: File,
}

impl Scratch {
    /// Creates an empty directory in `parent` that only this user may access.
    /// Creates `parent` if necessary.
    ///
    /// # Errors
    /// `parent` cannot be written.
    pub fn create(parent: &Path, name: &str) -> io::Result<Self> {
        let path = |number| parent.join(format!("{name}-{}-{number}", std::process::id()));
        let path = (0_u64..).map(path).find(|path| !path.exists());
        let path = path.ok_or(io::ErrorKind::AlreadyExists)?;
        let lock = create_in_use(parent, || {
            DirBuilder::new().mode(0o700).create(&path)?;
            File::open(&path)
        })?;
        Ok(Scratch { path, _lock: lock })
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, the next sweep removes the directory.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the abandoned directories in `parent`, and returns how many there were.
///
/// # Errors
/// A directory cannot be read or removed. A missing `parent` is not an error.
pub fn sweep_directories(parent: &Path) -> io::Result<usize> {
    let mut removed = 0;
    sweep_abandoned(parent, |path| {
        if path.is_dir() {
            fs::remove_dir_all(path)?;
            removed += 1;
        }
        Ok(())
    })?;
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

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

    fn names(directory: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn replaces_the_content_and_keeps_the_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page.html");
        replace_file(&path, b"old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        replace_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(names(directory.path()), ["page.html"]);
    }

    #[test]
    fn leaves_nothing_after_a_failure() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("page.html");
        fs::create_dir(&path).unwrap();
        assert!(replace_file(&path, b"new").is_err());
        assert!(path.is_dir());
        assert_eq!(names(directory.path()), ["page.html"]);
    }

    #[test]
    fn removes_the_directory_on_drop() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("stores");
        let one = Scratch::create(&parent, "one").unwrap();
        let other = Scratch::create(&parent, "one").unwrap();
        assert_ne!(one.path(), other.path());
        fs::create_dir(one.path().join("data")).unwrap();
        assert_eq!(sweep_directories(&parent).unwrap(), 0);
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && other.path().is_dir());
        drop(other);
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
    }

    #[test]
    fn sweeps_directories_of_killed_processes() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(sweep_directories(&root.path().join("none")).unwrap(), 0);
        let left = root.path().join("one-17-0");
        fs::create_dir_all(left.join("data")).unwrap();
        fs::write(root.path().join("note"), "x").unwrap();
        assert_eq!(sweep_directories(root.path()).unwrap(), 1);
        assert!(!left.exists());
        assert!(root.path().join("note").exists());
    }
}
