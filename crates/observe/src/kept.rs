//! Files of the kernel that are read again and again: opened once, read from their beginning each time.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Root;

/// Room for a first reading; most files of a process need less.
const ROOM: usize = 1024;

/// A file that stays open. What it says of a process is of that very process: were its id given to another, reading would fail.
pub(crate) struct Kept {
    file: File,
    buffer: Vec<u8>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl Kept {
    /// Opens a file by its absolute path.
    pub(crate) fn open(root: &Root, absolute: impl AsRef<Path>) -> io::Result<Self> {
        let path = root.path(absolute);
        let file = File::open(&path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        Ok(Self {
            file,
            buffer: vec![0; ROOM],
        })
    }

    /// All of it as it is now. Nothing is allocated once the buffer has grown to the file's size.
    pub(crate) fn bytes(&mut self) -> io::Result<&[u8]> {
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                self.buffer.resize(length * 2, 0);
            }
            match self
                .file
                .read_at(&mut self.buffer[length..], length as u64)?
            {
                0 => return Ok(&self.buffer[..length]),
                read => length += read,
            }
        }
    }

    /// The same as text, up to the first byte that is none (names of threads are any bytes, and stand in their files before
    /// nothing that is read here as text).
    pub(crate) fn text(&mut self) -> io::Result<&str> {
        let bytes = self.bytes()?;
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_the_file_says_now_at_any_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "first").unwrap();
        let mut kept = Kept::open(&Root::at(folder.path()), "/f").unwrap();
        assert_eq!(kept.text().unwrap(), "first");
        let long = "x".repeat(5 * ROOM + 1);
        std::fs::write(&path, &long).unwrap();
        assert_eq!(kept.text().unwrap(), long);
        std::fs::write(&path, b"ab\xffcd").unwrap();
        assert_eq!(kept.text().unwrap(), "ab");
        assert_eq!(kept.bytes().unwrap(), b"ab\xffcd");
        assert!(Kept::open(&Root::at(folder.path()), "/g").is_err());
    }

    #[test]
    fn a_process_that_is_gone_cannot_be_read_any_more() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut kept = Kept::open(&Root::host(), format!("/proc/{}/stat", child.id())).unwrap();
        assert!(!kept.bytes().unwrap().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(kept.bytes().is_err());
    }
}
