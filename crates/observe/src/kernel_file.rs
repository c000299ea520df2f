//! Kernel files that stay open between reads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::root::{Root, at_path};

/// Initial buffer size in bytes. Most files of a process are smaller.
const ROOM: usize = 1024;

/// An open kernel file. After a process has ended, reading its files fails, even if its PID is
/// reused.
#[derive(Debug)]
pub(crate) struct KernelFile {
    file: File,
    buffer: Vec<u8>,
}

impl KernelFile {
    /// Opens a file by its absolute path.
    pub(crate) fn open(root: &Root, absolute: impl AsRef<Path>) -> io::Result<Self> {
        let path = root.path(absolute);
        let file = File::open(&path).map_err(|error| at_path(&path, &error))?;
        let buffer = vec![0; ROOM];
        Ok(Self { file, buffer })
    }

    /// Reads the whole file. Allocates only if the buffer is smaller than the file.
    pub(crate) fn bytes(&mut self) -> io::Result<&[u8]> {
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                self.buffer.resize(length * 2, 0);
            }
            let rest = &mut self.buffer[length..];
            match self.file.read_at(rest, length as u64)? {
                0 => return Ok(&self.buffer[..length]),
                read => length += read,
            }
        }
    }

    /// Reads the file as text, up to the first byte that is not UTF-8. All files that are read as
    /// text contain only ASCII.
    pub(crate) fn text(&mut self) -> io::Result<&str> {
        let bytes = self.bytes()?;
        let text = str::from_utf8(bytes);
        Ok(text
            .or_else(|error| str::from_utf8(&bytes[..error.valid_up_to()]))
            .unwrap_or_default())
    }
}

/// Returns the rest of the first line that starts with a label, trimmed.
pub(crate) fn labelled<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let mut lines = text.lines();
    lines
        .find_map(|line| line.strip_prefix(label))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rereads_a_file_of_any_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "first").unwrap();
        let mut file = KernelFile::open(&Root::at(folder.path()), "/f").unwrap();
        assert_eq!(file.text().unwrap(), "first");
        let long = "x".repeat(5 * ROOM + 1);
        std::fs::write(&path, &long).unwrap();
        assert_eq!(file.text().unwrap(), long);
        std::fs::write(&path, b"ab\xffcd").unwrap();
        assert_eq!(file.text().unwrap(), "ab");
        assert_eq!(file.bytes().unwrap(), b"ab\xffcd");
        assert!(KernelFile::open(&Root::at(folder.path()), "/g").is_err());
    }

    #[test]
    fn fails_after_the_process_has_ended() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut file =
            KernelFile::open(&Root::host(), format!("/proc/{}/stat", child.id())).unwrap();
        assert!(!file.bytes().unwrap().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(file.bytes().is_err());
    }
}
