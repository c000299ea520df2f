//! Reads `system.toml` and `store.toml`. They define how to build and start a server or a database,
//! and which settings it has. Also reads the key `store` of a trial.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use floodmark_observe::StoreKind;
use floodmark_plan::toml_file::{Located, LocatedMap, TomlFile};
use floodmark_plan::values::{Delay, Name, PositiveDuration, ScalarText};
use floodmark_plan::{FileError, did_you_mean};
use schemars::JsonSchema;
use serde::Deserialize;
use strum::VariantNames;

use super::program::{Build, CommandWords, Knob, ManifestPackage, Need, Program, Start, UrlScheme};
use super::workload::Workload;

/// Placeholders in a server's command.
pub(super) const SERVER_PLACEHOLDERS: [&str; 7] = [
    "host",
    "port",
    "threads",
    "run",
    "floodmark",
    "workload",
    "store",
];

/// `system.toml`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SystemManifest {
    /// Name of the system, which is also the name of its directory.
    name: Located<Name>,
    /// One-line description of the system.
    #[serde(rename = "about")]
    _about: Option<String>,
    /// Workloads that the system serves; [] for a server with an API of its own.
    workloads: Located<Vec<String>>,
    /// Programs that must be installed, such as "java >= 17". If one is missing, the system is
    /// skipped.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    needs: Vec<Need>,
    /// Runtime of the server, for the record. Default: not stated.
    runtime: Option<Runtime>,
    /// Strings that mark errors in the server's log, such as "AskTimeoutException". For each
    /// attempt, floodmark counts the log lines that contain any of these strings.
    errors: Option<Located<Vec<String>>>,
    /// How to build the system. Default: nothing to build.
    build: Option<Build>,
    /// How to start the system.
    start: Start,
    /// Settings that experiments can change. {name} in a command stands for the value of the
    /// setting with this name.
    #[serde(default)]
    knobs: LocatedMap<Knob>,
}

/// Runtime of a server.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Runtime {
    Jvm,
    Native,
    Node,
    Python,
}

/// A server under test.
#[derive(Debug, Clone)]
pub struct System {
    /// How to build and start the system.
    pub program: Program,
    /// Workloads that the system serves.
    pub workloads: Vec<Workload>,
    /// Runtime of the server, if given.
    pub runtime: Option<String>,
    /// Strings that mark errors in the server's log.
    pub errors: Vec<String>,
}

impl Deref for System {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl System {
    /// Reads the `system.toml` in a directory.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    pub fn read(directory: &Path) -> Result<Self, FileError> {
        let file = TomlFile::read(&directory.join("system.toml"))?;
        let manifest: SystemManifest = file.parse()?;
        let (name, needs, build) = (&manifest.name, manifest.needs, manifest.build);
        let package = ManifestPackage::new(&file, directory, name, needs, build)?;
        let program = Program::new(
            &file,
            package,
            manifest.start,
            manifest.knobs,
            &SERVER_PLACEHOLDERS,
        )?;
        let mut workloads = Vec::new();
        for word in manifest.workloads.iter() {
            workloads.push(word.parse().map_err(|_| {
                let fix = did_you_mean(word, Workload::VARIANTS.iter().copied());
                let what = format!("workloads: unknown workload \"{word}\"; {fix}");
                file.error(&manifest.workloads.span(), what)
            })?);
        }
        if let Some(errors) = &manifest.errors
            && errors
                .iter()
                .any(|text| text.trim().is_empty() || text.contains('\n'))
        {
            let what = "errors: expected single-line strings, like \"AskTimeoutException\"";
            return Err(file.error(&errors.span(), what));
        }
        Ok(System {
            program,
            workloads,
            runtime: manifest
                .runtime
                .map(|runtime| format!("{runtime:?}").to_lowercase()),
            errors: manifest.errors.map(Located::into_inner).unwrap_or_default(),
        })
    }
}

/// Placeholders in a store's command.
const STORE_PLACEHOLDERS: [&str; 7] = [
    "host",
    "port",
    "other-port",
    "threads",
    "data",
    "run",
    "floodmark",
];

/// `store.toml`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreManifest {
    /// Name of the store, which is also the name of its directory.
    name: Located<Name>,
    /// One-line description of the store.
    #[serde(rename = "about")]
    _about: Option<String>,
    /// Protocol that floodmark uses to read the store's own metrics. Default: none; floodmark
    /// monitors only the store's processes.
    kind: Option<StoreProduct>,
    /// Programs that must be installed, such as "java >= 17". If one is missing, trials with the
    /// store are skipped.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    needs: Vec<Need>,
    /// How to build the store. Default: nothing to build.
    build: Option<Build>,
    /// How to start the store.
    start: StoreStart,
    /// Settings that experiments can change. {name} in a command stands for the value of the
    /// setting with this name.
    #[serde(default)]
    knobs: LocatedMap<Knob>,
}

/// `[start]` of a store.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct StoreStart {
    /// Command that starts the store in its directory, without a shell. The store must stay in the
    /// foreground. It is ready when it accepts connections. The command can contain placeholders.
    /// {host} and {port} are the address and a free port to listen on. {other-port} is a second
    /// free port. {data} is an empty directory that is removed after the trial. {run} is a
    /// directory for the files of this run, and is kept after the trial. {threads} is half the
    /// number of CPUs. {floodmark} is the path of floodmark.
    command: Located<CommandWords>,
    /// Files in the store's directory to copy to {run}. Placeholders in these files are replaced.
    #[serde(default)]
    files: Vec<Located<String>>,
    /// Maximum time until the store is ready. Default: 30s.
    ready_within: Option<PositiveDuration>,
    /// Maximum time until the store exits after SIGTERM. After this time, the store is killed with
    /// SIGKILL. Default: 10s.
    stop_within: Option<PositiveDuration>,
}

/// Protocol of a store.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum StoreProduct {
    Cassandra,
    Postgresql,
}

/// `store` of a trial.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StoreSection {
    /// Name of the store. Its directory is stores/NAME, next to the experiments directory. Each
    /// server process gets a fresh, empty store.
    pub name: Option<Located<Name>>,
    /// Host and port of a running store, such as "10.0.0.7:5432". Use either `url` or `name`. The
    /// server under test must create the content of this store.
    pub url: Option<Located<String>>,
    /// Knobs of the store, such as { heap = "512m" }.
    pub setting: Option<Located<LocatedMap<ScalarText>>>,
    /// Round-trip time that floodmark's proxy adds between the server and the store. With 0s, the
    /// proxy adds no delay and serves as a baseline. Default: no proxy.
    pub delay: Option<Delay>,
}

/// A database that floodmark can start.
#[derive(Debug, Clone)]
pub struct Store {
    /// How to build and start the store.
    pub program: Program,
    /// Protocol of the store; `None` if floodmark cannot read the store's metrics.
    pub kind: Option<StoreKind>,
}

impl Deref for Store {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl Store {
    /// Reads the `store.toml` in a directory.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    pub fn read(directory: &Path) -> Result<Self, FileError> {
        let file = TomlFile::read(&directory.join("store.toml"))?;
        let manifest: StoreManifest = file.parse()?;
        let (name, needs, build) = (&manifest.name, manifest.needs, manifest.build);
        let package = ManifestPackage::new(&file, directory, name, needs, build)?;
        let start = Start {
            command: manifest.start.command,
            files: manifest.start.files,
            ready: None,
            scheme: UrlScheme::Http,
            ready_within: manifest.start.ready_within,
            stop_within: manifest.start.stop_within,
        };
        Ok(Store {
            program: Program::new(&file, package, start, manifest.knobs, &STORE_PLACEHOLDERS)?,
            kind: manifest.kind.map(|kind| match kind {
                StoreProduct::Cassandra => StoreKind::Cassandra,
                StoreProduct::Postgresql => StoreKind::Postgresql,
            }),
        })
    }
}

/// The store of a trial.
#[derive(Debug, Clone)]
pub struct TrialStore {
    /// Origin of the store.
    pub from: StoreSource,
    /// Added round-trip time; `None` without a proxy.
    pub delay: Option<Duration>,
}

/// Origin of a store.
#[derive(Debug, Clone)]
pub enum StoreSource {
    /// A store that floodmark starts for the trial.
    Started {
        /// The store.
        store: Arc<Store>,
        /// Values of the store's knobs.
        setting: BTreeMap<String, String>,
    },
    /// A store that is already running at this host and port.
    Running(String),
}

impl TrialStore {
    /// Returns the store's name for the record: the name of a started store, or the address
    /// of a running store.
    #[must_use]
    pub fn name(&self) -> &str {
        match &self.from {
            StoreSource::Started { store, .. } => &store.name,
            StoreSource::Running(url) => url,
        }
    }

    /// Returns the store to start, or `None` if the store is already running.
    #[must_use]
    pub fn started(&self) -> Option<&Arc<Store>> {
        match &self.from {
            StoreSource::Started { store, .. } => Some(store),
            StoreSource::Running(_) => None,
        }
    }
}
