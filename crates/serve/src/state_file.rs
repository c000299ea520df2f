//! The state file of the dispatcher. The file guarantees that no number greater than or equal to
//! `next` has ever been handed out.
//!
//! ```text
//! floodmark dispatcher state 1
//! next 1048577
//! sum 5d1f0c4a1e0b7c33
//! ```
//!
//! Each write replaces the file atomically, so the file contains either the old or the new value.
//! Any other content is refused as damaged.
//!
//! Alternating between two slots in one file would need one sync per write instead of two. But a
//! torn write and later corruption of a slot would look the same. After a torn write, the other
//! slot is valid. After corruption, the other slot is too old, and numbers would repeat.
//!
//! The lock is a separate file (`FILE.lock`), because a rename replaces the state file. The lock
//! file is never removed. Otherwise two servers could lock two different files.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use floodmark_host::lock::lock;
use floodmark_host::replace_file;

const MAGIC: &str = "floodmark dispatcher state ";
const VERSION: u32 = 1;
/// Maximum size of a state file, in bytes. A longer file is not a state file.
const MAX_BYTES: u64 = 256;

/// An error while opening, reading or writing a state file.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file is not a state file.
    #[error("{} is not a state file; choose another path, or remove the file to start at 1", .0.display())]
    Foreign(PathBuf),
    /// The file was written by a later version.
    #[error("{} was written by a later version of floodmark; use that version or another path", .0.display())]
    Version(PathBuf),
    /// The checksum is invalid.
    #[error(
        "{} is damaged (invalid checksum); restore a copy, or remove the file to start at 1, which repeats numbers",
        .0.display()
    )]
    Damaged(PathBuf),
    /// The file is in use by another server.
    #[error("{} is in use by another server; stop that server or choose another path", .0.display())]
    Locked(PathBuf),
    /// The next number exceeds 64 bits.
    #[error("{} has too few 64-bit numbers left; choose another path", .0.display())]
    Exhausted(PathBuf),
    /// A system call failed.
    #[error("cannot {doing} {}: {source}; check that its folder exists, is writable and has free space", .path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// An open and locked state file.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Opens and locks the file, and returns it with the first number to hand out. That number is 1
    /// if the file is new.
    pub(crate) fn open(path: &Path) -> Result<(Self, u64), StateError> {
        // Resolve links, so that two names for the same file share a lock, and a rename replaces
        // the file rather than a link.
        let path = match fs::canonicalize(path) {
            Ok(path) => path,
            Err(e) if e.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(e) => return Err(failed("open", path, e)),
        };
        let lock = take_lock(&path)?;
        let next = read(&path)?;
        Ok((StateFile { path, _lock: lock }, next))
    }

    /// Writes `next` durably. No number greater than or equal to `next` may have been handed out.
    /// After an error, the file contains either the old or the new value.
    pub(crate) fn write(&self, next: u64) -> Result<(), StateError> {
        replace_file(&self.path, render(next).as_bytes())
            .map_err(|e| failed("write", &self.path, e))
    }
}

fn take_lock(path: &Path) -> Result<File, StateError> {
    let mut lock_path = OsString::from(path);
    lock_path.push(".lock");
    let lock_path = PathBuf::from(lock_path);
    let file = File::options()
        .create(true)
        .append(true)
        .open(&lock_path)
        .map_err(|e| failed("open", &lock_path, e))?;
    match lock(&file) {
        Ok(true) => Ok(file),
        Ok(false) => Err(StateError::Locked(path.to_owned())),
        Err(error) => Err(failed("lock", &lock_path, error)),
    }
}

fn read(path: &Path) -> Result<u64, StateError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(1),
        Err(e) => return Err(failed("open", path, e)),
    };
    let is_file = file.metadata().map(|m| m.is_file());
    if !is_file.map_err(|e| failed("read", path, e))? {
        return Err(StateError::Foreign(path.to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|e| failed("read", path, e))?;
    parse(&bytes).map_err(|error| error(path.to_owned()))
}

/// Parses the content and returns the next number. The error is a function that takes the path.
fn parse(bytes: &[u8]) -> Result<u64, fn(PathBuf) -> StateError> {
    let Some(rest) = bytes.strip_prefix(MAGIC.as_bytes()) else {
        return Err(StateError::Foreign);
    };
    let mut lines = str::from_utf8(rest).unwrap_or_default().lines();
    let version = lines.next().and_then(|line| line.parse::<u32>().ok());
    if version.is_some_and(|version| version > VERSION) {
        return Err(StateError::Version);
    }
    let number = lines.next().and_then(|line| line.strip_prefix("next "));
    let next = number.and_then(|number| number.parse().ok());
    // Refuse other representations of the same number.
    next.filter(|next| *next > 0 && render(*next).as_bytes() == bytes)
        .ok_or(StateError::Damaged)
}

fn render(next: u64) -> String {
    let content = format!("{MAGIC}{VERSION}\nnext {next}\n");
    let sum = fnv1a(content.as_bytes());
    format!("{content}sum {sum:016x}\n")
}

/// Computes the 64-bit FNV-1a hash. Each step is a bijection of the state, so changing one byte
/// always changes the hash.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Returns the error for a failed system call.
pub(crate) fn failed(doing: &'static str, path: &Path, source: io::Error) -> StateError {
    StateError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_wrote() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (file, next) = StateFile::open(&path).unwrap();
        assert_eq!(next, 1);
        file.write(42).unwrap();
        drop(file);
        let (file, next) = StateFile::open(&path).unwrap();
        assert_eq!((next, file.path), (42, path));
    }

    #[test]
    fn detects_any_changed_byte() {
        let good = render(1_048_577);
        assert_eq!(parse(good.as_bytes()).ok(), Some(1_048_577));
        for at in 0..good.len() {
            for flip in [0x01, 0x20, 0x80] {
                let mut bad = good.clone().into_bytes();
                bad[at] ^= flip;
                assert!(parse(&bad).is_err(), "byte {at} ^ {flip}");
            }
        }
        for cut in 0..good.len() {
            assert!(parse(&good.as_bytes()[..cut]).is_err(), "cut at {cut}");
        }
        let error = |content: &str| parse(content.as_bytes()).unwrap_err()(PathBuf::new());
        for foreign in ["", "#!/bin/sh\n"] {
            assert!(matches!(error(foreign), StateError::Foreign(_)));
        }
        let later = error(&format!("{MAGIC}2\nwhatever\n"));
        assert!(matches!(later, StateError::Version(_)));
        for damaged in [render(0), format!("{good} ")] {
            assert!(matches!(error(&damaged), StateError::Damaged(_)));
        }
    }

    #[test]
    fn the_checksum_is_fnv1a() {
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn locks_the_file_behind_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (file, _) = StateFile::open(&path).unwrap();
        file.write(7).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for name in [&path, &link] {
            let error = StateFile::open(name).unwrap_err();
            assert!(matches!(error, StateError::Locked(_)), "{error}");
        }
        drop(file);
        let (file, next) = StateFile::open(&link).unwrap();
        assert_eq!(next, 7);
        file.write(8).unwrap();
        drop(file);
        assert!(link.is_symlink());
        assert_eq!(StateFile::open(&path).unwrap().1, 8);
    }

    #[test]
    fn errors_name_the_file_and_the_fix() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        fs::write(&path, "my notes").unwrap();
        let error = StateFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("notes.txt is not a state file"));
        assert!(error.contains("choose another path"));
        assert_eq!(fs::read(&path).unwrap(), b"my notes", "unchanged");
        let error = StateFile::open(&folder.path().join("missing/state")).unwrap_err();
        assert!(error.to_string().contains("its folder exists"), "{error}");
        let error = StateFile::open(folder.path()).unwrap_err();
        assert!(matches!(error, StateError::Foreign(_)), "{error}");
    }
}
