//! Where `/proc` and `/sys` are: the real ones, or a folder that looks like them in a test.

use std::io;
use std::path::{Path, PathBuf};

/// The folder that stands for `/`.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self::host()
    }
}

impl Root {
    /// This machine.
    #[must_use]
    pub fn host() -> Self {
        Self(PathBuf::from("/"))
    }

    /// A folder that holds a `proc` and a `sys`.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Where an absolute path of the machine lies.
    ///
    /// `/proc/net` is taken for the calling thread: a load may run in a network namespace that only the thread which watches it has
    /// entered, and `/proc/net` itself is that of the process's first thread.
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

    /// Reads a file of the kernel.
    ///
    /// # Errors
    /// Those of the file system, with the path in the text.
    pub fn read(&self, absolute: impl AsRef<Path>) -> io::Result<String> {
        let path = self.path(absolute);
        // Names of threads are any bytes: a strict reading would lose the whole file to one of them.
        match std::fs::read(&path) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) => Err(io::Error::new(
                error.kind(),
                format!("{}: {error}", path.display()),
            )),
        }
    }

    /// Reads a file that holds one line, trimmed; none where it cannot be read.
    #[must_use]
    pub fn line(&self, absolute: impl AsRef<Path>) -> Option<String> {
        self.read(absolute).ok().map(|text| text.trim().to_owned())
    }

    /// Reads a file that holds one number; none where it cannot be read or holds something else.
    #[must_use]
    pub fn number(&self, absolute: impl AsRef<Path>) -> Option<u64> {
        self.line(absolute)?.parse().ok()
    }

    /// Names of the entries of a folder that are whole numbers, such as process and thread ids, ascending.
    #[must_use]
    pub fn numbered(&self, absolute: impl AsRef<Path>) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir(self.path(absolute)) else {
            return Vec::new();
        };
        let mut ids: Vec<u32> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        ids.sort_unstable();
        ids
    }
}
