//! Checks agents without a load: their start, version, clock and host.

use std::fmt;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Instant;

use floodmark_host::Stop;
use floodmark_record::agent_lines::{AgentCommand, AgentHello, AgentLine};
use floodmark_record::host::Checkup;

use crate::agent::{Agent, AgentLaunch, EXIT_TIMEOUT, FromAgent};
use crate::agent_clock::SteadyClock;
use crate::coordinator::{EXCHANGES, QUEUE_LIMIT, TICK, other_version};

/// The check of one agent.
#[derive(Debug)]
pub struct AgentCheck {
    /// Name of the agent.
    pub name: String,
    /// Findings of the check, or the reason why the agent cannot be used.
    pub outcome: Result<CheckedAgent, String>,
}

/// A usable agent.
#[derive(Debug)]
pub struct CheckedAgent {
    /// Its host and version.
    pub hello: AgentHello,
    /// Its wall clock minus this host's, in ns.
    pub skew_ns: i64,
    /// Maximum error of `skew_ns` in ns: half of the shortest round trip.
    pub bound_ns: u64,
    /// Facts and findings about its host.
    pub checkup: Checkup,
}

impl fmt::Display for AgentCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Err(why) => write!(f, "agent {}: {why}", self.name),
            Ok(agent) => write!(
                f,
                "agent {} on {}: {} CPUs, clock {:+.6} s ± {:.3} ms from this host's{}",
                self.name,
                agent.hello.host,
                agent.hello.cpus,
                agent.skew_ns as f64 / 1e9,
                agent.bound_ns as f64 / 1e6,
                match &agent.hello.no_uring {
                    Some(why) => format!("; io_uring cannot be used: {why}"),
                    None => String::new(),
                }
            ),
        }
    }
}

/// Starts each agent, checks it and ends it. `version` is the version that the agents must have.
/// Returns the checks in the order of the launches.
pub fn checked_agents(launches: Vec<AgentLaunch>, version: &str, stop: &Stop) -> Vec<AgentCheck> {
    let (out, received) = sync_channel(QUEUE_LIMIT);
    let clock = SteadyClock::start();
    let launches = launches.into_iter().enumerate();
    let checks = launches.map(|(number, launch)| {
        let agent = Agent::start(launch, number, clock, &out);
        let failure = agent.loss().cloned().map(Err);
        (agent, failure)
    });
    let mut checks = Vec::from_iter(checks);
    let begin = Instant::now();
    while checks.iter().any(|(_, outcome)| outcome.is_none()) {
        match received.recv_timeout(TICK) {
            Ok((number, from)) => {
                let (agent, outcome) = &mut checks[number];
                if outcome.is_none() {
                    *outcome = take(agent, from, version);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
        }
        for (agent, outcome) in &mut checks {
            if outcome.is_some() {
                continue;
            }
            let failure = agent.failure().or_else(|| {
                let limit = agent.start_timeout;
                if stop.is_set() {
                    return Some("not checked: interrupted".to_owned());
                }
                let late = format!("did not answer within {} s", limit.as_secs());
                (begin.elapsed() > limit).then(|| agent.explain(&late))
            });
            *outcome = failure.map(Err);
        }
    }
    let ended = checks.into_iter().map(|(mut agent, outcome)| {
        if let Some(mut process) = agent.process.take() {
            // A process that cannot be waited for is killed when it is dropped.
            let _ = process.end(EXIT_TIMEOUT);
        }
        AgentCheck {
            name: agent.name,
            outcome: outcome.unwrap_or_else(|| Err("not checked".to_owned())),
        }
    });
    ended.collect()
}

/// Takes something that an agent sent. Returns the outcome of its check once it is known.
fn take(agent: &mut Agent, from: FromAgent, version: &str) -> Option<Result<CheckedAgent, String>> {
    let (line, at_ns) = agent.take(from)?;
    match line {
        AgentLine::Hello(hello) => {
            let other = other_version(&hello, version);
            agent.hello = Some(hello);
            agent.ping();
            other.map(Err)
        }
        AgentLine::Pong { sent_ns, agent_ns } => {
            agent.clock.add(sent_ns, agent_ns, at_ns);
            match (agent.clock.count < EXCHANGES, &agent.process) {
                (true, _) => agent.ping(),
                (false, Some(process)) => process.command(AgentCommand::Checkup),
                (false, None) => {}
            }
            None
        }
        AgentLine::Checkup(checkup) => agent.hello.take().map(|hello| {
            Ok(CheckedAgent {
                hello,
                skew_ns: agent.clock.offset_ns(),
                bound_ns: agent.clock.bound_ns(),
                checkup: *checkup,
            })
        }),
        _ => Some(Err("sent an unexpected line".to_owned())),
    }
}
