//! Programs that the tests need and cargo does not bring: found, installed, or named in one line.

use std::fs;
use std::process::Command;

use crate::command;
use crate::error::{Error, none_found};

/// A program that is not Rust's.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// What is run to see whether it is there, with `--version` or `-v`.
    pub program: &'static str,
    /// The Debian package that brings it.
    pub package: &'static str,
    /// What it is needed for.
    pub needed_for: &'static str,
}

/// The C++ compiler that builds libFuzzer.
pub const CPLUSPLUS: Tool = Tool {
    program: "c++",
    package: "g++",
    needed_for: "the fuzzer",
};

/// What the systems and stores on the JVM run on.
pub const JAVA: Tool = Tool {
    program: "java",
    package: "default-jdk-headless",
    needed_for: "the systems on the JVM",
};

/// What builds them.
pub const MAVEN: Tool = Tool {
    program: "mvn",
    package: "maven",
    needed_for: "the systems on the JVM",
};

/// What PostgreSQL's binaries are packed with.
pub const XZ: Tool = Tool {
    program: "xz",
    package: "xz-utils",
    needed_for: "the store postgresql",
};

/// One of the systems.
pub const NGINX: Tool = Tool {
    program: "nginx",
    package: "nginx-light",
    needed_for: "the system nginx",
};

/// The interpreter of some servers with faults.
pub const NODE: Tool = Tool {
    program: "node",
    package: "nodejs",
    needed_for: "the cases of causes",
};

/// The interpreter of the servers of one's own that experiments are tested with.
pub const PYTHON: Tool = Tool {
    program: "python3",
    package: "python3",
    needed_for: "the tests of floodmark run",
};

/// Sees to it that rustfmt, clippy and the given tools are there.
pub fn provide<'a>(tools: impl IntoIterator<Item = &'a Tool>) -> Result<(), Error> {
    let mut missing = Vec::new();
    for component in ["rustfmt", "clippy"] {
        missing.extend(provide_component(component).err().map(|e| e.to_string()));
    }
    for tool in tools {
        missing.extend(provide_tool(tool).err().map(|e| e.to_string()));
    }
    none_found(missing)
}

/// Sees to it that a component of the toolchain is there.
fn provide_component(component: &str) -> Result<(), Error> {
    let subcommand = component.strip_prefix("rust").unwrap_or(component);
    let present = || command::succeeds(command::cargo().args([subcommand, "--version"]));
    if present() {
        return Ok(());
    }
    let add = command::run(Command::new("rustup").args(["component", "add", component]));
    if add.is_ok() && present() {
        return Ok(());
    }
    Err(Error::Found(vec![format!(
        "{component} is missing: get it with `rustup component add {component}`"
    )]))
}

/// Sees to it that a program is there, with apt-get where we may.
fn provide_tool(tool: &Tool) -> Result<(), Error> {
    // nginx knows the short flag alone.
    let says = |flag| command::succeeds(Command::new(tool.program).arg(flag));
    let present = || says("--version") || says("-v");
    if present() {
        return Ok(());
    }
    if install(&[tool.package]).is_ok() && present() {
        return Ok(());
    }
    Err(Error::Found(vec![format!(
        "{} is missing, needed for {}: get it with `apt-get install {}` as root, or your system's package of it",
        tool.program, tool.needed_for, tool.package
    )]))
}

/// Installs Debian packages where we may.
pub fn install(packages: &[&str]) -> Result<(), Error> {
    let apt = || {
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt
    };
    if !is_root() || !command::succeeds(apt().arg("--version")) {
        return Err(Error::Found(vec![format!(
            "not installed: get it with `apt-get install {}` as root",
            packages.join(" ")
        )]));
    }
    command::run(apt().args(["update", "--quiet"]))?;
    let flags = ["install", "--quiet", "--yes", "--no-install-recommends"];
    command::run(apt().args(flags).args(packages))
}

/// Whether this process may install packages.
fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| effective_user(&status) == Some(0))
}

/// The effective user id in `/proc/PID/status`: the second figure of the line `Uid:` (proc_pid_status(5)).
fn effective_user(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_decides() {
        let status = "Name:\txtask\nUid:\t1000\t0\t1000\t1000\nGid:\t0\t0\t0\t0\n";
        assert_eq!(effective_user(status), Some(0));
        assert_eq!(effective_user("Name:\txtask\n"), None);
    }
}
