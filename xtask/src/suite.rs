//! `cargo xtask test`: every step that tests something, one after the other, and one table at the end.

use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use crate::command;
use crate::error::Error;
use crate::page::Mode;
use crate::tools::{self, CPLUSPLUS, JAVA, MAVEN, NGINX, NODE, PYTHON, Tool, XZ};
use crate::workspace::Workspace;
use crate::{confusion, deps, features, fuzz, release, schema, systems, truth, usage};

/// Time that the suite gives each fuzz target, in seconds; a longer search is `cargo xtask fuzz`.
const FUZZ_SECONDS: u32 = 20;

/// Which steps to run.
#[derive(Debug, Args)]
pub struct Selection {
    /// Run these steps alone (may be repeated).
    #[arg(long, value_name = "STEP", value_enum)]
    only: Vec<Step>,
    /// Leave these steps out (may be repeated).
    #[arg(long, value_name = "STEP", value_enum, conflicts_with = "only")]
    skip: Vec<Step>,
}

/// A step of the suite, in the order in which they run: what fails quickly comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Step {
    /// Programs that the other steps need, installed where possible.
    Tools,
    /// cargo fmt --check.
    Fmt,
    /// The crates' dependencies against ARCHITECTURE.md, and xtask's features against the tests'.
    Deps,
    /// The JSON Schemas in docs/ against the record's types and the manifests' keys.
    Schema,
    /// cargo clippy, warnings denied.
    Clippy,
    /// cargo test of the whole workspace.
    Tests,
    /// The release build of floodmark.
    Build,
    /// The README's usage blocks against the real output.
    Usage,
    /// Every system of systems/ against the contracts of its workloads.
    Systems,
    /// floodmark against the known-truth server.
    Truth,
    /// Ten servers with one fault each, or none: is the cause judged right?
    Causes,
    /// The fuzz targets, for a bounded time.
    Fuzz,
}

impl Step {
    /// As its flag calls it.
    fn name(self) -> String {
        let value = self
            .to_possible_value()
            .expect("no step is hidden from the flags");
        value.get_name().to_owned()
    }

    /// What it runs beside Rust's own tools.
    fn needs(self) -> &'static [Tool] {
        match self {
            Step::Tests => &[PYTHON],
            Step::Systems => &[JAVA, MAVEN, NGINX, XZ],
            Step::Causes => &[PYTHON, NODE, JAVA, NGINX],
            Step::Fuzz => &[CPLUSPLUS],
            _ => &[],
        }
    }

    /// Runs it; what of it was left out here, and why.
    fn run(self, workspace: &Workspace, selection: &Selection) -> Result<Option<String>, Error> {
        let cargo = |arguments: &[&str]| {
            command::run(
                command::cargo()
                    .args(arguments)
                    .current_dir(&workspace.root),
            )
        };
        let done = match self {
            Step::Tools => tools::provide(selection.steps().flat_map(Step::needs)),
            Step::Fmt => {
                let theirs = ["fmt", "--check", "--manifest-path", fuzz::MANIFEST];
                Error::of_all([cargo(&["fmt", "--all", "--check"]), cargo(&theirs)])
            }
            Step::Deps => Error::of_all([deps::check(workspace), features::check(workspace)]),
            Step::Schema => schema::run(workspace, Mode::Check),
            Step::Clippy => cargo(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ]),
            Step::Tests => cargo(&["test", "--workspace", "--no-fail-fast"]),
            Step::Build => release::floodmark(workspace).map(drop),
            Step::Usage => usage::run(workspace, Mode::Check),
            Step::Systems => return systems::run(workspace),
            Step::Truth => return truth::run(workspace, truth::Cases::Suite),
            Step::Causes => confusion::some(workspace),
            Step::Fuzz => fuzz::run(workspace, FUZZ_SECONDS),
        };
        done.map(|()| None)
    }
}

impl Selection {
    fn steps(&self) -> impl Iterator<Item = Step> {
        let steps = Step::value_variants().iter().copied();
        steps.filter(|&step| self.includes(step))
    }

    fn includes(&self, step: Step) -> bool {
        (self.only.is_empty() || self.only.contains(&step)) && !self.skip.contains(&step)
    }
}

/// What became of a step, with what of it was left out, and how long it took.
struct Outcome {
    step: Step,
    result: Result<Option<String>, Error>,
    took: Duration,
}

/// Runs the selected steps, going on after one that fails; whether all passed.
pub fn run(workspace: &Workspace, selection: &Selection) -> bool {
    let mut outcomes = Vec::new();
    for step in selection.steps() {
        println!("\n== {}", step.name());
        let begin = Instant::now();
        let result = step.run(workspace, selection);
        if let Err(error) = &result {
            println!("{error}");
        }
        outcomes.push(Outcome {
            step,
            result,
            took: begin.elapsed(),
        });
    }
    // A log is read from its end: what failed is told again there, and the table comes last.
    println!("{}", again(&outcomes));
    println!("\n{}", table(&outcomes));
    let failed = outcomes.iter().filter(|o| o.result.is_err()).count();
    println!("steps: {} passed, {failed} failed", outcomes.len() - failed);
    failed == 0
}

/// What each failed step says of its failure, and how to run it again.
fn again(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for Outcome { step, result, .. } in outcomes {
        if let Err(error) = result {
            let name = step.name();
            let digest = error.digest().join("\n");
            text.push_str(&format!(
                "\n== {name} failed\n{digest}\nagain: cargo xtask test --only {name}\n"
            ));
        }
    }
    text
}

/// Step, result and seconds of each, and what was left out of it.
fn table(outcomes: &[Outcome]) -> String {
    let mut table = format!("{:<8} {:<7} {:>7}\n", "step", "result", "seconds");
    for outcome in outcomes {
        let (name, seconds) = (outcome.step.name(), outcome.took.as_secs_f64());
        let (result, left_out) = match &outcome.result {
            Ok(None) => ("passed", String::new()),
            Ok(Some(left_out)) => ("passed", format!("  {left_out}")),
            Err(_) => ("FAILED", String::new()),
        };
        table.push_str(&format!("{name:<8} {result:<7} {seconds:>7.1}{left_out}\n"));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_and_skip_select() {
        let all = Selection {
            only: vec![],
            skip: vec![],
        };
        assert!(
            Step::value_variants()
                .iter()
                .all(|&step| all.includes(step))
        );
        let only = Selection {
            only: vec![Step::Fmt, Step::Deps],
            skip: vec![],
        };
        assert!(only.includes(Step::Deps) && !only.includes(Step::Fuzz));
        let skip = Selection {
            only: vec![],
            skip: vec![Step::Fuzz],
        };
        assert!(skip.includes(Step::Deps) && !skip.includes(Step::Fuzz));
    }

    #[test]
    fn the_table_shows_what_failed() {
        let outcome = |step, result| Outcome {
            step,
            result,
            took: Duration::from_millis(1234),
        };
        let found = || Error::Found(vec!["it is wrong".to_owned()]);
        let outcomes = [
            outcome(Step::Fmt, Ok(None)),
            outcome(Step::Tests, Err(Error::Several(vec![found(), found()]))),
            outcome(Step::Truth, Ok(Some("without uring: forbidden".to_owned()))),
        ];
        assert_eq!(
            again(&outcomes),
            "\n== tests failed\nit is wrong\nit is wrong\nagain: cargo xtask test --only tests\n"
        );
        let table = table(&outcomes);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[1], "fmt      passed      1.2");
        assert_eq!(lines[2], "tests    FAILED      1.2");
        assert_eq!(
            lines[3],
            "truth    passed      1.2  without uring: forbidden"
        );
    }
}
