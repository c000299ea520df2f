//! Kernel files: the location of `/proc` and `/sys`, and files that stay open between reads. Tests
//! provide their own `proc` and `sys` directories.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The directory that contains `proc` and `sys`.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// Returns the root of this host.
    #[must_use]
    pub fn host() -> Self {
        Self(PathBuf::from("/"))
    }

    /// Returns a root for a directory that contains `proc` and `sys`.
    #[must_use]
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Converts an absolute path on a host to a path below this root.
    ///
    /// If the root is `/`, `/proc/net` is replaced with the calling thread's own `net` directory,
    /// because the thread may have entered another network namespace. The kernel's link points to
    /// the main thread's directory.
    #[must_use]
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        if self.0 == Path::new("/")
            && let Ok(file) = absolute.strip_prefix("/proc/net")
        {
            return Path::new("/proc/thread-self/net").join(file);
        }
        self.0.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// Reads a kernel file.
    ///
    /// # Errors
    /// The file can't be read. The error contains the path.
    pub fn read(&self, absolute: impl AsRef<Path>) -> io::Result<String> {
        let path = self.path(absolute);
        // Thread names may contain any byte; strict decoding would reject the whole file.
        let bytes = std::fs::read(&path).map_err(|error| at_path(&path, &error))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads and trims a file with one line. Returns `None` if the file can't be read.
    #[must_use]
    pub fn line(&self, absolute: impl AsRef<Path>) -> Option<String> {
        self.read(absolute).ok().map(|text| text.trim().to_owned())
    }

    /// Reads a file with one number. Returns `None` if the file can't be read or parsed.
    #[must_use]
    pub fn number(&self, absolute: impl AsRef<Path>) -> Option<u64> {
        self.line(absolute)?.parse().ok()
    }

    /// Returns the names in a directory, in any order. Returns no names if the directory can't be
    /// read.
    pub(crate) fn names(&self, absolute: impl AsRef<Path>) -> impl Iterator<Item = String> {
        let entries = std::fs::read_dir(self.path(absolute)).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
    }

    /// Returns the numeric names in a directory, such as PIDs, in ascending order.
    #[must_use]
    pub fn numbered(&self, absolute: impl AsRef<Path>) -> Vec<u32> {
        let ids = self.names(absolute).filter_map(|name| name.parse().ok());
        let mut ids: Vec<u32> = ids.collect();
        ids.sort_unstable();
        ids
    }
}

/// Adds a path to an error.
pub(crate) fn at_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Initial buffer size in bytes. Most files in a process's `/proc` directory are smaller.
const ROOM: usize = 1024;

/// An open file, such as a process's file in `/proc`. After the process has ended, reading the file
/// fails, even if the PID has been reused.
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

/// Returns the trimmed rest of the first line that starts with `label`.
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
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, "first").unwrap();
        let mut file = KernelFile::open(&Root::at(directory.path()), "/f").unwrap();
        assert_eq!(file.text().unwrap(), "first");
        let long = "x".repeat(5 * ROOM + 1);
        std::fs::write(&path, &long).unwrap();
        assert_eq!(file.text().unwrap(), long);
        std::fs::write(&path, b"ab\xffcd").unwrap();
        assert_eq!(file.text().unwrap(), "ab");
        assert_eq!(file.bytes().unwrap(), b"ab\xffcd");
        assert!(KernelFile::open(&Root::at(directory.path()), "/g").is_err());
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
