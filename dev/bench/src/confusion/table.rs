//! Suites of cases. Reads the tables in `cases/`, and writes cases as experiments for `floodmark
//! run`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use floodmark_plan::FileError;
use floodmark_plan::toml_file::{Located, TomlFile};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::judging::{CONTROL, FAULT, family, hash};
use crate::bench::{self, Failure};

/// A suite of cases: our own cases, or a round of third-party cases.
#[derive(Debug, PartialEq, Eq)]
pub struct Suite {
    /// Name of the suite, and of the directory with its results.
    pub name: &'static str,
    help: &'static str,
    /// Heading of the section in `docs/accuracy.md`; empty for our own cases, which come first.
    pub heading: &'static str,
    /// Families of servers that are set aside: those whose names have the smallest SHA-256 hashes.
    pub set_aside: &'static [&'static str],
}

/// All suites. The key `round` of a case is an index into this array.
pub static SUITES: [Suite; 11] = [
    Suite {
        name: "own",
        help: "Servers written for the cases",
        heading: "",
        set_aside: &[],
    },
    Suite {
        name: "third-party",
        help: "Servers from package registries",
        heading: "# Servers from package registries\n",
        set_aside: &["php", "go", "tomcat", "node", "wsgi"],
    },
    Suite {
        name: "third-party-2",
        help: "Second batch of servers from package registries",
        heading: "# More servers from package registries\n",
        set_aside: &["bun", "varnish", "tornado"],
    },
    Suite {
        name: "third-party-3",
        help: "Third batch of servers from package registries",
        heading: "# Third batch of servers from package registries\n",
        set_aside: &["twisted", "squid", "cheroot"],
    },
    Suite {
        name: "third-party-4",
        help: "Fourth batch of servers from package registries",
        heading: "# Fourth batch of servers from package registries\n",
        set_aside: &["granian", "sanic", "poco"],
    },
    Suite {
        name: "third-party-5",
        help: "Fifth batch of servers from package registries",
        heading: "# Fifth batch of servers from package registries\n",
        set_aside: &["reactor", "microhttpd", "aiohttp", "ktor", "crystal"],
    },
    Suite {
        name: "third-party-6",
        help: "Sixth batch of servers from package registries",
        heading: "# Sixth batch of servers from package registries\n",
        set_aside: &["jdkhttp", "helidon", "micronaut", "httplib", "civetweb"],
    },
    Suite {
        name: "third-party-7",
        help: "Seventh batch of servers from package registries",
        heading: "# Seventh batch of servers from package registries\n",
        set_aside: &["thin", "pistache", "grizzly", "django"],
    },
    Suite {
        name: "third-party-8",
        help: "Eighth batch of servers from package registries",
        heading: "# Eighth batch of servers from package registries\n",
        set_aside: &["hapi", "cpprest", "daphne", "envoy"],
    },
    Suite {
        name: "third-party-9",
        help: "Ninth batch of servers from package registries",
        heading: "# Ninth batch of servers from package registries\n",
        set_aside: &["echo", "beast", "snap", "poem"],
    },
    Suite {
        name: "http2",
        help: "Servers from package registries, over HTTP/2",
        heading: "# Servers over HTTP/2\n",
        set_aside: &[],
    },
];

impl Default for &'static Suite {
    fn default() -> Self {
        &SUITES[0]
    }
}

impl Suite {
    /// Returns the value parser for the flag `--suite`.
    pub fn parser() -> impl TypedValueParser<Value = &'static Suite> {
        let values = SUITES.each_ref();
        let values = values.map(|suite| PossibleValue::new(suite.name).help(suite.help));
        PossibleValuesParser::new(values).map(|name| {
            let mut suites = SUITES.iter();
            suites.find(|suite| suite.name == name).unwrap_or_default()
        })
    }

    /// Returns whether the suite contains our own cases.
    pub fn is_own(&self) -> bool {
        *self == SUITES[0]
    }

    /// Returns the directory with the suite's results. `results` is the directory for all suites.
    pub fn within(&self, results: &Path) -> PathBuf {
        if self.is_own() {
            results.to_owned()
        } else {
            results.join(self.name)
        }
    }

    /// Returns whether a case is set aside. A hash of the name selects about one in five of our own
    /// cases; `set_aside` selects families of third-party cases.
    pub fn sets_aside(&self, name: &str) -> bool {
        if self.is_own() {
            hash(name).is_multiple_of(5)
        } else {
            self.set_aside.contains(&family(name))
        }
    }
}

/// Directories that experiments refer to, relative to the repository's root.
const LINKS: [&str; 5] = [
    "cases/servers",
    "cases/systems",
    "clients",
    "stores",
    "systems",
];

/// Placeholder for the server's command in the arguments of a trial.
const COMMAND: &str = "{command}";

/// Keys of a section in an experiment. `floodmark run` checks them.
type SectionKeys = BTreeMap<String, Json>;

/// The cases of one server. The keys of a row replace the defaults at the top of the table.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CaseTable {
    /// Index of the suite in [`SUITES`]. Default: 0.
    #[serde(default)]
    round: usize,
    server: SectionKeys,
    store: Option<SectionKeys>,
    load: SectionKeys,
    place: SectionKeys,
    case: Vec<Located<CaseRow>>,
}

/// A row of a table, `[[case]]`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct CaseRow {
    name: String,
    question: String,
    /// Index of the suite in [`SUITES`].
    round: Option<usize>,
    /// Keys that define the server in both trials.
    server: Option<SectionKeys>,
    /// Store of both trials.
    store: Option<SectionKeys>,
    load: Option<SectionKeys>,
    place: Option<SectionKeys>,
    /// Change to the server in the `control` trial; absent if the fault is not injected.
    control: Option<ServerChange>,
    /// Further keys of the `control` trial.
    #[serde(default)]
    control_trial: SectionKeys,
    /// Change to the server in the `fault` trial. Default: no change.
    fault: Option<ServerChange>,
    /// Further keys of the `fault` trial.
    #[serde(default)]
    fault_trial: SectionKeys,
    cause: Vec<String>,
    #[serde(default)]
    also: Vec<String>,
    #[serde(default)]
    path: Vec<String>,
}

/// How a trial changes the server.
#[derive(Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected arguments in quotes, or settings in braces"
)]
enum ServerChange {
    /// Arguments to append to the server's command. If they contain [`COMMAND`], they replace the
    /// whole command.
    Arguments(String),
    /// Settings of the system.
    Setting(SectionKeys),
}

impl ServerChange {
    /// Changes the server of a trial.
    fn apply(&self, trial: &mut SectionKeys) -> Result<(), &'static str> {
        let (key, value) = match self {
            ServerChange::Setting(setting) => ("setting", json!(setting)),
            ServerChange::Arguments(arguments) => {
                let command = trial
                    .get("command")
                    .and_then(Json::as_str)
                    .ok_or("the server has no command; write settings, such as { threads = 8 }")?;
                let command = if arguments.contains(COMMAND) {
                    arguments.replace(COMMAND, command)
                } else {
                    format!("{command} {arguments}").trim_end().to_owned()
                };
                ("command", json!(command))
            }
        };
        trial.insert(key.to_owned(), value);
        Ok(())
    }
}

/// A case.
#[derive(Debug)]
pub struct FaultCase {
    /// Name of the case.
    pub name: String,
    /// Suite of the case.
    pub suite: &'static Suite,
    /// Row of the case, as `file:line`.
    place: String,
    /// Content of the experiment.
    experiment: String,
    /// IDs of the expected causes.
    causes: Vec<String>,
}

/// Returns the IDs of the expected causes of each case in the repository `root`.
pub fn causes(root: &Path) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let cases = read(root)?.into_iter();
    Ok(cases.map(|case| (case.name, case.causes)).collect())
}

/// Reads all tables in the repository `root`. Returns the cases in alphabetical order.
///
/// # Errors
/// A table cannot be read or is invalid, or two cases have the same name.
pub fn read(root: &Path) -> Result<Vec<FaultCase>, Failure> {
    let directory = root.join("cases");
    let mut cases = Vec::new();
    for name in bench::names(&directory)? {
        if name.ends_with(".toml") {
            cases.extend(read_table(&directory.join(name))?);
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    match cases.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some([a, b]) => Err(format!(
            "{}: the case at {} is also named \"{}\"; choose another name",
            b.place, a.place, b.name
        )
        .into()),
        _ => Ok(cases),
    }
}

fn read_table(path: &Path) -> Result<Vec<FaultCase>, FileError> {
    let file = TomlFile::read(path)?;
    let table: CaseTable = file.parse()?;
    let case = |row: &Located<CaseRow>| {
        let (suite, experiment) =
            expand(&table, row).map_err(|what| file.error(&row.span(), what))?;
        Ok(FaultCase {
            name: row.name.clone(),
            suite,
            place: file.place(&row.span()),
            experiment,
            causes: row.cause.clone(),
        })
    };
    table.case.iter().map(case).collect()
}

/// Returns the suite and the experiment of a row.
fn expand(table: &CaseTable, row: &CaseRow) -> Result<(&'static Suite, String), String> {
    let round = row.round.unwrap_or(table.round);
    let suite = SUITES
        .get(round)
        .ok_or_else(|| format!("round: expected an integer from 0 to {}", SUITES.len() - 1))?;
    let server = row.server.as_ref().unwrap_or(&table.server);
    let store = row.store.as_ref().or(table.store.as_ref());
    let trial = |name: &str, change: Option<&ServerChange>, keys: &SectionKeys| {
        let mut trial = server.clone();
        trial.insert("name".to_owned(), json!(name));
        trial.extend(store.map(|store| ("store".to_owned(), json!(store))));
        if let Some(change) = change {
            change
                .apply(&mut trial)
                .map_err(|what| format!("{name}: {what}"))?;
        }
        trial.extend(keys.clone());
        Ok::<_, String>(trial)
    };
    let mut trials = Vec::new();
    if row.control.is_some() {
        trials.push(trial(CONTROL, row.control.as_ref(), &row.control_trial)?);
    } else if !row.control_trial.is_empty() {
        return Err("`control-trial` requires `control`; add control = {}".to_owned());
    }
    trials.push(trial(FAULT, row.fault.as_ref(), &row.fault_trial)?);
    let experiment = json!({
        "question": row.question,
        "load": row.load.as_ref().unwrap_or(&table.load),
        "place": row.place.as_ref().unwrap_or(&table.place),
        "trial": trials,
        "expect": { "cause": row.cause, "also": row.also, "path": row.path },
    });
    let experiment = toml::to_string(&experiment).map_err(|error| error.to_string())?;
    Ok((suite, experiment))
}

impl FaultCase {
    /// Writes the experiment to a file in `directory/cases`, and creates links in `directory` to
    /// the repository's directories in `LINKS`. Returns the path of the file. If its content has
    /// not changed, the file keeps its modification time.
    pub fn write(&self, root: &Path, directory: &Path) -> Result<PathBuf, Failure> {
        fs::create_dir_all(directory.join("cases"))?;
        for name in LINKS {
            link(&root.join(name), &directory.join(name))?;
        }
        let file = directory.join("cases").join(format!("{}.toml", self.name));
        if fs::read_to_string(&file).is_ok_and(|text| text == self.experiment) {
            return Ok(file);
        }
        bench::write(&file, &self.experiment)?;
        Ok(file)
    }
}

/// Makes the symbolic link `link` point to `target`, unless it already does.
fn link(target: &Path, link: &Path) -> io::Result<()> {
    match fs::read_link(link) {
        Ok(old) if old == target => return Ok(()),
        Ok(_) => fs::remove_file(link)?,
        Err(_) => {}
    }
    symlink(target, link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_lab::manifest::Experiment;

    #[test]
    fn every_case_is_an_experiment() {
        let root = bench::repository().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let cases = read(&root).unwrap();
        for case in &cases {
            let file = case.write(&root, directory.path()).unwrap();
            let experiment =
                Experiment::read(&file).unwrap_or_else(|error| panic!("{}: {error}", case.place));
            let asked = experiment.description;
            assert_eq!(asked.name, case.name);
            assert!(!asked.expected_causes.is_empty(), "{}", case.place);
            let has_path = !asked.expected_path.is_empty();
            assert_eq!(has_path, !case.suite.is_own(), "{}", case.place);
        }
        for suite in &SUITES {
            assert!(
                cases.iter().any(|case| case.suite == suite),
                "{}",
                suite.name
            );
        }
    }

    const TABLE: &str = r#"round = 2
server = { command = "serve {port}", ready = "GET /" }
load = { connections = 8 }
place = { processes = 3 }

[[case]]
name = "a"
question = "Why?"
load = { connections = 2 }
control = ""
fault = "exec {command} --slow"
fault-trial = { load = { rate = 5 } }
cause = ["gc"]
"#;

    fn read_text(text: &str) -> Result<Vec<FaultCase>, String> {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("cases")).unwrap();
        fs::write(root.path().join("cases/x.toml"), text).unwrap();
        read(root.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_replace_defaults() {
        let cases = read_text(TABLE).unwrap();
        let [case] = &cases[..] else {
            panic!("{cases:?}")
        };
        assert_eq!((&*case.name, case.suite), ("a", &SUITES[2]));
        let experiment: toml::Table = case.experiment.parse().unwrap();
        let expected: toml::Table = r#"
            question = "Why?"
            load = { connections = 2 }
            place = { processes = 3 }
            expect = { cause = ["gc"], also = [], path = [] }
            [[trial]]
            name = "control"
            command = "serve {port}"
            ready = "GET /"
            [[trial]]
            name = "fault"
            command = "exec serve {port} --slow"
            ready = "GET /"
            load = { rate = 5 }
        "#
        .parse()
        .unwrap();
        assert_eq!(experiment, expected);
    }

    #[test]
    fn rejects_wrong_tables() {
        for (from, to, what) in [
            (
                "cause =",
                "casue =",
                "13: unknown key \"casue\" in [case]; did you mean \"cause\"?",
            ),
            (
                "round = 2",
                "round = 11",
                "6: round: expected an integer from 0 to 10",
            ),
            (
                "control = \"\"",
                "control-trial = { ready = \"GET /\" }",
                "6: `control-trial` requires `control`",
            ),
            (
                "command = \"serve {port}\"",
                "system = \"nginx\"",
                "6: control: the server has no command",
            ),
            (
                "\"exec {command} --slow\"",
                "3",
                "11: fault: expected arguments in quotes, or settings in braces",
            ),
        ] {
            let error = read_text(&TABLE.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(&format!("x.toml:{what}")), "{error}");
        }
        let row = TABLE.split_once("[[case]]").unwrap().1;
        let error = read_text(&format!("{TABLE}\n[[case]]{row}")).unwrap_err();
        assert!(error.contains("x.toml:6 is also named \"a\""), "{error}");
    }
}
