//! Keys that systems, stores and clients share: a program's folder, build, start and settings.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark_plan::toml_file::{Located, LocatedMap, TomlFile};
use floodmark_plan::values::{Count, MAX_COUNT, Name, PositiveDuration, ScalarText};
use floodmark_plan::{FileError, did_you_mean};
use floodmark_record::tuning::KnobKind;
use schemars::JsonSchema;
use serde::Deserialize;

use super::fill::{CommandWords, Filler};
use super::need::Need;

/// Default timeout of a build.
const BUILD_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Default maximum time until a program is ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Default maximum time until a program exits after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// `[build]`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// Build command. It runs in the manifest's folder without a shell.
    pub(crate) command: Located<CommandWords>,
    /// Files and folders that the build reads. The build is skipped if none of the files has
    /// changed. Default: build every time.
    inputs: Option<Located<Vec<String>>>,
    /// Files that the build writes. If one is missing, the build runs again.
    #[serde(default)]
    outputs: Vec<String>,
    /// Maximum build time. Default: 15m.
    within: Option<PositiveDuration>,
}

impl Build {
    /// Returns the paths of the files and folders that the build reads.
    pub(crate) fn inputs(&self, folder: &Path) -> Vec<PathBuf> {
        let names = self.inputs.iter().flat_map(|names| names.iter());
        names.map(|name| folder.join(name)).collect()
    }

    /// Returns the path of the first missing output.
    pub(crate) fn missing_output(&self, folder: &Path) -> Option<PathBuf> {
        let mut paths = self.outputs.iter().map(|name| folder.join(name));
        paths.find(|path| !path.exists())
    }

    /// Returns the timeout of the build.
    pub(crate) fn within(&self) -> Duration {
        self.within.as_ref().map_or(BUILD_TIMEOUT, |limit| limit.0)
    }

    fn check(&self, file: &TomlFile, folder: &Path) -> Result<(), FileError> {
        check_placeholders(file, "command", &self.command, &["floodmark"])?;
        let inputs = self.inputs(folder);
        match (inputs.iter().find(|path| !path.exists()), &self.inputs) {
            (Some(missing), Some(names)) => {
                let what = format!("inputs: {} does not exist", missing.display());
                Err(file.error(&names.span(), what))
            }
            _ => Ok(()),
        }
    }
}

/// A setting (knob) that experiments can change.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Knob {
    /// Value of the knob if the experiment does not set it. Required for every knob except
    /// `threads`. The default for `threads` is the number of the server's own CPUs, or half the
    /// CPUs if the server has no dedicated CPUs.
    pub default: Option<ScalarText>,
    /// Allowed values.
    #[serde(default)]
    pub values: Vec<ScalarText>,
    /// Lowest allowed number.
    low: Option<Count<0, MAX_COUNT>>,
    /// Highest allowed number.
    high: Option<Count<0, MAX_COUNT>>,
    /// What the knob sizes: "threads", "connections" or "other". floodmark tune changes the knob
    /// whose pool is full. Default: inferred from the knob's name.
    sizes: Option<KnobKind>,
}

impl Knob {
    /// Returns the lowest and the highest allowed number, as far as they are given.
    pub(super) fn limits(&self) -> (Option<u64>, Option<u64>) {
        let of = |count: &Option<Count<0, MAX_COUNT>>| count.as_ref().map(|n| n.0);
        (of(&self.low), of(&self.high))
    }

    /// Returns what the knob sizes, if that is given.
    pub(super) fn sizes(&self) -> Option<KnobKind> {
        self.sizes
    }

    /// Checks a value.
    fn check(&self, name: &str, value: &str) -> Result<(), String> {
        let values = self.values.iter().map(|one| one.0.as_str());
        if !self.values.is_empty() && !values.clone().any(|one| one == value) {
            let fix = did_you_mean(value, values);
            return Err(format!("{name}: unknown value \"{value}\"; {fix}"));
        }
        let low = self.low.as_ref().map_or(0, |n| n.0);
        let high = self.high.as_ref().map(|n| n.0);
        let is_bounded = self.low.is_some() || high.is_some();
        let range = low..=high.unwrap_or(u64::MAX);
        if is_bounded && !value.parse().is_ok_and(|n: u64| range.contains(&n)) {
            let upper = high.map_or(String::new(), |high| format!(" to {high}"));
            return Err(format!(
                "{name}: expected an integer from {low}{upper}, not \"{value}\""
            ));
        }
        Ok(())
    }
}

/// How to start a program. The values come from a system's `[start]`, from a store, or from a trial
/// that has a command.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Start {
    /// Command that starts the server in the system's folder, without a shell. The server must stay
    /// in the foreground. The command can contain placeholders. {host} and {port} are the address
    /// and a free port to listen on. {run} is a folder for the files of this run. {threads} is the
    /// value of the knob `threads`. Without this knob, it is the number of the server's own CPUs,
    /// or half the CPUs if the server has no dedicated CPUs. {floodmark} is the path of floodmark.
    /// {workload} is the name of the workload. {store} is the address and port of the trial's
    /// store, or the word `none`.
    pub command: Located<CommandWords>,
    /// Files in the system's folder to copy to {run}. Placeholders in these files are replaced.
    #[serde(default)]
    pub files: Vec<Located<String>>,
    /// Request that returns a status from 200 to 399 once the server is ready, such as "GET /".
    /// Default: a GET of the workload's path, which may also return 405 if the workload uses POST.
    pub ready: Option<ReadyPath>,
    /// Maximum time until the server is ready. Default: 30s.
    pub ready_within: Option<PositiveDuration>,
    /// Maximum time until the server exits after SIGTERM. After this time, the server is killed
    /// with SIGKILL. Default: 10s.
    pub stop_within: Option<PositiveDuration>,
}

impl Start {
    /// Returns the maximum time until the server is ready.
    #[must_use]
    pub fn ready_within(&self) -> Duration {
        let limit = self.ready_within.as_ref();
        limit.map_or(START_TIMEOUT, |limit| limit.0)
    }

    /// Returns the maximum time until the server exits after SIGTERM.
    #[must_use]
    pub fn stop_within(&self) -> Duration {
        let limit = self.stop_within.as_ref();
        limit.map_or(STOP_TIMEOUT, |limit| limit.0)
    }

    /// Checks the placeholders in the command, and checks that the files exist in `folder`.
    fn check(&self, file: &TomlFile, folder: &Path, known: &[&str]) -> Result<(), FileError> {
        check_placeholders(file, "command", &self.command, known)?;
        for name in &self.files {
            let path = folder.join(name.as_str());
            if name.contains('/') || !path.is_file() {
                let what = format!("files: {} is not a file in the folder", path.display());
                return Err(file.error(&name.span(), what));
            }
        }
        Ok(())
    }
}

/// Path of a readiness check, written as `GET /path`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct ReadyPath(pub String);

impl TryFrom<String> for ReadyPath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let path = text.strip_prefix("GET ").map(str::trim);
        let path = path.filter(|path| is_path(path)).ok_or_else(|| {
            format!("expected a method and a path, like ready = \"GET /\", not \"{text}\"")
        })?;
        Ok(ReadyPath(path.to_owned()))
    }
}

/// Returns whether a string is a valid request path.
pub(super) fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Checks the placeholders in a command.
pub(super) fn check_placeholders(
    file: &TomlFile,
    key: &str,
    command: &Located<CommandWords>,
    known: &[&str],
) -> Result<(), FileError> {
    let checked = command.check(known);
    checked.map_err(|what| file.error(&command.span(), format!("{key}: {what}")))
}

/// A folder with a manifest.
#[derive(Debug, Clone)]
pub struct ManifestPackage {
    /// Name of the system, store or client.
    pub name: String,
    /// The folder, in which commands run.
    pub folder: PathBuf,
    /// Programs that must be installed.
    pub needs: Vec<Need>,
    /// How to build the program.
    pub build: Option<Build>,
}

impl ManifestPackage {
    /// Checks the keys that all manifests share.
    pub(super) fn new(
        file: &TomlFile,
        folder: &Path,
        name: &Located<Name>,
        needs: Vec<Need>,
        build: Option<Build>,
    ) -> Result<Self, FileError> {
        let folder_name = folder.file_name().unwrap_or_default().to_string_lossy();
        let span = name.span();
        let name = &name.0;
        if *name != folder_name {
            let what = format!("name: \"{name}\" must be the folder's name, \"{folder_name}\"");
            return Err(file.error(&span, what));
        }
        if let Some(build) = &build {
            build.check(file, folder)?;
        }
        Ok(ManifestPackage {
            name: name.clone(),
            folder: folder.to_owned(),
            needs,
            build,
        })
    }
}

/// A program that floodmark starts as a server or store.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program's folder.
    pub package: ManifestPackage,
    /// How to start the program.
    pub start: Start,
    /// Settings of the program by name.
    pub knobs: BTreeMap<String, Knob>,
}

impl Deref for Program {
    type Target = ManifestPackage;

    fn deref(&self) -> &ManifestPackage {
        &self.package
    }
}

impl Program {
    /// Checks a program's start section and knobs. The command may use `placeholders` and knobs.
    pub(super) fn new(
        file: &TomlFile,
        package: ManifestPackage,
        start: Start,
        knobs: LocatedMap<Knob>,
        placeholders: &[&str],
    ) -> Result<Self, FileError> {
        let mut known = placeholders.to_vec();
        for (name, knob) in &knobs {
            if let (Some(low), Some(high)) = knob.limits()
                && low > high
            {
                let what =
                    format!("the knob \"{name}\" has low = {low} above high = {high}; swap them");
                return Err(file.error(&knob.span(), what));
            }
            let what = if name == "threads" {
                continue;
            } else if placeholders.contains(&name.as_str()) {
                "has the name of a placeholder; choose another name"
            } else if knob.default.is_none() {
                "has no default; write default = …"
            } else {
                known.push(name);
                continue;
            };
            let what = format!("the knob \"{name}\" {what}");
            return Err(file.error(&knob.span(), what));
        }
        start.check(file, &package.folder, &known)?;
        let knobs = knobs.into_iter();
        Ok(Program {
            package,
            start,
            knobs: knobs
                .map(|(name, knob)| (name, knob.into_inner()))
                .collect(),
        })
    }

    /// Returns whether the command or one of the copied files contains a knob's placeholder.
    pub(super) fn uses(&self, knob: &str) -> bool {
        let placeholder = format!("{{{knob}}}");
        let mut files = self.start.files.iter();
        self.start
            .command
            .iter()
            .any(|word| word.contains(&placeholder))
            || files.any(|name| {
                let text = fs::read_to_string(self.folder.join(name.as_str()));
                text.is_ok_and(|text| text.contains(&placeholder))
            })
    }

    /// Sets the placeholder of each knob to the experiment's value, or to the default value.
    pub fn fill(&self, setting: &BTreeMap<String, String>, filler: &mut Filler) {
        for (name, value) in self.setting(setting) {
            filler.set(&name, value);
        }
    }

    /// Returns the value of each knob: the experiment's value, or the default value.
    #[must_use]
    pub fn setting(&self, setting: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let knobs = self.knobs.iter();
        let values = knobs.filter_map(|(name, knob)| {
            let default = knob.default.as_ref().map(|default| &default.0);
            Some((name.clone(), setting.get(name).or(default)?.clone()))
        });
        values.collect()
    }

    /// Checks an experiment's value for a knob.
    ///
    /// # Errors
    /// The knob is unknown, or the value is not allowed.
    pub fn check(&self, knob: &str, value: &str) -> Result<(), String> {
        match self.knobs.get(knob) {
            Some(known) => known.check(knob, value),
            None if self.knobs.is_empty() => Err(format!("{} has no knobs", self.name)),
            None => {
                let fix = did_you_mean(knob, self.knobs.keys().map(String::as_str));
                Err(format!("{} has no knob \"{knob}\"; {fix}", self.name))
            }
        }
    }
}
