//! The state file of the dispatcher. The file guarantees that no number greater than or equal to
//! `next` has ever been handed out.
//!
//! A server locks the state file itself and writes it in place, so a second server cannot use the
//! file through another hard link. See `state_slots.rs` for the content.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use floodmark_host::lock;
use floodmark_host::sync_folder;
use rustix::fs::OFlags;

use crate::state_slots::{SLOT_BYTES, SlotFault, parse_slots, render_slot};

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
    /// The path refers to a folder, FIFO, socket, device or broken symbolic link.
    #[error("{}: {kind}, not a regular file; choose another path", .path.display())]
    NotRegular {
        /// The path.
        path: PathBuf,
        /// Type of the file at the path, with its article, such as `a folder`.
        kind: &'static str,
    },
    /// The file must not be read or written.
    #[error("{}: not readable and writable; run chmod u+rw on it, or choose another path", .0.display())]
    Permissions(PathBuf),
    /// The file has further names.
    #[error(
        "{}: has {links} hard links, and numbers repeat if one is replaced; remove the other names, or choose another path",
        .path.display()
    )]
    HardLinks {
        /// The path.
        path: PathBuf,
        /// Number of names.
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
    #[error("{}: cannot {doing}: {source}; check that its folder exists, is writable and has free space", .path.display())]
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
        // Lock before the other checks, so that they stay true while the server runs.
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
        // The order is that of `state_slots.rs`.
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
            sync_folder(&self.path).map_err(|error| failed("create", &self.path, error))?;
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

/// Opens or creates a regular file. Opening a device can have effects, so the kind is checked before
/// and after.
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
    // Root may write to read-only files.
    if found.permissions().readonly() {
        return Err(StateError::Permissions(path.to_owned()));
    }
    Ok((file, found))
}

fn check_kind(path: &Path, found: &Metadata) -> Result<(), StateError> {
    let found = found.file_type();
    let kind = match () {
        () if found.is_file() => return Ok(()),
        () if found.is_dir() => "a folder",
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
    fn locks_the_file_under_every_name() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name| folder.path().join(name);
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
        let folder = tempfile::tempdir().unwrap();
        let (path, away) = (folder.path().join("state"), folder.path().join("away"));
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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        fs::write(&path, "my notes").unwrap();
        let error = StateFile::open(&path).unwrap_err().to_string();
        assert!(error.contains("notes.txt: not a state file"), "{error}");
        assert!(error.contains("choose another path"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"my notes", "unchanged");
        let error = StateFile::open(&folder.path().join("missing/state")).unwrap_err();
        assert!(error.to_string().contains("its folder exists"), "{error}");
    }
}
