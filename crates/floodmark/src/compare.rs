//! `floodmark compare`: two records, or two trials of one, with the interval of their ratios.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use floodmark_diagnose::comparing::{
    NoSide, Side, compare_sides, has_valid, likeness, select, sides,
};
use floodmark_lab::{EVENTS, RECORD};
use floodmark_record::comparison::{Comparison, Metric, SideBySide};
use floodmark_record::run::Status;
use floodmark_record::{Record, SCHEMA_VERSION};
use floodmark_report::{RatioCondition, comparison};

use crate::exit::{Ending, Exit, HELP};
use crate::files::Files;
use crate::load::tool;
use crate::out;

/// Compare two results and say by how much they differ, with an interval.
///
/// A ratio is A's figure divided by B's. What counts are server processes, each started afresh: attempts on the same one come
/// to one figure, and with fewer than two processes on a side there is no interval.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct CompareArgs {
    /// A result: its folder (--out), its record.json, or a folder of such folders, whose results are put together; with several
    /// trials in it followed by the name of one: results/today:nginx
    #[arg(value_name = "A")]
    pub a: String,

    /// The result to compare it with, in the same way
    #[arg(value_name = "B")]
    pub b: String,

    /// Only this metric: throughput, goodput, p50, p99, service.p50, service.p99, cpu_us_per_request; repeatable [default: all]
    #[arg(long, value_name = "NAME")]
    pub metric: Vec<Metric>,

    /// Exit with 1 where this is so; repeatable: 'p99 ratio > 1.05', or with an end of the interval 'throughput high < 1'
    /// [default: none]
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<RatioCondition>,

    /// Exit with 4 where a compared run is bound: floodmark was the limit
    #[arg(long)]
    pub strict: bool,

    /// Write the comparison as JSON; - is stdout, with nothing else there [default: none]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> Result<(), Ending> {
    if args.a == args.b {
        return Err(Ending::usage(format!(
            "{} is on both sides; name two results, or two trials of one ({}:NAME)",
            args.a, args.a
        )));
    }
    let (read_a, read_b) = (Operand::read(&args.a)?, Operand::read(&args.b)?);
    let files = Files {
        html: None,
        json: args.json.as_deref(),
        csv: None,
        hdr: None,
    };
    let sources = [&read_a.path, &read_b.path];
    let sources = sources.map(|at| [at.clone(), at.join(EVENTS), at.join(RECORD)]);
    files.spares(&sources.concat())?;
    files.writable()?;
    let (a, b) = (read_a.side()?, read_b.side()?);
    let like = likeness((&a, &read_a.references()), (&b, &read_b.references()));
    let all = Metric::ALL.map(|metric| compare_sides(&a, &b, metric));
    let wanted = |c: &&Comparison| args.metric.is_empty() || args.metric.contains(&c.metric);
    let judge = |condition: &RatioCondition| {
        let of = all.iter().find(|c| c.metric == condition.metric());
        of.map(|comparison| condition.of(comparison))
    };
    let compared = SideBySide {
        schema: SCHEMA_VERSION,
        tool: tool(),
        a: a.facts(),
        b: b.facts(),
        unlike: like.unlike,
        notes: like.notes,
        comparisons: all.iter().filter(wanted).cloned().collect(),
        thresholds: args.fail_if.iter().filter_map(judge).collect(),
    };
    deliver(args, &compared)?;
    ending(args, &compared, [&a, &b])
}

/// One argument, read.
struct Operand {
    /// As it was given.
    text: String,
    path: PathBuf,
    system: Option<String>,
    records: Vec<Record>,
}

impl Operand {
    fn read(text: &str) -> Result<Self, Ending> {
        let (path, system) = split(text);
        let records = floodmark_lab::read_all(&path).map_err(Ending::usage)?;
        Ok(Operand {
            text: text.to_owned(),
            path,
            system,
            records,
        })
    }

    fn references(&self) -> Vec<&Record> {
        self.records.iter().collect()
    }

    fn side(&self) -> Result<Side<'_>, Ending> {
        let parts: Result<Vec<Side<'_>>, NoSide> = self
            .records
            .iter()
            .map(|record| select(&sides(record), self.system.as_deref()).cloned())
            .collect();
        let parts = parts.map_err(|error| {
            let path = self.path.display();
            let mend = match &error {
                NoSide::Empty => "; compare with a result that was measured".to_owned(),
                NoSide::Several(_) | NoSide::Unknown { .. } => format!(", such as {path}:NAME"),
            };
            Ending::usage(format!("{path}: {error}{mend}"))
        })?;
        Ok(Side::joined(self.text.clone(), parts))
    }
}

/// A path, and the system that is named behind it. Paths and systems may have colons of their own: the longest path that exists
/// is the one that is meant.
fn split(text: &str) -> (PathBuf, Option<String>) {
    if Path::new(text).exists() {
        return (text.into(), None);
    }
    let named = text
        .rmatch_indices(':')
        .map(|(at, _)| (&text[..at], &text[at + 1..]))
        .find(|(path, system)| !system.is_empty() && Path::new(path).exists());
    match named {
        Some((path, system)) => (path.into(), Some(system.to_owned())),
        None => (text.into(), None),
    }
}

/// The JSON where it was asked for, and the table: on stdout, or on stderr where stdout carries the JSON.
fn deliver(args: &CompareArgs, compared: &SideBySide) -> Result<(), Ending> {
    let table = |style| comparison::render(compared, style);
    let Some(path) = &args.json else {
        out::print(&table(out::style(&std::io::stdout())));
        return Ok(());
    };
    let text = serde_json::to_string_pretty(compared).map_err(Ending::failed)? + "\n";
    if path == Path::new("-") {
        out::note(&table(out::style(&std::io::stderr())));
        out::deliver(&text).map_err(|e| Ending::failed(format!("--json -: stdout: {e}")))
    } else {
        out::print(&table(out::style(&std::io::stdout())));
        fs::write(path, text).map_err(|e| Ending::failed(format!("{}: {e}", path.display())))
    }
}

fn ending(args: &CompareArgs, compared: &SideBySide, of: [&Side<'_>; 2]) -> Result<(), Ending> {
    let invalid = |message: String| Ending {
        exit: Exit::Invalid,
        message,
    };
    if let Some(side) = of.into_iter().find(|side| !has_valid(side)) {
        return Err(invalid(format!(
            "{}: all of it is invalid, so there is nothing to compare; measure it again",
            side.name
        )));
    }
    let bound = |side: &&Side<'_>| side.runs().any(|run| run.validity.status == Status::Bound);
    if let Some(side) = of.into_iter().find(bound).filter(|_| args.strict) {
        return Err(invalid(format!(
            "{}: bound by floodmark's own threads (--strict); measure it again with more of them (-t)",
            side.name
        )));
    }
    match compared.thresholds.iter().find(|t| t.met != Some(false)) {
        Some(threshold) => Err(Ending {
            exit: Exit::Check,
            message: format!(
                "--fail-if '{}': it {}",
                threshold.condition,
                match threshold.met {
                    Some(_) => format!("was {}", threshold.figure),
                    None => "is not known; see the notes".to_owned(),
                }
            ),
        }),
        None => Ok(()),
    }
}
