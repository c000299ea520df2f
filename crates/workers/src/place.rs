//! Places where agents run, and the commands that start agents there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;
use std::{env, fmt};

use floodmark_host::{ProcessPlacement, Stop};

use crate::agent::AgentLaunch;
use crate::command::{command_of, joined, words_of};
use crate::kubernetes::{AgentJob, JobSource, default_image, manifest};
use crate::ssh::{self, is_host};

/// Maximum number of agents of one load.
const MAX_AGENTS: u32 = 1000;

/// The place and number of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentsPlace {
    /// Number of agents.
    pub count: u32,
    /// What runs them.
    pub launcher: AgentsLauncher,
}

/// What runs agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentsLauncher {
    /// Processes on this host.
    Local,
    /// One agent per host, reached through ssh. A host that is listed twice gets two agents.
    Ssh(Vec<String>),
    /// Tasks of the Slurm cluster.
    Slurm,
    /// Pods of a Kubernetes Job, in the cluster of the current context.
    Kubernetes(JobSource),
    /// The words of the user's own command, which starts one agent, with the placeholders `{index}`
    /// (from 0) and `{count}`.
    Command(Vec<String>),
}

impl AgentsPlace {
    /// Returns a unique name for each agent.
    fn names(&self) -> Vec<String> {
        let name = match &self.launcher {
            AgentsLauncher::Local => "local",
            AgentsLauncher::Slurm => "slurm",
            AgentsLauncher::Kubernetes(_) => "kubernetes",
            AgentsLauncher::Command(_) => "agent",
            AgentsLauncher::Ssh(hosts) => {
                let named = hosts.iter().enumerate().map(|(index, host)| {
                    let earlier = hosts[..index].iter().filter(|other| *other == host).count();
                    match earlier {
                        0 => host.clone(),
                        n => format!("{host}-{}", n + 1),
                    }
                });
                return named.collect();
            }
        };
        (1..=self.count).map(|n| format!("{name}-{n}")).collect()
    }

    /// Returns the manifest of the Job that would run the agents; `None` if the user supplies the
    /// manifest, or if no Job runs them.
    #[must_use]
    pub fn manifest(&self) -> Option<String> {
        match &self.launcher {
            AgentsLauncher::Kubernetes(JobSource::Image(image)) => {
                Some(manifest(self.count, image))
            }
            _ => None,
        }
    }
}

impl FromStr for AgentsPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let forms = "local:2, ssh:host1,host2, slurm:4, kubernetes:4, or command:4:TEMPLATE";
        let (kind, rest) = text
            .split_once(':')
            .ok_or_else(|| format!("expected {forms}"))?;
        let number = |text: &str| match text.parse() {
            Ok(count @ 1..=MAX_AGENTS) => Ok(count),
            _ => Err(format!(
                "invalid number of agents \"{text}\"; expected 1 to {MAX_AGENTS}"
            )),
        };
        let (count, launcher) = match kind {
            "local" => (number(rest)?, AgentsLauncher::Local),
            "slurm" => (number(rest)?, AgentsLauncher::Slurm),
            "kubernetes" => {
                let (count, source) = match rest.split_once(':') {
                    Some((count, source)) => (count, JobSource::parse(source)?),
                    None => (rest, JobSource::Image(default_image())),
                };
                (number(count)?, AgentsLauncher::Kubernetes(source))
            }
            "ssh" => {
                let hosts = rest.split(',').map(|host| host.trim().to_owned());
                let hosts: Vec<String> = hosts.collect();
                if let Some(host) = hosts.iter().find(|host| !is_host(host)) {
                    return Err(format!("invalid host \"{host}\"; expected ssh:host1,host2"));
                }
                if hosts.len() > MAX_AGENTS as usize {
                    return Err(format!("at most {MAX_AGENTS} hosts are allowed"));
                }
                (hosts.len() as u32, AgentsLauncher::Ssh(hosts))
            }
            "command" => {
                let (count, template) = rest.split_once(':').ok_or(
                    "expected the number of agents and a command, such as command:4:sh start.sh {index}",
                )?;
                (number(count)?, AgentsLauncher::Command(words_of(template)?))
            }
            _ => {
                return Err(format!(
                    "unknown place \"{kind}\" for agents; expected {forms}"
                ));
            }
        };
        Ok(AgentsPlace { count, launcher })
    }
}

impl fmt::Display for AgentsPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        match &self.launcher {
            AgentsLauncher::Local => write!(f, "local:{count}"),
            AgentsLauncher::Slurm => write!(f, "slurm:{count}"),
            AgentsLauncher::Kubernetes(JobSource::Image(image)) => {
                write!(f, "kubernetes:{count}:{image}")
            }
            AgentsLauncher::Kubernetes(JobSource::File(path)) => {
                write!(f, "kubernetes:{count}:{}", path.display())
            }
            AgentsLauncher::Ssh(hosts) => write!(f, "ssh:{}", hosts.join(",")),
            AgentsLauncher::Command(words) => write!(f, "command:{count}:{}", joined(words)),
        }
    }
}

/// Maximum time to start an agent outside a cluster.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time to start an agent in a cluster, where its job may have to wait for other jobs.
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

/// Agents that are ready to be started. Dropping this value removes the Job that runs them, if any.
#[derive(Debug)]
pub struct PreparedAgents {
    /// How to start each agent.
    pub launches: Vec<AgentLaunch>,
    /// Held until the end of the load.
    _job: Option<AgentJob>,
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
        let (mut job, count) = (None, self.place.count);
        let each = |command: &dyn Fn(u32) -> Command| {
            Vec::from_iter((0..count).map(|index| Ok(command(index))))
        };
        let commands = match &self.place.launcher {
            AgentsLauncher::Local => each(&|_| {
                let mut command = agent_command(&program);
                self.side.place(&mut command);
                command
            }),
            AgentsLauncher::Ssh(hosts) => ssh::commands(hosts, self.copy.then_some(&*program)),
            AgentsLauncher::Slurm => each(&|_| slurm(&program)),
            AgentsLauncher::Kubernetes(source) => {
                let created = AgentJob::create(source, count)?;
                let created = job.insert(created);
                created.commands(self.min_agents, PODS_TIMEOUT, stop)
            }
            AgentsLauncher::Command(words) => each(&|index| from_template(words, index, count)),
        };
        let start_timeout = match self.place.launcher {
            AgentsLauncher::Slurm => QUEUE_TIMEOUT,
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
/// `srun` would mix the output of several tasks. The program must have the same path on all nodes
/// of the cluster.
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
    command_of(words.iter().map(|word| {
        let word = word.replace("{index}", &index.to_string());
        word.replace("{count}", &count.to_string())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_shows_each_place() {
        for text in [
            "local:2",
            "slurm:64",
            "slurm:1",
            "ssh:a,root@b,a",
            "kubernetes:4:registry.example.com:5000/floodmark@sha256:0f",
            "kubernetes:4:jobs/load.yaml",
            "command:3:env N={index} floodmark worker --agent",
        ] {
            let place: AgentsPlace = text.parse().unwrap();
            assert_eq!(place.to_string().replace('\'', ""), text);
            assert_eq!(place.to_string().parse(), Ok(place.clone()));
            assert_eq!(place.names().len(), place.count as usize);
        }
    }

    #[test]
    fn kubernetes_has_a_default_image() {
        let place: AgentsPlace = "kubernetes:3".parse().unwrap();
        let source = JobSource::Image(default_image());
        assert_eq!(place.launcher, AgentsLauncher::Kubernetes(source));
    }

    #[test]
    fn names_are_unique() {
        let place: AgentsPlace = "ssh:a,b,a,a".parse().unwrap();
        assert_eq!(place.names(), ["a", "b", "a-2", "a-3"]);
    }

    #[test]
    fn names_what_is_wrong() {
        for (text, part) in [
            ("4", "expected local:2"),
            (
                "local:0",
                "invalid number of agents \"0\"; expected 1 to 1000",
            ),
            ("local:1001", "expected 1 to 1000"),
            ("docker:2", "unknown place \"docker\" for agents"),
            ("ssh:", "invalid host \"\""),
            (
                "ssh:a,-oProxyCommand=x",
                "invalid host \"-oProxyCommand=x\"",
            ),
            (
                "command:floodmark",
                "expected the number of agents and a command",
            ),
            ("command:2:'floodmark", "check its quotes"),
            ("command:2:", "is not a command"),
            ("kubernetes:x", "invalid number of agents \"x\""),
            ("kubernetes:2:-x", "invalid image \"-x\""),
            ("kubernetes:2:a b", "ends in .yaml, .yml or .json"),
        ] {
            let error = text.parse::<AgentsPlace>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn templates_get_index_and_count() {
        let words = ["ssh", "node{index}", "run", "{index}/{count}"].map(str::to_owned);
        let command = from_template(&words, 2, 4);
        assert_eq!(command.get_program(), "ssh");
        assert_eq!(Vec::from_iter(command.get_args()), ["node2", "run", "2/4"]);
    }
}
