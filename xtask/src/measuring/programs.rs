//! Programs from Debian: found, or installed where we may.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::command;
use crate::tools;

/// Sees to it that programs are there, each given with its package; what cannot be installed is said, and missing.
pub fn provide<'a>(programs: impl IntoIterator<Item = (&'a str, &'a str)>) {
    let absent = programs
        .into_iter()
        .filter(|(program, _)| find(program).is_none());
    let absent: Vec<&str> = absent.map(|(_, package)| package).collect();
    if !absent.is_empty()
        && let Err(error) = tools::install(&absent)
    {
        println!("{error}");
    }
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
