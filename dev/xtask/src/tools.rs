//! Finds or installs the programs that tests need besides Rust, and reports missing ones.

use crate::command;
use crate::error::{TaskError, none_found};

/// A program, its Debian package and its purpose. The program prints its version with `--version`
/// or `-v`. Arguments may follow the program's name.
#[derive(Debug, Clone, Copy)]
pub struct SystemTool(&'static str, &'static str, &'static str);

/// Builds libFuzzer.
pub const CPLUSPLUS: SystemTool = SystemTool("c++", "g++", "the fuzzer");
/// Runs systems and stores.
pub const JAVA: SystemTool = SystemTool("java", "default-jdk-headless", "the systems on the JVM");
/// Builds systems.
pub const MAVEN: SystemTool = SystemTool("mvn", "maven", "the systems on the JVM");
/// Unpacks PostgreSQL's binaries.
pub const XZ: SystemTool = SystemTool("xz", "xz-utils", "the postgresql store");
/// A measured system.
pub const NGINX: SystemTool = SystemTool("nginx", "nginx-light", "the nginx system");
/// Runs servers with faults.
pub const NODE: SystemTool = SystemTool("node", "nodejs", "the causes step");
/// Shows report pages.
pub const CHROMIUM: SystemTool = SystemTool("chromium", "chromium", "the check of report pages");
/// Installs Python packages for the servers in the cases.
pub const PIP: SystemTool = SystemTool("python3 -m ensurepip", "python3-venv", "the causes step");
/// Installs npm packages for the servers in the cases.
pub const NPM: SystemTool = SystemTool("npm", "npm", "the causes step");
/// A server with faults.
pub const HAPROXY: SystemTool = SystemTool("haproxy", "haproxy", "the causes step");
/// Runs test servers.
pub const PYTHON: SystemTool = SystemTool("python3", "python3", "the experiment tests");
/// Starts agents in tests. The package depends on openssh-client.
pub const SSHD: SystemTool = SystemTool("/usr/sbin/sshd -V", "openssh-server", "the agent tests");
/// Starts agents in tests. The package depends on slurm-client and munge.
pub const SLURMCTLD: SystemTool =
    SystemTool("/usr/sbin/slurmctld -V", "slurmctld", "the agent tests");
/// Starts agents in tests.
pub const SLURMD: SystemTool = SystemTool("/usr/sbin/slurmd -V", "slurmd", "the agent tests");

/// Finds or installs rustfmt, clippy and the given programs.
pub fn provide<'a>(tools: impl IntoIterator<Item = &'a SystemTool>) -> Result<(), TaskError> {
    let components = ["rustfmt", "clippy"].into_iter().map(provide_component);
    let results = components.chain(tools.into_iter().map(provide_tool));
    none_found(results.filter_map(Result::err).collect())
}

/// Finds or installs a component of the toolchain.
fn provide_component(component: &str) -> Result<(), String> {
    let subcommand = component.strip_prefix("rust").unwrap_or(component);
    let is_present = || command::succeeds(command::cargo().args([subcommand, "--version"]));
    let mut add = command::words("rustup component add");
    add.arg(component);
    if is_present() || command::run(&mut add).is_ok() && is_present() {
        return Ok(());
    }
    Err(format!(
        "{component} is missing; install it with `{}`",
        command::line(&add)
    ))
}

/// Finds or installs a program.
fn provide_tool(&SystemTool(program, package, needed_for): &SystemTool) -> Result<(), String> {
    // nginx supports only the flag `-v`.
    let runs = |flag| command::succeeds(command::words(program).arg(flag));
    let is_present = || runs("--version") || runs("-v");
    if is_present() || install(&[package]).is_ok() && is_present() {
        return Ok(());
    }
    Err(format!(
        "{program} is missing, but needed for {needed_for}; run `apt-get install {package}` as root, or install the equivalent package for your system"
    ))
}

/// Installs Debian packages as root.
pub fn install(packages: &[&str]) -> Result<(), TaskError> {
    let apt = |words: &str| {
        let mut apt = command::words(&format!("apt-get {words}"));
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        apt
    };
    let user = command::capture(&mut command::words("id -u"));
    let is_root = user.is_ok_and(|id| id.trim() == "0");
    if !is_root || !command::succeeds(&mut apt("--version")) {
        let packages = packages.join(" ");
        return Err(TaskError::found(format!(
            "cannot install packages without root and apt-get; run `apt-get install {packages}` as root"
        )));
    }
    command::run(&mut apt("update --quiet"))?;
    let mut install = apt("install --quiet --yes --no-install-recommends");
    command::run(install.args(packages)).map(drop)
}
