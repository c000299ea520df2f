//! `floodmark trend`: shows how the figures of several results changed over time.

use std::path::PathBuf;

use clap::Args;
use floodmark_diagnose::comparing::trend_series;
use floodmark_record::SCHEMA_VERSION;
use floodmark_record::comparison::{ComparedMetric, TrendReport};
use floodmark_report::tables::ResultTables;
use floodmark_report::{html, terminal};

use crate::compare::metric_names;
use crate::exit::{Ending, HELP};
use crate::files::{self, Files};
use crate::out;
use crate::results::{ResultArgs, TableArgs};
use crate::session::tool;

/// Metrics that are shown by default, if they were measured.
const DEFAULT: [ComparedMetric; 4] = [
    ComparedMetric::Throughput,
    ComparedMetric::Capacity,
    ComparedMetric::P99,
    ComparedMetric::ServerCpuPerRequest,
];

/// Show the trend across several results: one figure per result, and lasting changes.
///
/// Results are sorted by time. Each trial or system is a separate series. If the load changes, a
/// new series starts.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct TrendArgs {
    /// Results.
    #[command(flatten)]
    pub results: ResultArgs,

    /// Metrics to show; empty for [`DEFAULT`].
    #[arg(
        long,
        value_name = "NAME",
        help = format!(
            "Metric to show: {}; repeatable [default: {}]",
            metric_names(|_| true),
            DEFAULT.map(ComparedMetric::name).join(", ")
        )
    )]
    pub metric: Vec<ComparedMetric>,

    /// Tables.
    #[command(flatten)]
    pub tables: TableArgs,

    /// Write a page with a chart per metric; - for stdout [default: none]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the trends as JSON; - for stdout [default: none]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &TrendArgs) -> Result<(), Ending> {
    let results = args.results.read()?;
    let files = Files {
        html: args.html.clone(),
        json: args.json.clone(),
        ..Files::default()
    };
    files.check_sources(&results.sources)?;
    files.check_writable()?;
    let metrics = if args.metric.is_empty() {
        &DEFAULT[..]
    } else {
        &args.metric
    };
    let (series, mut notes) = trend_series(&results.named, metrics);
    if series.iter().all(|series| series.trends.is_empty()) {
        let names = metrics.iter().map(|metric| format!("\"{metric}\""));
        return Err(Ending::usage(format!(
            "no result has a figure for {}; choose another --metric or measure again",
            names.collect::<Vec<_>>().join(" or ")
        )));
    }
    let faults = results.faults.iter();
    notes.extend(faults.map(|error| format!("not shown: {error}")));
    let report = TrendReport {
        schema: SCHEMA_VERSION,
        tool: tool(),
        series,
        notes,
    };
    let render = || ResultTables::of_trends(&report);
    match args.tables.render(files.use_stdout(), render)? {
        Some(tables) => out::print(&tables)?,
        None => out::show(files.use_stdout(), |style| terminal::trends(&report, style))?,
    }
    if let Some(path) = &args.html {
        files::write("--html", path, &html::of_trends(&report))?;
    }
    if let Some(path) = &args.json {
        files::write("--json", path, &out::json(&report)?)?;
    }
    Ok(())
}
