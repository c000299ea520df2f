//! `cargo xtask dist --try`: installs an archive in a new Debian root without Rust, as a user would,
//! and times the first results.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::command;
use crate::error::TaskError;
use crate::tools;

/// Port of the HTTP server on 127.0.0.1.
const PORT: &str = "18021";

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
    let begin = Instant::now();
    let folder = archive.trim_end_matches(".tar.gz");
    let script = format!(
        "mount -t proc proc /proc; cd /root; export HOME=/root; url=http://127.0.0.1:{PORT}
         wget -q --retry-connrefused --waitretry=1 $url/{archive} $url/SHA256SUMS
         sha256sum --check --ignore-missing SHA256SUMS
         tar xzf {archive}; cp {folder}/floodmark /usr/local/bin
         floodmark load --demo; echo \"after the demo: $SECONDS s\"
         floodmark run quickstart; echo \"after quickstart: $SECONDS s\"
         floodmark serve hello --listen 127.0.0.1:18022 & sleep 1
         floodmark load http://localhost:18022/ -d 1s --quiet && echo 'localhost resolves'
         kill $!
         bash -c 'source {folder}/completions/floodmark.bash && complete -p floodmark'
         test -s {folder}/man/man1/floodmark-load.1"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--fork", "chroot"]).arg(&root);
    let ran = command::run(unshare.args(["bash", "-ec", &script]));
    println!(
        "from download to the last check: {:.1} s",
        begin.elapsed().as_secs_f64()
    );
    ran.map(drop)
}
