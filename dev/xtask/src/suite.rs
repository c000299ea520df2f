//! `cargo xtask test`: runs every test step, then prints one table.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::command;
use crate::error::TaskError;
use crate::pages::{self, Mode};
use crate::passes::Passes;
use crate::test_programs::DevBuild;
use crate::tools::{
    self, CPLUSPLUS, HAPROXY, JAVA, MAVEN, NGINX, NODE, NPM, PIP, PYTHON, SLURMCTLD, SLURMD, SSHD,
    SystemTool, XZ,
};
use crate::workspace::Workspace;
use crate::{bench, deps, fuzz, truth};

/// Time per fuzz target, in seconds. `cargo xtask fuzz` takes longer by default.
const FUZZ_SECONDS: u32 = 20;

/// Generated files are only checked.
const CHECK: Mode = Mode { check: true };

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub struct Selection {
    /// Run only these steps (repeatable)
    #[arg(long, value_name = "STEP", value_enum)]
    only: Vec<SuiteStep>,
    /// Skip these steps (repeatable)
    #[arg(long, value_name = "STEP", value_enum, conflicts_with = "only")]
    skip: Vec<SuiteStep>,
    /// Also run checks whose input has not changed since they last passed
    #[arg(long)]
    fresh: bool,
}

/// A step of the suite. Steps run in the declared order, and steps that fail quickly come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SuiteStep {
    /// Find or install programs that other steps need
    Tools,
    /// Check the formatting with cargo fmt --check
    Fmt,
    /// Check that dependencies follow ARCHITECTURE.md
    Deps,
    /// Build all crates, tests and programs with clippy's lints, and deny warnings
    Clippy,
    /// Run the tests of the workspace
    Tests,
    /// Judge and render the stored results, and show differences from the expected output
    Golden,
    /// Check the JSON Schemas in docs/ against the types
    Schema,
    /// Check docs/cli.md against the help of every command
    Usage,
    /// Check every system in systems/ against the contracts of its workloads
    Systems,
    /// Compare floodmark with the known-truth server
    Truth,
    /// Run 5 crash rounds each of the native dispatcher and the native scoring server, and crash
    /// rounds of servers that must lose data
    Crash,
    /// Measure and judge 11 of our own cases (at least 9 verdicts must be right) and 10 third-party
    /// cases (at least 8)
    Causes,
    /// Run the fuzz targets for a limited time
    Fuzz,
}

impl SuiteStep {
    /// Returns the name of the step, as accepted by the flags.
    fn name(self) -> String {
        let value = self.to_possible_value().expect("no step is hidden");
        value.get_name().to_owned()
    }

    /// Returns the programs that the step needs, besides Rust's tools.
    fn tools(self) -> &'static [SystemTool] {
        match self {
            SuiteStep::Tests => &[PYTHON, SSHD, SLURMCTLD, SLURMD],
            SuiteStep::Crash => &[PYTHON],
            SuiteStep::Systems => &[JAVA, MAVEN, NGINX, XZ],
            SuiteStep::Causes => &[PYTHON, PIP, NODE, NPM, JAVA, NGINX, HAPROXY],
            SuiteStep::Fuzz => &[CPLUSPLUS],
            _ => &[],
        }
    }

    /// Runs the step, and returns notes, such as each ignored part and the reason.
    fn run(
        self,
        workspace: &Workspace,
        selection: &Selection,
        passes: &Passes,
    ) -> Result<Vec<String>, TaskError> {
        let cargo = |words: &str| {
            let mut cargo = command::cargo();
            cargo.args(words.split(' ')).current_dir(&workspace.root);
            command::run(&mut cargo).map(drop)
        };
        let dev_build = || DevBuild::run(workspace);
        let bench = || dev_build()?.program("floodmark-bench");
        let floodmark = || dev_build()?.program("floodmark");
        let measure = |run: &dyn Fn() -> Result<Vec<String>, TaskError>| {
            passes.run(&self.name(), &[], is_measured, run)
        };
        let no_notes = |()| Vec::new();
        match self {
            SuiteStep::Tools => {
                tools::provide(selection.steps().flat_map(SuiteStep::tools)).map(no_notes)
            }
            SuiteStep::Fmt => {
                let fuzz = format!("fmt --check --manifest-path {}", fuzz::MANIFEST);
                TaskError::of_all(["fmt --all --check", &fuzz].map(cargo)).map(no_notes)
            }
            SuiteStep::Deps => deps::check(workspace).map(no_notes),
            SuiteStep::Clippy => dev_build()?.check_warnings().map(no_notes),
            SuiteStep::Tests => dev_build()?.run_tests(workspace, passes),
            SuiteStep::Golden => bench::step(workspace, &bench()?, &["golden"]),
            SuiteStep::Schema => pages::schema(workspace, &CHECK, &bench()?).map(no_notes),
            SuiteStep::Usage => pages::usage(workspace, &CHECK, &floodmark()?).map(no_notes),
            SuiteStep::Systems => measure(&|| bench::step(workspace, &bench()?, &["systems"])),
            SuiteStep::Truth => {
                measure(&|| truth::run(workspace, &floodmark()?, truth::Cases::Suite, None))
            }
            SuiteStep::Crash => {
                let floodmark = floodmark()?;
                let run = || crash(workspace, &floodmark).map(no_notes);
                passes.run(&self.name(), slice::from_ref(&floodmark), |_| true, run)
            }
            SuiteStep::Causes => measure(&|| {
                let floodmark = floodmark()?;
                let flags = ["causes", "--floodmark"].map(OsStr::new);
                let flags = [flags[0], flags[1], floodmark.as_os_str()];
                bench::step(workspace, &bench()?, &flags)
            }),
            SuiteStep::Fuzz => measure(&|| fuzz::run(workspace, FUZZ_SECONDS).map(no_notes)),
        }
    }
}

/// Returns whether a file can change what floodmark measures.
///
/// The crate `report` renders records but measures nothing, and no crate that produces a record
/// depends on it. The steps that judge only records therefore ignore it. The step `golden` and the
/// tests check `report`. See decision 0049.
fn is_measured(file: &str) -> bool {
    !file.starts_with("crates/report/") && !file.starts_with("docs/") && !file.ends_with(".md")
}

impl Selection {
    fn steps(&self) -> impl Iterator<Item = SuiteStep> {
        let steps = SuiteStep::value_variants().iter().copied();
        steps.filter(|&step| self.includes(step))
    }

    fn includes(&self, step: SuiteStep) -> bool {
        (self.only.is_empty() || self.only.contains(&step)) && !self.skip.contains(&step)
    }
}

/// Runs several crash experiments in parallel, some with a limited number of rounds.
fn crash(workspace: &Workspace, floodmark: &Path) -> Result<(), TaskError> {
    let experiments = [
        "crash-dispatcher --rounds 5",
        "crash-scoring --rounds 5",
        "crash-scoring-memory",
        "crash-controls",
    ];
    let run = |experiment: &str| {
        let mut run = Command::new(floodmark);
        run.arg("run").args(experiment.split(' '));
        command::run_at_once(run.current_dir(&workspace.root), "").map(drop)
    };
    TaskError::of_all(thread::scope(|scope| {
        let runs = experiments.map(|experiment| scope.spawn(move || run(experiment)));
        runs.map(|run| run.join().expect("an experiment never panics"))
    }))
}

/// Result of a step and its notes.
struct StepOutcome {
    step: SuiteStep,
    result: Result<Vec<String>, TaskError>,
    took: Duration,
}

/// Runs the selected steps, even after a failure. Returns whether all steps passed.
pub fn run(workspace: &Workspace, selection: &Selection) -> bool {
    let passes = Passes::new(workspace, selection.fresh);
    let mut outcomes = Vec::new();
    for step in selection.steps() {
        println!("\n== {}", step.name());
        let begin = Instant::now();
        let result = step.run(workspace, selection, &passes);
        if let Err(error) = &result {
            println!("{error}");
        }
        outcomes.push(StepOutcome {
            step,
            result,
            took: begin.elapsed(),
        });
    }
    // Failures are repeated near the end of the log, where readers start. The table comes last.
    println!("{}", failures(&outcomes));
    println!("\n{}", table(&outcomes));
    let failed = outcomes.iter().filter(|o| o.result.is_err()).count();
    println!("steps: {} passed, {failed} failed", outcomes.len() - failed);
    failed == 0
}

/// Lists each failed step with its errors and the command that runs the step again.
fn failures(outcomes: &[StepOutcome]) -> String {
    let mut text = String::new();
    for StepOutcome { step, result, .. } in outcomes {
        if let Err(error) = result {
            let name = step.name();
            let digest = error.digest().join("\n");
            text.push_str(&format!(
                "\n== {name} failed\n{digest}\nrun again: cargo xtask test --only {name}\n"
            ));
        }
    }
    text
}

/// Returns a table with the name, result, duration in seconds and notes of each step.
fn table(outcomes: &[StepOutcome]) -> String {
    let mut table = format!("{:<8} {:<7} {:>7}\n", "step", "result", "seconds");
    for outcome in outcomes {
        let (name, seconds) = (outcome.step.name(), outcome.took.as_secs_f64());
        let (result, notes) = match &outcome.result {
            Ok(notes) => ("passed", &notes[..]),
            Err(_) => ("FAILED", &[][..]),
        };
        table.push_str(&format!("{name:<8} {result:<7} {seconds:>7.1}\n"));
        for note in notes {
            table.push_str(&format!("         {note}\n"));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_and_skip_select_steps() {
        let selection = |only: &[SuiteStep], skip: &[SuiteStep]| Selection {
            only: only.to_vec(),
            skip: skip.to_vec(),
            fresh: false,
        };
        let all = selection(&[], &[]);
        assert_eq!(all.steps().count(), SuiteStep::value_variants().len());
        let only = selection(&[SuiteStep::Fmt, SuiteStep::Deps], &[]);
        assert!(only.includes(SuiteStep::Deps) && !only.includes(SuiteStep::Fuzz));
        let skip = selection(&[], &[SuiteStep::Fuzz]);
        assert!(skip.includes(SuiteStep::Deps) && !skip.includes(SuiteStep::Fuzz));
    }

    #[test]
    fn shows_failed_and_ignored() {
        let outcome = |step, result| StepOutcome {
            step,
            result,
            took: Duration::from_millis(1234),
        };
        let found = || TaskError::Found(vec!["it is wrong".to_owned()]);
        let outcomes = [
            outcome(SuiteStep::Fmt, Ok(Vec::new())),
            outcome(
                SuiteStep::Tests,
                Err(TaskError::Several(vec![found(), found()])),
            ),
            outcome(
                SuiteStep::Truth,
                Ok(vec!["ignored uring: forbidden".to_owned()]),
            ),
        ];
        assert_eq!(
            failures(&outcomes),
            "\n== tests failed\nit is wrong\nit is wrong\nrun again: cargo xtask test --only tests\n"
        );
        let table = table(&outcomes);
        let lines: Vec<&str> = table.lines().skip(1).collect();
        let expected = [
            "fmt      passed      1.2",
            "tests    FAILED      1.2",
            "truth    passed      1.2",
            "         ignored uring: forbidden",
        ];
        assert_eq!(lines, expected);
    }
}
