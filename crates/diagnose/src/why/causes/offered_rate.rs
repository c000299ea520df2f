//! Open model with an external client: the throughput equals the offered rate. The offered rate is
//! computed from the client's report, so requests that the client never sent are not visible.

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    is_limit: false,
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::OfferedRate, Place::NoLimit, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    facts.run.client.name.as_ref()?;
    none::met(facts).and_then(Candidate::found)
}
