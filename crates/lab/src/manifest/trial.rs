//! A trial: which server an experiment loads, and with what.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::client::Client;
use super::fields::{Field, Kind, LONGEST_NAME, field};
use super::found::folder_of;
use super::load::{LOAD, Load};
use super::place::{PLACE, Place};
use super::program::{Program, Start};
use super::section::Section;
use super::store::{Behind, From, STORE, Store};
use super::system::{self, System};
use super::workload::{Asked, WORKLOADS, Workload};
use crate::source::{FileError, did_you_mean};

/// Path that is asked for where neither a workload nor `ready` says.
const ROOT: &str = "/";

/// Keys of a trial.
pub(super) const TRIAL: &[Field] = &[
    field(
        "name",
        Kind::Name,
        "Its name in tables. Without it the system's.",
    ),
    field(
        "system",
        Kind::Name,
        "The system: the folder systems/NAME beside the experiments.",
    ),
    field(
        "workload",
        Kind::OneOf(&WORKLOADS),
        "What it is asked for. A server of your own may do without one: it is then asked for the path of ready.",
    ),
    field(
        "setting",
        Kind::AnyScalars,
        "Knobs of the system, like { threads = 2 }.",
    ),
    field(
        "sweep",
        Kind::AnyLists,
        "Knobs of the system that are varied, like { threads = [8, 32, 100] }: a trial for each value, or for each combination of several knobs' values. The first knob is the axis of its curve.",
    ),
    field(
        "store",
        Kind::Table(STORE),
        "The database behind the system: { name = \"postgresql\" } is started for the trial, { url = \"127.0.0.1:5432\" } is there already. {store} in the system's command is where it listens.",
    ),
    field(
        "client",
        Kind::Name,
        "Another load generator in place of floodmark: the folder clients/NAME beside the experiments.",
    ),
    field(
        "load",
        Kind::Table(LOAD),
        "What is sent otherwise than in the other trials.",
    ),
    field(
        "place",
        Kind::Table(PLACE),
        "Where it runs otherwise than the other trials.",
    ),
    field(
        "delay",
        Kind::Delay,
        "Each byte between client and server comes so much later, either way, through a proxy of floodmark's. With 0s it goes through the proxy and no later: what the others are held against. Without it there is no proxy.",
    ),
    field(
        "command",
        Kind::Text,
        "In place of system: a server of your own, run in the experiment's folder, without a shell. {host} and {port} are the address and the port to listen on, {store} those of the trial's store.",
    ),
    field(
        "ready",
        Kind::Text,
        "With command: what is asked until it answers with a status from 200 to 399. Without it the path of the workload, else GET /.",
    ),
    field(
        "ready-within",
        Kind::Duration,
        "With command: longest wait for that. Without it 30s.",
    ),
    field(
        "port",
        Kind::Count(1, 65535),
        "With command: the port that it listens on. Without it a free one, for {port}.",
    ),
];

/// What is loaded.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Its name.
    pub name: String,
    /// Where it stands, as `file:line`.
    pub place: String,
    /// The server.
    pub server: Server,
    /// What it is asked for; none where only [`Trial::path`] says.
    pub workload: Option<Workload>,
    /// Path of the requests.
    pub path: String,
    /// Path that is asked for until the server answers.
    pub ready: String,
    /// Values of the knobs that the experiment sets.
    pub setting: BTreeMap<String, String>,
    /// What is sent.
    pub load: Load,
    /// Where it runs.
    pub at: Place,
    /// Who sends it, where that is another load generator.
    pub client: Option<Arc<Client>>,
}

impl Trial {
    /// What the server is asked to find out whether it answers as it should.
    #[must_use]
    pub fn asked(&self) -> Asked<'_> {
        match self.workload {
            Some(workload) => workload.asked(),
            None => Asked::get(&self.path),
        }
    }

    /// What a load of floodmark's own asks for beside the path, as flags of `floodmark load`.
    #[must_use]
    pub fn request_flags(&self) -> Vec<String> {
        let asked = self.asked();
        let mut flags = Vec::new();
        if asked.method != "GET" {
            flags.push(format!("--method={}", asked.method));
        }
        if !asked.body.is_empty() {
            flags.push(format!("--body={}", asked.body));
            flags.push("--header=Content-Type: application/json".to_owned());
        }
        if self.workload.is_some() {
            flags.push("--expect=status=200".to_owned());
        }
        flags
    }

    /// Path that the load goes to: the client's own where it has one, else [`Trial::path`].
    #[must_use]
    pub fn sent_to(&self) -> &str {
        let own = self
            .client
            .as_ref()
            .and_then(|client| client.path.as_deref());
        own.unwrap_or(&self.path)
    }
}

/// The server of a trial.
#[derive(Debug, Clone)]
pub enum Server {
    /// One with a folder of its own.
    System(Arc<System>),
    /// The user's own, by its command.
    Own {
        /// How it is started.
        start: Start,
        /// Where.
        folder: PathBuf,
        /// Its port, where it has one of its own.
        port: Option<u16>,
    },
}

impl Server {
    /// Its name in the record: the system's, else that of the trial.
    #[must_use]
    pub fn name<'a>(&'a self, trial: &'a str) -> &'a str {
        match self {
            Server::System(system) => &system.name,
            Server::Own { .. } => trial,
        }
    }

    /// How it is started.
    #[must_use]
    pub fn start(&self) -> &Start {
        match self {
            Server::System(system) => &system.start,
            Server::Own { start, .. } => start,
        }
    }

    /// Where its commands run.
    #[must_use]
    pub fn folder(&self) -> &Path {
        match self {
            Server::System(system) => &system.folder,
            Server::Own { folder, .. } => folder,
        }
    }

    /// The port that it insists on.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match self {
            Server::System(_) => None,
            Server::Own { port, .. } => *port,
        }
    }
}

/// What is known while an experiment is read.
pub(super) struct Reader<'a> {
    pub path: &'a Path,
    pub load: Load,
    pub place: Place,
    pub systems: BTreeMap<String, Arc<System>>,
    pub stores: BTreeMap<String, Arc<Store>>,
    pub clients: BTreeMap<String, Arc<Client>>,
}

impl Reader<'_> {
    /// Reads a `[[trial]]`.
    pub fn trial(&mut self, section: &Section<'_>) -> Result<Trial, FileError> {
        let own = section.has("command");
        if own && section.has("system") {
            return Err(section.error("command", "a trial has a system or a command, not both; for the name of your own server write name = \"…\""));
        }
        for key in ["ready", "ready-within", "port"] {
            if section.has(key) && !own {
                return Err(section.error(
                    key,
                    format!("{key} belongs to a server of your own; add its command = \"…\""),
                ));
            }
        }
        let workload = section.text("workload").and_then(Workload::of);
        let server = match section.text("system") {
            Some(name) => {
                let system = self.system(name, section)?;
                serves(&system, workload, section)?;
                Server::System(system)
            }
            None if own => self.own(section)?,
            None => return Err(section.error("", "the trial has no server; write system = \"native\", or command = \"…\" for one of your own")),
        };
        let mut load = self.load.clone();
        if let Some(own) = section.table("load", LOAD)? {
            load.take(&own);
        }
        let mut at = self.place.clone();
        if let Some(own) = section.table("place", PLACE)? {
            at.take(&own)?;
        }
        at.delay = section.duration("delay");
        let start = server.start();
        let path = match workload {
            Some(workload) => workload.path(),
            None => start.ready.as_deref().unwrap_or(ROOT),
        };
        let store = section.table("store", STORE)?;
        at.store = store.map(|own| self.behind(&own)).transpose()?;
        let client = match section.text("client") {
            Some(name) => Some(self.client(name, section)?),
            None => None,
        };
        if let Some(client) = &client {
            let fits = client
                .command(&load)
                .and_then(|_| asks_for(client, workload));
            fits.map_err(|what| section.error("client", what))?;
        }
        Ok(Trial {
            name: trial_name(section, &server, client.as_deref())?,
            place: section.place(""),
            setting: match &server {
                Server::System(system) => setting(section, system)?,
                Server::Own { .. } if section.has("setting") => {
                    return Err(section.error(
                        "setting",
                        "setting: only a system has knobs; write the value into the command",
                    ));
                }
                Server::Own { .. } => BTreeMap::new(),
            },
            workload,
            ready: start.ready.as_deref().unwrap_or(path).to_owned(),
            path: path.to_owned(),
            load,
            at,
            server,
            client,
        })
    }

    /// The store of a trial.
    fn behind(&mut self, section: &Section<'_>) -> Result<Behind, FileError> {
        let from = match (section.text("name"), section.text("url")) {
            (Some(_), Some(_)) => {
                return Err(section.error("url", "a store has a name or a url, not both"));
            }
            (None, None) => {
                return Err(section.error(
                    "",
                    "store: which one? Write name = \"postgresql\", or url = \"127.0.0.1:5432\" for one that is there",
                ));
            }
            (Some(name), None) => {
                let store = self.store(name, section)?;
                let setting = setting(section, &store)?;
                From::Started { store, setting }
            }
            (None, Some(_)) if section.has("setting") => {
                return Err(section.error(
                    "setting",
                    "setting: a store that is there already has its own; write name in place of url",
                ));
            }
            (None, Some(url)) => {
                let port = url.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
                if port.is_none_or(|port: u16| port == 0) {
                    return Err(section.error(
                        "url",
                        format!("url: expected host and port, like url = \"127.0.0.1:5432\", not \"{url}\""),
                    ));
                }
                From::There(url.to_owned())
            }
        };
        Ok(Behind {
            from,
            delay: section.duration("delay"),
        })
    }

    fn own(&self, section: &Section<'_>) -> Result<Server, FileError> {
        let folder = folder_of(self.path);
        let folder = folder.canonicalize().unwrap_or(folder);
        let start = Start::of(section, &folder, &system::PLACEHOLDERS, &BTreeMap::new())?;
        let port = section.count("port").map(|port| port as u16);
        let told = start.command.iter().any(|word| word.contains("{port}"));
        if port.is_none() && !told {
            return Err(section.error(
                "command",
                "command: which port does it listen on? Pass it one with {port}, or say which it is with port = …",
            ));
        }
        Ok(Server::Own {
            start,
            folder,
            port,
        })
    }
}

fn serves(
    system: &System,
    workload: Option<Workload>,
    section: &Section<'_>,
) -> Result<(), FileError> {
    let offered = || system.workloads.iter().map(|workload| workload.name());
    match workload {
        None => Err(section.error(
            "workload",
            format!(
                "workload is missing; {} serves {}",
                system.name,
                offered().collect::<Vec<_>>().join(", ")
            ),
        )),
        Some(workload) if !system.workloads.contains(&workload) => Err(section.error(
            "workload",
            format!(
                "workload: {} does not serve {workload}; {}",
                system.name,
                did_you_mean(workload.name(), offered())
            ),
        )),
        Some(_) => Ok(()),
    }
}

/// Sees that a client whose requests are its own makes those of the workload.
fn asks_for(client: &Client, workload: Option<Workload>) -> Result<(), String> {
    match (&client.path, workload) {
        (None, Some(workload)) if workload.asked().method != "GET" => Err(format!(
            "client {} sends GET alone, and {workload} is {}; take one with a script, like wrk-scoring, or floodmark itself",
            client.name,
            workload.asked()
        )),
        (Some(path), Some(workload)) if path != workload.path() => Err(format!(
            "client {} asks for {path}, and {workload} is {}; leave the workload out",
            client.name,
            workload.path()
        )),
        _ => Ok(()),
    }
}

fn trial_name(
    section: &Section<'_>,
    server: &Server,
    client: Option<&Client>,
) -> Result<String, FileError> {
    if let Some(name) = section.text("name") {
        return Ok(name.to_owned());
    }
    if let Some(client) = client {
        return Ok(client.name.clone());
    }
    match server {
        Server::System(system) => Ok(system.name.clone()),
        Server::Own { start, .. } => {
            let program = Path::new(&start.command[0]).file_name().unwrap_or_default();
            let name = program.to_string_lossy();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let usable = (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(plain);
            match usable {
                true => Ok(name.into_owned()),
                false => Err(section.error("command", "the trial has no name; write name = \"…\"")),
            }
        }
    }
}

/// The knobs of a program that `setting` sets, held against those that it has.
fn setting(
    section: &Section<'_>,
    program: &Program,
) -> Result<BTreeMap<String, String>, FileError> {
    let mut setting = BTreeMap::new();
    for (name, (place, value)) in section.scalars("setting") {
        program.check(&name, &value).map_err(|what| FileError {
            place,
            what: format!("setting: {what}"),
        })?;
        setting.insert(name, value);
    }
    Ok(setting)
}
