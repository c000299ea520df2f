//! `store.toml`: how a database is built and started; and the store that stands behind a trial's server.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::fields::{Field, Kind, field, needed};
use super::program::{BUILT, FILES, KNOBS, NEEDS, Program, READY_WITHIN, STOP_WITHIN};
use super::section::Section;
use crate::source::{FileError, Source, read_text};

/// Name of the file in a store's folder.
pub const FILE: &str = "store.toml";

/// What its command is told.
const PLACEHOLDERS: [&str; 7] = [
    "host",
    "port",
    "other-port",
    "threads",
    "data",
    "run",
    "floodmark",
];

/// Keys of `store.toml`.
pub(super) const MANIFEST: &[Field] = &[
    needed(
        "name",
        Kind::Name,
        "Name of the store, the same as its folder's.",
    ),
    field("about", Kind::Text, "What it is, in one line."),
    field(
        "kind",
        Kind::OneOf(&["cassandra", "postgresql"]),
        "What it speaks, for those that floodmark can ask for their own figures. Without it only its processes are watched.",
    ),
    NEEDS,
    BUILT,
    needed("start", Kind::Table(START), "How it is started."),
    KNOBS,
];

const START: &[Field] = &[
    needed(
        "command",
        Kind::Text,
        "The command, run in its folder, without a shell; it must stay in the foreground. {host} and {port} are the address and the free port to listen on, {other-port} is a second one, {data} an empty folder of its own that is removed after the trial, {run} a folder for this run's files, which stays, {threads} half the CPUs, {floodmark} the floodmark that runs. It is ready when it takes connections.",
    ),
    FILES,
    READY_WITHIN,
    STOP_WITHIN,
];

/// Keys of a trial's `store`.
pub(super) const STORE: &[Field] = &[
    field(
        "name",
        Kind::Name,
        "The store: the folder stores/NAME beside the experiments. It is started afresh, and empty, for each server process.",
    ),
    field(
        "url",
        Kind::Text,
        "In place of name: host and port of one that is there already, like \"10.0.0.7:5432\". What it holds is the server's matter.",
    ),
    field(
        "setting",
        Kind::AnyScalars,
        "Knobs of the store, like { heap = \"512m\" }.",
    ),
    field(
        "delay",
        Kind::Delay,
        "A round trip between server and store takes so much longer, through a proxy of floodmark's. With 0s it goes through the proxy and takes no longer: what the others are held against. Without it there is no proxy.",
    ),
];

/// A database that floodmark can start.
#[derive(Debug, Clone)]
pub struct Store {
    /// How it is built and started.
    pub program: Program,
    /// What it speaks, where its own figures can be asked for.
    pub kind: Option<String>,
}

impl Deref for Store {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl Store {
    /// Reads the `store.toml` of a folder.
    ///
    /// # Errors
    /// A file that cannot be read or says what it may not, with the line and the mend.
    pub fn read(folder: &Path) -> Result<Self, FileError> {
        let path = folder.join(FILE);
        let text = read_text(&path)?;
        let source = Source {
            path: &path,
            text: &text,
        };
        let document = source.document()?;
        let file = Section::file(source, &document, MANIFEST)?;
        Ok(Store {
            program: Program::of(&file, folder, (START, &PLACEHOLDERS))?,
            kind: file.text("kind").map(str::to_owned),
        })
    }
}

/// The store behind a trial's server.
#[derive(Debug, Clone)]
pub struct Behind {
    /// Where it comes from.
    pub from: From,
    /// By how much a round trip to it takes longer; none where there is no proxy.
    pub delay: Option<Duration>,
}

/// Where a store comes from.
#[derive(Debug, Clone)]
pub enum From {
    /// It is started for the trial.
    Started {
        /// The store.
        store: Arc<Store>,
        /// Values of the knobs that the experiment sets.
        setting: BTreeMap<String, String>,
    },
    /// It is there already, at this host and port.
    There(String),
}

impl Behind {
    /// Its name in the record: the store's, else where it is.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.from {
            From::Started { store, .. } => &store.name,
            From::There(url) => url,
        }
    }

    /// The store, where it is started for the trial.
    #[must_use]
    pub fn started(&self) -> Option<&Arc<Store>> {
        match &self.from {
            From::Started { store, .. } => Some(store),
            From::There(_) => None,
        }
    }
}
