//! Tests of launchers (ssh, Slurm) with real daemons on loopback.

pub mod daemons;
pub mod slurm;
pub mod sshd;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;

use crate::support::{alive, finish, succeeds, text, wait_for};

/// A task that a launcher runs, and whose first line of output is its process ID.
struct LaunchedTask {
    launcher: Child,
    input: ChildStdin,
    pid: u32,
}

impl LaunchedTask {
    /// Starts a program with `launch`, which returns the launcher's command for a shell script.
    fn start(launch: &dyn Fn(&str) -> Command, program: &str) -> Self {
        let mut command = launch(&format!("echo $$; exec {program}"));
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut launcher = command.spawn().unwrap();
        let mut line = String::new();
        let output = launcher.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        LaunchedTask {
            input: launcher.stdin.take().unwrap(),
            pid: line.trim().parse().unwrap(),
            launcher,
        }
    }
}

/// Checks that a launcher relays bytes and that no task outlives its stdin, the launcher or the
/// daemons.
fn check_launcher(launch: &dyn Fn(&str) -> Command, end_daemons: impl FnOnce()) {
    relays_bytes(launch);

    let mut closed = LaunchedTask::start(launch, "cat");
    assert!(alive(closed.pid));
    drop(closed.input);
    assert!(closed.launcher.wait().unwrap().success());
    assert!(!alive(closed.pid));

    let mut killed = LaunchedTask::start(launch, "cat");
    killed.launcher.kill().unwrap();
    killed.launcher.wait().unwrap();
    wait_for("the task to end", || (!alive(killed.pid)).then_some(()));

    let mut last = LaunchedTask::start(launch, "sleep 1000");
    end_daemons();
    assert!(!alive(last.pid));
    assert!(!last.launcher.wait().unwrap().success());
    drop((killed.input, last.input));
}

/// Checks that stdin and stdout are relayed unchanged, for any bytes and line lengths.
fn relays_bytes(launch: &dyn Fn(&str) -> Command) {
    let mix = |n: u32| (n.wrapping_mul(2_654_435_761) >> 13) as u8;
    let mut sent: Vec<u8> = (0..2_500_000).map(mix).collect();
    sent.resize(5_000_000, b'x');
    let mut command = launch("cat");
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut launcher = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut input = launcher.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        let sent = &sent;
        scope.spawn(move || input.write_all(sent).unwrap());
        finish(launcher)
    });
    succeeds(&output);
    assert_eq!(text(&output.stderr), "");
    assert!(output.stdout == sent, "{} bytes", output.stdout.len());
}
