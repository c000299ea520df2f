//! `[place]`: placement of a trial's client and server.

use std::collections::BTreeMap;
use std::time::Duration;

use floodmark_host::Cpus;
use floodmark_plan::FileError;
use floodmark_plan::toml_file::{Located, LocatedMap, TomlFile};
use floodmark_plan::values::{Count, ScalarText};
use floodmark_record::run::HostLayout;
use floodmark_workers::AgentsPlace;
use schemars::JsonSchema;
use serde::Deserialize;

use super::system::TrialStore;

/// `[place]` of an experiment.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExperimentPlace {
    /// `shared`: the client and the server run on this host and share all CPUs, unless `cpus` is
    /// set. `separate`: the client and the server each have a network namespace and half of the
    /// CPUs, unless `cpus` is set. A pair of virtual interfaces joins the namespaces. Default:
    /// shared.
    pub hosts: Option<HostLayout>,
    /// CPUs for the client and the server, such as { client = "0", server = "1,3-4" }. Default: all
    /// CPUs that floodmark may use. A client with its own CPUs has one thread per CPU, unless
    /// `threads` is set.
    pub cpus: Option<CpusSection>,
    /// Kernel settings for each network namespace, such as { client = { "net.ipv4.tcp_tw_reuse" = 0
    /// } }. Requires hosts = "separate". Default: the kernel's defaults. The host's own settings do
    /// not change.
    pub sysctls: Option<Located<SysctlsSection>>,
    /// Agents that divide the load, such as "local:2". Default: one process on this host. Servers
    /// listen on 127.0.0.1, so the agents must run on this host.
    pub agents: Option<Located<String>>,
    /// Number of processes per server. They start one after another, and each round starts one
    /// process of every trial (A B A B). Default: 1.
    pub processes: Option<Count<1, 1000>>,
}

/// `place` of a trial.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TrialPlace {
    /// `shared`: the client and the server run on this host and share all CPUs, unless `cpus` is
    /// set. `separate`: the client and the server each have a network namespace and half of the
    /// CPUs, unless `cpus` is set. A pair of virtual interfaces joins the namespaces. Default:
    /// shared.
    pub hosts: Option<HostLayout>,
    /// CPUs for the client and the server, such as { client = "0", server = "1,3-4" }. Default: all
    /// CPUs that floodmark may use. A client with its own CPUs has one thread per CPU, unless
    /// `threads` is set.
    pub cpus: Option<CpusSection>,
    /// Kernel settings for each network namespace, such as { client = { "net.ipv4.tcp_tw_reuse" = 0
    /// } }. Requires hosts = "separate". Default: the kernel's defaults. The host's own settings do
    /// not change.
    pub sysctls: Option<Located<SysctlsSection>>,
    /// Agents that divide the load, such as "local:2". Default: one process on this host. Servers
    /// listen on 127.0.0.1, so the agents must run on this host.
    pub agents: Option<Located<String>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SysctlsSection {
    /// Settings for the client's network namespace.
    #[serde(default)]
    client: LocatedMap<ScalarText>,
    /// Settings for the server's network namespace.
    #[serde(default)]
    server: LocatedMap<ScalarText>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CpusSection {
    /// CPUs of the client, such as "0".
    client: Option<Located<String>>,
    /// CPUs of the server, such as "1,3-4".
    server: Option<Located<String>>,
}

/// Placement of a trial.
#[derive(Debug, Clone, Default)]
pub struct TrialPlacement {
    /// Whether the client and the server have separate network namespaces.
    pub separate: bool,
    /// Placement of the client.
    pub client: PlacementSpec,
    /// Placement of the server.
    pub server: PlacementSpec,
    /// Agents that divide the load; `None` if one process on this host sends it.
    pub agents: Option<AgentsPlace>,
    /// Added one-way latency between the client and the server; `None` without a proxy.
    pub delay: Option<Duration>,
    /// The store behind the server.
    pub store: Option<TrialStore>,
}

/// Placement of a client or server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementSpec {
    /// CPUs that the role may use; `None` for all CPUs that floodmark may use.
    pub cpus: Option<Cpus>,
    /// Kernel settings for the role's network namespace, by name.
    pub sysctls: BTreeMap<String, String>,
}

impl TrialPlacement {
    /// Overrides the placement with the keys in a section.
    pub(super) fn override_with(
        &mut self,
        file: &TomlFile,
        hosts: Option<HostLayout>,
        cpus: Option<&CpusSection>,
        sysctls: Option<&Located<SysctlsSection>>,
        agents: Option<&Located<String>>,
    ) -> Result<(), FileError> {
        if let Some(agents) = agents {
            let place = agents.parse::<AgentsPlace>();
            let place = place.map_err(|what| file.error(&agents.span(), what))?;
            self.agents = Some(place);
        }
        if let Some(hosts) = hosts {
            self.separate = hosts == HostLayout::Separate;
            if !self.separate {
                self.client.sysctls.clear();
                self.server.sysctls.clear();
            }
        }
        if let Some(sysctls) = sysctls {
            if !self.separate {
                return Err(file.error(
                    &sysctls.span(),
                    "`sysctls` requires separate network namespaces; add hosts = \"separate\"",
                ));
            }
            self.client.sysctls = settings(file, &sysctls.client)?;
            self.server.sysctls = settings(file, &sysctls.server)?;
        }
        if let Some(cpus) = cpus {
            self.client.cpus = parse_cpus(file, "client", &cpus.client)?;
            self.server.cpus = parse_cpus(file, "server", &cpus.server)?;
        }
        Ok(())
    }
}

fn parse_cpus(
    file: &TomlFile,
    key: &str,
    text: &Option<Located<String>>,
) -> Result<Option<Cpus>, FileError> {
    let parse = |text: &Located<String>| {
        Cpus::parse(text).map_err(|what| file.error(&text.span(), format!("{key}: {what}")))
    };
    text.as_ref().map(parse).transpose()
}

/// Checks and returns the kernel settings for one network namespace. The names of the settings are
/// paths under `/proc/sys/net`.
fn settings(
    file: &TomlFile,
    section: &LocatedMap<ScalarText>,
) -> Result<BTreeMap<String, String>, FileError> {
    let plain = |part: &str| {
        let valid = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        !part.is_empty() && part.chars().all(valid)
    };
    let mut settings = BTreeMap::new();
    for (name, value) in section {
        if !(name.starts_with("net.") && name.split('.').all(plain)) {
            let what = format!(
                "sysctls: expected a network setting, like \"net.ipv4.tcp_tw_reuse\", not \"{name}\""
            );
            return Err(file.error(&value.span(), what));
        }
        settings.insert(name.clone(), value.0.clone());
    }
    Ok(settings)
}
