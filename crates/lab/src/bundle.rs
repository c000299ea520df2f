//! The repository's experiments, systems, stores and clients, embedded in the program.
//!
//! An installed floodmark therefore needs no clone of the repository. [`paths`] lists the embedded
//! files, and [`unpack`] writes them to the user's cache directory, because systems are built and
//! started there.
//!
//! Invariant: this module does not interpret the files.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use tar::{Archive, Entry};

/// All files as a compressed tar archive. The build script creates it.
static ARCHIVE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bundle.tar.gz"));

/// Path within the cache directory. It contains the version and a hash of the embedded files.
const DIRECTORY: &str = concat!(
    "floodmark/",
    env!("CARGO_PKG_VERSION"),
    "-",
    env!("BUNDLE_HASH")
);

/// Reason why the embedded files cannot be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// No environment variable specifies the cache directory.
    #[error(
        "cannot unpack the embedded experiments: neither XDG_CACHE_HOME nor HOME is an absolute path; set XDG_CACHE_HOME to a writable directory"
    )]
    NoCache,
    /// A file cannot be written.
    #[error(
        "cannot unpack the embedded experiments: {}: {error}; set XDG_CACHE_HOME to a writable directory with 1 MB of free space", .path.display()
    )]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// Returns the paths of the embedded files, relative to the repository's root directory.
pub fn paths() -> Vec<String> {
    let mut archive = Archive::new(GzDecoder::new(ARCHIVE));
    let entries = archive.entries().into_iter().flatten().flatten();
    let paths = entries.filter_map(|entry| Some(entry.path().ok()?.to_str()?.to_owned()));
    paths.collect()
}

/// Writes the embedded files to `floodmark/VERSION-HASH` in the user's cache directory
/// (`XDG_CACHE_HOME`, or `~/.cache`), unless they already exist there. Returns that directory.
///
/// # Errors
/// There is no cache directory, or a file cannot be written.
pub fn unpack() -> Result<PathBuf, BundleError> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    // The XDG specification says to ignore relative paths.
    let absolute = |path: &PathBuf| path.is_absolute();
    let cache = variable("XDG_CACHE_HOME").filter(absolute).or_else(|| {
        let home = variable("HOME").filter(absolute)?;
        Some(home.join(".cache"))
    });
    let root = cache.ok_or(BundleError::NoCache)?.join(DIRECTORY);
    unpack_to(&root)?;
    Ok(root)
}

/// Writes the embedded files to a directory. Each file is created atomically, so several
/// processes can unpack to the same directory. Files that already have the right size are not
/// rewritten.
fn unpack_to(root: &Path) -> Result<(), BundleError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| BundleError::Write { path, error }
    };
    let mut archive = Archive::new(GzDecoder::new(ARCHIVE));
    for entry in archive.entries().map_err(failed(root))? {
        let mut entry = entry.map_err(failed(root))?;
        let path = root.join(entry.path().map_err(failed(root))?);
        write(&mut entry, &path).map_err(failed(&path))?;
    }
    Ok(())
}

/// Writes one entry of the archive.
fn write(entry: &mut Entry<impl io::Read>, path: &Path) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == entry.size()) {
        return Ok(());
    }
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory)?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    io::copy(entry, &mut file)?;
    file.flush()?;
    let mode = entry.header().mode()?;
    file.as_file()
        .set_permissions(Permissions::from_mode(mode))?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn embeds_all_files_of_the_repository() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let directories = ["clients", "experiments", "stores", "systems"];
        let mut git = Command::new("git");
        git.args(["ls-files", "--"]).args(directories);
        let output = git.current_dir(&root).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let tracked = String::from_utf8(output.stdout).unwrap();
        let is_hidden = |path: &str| path.rsplit('/').next().unwrap().starts_with('.');
        let embedded = paths();
        let missing: Vec<&str> = tracked
            .lines()
            .filter(|path| !is_hidden(path) && root.join(path).is_file())
            .filter(|path| !embedded.iter().any(|embedded| embedded == path))
            .collect();
        assert!(!tracked.is_empty());
        assert!(
            missing.is_empty(),
            "not embedded: {missing:?}; run `touch crates/lab/build.rs`"
        );
    }

    #[test]
    fn embeds_no_output_of_builds() {
        let built = ["__pycache__", "node_modules", "target"];
        let is_built = |path: &String| path.split('/').any(|part| built.contains(&part));
        assert_eq!(paths().into_iter().find(is_built), None);
    }

    #[test]
    fn unpacks_and_restores_each_file_with_its_mode() {
        let root = tempfile::tempdir().unwrap();
        unpack_to(root.path()).unwrap();
        let manifest = root.path().join("systems/native/system.toml");
        let original = include_bytes!("../../../systems/native/system.toml");
        assert_eq!(fs::read(&manifest).unwrap(), original);
        let start = root.path().join("stores/postgresql/start.sh");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../stores/postgresql/start.sh");
        let is_program = |path| fs::metadata(path).unwrap().permissions().mode() & 0o111 != 0;
        assert_eq!(is_program(start), is_program(source));

        fs::write(&manifest, "cut").unwrap();
        let built = root.path().join("systems/native/target");
        fs::create_dir(&built).unwrap();
        unpack_to(root.path()).unwrap();
        assert_eq!(fs::read(&manifest).unwrap(), original);
        assert!(built.is_dir(), "builds stay");
    }

    #[test]
    fn names_the_path_that_cannot_be_written() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let error = unpack_to(&file.join("below")).unwrap_err().to_string();
        assert!(error.contains("file/below/"), "{error}");
        assert!(error.contains("set XDG_CACHE_HOME"), "{error}");
    }
}
