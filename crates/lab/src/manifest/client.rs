//! Reads `client.toml`, which defines the commands of an external client, the loads that the client
//! supports, and how to read the client's figures.

use std::path::Path;
use std::time::Duration;

use floodmark_plan::spec::Warmup;
use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::values::{Name, PositiveDuration, ScalarText};
use floodmark_plan::{FileError, LoadSpec};
use schemars::JsonSchema;
use serde::Deserialize;

use super::figure::ClientFigures;
use super::fill::CommandWords;
use super::need::Need;
use super::program::{Build, ManifestPackage, check_placeholders, is_path};

/// Placeholders in the commands.
const PLACEHOLDERS: [&str; 9] = [
    "url",
    "host",
    "port",
    "path",
    "connections",
    "threads",
    "seconds",
    "requests",
    "rate-each",
];

/// Default time that the client may run beyond the duration of the load.
const LINGER: Duration = Duration::from_secs(30);

/// Maximum run time of a client that sends a fixed number of requests.
const COUNTED_RUN_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Keys of `[load]` that clients support.
const SUPPORTED: [&str; 7] = [
    "connections",
    "threads",
    "duration",
    "requests",
    "rate",
    "fresh",
    "attempts",
];

/// `client.toml`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientManifest {
    /// Name of the client and its folder.
    name: Located<Name>,
    /// One-line description of the client.
    #[serde(rename = "about")]
    _about: Option<String>,
    /// Programs that must be installed, such as "java >= 17". If one is missing, trials with the
    /// client are skipped.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    needs: Vec<Need>,
    /// How to build the client. Default: nothing to build.
    build: Option<Build>,
    /// Command that prints the client's version. The first output line that contains a digit is
    /// recorded. Default: the version is unknown.
    pub(crate) version: Option<CommandWords>,
    /// Path that the client's script requests. Default: the trial's path.
    pub(crate) path: Option<Located<String>>,
    /// Commands for the closed model on kept connections. Default: not supported.
    #[serde(default)]
    kept: Commands,
    /// Commands for the closed model on fresh connections. Default: not supported.
    #[serde(default)]
    fresh: Commands,
    /// Commands for a fixed rate on kept connections. Default: not supported.
    #[serde(default)]
    rate: Commands,
    /// Exit codes that mean success. Default: [0].
    #[serde(default)]
    #[schemars(with = "Vec<ScalarText>")]
    success: Vec<ExitCode>,
    /// Maximum time that the client may run beyond the duration of the load. Default: 30s. A client
    /// that sends a fixed number of requests may run for at most 15m in total.
    linger: Option<PositiveDuration>,
    /// How to read the client's figures from its output.
    pub(crate) figures: ClientFigures,
}

/// Commands that use connections in the same way.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Commands {
    /// Command that sends load for a duration. It runs in the client's folder without a shell.
    /// {url}, or {host}, {port} and {path}, stand for the target. {connections}, {threads} and
    /// {seconds} stand for the load.
    duration: Option<Located<CommandWords>>,
    /// Command that sends a fixed number of requests. {requests} stands for the number.
    requests: Option<Located<CommandWords>>,
}

/// An exit code that means success.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "ScalarText")]
struct ExitCode(i32);

impl TryFrom<ScalarText> for ExitCode {
    type Error = String;

    fn try_from(code: ScalarText) -> Result<Self, String> {
        code.0.parse().map(ExitCode).map_err(|_| {
            format!(
                "expected exit codes, like success = [0, 1], not \"{}\"",
                code.0
            )
        })
    }
}

/// An external client.
#[derive(Debug, Clone)]
pub struct Client {
    /// Its folder.
    pub package: ManifestPackage,
    /// The other keys of `client.toml`.
    pub(crate) manifest: ClientManifest,
}

impl Client {
    /// Reads the `client.toml` of a folder.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    pub fn read(folder: &Path) -> Result<Self, FileError> {
        let file = TomlFile::read(&folder.join("client.toml"))?;
        let mut manifest: ClientManifest = file.parse()?;
        if let Some(path) = manifest.path.as_ref().filter(|path| !is_path(path)) {
            let what = format!(
                "path: expected a path, like path = \"/scoring\", not \"{}\"",
                path.as_str()
            );
            return Err(file.error(&path.span(), what));
        }
        for commands in [&manifest.kept, &manifest.fresh, &manifest.rate] {
            let both = [
                ("duration", &commands.duration),
                ("requests", &commands.requests),
            ];
            for (key, command) in both {
                if let Some(command) = command {
                    check_placeholders(&file, key, command, &PLACEHOLDERS)?;
                }
            }
        }
        let (needs, build) = (std::mem::take(&mut manifest.needs), manifest.build.take());
        let package = ManifestPackage::new(&file, folder, &manifest.name, needs, build)?;
        let client = Client { package, manifest };
        match client.abilities().is_empty() {
            true => Err(file.error_at_start(
                "the client has no commands; write [kept], [fresh] or [rate] with a command",
            )),
            false => Ok(client),
        }
    }

    /// Returns the command for a load, including its placeholders.
    ///
    /// # Errors
    /// The client does not support the load.
    pub fn command(&self, load: &LoadSpec) -> Result<&[String], String> {
        let name = &self.package.name;
        let has_no_warmup = load.warmup == Some(Warmup::Auto) || load.warmup_length().is_zero();
        let unsupported = load
            .given()
            .find(|key| !(SUPPORTED.contains(key) || *key == "warmup" && has_no_warmup));
        if let Some(key) = unsupported {
            return Err(format!(
                "client {name} does not support `{key}`; move it to load = {{ … }} of each trial without a client"
            ));
        }
        let fresh = load.fresh == Some(true);
        if fresh && load.rate.is_some() {
            return Err(format!(
                "client {name} cannot send at a fixed rate on fresh connections; remove `rate` or `fresh`"
            ));
        }
        if load.rate.is_some() && load.connections.is_none() {
            return Err(format!(
                "client {name} cannot send at a fixed rate without `connections`; add connections = …"
            ));
        }
        let (commands, how) = self.commands(load);
        let (command, length) = match load.requests {
            Some(_) => (&commands.requests, "with a fixed number of requests"),
            None => (&commands.duration, "for a duration"),
        };
        let Some(command) = command else {
            return Err(format!(
                "client {name} cannot send load {how} {length}; supported: {}",
                self.abilities().join(", ")
            ));
        };
        let whole = load
            .length()
            .is_none_or(|length| length.subsec_nanos() == 0);
        if !whole && command.iter().any(|word| word.contains("{seconds}")) {
            return Err(format!(
                "client {name} needs a duration in whole seconds, like \"2s\""
            ));
        }
        Ok(command)
    }

    /// Returns whether `load` has a number of requests and the client cannot run for a duration
    /// instead.
    pub(super) fn only_counts(&self, load: &LoadSpec) -> bool {
        let commands = self.commands(load).0;
        load.requests.is_some() && commands.duration.is_none()
    }

    /// Returns the commands for a load, and a description of how they use connections.
    fn commands(&self, load: &LoadSpec) -> (&Commands, &'static str) {
        match (load.rate, load.fresh) {
            (Some(_), _) => (&self.manifest.rate, "at a fixed rate"),
            (_, Some(true)) => (&self.manifest.fresh, "on fresh connections"),
            _ => (&self.manifest.kept, "on kept connections"),
        }
    }

    /// Describes the loads that the client supports.
    fn abilities(&self) -> Vec<String> {
        let all = [
            ("at a fixed rate", &self.manifest.rate),
            ("on fresh connections", &self.manifest.fresh),
            ("on kept connections", &self.manifest.kept),
        ];
        let abilities = all.map(|(how, commands)| {
            let duration = commands.duration.as_ref();
            let requests = commands.requests.as_ref();
            [
                duration.map(|_| format!("{how} for a duration")),
                requests.map(|_| format!("{how} with a fixed number of requests")),
            ]
        });
        abilities.into_iter().flatten().flatten().collect()
    }

    /// Returns the maximum run time, after which the client is killed.
    #[must_use]
    pub fn within(&self, load: &LoadSpec) -> Duration {
        let linger = self
            .manifest
            .linger
            .as_ref()
            .map_or(LINGER, |limit| limit.0);
        load.length()
            .map_or(COUNTED_RUN_TIMEOUT, |length| length + linger)
    }

    /// Returns whether an exit code means success.
    #[must_use]
    pub fn succeeds(&self, code: Option<i32>) -> bool {
        code.is_some_and(|code| match &self.manifest.success[..] {
            [] => code == 0,
            codes => codes.contains(&ExitCode(code)),
        })
    }
}
