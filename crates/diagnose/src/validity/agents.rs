//! Validity of agents, and of a run that agents sent.

use floodmark_record::agent::AgentRun;
use floodmark_record::plan::{Arrivals, Plan};
use floodmark_record::run::{Run, Status, Validity};

use super::grouped::grouped;
use super::{ClientFaults, ClientThreads, Judged, other_limit};
use crate::text::show_s;

/// Minimum start delay that is reported, in µs.
const LATE_START_US: f64 = 1_000.0;

/// Fix for a lost agent.
const FIX_LOST: &str = "check the agent's host and repeat";

/// Judges an agent's part of a load. `run` is this part as a separate run. Server
/// behavior does not count, because [`validity`](super::validity) judges it for the whole run.
#[must_use]
pub fn agent_validity(run: &Run, agent: &AgentRun, expected: &[String]) -> Validity {
    if let Some(lost) = &agent.lost {
        return Validity {
            status: Status::Invalid,
            reasons: vec![lost.clone()],
            notes: Vec::new(),
        };
    }
    let judged = &Judged {
        run,
        cpus: agent.cpus,
        expected,
    };
    let (status, reasons) = ClientFaults::of(judged).judge(|| None);
    Validity {
        status,
        reasons,
        notes: Vec::from_iter(late_start(&run.plan, agent.late_start_us)),
    }
}

/// Reports an agent that started too late.
fn late_start(plan: &Plan, late_us: f64) -> Option<String> {
    let effect = match plan.is_open() {
        true => "which delayed all its requests by the same amount",
        false => "and its connections sent nothing until then",
    };
    let late = show_s(late_us / 1e6);
    (late_us >= LATE_START_US).then(|| format!("the measurement started {late} late, {effect}"))
}

/// Returns the faults of the agents that sent a load.
pub(super) fn faults(run: &Run) -> ClientFaults {
    let agents = || run.agents.iter().filter(|agent| agent.lost.is_none());
    let with = |status| agents().filter(move |agent| agent.validity.status == status);
    let invalid = gather(run, with(Status::Invalid), |agent| {
        agent.validity.reasons.clone()
    });
    let saturated = gather(run, with(Status::Bound), |agent| match other_limit(run) {
        Some(verdict) => vec![format!(
            "no spare CPU time, so latencies include waiting in the client; first remove the limit \
             that the verdict names ({}): {}",
            verdict.cause, verdict.next
        )],
        None => agent.validity.reasons.clone(),
    });
    let effect = match run.plan.is_open() {
        true => "the rest of its requests were not sent",
        false => {
            "its connections were idle for the rest of the run, so throughput is a lower bound"
        }
    };
    let lost = gather(run, lost(run), |agent| {
        let why = agent.lost.iter();
        why.map(|why| format!("lost ({why}): {effect}; {FIX_LOST}"))
            .collect()
    });
    let (invalid, bound) = match run.plan.is_open() {
        true => ([lost, invalid].concat(), Vec::new()),
        false => (invalid, lost),
    };
    ClientFaults {
        invalid,
        bound,
        saturated,
    }
}

/// Returns the agents that started and were lost.
fn lost(run: &Run) -> impl Iterator<Item = &AgentRun> {
    let agents = run.agents.iter();
    agents.filter(|agent| agent.lost.is_some() && agent.cpus > 0)
}

/// Groups the agents' messages into one line per problem.
fn gather<'a>(
    run: &Run,
    agents: impl Iterator<Item = &'a AgentRun>,
    messages: impl Fn(&AgentRun) -> Vec<String>,
) -> Vec<String> {
    let named = agents.flat_map(|agent| {
        let name = agent.name.clone();
        messages(agent)
            .into_iter()
            .map(move |text| (name.clone(), text))
    });
    grouped(named, run.agents.len())
}

/// Returns notes on the agents' starts and clocks.
pub(super) fn notes(run: &Run) -> Vec<String> {
    let absent = run.agents.iter().filter(|agent| agent.cpus == 0);
    let share = match run.requests.sent {
        0 => "",
        _ => "; the other agents sent its share",
    };
    let mut notes = gather(run, absent, |agent| {
        let lost = agent.lost.iter();
        lost.map(|why| format!("never started ({why}){share}"))
            .collect()
    });
    notes.extend(gather(run, run.agents.iter(), |agent| {
        agent.validity.notes.clone()
    }));
    notes.extend(out_of_order(run));
    notes
}

/// Reports constant arrivals whose spacing is smaller than the error between two agents' clocks.
fn out_of_order(run: &Run) -> Option<String> {
    let schedule = run.plan.schedule()?;
    let is_constant = matches!(schedule.arrivals(), Arrivals::Constant | Arrivals::Burst);
    let agents = run.agents.iter().filter(|agent| agent.cpus > 0);
    let mut bounds_us: Vec<f64> = agents.filter_map(|agent| agent.bound_us).collect();
    bounds_us.sort_by(|a, b| b.total_cmp(a));
    // Each of two agents may be off by its own bound.
    let [first, second, ..] = bounds_us[..] else {
        return None;
    };
    let (bound_us, spacing_us) = (first + second, 1e6 / schedule.rate_per_s());
    (is_constant && !schedule.rate_changes() && bound_us > spacing_us).then(|| {
        let (bound, spacing) = (show_s(bound_us / 1e6), show_s(spacing_us / 1e6));
        format!(
            "arrivals are {spacing} apart, but the agents' clocks agree only to within {bound}: \
             arrivals of different agents may be out of order; arrivals within one agent are exact"
        )
    })
}

/// Returns the fix for a run that is bound by its agents.
pub(crate) fn fix(run: &Run) -> Option<String> {
    if lost(run).next().is_some() {
        return Some(FIX_LOST.to_owned());
    }
    let mut agents = run.agents.iter();
    let agent = agents.find(|agent| agent.validity.status == Status::Bound)?;
    Some(ClientThreads::of(&agent.client.threads)?.fix(agent.cpus))
}

#[cfg(test)]
#[path = "agents_tests.rs"]
mod tests;
