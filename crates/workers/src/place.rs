//! Places where agents run.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::ssh::is_host;

/// Maximum number of agents of one load.
pub const MAX_AGENTS: u32 = 1000;

/// The place and number of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentsPlace {
    /// Processes on this host.
    Local(u32),
    /// One agent per host, reached through ssh. A host that is listed twice gets two agents.
    Ssh(Vec<String>),
    /// Tasks of the Slurm cluster.
    Slurm(u32),
    /// Pods of a Job in the Kubernetes cluster of the current context.
    Kubernetes {
        /// Number of agents.
        count: u32,
        /// The Job.
        source: JobSource,
    },
    /// The user's own command, which starts one agent.
    Command {
        /// Number of agents.
        count: u32,
        /// The words of the command, with the placeholders `{index}` (from 0) and `{count}`.
        words: Vec<String>,
    },
}

/// A Job that runs agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobSource {
    /// The built-in manifest with this container image.
    Image(String),
    /// The user's own manifest, in YAML or JSON.
    File(PathBuf),
}

/// Returns the name of the container image that this version of floodmark uses by default.
pub(crate) fn default_image() -> String {
    format!("floodmark:{}", env!("CARGO_PKG_VERSION"))
}

impl JobSource {
    /// Reads the name of a manifest or of an image.
    fn parse(text: &str) -> Result<Self, String> {
        let extension = Path::new(text).extension().and_then(|text| text.to_str());
        match extension {
            Some("yaml" | "yml" | "json") => Ok(JobSource::File(text.into())),
            _ if is_image(text) => Ok(JobSource::Image(text.to_owned())),
            _ => Err(format!(
                "invalid image \"{text}\"; expected an image, or a manifest that ends with .yaml or .json"
            )),
        }
    }
}

/// Returns whether `text` can be the name of a container image.
pub(crate) fn is_image(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_allowed)
}

impl AgentsPlace {
    /// Returns the number of agents.
    #[must_use]
    pub fn count(&self) -> u32 {
        match self {
            AgentsPlace::Local(count)
            | AgentsPlace::Slurm(count)
            | AgentsPlace::Kubernetes { count, .. }
            | AgentsPlace::Command { count, .. } => *count,
            AgentsPlace::Ssh(hosts) => hosts.len() as u32,
        }
    }

    /// Returns whether all agents run on this host.
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self, AgentsPlace::Local(_))
    }

    /// Returns a unique name for each agent.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let numbered =
            |name: &str| Vec::from_iter((1..=self.count()).map(|n| format!("{name}-{n}")));
        match self {
            AgentsPlace::Local(_) => numbered("local"),
            AgentsPlace::Slurm(_) => numbered("slurm"),
            AgentsPlace::Kubernetes { .. } => numbered("kubernetes"),
            AgentsPlace::Command { .. } => numbered("agent"),
            AgentsPlace::Ssh(hosts) => {
                let named = hosts.iter().enumerate().map(|(index, host)| {
                    let earlier = hosts[..index].iter().filter(|other| *other == host).count();
                    match earlier {
                        0 => host.clone(),
                        n => format!("{host}-{}", n + 1),
                    }
                });
                named.collect()
            }
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
        let count = |text: &str| match text.parse::<u32>() {
            Ok(count @ 1..=MAX_AGENTS) => Ok(count),
            _ => Err(format!(
                "invalid number of agents \"{text}\"; expected 1 to {MAX_AGENTS}"
            )),
        };
        match kind {
            "local" => count(rest).map(AgentsPlace::Local),
            "slurm" => count(rest).map(AgentsPlace::Slurm),
            "kubernetes" => {
                let (n, source) = match rest.split_once(':') {
                    Some((n, source)) => (n, JobSource::parse(source)?),
                    None => (rest, JobSource::Image(default_image())),
                };
                let count = count(n)?;
                Ok(AgentsPlace::Kubernetes { count, source })
            }
            "ssh" => {
                let hosts: Vec<String> =
                    rest.split(',').map(|host| host.trim().to_owned()).collect();
                match hosts.iter().find(|host| !is_host(host.as_str())) {
                    Some(host) => Err(format!("invalid host \"{host}\"; expected ssh:host1,host2")),
                    None if hosts.len() > MAX_AGENTS as usize => {
                        Err(format!("at most {MAX_AGENTS} hosts are allowed"))
                    }
                    None => Ok(AgentsPlace::Ssh(hosts)),
                }
            }
            "command" => {
                let (n, template) = rest.split_once(':').ok_or_else(|| {
                    "expected the number of agents and a command, such as command:4:sh start.sh {index}"
                        .to_owned()
                })?;
                let words = shlex::split(template).filter(|words| !words.is_empty());
                Ok(AgentsPlace::Command {
                    count: count(n)?,
                    words: words.ok_or_else(|| {
                        format!("\"{template}\" is not a command; check its quotes")
                    })?,
                })
            }
            _ => Err(format!(
                "unknown place \"{kind}\" for agents; expected {forms}"
            )),
        }
    }
}

impl fmt::Display for AgentsPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentsPlace::Local(count) => write!(f, "local:{count}"),
            AgentsPlace::Slurm(count) => write!(f, "slurm:{count}"),
            AgentsPlace::Kubernetes { count, source } => match source {
                JobSource::Image(image) => write!(f, "kubernetes:{count}:{image}"),
                JobSource::File(path) => write!(f, "kubernetes:{count}:{}", path.display()),
            },
            AgentsPlace::Ssh(hosts) => write!(f, "ssh:{}", hosts.join(",")),
            AgentsPlace::Command { count, words } => {
                let command = shlex::try_join(words.iter().map(String::as_str));
                write!(f, "command:{count}:{}", command.unwrap_or_default())
            }
        }
    }
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
            assert_eq!(place.names().len(), place.count() as usize);
        }
    }

    #[test]
    fn kubernetes_has_a_default_image() {
        let place: AgentsPlace = "kubernetes:3".parse().unwrap();
        let source = JobSource::Image(default_image());
        assert_eq!(place, AgentsPlace::Kubernetes { count: 3, source });
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
            ("kubernetes:2:a b", "ends with .yaml or .json"),
        ] {
            let error = text.parse::<AgentsPlace>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
