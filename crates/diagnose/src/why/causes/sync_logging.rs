//! Requests wait for the server to write its log.

use floodmark_record::cause::Cause;

use super::{CauseSpec, Detect, Place};
use crate::why::graph::writing;
use crate::why::proof::CauseClass;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::Waiting),
    ..CauseSpec::new(
        Cause::SyncLogging,
        Place::Server,
        Detect::Waits(|facts, service| writing(facts, service, Cause::SyncLogging)),
    )
};
