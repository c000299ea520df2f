//! Sets the cfg flags `can_trace`, `network_namespaces`, `ipv6`, `root` and `installed="PROGRAM"`
//! that apply to this host. Tests that need an unset flag are ignored.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

#[path = "../disk/can_trace.rs"]
mod can_trace;

/// Programs that some tests run.
const PROGRAMS: [&str; 10] = [
    "curl",
    "nginx",
    "node",
    "openssl",
    "python3",
    "slurmctld",
    "slurmd",
    "sshd",
    "unshare",
    "wrk",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    can_trace::detect();
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    let has_namespaces = succeeds("unshare", &["--net", "true"]);
    for (name, is_set) in [
        ("network_namespaces", has_namespaces),
        ("ipv6", has_ipv6),
        ("root", is_root),
    ] {
        println!("cargo::rustc-check-cfg=cfg({name})");
        if is_set {
            println!("cargo::rustc-cfg={name}");
        }
    }
    for program in PROGRAMS {
        println!("cargo::rustc-check-cfg=cfg(installed, values({program:?}))");
        if is_installed(program) {
            println!("cargo::rustc-cfg=installed={program:?}");
        }
    }
}

/// Returns whether PATH contains a program. Debian installs daemons in a directory that is only in
/// root's PATH.
fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .any(|directory| directory.join(program).is_file())
}

/// Runs a program. Returns whether it is installed and succeeded.
fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
