//! `client.toml`: how another load generator is called, what it can do, and how its figures are read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::fields::{Field, Kind, field, needed};
use super::figure::{FIGURES, Figures};
use super::load::Load;
use super::need::Need;
use super::program::{BUILT, Build, NEEDS};
use super::section::Section;
use super::{fill, words};
use crate::source::{FileError, Source, read_text};

/// Name of the file in a client's folder.
pub const FILE: &str = "client.toml";

/// What commands can be told.
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

/// Longest time beyond the load's length where nothing is said.
const LINGER: Duration = Duration::from_secs(30);

/// Longest time for a number of requests.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// What of a load a client is told; of the rest it knows nothing.
const TOLD: [&str; 7] = [
    "connections",
    "threads",
    "duration",
    "requests",
    "rate",
    "fresh",
    "attempts",
];

/// Keys of `client.toml`.
pub(super) const CLIENT: &[Field] = &[
    needed(
        "name",
        Kind::Name,
        "Name of the client, the same as its folder's.",
    ),
    field("about", Kind::Text, "What it is, in one line."),
    NEEDS,
    BUILT,
    field(
        "version",
        Kind::Text,
        "Command that says its version; the first line with a number is kept. Without it the version is not known.",
    ),
    field(
        "path",
        Kind::Text,
        "The one path that it asks for, where a script of its own makes the requests. Without it that of the trial.",
    ),
    field(
        "kept",
        Kind::Table(LENGTHS),
        "How it is called for the closed model on kept connections. Without it it cannot do that.",
    ),
    field(
        "fresh",
        Kind::Table(LENGTHS),
        "The same with a connection for each request.",
    ),
    field(
        "rate",
        Kind::Table(LENGTHS),
        "How it is called for a rate, on kept connections.",
    ),
    field(
        "success",
        Kind::Scalars,
        "Exit codes that mean that it ran well. Without it [0]; any other is a failure.",
    ),
    field(
        "linger",
        Kind::Duration,
        "How much longer than the load it may take before it is ended. Without it 30s; for a number of requests it has 15m in all.",
    ),
    needed(
        "figures",
        Kind::Table(FIGURES),
        "How its figures are read from what it prints.",
    ),
];

const LENGTHS: &[Field] = &[
    field(
        "duration",
        Kind::Text,
        "Command for a length of time, run in the client's folder, without a shell. {url} (or {host}, {port} and {path}) is what it asks for, {connections}, {threads} and {seconds} are the load's.",
    ),
    field(
        "requests",
        Kind::Text,
        "Command for a number of requests: {requests}.",
    ),
];

/// Another load generator.
#[derive(Debug, Clone)]
pub struct Client {
    /// Its name.
    pub name: String,
    /// Its folder; commands run there.
    pub folder: PathBuf,
    /// Programs that must be here.
    pub needs: Vec<Need>,
    /// How it is built.
    pub build: Option<Build>,
    /// Words of the command that says its version.
    pub version: Option<Vec<String>>,
    /// The one path that it asks for.
    pub path: Option<String>,
    /// How its figures are read.
    pub figures: Figures,
    kept: Commands,
    fresh: Commands,
    rate: Commands,
    success: Vec<i32>,
    linger: Duration,
}

/// Words of the commands for one use of connections; none where it cannot.
#[derive(Debug, Clone, Default)]
struct Commands {
    duration: Option<Vec<String>>,
    requests: Option<Vec<String>>,
}

impl Commands {
    fn of(file: &Section<'_>, key: &'static str) -> Result<Self, FileError> {
        let Some(section) = file.table(key, LENGTHS)? else {
            return Ok(Self::default());
        };
        let command = |key: &str| -> Result<Option<Vec<String>>, FileError> {
            let Some(text) = section.text(key) else {
                return Ok(None);
            };
            words(text)
                .and_then(|words| fill::check(text, &PLACEHOLDERS).map(|()| Some(words)))
                .map_err(|what| section.error(key, format!("{key}: {what}")))
        };
        Ok(Commands {
            duration: command("duration")?,
            requests: command("requests")?,
        })
    }
}

impl Client {
    /// Reads the `client.toml` of a folder.
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
        let file = Section::file(source, &document, CLIENT)?;
        file.named_as(folder)?;
        let version = file.text("version").map(words).transpose();
        let path = file.text("path");
        if let Some(path) = path.filter(|path| !is_path(path)) {
            let what = format!("path: expected one like path = \"/scoring\", not \"{path}\"");
            return Err(file.error("path", what));
        }
        let mut success = Vec::new();
        for code in file.list("success") {
            success.push(code.parse().map_err(|_| {
                let what =
                    format!("success: expected exit codes, like success = [0, 1], not \"{code}\"");
                file.error("success", what)
            })?);
        }
        if success.is_empty() {
            success.push(0);
        }
        let Some(figures) = file.table("figures", FIGURES)? else {
            return Err(file.error("figures", "[figures] is missing"));
        };
        let client = Client {
            name: file.text("name").unwrap_or_default().to_owned(),
            folder: folder.to_owned(),
            needs: Need::list(&file)?,
            build: Build::list(&file, folder)?,
            version: version.map_err(|what| file.error("version", format!("version: {what}")))?,
            path: path.map(str::to_owned),
            figures: Figures::of(&figures)?,
            kept: Commands::of(&file, "kept")?,
            fresh: Commands::of(&file, "fresh")?,
            rate: Commands::of(&file, "rate")?,
            success,
            linger: file.duration("linger").unwrap_or(LINGER),
        };
        match client.abilities().is_empty() {
            true => Err(file.error(
                "",
                "it can do nothing; write [kept], [fresh] or [rate] with a command",
            )),
            false => Ok(client),
        }
    }

    /// The command for a load, placeholders not filled in.
    ///
    /// # Errors
    /// It cannot do what the load asks for; in words.
    pub fn command(&self, load: &Load) -> Result<&[String], String> {
        let name = &self.name;
        let untold = |(key, value): &(&str, &str)| {
            // Both mean that nothing is sent before.
            let nothing = *key == "warmup" && ["auto", "0s"].contains(value);
            !TOLD.contains(key) && !nothing
        };
        if let Some((key, _)) = load.entries().find(untold) {
            return Err(format!(
                "client {name} cannot be told {key}; write it into load = {{ … }} of the trials that floodmark drives"
            ));
        }
        let fresh = load.get("fresh") == Some("true");
        let by_rate = load.get("rate").is_some();
        if fresh && by_rate {
            return Err(format!(
                "client {name} cannot send at a rate on fresh connections; leave one of them out"
            ));
        }
        if by_rate && load.get("connections").is_none() {
            return Err(format!(
                "client {name} sends a rate over a number of connections; write connections = …"
            ));
        }
        let (commands, how) = self.commands(load);
        let (command, length) = match load.get("requests") {
            Some(_) => (&commands.requests, "for a number of requests"),
            None => (&commands.duration, "for a time"),
        };
        let Some(command) = command else {
            return Err(format!(
                "client {name} cannot send {how} {length}; it can {}",
                self.abilities().join(", ")
            ));
        };
        let whole = load
            .length()
            .is_none_or(|length| length.subsec_nanos() == 0);
        if !whole && command.iter().any(|word| word.contains("{seconds}")) {
            return Err(format!(
                "client {name} takes whole seconds; give a duration like \"2s\""
            ));
        }
        Ok(command)
    }

    /// Whether a load is a number of requests because the client cannot be given a time for it.
    pub(super) fn only_counts(&self, load: &Load) -> bool {
        let commands = self.commands(load).0;
        load.get("requests").is_some() && commands.duration.is_none()
    }

    /// The commands for a load's use of connections, and that use in words.
    fn commands(&self, load: &Load) -> (&Commands, &'static str) {
        match (load.get("rate"), load.get("fresh")) {
            (Some(_), _) => (&self.rate, "at a rate"),
            (_, Some("true")) => (&self.fresh, "on fresh connections"),
            _ => (&self.kept, "on kept connections"),
        }
    }

    /// What it can do, in words.
    fn abilities(&self) -> Vec<String> {
        let all = [
            ("at a rate", &self.rate),
            ("on fresh connections", &self.fresh),
            ("on kept connections", &self.kept),
        ];
        let mut abilities = Vec::new();
        for (how, commands) in all {
            for (length, command) in [
                ("for a time", &commands.duration),
                ("for a number of requests", &commands.requests),
            ] {
                if command.is_some() {
                    abilities.push(format!("{how} {length}"));
                }
            }
        }
        abilities
    }

    /// How long it may take for a load, before it is ended.
    #[must_use]
    pub fn within(&self, load: &Load) -> Duration {
        load.length().map_or(LONGEST, |length| length + self.linger)
    }

    /// Whether it ran well by its exit code.
    #[must_use]
    pub fn succeeds(&self, code: Option<i32>) -> bool {
        code.is_some_and(|code| self.success.contains(&code))
    }
}

/// Whether a text can be a path of a request.
fn is_path(text: &str) -> bool {
    text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic())
}
