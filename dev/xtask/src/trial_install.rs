//! `cargo xtask dist --try`: installs an archive in a new Debian root without Rust, as a user would,
//! and times the first results.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::command;
use crate::error::TaskError;
use crate::tools;

/// Port of the HTTP server on 127.0.0.1.
const PORT: &str = "18021";

/// Installs the archive whose name is the first argument, and runs the commands of the README. If
/// other load disturbs a run, floodmark exits with code 4.
const SCRIPT: &str = r#"
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

/// Stops the HTTP server at the end.
struct FileServer(Child);

impl Drop for FileServer {
    fn drop(&mut self) {
        // Both fail only if the server has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Fetches the archive from a server on 127.0.0.1, and runs the commands of the README.
pub fn run(dist: &Path, archive: &str) -> Result<(), TaskError> {
    tools::install(&["mmdebstrap", "python3"])?;
    let temporary = tempfile::tempdir().map_err(TaskError::file(dist))?;
    let root = temporary.path().join("root");
    let mut bootstrap = Command::new("mmdebstrap");
    bootstrap.args(["--variant=minbase", "--include=wget", "bookworm"]);
    command::run(
        bootstrap
            .arg(&root)
            .arg("/etc/apt/sources.list.d/debian.sources"),
    )?;
    let mut python = Command::new("python3");
    python
        .args(["-m", "http.server", PORT, "--bind", "127.0.0.1"])
        .current_dir(dist)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _server = FileServer(python.spawn().map_err(TaskError::start(&python))?);
    let script = root.join("root/try.sh");
    let text = SCRIPT.replace("PORT", PORT);
    fs::write(&script, text).map_err(TaskError::file(&script))?;
    // The server ends with the namespace.
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--pid", "--fork", "--kill-child", "chroot"]);
    unshare.arg(&root).args(["bash", "-e", "/root/try.sh"]);
    command::run(unshare.arg(archive.trim_end_matches(".tar.gz"))).map(drop)
}
