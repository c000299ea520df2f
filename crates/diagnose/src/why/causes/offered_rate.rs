//! Open model with an external client: the throughput equals the offered rate. The
//! offered rate is computed from what the client reports, so requests that it never sent are not
//! visible.

use floodmark_record::cause::Cause;

use super::{CauseSpec, Detect, Place, Tuning, none};
use crate::why::candidate::{Candidate, Finding};
use crate::why::facts::RunFacts;

pub(super) static SPEC: CauseSpec = CauseSpec {
    is_limit: false,
    tuning: Tuning::Stop,
    ..CauseSpec::new(
        Cause::OfferedRate,
        Place::NoLimit,
        Detect::Figures(detect),
    )
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    facts.run.client.name.as_ref()?;
    none::met(facts).and_then(Candidate::found)
}
