//! Temporary folders.
//!
//! When floodmark starts, it removes the folders that a killed floodmark process left behind.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::lock::{create_in_use, sweep_abandoned};

/// A folder that is removed on drop.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Locked until this process exits.
    _lock: File,
}

impl Scratch {
    /// Creates an empty folder in `parent` that only this user may access.
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
        // If this fails, the next sweep removes the folder.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the unused folders in `parent` and returns their number.
///
/// # Errors
/// A folder cannot be read or removed. A missing `parent` is not an error.
pub fn sweep_folders(parent: &Path) -> io::Result<usize> {
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
    use super::*;

    #[test]
    fn removes_the_folder_on_drop() {
        let root = tempfile::tempdir().unwrap();
        let parent = root.path().join("stores");
        let one = Scratch::create(&parent, "one").unwrap();
        let other = Scratch::create(&parent, "one").unwrap();
        assert_ne!(one.path(), other.path());
        fs::create_dir(one.path().join("data")).unwrap();
        assert_eq!(sweep_folders(&parent).unwrap(), 0);
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && other.path().is_dir());
        drop(other);
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
    }

    #[test]
    fn sweeps_folders_of_killed_processes() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(sweep_folders(&root.path().join("none")).unwrap(), 0);
        let left = root.path().join("one-17-0");
        fs::create_dir_all(left.join("data")).unwrap();
        fs::write(root.path().join("note"), "x").unwrap();
        assert_eq!(sweep_folders(root.path()).unwrap(), 1);
        assert!(!left.exists());
        assert!(root.path().join("note").exists());
    }
}
