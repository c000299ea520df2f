//! `cargo xtask kubernetes`: runs the Kubernetes agent tests on a real single-node cluster.
//!
//! The API server, controllers, scheduler and kubelet are built from their Go modules. etcd,
//! containerd and runc come from Debian packages. The cluster runs in its own Linux namespaces.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command;
use crate::dist;
use crate::error::TaskError;
use crate::tools;
use crate::workspace::Workspace;

/// Debian packages of the cluster.
const PACKAGES: [&str; 7] = [
    "containerd",
    "containernetworking-plugins",
    "etcd-server",
    "iproute2",
    "openssl",
    "podman",
    "runc",
];

/// Linker flag that sets the version of each component. The cluster does not start without it.
const VERSION: &str = "-X k8s.io/component-base/version.gitVersion=v1.34.4";

/// Containerfile for the image of the pods' sandbox.
const PAUSE: &str = "FROM scratch\nCOPY pause /pause\nENTRYPOINT [\"/pause\"]\n";

/// Builds the cluster and the image, and runs the tests whose names start with `only`. Needs root,
/// Go and a C compiler.
pub fn run(workspace: &Workspace, only: &str) -> Result<(), TaskError> {
    tools::install(&PACKAGES)?;
    let sources = workspace.root.join("dev/xtask/kubernetes");
    let directory = workspace.target.join("kubernetes");
    fs::create_dir_all(&directory).map_err(TaskError::file(&directory))?;
    let kubernetes = directory.join("kubernetes");
    let mut go = command::words("go build -trimpath");
    go.args(["-ldflags", VERSION, "-o"]).arg(&kubernetes);
    command::run(go.arg(".").current_dir(&sources))?;
    let images = images(workspace, &sources, &directory)?;

    // Use a temporary directory, because socket paths must be short and overlayfs does not work on
    // every file system.
    let state = tempfile::tempdir().map_err(TaskError::file(&directory))?;
    let mut unshare =
        command::words("unshare --net --mount --pid --fork --kill-child --mount-proc bash");
    unshare.arg(sources.join("cluster.sh"));
    unshare.args([state.path(), &kubernetes, &images]);
    unshare.arg(command::cargo().get_program());
    let words = "test --package floodmark --test cli -- --ignored --test-threads 1";
    unshare.args(words.split(' '));
    unshare.arg(format!("agents::kubernetes::{only}"));
    let output = command::run(unshare.current_dir(&workspace.root))?;
    if output.iter().any(|line| line == "running 0 tests") {
        Err(TaskError::found(format!(
            "no test name starts with \"{only}\""
        )))
    } else {
        Ok(())
    }
}

/// Builds the images of floodmark and of the pods' sandbox. Returns the path of an archive
/// with both.
fn images(workspace: &Workspace, sources: &Path, directory: &Path) -> Result<PathBuf, TaskError> {
    let pause = directory.join("pause");
    let floodmark = directory.join("floodmark");
    for context in [&pause, &floodmark] {
        fs::create_dir_all(context).map_err(TaskError::file(context))?;
    }
    let mut cc = command::words("cc -static -Os -o");
    cc.arg(pause.join("pause"));
    command::run(cc.arg(sources.join("pause/pause.c")))?;
    let file = pause.join("Containerfile");
    fs::write(&file, PAUSE).map_err(TaskError::file(&file))?;
    let program = dist::program(&workspace.root, &workspace.target.join("dist"))?;
    let copy = floodmark.join("floodmark");
    fs::copy(&program, &copy).map_err(TaskError::file(&copy))?;
    let image = format!("floodmark:{}", env!("CARGO_PKG_VERSION"));
    let names = [
        "localhost/pause:1".to_owned(),
        format!("docker.io/library/{image}"),
    ];
    let files = [file, workspace.root.join("deploy/Containerfile")];
    for ((name, file), context) in names.iter().zip(&files).zip([&pause, &floodmark]) {
        let mut podman = command::words("podman build --quiet --network none");
        podman.args(["--tag", name, "--file"]);
        command::run(podman.arg(file).arg(context))?;
    }
    let archive = directory.join("images.tar");
    // podman does not overwrite an archive.
    if archive.exists() {
        fs::remove_file(&archive).map_err(TaskError::file(&archive))?;
    }
    let mut save =
        command::words("podman save --multi-image-archive --format docker-archive --output");
    command::run(save.arg(&archive).args(&names))?;
    Ok(archive)
}
