//! `floodmark trend`: shows how the figures of several results changed over time.

use std::path::PathBuf;

use clap::Args;
use floodmark_diagnose::comparing::{NamedRecord, trend_series};
use floodmark_lab::{EVENTS, FoundResult, RECORD, read_each};
use floodmark_record::SCHEMA_VERSION;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::trend::TrendReport;
use floodmark_report::tables::ResultTables;
use floodmark_report::{html, terminal};

use crate::compare::metric_names;
use crate::exit::{Ending, HELP};
use crate::files::{self, Files};
use crate::out;
use crate::result_names::result_names;
use crate::session::tool;
use crate::tables::TableArgs;

/// Metrics that are shown by default, if they were measured.
const DEFAULT: [ComparedMetric; 4] = [
    ComparedMetric::Throughput,
    ComparedMetric::Capacity,
    ComparedMetric::P99,
    ComparedMetric::ServerCpuPerRequest,
];

/// Show the trend across several results: one figure per result, and lasting changes.
///
/// Results are sorted by time. Each trial or system is a separate series. If the load changes, a new
/// series starts.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct TrendArgs {
    /// Folder of result folders, result folder (--out), or record file (--json); repeatable
    #[arg(value_name = "RESULT", required = true)]
    pub results: Vec<PathBuf>,

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
    let mut all = Vec::new();
    for path in &args.results {
        all.extend(read_each(path).map_err(Ending::usage)?);
    }
    let files = Files {
        html: args.html.clone(),
        json: args.json.clone(),
        ..Files::default()
    };
    let sources = all.iter();
    let sources = sources
        .flat_map(|FoundResult { path, .. }| [path.clone(), path.join(EVENTS), path.join(RECORD)]);
    files.check_sources(&Vec::from_iter(sources))?;
    files.check_writable()?;
    let names = result_names(all.iter().map(|found| found.path.as_path()));
    let (mut results, mut faults) = (Vec::new(), Vec::new());
    for (name, found) in names.into_iter().zip(all) {
        match found.record {
            Ok(record) => results.push(NamedRecord { name, record }),
            Err(error) => faults.push(error),
        }
    }
    if let Some(error) = faults.pop_if(|_| results.is_empty()) {
        return Err(Ending::usage(error));
    }
    let metrics = if args.metric.is_empty() {
        &DEFAULT[..]
    } else {
        &args.metric
    };
    let (series, mut notes) = trend_series(&results, metrics);
    if series.iter().all(|series| series.trends.is_empty()) {
        let names = metrics.iter().map(|metric| format!("\"{metric}\""));
        return Err(Ending::usage(format!(
            "no result has a figure for {}; choose another --metric or measure again",
            names.collect::<Vec<_>>().join(" or ")
        )));
    }
    notes.extend(faults.iter().map(|error| format!("not shown: {error}")));
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
        let text = serde_json::to_string_pretty(&report).map_err(Ending::internal)? + "\n";
        files::write("--json", path, &text)?;
    }
    Ok(())
}
