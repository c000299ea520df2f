//! Errors of development tasks, and the part of a failed command's output that is repeated at the
//! end of a log.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

use crate::command;

/// Maximum number of repeated lines per failed test.
const TEST_LINES: usize = 20;
/// Maximum number of repeated lines for any other command.
const COMMAND_LINES: usize = 60;
/// Heading of a backtrace.
const BACKTRACE: &str = "stack backtrace:";

/// Reason why a task failed, and how to fix it if known.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A program failed after it had printed its errors.
    #[error("`{command}` failed: {status}")]
    Failed {
        /// The echoed command.
        command: String,
        /// Exit status of the command.
        status: ExitStatus,
        /// Lines of the command's output.
        output: Vec<String>,
    },
    /// Findings of a check, or other reasons. Each is printed on its own line.
    #[error("{}", .0.join("\n"))]
    Found(Vec<String>),
    /// Several parts failed.
    #[error("{}", .0.iter().map(TaskError::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<TaskError>),
}

impl TaskError {
    /// Creates an error with a single finding.
    pub fn found(line: impl Into<String>) -> Self {
        TaskError::Found(vec![line.into()])
    }

    /// Creates the error for a program that cannot be started.
    pub fn start(command: &Command) -> impl FnOnce(io::Error) -> Self {
        let command = command::line(command);
        move |error| Self::found(format!("cannot start `{command}`: {error}"))
    }

    /// Creates the error for unexpected output of a program.
    pub fn output(command: &Command, reason: impl fmt::Display) -> Self {
        let command = command::line(command);
        Self::found(format!("unexpected output of `{command}`: {reason}"))
    }

    /// Creates the error for a file or directory that cannot be read or written.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::found(format!("{}: {error}", path.display()))
    }

    /// Combines the results of several parts into one result.
    pub fn of_all(
        results: impl IntoIterator<Item = Result<(), TaskError>>,
    ) -> Result<(), TaskError> {
        let errors: Vec<TaskError> = results.into_iter().filter_map(Result::err).collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(TaskError::Several(errors))
        }
    }

    /// Returns the lines of each error, with the essential output of the failed command.
    pub fn digest(&self) -> Vec<String> {
        match self {
            TaskError::Several(errors) => errors.iter().flat_map(TaskError::digest).collect(),
            TaskError::Failed { output, .. } => {
                let mut lines = vec![self.to_string()];
                lines.extend(digest(output));
                lines
            }
            TaskError::Found(_) => vec![self.to_string()],
        }
    }
}

/// Returns an error if there are findings.
pub fn none_found(findings: Vec<String>) -> Result<(), TaskError> {
    if findings.is_empty() {
        Ok(())
    } else {
        Err(TaskError::Found(findings))
    }
}

/// Returns the name and the last lines of each failed test, or the end of the output if no test
/// failed.
fn digest(output: &[String]) -> Vec<String> {
    let failed = output.iter().filter_map(|line| failed_test(line));
    let failed: Vec<&str> = failed.collect();
    if failed.is_empty() {
        let from = output.len().saturating_sub(COMMAND_LINES);
        return output.iter().skip(from).cloned().collect();
    }
    let mut digest: Vec<String> = failed.iter().map(|name| format!("FAILED {name}")).collect();
    let mut rest = output;
    while let [text, after @ ..] = rest {
        rest = after;
        let Some(name) = heading(text) else {
            digest.extend(text.starts_with("error: ").then(|| text.clone()));
            continue;
        };
        let end = after.iter().position(|text| ends_block(text));
        let (block, after) = after.split_at(end.unwrap_or(after.len()));
        rest = after;
        digest.push(format!("---- {name}"));
        // Omit the backtrace, which is less useful than the message and would displace the message.
        let block = block.iter().take_while(|text| *text != BACKTRACE);
        let block = block.filter(|text| !text.trim().is_empty());
        let block: Vec<&String> = block.collect();
        let from = block.len().saturating_sub(TEST_LINES);
        digest.extend(block[from..].iter().map(|text| format!("  {text}")));
    }
    digest
}

/// Returns the name in `test NAME ... FAILED`.
fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// Returns the name in `---- NAME stdout ----`, the heading of a failed test's output.
fn heading(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

fn ends_block(line: &str) -> bool {
    heading(line).is_some() || line == "failures:" || line.starts_with("test result: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest_of(text: &str) -> Vec<String> {
        digest(&text.lines().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn names_failed_tests_with_their_last_lines() {
        let long: String = (0..30).map(|n| format!("line {n}\n")).collect();
        let output = format!(
            "running 3 tests\ntest a::fine ... ok\ntest a::bad ... FAILED\ntest b ... FAILED\n\nfailures:\n\n\
             ---- a::bad stdout ----\n{long}\nthread 'a::bad' panicked at x.rs:1:1:\nnot so\nstack backtrace:\n{long}\n\
             ---- b stdout ----\nb was wrong\n\nfailures:\n    a::bad\n    b\n\n\
             test result: FAILED. 1 passed; 2 failed\n\nerror: test failed, to rerun pass `-p x --test y`\n"
        );
        let digest = digest_of(&output);
        assert_eq!(digest[..3], ["FAILED a::bad", "FAILED b", "---- a::bad"]);
        assert_eq!(digest[3], "  line 12");
        assert!(digest.contains(&"  not so".to_owned()), "{digest:?}");
        assert!(!digest.iter().any(|line| line.contains("fine")));
        let end = [
            "---- b",
            "  b was wrong",
            "error: test failed, to rerun pass `-p x --test y`",
        ];
        assert_eq!(digest[digest.len() - 3..], end);
    }

    #[test]
    fn keeps_the_end_of_other_output() {
        let output: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let digest = digest_of(&output);
        assert_eq!(
            (digest.len(), digest[0].as_str()),
            (COMMAND_LINES, "line 40")
        );
        assert!(digest_of("").is_empty());
    }
}
