//! The store is CPU-bound.

use floodmark_record::cause::Cause;
use floodmark_record::path::{Actor, StepKind};

use super::{CauseSpec, Detect, Place, Tuning};
use crate::suspicion::RecentFigures;
use crate::text::show_available;
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::{RunFacts, used};
use crate::why::graph::full_store_pool;
use crate::why::proof::CauseClass;
use crate::why::thresholds::{MOST, SATURATED};

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::StoreCpu),
    tuning: Tuning::Stop,
    live: Some(suspect),
    ..CauseSpec::new(
        Cause::StoreCpu,
        Place::Store,
        Detect::Figures(detect),
    )
};

fn suspect(recent: &RecentFigures) -> Option<String> {
    let (cpus, store) = recent.full_host().zip(recent.store_cpus)?;
    let text = format!("the store uses {store:.2} of {cpus:.0} CPUs");
    (store >= MOST * cpus).then(|| SPEC.suspicion("store-bound", &text))
}

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let store = facts.store.as_ref()?;
    let server = used(&facts.server);
    let available = facts.available_to_server_side(store);
    let share = (store.used / available).min(1.0);
    let figure = show_available("store", store.used, available);
    // If the server uses more CPU time than the store, the server's CPU is the cause.
    if share < SATURATED || server > store.used {
        return ruled_out(figure);
    }
    Candidate::new(
        EvidenceRank::Saturated,
        "the store is CPU-bound",
        vec![figure],
        "reduce the cost of the store's queries (check for missing indexes), or give the store more CPUs",
    )
    .at([(StepKind::Cpu, Actor::Store)])
    .behind(full_store_pool(facts))
    .with_utilization(share, facts.responses_per_s)
    .found()
}
