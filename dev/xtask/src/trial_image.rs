//! `cargo xtask dist --try`: builds the container image without network access, and times its first
//! results.

use std::path::Path;
use std::process::Command;

use crate::command;
use crate::error::TaskError;
use crate::tools;

/// Builds the image from the archive (first argument) with the Containerfile (second argument), and
/// runs it as documented in docs/guide/install.md.
///
/// Podman's default limits can exceed those of this process, so the script sets them. It uses runc,
/// because crun does not support hosts that mount both cgroup versions. If other load disturbs a
/// run, floodmark exits with code 4.
const SCRIPT: &str = r#"
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

/// Builds and runs the image with the static program of an archive.
pub fn run(root: &Path, archive: &Path) -> Result<(), TaskError> {
    tools::install(&["podman", "runc"])?;
    let mut bash = Command::new("bash");
    bash.args(["-e", "-c", SCRIPT, "image"]).arg(archive);
    command::run(bash.arg(root.join("deploy/Containerfile"))).map(drop)
}
