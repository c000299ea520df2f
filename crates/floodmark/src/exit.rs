//! Exit codes.

use std::fmt::Display;
use std::path::PathBuf;

use floodmark_host::Stop;
use floodmark_plan::target::ResolveError;

use crate::out;

/// Exit status. If several statuses apply, the first variant wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// 130: interrupted; the partial result, if any, is saved.
    Interrupted,
    /// 5: internal error.
    Internal,
    /// 2: invalid usage or input file.
    Usage,
    /// 3: the server was unreachable, did not start, or died.
    Server,
    /// 4: the result is invalid, or `bound` under `--strict`.
    Invalid,
    /// 1: a threshold or check failed or was not evaluated, or a condition ended the load early.
    Check,
    /// 0: success.
    Success,
}

impl Exit {
    /// Returns the exit code of the process.
    pub fn code(self) -> u8 {
        match self {
            Exit::Interrupted => 130,
            Exit::Internal => 5,
            Exit::Usage => 2,
            Exit::Server => 3,
            Exit::Invalid => 4,
            Exit::Check => 1,
            Exit::Success => 0,
        }
    }
}

/// A failure and its exit status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The exit status.
    pub exit: Exit,
    /// One line that states the place, the problem and the fix; empty if already printed.
    pub message: String,
}

impl Ending {
    /// Creates an ending with any status.
    pub fn new(exit: Exit, message: impl Display) -> Self {
        let message = message.to_string();
        Ending { exit, message }
    }

    /// Creates an ending for invalid usage or an invalid input file.
    pub fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Creates an ending for a command that was interrupted before `what` and has no result.
    pub fn before_result(what: &str) -> Self {
        Self::new(
            Exit::Interrupted,
            format!("interrupted before {what}; no result"),
        )
    }

    /// Creates an ending for a server failure.
    pub fn server(message: impl Display) -> Self {
        Self::new(Exit::Server, message)
    }

    /// Creates an ending for an internal error.
    pub fn internal(message: impl Display) -> Self {
        Self::new(Exit::Internal, message)
    }
}

impl From<ResolveError> for Ending {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Invalid(message) => Ending::usage(message),
            ResolveError::Unreachable(message) => Ending::server(message),
        }
    }
}

/// Prints each failure, and returns the failures without messages. Use this function for failures
/// that must be reported even if another ending wins.
pub fn report_all(failures: Vec<Ending>) -> Vec<Ending> {
    let report = |failure: Ending| {
        out::complain(&failure.message);
        Ending::new(failure.exit, "")
    };
    failures.into_iter().map(report).collect()
}

/// Returns the ending with the highest precedence as an error, or `Ok` if there are no endings.
pub fn worst(endings: Vec<Ending>) -> Result<(), Ending> {
    let worst = endings.into_iter().min_by_key(|ending| ending.exit);
    worst.map_or(Ok(()), Err)
}

/// Installs handlers for SIGINT, SIGTERM and SIGHUP.
pub fn stop_on_signals() -> Result<Stop, Ending> {
    Stop::on_signals().map_err(|e| Ending::internal(format!("cannot install signal handlers: {e}")))
}

/// Returns the path of this program.
pub fn own_program() -> Result<PathBuf, Ending> {
    std::env::current_exe()
        .map_err(|e| Ending::internal(format!("cannot find the floodmark program: {e}")))
}

/// Exit codes, as shown in the help.
pub const HELP: &str = "\
Exit codes:
  0    success
  1    a threshold (--fail-if) or check failed or was not evaluated, or abort-if ended the load
  2    invalid usage or input file
  3    the server was unreachable, did not start, or died
  4    the result is invalid (or `bound` or `unsteady`, with --strict)
  5    internal error
  130  interrupted; the partial result, if any, is saved
If several apply, the first of 130, 5, 2, 3, 4, 1 wins.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_in_the_documented_order_wins() {
        let mut all = [
            Exit::Success,
            Exit::Check,
            Exit::Invalid,
            Exit::Server,
            Exit::Usage,
            Exit::Internal,
            Exit::Interrupted,
        ];
        all.sort_unstable();
        assert_eq!(all.map(Exit::code), [130, 5, 2, 3, 4, 1, 0]);
    }
}
