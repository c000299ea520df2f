//! Why a chore failed.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

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
}

/// Nothing found is fine; anything found is an error.
pub fn none_found(findings: Vec<String>) -> Result<(), Error> {
    if findings.is_empty() {
        Ok(())
    } else {
        Err(Error::Found(findings))
    }
}
