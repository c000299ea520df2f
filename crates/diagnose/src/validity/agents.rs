//! Validity of agents, and of a run that agents sent.

use std::fmt::Display;

use floodmark_record::grouped::{grouped, merged, show_agents};
use floodmark_record::plan::{Arrivals, Plan};
use floodmark_record::reason::{FIX_LOST, Reason, Worded};
use floodmark_record::run::{AgentRun, Run, Status, Validity};

use super::{ClientFaults, ClientThreads, Judged, other_limit, worded};
use crate::text::show_s;

/// Minimum start delay that is reported, in µs.
const LATE_START_US: f64 = 1_000.0;

/// Judges an agent's part of a load. `run` is this part as a separate run. Server
/// behavior does not count, because [`validity`](super::validity) judges it for the whole run.
#[must_use]
pub fn agent_validity(run: &Run, agent: &AgentRun, expected: &[String]) -> Validity {
    if let Some(error) = agent.lost.clone() {
        let faults = ClientFaults {
            invalid: vec![Reason::Lost { error }],
            ..ClientFaults::default()
        };
        return faults.judge(|| None, Vec::new());
    }
    let judged = &Judged {
        run,
        cpus: agent.cpus,
        expected,
    };
    let notes = Vec::from_iter(late_start(&run.plan, agent.late_start_us));
    ClientFaults::of(judged).judge(|| None, notes)
}

/// Reports an agent that started too late.
fn late_start(plan: &Plan, late_us: f64) -> Option<String> {
    let effect = if plan.is_open() {
        "which delayed all its requests by the same amount"
    } else {
        "and its connections sent nothing until then"
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
        Some(verdict) => worded(vec![Reason::NoSpareCpu {
            threads: None,
            cause: verdict.cause,
            next: verdict.next.clone(),
        }]),
        None => agent.validity.reasons.clone(),
    });
    let is_open = run.plan.is_open();
    let lost = gather(run, lost(run), |agent| {
        let errors = agent.lost.iter().cloned();
        worded(Vec::from_iter(
            errors.map(|error| Reason::LostAmongOthers { error, is_open }),
        ))
    });
    let (invalid, bound) = if run.plan.is_open() {
        ([lost, invalid].concat(), Vec::new())
    } else {
        (invalid, lost)
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

/// Groups agents that have the same problem, that is, whose reasons differ only in the figures.
fn gather<'a>(
    run: &Run,
    agents: impl Iterator<Item = &'a AgentRun>,
    reasons: impl Fn(&AgentRun) -> Vec<Worded>,
) -> Vec<Reason> {
    let groups = grouped(named(agents, reasons)).into_iter();
    let of = run.agents.len();
    let reason = |(agents, reasons)| Reason::OfAgents {
        agents,
        of,
        reasons,
    };
    groups.map(reason).collect()
}

/// Groups the agents' notes into one line per problem.
fn gather_notes<'a>(
    run: &Run,
    agents: impl Iterator<Item = &'a AgentRun>,
    notes: impl Fn(&AgentRun) -> Vec<String>,
) -> Vec<String> {
    let groups = grouped(named(agents, notes)).into_iter();
    let line = |(agents, notes): (Vec<String>, Vec<String>)| {
        let agents = show_agents(&agents, run.agents.len());
        format!("{agents}: {}", merged(notes))
    };
    groups.map(line).collect()
}

/// Pairs each message of an agent with the agent's name.
fn named<'a, T: Display>(
    agents: impl Iterator<Item = &'a AgentRun>,
    messages: impl Fn(&AgentRun) -> Vec<T>,
) -> impl Iterator<Item = (String, T)> {
    agents.flat_map(move |agent| {
        let messages = messages(agent).into_iter();
        let name = agent.name.clone();
        messages.map(move |message| (name.clone(), message))
    })
}

/// Returns notes on the agents' starts and clocks.
pub(super) fn notes(run: &Run) -> Vec<String> {
    let absent = run.agents.iter().filter(|agent| agent.cpus == 0);
    let share = match run.requests.sent {
        0 => "",
        _ => "; the other agents sent its share",
    };
    let mut notes = gather_notes(run, absent, |agent| {
        let lost = agent.lost.iter();
        lost.map(|why| format!("never started ({why}){share}"))
            .collect()
    });
    notes.extend(gather_notes(run, run.agents.iter(), |agent| {
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
    let fix = ClientThreads::of(&agent.client.threads)?.fix(agent.cpus);
    Some(fix.to_string())
}

#[cfg(test)]
#[path = "agents_tests.rs"]
mod tests;
