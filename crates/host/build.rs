//! Sets `network_namespaces` if this host allows network namespaces.
//!
//! Otherwise the tests of network namespaces are ignored.

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
