//! `[place]`: where the client and the server of a trial run.

use floodmark_host::Cpus;

use super::fields::{Field, Kind, field};
use super::section::Section;
use crate::source::FileError;

/// `hosts`.
pub(super) const HOSTS: Field = field(
    "hosts",
    Kind::OneOf(&["shared"]),
    "shared: client and server on this machine, on the same CPUs unless cpus says otherwise. It is what holds without it.",
);

/// `cpus`.
pub(super) const CPUS: Field = field(
    "cpus",
    Kind::Table(SIDES),
    "CPUs that each side is kept to, like { client = \"0\", server = \"1,3-4\" }. Without it all that floodmark may use. A client with CPUs of its own has a thread for each, where threads says nothing else.",
);

const SIDES: &[Field] = &[
    field("client", Kind::Text, "CPUs of the load process."),
    field("server", Kind::Text, "CPUs of the server."),
];

/// Keys of a trial's own `place`.
pub(super) const PLACE: &[Field] = &[HOSTS, CPUS];

/// What is asked of where a trial runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Of the load process.
    pub client: Wish,
    /// Of the server.
    pub server: Wish,
}

/// What is asked of where one side runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// CPUs that it is kept to; none for all that floodmark may use.
    pub cpus: Option<Cpus>,
}

impl Place {
    /// Takes in what a table says; it goes before what was there.
    pub(super) fn take(&mut self, section: &Section<'_>) -> Result<(), FileError> {
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
