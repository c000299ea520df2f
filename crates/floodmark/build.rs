//! Sets the cfg flags `can_trace`, `network_namespaces`, `ipv6`, `root` and `installed="PROGRAM"`
//! that apply to this host. Tests that need an unset flag are ignored.

use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

#[path = "../disk/can_trace.rs"]
mod can_trace;

/// Programs that some tests run.
const PROGRAMS: [&str; 6] = ["curl", "nginx", "node", "python3", "unshare", "wrk"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    can_trace::detect();
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    let has_ipv6 = TcpListener::bind("[::1]:0").is_ok();
    let has_namespaces = runs("unshare", &["--net", "true"]) == Some(true);
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
        if runs(program, &["-v"]).is_some() {
            println!("cargo::rustc-cfg=installed={program:?}");
        }
    }
}

/// Runs a program. Returns whether the program succeeded, or `None` if it is not installed.
fn runs(program: &str, arguments: &[&str]) -> Option<bool> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Some(command.status().ok()?.success())
}
