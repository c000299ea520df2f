//! `cargo xtask confusion`: servers with one fault each, loaded and judged; how often is the cause right?
//!
//! A case is an experiment of cases/, with the trial `fault` and, where something was injected, `control` beside it. What was measured is
//! kept in the target folder, so that a suite that was cut short goes on, and rules that were changed are tried on the same runs.

mod baseline;
mod judging;
mod outcome;
mod page;
mod proved;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use clap::Args;
use floodmark_record::cause::Cause;

use crate::error::Error;
use crate::measuring::child::{self, Interrupt};
use crate::page::Mode;
use crate::release;
use crate::workspace::Workspace;

use judging::{Case, FAULT, Rules, judged};
use outcome::{Accuracy, Outcome};
use page::Agreement;

/// Longest time that a case may take; it should take less than half a minute, and with parts changed some minutes.
const LONGEST: Duration = Duration::from_secs(180);
const LONGEST_PROOF: Duration = Duration::from_secs(480);

/// What to run and to show.
#[derive(Debug, Args)]
pub struct Options {
    /// Only cases whose names hold this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Part K of N of the cases, such as 1/6.
    #[arg(long, value_name = "K/N", value_parser = shard)]
    shard: Option<(usize, usize)>,
    /// Measure nothing: judge what was measured before.
    #[arg(long)]
    judge: bool,
    /// Measure anew what was measured before.
    #[arg(long, conflicts_with = "judge")]
    fresh: bool,
    /// Show the cases that are set aside too. Rules are not to be changed after that until others are drawn.
    #[arg(long)]
    open: bool,
    /// Keep it as another pass, and say how often it agrees with the first.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pass: u32,
    /// One process of each in place of three: faster, and a case whose fault moved little may be none.
    #[arg(long)]
    quick: bool,
    /// Then have the verdicts of every third case proven by changing parts of it, and say how often that is right.
    #[arg(long)]
    prove: bool,
    /// Write docs/accuracy.md.
    #[arg(long)]
    write: bool,
}

impl Options {
    /// The folder of their results.
    fn folder(&self) -> String {
        match (self.quick, self.pass) {
            (true, 1) => "quick".to_owned(),
            (_, pass) => pass.to_string(),
        }
    }
}

/// The part of the cases that is run on every change, and the fewest of ten that have to be right there. Where nine in ten are, fewer are
/// by chance alone once in six hundred times (binomial).
const SUITE: (usize, usize) = (1, 9);
const FEWEST: f64 = 0.6;

/// Runs the part of the suite that is run on every change; whether enough of it was judged right.
///
/// # Errors
/// Cases that cannot be measured, and too many wrong verdicts.
pub fn some(workspace: &Workspace) -> Result<(), Error> {
    let options = Options {
        only: None,
        shard: Some(SUITE),
        judge: false,
        fresh: true,
        open: false,
        pass: 1,
        quick: true,
        prove: false,
        write: false,
    };
    let Judged { outcomes, void } = judge(workspace, &options)?;
    let right = Accuracy::of(&outcomes).right;
    if outcomes.len() < void.len() || right.share() < FEWEST {
        return Err(Error::Found(vec![format!(
            "causes judged right: {right}; no cases: {}",
            void.len()
        )]));
    }
    Ok(())
}

fn shard(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/');
    let parts = parts.and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
    match parts {
        Some((k, n)) if k >= 1 && k <= n => Ok((k, n)),
        _ => Err("is no part of a whole, such as 1/6".to_owned()),
    }
}

/// Measures what has not been measured, judges all, and says how good that is; whether every case could be judged.
pub fn run(workspace: &Workspace, options: &Options) -> Result<bool, Error> {
    Ok(judge(workspace, options)?.void.is_empty())
}

/// What became of cases.
struct Judged {
    outcomes: Vec<Outcome>,
    /// Those that are none, with why.
    void: Vec<(String, String)>,
}

fn judge(workspace: &Workspace, options: &Options) -> Result<Judged, Error> {
    let folder = workspace.root.join("cases");
    let results = workspace.target.join("confusion");
    let names = cases(&folder, options)?;
    if !options.judge {
        let plan = Measuring {
            into: &results.join(options.folder()),
            flags: if options.quick {
                &["--processes", "1"]
            } else {
                &[]
            },
            fresh: options.fresh,
            longest: LONGEST,
        };
        measure(workspace, &plan, &folder, &names)?;
    }
    let third: Vec<String> = names
        .iter()
        .filter(|name| proved::is_drawn(name))
        .cloned()
        .collect();
    if options.prove && !options.judge {
        let plan = Measuring {
            into: &results.join(proved::FOLDER),
            flags: &["--prove", "--only", FAULT, "--processes", "1"],
            fresh: options.fresh,
            longest: LONGEST_PROOF,
        };
        measure(workspace, &plan, &folder, &third)?;
    }
    let (mut all, mut void) = (Vec::new(), Vec::new());
    let of = results.join(options.folder());
    for name in &names {
        match judged(&of.join(name), name, Rules::Present) {
            Ok(case) => all.push(case),
            Err(why) => void.push((name.clone(), why)),
        }
    }
    let outcomes: Vec<Outcome> = all.iter().map(|case| case.outcome.clone()).collect();
    show(&all, options.open);
    for (name, why) in &void {
        println!("no case: {name}: {why}");
    }
    // What did not hold as a case is none here either.
    let cases = third
        .iter()
        .filter(|name| outcomes.iter().any(|outcome| outcome.name == **name));
    let proofs = proved::of(&results, cases);
    let text = page::text(&page::Results {
        outcomes: &outcomes,
        then: &then(&of, &outcomes),
        void: &void,
        agreement: agreement(&results, options, &outcomes).as_ref(),
        proofs: &proofs,
        wrong: &wrong(&all),
    });
    println!("\n{text}");
    if options.write {
        let chore = "cargo xtask confusion --write";
        crate::page::settle(workspace, "docs/accuracy.md", &text, Mode::Write, chore)?;
    }
    Ok(Judged { outcomes, void })
}

/// The names of the cases that are meant, in order.
fn cases(folder: &Path, options: &Options) -> Result<Vec<String>, Error> {
    let failed = |source| Error::Read {
        path: folder.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let stem = path.file_stem().map(|stem| stem.to_string_lossy());
            names.extend(stem.map(|stem| stem.into_owned()));
        }
    }
    names.sort_unstable();
    let only = |name: &String| options.only.as_ref().is_none_or(|text| name.contains(text));
    names.retain(only);
    if let Some((k, n)) = options.shard {
        let mut at = 0;
        names.retain(|_| {
            at += 1;
            at % n == k % n
        });
    }
    if names.is_empty() {
        return Err(Error::Found(vec![format!(
            "{}: no such case",
            folder.display()
        )]));
    }
    Ok(names)
}

/// How cases are measured.
struct Measuring<'a> {
    /// Where their results are kept.
    into: &'a Path,
    /// Flags of `floodmark run`.
    flags: &'a [&'a str],
    /// Whether those that have a result are measured anew.
    fresh: bool,
    /// Longest time that one may take.
    longest: Duration,
}

/// Measures cases that have no result yet, or whose file is younger than it.
fn measure(
    workspace: &Workspace,
    how: &Measuring<'_>,
    folder: &Path,
    names: &[String],
) -> Result<(), Error> {
    let floodmark = release::floodmark(workspace)?;
    let found = |e: std::io::Error| Error::Found(vec![e.to_string()]);
    let interrupt = Interrupt::catch().map_err(found)?;
    let output = tempfile::tempdir().map_err(found)?;
    for (i, name) in names.iter().enumerate() {
        let case = folder.join(format!("{name}.toml"));
        let result = how.into.join(name);
        if !how.fresh && is_younger(&result.join("record.json"), &case) {
            continue;
        }
        if result.exists() {
            fs::remove_dir_all(&result).map_err(|source| Error::Write {
                path: result.clone(),
                source,
            })?;
        }
        println!("{} of {}: {name}", i + 1, names.len());
        let mut run = Command::new(&floodmark);
        run.args(["run", "--quiet"])
            .args(how.flags)
            .arg(&case)
            .arg("--out")
            .arg(&result);
        // How it ends says whether the figures can be read as the server's, which is not what is asked here.
        let run = run.current_dir(&workspace.root);
        if let Err(error) = child::run(run, output.path(), how.longest, &interrupt) {
            interrupt.check().map_err(found)?;
            // One that hangs is no case, and the others go on.
            println!("      {error}");
        }
    }
    Ok(())
}

fn is_younger(result: &Path, case: &Path) -> bool {
    let changed = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    matches!((changed(result), changed(case)), (Some(result), Some(case)) if result >= case)
}

/// Why no cause is named, where a case's runs do not agree.
fn apart(causes: &[Cause]) -> String {
    let ids: Vec<&str> = causes.iter().map(|cause| cause.id()).collect();
    format!("its processes were judged to be {}", ids.join(", "))
}

/// One line for each case that is not set aside, and of those that are judged wrongly what was said.
fn show(cases: &[Case], open: bool) {
    let shown = cases.iter().filter(|case| open || !case.outcome.set_aside);
    for Case {
        outcome,
        verdict,
        causes,
    } in shown
    {
        let Outcome {
            name,
            expected,
            judged,
            confidence,
            ..
        } = outcome;
        let right = expected.contains(judged);
        let word = if right { "right" } else { "WRONG" };
        let expected: Vec<&str> = expected.iter().map(|cause| cause.id()).collect();
        println!(
            "{word} {name}: {judged} ({confidence:?}), expected {}",
            expected.join(" or ")
        );
        if verdict.is_none() {
            println!("      {}", apart(causes));
        }
        if let Some(verdict) = verdict.as_ref().filter(|_| !right) {
            println!("      {}", verdict.summary);
            for line in verdict.evidence.iter().chain(&verdict.unseen) {
                println!("      {line}");
            }
            let ruled_out = |line: &&String| {
                expected
                    .iter()
                    .any(|id| line.starts_with(&format!("{id}: ")))
            };
            for line in verdict.ruled_out.iter().filter(ruled_out) {
                println!("      not {line}");
            }
        }
    }
}

/// Of the cases that may be looked at and were judged wrongly what was said, with what ruled the cause out.
fn wrong(cases: &[Case]) -> Vec<String> {
    let shown = cases
        .iter()
        .filter(|case| !case.outcome.set_aside && !case.outcome.is_right());
    shown
        .map(|case| {
            let outcome = &case.outcome;
            let expected: Vec<&str> = outcome.expected.iter().map(|cause| cause.id()).collect();
            let of = |line: &&String| {
                expected
                    .iter()
                    .any(|id| line.starts_with(&format!("{id}: ")))
            };
            let said = match &case.verdict {
                None => apart(&case.causes),
                Some(verdict) => {
                    let why: Vec<&str> = verdict
                        .ruled_out
                        .iter()
                        .filter(of)
                        .map(String::as_str)
                        .collect();
                    match &why[..] {
                        [] => format!("{}, and nothing spoke against that", verdict.summary),
                        why => format!("{}. Not {}", verdict.summary, why.join("; ")),
                    }
                }
            };
            format!(
                "{}: {} in place of {}: {said}",
                outcome.name,
                outcome.judged,
                expected.join(" or ")
            )
        })
        .collect()
}

/// The same cases, by the rules that were there when they were measured.
fn then(results: &Path, outcomes: &[Outcome]) -> Vec<Outcome> {
    let of = |Outcome { name, .. }: &Outcome| judged(&results.join(name), name, Rules::OfThen);
    let cases = outcomes.iter().filter_map(|outcome| of(outcome).ok());
    cases.map(|case| case.outcome).collect()
}

/// How the other pass compares, where there is one.
fn agreement(results: &Path, options: &Options, outcomes: &[Outcome]) -> Option<Agreement> {
    let other = results.join(if options.pass == 1 { "2" } else { "1" });
    let again =
        |outcome: &Outcome| judged(&other.join(&outcome.name), &outcome.name, Rules::Present).ok();
    let again: Vec<(&Outcome, Case)> = outcomes
        .iter()
        .filter_map(|outcome| Some((outcome, again(outcome)?)))
        .collect();
    let same = again
        .iter()
        .filter(|(one, other)| one.judged == other.outcome.judged);
    let same = outcome::Share {
        those: same.count(),
        of: again.len(),
    };
    let again: Vec<Case> = again.into_iter().map(|(_, case)| case).collect();
    (!again.is_empty()).then(|| Agreement {
        same,
        accuracy: Accuracy::of(again.iter().map(|case| &case.outcome)),
        then: Accuracy::of(&then(&other, outcomes)),
        wrong: wrong(&again),
    })
}
