//! The location of `/proc` and `/sys`. Tests use a folder of their own for both.

use std::io;
use std::path::{Path, PathBuf};

/// The folder that contains `proc` and `sys`.
#[derive(Debug, Clone)]
pub struct Root(PathBuf);

impl Root {
    /// Returns the root of this host.
    #[must_use]
    pub fn host() -> Self {
        Self(PathBuf::from("/"))
    }

    /// Returns a root for a folder that contains `proc` and `sys`.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self(folder.into())
    }

    /// Returns the location of an absolute path.
    ///
    /// `/proc/net` becomes the calling thread's folder, because the thread may have entered another
    /// network namespace. The kernel's own link points to the main thread's folder.
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

    /// Returns the names in a folder, in any order. Returns no names if the folder can't be read.
    pub(crate) fn names(&self, absolute: impl AsRef<Path>) -> impl Iterator<Item = String> {
        let entries = std::fs::read_dir(self.path(absolute)).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok())
    }

    /// Returns the numeric names in a folder, such as PIDs, in ascending order.
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
