//! Reads `client.toml`, which defines the commands of an external client, the loads that the client
//! supports, and how to read the client's figures from its output (`[figures]`).

use std::path::Path;
use std::time::Duration;

use floodmark_plan::spec::Warmup;
use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::values::{Name, PositiveDuration, ScalarText};
use floodmark_plan::{FileError, LoadSpec};
use floodmark_record::client::PrintedFigures;
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

use super::program::{Build, CommandWords, ManifestPackage, Need, check_placeholders, is_path};

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
    /// Name of the client, which is also the name of its directory.
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
    /// Command that sends load for a duration. It runs in the client's directory without a shell.
    /// {url}, or {host}, {port} and {path}, stand for the target. {connections}, {threads} and
    /// {seconds} stand for the load.
    duration: Option<Located<CommandWords>>,
    /// Command that sends a fixed number of requests. {requests} stands for this number.
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
    /// Its directory.
    pub package: ManifestPackage,
    /// The other keys of `client.toml`.
    pub(crate) manifest: ClientManifest,
}

impl Client {
    /// Reads the `client.toml` in a directory.
    ///
    /// # Errors
    /// The file cannot be read or is invalid.
    pub fn read(directory: &Path) -> Result<Self, FileError> {
        let file = TomlFile::read(&directory.join("client.toml"))?;
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
        let package = ManifestPackage::new(&file, directory, &manifest.name, needs, build)?;
        let client = Client { package, manifest };
        if client.abilities().is_empty() {
            Err(file.error_at_start(
                "the client has no commands; write [kept], [fresh] or [rate] with a command",
            ))
        } else {
            Ok(client)
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
        let (command, length) = match (load.requests, load.duration) {
            (Some(_), Some(_)) => {
                return Err(format!(
                    "client {name} does not support `requests` together with `duration`; remove one of them"
                ));
            }
            (Some(_), None) => (&commands.requests, "with a fixed number of requests"),
            (None, _) => (&commands.duration, "for a duration"),
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
        if !whole && command.uses("seconds") {
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

    /// Returns all commands, with descriptions of how they use connections.
    fn all_commands(&self) -> [(&Commands, &'static str); 3] {
        [
            (&self.manifest.rate, "at a fixed rate"),
            (&self.manifest.fresh, "on fresh connections"),
            (&self.manifest.kept, "on kept connections"),
        ]
    }

    /// Returns the commands for a load, and a description of how they use connections.
    fn commands(&self, load: &LoadSpec) -> (&Commands, &'static str) {
        let [rate, fresh, kept] = self.all_commands();
        match (load.rate, load.fresh) {
            (Some(_), _) => rate,
            (_, Some(true)) => fresh,
            _ => kept,
        }
    }

    /// Describes the loads that the client supports.
    fn abilities(&self) -> Vec<String> {
        let abilities = self.all_commands().map(|(commands, how)| {
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

/// `[figures]`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientFigures {
    /// Complete responses of any status.
    answers: CountFigure,
    /// Responses with a status other than 2xx or 3xx.
    wrong: Option<CountFigure>,
    /// Requests without a complete response.
    errors: Option<CountFigure>,
    /// Requests per second. Default: the number of responses divided by the client's run time.
    throughput: Option<RateFigure>,
    /// Mean response time.
    mean: Option<TimeFigure>,
    /// Median response time.
    p50: Option<TimeFigure>,
    /// 90th percentile of response time.
    p90: Option<TimeFigure>,
    /// 95th percentile of response time.
    p95: Option<TimeFigure>,
    /// 99th percentile of response time.
    p99: Option<TimeFigure>,
    /// Maximum response time.
    max: Option<TimeFigure>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CountSection {
    /// Regular expression (Rust crate regex) with a capture group for the number. ^ and $ match the
    /// start and end of each line.
    find: String,
    /// Whether to add up all groups of all matches. Without a match, the sum is 0. Default: only
    /// the first match counts.
    sum: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RateSection {
    /// Regular expression (Rust crate regex) with a capture group for the number. ^ and $ match the
    /// start and end of each line.
    find: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimeSection {
    /// Regular expression (Rust crate regex) with a capture group for the number. ^ and $ match the
    /// start and end of each line.
    find: String,
    /// Unit of the number. With `printed`, the second capture group contains the unit.
    unit: TimeUnit,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TimeUnit {
    Us,
    Ms,
    S,
    Printed,
}

// Each kind of section has its own type, because the keys differ.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "CountSection")]
#[schemars(with = "CountSection")]
struct CountFigure(ClientFigure);

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "RateSection")]
#[schemars(with = "RateSection")]
struct RateFigure(ClientFigure);

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "TimeSection")]
#[schemars(with = "TimeSection")]
struct TimeFigure(ClientFigure);

impl TryFrom<CountSection> for CountFigure {
    type Error = String;

    fn try_from(section: CountSection) -> Result<Self, String> {
        ClientFigure::new(&section.find, None, section.sum == Some(true)).map(Self)
    }
}

impl TryFrom<RateSection> for RateFigure {
    type Error = String;

    fn try_from(section: RateSection) -> Result<Self, String> {
        ClientFigure::new(&section.find, None, false).map(Self)
    }
}

impl TryFrom<TimeSection> for TimeFigure {
    type Error = String;

    fn try_from(section: TimeSection) -> Result<Self, String> {
        ClientFigure::new(&section.find, Some(section.unit), false).map(Self)
    }
}

/// How to find one figure.
#[derive(Debug, Clone)]
struct ClientFigure {
    find: Regex,
    /// Unit of a time.
    unit: Option<TimeUnit>,
    sum: bool,
}

impl ClientFigures {
    /// Reads the figures from a client's output.
    ///
    /// # Errors
    /// The number of responses is missing or 0, or a figure is not a number. The error message
    /// continues a sentence that starts with the client's name.
    pub fn read(&self, output: &str) -> Result<PrintedFigures, String> {
        let read = |figure: Option<&ClientFigure>, name| match figure {
            Some(figure) => figure.read(output, name),
            None => Ok(None),
        };
        let count = |figure: &Option<CountFigure>, name| {
            let count = read(figure.as_ref().map(|figure| &figure.0), name);
            count.map(|count| count.map(|n| n as u64))
        };
        let time =
            |figure: &Option<TimeFigure>, name| read(figure.as_ref().map(|figure| &figure.0), name);
        let answers = self.answers.0.read(output, "answers")?;
        let Some(answers) = answers.filter(|n| *n > 0.0) else {
            return Err("reported no responses".to_owned());
        };
        Ok(PrintedFigures {
            answers: Some(answers as u64),
            wrong: count(&self.wrong, "wrong")?,
            errors: count(&self.errors, "errors")?,
            throughput_per_s: read(self.throughput.as_ref().map(|of| &of.0), "throughput")?,
            mean_us: time(&self.mean, "mean")?,
            p50_us: time(&self.p50, "p50")?,
            p90_us: time(&self.p90, "p90")?,
            p95_us: time(&self.p95, "p95")?,
            p99_us: time(&self.p99, "p99")?,
            max_us: time(&self.max, "max")?,
        })
    }
}

impl ClientFigure {
    fn new(find: &str, unit: Option<TimeUnit>, sum: bool) -> Result<Self, String> {
        let find = RegexBuilder::new(find).multi_line(true).build();
        let find = find.map_err(|error| {
            let message = error.to_string();
            let what = message.lines().last().unwrap_or_default();
            format!("invalid regular expression: {what}")
        })?;
        let groups = find.captures_len() - 1;
        let wanted = 1 + usize::from(unit == Some(TimeUnit::Printed));
        let fits = if sum { groups >= 1 } else { groups == wanted };
        if !fits {
            let least = if sum { "at least " } else { "" };
            return Err(format!(
                "capture groups: expected {least}{wanted}, found {groups}; write (?:…) for other groups"
            ));
        }
        Ok(ClientFigure { find, unit, sum })
    }

    /// Returns the figure that an output contains, or `None` if the figure is missing. Times are in
    /// microseconds.
    fn read(&self, output: &str, name: &str) -> Result<Option<f64>, String> {
        if self.sum {
            let matches = self.find.captures_iter(output);
            let groups =
                matches.flat_map(|found| found.iter().skip(1).flatten().collect::<Vec<_>>());
            return groups
                .map(|group| number(group.as_str(), name))
                .sum::<Result<_, _>>()
                .map(Some);
        }
        let Some(found) = self.find.captures(output) else {
            return Ok(None);
        };
        let text = |group| found.get(group).map_or("", |group| group.as_str());
        let unit = match self.unit {
            None | Some(TimeUnit::Us) => 1.0,
            Some(TimeUnit::Ms) => 1e3,
            Some(TimeUnit::S) => 1e6,
            Some(TimeUnit::Printed) => microseconds(text(2))
                .ok_or_else(|| format!("printed {name} in the unknown unit \"{}\"", text(2)))?,
        };
        Ok(Some(number(text(1), name)? * unit))
    }
}

fn number(text: &str, name: &str) -> Result<f64, String> {
    let value = text.parse().ok();
    value
        .filter(|value: &f64| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| format!("printed \"{text}\" as {name}, which is not a number"))
}

/// Returns the length of a time unit, in microseconds.
fn microseconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        "h" => 3600e6,
        _ => return None,
    })
}
