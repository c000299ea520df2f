//! `cargo xtask confusion`: servers with one fault each, loaded and judged; how often is the cause right?
//!
//! A case is an experiment of cases/, with the trial `fault` and, where something was injected, `control` beside it. What was measured is
//! kept in the target folder, so that a suite that was cut short goes on, and rules that were changed are tried on the same runs.

mod baseline;
mod outcome;
mod page;
mod proved;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use clap::Args;
use floodmark_record::Record;
use floodmark_record::cause::Cause;
use floodmark_record::run::Run;
use floodmark_record::verdict::{Confidence, Verdict};

use crate::error::Error;
use crate::measuring::child::{self, Interrupt};
use crate::page::Mode;
use crate::release;
use crate::workspace::Workspace;

use outcome::{Accuracy, Outcome, is_set_aside};
use page::Agreement;

/// The trial whose cause is asked for, and the one that it is held against.
const FAULT: &str = "fault";
const CONTROL: &str = "control";

/// Longest time that a case may take; it should take less than half a minute, and with parts changed some minutes.
const LONGEST: Duration = Duration::from_secs(180);
const LONGEST_PROOF: Duration = Duration::from_secs(480);

/// A fault has to move a figure by more than this beside moving it in every run: less is nobody's limit.
const MOVED: f64 = 0.05;

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

/// One case that was measured.
struct Case {
    outcome: Outcome,
    /// The run whose verdict it is.
    verdict: Option<Verdict>,
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
    for name in &names {
        match judged(&results.join(options.folder()).join(name), name) {
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

/// Judges a case anew; why it is none, where it is none.
fn judged(result: &Path, name: &str) -> Result<Case, String> {
    let record = floodmark_lab::fold(result).map_err(|error| error.to_string())?;
    if let Some(what) = record.skipped.first() {
        return Err(what.clone());
    }
    let runs = |trial: &str| -> Vec<&Run> {
        let of = |run: &&Run| run.trial.as_deref() == Some(trial);
        record.runs.iter().filter(of).collect()
    };
    let (fault, control) = (runs(FAULT), runs(CONTROL));
    if fault.is_empty() {
        return Err(format!("it has no run of the trial {FAULT}"));
    }
    let clean = control.is_empty();
    if !clean && !moved(&fault, &control) {
        return Err(format!(
            "the fault did not move throughput or p99 beyond what the control does by itself ({} beside {})",
            rates(&fault),
            rates(&control)
        ));
    }
    let (verdict, confidence) = most(&fault);
    let cpus = f64::from(record.environment.cpus);
    Ok(Case {
        outcome: Outcome {
            name: name.to_owned(),
            expected: expected(&record)?,
            judged: verdict.as_ref().map_or(Cause::Unknown, |v| v.cause),
            confidence,
            baselines: baseline::of(fault[fault.len() - 1], cpus),
            set_aside: is_set_aside(name),
            clean,
        },
        verdict,
    })
}

/// What the case says that it is.
fn expected(record: &Record) -> Result<Vec<Cause>, String> {
    let asked = record.experiment.as_ref();
    let named = asked.map_or(&[][..], |asked| &asked.expected_causes[..]);
    let cause = |id: &String| {
        let found = Cause::ALL.iter().find(|cause| cause.id() == id);
        found
            .copied()
            .ok_or_else(|| format!("unknown cause {id:?}"))
    };
    let causes: Vec<Cause> = named.iter().map(cause).collect::<Result<_, _>>()?;
    if causes.is_empty() {
        return Err("it does not say what its cause is ([expect] cause)".to_owned());
    }
    Ok(causes)
}

/// Whether throughput was lower, or p99 higher, in each run of one than in each of the other, by more than a little. With three of each
/// chance alone does that in one of 20 cases (a permutation test), and for either figure in at most one of 10.
fn moved(fault: &[&Run], control: &[&Run]) -> bool {
    let lower = |of: fn(&Run) -> Option<f64>, a: &[&Run], b: &[&Run]| {
        let values =
            |runs: &[&Run]| -> Vec<f64> { runs.iter().filter_map(|run| of(run)).collect() };
        let (a, b) = (values(a), values(b));
        let most = a.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let least = b.iter().copied().fold(f64::INFINITY, f64::min);
        !a.is_empty() && !b.is_empty() && most < least * (1.0 - MOVED)
    };
    let p99 = |run: &Run| run.response_time_us.p99;
    lower(|run| run.throughput_per_s, fault, control) || lower(p99, control, fault)
}

fn rates(runs: &[&Run]) -> String {
    let each = runs.iter().filter_map(|run| run.throughput_per_s);
    let each: Vec<String> = each
        .map(|per_s| format!("{}/s", floodmark_record::units::show_rate(per_s)))
        .collect();
    each.join(", ")
}

/// The verdict that most runs have; where several are as frequent it abstains.
fn most(runs: &[&Run]) -> (Option<Verdict>, Confidence) {
    let mut counts: BTreeMap<Cause, usize> = BTreeMap::new();
    for verdict in runs.iter().filter_map(|run| run.verdict.as_ref()) {
        *counts.entry(verdict.cause).or_default() += 1;
    }
    let Some(most) = counts.values().max().copied() else {
        return (None, Confidence::Unknown);
    };
    let mut causes = counts.iter().filter(|(_, n)| **n == most);
    let (Some((cause, _)), None) = (causes.next(), causes.next()) else {
        return (None, Confidence::Unknown);
    };
    let mut verdicts = runs.iter().filter_map(|run| run.verdict.as_ref());
    let verdict = verdicts.rfind(|verdict| verdict.cause == *cause);
    let confidence = verdict.map_or(Confidence::Unknown, |verdict| verdict.confidence);
    (verdict.cloned(), confidence)
}

/// One line for each case that is not set aside, and of those that are judged wrongly what was said.
fn show(cases: &[Case], open: bool) {
    let shown = cases.iter().filter(|case| open || !case.outcome.set_aside);
    for Case { outcome, verdict } in shown {
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
        .map(|Case { outcome, verdict }| {
            let said = verdict.as_ref().map_or("", |verdict| &verdict.summary);
            let expected: Vec<&str> = outcome.expected.iter().map(|cause| cause.id()).collect();
            let of = |line: &&String| {
                expected
                    .iter()
                    .any(|id| line.starts_with(&format!("{id}: ")))
            };
            let lines = verdict.iter().flat_map(|verdict| &verdict.ruled_out);
            let why: Vec<&str> = lines.filter(of).map(String::as_str).collect();
            let why = match &why[..] {
                [] => "nothing spoke for it or against it".to_owned(),
                why => why.join("; "),
            };
            format!(
                "{}: {} in place of {}: {said}. Not {why}",
                outcome.name,
                outcome.judged,
                expected.join(" or ")
            )
        })
        .collect()
}

/// How the other pass compares, where there is one.
fn agreement(results: &Path, options: &Options, outcomes: &[Outcome]) -> Option<Agreement> {
    let other = results.join(if options.pass == 1 { "2" } else { "1" });
    let again = |outcome: &Outcome| judged(&other.join(&outcome.name), &outcome.name).ok();
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
        wrong: wrong(&again),
    })
}
