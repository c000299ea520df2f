//! `cargo xtask dist`: builds release archives with static programs. `--try` installs an archive in
//! a fresh Debian chroot without Rust, as a user would, and builds the container image without
//! network access. It measures the time to the first result with the archive and with the image.
//!
//! Two builds of one commit produce identical archives: paths are remapped, and entries are sorted
//! and carry the commit's time.

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use crate::command;
use crate::error::TaskError;
use crate::tools;
use crate::workspace::Workspace;

/// Target that is always built. Its program writes the completions and manual pages.
const HOST: &str = "x86_64-unknown-linux-gnu";

/// Files in the repository that each archive contains.
const TEXTS: [&str; 4] = ["CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

/// Completion scripts: shell and file name.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "floodmark.bash"),
    ("zsh", "_floodmark"),
    ("fish", "floodmark.fish"),
];

/// Options of `cargo xtask dist`.
#[derive(Debug, Args)]
pub struct DistArguments {
    /// Also build for this target, such as aarch64-unknown-linux-gnu (repeatable)
    #[arg(long, value_name = "TARGET")]
    target: Vec<String>,
    /// Build the commit again in a fresh clone, and check that the archives are identical
    #[arg(long)]
    check: bool,
    /// Install the archive in a fresh Debian chroot, build the container image, and measure the
    /// time to the first result with each (needs root)
    #[arg(long = "try")]
    try_install: bool,
}

/// Content and mode of each file in an archive, by path.
type ArchiveFiles = BTreeMap<String, (Vec<u8>, u32)>;

/// Writes the archives and `SHA256SUMS` to `dist/` in the build directory.
pub fn run(workspace: &Workspace, arguments: &DistArguments) -> Result<(), TaskError> {
    let dist = workspace.target.join("dist");
    let archives = build_all(&workspace.root, &dist, arguments)?;
    if arguments.check {
        check(&workspace.root, &dist, arguments)?;
    }
    for archive in &archives {
        println!("{}", dist.join(archive).display());
    }
    if arguments.try_install {
        try_archive(&dist, &archives[0])?;
        try_image(&workspace.root, &dist.join(&archives[0]))?;
    }
    Ok(())
}

/// Builds the archives of a clone. Returns their names; the archive for [`HOST`] comes first.
fn build_all(
    root: &Path,
    dist: &Path,
    arguments: &DistArguments,
) -> Result<Vec<String>, TaskError> {
    let time = commit_time(root)?;
    let others = arguments.target.iter().filter(|target| *target != HOST);
    let targets = [HOST].into_iter().chain(others.map(String::as_str));
    let mut files = ArchiveFiles::new();
    let mut archives = Vec::new();
    let mut sums = String::new();
    for target in targets {
        let program = build(root, dist, target, time)?;
        if target == HOST {
            files = documents(root, dist, &program)?;
        }
        files.insert("floodmark".to_owned(), (read(&program)?, 0o755));
        let name = format!("floodmark-{}-{target}", env!("CARGO_PKG_VERSION"));
        let archive = dist.join(format!("{name}.tar.gz"));
        let written = write_archive(&archive, &name, &files, time);
        written.map_err(TaskError::file(&archive))?;
        let sum = Sha256::digest(read(&archive)?);
        let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        sums.push_str(&format!("{sum}  {name}.tar.gz\n"));
        archives.push(format!("{name}.tar.gz"));
    }
    let file = dist.join("SHA256SUMS");
    fs::write(&file, sums).map_err(TaskError::file(&file))?;
    Ok(archives)
}

/// Builds the static program for this host. Returns its path.
pub fn program(root: &Path, dist: &Path) -> Result<PathBuf, TaskError> {
    build(root, dist, HOST, commit_time(root)?)
}

/// Returns the time of the current commit in seconds since 1970.
fn commit_time(root: &Path) -> Result<u64, TaskError> {
    let mut git = command::words("git log -1 --format=%ct");
    let time = command::capture(git.current_dir(root))?;
    let time = time.trim().parse();
    time.map_err(|error| TaskError::output(&git, error))
}

/// Builds the static program for a target.
fn build(root: &Path, dist: &Path, target: &str, time: u64) -> Result<PathBuf, TaskError> {
    let home = env::var_os("HOME").map(|home| Path::new(&home).join(".cargo"));
    let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from).or(home);
    let mut flags = vec![
        "-Ctarget-feature=+crt-static".to_owned(),
        "-Cstrip=debuginfo".to_owned(),
    ];
    // The last matching prefix takes precedence. The build directory comes last, because it may be
    // below the root.
    let prefixes = [
        (Some(root), "floodmark"),
        (cargo_home.as_deref(), "cargo"),
        (Some(dist), "target"),
    ];
    for (from, to) in prefixes {
        if let Some(from) = from {
            flags.push(format!("--remap-path-prefix={}={to}", from.display()));
        }
    }
    let mut cargo = command::cargo();
    cargo
        .args(["build", "--release", "--locked", "--package", "floodmark"])
        .args(["--target", target, "--target-dir"])
        .arg(dist)
        .current_dir(root)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("SOURCE_DATE_EPOCH", time.to_string());
    if target == "aarch64-unknown-linux-gnu" {
        cargo.env(
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER",
            "aarch64-linux-gnu-gcc",
        );
    }
    command::run(&mut cargo)?;
    Ok(dist.join(target).join("release/floodmark"))
}

/// Returns the files that are identical for all targets: texts, completions and manual pages.
fn documents(root: &Path, dist: &Path, program: &Path) -> Result<ArchiveFiles, TaskError> {
    let mut files = ArchiveFiles::new();
    for name in TEXTS {
        files.insert(name.to_owned(), (read(&root.join(name))?, 0o644));
    }
    for (shell, name) in COMPLETIONS {
        let script = command::capture(Command::new(program).args(["completions", shell]))?;
        files.insert(format!("completions/{name}"), (script.into_bytes(), 0o644));
    }
    let pages = tempfile::tempdir_in(dist).map_err(TaskError::file(dist))?;
    command::capture(Command::new(program).arg("man").arg(pages.path()))?;
    let entries = fs::read_dir(pages.path()).map_err(TaskError::file(pages.path()))?;
    for entry in entries {
        let entry = entry.map_err(TaskError::file(pages.path()))?;
        let name = format!("man/man1/{}", entry.file_name().to_string_lossy());
        files.insert(name, (read(&entry.path())?, 0o644));
    }
    Ok(files)
}

/// Writes a compressed tar archive with all files in one directory. The archive depends only on the
/// arguments. `time` is in seconds since 1970.
fn write_archive(path: &Path, directory: &str, files: &ArchiveFiles, time: u64) -> io::Result<()> {
    let compressed = GzEncoder::new(File::create(path)?, Compression::best());
    let mut archive = tar::Builder::new(compressed);
    for (name, (content, mode)) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(*mode);
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        archive.append_data(&mut header, format!("{directory}/{name}"), &content[..])?;
    }
    archive.into_inner()?.finish().map(drop)
}

/// Builds the current commit in a fresh clone at another path, and compares the archives.
fn check(root: &Path, dist: &Path, arguments: &DistArguments) -> Result<(), TaskError> {
    let temporary = tempfile::tempdir_in(dist).map_err(TaskError::file(dist))?;
    let clone = temporary.path().join("clone");
    command::run(command::words("git clone --quiet").args([root, &clone]))?;
    let again = temporary.path().join("dist");
    build_all(&clone, &again, arguments)?;
    let sums = |directory: &Path| {
        let file = directory.join("SHA256SUMS");
        fs::read_to_string(&file).map_err(TaskError::file(&file))
    };
    let (first, second) = (sums(dist)?, sums(&again)?);
    if first == second {
        println!("both builds are identical:\n{first}");
        return Ok(());
    }
    Err(TaskError::found(format!(
        "the builds differ; commit all changes and try again\n{first}in a fresh clone:\n{second}"
    )))
}

fn read(path: &Path) -> Result<Vec<u8>, TaskError> {
    fs::read(path).map_err(TaskError::file(path))
}

/// Port of the HTTP server on 127.0.0.1.
const PORT: &str = "18021";

/// Installs the archive whose name is the first argument, and runs the commands in the README. The
/// script accepts exit code 4 (invalid run), because other load on the host can make a run invalid.
const ARCHIVE_SCRIPT: &str = r#"
mount -t proc proc /proc
echo 127.0.0.1 localhost >/etc/hosts
export HOME=/root
cd
start=${EPOCHREALTIME/./}
at() {
  echo "== $(((${EPOCHREALTIME/./} - start) / 1000)) ms after the download began: $1"
}
wget -q --retry-connrefused --waitretry=1 http://127.0.0.1:PORT/{$1.tar.gz,SHA256SUMS}
sha256sum --check --ignore-missing SHA256SUMS
tar xzf $1.tar.gz
cp $1/floodmark /usr/local/bin
at installed
floodmark load --demo || [ $? = 4 ]
at 'demo finished'
floodmark run quickstart || [ $? = 4 ]
at 'quickstart finished'
floodmark serve hello --listen 127.0.0.1:18022 &
sleep 1
floodmark load http://localhost:18022/ -d 1s --quiet || [ $? = 4 ]
at 'localhost resolved'
source $1/completions/floodmark.bash
complete -p floodmark
test -s $1/man/man1/floodmark-load.1
"#;

/// An HTTP server. Dropping the value stops the server.
struct FileServer(Child);

impl Drop for FileServer {
    fn drop(&mut self) {
        // Each call fails only if the server has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fetches the archive from a server on 127.0.0.1, and runs the commands in the README.
fn try_archive(dist: &Path, archive: &str) -> Result<(), TaskError> {
    tools::install(&["mmdebstrap", "python3"])?;
    let temporary = tempfile::tempdir().map_err(TaskError::file(dist))?;
    let root = temporary.path().join("root");
    let mut bootstrap = command::words("mmdebstrap --variant=minbase --include=wget bookworm");
    bootstrap.arg(&root);
    command::run(bootstrap.arg("/etc/apt/sources.list.d/debian.sources"))?;
    let mut python = command::words("python3 -m http.server --bind 127.0.0.1");
    python.arg(PORT).current_dir(dist);
    python.stdout(Stdio::null()).stderr(Stdio::null());
    let _server = FileServer(python.spawn().map_err(TaskError::start(&python))?);
    let script = root.join("root/try.sh");
    let text = ARCHIVE_SCRIPT.replace("PORT", PORT);
    fs::write(&script, text).map_err(TaskError::file(&script))?;
    // The server that the script starts is killed when the PID namespace ends.
    let mut unshare = command::words("unshare --mount --pid --fork --kill-child chroot");
    unshare.arg(&root).args(["bash", "-e", "/root/try.sh"]);
    command::run(unshare.arg(archive.trim_end_matches(".tar.gz"))).map(drop)
}

/// Builds the image from the archive (first argument) with the Containerfile (second argument), and
/// runs it as documented in docs/guide/install.md.
///
/// Podman's default limits can exceed those of this process, so the script sets the limits
/// explicitly. It uses runc, because crun does not support hosts that mount both cgroup versions.
/// The script accepts exit code 4 (invalid run), because other load on the host can make a run
/// invalid.
const IMAGE_SCRIPT: &str = r#"
context=$(mktemp -d)
trap 'rm -r $context; podman rmi --force floodmark-trial' EXIT
start=${EPOCHREALTIME/./}
at() {
  echo "== $(((${EPOCHREALTIME/./} - start) / 1000)) ms after the build began: $1"
}
tar xzf $1 -C $context --strip-components 1
podman build --network none --file $2 --tag floodmark-trial $context
at 'image built'
run="podman --runtime runc run --rm --read-only --tmpfs /tmp --network host
  --ulimit nofile=4096:4096 --ulimit nproc=4096:4096 --security-opt seccomp=unconfined"
$run floodmark-trial load --demo || [ $? = 4 ]
at 'demo finished'
$run floodmark-trial run quickstart || [ $? = 4 ]
at 'quickstart finished'
"#;

/// Builds and runs the image with the static program from an archive.
fn try_image(root: &Path, archive: &Path) -> Result<(), TaskError> {
    tools::install(&["podman", "runc"])?;
    let mut bash = Command::new("bash");
    bash.args(["-e", "-c", IMAGE_SCRIPT, "image"]).arg(archive);
    command::run(bash.arg(root.join("deploy/Containerfile"))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_files_give_equal_archives() {
        let directory = tempfile::tempdir().unwrap();
        let files = ArchiveFiles::from([
            ("floodmark".to_owned(), (b"program".to_vec(), 0o755)),
            ("README.md".to_owned(), (b"text".to_vec(), 0o644)),
        ]);
        let archive = |name| {
            let path = directory.path().join(name);
            write_archive(&path, "floodmark-1", &files, 1_700_000_000).unwrap();
            fs::read(path).unwrap()
        };
        let first = archive("a");
        assert_eq!(first, archive("b"));
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&first[..]));
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let header = entry.header();
            let path = entry.path().unwrap().display().to_string();
            (
                path,
                header.mode().unwrap(),
                header.mtime().unwrap(),
                header.uid().unwrap(),
            )
        });
        let expected = [
            ("floodmark-1/README.md".to_owned(), 0o644, 1_700_000_000, 0),
            ("floodmark-1/floodmark".to_owned(), 0o755, 1_700_000_000, 0),
        ];
        assert_eq!(entries.collect::<Vec<_>>(), expected);
    }
}
