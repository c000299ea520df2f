//! The commands that start agents.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use floodmark_host::ProcessPlacement;

use crate::agent::AgentLaunch;
use crate::place::AgentsPlace;
use crate::ssh;

/// Maximum time to start an agent outside a cluster.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time to start an agent in a cluster, where its job may have to wait for others.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(600);

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

/// The agents cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The path of this program is unknown.
    #[error("cannot read /proc/self/exe: {0}; run floodmark where /proc is mounted")]
    Program(std::io::Error),
    /// The program could not be copied to a host.
    #[error("agent {host}: {what}")]
    Copy {
        /// The host.
        host: String,
        /// What failed.
        what: String,
    },
}

impl AgentsSetting<'_> {
    /// Prepares the hosts and returns the command of each agent.
    ///
    /// # Errors
    /// The program cannot be copied to a host.
    pub fn launches(&self) -> Result<Vec<AgentLaunch>, LaunchError> {
        let program = env::current_exe().map_err(LaunchError::Program)?;
        let commands = match &self.place {
            AgentsPlace::Local(count) => (0..*count)
                .map(|_| {
                    let mut command = agent_command(&program);
                    self.side.place(&mut command);
                    command
                })
                .collect(),
            AgentsPlace::Ssh(hosts) => ssh::commands(hosts, self.copy.then_some(&*program))?,
            AgentsPlace::Slurm(count) => (0..*count).map(|_| slurm(&program)).collect(),
            AgentsPlace::Command { count, words } => {
                let templates = (0..*count).map(|index| from_template(words, index, *count));
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
        Ok(launches.collect())
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
