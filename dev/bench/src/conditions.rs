//! Conditions of a measurement: date, source revision, host and program versions.

use std::fs;
use std::process::Command;

use floodmark_observe::{Root, cpu, environment};

use crate::bench::{Bench, Failure};
use crate::table::cell;

/// Date, source revision and host of a measurement.
pub struct Conditions {
    /// Number of CPUs available to this process.
    pub cpus: u32,
    rows: [(&'static str, String); 5],
}

impl Conditions {
    /// Reads the current conditions.
    pub fn read(bench: &Bench) -> Result<Self, Failure> {
        let git = |arguments: &str| {
            let arguments = arguments.split(' ');
            output(Command::new("git").args(arguments).current_dir(&bench.root))
        };
        let mut commit = git("rev-parse --short=12 HEAD")?;
        if !git("status --porcelain -- crates xtask Cargo.toml")?.is_empty() {
            commit.push_str(" with uncommitted changes");
        }
        let host = environment(&Root::host());
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        // The CPU flag `hypervisor` is set in a virtual machine.
        let kind = if cpuinfo.split_whitespace().any(|word| word == "hypervisor") {
            "virtual machine"
        } else {
            "no hypervisor detected"
        };
        let model = host.cpu_model.as_deref().unwrap_or("unknown model");
        let load = cell(cpu::load_average(&Root::host()), |load| load.to_string());
        let date = output(Command::new("date").args(["--utc", "+%Y-%m-%d"]))?;
        Ok(Conditions {
            cpus: host.cpus,
            rows: [
                ("date", date),
                ("commit", commit),
                ("CPU", format!("{model}, {} CPUs, {kind}", host.cpus)),
                ("kernel", format!("Linux {}", host.kernel)),
                ("load average at the start", load),
            ],
        })
    }

    /// Returns one row (name and value) per condition, then one row per pair in `others`.
    pub fn rows(
        &self,
        others: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Vec<Vec<String>> {
        let rows = self.rows.iter().cloned().chain(others);
        rows.map(|(name, value)| vec![name.to_owned(), value])
            .collect()
    }
}

/// Runs a command and returns its trimmed stdout.
fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.output()?;
    if output.status.success() {
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    } else {
        Err(format!("{command:?}: {}", output.status).into())
    }
}

/// Returns the first line of a command's output that contains a digit, or `not installed`.
pub fn version(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let text = output.map(|output| [output.stdout, output.stderr].concat());
    let text = String::from_utf8_lossy(&text.unwrap_or_default()).into_owned();
    let mut lines = text.lines().map(str::trim);
    let line = lines.find(|line| line.contains(|c: char| c.is_ascii_digit()));
    line.unwrap_or("not installed").to_owned()
}
