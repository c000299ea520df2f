//! Errors of development tasks.

use std::fmt;
use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus};

use crate::{command, digest};

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
    /// A single finding.
    pub fn found(line: impl Into<String>) -> Self {
        TaskError::Found(vec![line.into()])
    }

    /// A program cannot be started.
    pub fn start(command: &Command) -> impl FnOnce(io::Error) -> Self {
        let command = command::line(command);
        move |error| Self::found(format!("cannot start `{command}`: {error}"))
    }

    /// The output of a program is not as expected.
    pub fn output(command: &Command, reason: impl fmt::Display) -> Self {
        let command = command::line(command);
        Self::found(format!("unexpected output of `{command}`: {reason}"))
    }

    /// A file or folder cannot be read or written.
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

    /// Returns each error, with the essential output of the failed command.
    pub fn digest(&self) -> Vec<String> {
        match self {
            TaskError::Several(errors) => errors.iter().flat_map(TaskError::digest).collect(),
            TaskError::Failed { output, .. } => {
                let mut lines = vec![self.to_string()];
                lines.extend(digest::of(output));
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
