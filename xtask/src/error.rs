//! Why a chore failed.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use crate::digest;

/// Why a chore failed, with the place and, where there is one, the mend.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program could not be started.
    #[error("cannot start `{command}`: {source}")]
    Start {
        /// As it was echoed.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program ended otherwise than with success; it has said why itself.
    #[error("`{command}` failed: {status}")]
    Failed {
        /// As it was echoed.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// The last lines that it wrote.
        said: VecDeque<String>,
    },
    /// A program wrote what it should not have.
    #[error("cannot read the output of `{command}`: {why}")]
    Output {
        /// As it was echoed.
        command: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file or folder could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What was checked is not as it must be: one line for each finding.
    #[error("{}", .0.join("\n"))]
    Found(Vec<String>),
    /// Several parts failed.
    #[error("{}", lines(.0))]
    Several(Vec<Error>),
}

fn lines(errors: &[Error]) -> String {
    let lines: Vec<String> = errors.iter().map(Error::to_string).collect();
    lines.join("\n")
}

impl Error {
    /// Of the parts of a chore: fine when none failed.
    pub fn of_all(results: impl IntoIterator<Item = Result<(), Error>>) -> Result<(), Error> {
        let mut errors: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(Error::Several(errors)),
        }
    }

    /// What must be read to know what failed: each error, and what its command said of it.
    pub fn digest(&self) -> Vec<String> {
        match self {
            Error::Several(errors) => errors.iter().flat_map(Error::digest).collect(),
            Error::Failed { said, .. } => {
                let mut lines = vec![self.to_string()];
                lines.extend(digest::of(said));
                lines
            }
            _ => vec![self.to_string()],
        }
    }
}

/// Nothing found is fine; anything found is an error.
pub fn none_found(findings: Vec<String>) -> Result<(), Error> {
    if findings.is_empty() {
        Ok(())
    } else {
        Err(Error::Found(findings))
    }
}
