//! The steps `clippy` and `tests`: one build of all crates, tests and programs with clippy's lints,
//! and a run of every test program of that build.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use serde::Deserialize;

use crate::command;
use crate::error::{TaskError, none_found};
use crate::passes::{Passes, UNCHANGED};
use crate::workspace::Workspace;

/// Number of test programs that run at the same time.
const LANES: usize = 2;

/// Environment variable that sets the number of tests per program that run at the same time.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// Root source file of the CLI tests.
const COMMAND_TESTS: &str = "crates/floodmark/tests/cli/main.rs";

/// CLI tests that fail on a busy host, because they judge what limits a server, or must finish a
/// search (for a capacity or a setting) within a time limit. They run after all test programs that
/// tolerate a busy host. Each text selects the tests whose names contain it.
const QUIET: [&str; 6] = [
    "capacity::",
    "death::a_killed_proof",
    "run::gate::",
    "run::live_view::",
    "run::proving::",
    "run::tuning::",
];

/// Another test program that fails on a busy host, because it compares loads.
const QUIET_PROGRAM: &str = "servers/serve/tests/bars_overload.rs";

/// Directories of the workspace's crates.
const CRATES: [&str; 3] = ["crates/", "dev/", "servers/"];

/// A dev-profile build with `clippy-driver`, which compiles like rustc and also reports lints.
///
/// `cargo clippy` would type-check all crates a second time, which takes three minutes.
#[derive(Debug)]
pub struct DevBuild {
    warnings: Vec<String>,
    artifacts: Vec<Artifact>,
}

/// A cargo message about a built target.
#[derive(Debug, Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: ArtifactTarget,
    profile: ArtifactProfile,
    /// Path of the program, if the target is a program.
    executable: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct ArtifactTarget {
    name: String,
    src_path: PathBuf,
}

#[derive(Debug, Deserialize)]
struct ArtifactProfile {
    /// Whether the program is a test harness.
    test: bool,
}

/// A test program.
#[derive(Debug, Clone)]
struct TestProgram<'a> {
    /// Source file of the program, relative to the repository's root.
    name: String,
    directory: &'a Path,
    executable: &'a Path,
    /// Other programs of the crate, which the tests may start.
    programs: Vec<PathBuf>,
    /// Arguments that select tests.
    selection: Vec<&'static str>,
}

impl DevBuild {
    /// Builds all targets.
    pub fn run(workspace: &Workspace) -> Result<Self, TaskError> {
        let mut build = cargo(workspace);
        build.args(["build", "--workspace", "--all-targets"]);
        build.arg("--message-format=json-render-diagnostics");
        let (output, messages) = command::run_for_stdout(&mut build)?;
        // Ignore messages of other kinds, which lack the fields of an artifact.
        let artifacts = messages.lines().flat_map(serde_json::from_str).collect();
        Ok(DevBuild {
            warnings: warnings(&output),
            artifacts,
        })
    }

    /// Fails if the compiler or clippy reported a warning.
    pub fn check_warnings(self) -> Result<(), TaskError> {
        none_found(self.warnings)
    }

    /// Returns the path of a program of the workspace.
    pub fn program(&self, name: &str) -> Result<PathBuf, TaskError> {
        let is_program =
            |artifact: &&Artifact| !artifact.profile.test && artifact.target.name == name;
        let mut programs = self.artifacts.iter().filter(is_program);
        let program = programs.find_map(|artifact| artifact.executable.clone());
        program.ok_or_else(|| TaskError::found(format!("cargo built no program `{name}`")))
    }

    /// Runs the tests that have not passed yet, and returns notes.
    pub fn run_tests(
        &self,
        workspace: &Workspace,
        passes: &Passes,
    ) -> Result<Vec<String>, TaskError> {
        let tests = self.tests(workspace);
        let (quiet, others): (Vec<&TestProgram>, Vec<&TestProgram>) =
            tests.iter().partition(|test| test.is_quiet());
        let mut outcomes = run_lanes(&others, LANES, passes);
        outcomes.extend(run_lanes(&quiet, 1, passes));
        let mut doctests = cargo(workspace);
        doctests.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
        outcomes.push(command::run(&mut doctests).map(|output| command::ignored(&output)));
        let mut notes = Vec::new();
        let results = outcomes.into_iter();
        TaskError::of_all(results.map(|result| result.map(|lines| notes.extend(lines))))?;
        let all_notes = notes.len();
        notes.retain(|note| note != UNCHANGED);
        let unchanged = all_notes - notes.len();
        if unchanged > 0 {
            let all = tests.len();
            notes.push(format!("{unchanged} of {all} test programs: {UNCHANGED}"));
        }
        Ok(notes)
    }

    /// Returns the test programs, sorted by crate. The CLI tests take the longest, so they start
    /// first.
    fn tests(&self, workspace: &Workspace) -> Vec<TestProgram<'_>> {
        let mut programs: BTreeMap<&Path, Vec<PathBuf>> = BTreeMap::new();
        let (tests, others): (Vec<_>, Vec<_>) = self
            .artifacts
            .iter()
            .partition(|artifact| artifact.profile.test);
        for artifact in others {
            let of_crate = programs.entry(&artifact.manifest_path).or_default();
            of_crate.extend(artifact.executable.clone());
        }
        let mut tests: Vec<TestProgram> = tests
            .into_iter()
            .filter_map(|artifact| {
                let manifest = &artifact.manifest_path;
                Some(TestProgram {
                    name: workspace
                        .relative(&artifact.target.src_path)
                        .display()
                        .to_string(),
                    directory: manifest.parent()?,
                    executable: artifact.executable.as_deref()?,
                    programs: programs.get(&**manifest).cloned().unwrap_or_default(),
                    selection: Vec::new(),
                })
            })
            .collect();
        if let Some(command) = tests.iter_mut().find(|test| test.name == COMMAND_TESTS) {
            let quiet = TestProgram {
                name: format!("{COMMAND_TESTS} (quiet)"),
                selection: QUIET.to_vec(),
                ..command.clone()
            };
            command.selection = QUIET.iter().flat_map(|name| ["--skip", name]).collect();
            tests.push(quiet);
        }
        let is_command = |test: &TestProgram| test.name.starts_with("crates/floodmark/");
        tests.sort_by(|a, b| (!is_command(a), &a.name).cmp(&(!is_command(b), &b.name)));
        tests
    }
}

/// Runs test programs, `lanes` at a time.
fn run_lanes(
    tests: &[&TestProgram],
    lanes: usize,
    passes: &Passes,
) -> Vec<Result<Vec<String>, TaskError>> {
    let (queue, outcomes) = (Mutex::new(tests.iter()), Mutex::new(Vec::new()));
    let next = || queue.lock().expect("no lane panics").next();
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(test) = next() {
                    let outcome = test.run(passes);
                    outcomes.lock().expect("no lane panics").push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("no lane panics")
}

impl TestProgram<'_> {
    /// Returns whether this test program must run alone.
    fn is_quiet(&self) -> bool {
        self.selection.as_slice() == QUIET || self.name == QUIET_PROGRAM
    }

    /// Returns the number of tests to run at the same time: a single one if the program needs an
    /// idle host, otherwise one per CPU.
    fn threads(&self) -> usize {
        if self.is_quiet() {
            return 1;
        }
        thread::available_parallelism().map_or(1, usize::from)
    }

    /// Runs the program, unless it has already passed with the same input, and prints its output
    /// when it has ended.
    fn run(&self, passes: &Passes) -> Result<Vec<String>, TaskError> {
        let mut run = Command::new(self.executable);
        run.args(&self.selection)
            .current_dir(self.directory)
            .env("CARGO_MANIFEST_DIR", self.directory);
        if env::var_os(TEST_THREADS).is_none() {
            run.env(TEST_THREADS, self.threads().to_string());
        }
        let mut programs = self.programs.clone();
        programs.push(self.executable.to_owned());
        let reads = |file: &str| self.reads(file);
        passes.run(&self.name, &programs, reads, || {
            let output = command::run_at_once(&mut run, &format!(" # {}", self.name))?;
            Ok(command::ignored(&output))
        })
    }

    /// Returns whether the tests may read a file in the repository. They read neither the crates'
    /// sources, which are part of the programs, nor snapshots of other crates.
    fn reads(&self, file: &str) -> bool {
        let is_in_crate = CRATES.iter().any(|directory| file.starts_with(directory));
        let is_own = self.directory.ends_with(crate_directory(file));
        let is_source = file.ends_with(".rs") || file.ends_with(".snap") && !is_own;
        !(is_in_crate && is_source)
    }
}

/// Returns the first two directories of a path.
fn crate_directory(file: &str) -> &str {
    let mut separators = file.match_indices('/').map(|(at, _)| at);
    separators.nth(1).map_or(file, |at| &file[..at])
}

/// Returns a cargo command that compiles the crates of the workspace with `clippy-driver`, which is
/// in the same directory as cargo.
fn cargo(workspace: &Workspace) -> Command {
    let mut cargo = command::cargo();
    let compiler = Path::new(cargo.get_program()).with_file_name("clippy-driver");
    cargo.env("RUSTC_WORKSPACE_WRAPPER", compiler);
    // Escape sequences would keep `warnings` from finding the warnings in the output.
    cargo.env("CARGO_TERM_COLOR", "never");
    cargo.current_dir(&workspace.root);
    cargo
}

/// Returns each warning in cargo's output, excluding the summary for each crate.
fn warnings(output: &[String]) -> Vec<String> {
    let blocks = output.split(|line| line.is_empty());
    let blocks = blocks.filter_map(|block| {
        let from = block
            .iter()
            .position(|line| line.starts_with("warning: "))?;
        let is_summary = block[from].starts_with("warning: `");
        (!is_summary).then(|| block[from..].join("\n"))
    });
    blocks.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_warnings_in_the_output_of_cargo() {
        let output = "   Compiling a v0.1.0\nwarning: unused variable: `x`\n --> a.rs:1:1\n  |\n\n\
             warning: use of unwrap\n --> b.rs:1:1\n\nwarning: `a` (lib) generated 2 warnings\n    Finished\n";
        let output: Vec<String> = output.lines().map(str::to_owned).collect();
        let expected = [
            "warning: unused variable: `x`\n --> a.rs:1:1\n  |",
            "warning: use of unwrap\n --> b.rs:1:1",
        ];
        assert_eq!(warnings(&output), expected);
    }

    #[test]
    fn reads_everything_except_sources_and_other_snapshots() {
        let test = TestProgram {
            name: "crates/report/src/lib.rs".to_owned(),
            directory: Path::new("/repo/crates/report"),
            executable: Path::new("/repo/target/debug/deps/report-1"),
            programs: Vec::new(),
            selection: Vec::new(),
        };
        assert!(test.reads("systems/axum/src/main.rs"));
        assert!(test.reads("crates/report/src/snapshots/a.snap"));
        assert!(test.reads("crates/floodmark/tests/records/a.json"));
        assert!(!test.reads("crates/live/src/snapshots/a.snap"));
        assert!(!test.reads("crates/report/src/lib.rs"));
    }
}
