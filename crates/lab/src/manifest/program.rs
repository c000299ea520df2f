//! What systems and stores have in common: a program of a folder, how it is built and started, and what can be set on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fields::{Field, Kind, field, needed};
use super::need::Need;
use super::section::Section;
use super::{Filler, fill, words};
use crate::source::{FileError, did_you_mean};

/// Longest build where nothing is said.
const LONGEST_BUILD: Duration = Duration::from_secs(15 * 60);
/// Longest wait for readiness where nothing is said.
const LONGEST_START: Duration = Duration::from_secs(30);
/// Longest wait for the end after SIGTERM where nothing is said.
const LONGEST_STOP: Duration = Duration::from_secs(10);

/// `needs`.
pub(super) const NEEDS: Field = field(
    "needs",
    Kind::Texts,
    "Programs that must be installed, such as \"java >= 17\". Where one is missing what needs it is skipped.",
);

/// `build`.
pub(super) const BUILT: Field = field(
    "build",
    Kind::Table(BUILD),
    "How it is built. Without it nothing is.",
);

/// `knobs`.
pub(super) const KNOBS: Field = field(
    "knobs",
    Kind::Named(KNOB),
    "What an experiment can set; {name} in the commands stands for the value.",
);

const BUILD: &[Field] = &[
    needed(
        "command",
        Kind::Text,
        "The command, run in its folder, without a shell.",
    ),
    field(
        "inputs",
        Kind::Texts,
        "Files and folders that it is built of. While they are as they were it is not built again; without them it is built each time.",
    ),
    field(
        "outputs",
        Kind::Texts,
        "What the build makes. Where one is missing it is built again.",
    ),
    field(
        "within",
        Kind::Duration,
        "Longest time it may take. Without it 15m.",
    ),
];

/// `files`.
pub(super) const FILES: Field = field(
    "files",
    Kind::Texts,
    "Files of its folder that are copied to {run}, with placeholders filled in.",
);

/// `ready-within`.
pub(super) const READY_WITHIN: Field = field(
    "ready-within",
    Kind::Duration,
    "Longest wait for that. Without it 30s.",
);

/// `stop-within`.
pub(super) const STOP_WITHIN: Field = field(
    "stop-within",
    Kind::Duration,
    "Longest wait for the end after SIGTERM, before SIGKILL. Without it 10s.",
);

const KNOB: &[Field] = &[
    field(
        "default",
        Kind::Scalar,
        "Value where the experiment sets none. Only a knob named threads may be without: half the CPUs then, or all of the server's own.",
    ),
    field("values", Kind::Scalars, "The values that it takes."),
    field(
        "low",
        Kind::Count(0, 1 << 53),
        "The lowest number that it takes.",
    ),
    field(
        "high",
        Kind::Count(0, 1 << 53),
        "The highest number that it takes.",
    ),
];

/// A program of a folder.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its folder; commands run there.
    pub folder: PathBuf,
    /// Programs that must be here.
    pub needs: Vec<Need>,
    /// How it is built.
    pub build: Option<Build>,
    /// How it is started.
    pub start: Start,
    /// What can be set.
    pub knobs: BTreeMap<String, Knob>,
}

/// How a system is built.
#[derive(Debug, Clone)]
pub struct Build {
    /// Words of the command.
    pub command: Vec<String>,
    /// What it is built of.
    pub inputs: Vec<PathBuf>,
    /// What it makes.
    pub outputs: Vec<PathBuf>,
    /// Longest time it may take.
    pub within: Duration,
}

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Start {
    /// Words of the command, placeholders not filled in.
    pub command: Vec<String>,
    /// Files to be filled in and copied, with their paths.
    pub files: Vec<PathBuf>,
    /// Path that is asked for to find out that it serves; the workload's where none is given.
    pub ready: Option<String>,
    /// Longest wait for an answer to that.
    pub ready_within: Duration,
    /// Longest wait for its end after SIGTERM.
    pub stop_within: Duration,
}

/// What can be set on a system.
#[derive(Debug, Clone, Default)]
pub struct Knob {
    /// Value where none is set; none for threads, where half the CPUs is meant.
    pub default: Option<String>,
    values: Vec<String>,
    low: Option<u64>,
    high: Option<u64>,
}

impl Knob {
    /// The values that it takes; empty where they are not listed.
    #[must_use]
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// What is wrong with a value, in words.
    ///
    /// # Errors
    /// It is none of the values, or beyond the bounds.
    pub fn check(&self, name: &str, value: &str) -> Result<(), String> {
        if !self.values.is_empty() && !self.values.iter().any(|one| one == value) {
            let mend = did_you_mean(value, self.values.iter().map(String::as_str));
            return Err(format!("{name}: unknown value \"{value}\"; {mend}"));
        }
        let (low, high) = (self.low.unwrap_or(0), self.high.unwrap_or(u64::MAX));
        let bounded = self.low.is_some() || self.high.is_some();
        if bounded && !value.parse().is_ok_and(|n: u64| (low..=high).contains(&n)) {
            let upper = self
                .high
                .map(|high| format!(" to {high}"))
                .unwrap_or_default();
            return Err(format!(
                "{name}: expected a whole number from {low}{upper}, not \"{value}\""
            ));
        }
        Ok(())
    }
}

impl Start {
    /// Reads `[start]`, or the same keys of a trial; `folder` is where its files lie, `placeholders` what its command may be told.
    pub(super) fn of(
        section: &Section<'_>,
        folder: &Path,
        placeholders: &[&str],
        knobs: &BTreeMap<String, Knob>,
    ) -> Result<Self, FileError> {
        let known: Vec<&str> = placeholders
            .iter()
            .copied()
            .chain(knobs.keys().map(String::as_str))
            .collect();
        let command = command(section, "command", &known)?;
        let mut files = Vec::new();
        for name in section.list("files") {
            let path = folder.join(&name);
            if name.contains('/') || !path.is_file() {
                let what = format!("files: {} is no file of its folder", path.display());
                return Err(section.error("files", what));
            }
            files.push(path);
        }
        Ok(Start {
            command,
            files,
            ready: ready(section)?,
            ready_within: section.duration("ready-within").unwrap_or(LONGEST_START),
            stop_within: section.duration("stop-within").unwrap_or(LONGEST_STOP),
        })
    }
}

/// The words of a command.
fn command(section: &Section<'_>, key: &str, known: &[&str]) -> Result<Vec<String>, FileError> {
    let text = section.text(key).unwrap_or_default();
    words(text)
        .and_then(|words| fill::check(text, known).map(|()| words))
        .map_err(|what| section.error(key, format!("{key}: {what}")))
}

/// The path of `GET /path`.
fn ready(section: &Section<'_>) -> Result<Option<String>, FileError> {
    let Some(text) = section.text("ready") else {
        return Ok(None);
    };
    let path = text.strip_prefix("GET ").map(str::trim);
    let plain = |path: &&str| path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic());
    match path.filter(plain) {
        Some(path) => Ok(Some(path.to_owned())),
        None => Err(section.error(
            "ready",
            format!("ready: expected a method and a path, like ready = \"GET /\", not \"{text}\""),
        )),
    }
}

impl Program {
    /// Reads what a manifest says of its program. `placeholders` are those of its commands.
    pub(super) fn of(
        file: &Section<'_>,
        folder: &Path,
        (start, placeholders): (&'static [Field], &[&str]),
    ) -> Result<Self, FileError> {
        file.named_as(folder)?;
        let knobs = knobs(file, placeholders)?;
        let Some(start) = file.table("start", start)? else {
            return Err(file.error("start", "[start] is missing"));
        };
        Ok(Program {
            name: file.text("name").unwrap_or_default().to_owned(),
            needs: Need::list(file)?,
            build: Build::list(file, folder)?,
            start: Start::of(&start, folder, placeholders, &knobs)?,
            folder: folder.to_owned(),
            knobs,
        })
    }

    /// Says what its knobs' placeholders stand for: the values that are set, else the defaults.
    pub fn fill(&self, setting: &BTreeMap<String, String>, filler: &mut Filler) {
        for (name, knob) in &self.knobs {
            if let Some(value) = setting.get(name).or(knob.default.as_ref()) {
                filler.set(name, value);
            }
        }
    }

    /// Holds a value that an experiment gives a knob against those that it takes.
    ///
    /// # Errors
    /// There is no such knob, or it does not take the value; in words.
    pub fn check(&self, knob: &str, value: &str) -> Result<(), String> {
        match self.knobs.get(knob) {
            Some(known) => known.check(knob, value),
            None if self.knobs.is_empty() => Err(format!("{} has no knobs", self.name)),
            None => {
                let mend = did_you_mean(knob, self.knobs.keys().map(String::as_str));
                Err(format!("{} has no knob \"{knob}\"; {mend}", self.name))
            }
        }
    }
}

impl Build {
    /// Reads `[build]`, where there is one.
    pub(super) fn list(file: &Section<'_>, folder: &Path) -> Result<Option<Self>, FileError> {
        let section = file.table("build", BUILD)?;
        section
            .map(|section| Self::of(&section, folder))
            .transpose()
    }

    fn of(section: &Section<'_>, folder: &Path) -> Result<Self, FileError> {
        let paths = |key| {
            section
                .list(key)
                .iter()
                .map(|name| folder.join(name))
                .collect()
        };
        let inputs: Vec<PathBuf> = paths("inputs");
        if let Some(missing) = inputs.iter().find(|path| !path.exists()) {
            let what = format!("inputs: {} does not exist", missing.display());
            return Err(section.error("inputs", what));
        }
        Ok(Build {
            command: command(section, "command", &["floodmark"])?,
            inputs,
            outputs: paths("outputs"),
            within: section.duration("within").unwrap_or(LONGEST_BUILD),
        })
    }
}

fn knobs(file: &Section<'_>, placeholders: &[&str]) -> Result<BTreeMap<String, Knob>, FileError> {
    let mut knobs = BTreeMap::new();
    for (name, section) in file.named("knobs", KNOB)? {
        if placeholders.contains(&name.as_str()) && name != "threads" {
            let what = format!(
                "the knob \"{name}\" has the name of a placeholder that is there already; give it another"
            );
            return Err(section.error("", what));
        }
        let knob = Knob {
            default: section.scalar("default"),
            values: section.list("values"),
            low: section.count("low"),
            high: section.count("high"),
        };
        if knob.default.is_none() && name != "threads" {
            return Err(section.error(
                "",
                format!("the knob \"{name}\" has no default; write default = …"),
            ));
        }
        knobs.insert(name, knob);
    }
    Ok(knobs)
}
