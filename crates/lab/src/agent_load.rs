//! Sends the load of an attempt with several agents.

use floodmark_host::Stop;
use floodmark_record::events::RunId;
use floodmark_record::worker_input::WorkerInput;
use floodmark_record::{Event, SecondRow};
use floodmark_workers::{
    AgentsEvent, AgentsLauncher, AgentsLoad, AgentsSetting, WorkerFailure, run_agents,
};

use crate::agent_runs::AgentRuns;
use crate::attempt::LoadSink;

/// Runs the load, and records the merged events and each agent's part. Returns why the result is
/// partial, if it is. `expected` contains the IDs of the causes that the experiment expects.
pub(crate) fn run(
    setting: &AgentsSetting<'_>,
    (input, run): (&WorkerInput, &RunId),
    expected: &[String],
    stop: &Stop,
    sink: &mut LoadSink<'_, '_, '_>,
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
            // No agent has figures for a short last row.
            if matches!(*event, Event::Second(_)) && rates.iter().any(Option::is_some) {
                let none = vec![None; rates.len()];
                let ok_per_s = std::mem::replace(&mut rates, none);
                sink.take(Event::AgentRates { ok_per_s });
            }
            sink.take(*event);
        }
    });
    let agents = runs.finish(&end.agents, expected);
    sink.folder.append(&Event::Agents { agents });
    end.failure
}

/// Returns the ok responses per second of a row; `None` for a row that is too short for a rate.
fn ok_per_s(row: &SecondRow) -> Option<f64> {
    const MIN_LENGTH_S: f64 = 0.1;
    let length_s = row.to_ns.saturating_sub(row.from_ns) as f64 / 1e9;
    (length_s >= MIN_LENGTH_S).then(|| row.counts.ok as f64 / length_s)
}
