//! `[place]`: where the client and the server of a trial run.

use std::collections::BTreeMap;
use std::time::Duration;

use floodmark_host::Cpus;

use super::fields::{Field, Kind, field};
use super::section::Section;
use super::store::Behind;
use crate::source::FileError;

/// `hosts`.
pub(super) const HOSTS: Field = field(
    "hosts",
    Kind::OneOf(&["shared", "separate"]),
    "shared: client and server on this machine, on the same CPUs unless cpus says otherwise. It is what holds without it. separate: as on two machines, each in a network namespace of its own, joined by a pair of virtual interfaces, each on half of the CPUs unless cpus says otherwise.",
);

/// `cpus`.
pub(super) const CPUS: Field = field(
    "cpus",
    Kind::Table(SIDES),
    "CPUs that each side is kept to, like { client = \"0\", server = \"1,3-4\" }. Without it all that floodmark may use. A client with CPUs of its own has a thread for each, where threads says nothing else.",
);

/// `sysctls`.
pub(super) const SYSCTLS: Field = field(
    "sysctls",
    Kind::Table(SETTINGS),
    "With hosts = \"separate\": kernel settings of each side's network, like { client = { \"net.ipv4.tcp_tw_reuse\" = 0 } }. The machine's own stay as they are, and the others of each side are the kernel's defaults.",
);

const SETTINGS: &[Field] = &[
    field(
        "client",
        Kind::AnyScalars,
        "Settings of the load process's side.",
    ),
    field("server", Kind::AnyScalars, "Settings of the server's side."),
];

const SIDES: &[Field] = &[
    field("client", Kind::Text, "CPUs of the load process."),
    field("server", Kind::Text, "CPUs of the server."),
];

/// Keys of a trial's own `place`.
pub(super) const PLACE: &[Field] = &[HOSTS, CPUS, SYSCTLS];

/// What is asked of where a trial runs.
#[derive(Debug, Clone, Default)]
pub struct Place {
    /// Whether each side has a network of its own.
    pub separate: bool,
    /// Of the load process.
    pub client: Wish,
    /// Of the server.
    pub server: Wish,
    /// By how much each byte between them comes later, either way.
    pub delay: Option<Duration>,
    /// The database behind the server.
    pub store: Option<Behind>,
}

/// What is asked of where one side runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// CPUs that it is kept to; none for all that floodmark may use.
    pub cpus: Option<Cpus>,
    /// Kernel settings of its network, by their names.
    pub sysctls: BTreeMap<String, String>,
}

impl Place {
    /// Takes in what a table says; it goes before what was there.
    pub(super) fn take(&mut self, section: &Section<'_>) -> Result<(), FileError> {
        if let Some(hosts) = section.text("hosts") {
            self.separate = hosts == "separate";
            if !self.separate {
                self.client.sysctls.clear();
                self.server.sysctls.clear();
            }
        }
        if let Some(settings) = section.table("sysctls", SETTINGS)? {
            if !self.separate {
                return Err(section.error(
                    "sysctls",
                    "sysctls: both sides share the machine's kernel settings, which floodmark leaves alone; add hosts = \"separate\"",
                ));
            }
            for (key, side) in [("client", &mut self.client), ("server", &mut self.server)] {
                side.sysctls.clear();
                for (name, (place, value)) in settings.scalars(key) {
                    let what = setting_fault(&name).map(|what| format!("sysctls: {what}"));
                    what.map_or(Ok(()), |what| Err(FileError { place, what }))?;
                    side.sysctls.insert(name, value);
                }
            }
        }
        if let Some(cpus) = section.table("cpus", SIDES)? {
            for (key, side) in [("client", &mut self.client), ("server", &mut self.server)] {
                side.cpus = match cpus.text(key) {
                    None => None,
                    Some(text) => Some(
                        Cpus::parse(text)
                            .map_err(|what| cpus.error(key, format!("{key}: {what}")))?,
                    ),
                };
            }
        }
        Ok(())
    }
}

/// Why a name is none of a setting of a network, which leads to a file below `/proc/sys/net`.
fn setting_fault(name: &str) -> Option<String> {
    let plain = |part: &str| {
        let of = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        !part.is_empty() && part.chars().all(of)
    };
    let is = name.starts_with("net.") && name.split('.').all(plain);
    (!is).then(|| {
        format!(
            "expected a setting of the network, like \"net.ipv4.tcp_tw_reuse\", not \"{name}\"; the others are the whole machine's"
        )
    })
}
