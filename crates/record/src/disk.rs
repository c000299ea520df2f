//! Results of `floodmark disk`: a server on the disk states that a power loss can leave, and on
//! failing disks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Output of `floodmark disk --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskResult {
    /// Version of the format, [`crate::SCHEMA_VERSION`].
    pub schema: u32,
    /// Command of the server, with placeholders.
    pub command: Vec<String>,
    /// Name of the check, or of the check file.
    pub check: String,
    /// Name of the rules for directory entries, `strict` or `journaled`.
    pub file_system: String,
    /// Seed of the crash points and the disk states.
    pub seed: u64,
    /// Number of requests sent in the trace without a fault.
    pub requests: u64,
    /// Whether all disk states were tested.
    pub is_complete: bool,
    /// The trace without a fault, then one row per fault.
    pub rows: Vec<DiskRow>,
}

impl DiskResult {
    /// Returns whether no disk state made the server fail.
    #[must_use]
    pub fn is_passed(&self) -> bool {
        self.rows.iter().all(|row| row.failed == 0)
    }
}

/// Result of one trace of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DiskRow {
    /// The injected fault; absent for the trace without a fault.
    pub fault: Option<String>,
    /// Number of acknowledged requests.
    pub acknowledged: u64,
    /// Number of requests that were acknowledged after the first injected error. Absent if no call
    /// returned an error.
    pub acknowledged_after_error: Option<u64>,
    /// Number of disk states on which the server was started.
    pub images: u64,
    /// Number of different disk states.
    pub distinct: u64,
    /// Number of disk states on which the server returned everything that it had acknowledged.
    pub recovered: u64,
    /// Number of disk states on which the server exited with an error code and a message on stderr.
    pub refused: u64,
    /// Number of disk states on which the server lost the data of an acknowledged request, returned
    /// data that was never sent, crashed, did not respond, or exited without an error message.
    pub failed: u64,
    /// Number of failed disk states on which the server crashed: it was killed by a signal, exited
    /// with a code of 128 or more, or reported an uncaught error of its language runtime.
    pub crashed: u64,
    /// Mean time per disk state in milliseconds.
    pub mean_ms: f64,
    /// Time of the slowest disk state in milliseconds.
    pub longest_ms: f64,
    /// Wall-clock time for all disk states in seconds. Several disk states are tested in parallel.
    pub elapsed_s: f64,
    /// Number of refusals, by the line of the message that best explains the refusal.
    pub refusals: BTreeMap<String, u64>,
    /// The first failures.
    pub failures: Vec<DiskFailure>,
}

/// A disk state on which the server failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFailure {
    /// Crash point: position in the trace.
    pub at: u64,
    /// What the server lost, or how it failed.
    pub reason: String,
    /// Effects of file calls that the power loss undid, one line each.
    pub missing: Vec<String>,
}
