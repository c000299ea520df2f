//! The store is CPU-bound.

use super::*;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::StoreCpu),
    tuning: Tuning::Stop,
    live: Some(suspect),
    ..CauseSpec::new(Cause::StoreCpu, Place::Store, detect)
};

fn suspect(recent: &RecentFigures) -> Option<Suspicion> {
    let (cpus, store) = recent.full_host().zip(recent.store_cpus)?;
    let text = format!("the store uses {store:.2} of {cpus:.0} CPUs");
    (store >= MOST * cpus).then_some(("store-bound", text))
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
        [figure],
        "reduce the cost of the store's queries (check for missing indexes), or give the store more CPUs",
    )
    .at([(StepKind::Cpu, Actor::Store)])
    .behind(full_store_pool(facts))
    .with_utilization(share, facts.responses_per_s)
    .found()
}
