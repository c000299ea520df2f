//! Tests of a load that several agents send together.

mod clocks;
mod failures;
mod kubernetes;
mod remote;
mod shares;

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{RunningLoad, start_load_as, wait_for};

/// Variable that marks all processes of one load, also those that have lost their parent.
const MARK: &str = "FLOODMARK_TEST_MARK";

/// A load whose processes can be found.
struct MarkedLoad {
    load: RunningLoad,
    mark: String,
}

/// Starts a load with agents.
fn start(url: &str, agents: &str, arguments: &[&str]) -> MarkedLoad {
    start_as(url, agents, arguments, |_| {})
}

fn start_as(
    url: &str,
    agents: &str,
    arguments: &[&str],
    prepare: impl FnOnce(&mut Command),
) -> MarkedLoad {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mark = format!("{}-{number}.", std::process::id());
    let arguments = [&["--agents", agents], arguments].concat();
    let load = start_load_as(url, &arguments, |command| {
        command.env(MARK, &mark);
        prepare(command);
    });
    MarkedLoad { load, mark }
}

impl MarkedLoad {
    fn variable(&self) -> String {
        format!("{MARK}={}", self.mark)
    }

    /// Returns the ids of the load's processes whose command line contains `part`.
    fn processes(&self, part: &str) -> Vec<u32> {
        processes(&self.variable(), part)
    }

    /// Waits for `count` agents, and returns their process ids in ascending order.
    fn agents(&self, count: usize) -> Vec<u32> {
        wait_for("the agents", || {
            let mut agents = self.processes("floodmark\0worker\0--agent");
            agents.sort_unstable();
            (agents.len() == count).then_some(agents)
        })
    }

    /// Waits for the end of the load, and checks that no process is left.
    fn end(self) -> crate::support::Load {
        let variable = self.variable();
        let load = self.load.end();
        assert_eq!(processes(&variable, ""), Vec::<u32>::new());
        load
    }
}

/// Returns the IDs of the processes whose environment contains `variable` and whose command line
/// contains `part`.
fn processes(variable: &str, part: &str) -> Vec<u32> {
    let has = |pid: u32, file: &str, text: &str| {
        // A process that has just ended has no files in /proc.
        let content = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&content).contains(text)
    };
    let all = fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    pids.filter(|pid| has(*pid, "environ", variable) && has(*pid, "cmdline", part))
        .collect()
}

/// Returns the path of the tested program.
fn program() -> &'static str {
    env!("CARGO_BIN_EXE_floodmark")
}
