//! Requests wait for the server's reads and writes of files other than a log.

use super::sync_logging::writing;
use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::Disk, Place::Server, |facts| {
        writing(facts, Cause::Disk)
    })
};
