//! The commands that start agents.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use floodmark_host::{ProcessPlacement, Stop};

use crate::agent::AgentLaunch;
use crate::agent_job::{AgentJob, manifest};
use crate::place::{AgentsPlace, JobSource};
use crate::ssh;

/// Maximum time to start an agent outside a cluster.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time to start an agent in a cluster, where its job may have to wait for others.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum time to start the pods of a Job. A cluster may add nodes for them.
const PODS_TIMEOUT: Duration = Duration::from_secs(600);

/// Settings of a load's agents.
#[derive(Debug)]
pub struct AgentsSetting<'a> {
    /// The place of the agents.
    pub place: AgentsPlace,
    /// Minimum number of remaining agents with which the load continues.
    pub min_agents: u32,
    /// Whether to copy this program to hosts that lack it.
    pub copy: bool,
    /// Whether agents send their share even if their hosts have too few ports or open files.
    pub anyway: bool,
    /// Placement of agents on this host.
    pub side: &'a ProcessPlacement,
}

/// Agents that are ready to be started. Dropping it removes the Job that runs them, if any.
#[derive(Debug)]
pub struct PreparedAgents {
    /// How to start each agent. Empty after [`PreparedAgents::take_launches`].
    launches: Vec<AgentLaunch>,
    /// Held until the end of the load.
    _job: Option<AgentJob>,
}

impl PreparedAgents {
    /// Returns how to start each agent.
    pub fn take_launches(&mut self) -> Vec<AgentLaunch> {
        std::mem::take(&mut self.launches)
    }
}

impl AgentsPlace {
    /// Returns the manifest of the Job that would run the agents; `None` if the user supplies the
    /// manifest, or if no Job runs them.
    #[must_use]
    pub fn manifest(&self) -> Option<String> {
        match self {
            AgentsPlace::Kubernetes {
                count,
                source: JobSource::Image(image),
            } => Some(manifest(*count, image)),
            _ => None,
        }
    }
}

impl AgentsSetting<'_> {
    /// Prepares the hosts: copies the program to them, or creates a Job. `stop` ends the wait for
    /// the Job's pods.
    ///
    /// # Errors
    /// No agent can be started.
    pub fn prepare(&self, stop: &Stop) -> Result<PreparedAgents, String> {
        let program = env::current_exe().map_err(|error| {
            format!("cannot read /proc/self/exe: {error}; run floodmark where /proc is mounted")
        })?;
        let mut job = None;
        let commands = match &self.place {
            AgentsPlace::Local(count) => (0..*count)
                .map(|_| {
                    let mut command = agent_command(&program);
                    self.side.place(&mut command);
                    Ok(command)
                })
                .collect(),
            AgentsPlace::Ssh(hosts) => ssh::commands(hosts, self.copy.then_some(&*program)),
            AgentsPlace::Slurm(count) => (0..*count).map(|_| Ok(slurm(&program))).collect(),
            AgentsPlace::Kubernetes { count, source } => {
                let created = AgentJob::create(source, *count)?;
                let created = job.insert(created);
                created.commands(self.min_agents, PODS_TIMEOUT, stop)
            }
            AgentsPlace::Command { count, words } => {
                let templates = (0..*count).map(|index| Ok(from_template(words, index, *count)));
                templates.collect()
            }
        };
        let start_timeout = match self.place {
            AgentsPlace::Slurm(_) => QUEUE_TIMEOUT,
            _ => START_TIMEOUT,
        };
        let named = self.place.names().into_iter().zip(commands);
        let launches = named.map(|(name, command)| AgentLaunch {
            name,
            command,
            start_timeout,
        });
        Ok(PreparedAgents {
            launches: launches.collect(),
            _job: job,
        })
    }
}

fn agent_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["worker", "--agent"]);
    command
}

/// Returns the command for one task of a Slurm cluster. Each agent is a separate step, because
/// `srun` would mix the output of several tasks. The cluster's nodes must share the program's path.
fn slurm(program: &PathBuf) -> Command {
    let mut command = Command::new("srun");
    command
        .args(["--ntasks=1", "--nodes=1", "--exact", "--job-name=floodmark"])
        .arg("--quiet")
        .arg(program)
        .args(["worker", "--agent"])
        // With this variable, srun would put a label before each line.
        .env_remove("SLURM_LABELIO");
    command
}

fn from_template(words: &[String], index: u32, count: u32) -> Command {
    let mut filled = words.iter().map(|word| {
        let word = word.replace("{index}", &index.to_string());
        word.replace("{count}", &count.to_string())
    });
    let mut command = Command::new(filled.next().unwrap_or_default());
    command.args(filled);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_get_index_and_count() {
        let words = ["ssh", "node{index}", "run", "{index}/{count}"].map(str::to_owned);
        let command = from_template(&words, 2, 4);
        assert_eq!(command.get_program(), "ssh");
        assert_eq!(Vec::from_iter(command.get_args()), ["node2", "run", "2/4"]);
    }
}
