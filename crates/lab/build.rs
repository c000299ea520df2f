//! Packs the repository's experiments and everything they need into one compressed archive.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Directories of the repository that are embedded in the program.
const DIRECTORIES: [&str; 4] = ["clients", "experiments", "stores", "systems"];

/// Directories that builds create.
const BUILT: [&str; 3] = ["__pycache__", "node_modules", "target"];

/// Names of the manifest files of systems, stores and clients. Builds create directories next to
/// these files.
const MANIFESTS: [&str; 3] = ["client.toml", "store.toml", "system.toml"];

fn main() -> io::Result<()> {
    let [root, out] = ["CARGO_MANIFEST_DIR", "OUT_DIR"].map(|name| {
        let value = std::env::var_os(name);
        PathBuf::from(value.expect("cargo sets this variable"))
    });
    let root = root.join("../..");
    let mut files = Vec::new();
    for directory in DIRECTORIES {
        add_files(&root.join(directory), &mut files)?;
    }
    files.sort_unstable();
    println!("cargo::rerun-if-changed=build.rs");
    // `cargo xtask dist` sets this variable to the commit's time, so the archive is rebuilt for
    // each commit.
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    let mut archive = tar::Builder::new(Vec::new());
    for path in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.strip_prefix(&root).map_err(io::Error::other)?;
        add_file(&mut archive, path, name)?;
    }
    let archive = archive.into_inner()?;
    let hash: String = Sha256::digest(&archive)[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    println!("cargo::rustc-env=BUNDLE_HASH={hash}");
    let file = File::create(out.join("bundle.tar.gz"))?;
    let mut compressed = GzEncoder::new(file, Compression::best());
    io::copy(&mut &archive[..], &mut compressed)?;
    compressed.finish().map(drop)
}

/// Adds all files in a directory and its subdirectories, except hidden files and build output.
/// Returns whether all these directories contain only sources. Builds do not write to such
/// directories.
///
/// Cargo is told to watch only such directories for new files. Cargo also watches their
/// subdirectories. If it watched a directory to which a build writes, each build of a system would
/// cause a rebuild of floodmark. In the other directories, a unit test detects new files that are
/// not embedded.
fn add_files(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<bool> {
    let mut has_only_sources = true;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        if BUILT.contains(&&*name) {
            has_only_sources = false;
        } else if path.is_dir() {
            has_only_sources &= add_files(&path, files)?;
        } else {
            has_only_sources &= !MANIFESTS.contains(&&*name);
            files.push(path);
        }
    }
    if has_only_sources {
        println!("cargo::rerun-if-changed={}", directory.display());
    }
    Ok(has_only_sources)
}

/// Appends a file. The header contains no information about the host, so identical files produce
/// identical archives.
fn add_file(archive: &mut tar::Builder<Vec<u8>>, path: &Path, name: &Path) -> io::Result<()> {
    let content = fs::read(path)?;
    let is_program = fs::metadata(path)?.permissions().mode() & 0o111 != 0;
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(if is_program { 0o755 } else { 0o644 });
    header.set_mtime(0);
    archive.append_data(&mut header, name, &content[..])
}
