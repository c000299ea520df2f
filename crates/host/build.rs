//! Sets the cfg `network_namespaces` if this host allows network namespaces.
//!
//! If the cfg is not set, tests that need network namespaces are ignored.

use std::process::{Command, Stdio};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(network_namespaces)");
    println!("cargo::rerun-if-changed=build.rs");
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "true"]).stderr(Stdio::null());
    if unshare.status().is_ok_and(|status| status.success()) {
        println!("cargo::rustc-cfg=network_namespaces");
    }
}
