//! The state file of the dispatcher. The file guarantees that no number greater than or equal to
//! `next` has ever been handed out.
//!
//! A server locks the state file itself and writes it in place, so a second server cannot use the
//! file through another hard link.
//!
//! The file has two slots that contain the same record:
//!
//! ```text
//! floodmark dispatcher state 2
//! next 1048577
//! sum 5d1f0c4a1e0b7c33
//! ```
//!
//! Each update writes and syncs the second slot, and then the first. A value is in effect only when
//! both slots contain it. A valid slot therefore never contains a value older than the one in
//! effect, even if the other slot is torn by a crash or damaged later. Version 1 had only the first
//! slot.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use floodmark_host::lock;
use floodmark_host::sync_directory;
use rustix::fs::OFlags;

/// An error while opening, reading or writing a state file or the file of a store.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file is not a state file.
    #[error("{}: not a state file; choose another path, or restore a copy", .0.display())]
    Foreign(PathBuf),
    /// The file was written by a later version.
    #[error("{}: written by a later version of floodmark; use that version or another path", .0.display())]
    Version(PathBuf),
    /// The checksums are invalid.
    #[error(
        "{}: damaged (invalid checksums); restore a copy (without the file, numbers start at 1 and repeat)",
        .0.display()
    )]
    Damaged(PathBuf),
    /// The path refers to a directory, FIFO, socket, device or broken symbolic link.
    #[error("{}: {kind}, not a regular file; choose another path", .path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
        /// Type of the file at the path, with an indefinite article, such as `a directory`.
        kind: &'static str,
    },
    /// The file is not readable, or not writable.
    #[error("{}: not readable and writable; run chmod u+rw on it, or choose another path", .0.display())]
    Permissions(PathBuf),
    /// The file has more than one hard link.
    #[error(
        "{}: has {links} hard links, and numbers can repeat if one of them is replaced; remove the other links, or choose another path",
        .path.display()
    )]
    HardLinks {
        /// The path.
        path: PathBuf,
        /// Number of hard links.
        links: u64,
    },
    /// The file is in use by another server.
    #[error("{}: in use by another server; stop that server or choose another path", .0.display())]
    Locked(PathBuf),
    /// The path no longer names the file that the server opened.
    #[error("{}: removed or replaced during use; move the file back, or restart the server", .0.display())]
    Replaced(PathBuf),
    /// The next number exceeds 64 bits.
    #[error("{}: too few 64-bit numbers left; choose another path", .0.display())]
    Exhausted(PathBuf),
    /// A system call failed.
    #[error("{}: cannot {doing}: {source}; check that its directory exists, is writable and has free space", .path.display())]
    Io {
        /// The operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// An open and locked state file.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    file: File,
    /// Device and inode.
    id: (u64, u64),
}

impl StateFile {
    /// Opens and locks the file, and returns it with the first number to hand out. That number is 1
    /// if the file is new or empty.
    pub(crate) fn open(path: &Path) -> Result<(Self, u64), StateError> {
        let path = match fs::canonicalize(path) {
            Ok(path) => path,
            Err(e) if e.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(e) => return Err(failed("open", path, e)),
        };
        let (file, found) = open_regular(&path)?;
        // Lock before the other checks, so that their results stay valid while the server runs.
        match lock(&file) {
            Ok(true) => {}
            Ok(false) => return Err(StateError::Locked(path)),
            Err(error) => return Err(failed("lock", &path, error)),
        }
        let id = (found.dev(), found.ino());
        let state = StateFile { path, file, id };
        let links = state.check_path()?.nlink();
        if links > 1 {
            let path = state.path;
            return Err(StateError::HardLinks { path, links });
        }
        let next = state.read()?;
        Ok((state, next))
    }

    /// Writes `next` durably. No number greater than or equal to `next` may have been handed out.
    /// After an error, the file contains either the old or the new value.
    pub(crate) fn write(&self, next: u64) -> Result<(), StateError> {
        self.check_path()?;
        let slot = render_slot(next);
        for offset in [SLOT_BYTES as u64, 0] {
            let written = self.file.write_all_at(&slot, offset);
            let synced = written.and_then(|()| self.file.sync_data());
            synced.map_err(|error| failed("write", &self.path, error))?;
        }
        Ok(())
    }

    /// Checks that the path still names the open file. Otherwise, a second server could open the
    /// path and lock another file.
    fn check_path(&self) -> Result<Metadata, StateError> {
        match fs::symlink_metadata(&self.path) {
            Ok(named) if (named.dev(), named.ino()) == self.id => Ok(named),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed("check", &self.path, error))
            }
            _ => Err(StateError::Replaced(self.path.clone())),
        }
    }

    fn read(&self) -> Result<u64, StateError> {
        let mut content = Vec::new();
        let read = (&self.file)
            .take(2 * SLOT_BYTES as u64)
            .read_to_end(&mut content);
        read.map_err(|error| failed("read", &self.path, error))?;
        if content.is_empty() {
            sync_directory(&self.path).map_err(|error| failed("create", &self.path, error))?;
            return Ok(1);
        }
        parse_slots(&content).map_err(|fault| {
            let path = self.path.clone();
            match fault {
                SlotFault::Foreign => StateError::Foreign(path),
                SlotFault::Version => StateError::Version(path),
                SlotFault::Damaged => StateError::Damaged(path),
            }
        })
    }
}

/// Opens or creates a regular file. Opening a device can have side effects, so the file type is
/// checked before and after opening.
pub(crate) fn open_regular(path: &Path) -> Result<(File, Metadata), StateError> {
    let exists = match fs::symlink_metadata(path) {
        Ok(found) => check_kind(path, &found).map(|()| true)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed("open", path, error)),
    };
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let opened = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(flags.bits().cast_signed())
        .open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem if exists => {
            StateError::Permissions(path.to_owned())
        }
        _ => failed("open", path, error),
    })?;
    let found = file
        .metadata()
        .map_err(|error| failed("open", path, error))?;
    check_kind(path, &found)?;
    // Root can open read-only files for writing.
    if found.permissions().readonly() {
        return Err(StateError::Permissions(path.to_owned()));
    }
    Ok((file, found))
}

fn check_kind(path: &Path, found: &Metadata) -> Result<(), StateError> {
    let found = found.file_type();
    let kind = match () {
        () if found.is_file() => return Ok(()),
        () if found.is_dir() => "a directory",
        () if found.is_symlink() => "a broken symbolic link",
        () if found.is_fifo() => "a FIFO",
        () if found.is_socket() => "a socket",
        () => "a device",
    };
    let path = path.to_owned();
    Err(StateError::NotRegular { path, kind })
}

/// Returns the error for a failed system call.
pub(crate) fn failed(doing: &'static str, path: &Path, source: io::Error) -> StateError {
    StateError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

const MAGIC: &str = "floodmark dispatcher state ";
const VERSION: u32 = 2;

/// Size of a slot, in bytes. The atomic write unit of a disk is at most this large, so a torn write
/// damages only one slot.
const SLOT_BYTES: usize = 4096;

/// Why a state file has no valid slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotFault {
    /// No slot starts with [`MAGIC`].
    Foreign,
    /// A later version wrote the file.
    Version,
    /// The checksum is invalid.
    Damaged,
}

/// Parses a state file and returns the next number.
fn parse_slots(content: &[u8]) -> Result<u64, SlotFault> {
    use SlotFault::{Damaged, Foreign, Version};
    let (first, second) = content.split_at(content.len().min(SLOT_BYTES));
    match (parse(first), parse(second)) {
        (Err(Version), _) | (_, Err(Version)) => Err(Version),
        // The server may have crashed between the two writes, or while it was writing a slot.
        (Ok(first), Ok(second)) => Ok(first.max(second)),
        (Ok(next), Err(_)) | (Err(_), Ok(next)) => Ok(next),
        (Err(Foreign), Err(Foreign)) => Err(Foreign),
        (Err(Foreign | Damaged), Err(Foreign | Damaged)) => Err(Damaged),
    }
}

/// Returns the content of each slot.
fn render_slot(next: u64) -> Vec<u8> {
    let mut slot = render(VERSION, next).into_bytes();
    slot.resize(SLOT_BYTES, b'\n');
    slot
}

fn parse(slot: &[u8]) -> Result<u64, SlotFault> {
    let rest = slot.strip_prefix(MAGIC.as_bytes());
    let rest = rest.ok_or(SlotFault::Foreign)?;
    let end = rest.iter().position(|byte| *byte == 0);
    let text = str::from_utf8(&rest[..end.unwrap_or(rest.len())]).unwrap_or_default();
    let mut lines = text.lines();
    let version: Option<u32> = lines.next().and_then(|line| line.parse().ok());
    let version = version.ok_or(SlotFault::Damaged)?;
    if version > VERSION {
        return Err(SlotFault::Version);
    }
    let number = lines.next().and_then(|line| line.strip_prefix("next "));
    let next = number.and_then(|number| number.parse().ok());
    // Reject other representations of the same number. Slots are padded with newlines. In a
    // version 1 file, writing the second slot leaves zeros after the first record.
    let is_padding = |rest: &[u8]| rest.iter().all(|byte| matches!(byte, b'\n' | 0));
    let is_canonical = |next: &u64| {
        let padding = slot.strip_prefix(render(version, *next).as_bytes());
        *next > 0 && padding.is_some_and(is_padding)
    };
    next.filter(is_canonical).ok_or(SlotFault::Damaged)
}

fn render(version: u32, next: u64) -> String {
    let content = format!("{MAGIC}{version}\nnext {next}\n");
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn reads_back_what_it_wrote() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let (file, next) = StateFile::open(&path).unwrap();
        assert_eq!(next, 1);
        file.write(42).unwrap();
        drop(file);
        let (file, next) = StateFile::open(&path).unwrap();
        assert_eq!((next, file.path), (42, path));
    }

    #[test]
    fn locks_the_file_under_every_name() {
        let directory = tempfile::tempdir().unwrap();
        let name = |name| directory.path().join(name);
        let path = name("state");
        let (file, _) = StateFile::open(&path).unwrap();
        file.write(7).unwrap();
        symlink(&path, name("symbolic")).unwrap();
        fs::hard_link(&path, name("hard")).unwrap();
        for other in [&path, &name("symbolic"), &name("hard")] {
            file.write(8).unwrap();
            let error = StateFile::open(other).unwrap_err();
            assert!(matches!(error, StateError::Locked(_)), "{error}");
        }
        drop(file);
        let error = StateFile::open(&path).unwrap_err();
        assert!(error.to_string().contains("2 hard links"), "{error}");
        fs::remove_file(name("hard")).unwrap();
        let (file, next) = StateFile::open(&name("symbolic")).unwrap();
        assert_eq!(next, 8);
        file.write(9).unwrap();
        drop(file);
        assert!(name("symbolic").is_symlink());
        assert_eq!(StateFile::open(&path).unwrap().1, 9);
    }

    #[test]
    fn does_not_write_after_the_file_was_removed_or_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let (path, away) = (
            directory.path().join("state"),
            directory.path().join("away"),
        );
        let (file, _) = StateFile::open(&path).unwrap();
        file.write(7).unwrap();
        fs::rename(&path, &away).unwrap();
        let error = StateFile::open(&away).unwrap_err();
        assert!(matches!(error, StateError::Locked(_)), "{error}");
        let second = StateFile::open(&path).unwrap().0;
        second.write(1).unwrap();
        let error = file.write(8).unwrap_err();
        assert!(matches!(error, StateError::Replaced(_)), "{error}");
        fs::rename(&away, &path).unwrap();
        file.write(8).unwrap();
        assert!(second.write(2).is_err());
    }

    #[test]
    fn repairs_a_damaged_slot_and_converts_version_1() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        // Written by version 1.
        let earlier = "floodmark dispatcher state 1\nnext 42\nsum 9e33da6a17583038\n";
        fs::write(&path, earlier).unwrap();
        let (file, next) = StateFile::open(&path).unwrap();
        assert_eq!(next, 42);
        file.write(43).unwrap();
        let whole = [render_slot(43), render_slot(43)].concat();
        assert_eq!(fs::read(&path).unwrap(), whole);
        for offset in [0, SLOT_BYTES as u64] {
            file.file.write_all_at(b"damage", offset).unwrap();
            assert_eq!(parse_slots(&fs::read(&path).unwrap()), Ok(43));
            file.write(43).unwrap();
            assert_eq!(fs::read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn errors_name_the_file_and_the_fix() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notes.txt");
        fs::write(&path, "my notes").unwrap();
        let error = StateFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("notes.txt: not a state file"), "{error}");
        assert!(error.contains("choose another path"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"my notes", "unchanged");
        let error = StateFile::open(&directory.path().join("missing/state")).unwrap_err();
        assert!(
            error.to_string().contains("its directory exists"),
            "{error}"
        );
    }

    const OLD: u64 = 999;
    const NEW: u64 = 1_048_577;

    fn file(first: u64, second: u64) -> Vec<u8> {
        [render_slot(first), render_slot(second)].concat()
    }

    #[test]
    fn detects_any_changed_byte_of_a_record() {
        let good = render(VERSION, NEW);
        assert_eq!(parse(good.as_bytes()), Ok(NEW));
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
        for foreign in ["", "#!/bin/sh\n"] {
            assert_eq!(parse(foreign.as_bytes()), Err(SlotFault::Foreign));
        }
        let later = format!("{MAGIC}3\nwhatever\n");
        assert_eq!(parse(later.as_bytes()), Err(SlotFault::Version));
        for damaged in [render(VERSION, 0), format!("{good} ")] {
            assert_eq!(parse(damaged.as_bytes()), Err(SlotFault::Damaged));
        }
    }

    #[test]
    fn one_valid_slot_is_enough() {
        let good = file(NEW, NEW);
        assert_eq!(parse_slots(&good), Ok(NEW));
        for slot in [0, SLOT_BYTES] {
            let mut bad = good.clone();
            bad[slot..slot + SLOT_BYTES].fill(0);
            assert_eq!(parse_slots(&bad), Ok(NEW));
        }
        let mut bad = good;
        (bad[30], bad[SLOT_BYTES + 30]) = (b'!', b'!');
        assert_eq!(parse_slots(&bad), Err(SlotFault::Damaged));
        assert_eq!(parse_slots(&[0; 8192]), Err(SlotFault::Foreign));
    }

    /// Checks every state in which a crash during an update can leave a file: part of the second
    /// slot has been written, or the whole second slot and part of the first.
    fn assert_torn_updates_are_safe(old: &[u8]) {
        let new = render_slot(NEW);
        for written in 1..=SLOT_BYTES {
            let mut torn = old.to_vec();
            torn.resize(2 * SLOT_BYTES, 0);
            torn[SLOT_BYTES..][..written].copy_from_slice(&new[..written]);
            let next = parse_slots(&torn);
            assert!(matches!(next, Ok(OLD | NEW)), "{written}: {next:?}");
            torn[SLOT_BYTES..].copy_from_slice(&new);
            torn[..written].copy_from_slice(&new[..written]);
            assert_eq!(parse_slots(&torn), Ok(NEW), "{written}");
        }
    }

    #[test]
    fn a_torn_write_leaves_the_old_or_the_new_value() {
        assert_torn_updates_are_safe(&file(OLD, OLD));
        assert_torn_updates_are_safe(render(1, OLD).as_bytes());
    }

    #[test]
    fn the_checksum_is_fnv1a() {
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
