//! Which load generators are on this machine: found, installed where we may, or named and left out.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::peer::{Origin, Peer};
use super::{floodmark, oha};
use crate::command;
use crate::error::Error;
use crate::measuring::nginx;
use crate::measuring::programs::{self, debian_version, find};
use crate::release;
use crate::workspace::Workspace;

/// A load generator that can be run.
#[derive(Debug)]
pub struct Ready {
    /// What it is.
    pub peer: Peer,
    /// Where it is.
    pub program: PathBuf,
    /// Its version, as its origin has it.
    pub version: String,
}

/// Finds, and where needed and possible installs, the given ones; the rest is named with its reason.
pub fn provide(
    workspace: &Workspace,
    peers: &[Peer],
    with_oha: bool,
) -> Result<(Vec<Ready>, Vec<String>), Error> {
    let debian = peers.iter().filter_map(|peer| match peer.origin {
        Origin::Debian(package) => Some((peer.program, package)),
        _ => None,
    });
    programs::provide(debian.chain([nginx::PROGRAM, nginx::OPENSSL]));
    let (mut ready, mut skipped) = (Vec::new(), Vec::new());
    let ours = release::floodmark(workspace)?;
    let help = command::capture(Command::new(&ours).args(["load", "--help"]))?;
    for peer in peers {
        let found = match peer.origin {
            Origin::Ours if floodmark::has_backend(&help, peer) => {
                let version = command::capture(Command::new(&ours).arg("--version"))?;
                let version = version.trim().trim_start_matches("floodmark ").to_owned();
                Ok((ours.clone(), version))
            }
            Origin::Ours => Err("this floodmark has no such backend".to_owned()),
            Origin::Debian(package) => find(peer.program)
                .map(|program| (program, debian_version(package)))
                .ok_or(format!("get it with `apt-get install {package}` as root")),
            Origin::Crate(version) => {
                provide_oha(workspace, with_oha).map(|program| (program, version.to_owned()))
            }
        };
        match found {
            Ok((program, version)) => ready.push(Ready {
                peer: *peer,
                program,
                version,
            }),
            Err(why) => skipped.push(format!("{}: {why}", peer.name)),
        }
    }
    Ok((ready, skipped))
}

/// The pinned oha, in a folder of its own under the build folder; built only when asked for, as that takes minutes.
///
/// It is built with the profile of its own releases; they are also guided by a profile, which is not done here.
fn provide_oha(workspace: &Workspace, build: bool) -> Result<PathBuf, String> {
    let root = workspace.target.join("peers").join(oha::VERSION);
    let program = root.join("bin").join("oha");
    if program.is_file() {
        return Ok(program);
    }
    if !build {
        return Err("not built yet, which takes minutes: give --with-oha".to_owned());
    }
    install_oha(&root, &workspace.target).map_err(|e| e.to_string())?;
    Ok(program)
}

fn install_oha(root: &Path, target: &Path) -> Result<(), Error> {
    let mut install = command::cargo();
    install.args(["install", "oha", "--locked", "--version", oha::VERSION]);
    install
        .args(["--profile", "release-ci", "--root"])
        .arg(root);
    install.env("CARGO_TARGET_DIR", target.join("peers").join("build"));
    command::run(&mut install)
}
