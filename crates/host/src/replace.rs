//! Atomic replacement of files, and durable names.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces the content of a file atomically and durably.
///
/// Writes and syncs `PATH.new`, renames it to `path`, and syncs the folder.
/// Keeps the permissions of an existing file.
///
/// # Errors
/// One of these steps fails. `PATH.new` is then removed. `path` is unchanged, unless the failed
/// step is syncing the folder.
pub fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = OsString::from(path);
    temporary.push(".new");
    let write = || {
        let mut file = File::create(&temporary)?;
        if let Ok(existing) = fs::metadata(path) {
            file.set_permissions(existing.permissions())?;
        }
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })?;
    sync_folder(path)
}

/// Syncs the folder of a file, so that the file's name survives a crash of the host.
///
/// # Errors
/// The folder cannot be opened or synced.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(folder: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn replaces_the_content_and_keeps_the_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        replace_file(&path, b"old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        replace_file(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(names(folder.path()), ["page.html"]);
    }

    #[test]
    fn leaves_nothing_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page.html");
        fs::create_dir(&path).unwrap();
        assert!(replace_file(&path, b"new").is_err());
        assert!(path.is_dir());
        assert_eq!(names(folder.path()), ["page.html"]);
    }
}
