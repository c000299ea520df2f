//! Folders for the time of a run. One that a killed floodmark left behind is removed by the next.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::lock;

/// Ends the name of the file that says by its lock that somebody has the folder in use.
const LOCK: &str = "lock";

/// A folder that goes when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Locked as long as this process lives, however it ends.
    _lock: File,
}

impl Scratch {
    /// Makes an empty folder below another, which is made where it is missing. Only this user may look into it.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn create(below: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(below)?;
        for number in 0.. {
            let path = below.join(format!("{name}-{}-{number}", std::process::id()));
            let file = match File::create_new(lock_of(&path)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                file => file?,
            };
            lock::lock(&file)?;
            fs::DirBuilder::new().mode(0o700).create(&path)?;
            return Ok(Scratch { path, _lock: file });
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What stays is removed by the next sweep: its lock goes with this process.
        if remove(&self.path).is_ok() {
            let _ = fs::remove_file(lock_of(&self.path));
        }
    }
}

/// Removes the folders below another that nobody has in use any more; how many that were.
///
/// # Errors
/// A folder that cannot be read or removed. One that is missing holds nothing.
pub fn sweep_folders(below: &Path) -> io::Result<usize> {
    let entries = match fs::read_dir(below) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut removed = 0;
    for entry in entries {
        let note = entry?.path();
        if note.extension().is_none_or(|extension| extension != LOCK) {
            continue;
        }
        // Another floodmark may be sweeping too.
        let Ok(file) = File::open(&note) else {
            continue;
        };
        if !lock::lock(&file)? {
            continue;
        }
        remove(&note.with_extension(""))?;
        let _ = fs::remove_file(&note);
        removed += 1;
    }
    Ok(removed)
}

fn lock_of(folder: &Path) -> PathBuf {
    let mut name = OsString::from(folder);
    name.push(".");
    name.push(LOCK);
    PathBuf::from(name)
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_its_owner() {
        let root = tempfile::tempdir().unwrap();
        let below = root.path().join("stores");
        let one = Scratch::create(&below, "one").unwrap();
        let other = Scratch::create(&below, "one").unwrap();
        assert_ne!(one.path(), other.path());
        fs::create_dir(one.path().join("data")).unwrap();
        // Both are in use.
        assert_eq!(sweep_folders(&below).unwrap(), 0);
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && other.path().is_dir());
        drop(other);
        assert_eq!(fs::read_dir(&below).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_process_left_is_swept() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(sweep_folders(&root.path().join("none")).unwrap(), 0);
        let left = root.path().join("one-17-0");
        fs::create_dir_all(left.join("data")).unwrap();
        File::create(lock_of(&left)).unwrap();
        // Whatever else lies there stays.
        fs::write(root.path().join("note"), "x").unwrap();
        assert_eq!(sweep_folders(root.path()).unwrap(), 1);
        assert!(!left.exists() && !lock_of(&left).exists());
        assert!(root.path().join("note").exists());
    }
}
