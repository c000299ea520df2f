//! The file that keeps the dispatcher's numbers over a crash. It says one thing: *no number from `next` on was ever handed out*.
//!
//! ```text
//! floodmark dispatcher state 1
//! next 1048577
//! sum 5d1f0c4a1e0b7c33
//! ```
//!
//! A new value is written beside it, synced, renamed over it, and the folder synced. So the file is at every moment either the
//! old or the new value as a whole, and *anything* else in it is damage, which is refused. Two slots written in turn would need
//! one sync instead of two, but could not tell a torn write (the other slot is right) from a slot that rotted later (the other
//! slot is too old, and numbers would be handed out twice). A write comes once in seconds and nobody waits for it.
//!
//! The lock is on a file of its own (`FILE.lock`), because a rename replaces the file that would hold it. It is left in place:
//! removing it could let two servers lock two different files.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const MAGIC: &str = "floodmark dispatcher state ";
const VERSION: u32 = 1;
/// Longer than any file we write: what is longer is not ours.
const MAX_BYTES: u64 = 256;

/// Why a state file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is not a state file.
    #[error("{} is not a dispatcher's state file; choose another path, or remove it to begin at 1", .0.display())]
    Foreign(PathBuf),
    /// A later floodmark wrote it.
    #[error("{} was written by a later version of floodmark; use that version, or choose another path", .0.display())]
    Version(PathBuf),
    /// It was damaged.
    #[error(
        "{} is damaged (its checksum does not match); restore it from a copy, or remove it to begin at 1, \
         which hands out numbers again", .0.display()
    )]
    Damaged(PathBuf),
    /// Another server uses it.
    #[error("{} is in use by another server; stop that one, or choose another path", .0.display())]
    Locked(PathBuf),
    /// The numbers would not fit 64 bits.
    #[error("{} has reached the last number; choose another path", .0.display())]
    Exhausted(PathBuf),
    /// The system refused.
    #[error("cannot {doing} {}: {source}; check that its folder exists, is writable and has space", .path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// An opened and locked state file.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    fresh: PathBuf,
    folder: PathBuf,
    _lock: File,
}

impl StateFile {
    /// Opens and locks it; the number is the first that may be handed out, 1 where there is no file yet.
    pub(crate) fn open(path: &Path) -> Result<(Self, u64), StateError> {
        // Followed to the end, so that two names of one file share one lock and a rename does not replace a link.
        let path = match fs::canonicalize(path) {
            Ok(path) => path,
            Err(e) if e.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(e) => return Err(failed("open", path, e)),
        };
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let lock = lock(&path)?;
        let next = read(&path)?;
        let file = StateFile {
            fresh: beside(&path, ".new"),
            folder,
            path,
            _lock: lock,
        };
        Ok((file, next))
    }

    /// Makes durable that no number from `next` on was handed out. After an error the file holds the old or the new value.
    pub(crate) fn write(&self, next: u64) -> Result<(), StateError> {
        let write = || -> io::Result<()> {
            let mut file = File::create(&self.fresh)?;
            file.write_all(render(next).as_bytes())?;
            file.sync_all()?;
            fs::rename(&self.fresh, &self.path)?;
            File::open(&self.folder)?.sync_all()
        };
        write().map_err(|e| failed("write", &self.path, e))
    }
}

fn lock(path: &Path) -> Result<File, StateError> {
    let lock_path = beside(path, ".lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock_path)
        .map_err(|e| failed("open", &lock_path, e))?;
    // SAFETY: the descriptor is open for the call; `flock` takes nothing else.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(file);
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::WouldBlock {
        return Err(StateError::Locked(path.to_owned()));
    }
    Err(failed("lock", &lock_path, error))
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
    parse(&bytes).map_err(|problem| match problem {
        Problem::Foreign => StateError::Foreign(path.to_owned()),
        Problem::Version => StateError::Version(path.to_owned()),
        Problem::Damaged => StateError::Damaged(path.to_owned()),
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Problem {
    Foreign,
    Version,
    Damaged,
}

fn parse(bytes: &[u8]) -> Result<u64, Problem> {
    let rest = bytes
        .strip_prefix(MAGIC.as_bytes())
        .ok_or(Problem::Foreign)?;
    let text = str::from_utf8(rest).map_err(|_| Problem::Damaged)?;
    let mut lines = text.lines();
    match lines.next().and_then(|v| v.parse::<u32>().ok()) {
        Some(VERSION) => {}
        Some(later) if later > VERSION => return Err(Problem::Version),
        _ => return Err(Problem::Damaged),
    }
    let next = lines
        .next()
        .and_then(|line| line.strip_prefix("next "))
        .and_then(|n| n.parse().ok())
        .filter(|n| *n > 0)
        .ok_or(Problem::Damaged)?;
    // Byte for byte what we would write: no other spelling of the same number passes.
    if render(next).as_bytes() == bytes {
        Ok(next)
    } else {
        Err(Problem::Damaged)
    }
}

fn render(next: u64) -> String {
    let content = format!("{MAGIC}{VERSION}\nnext {next}\n");
    let sum = fnv1a(content.as_bytes());
    format!("{content}sum {sum:016x}\n")
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo). Every step is a bijection of the state, so one changed byte always shows.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> StateError {
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
    fn what_is_written_is_read_back() {
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
    fn any_single_changed_byte_is_found() {
        let good = render(1_048_577);
        assert_eq!(parse(good.as_bytes()), Ok(1_048_577));
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
        assert_eq!(parse(b""), Err(Problem::Foreign));
        assert_eq!(parse(b"#!/bin/sh\n"), Err(Problem::Foreign));
        assert_eq!(
            parse(format!("{MAGIC}2\nwhatever\n").as_bytes()),
            Err(Problem::Version)
        );
        assert_eq!(parse(render(0).as_bytes()), Err(Problem::Damaged));
        assert_eq!(
            parse(format!("{good} ").as_bytes()),
            Err(Problem::Damaged),
            "nothing may follow"
        );
    }

    #[test]
    fn the_checksum_is_fnv1a() {
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn one_server_at_a_time_even_through_a_link() {
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
    fn errors_name_the_file_and_the_mend() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        fs::write(&path, "my notes").unwrap();
        let error = StateFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("notes.txt is not a dispatcher's state file"));
        assert!(error.contains("choose another path"));
        assert_eq!(fs::read(&path).unwrap(), b"my notes", "left as it was");
        let error = StateFile::open(&folder.path().join("no/such/state")).unwrap_err();
        assert!(error.to_string().contains("its folder exists"), "{error}");
        let error = StateFile::open(folder.path()).unwrap_err();
        assert!(matches!(error, StateError::Foreign(_)), "{error}");
    }
}
