//! Flags that divide a load among several agents.

use clap::Args;
use floodmark_host::ProcessPlacement;
use floodmark_plan::values::count_from_one;
use floodmark_workers::{AgentsLauncher, AgentsPlace, AgentsSetting};

/// Flags for agents.
#[derive(Debug, Clone, Args)]
pub struct AgentsArgs {
    /// Divide the load among agents: local:2, ssh:host1,host2, slurm:4, kubernetes:4, or
    /// command:4:TEMPLATE with {index} and {count}. Connections, requests and rates apply to
    /// the whole load; -t applies to each agent [default: one process on this host]
    #[arg(long = "agents", value_name = "WHERE", help_heading = "Agents")]
    pub place: Option<AgentsPlace>,

    /// Continue as long as N agents are left [default: all; the load ends when one fails]
    #[arg(long = "agents-min", value_name = "N", value_parser = count_from_one, requires = "place", help_heading = "Agents")]
    pub min: Option<u64>,

    /// Copy this program to the cache folder of ssh hosts that lack it [default: run the floodmark on
    /// their PATH]
    #[arg(long, requires = "place", help_heading = "Agents")]
    pub copy: bool,

    /// Print the manifest of the agents' Kubernetes Job and exit; --agents kubernetes:4:FILE.yaml uses
    /// an edited one
    #[arg(long, requires = "place", help_heading = "Agents")]
    pub dry_run: bool,
}

impl AgentsArgs {
    /// Checks that the flags fit together.
    ///
    /// # Errors
    /// A flag contradicts another.
    pub fn check(&self) -> Result<(), String> {
        let Some(place) = &self.place else {
            return Ok(());
        };
        match self.min {
            Some(min) if min > place.count.into() => Err(format!(
                "--agents-min {min}: --agents has only {}; use a smaller number",
                place.count
            )),
            _ if self.copy && !matches!(place.launcher, AgentsLauncher::Ssh(_)) => Err(
                "--copy: only hosts that are reached through ssh need a copy; omit --copy"
                    .to_owned(),
            ),
            _ if self.dry_run && place.manifest().is_none() => {
                Err("--dry-run: requires --agents kubernetes:N or kubernetes:N:IMAGE".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the manifest to print instead of sending a load, if requested.
    pub fn printed_manifest(&self) -> Option<String> {
        let place = self.place.as_ref().filter(|_| self.dry_run)?;
        place.manifest()
    }

    /// Returns where and how to start the agents; `None` if one process on this host sends the
    /// load. `side` is the placement of agents on this host, and `anyway` the value of `--anyway`.
    pub fn setting<'a>(
        &self,
        anyway: bool,
        side: &'a ProcessPlacement,
    ) -> Option<AgentsSetting<'a>> {
        let place = self.place.clone()?;
        let min = self.min.and_then(|min| u32::try_from(min).ok());
        Some(AgentsSetting {
            min_agents: min.unwrap_or(place.count),
            place,
            copy: self.copy,
            anyway,
            side,
        })
    }
}
