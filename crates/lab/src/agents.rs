//! Sends an attempt's load from several agents, and folds the events of each agent.

use floodmark_host::Stop;
use floodmark_observe::Root;
use floodmark_record::events::RunId;
use floodmark_record::plan::Plan;
use floodmark_record::run::{AgentRun, Run, Validity};
use floodmark_record::worker_input::WorkerInput;
use floodmark_record::{Event, SecondRow};
use floodmark_workers::{
    AgentFacts, AgentsEvent, AgentsLauncher, AgentsLoad, AgentsSetting, WorkerFailure, run_agents,
};

use crate::attempt::LoadSink;
use crate::fold::{JoinedRun, test_validity};

/// Runs the load, and records the merged events and each agent's part. If the result is partial,
/// returns the reason. `expected` contains the IDs of the causes that the experiment expects.
pub(crate) fn run_load(
    setting: &AgentsSetting<'_>,
    (input, run): (&WorkerInput, &RunId),
    expected: &[String],
    stop: &Stop,
    sink: &mut LoadSink<'_, '_>,
) -> Option<WorkerFailure> {
    // Dropped at the end of the load.
    let prepared = match setting.prepare(stop) {
        Ok(prepared) => prepared,
        Err(why) => return Some(WorkerFailure::Agents(why)),
    };
    let launches = prepared.launches;
    if setting.place.launcher != AgentsLauncher::Local {
        sink.monitor.client_is_elsewhere();
    }
    let mut runs = AgentRuns::new(run, &input.plan, launches.len());
    let load = AgentsLoad {
        launches,
        min_agents: setting.min_agents as usize,
        input,
        version: env!("CARGO_PKG_VERSION"),
        stop,
    };
    if stop.is_set() {
        sink.interruption = Some("interrupted before the load started".to_owned());
    }
    let mut rates = vec![None; load.launches.len()];
    let end = run_agents(load, &mut |event| match event {
        AgentsEvent::Of(agent, event) => {
            match event {
                Event::Ready(ready) => sink.monitor.agent(ready.pid),
                Event::Second(row) => rates[agent] = ok_per_s(row),
                _ => {}
            }
            runs.take(agent, event);
        }
        AgentsEvent::Merged(event) => {
            // Record no rates for a last row that is too short to compute a rate for any agent.
            if matches!(*event, Event::Second(_)) && rates.iter().any(Option::is_some) {
                let none = vec![None; rates.len()];
                let ok_per_s = std::mem::replace(&mut rates, none);
                sink.take(Event::AgentRates { ok_per_s });
            }
            sink.take(*event);
        }
    });
    let agents = runs.finish(&end.agents, expected);
    sink.directory.append(&Event::Agents { agents });
    end.failure
}

/// Returns the ok responses per second of `row`, or `None` if the row is too short to compute a
/// rate.
fn ok_per_s(row: &SecondRow) -> Option<f64> {
    const MIN_LENGTH_S: f64 = 0.1;
    let length_s = row.to_ns.saturating_sub(row.from_ns) as f64 / 1e9;
    (length_s >= MIN_LENGTH_S).then(|| row.counts.ok as f64 / length_s)
}

/// Folds each agent's own events while a load runs. Individual seconds are not kept, so memory use
/// does not grow with the load's length.
struct AgentRuns(Vec<JoinedRun>);

impl AgentRuns {
    /// Creates an empty part for each agent. `plan` is the plan of the whole load.
    fn new(id: &RunId, plan: &Plan, agents: usize) -> Self {
        // An agent's part has no figures for the groups of a mix.
        let plan = Plan {
            mix: None,
            ..plan.clone()
        };
        let part = || JoinedRun::new(id.clone(), plan.clone());
        AgentRuns((0..agents).map(|_| part()).collect())
    }

    /// Adds an event of the agent with this index.
    fn take(&mut self, agent: usize, event: &Event) {
        if let Some(part) = self.0.get_mut(agent) {
            part.take(event);
        }
    }

    /// Returns the agents' parts. `facts` has one entry per agent, in the same order. `expected`
    /// contains the IDs of the causes that the experiment expects.
    fn finish(self, facts: &[AgentFacts], expected: &[String]) -> Vec<AgentRun> {
        let here = Root::host().line("/proc/sys/kernel/random/boot_id");
        // The load is divided among the agents that started.
        let started = facts.iter().filter(|facts| facts.cpus > 0).count();
        let mut index = 0;
        let parts = self.0.into_iter().zip(facts).map(|(mut part, facts)| {
            let plan = &mut part.events.plan;
            plan.connections = connections(plan, index, started as u32);
            index += u32::from(facts.cpus > 0);
            agent_run(&part.finish(), facts, here.as_deref(), expected)
        });
        parts.collect()
    }
}

/// Returns an agent's part of a load, including its validity. `run` contains the figures of this
/// part.
fn agent_run(run: &Run, facts: &AgentFacts, here: Option<&str>, expected: &[String]) -> AgentRun {
    let us = |ns: u64| ns as f64 / 1e3;
    let mut agent = AgentRun {
        name: facts.name.clone(),
        shares_host: here.is_some() && here == facts.boot_id.as_deref(),
        boot_id: facts.boot_id.clone(),
        host: facts.host.clone(),
        cpus: facts.cpus,
        skew_us: facts.skew_ns.map(|(skew_ns, _)| skew_ns as f64 / 1e3),
        bound_us: facts.skew_ns.map(|(_, bound_ns)| us(bound_ns)),
        late_start_us: us(facts.late_start_ns),
        throughput_per_s: run.throughput_per_s.filter(|_| facts.lost.is_none()),
        requests: run.requests.clone(),
        longest_stall_ns: run.longest_stall_ns.filter(|_| facts.lost.is_none()),
        client: run.client.clone(),
        validity: Validity::default(),
        lost: facts.lost.clone(),
    };
    let judged = floodmark_diagnose::agent_validity(run, &agent, expected);
    agent.validity = match agent.lost {
        Some(_) => judged,
        None => test_validity(judged),
    };
    agent
}

/// Returns the number of connections of the agent with this index. The connections are divided
/// evenly among the threads of all agents.
fn connections(plan: &Plan, index: u32, agents: u32) -> u32 {
    let agents = agents.max(1);
    let threads = (plan.connections / agents).clamp(1, plan.threads.max(1));
    let all = agents * threads;
    let rest = plan.connections.max(1) % all;
    let one_more = rest.saturating_sub(index * threads).min(threads);
    plan.connections.max(1) / all * threads + one_more
}

#[cfg(test)]
#[path = "agents_tests.rs"]
mod tests;
