//! Requests wait for the server's reads and writes of files other than a log.

use floodmark_record::cause::Cause;

use super::{CauseSpec, Detect, Place, Tuning};
use crate::why::graph::writing;

pub(super) static SPEC: CauseSpec = CauseSpec {
    tuning: Tuning::Stop,
    ..CauseSpec::new(
        Cause::Disk,
        Place::Server,
        Detect::Waits(|facts, service| writing(facts, service, Cause::Disk)),
    )
};
