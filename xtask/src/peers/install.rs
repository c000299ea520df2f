//! Which load generators are on this machine: found, installed where we may, or named and left out.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::peer::{Origin, Peer};
use super::{floodmark, oha};
use crate::command;
use crate::error::Error;
use crate::workspace::Workspace;
use crate::{release, tools};

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

/// A program that Debian brings, by the package that is asked for it.
pub const NGINX: (&str, &str) = ("nginx", "nginx-light");
/// What makes its certificate.
const OPENSSL: (&str, &str) = ("openssl", "openssl");

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
    let absent: Vec<&str> = debian
        .chain([NGINX, OPENSSL])
        .filter(|(program, _)| find(program).is_none())
        .map(|(_, package)| package)
        .collect();
    if !absent.is_empty()
        && let Err(error) = tools::install(&absent)
    {
        println!("{error}");
    }
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

/// A program on the search path, or where Debian keeps servers.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The version of an installed package as dpkg has it.
pub fn debian_version(package: &str) -> String {
    let query = || {
        let mut query = Command::new("dpkg-query");
        query.args(["--show", "--showformat=${Version}", package]);
        query
    };
    match command::succeeds(&mut query()).then(|| command::capture(&mut query())) {
        Some(Ok(version)) if !version.is_empty() => format!("{version} (Debian)"),
        _ => "not from Debian".to_owned(),
    }
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
