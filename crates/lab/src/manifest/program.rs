//! Keys that systems, stores and clients share: a program's directory, requirements, build, start
//! and settings, and the placeholders such as `{port}` in its commands.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::LazyLock;
use std::time::Duration;

use floodmark_host::{Child, without_colors};
use floodmark_plan::toml_file::{Located, LocatedMap, TomlFile};
use floodmark_plan::values::{Count, MAX_COUNT, Name, PositiveDuration, ScalarText};
use floodmark_plan::{FileError, did_you_mean};
use floodmark_record::tuning::KnobKind;
use regex::{Captures, Regex};
use schemars::JsonSchema;
use serde::Deserialize;

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
    /// Build command. It runs in the manifest's directory without a shell.
    pub(crate) command: Located<CommandWords>,
    /// Files and directories that the build reads. The build is skipped if none of the files has
    /// changed. Default: build every time.
    inputs: Option<Located<Vec<String>>>,
    /// Files that the build writes. If one is missing, the build runs again.
    #[serde(default)]
    outputs: Vec<String>,
    /// Maximum build time. Default: 15m.
    within: Option<PositiveDuration>,
}

impl Build {
    /// Returns the paths of the files and directories that the build reads.
    pub(crate) fn inputs(&self, directory: &Path) -> Vec<PathBuf> {
        let names = self.inputs.iter().flat_map(|names| names.iter());
        names.map(|name| directory.join(name)).collect()
    }

    /// Returns the path of the first missing output.
    pub(crate) fn missing_output(&self, directory: &Path) -> Option<PathBuf> {
        let mut paths = self.outputs.iter().map(|name| directory.join(name));
        paths.find(|path| !path.exists())
    }

    /// Returns the timeout of the build.
    pub(crate) fn within(&self) -> Duration {
        self.within.as_ref().map_or(BUILD_TIMEOUT, |limit| limit.0)
    }

    fn check(&self, file: &TomlFile, directory: &Path) -> Result<(), FileError> {
        check_placeholders(file, "command", &self.command, &["floodmark"])?;
        let inputs = self.inputs(directory);
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
    pub(super) sizes: Option<KnobKind>,
}

impl Knob {
    /// Returns the lowest and the highest allowed number; `None` for a limit that is not given.
    pub(super) fn limits(&self) -> (Option<u64>, Option<u64>) {
        let of = |count: &Option<Count<0, MAX_COUNT>>| count.as_ref().map(|n| n.0);
        (of(&self.low), of(&self.high))
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
    /// Command that starts the server in the system's directory, without a shell. The server must
    /// stay in the foreground. The command can contain placeholders. {host} and {port} are the
    /// address and a free port to listen on. {run} is a directory for the files of this run.
    /// {threads} is the value of the knob `threads`. Without this knob, it is the number of the
    /// server's own CPUs, or half the CPUs if the server has no dedicated CPUs. {floodmark} is the
    /// path of floodmark. {workload} is the name of the workload. {store} is the address and port
    /// of the trial's store, or the word `none`.
    pub command: Located<CommandWords>,
    /// Files in the system's directory to copy to {run}. Placeholders in these files are replaced.
    #[serde(default)]
    pub files: Vec<Located<String>>,
    /// Request that returns a status from 200 to 399 once the server is ready, such as "GET /".
    /// Default: a GET of the workload's path, which may also return 405 if the workload uses POST.
    pub ready: Option<ReadyPath>,
    /// Scheme of the server's URLs: "http" or "https". Default: "http".
    #[serde(default)]
    pub scheme: UrlScheme,
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

    /// Checks the placeholders in the command, and checks that the files exist in `directory`.
    fn check(&self, file: &TomlFile, directory: &Path, known: &[&str]) -> Result<(), FileError> {
        check_placeholders(file, "command", &self.command, known)?;
        for name in &self.files {
            let path = directory.join(name.as_str());
            if name.contains('/') || !path.is_file() {
                let what = format!(
                    "files: {} is not a file in the manifest's directory",
                    path.display()
                );
                return Err(file.error(&name.span(), what));
            }
        }
        Ok(())
    }
}

/// Scheme of a URL.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum UrlScheme {
    /// Plaintext.
    #[default]
    Http,
    /// TLS.
    Https,
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

/// A directory with a manifest.
#[derive(Debug, Clone)]
pub struct ManifestPackage {
    /// Name of the system, store or client.
    pub name: String,
    /// Directory in which commands run.
    pub directory: PathBuf,
    /// Programs that must be installed.
    pub needs: Vec<Need>,
    /// How to build the program.
    pub build: Option<Build>,
}

impl ManifestPackage {
    /// Checks the keys that all manifests share.
    pub(super) fn new(
        file: &TomlFile,
        directory: &Path,
        name: &Located<Name>,
        needs: Vec<Need>,
        build: Option<Build>,
    ) -> Result<Self, FileError> {
        let directory_name = directory.file_name().unwrap_or_default().to_string_lossy();
        let span = name.span();
        let name = &name.0;
        if *name != directory_name {
            let what =
                format!("name: \"{name}\" must match the directory name, \"{directory_name}\"");
            return Err(file.error(&span, what));
        }
        if let Some(build) = &build {
            build.check(file, directory)?;
        }
        Ok(ManifestPackage {
            name: name.clone(),
            directory: directory.to_owned(),
            needs,
            build,
        })
    }
}

/// A program that floodmark starts as a server or store.
#[derive(Debug, Clone)]
pub struct Program {
    /// The program's directory.
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
        start.check(file, &package.directory, &known)?;
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
        let is_in_file = |name: &Located<String>| {
            let text = fs::read_to_string(self.directory.join(name.as_str()));
            text.is_ok_and(|text| text.contains(&placeholder))
        };
        self.start.command.uses(knob) || self.start.files.iter().any(is_in_file)
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

/// Matches a placeholder. Group 1 is its name.
static PLACEHOLDER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\{([a-z0-9_-]+)\}").expect("the pattern is valid"));

/// Words of a command, including placeholders.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct CommandWords(Vec<String>);

impl TryFrom<String> for CommandWords {
    type Error = String;

    /// Splits a command with shell quoting, but without shell expansion.
    fn try_from(command: String) -> Result<Self, String> {
        match shlex::split(&command) {
            None => Err(format!("the command {command:?} has an unclosed quote")),
            Some(words) if words.is_empty() => Err("the command is empty".to_owned()),
            Some(words) => Ok(CommandWords(words)),
        }
    }
}

impl Deref for CommandWords {
    type Target = [String];

    fn deref(&self) -> &[String] {
        &self.0
    }
}

impl CommandWords {
    /// Returns whether the command contains a placeholder.
    pub(super) fn uses(&self, placeholder: &str) -> bool {
        let placeholder = format!("{{{placeholder}}}");
        self.0.iter().any(|word| word.contains(&placeholder))
    }

    /// Checks that all placeholders are known.
    ///
    /// # Errors
    /// Returns the first unknown placeholder.
    pub(super) fn check(&self, known: &[&str]) -> Result<(), String> {
        let found = self
            .0
            .iter()
            .flat_map(|word| PLACEHOLDER.captures_iter(word));
        let mut names = found.map(|found| found.extract::<1>().1[0]);
        match names.find(|name| !known.contains(name)) {
            None => Ok(()),
            Some(name) => Err(format!(
                "unknown placeholder {{{name}}}; {}",
                did_you_mean(name, known.iter().copied())
            )),
        }
    }
}

/// Values of placeholders.
#[derive(Debug, Clone, Default)]
pub struct Filler(BTreeMap<String, String>);

impl Filler {
    /// Sets the value of a placeholder.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Replaces the placeholders in a command.
    #[must_use]
    pub fn fill_words(&self, words: &[String]) -> Vec<String> {
        words.iter().map(|word| self.fill(word)).collect()
    }

    /// Replaces known placeholders. Unknown placeholders remain, because files also use braces for
    /// other purposes.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let value = |found: &Captures<'_>| {
            let known = self.0.get(&found[1]).map(String::as_str);
            known.unwrap_or(&found[0]).to_owned()
        };
        PLACEHOLDER.replace_all(text, value).into_owned()
    }
}

/// Timeout of a program's version command.
const PATIENCE: Duration = Duration::from_secs(20);

/// Flags that make a program print its version, tried in order.
const VERSION_FLAGS: [&str; 3] = ["--version", "-version", "-v"];

/// Debian packages whose names differ from the program's name.
const PACKAGES: [(&str, &str); 7] = [
    ("ab", "apache2-utils"),
    ("h2load", "nghttp2-client"),
    ("java", "default-jdk-headless"),
    ("javac", "default-jdk-headless"),
    ("mvn", "maven"),
    ("node", "nodejs"),
    ("postgres", "postgresql"),
];

/// Programs whose Debian package has the same name.
const OWN_PACKAGE: [&str; 8] = [
    "cargo", "curl", "hey", "nginx", "php", "python3", "weighttp", "wrk",
];

/// A required program with an optional minimum version: `java >= 17`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
pub struct Need {
    program: String,
    least: Option<Vec<u64>>,
}

impl TryFrom<String> for Need {
    type Error = String;

    /// Parses a requirement such as `java >= 17` or `mvn`.
    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || {
            format!(
                "\"{text}\" is not a valid requirement; use a form such as \"mvn\" or \"java >= 17\""
            )
        };
        let (program, least) = match text.split_once(">=") {
            Some((program, least)) => (program, Some(version(least.trim()).ok_or_else(wrong)?)),
            None => (&*text, None),
        };
        let program = program.trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+/".contains(c);
        if program.is_empty() || !program.chars().all(plain) {
            return Err(wrong());
        }
        Ok(Need {
            program: program.to_owned(),
            least,
        })
    }
}

impl Need {
    /// Returns what is missing on this host, or `None` if the requirement is met.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        if !on_path(&self.program) {
            let package = package(&self.program).map_or_else(String::new, |package| {
                format!("; on Debian: apt-get install {package}")
            });
            return Some(format!(
                "{} is not installed (not on the PATH{package})",
                self.program
            ));
        }
        let least = self.least.as_ref()?;
        match VERSION_FLAGS.iter().find_map(|flag| self.ask(flag)) {
            Some(found) if found >= *least => None,
            Some(found) => Some(format!(
                "{} is too old: requires {} or later, found {}",
                self.program,
                show(least),
                show(&found)
            )),
            None => Some(format!(
                "{} does not print its version; version {} or later is required",
                self.program,
                show(least)
            )),
        }
    }

    fn ask(&self, flag: &str) -> Option<Vec<u64>> {
        let mut command = Command::new(&self.program);
        command.arg(flag);
        let (status, said) = ask(command)?;
        status.success().then(|| first_version(&said)).flatten()
    }
}

/// Runs a program and returns its exit status and output. Returns `None` if the program does not
/// start or times out.
pub fn ask(command: Command) -> Option<(ExitStatus, String)> {
    let directory = tempfile::tempdir().ok()?;
    let log = directory.path().join("version");
    let mut child = Child::start_logged(command, &log).ok()?;
    let status = child.wait(PATIENCE).ok()??;
    let said = std::fs::read(&log).ok()?;
    Some((status, String::from_utf8_lossy(&said).into_owned()))
}

/// Returns the Debian package that contains a program, if known.
fn package(program: &str) -> Option<&str> {
    let other = PACKAGES.iter().find(|(name, _)| *name == program);
    let own = OWN_PACKAGE.contains(&program).then_some(program);
    other.map(|(_, package)| *package).or(own)
}

fn on_path(program: &str) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let runs = |path: &Path| {
        path.metadata()
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return runs(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| runs(&directory.join(program)))
}

fn version(text: &str) -> Option<Vec<u64>> {
    text.split('.').map(|part| part.parse().ok()).collect()
}

/// Returns the parts of the first version number in a program's output, such as 21.0.4 in `openjdk
/// 21.0.4 2024`. Up to version 8, Java prints a leading 1, such as 1.8 for Java 8.
///
/// Ignores color sequences, because `mvn` prints them even to a file. Also ignores the lines that
/// the JVM prints about options from the environment.
fn first_version(said: &str) -> Option<Vec<u64>> {
    let plain = without_colors(said);
    let lines = plain.lines().filter(|line| !line.contains("Picked up "));
    let text = lines.collect::<Vec<_>>().join("\n");
    let number = Regex::new("(?:^|[^0-9A-Za-z]|v)([0-9][0-9.]*)").ok()?;
    let number = number.captures(&text)?.get(1)?;
    let found = version(number.as_str().trim_end_matches('.'))?;
    match found[..] {
        [1, java, ..] if text[..number.start()].ends_with("version \"") => Some(vec![java]),
        _ => Some(found),
    }
}

fn show(version: &[u64]) -> String {
    let parts: Vec<String> = version.iter().map(u64::to_string).collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn words(text: &str) -> Result<CommandWords, String> {
        text.to_owned().try_into()
    }

    #[test]
    fn fills_known_placeholders_only() {
        let mut filler = Filler::default();
        filler.set("port", "8080");
        let filled = filler.fill("events { } listen {port}; {PORT} {porta} {{port}} {");
        assert_eq!(filled, "events { } listen 8080; {PORT} {porta} {8080} {");
    }

    #[test]
    fn refuses_unknown_placeholders() {
        let check = |text: &str| words(text).unwrap().check(&["port", "run"]);
        assert_eq!(check("run {port} ${HOME}"), Ok(()));
        assert_eq!(
            check("run {prot}"),
            Err("unknown placeholder {prot}; did you mean \"port\"?".to_owned())
        );
    }

    #[test]
    fn splits_commands() {
        let split = words("sh -c 'a {port}' \"b c\"").unwrap();
        assert_eq!(*split, ["sh", "-c", "a {port}", "b c"]);
        assert!(words("a 'b").unwrap_err().contains("quote"));
        assert!(words(" ").unwrap_err().contains("empty"));
    }

    proptest! {
        #[test]
        fn accepts_any_text(text in "\\PC{0,20}") {
            let _ = words(&text);
            prop_assert_eq!(Filler::default().fill(&text), text);
        }
    }
}

#[cfg(test)]
mod need_tests {
    use super::*;

    fn need(text: &str) -> Result<Need, String> {
        text.to_owned().try_into()
    }

    #[test]
    fn parses_requirements() {
        for (text, program, least) in [
            ("java >= 17", "java", Some(vec![17])),
            ("mvn", "mvn", None),
            ("g++ >= 13.2", "g++", Some(vec![13, 2])),
        ] {
            let need = need(text).unwrap();
            assert_eq!((need.program.as_str(), need.least), (program, least));
        }
        for bad in ["", ">= 17", "java >= new", "rm -rf", "java >="] {
            assert!(need(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn finds_versions_in_output() {
        for (said, version) in [
            ("openjdk version \"21.0.4\" 2024-07-16", vec![21, 0, 4]),
            ("java version \"1.8.0_292\"", vec![8]),
            ("nginx version: nginx/1.22.1", vec![1, 22, 1]),
            ("v20.1.0\n", vec![20, 1, 0]),
            ("Python 3.12.1", vec![3, 12, 1]),
            ("openjdk version \"1.8.0_292\"\n", vec![8]),
            (
                "openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)\n",
                vec![17, 0, 15],
            ),
            (
                "Picked up JAVA_TOOL_OPTIONS: -Dthreads=4\nopenjdk 17.0.15 2025-04-15\n",
                vec![17, 0, 15],
            ),
            (
                "\x1b[1mApache Maven 3.8.7\x1b[m\nMaven home: /usr/share/maven\nJava version: 17.0.15, vendor: Debian\n",
                vec![3, 8, 7],
            ),
        ] {
            assert_eq!(first_version(said), Some(version), "{said}");
        }
        for none in ["no number", "", "\x1b[1m", "\x1b[12"] {
            assert_eq!(first_version(none), None, "{none:?}");
        }
    }

    #[test]
    fn names_missing_programs() {
        let missing = |text: &str| need(text).unwrap().missing();
        assert_eq!(missing("sh"), None);
        let text = missing("no-such-program-here").unwrap();
        assert!(
            text.contains("no-such-program-here is not installed"),
            "{text}"
        );
        assert!(!text.contains("Debian"), "{text}");
        let text = missing("cargo >= 9999").unwrap();
        assert!(text.contains("too old"), "{text}");
        assert_eq!(missing("cargo >= 1"), None);
    }

    #[test]
    fn names_debian_packages() {
        assert_eq!(package("mvn"), Some("maven"));
        assert_eq!(package("nginx"), Some("nginx"));
        assert_eq!(package("a-server-of-mine"), None);
    }

    /// Uses the host's Java and Maven, if they are installed.
    #[test]
    fn checks_installed_java_and_maven() {
        for (enough, too_much) in [("java >= 8", "java >= 1000"), ("mvn >= 3", "mvn >= 1000")] {
            let missing = |text: &str| need(text).unwrap().missing();
            match missing(enough) {
                None => assert!(missing(too_much).unwrap().contains("too old")),
                Some(what) => assert!(what.contains("on Debian: apt-get install "), "{what}"),
            }
        }
    }
}
