//! `floodmark compare`: compares two results or two trials of one result, or measures and compares
//! two versions of a server.

mod versions;

use std::path::{Path, PathBuf};

use clap::Args;
use floodmark_diagnose::comparing::{
    GroupError, RunGroup, caveats, compare as compare_groups, has_valid, run_groups, select,
};
use floodmark_diagnose::conditions::RatioCondition;
use floodmark_lab::{EVENTS, RECORD};
use floodmark_record::comparison::{ComparedMetric, Comparison, ComparisonReport};
use floodmark_record::host::Environment;
use floodmark_record::run::Run;
use floodmark_record::{Record, SCHEMA_VERSION};
use floodmark_report::html::{self, ComparedRuns};
use floodmark_report::tables::ResultTables;
use floodmark_report::{junit, markdown, terminal};

use crate::endings;
use crate::exit::{Ending, Exit, HELP};
use crate::files::{self, CiOutput, Files};
use crate::out;
use crate::results::{self, TableArgs};
use crate::session::tool;
use versions::VersionArgs;

/// Compare two versions of a server, or two results.
///
/// With --baseline and --candidate: starts fresh processes of both versions in pairs (A B, B A, …),
/// and loads them alternately until a 95 % interval shows whether they differ. With A and B: prints
/// the ratios of B's figures to A's. An interval requires at least two server processes per
/// result.
#[derive(Debug, Args)]
#[command(
    after_help = HELP,
    override_usage = "floodmark compare [OPTIONS] --baseline <COMMAND> --candidate <COMMAND>\n       \
        floodmark compare [OPTIONS] <A> <B>"
)]
pub struct CompareArgs {
    /// Baseline: a result directory (--out), its record.json, or a directory of result directories
    /// to pool; append :NAME to select one of several trials, such as results/today:nginx
    #[arg(value_name = "A", required_unless_present = "baseline")]
    pub a: Option<String>,

    /// Candidate: the result to compare with the baseline
    #[arg(value_name = "B", required_unless_present = "baseline")]
    pub b: Option<String>,

    /// Metrics to compare; empty for all.
    #[arg(
        long,
        value_name = "NAME",
        help = format!(
            "Metric to compare: {}; repeatable for results [default: all; for versions: throughput]",
            metric_names(|metric| metric != ComparedMetric::Capacity)
        )
    )]
    pub metric: Vec<ComparedMetric>,

    /// Exit with 1 if this condition holds for a ratio or an interval bound: 'p99 ratio > 1.05',
    /// 'throughput high < 1'; repeatable [default: none]
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<RatioCondition>,

    /// Also exit with 4 if floodmark limited a compared run (validity `bound`)
    #[arg(long)]
    pub strict: bool,

    /// Tables.
    #[command(flatten)]
    pub tables: TableArgs,

    /// Write a page with the ratios and the curves of both results; - for stdout [default: none]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the comparison (two results) or the record (two versions) as JSON; - for stdout
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Output for continuous integration.
    #[command(flatten)]
    pub ci: CiOutput,

    /// Versions to measure.
    #[command(flatten, next_help_heading = "Two versions")]
    pub versions: VersionArgs,
}

/// Lists metrics for a help text.
pub fn metric_names(is_listed: impl Fn(ComparedMetric) -> bool) -> String {
    let name = |metric| match metric {
        // The name of the server's CPU metric contains "server", so say "client" here.
        ComparedMetric::CpuPerRequest => format!("{metric} (client)"),
        metric => metric.to_string(),
    };
    let listed = ComparedMetric::ALL.into_iter().filter(|of| is_listed(*of));
    listed.map(name).collect::<Vec<_>>().join(", ")
}

/// Runs the command.
pub fn run(args: &CompareArgs) -> Result<(), Ending> {
    match (&args.a, &args.b) {
        (Some(a), Some(b)) => compare_results(args, a, b),
        _ => versions::run(args),
    }
}

/// Compares two stored results.
fn compare_results(args: &CompareArgs, at_a: &str, at_b: &str) -> Result<(), Ending> {
    if at_a == at_b {
        return Err(Ending::usage(format!(
            "A and B are both {at_a}; name two results, or two trials of one result ({at_a}:NAME)"
        )));
    }
    let (read_a, read_b) = (Operand::read(at_a)?, Operand::read(at_b)?);
    let files = Files {
        html: args.html.clone(),
        json: args.json.clone(),
        ci: args.ci.clone(),
        ..Files::default()
    };
    let sources = [&read_a.path, &read_b.path];
    let sources = sources.map(|at| [at.clone(), at.join(EVENTS), at.join(RECORD)]);
    files.check_sources(&sources.concat())?;
    files.check_writable()?;
    let names = side_names([&read_a, &read_b]);
    let (a, b) = (read_a.side(&names[0])?, read_b.side(&names[1])?);
    let like = caveats((&a, &read_a.records), (&b, &read_b.records));
    if a.metrics() != b.metrics() {
        let (with, without) = if a.capacities.is_empty() {
            (at_b, at_a)
        } else {
            (at_a, at_b)
        };
        return Err(Ending::usage(format!(
            "{with} has a capacity, and {without} has none; compare two results of the same command"
        )));
    }
    let metrics = a.metrics().into_iter();
    let all: Vec<Comparison> = metrics
        .map(|metric| compare_groups(&b, &a, metric))
        .collect();
    let wanted = |c: &&Comparison| args.metric.is_empty() || args.metric.contains(&c.metric);
    let judge = |condition: &RatioCondition| {
        let of = all.iter().find(|c| c.metric == condition.subject.metric);
        of.map(|comparison| condition.judge(comparison))
    };
    let compared = ComparisonReport {
        schema: SCHEMA_VERSION,
        tool: tool(),
        baseline: a.summary(),
        candidate: b.summary(),
        unlike: like.unlike,
        notes: like.notes,
        comparisons: all.iter().filter(wanted).cloned().collect(),
        thresholds: args.fail_if.iter().filter_map(judge).collect(),
    };
    let tables = args.tables.render(files.use_stdout(), || {
        ResultTables::of_comparison(&compared)
    })?;
    match tables {
        Some(tables) => out::print(&tables)?,
        None => out::show(files.use_stdout(), |style| {
            terminal::comparison(&compared, style)
        })?,
    }
    let fault = fault(args, [(at_a, &a), (at_b, &b)]);
    if let Some(path) = &args.html {
        let [runs_a, runs_b] = [&a, &b].map(drawable_runs);
        let sides = [(&a, &runs_a), (&b, &runs_b)];
        let sides = sides.map(|(side, runs)| ComparedRuns {
            name: &side.name,
            runs,
        });
        let environment = read_a.records.first().map(|record| &record.environment);
        let page = html::of_comparison(
            &compared,
            sides,
            environment.unwrap_or(&Environment::default()),
        );
        files::write("--html", path, &page.map_err(Ending::usage)?)?;
    }
    if let Some(path) = &args.json {
        files::write("--json", path, &out::json(&compared)?)?;
    }
    if let Some(path) = &args.ci.junit {
        let fault = fault.as_ref().map(|fault| fault.message.as_str());
        files::write("--junit", path, &junit::of_comparison(&compared, fault))?;
    }
    args.ci
        .append_summary(|max_bytes| markdown::comparison(&compared, max_bytes))?;
    let failed = || endings::failed_threshold(&compared.thresholds);
    fault.or_else(failed).map_or(Ok(()), Err)
}

/// Returns the runs whose curves can be compared. Excludes capacity searches, whose loads have
/// different rates.
fn drawable_runs<'a>(side: &RunGroup<'a>) -> Vec<&'a Run> {
    if side.capacities.is_empty() {
        side.runs().collect()
    } else {
        Vec::new()
    }
}

/// Returns the names of the sides: the trials' names for two trials of one result, and otherwise
/// the results' names, followed by `:NAME` if a trial was selected.
fn side_names(sides: [&Operand; 2]) -> Vec<String> {
    if let [Some(a), Some(b)] = sides.map(|side| side.system.as_ref())
        && sides[0].path == sides[1].path
    {
        return vec![a.clone(), b.clone()];
    }
    let results = results::names(sides.iter().map(|side| (&*side.path, &side.records[0])));
    let name = |(result, side): (String, &Operand)| match &side.system {
        Some(system) => format!("{result}:{system}"),
        None => result,
    };
    results.into_iter().zip(sides).map(name).collect()
}

/// One argument (A or B) and its records.
struct Operand {
    path: PathBuf,
    system: Option<String>,
    records: Vec<Record>,
}

impl Operand {
    fn read(text: &str) -> Result<Self, Ending> {
        let (path, system) = split(text);
        let records = floodmark_lab::read_all(&path).map_err(Ending::usage)?;
        Ok(Operand {
            path,
            system,
            records,
        })
    }

    /// Returns the runs of this side as a group with the given name.
    fn side(&self, name: &str) -> Result<RunGroup<'_>, Ending> {
        let parts: Result<Vec<RunGroup<'_>>, GroupError> = self
            .records
            .iter()
            .map(|record| select(&run_groups(record), self.system.as_deref()).cloned())
            .collect();
        let parts = parts.map_err(|error| {
            let path = self.path.display();
            let fix = match &error {
                GroupError::Empty => "; name a result with at least one run".to_owned(),
                GroupError::Several(_) | GroupError::Unknown { .. } => {
                    format!("; select one with {path}:NAME")
                }
            };
            Ending::usage(format!("{path}: {error}{fix}"))
        })?;
        // Processes from different results are never merged.
        let capacities = parts.iter().flat_map(|part| part.capacities.clone());
        Ok(RunGroup {
            name: name.to_owned(),
            capacities: capacities.collect(),
            processes: parts.into_iter().flat_map(|part| part.processes).collect(),
        })
    }
}

/// Splits an argument into a path and an optional system name. Both may contain colons, so the path
/// is the longest prefix that exists.
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

/// Returns why the comparison is invalid, if it is. Each side is paired with its argument.
fn fault(args: &CompareArgs, of: [(&str, &RunGroup<'_>); 2]) -> Option<Ending> {
    let invalid = |message: String| Some(Ending::new(Exit::Invalid, message));
    if let Some((text, _)) = of.into_iter().find(|(_, side)| !has_valid(side)) {
        return invalid(format!("{text}: every run is invalid; measure again"));
    }
    let is_bound = |run: &Run| run.validity.is_lower_bound();
    let mut bound = of.into_iter().filter(|(_, side)| side.runs().any(is_bound));
    let (text, _) = bound.next().filter(|_| args.strict)?;
    invalid(format!(
        "{text}: floodmark limited a run, which --strict forbids; repeat with more client threads (-t)"
    ))
}
