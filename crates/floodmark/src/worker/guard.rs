//! Guards an agent on a remote host. A stopped process (SIGSTOP) cannot notice that its connection
//! is closed, so another process must end it.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use floodmark_host::{Child, stdin_is_closed};

use crate::exit::Ending;

/// Interval between checks of the agent and of stdin.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum time for the agent to end after its stdin is closed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the agent in a child process, which gets stdin and stdout. Kills the agent if it is still
/// running some time after stdin is closed.
pub fn run() -> Result<(), Ending> {
    let failed = |error: &dyn std::fmt::Display| Ending::internal(format!("worker: {error}"));
    let program = env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command.args(["worker", "--agent"]);
    let mut agent = Child::start(command).map_err(|error| failed(&error))?;
    let mut closed: Option<Instant> = None;
    loop {
        match agent.wait(POLL_INTERVAL).map_err(|error| failed(&error))? {
            Some(status) if status.success() => return Ok(()),
            // The agent has printed the reason.
            Some(status) => return Err(failed(&format!("the agent ended ({status})"))),
            None => {}
        }
        if closed.is_none() && stdin_is_closed() {
            closed = Some(Instant::now());
        }
        if closed.is_some_and(|since| since.elapsed() > END_TIMEOUT) {
            // Dropping the child kills it, even if it is stopped.
            return Err(failed(&"the agent did not end and was killed"));
        }
    }
}
