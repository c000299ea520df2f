//! Packs the repository's experiments and everything they need into one compressed archive.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// Folders of the repository that experiments use.
const FOLDERS: [&str; 5] = ["cases", "clients", "experiments", "stores", "systems"];

/// Folders that builds create.
const BUILT: [&str; 3] = ["__pycache__", "node_modules", "target"];

fn main() -> io::Result<()> {
    let [root, out] = ["CARGO_MANIFEST_DIR", "OUT_DIR"].map(|name| {
        let value = std::env::var_os(name);
        PathBuf::from(value.expect("cargo sets this variable"))
    });
    let root = root.join("../..");
    let mut files = Vec::new();
    for folder in FOLDERS {
        add_files(&root.join(folder), &mut files)?;
    }
    files.sort_unstable();
    println!("cargo::rerun-if-changed=build.rs");
    let mut archive = tar::Builder::new(Vec::new());
    for path in &files {
        // A folder would include its builds, so a new file is found only after another change.
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

/// Adds the files below a folder, without hidden files and the output of builds.
fn add_files(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.') || BUILT.contains(&&*name) {
            continue;
        }
        match path.is_dir() {
            true => add_files(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

/// Appends a file. The header holds nothing about the host, so equal files give equal archives.
fn add_file(archive: &mut tar::Builder<Vec<u8>>, path: &Path, name: &Path) -> io::Result<()> {
    let content = fs::read(path)?;
    let is_program = fs::metadata(path)?.permissions().mode() & 0o111 != 0;
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(if is_program { 0o755 } else { 0o644 });
    header.set_mtime(0);
    archive.append_data(&mut header, name, &content[..])
}
