//! `cargo xtask golden`: judges and renders the records in `dev/golden/`, and shows every
//! difference from the expected output. It also judges and renders each record after its sentences
//! have been removed, because no judgment may depend on a sentence.
//!
//! Each pack, `NAME.jsonl.gz`, contains one result per line: the name, and either the record
//! (without histograms) or all events. `judgments.txt` contains the judgment on each result, and
//! `text/` contains the terminal text of each result that is not a case.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use floodmark_diagnose::validity::is_only_not_ok;
use floodmark_lab::{EVENTS, RECORD};
use floodmark_record::Record;
use floodmark_record::run::Run;
use floodmark_report::Style;
use serde_json::Value;

use crate::bench::{Failure, names, read, repository, write};

/// Directory of the packs, relative to the repository's root.
const GOLDEN: &str = "dev/golden";

/// File with the expected judgments, in [`GOLDEN`].
const JUDGMENTS: &str = "judgments.txt";

/// Directory of the expected terminal texts, in [`GOLDEN`].
const TEXT: &str = "text";

/// File name extension of a pack.
const PACK: &str = ".jsonl.gz";

/// Prefixes of the names of packs that contain cases. The terminal texts of cases are rendered but
/// not stored, because there are hundreds of them.
const CASES: [&str; 3] = ["own", "third-party", "http2"];

/// Keys whose values are sentences, or lists of sentences.
const SENTENCES: [&str; 11] = [
    "basis", "detail", "evidence", "figure", "method", "next", "notes", "place", "summary", "text",
    "unseen",
];

/// Style of terminal texts.
const STYLE: Style = Style {
    color: false,
    width: 100,
};

/// Options of `cargo xtask golden`.
#[derive(Debug, Args)]
pub struct GoldenOptions {
    /// Replace the expected judgments and texts with the current ones
    #[arg(long)]
    write: bool,
    /// Write the terminal text and the page of each result to this directory
    #[arg(long, value_name = "DIRECTORY")]
    render: Option<PathBuf>,
    /// Write the results in --from to this pack
    #[arg(long, value_name = "NAME", requires = "from")]
    pack: Option<String>,
    /// Directory that contains the result directories for --pack
    #[arg(long, value_name = "DIRECTORY", requires = "pack")]
    from: Option<PathBuf>,
    /// Store events instead of records in the pack
    #[arg(long, requires = "pack")]
    events: bool,
}

/// Judges and renders all results. Returns whether the output is as expected.
pub fn run(options: &GoldenOptions) -> Result<bool, Failure> {
    let golden = repository()?.join(GOLDEN);
    if let (Some(name), Some(from)) = (&options.pack, &options.from) {
        pack(&pack_path(&repository()?, name), from, options.events)?;
        return Ok(true);
    }
    let mut actual = BTreeMap::new();
    let mut judgments = String::new();
    let mut without_sentences = String::new();
    let mut results = 0;
    for file in names(&golden)? {
        let Some(name) = file.strip_suffix(PACK) else {
            continue;
        };
        let mut text = String::new();
        each_result(&golden.join(&file), |result, record| {
            results += 1;
            let title = format!("{name}/{result}");
            judge(&mut judgments, &title, &record)?;
            let terminal = render(options.render.as_deref(), &title, &record)?;
            write!(text, "== {result}\n\n{terminal}\n")?;
            let mut blanked = serde_json::to_value(&record)?;
            blank(&mut blanked);
            let mut blanked = serde_json::from_value(blanked)?;
            floodmark_lab::fold::judge_again(&mut blanked);
            judge(&mut without_sentences, &title, &blanked)?;
            render(None, &title, &blanked)?;
            Ok(())
        })?;
        if !CASES.iter().any(|cases| name.starts_with(cases)) {
            actual.insert(golden.join(TEXT).join(format!("{name}.txt")), text);
        }
    }
    let by_sentences = differences(&judgments, &without_sentences);
    for line in &by_sentences {
        println!("depends on a sentence: {line}");
    }
    let mut is_equal = by_sentences.is_empty();
    actual.insert(golden.join(JUDGMENTS), judgments);
    if options.write {
        fs::create_dir_all(golden.join(TEXT))?;
        for (path, text) in &actual {
            write(path, text)?;
        }
    }
    for (path, text) in &actual {
        let differences = differences(&read(path)?, text);
        is_equal &= differences.is_empty();
        for line in &differences {
            println!("{line}");
        }
    }
    println!("golden: {results} results judged and rendered");
    Ok(is_equal)
}

/// Writes the results in a directory to a pack.
fn pack(path: &Path, from: &Path, with_events: bool) -> Result<(), Failure> {
    let mut out = GzEncoder::new(Vec::new(), Compression::best());
    let from = from.canonicalize()?;
    let root = repository()?.display().to_string();
    for name in names(&from)? {
        let result = from.join(&name);
        if !result.is_dir() {
            continue;
        }
        let (key, value) = if with_events {
            let events: Result<Vec<Value>, _> = read(&result.join(EVENTS))?
                .lines()
                .map(serde_json::from_str)
                .collect();
            ("events", Value::Array(events?))
        } else {
            let mut record = serde_json::from_str(&read(&result.join(RECORD))?)?;
            remove_histograms(&mut record);
            ("record", record)
        };
        let line = serde_json::json!({ "name": name, key: value }).to_string();
        // Replace paths of the host on which the results were measured.
        let line = line.replace(&from.display().to_string(), "results");
        let line = line.replace(&root, "repository");
        writeln!(out, "{line}")?;
    }
    fs::write(path, out.finish()?)?;
    println!("{} written", path.display());
    Ok(())
}

fn remove_histograms(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("response_times");
            if let Some(histogram) = fields.get_mut("histogram") {
                *histogram = Value::Null;
            }
            fields.values_mut().for_each(remove_histograms);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_histograms),
        _ => {}
    }
}

/// Replaces all sentences in a value with `?`.
fn blank(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(blank),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if SENTENCES.contains(&&**key) => *text = "?".to_owned(),
                    Value::Array(texts) if SENTENCES.contains(&&**key) => {
                        let texts = texts.iter_mut().filter(|text| text.is_string());
                        texts.for_each(|text| *text = "?".into());
                    }
                    value => blank(value),
                }
            }
        }
        _ => {}
    }
}

/// Returns the path of a pack in the repository `root`.
pub fn pack_path(root: &Path, name: &str) -> PathBuf {
    root.join(GOLDEN).join(format!("{name}{PACK}"))
}

/// Calls a function with the name and the newly judged record of each result in a pack.
pub fn each_result(
    pack: &Path,
    mut each: impl FnMut(&str, Record) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    for line in BufReader::new(GzDecoder::new(fs::File::open(pack)?)).lines() {
        let result: Value = serde_json::from_str(&line?)?;
        let name = result["name"].as_str().unwrap_or_default();
        let record = match &result["events"] {
            Value::Array(events) => {
                let lines: Vec<String> = events.iter().map(Value::to_string).collect();
                write(&directory.path().join(EVENTS), &(lines.join("\n") + "\n"))?;
                floodmark_lab::fold(directory.path())?
            }
            _ => {
                let file = directory.path().join(format!("{name}.json"));
                write(&file, &result["record"].to_string())?;
                let mut record = floodmark_lab::read(&file)?;
                floodmark_lab::fold::judge_again(&mut record);
                record
            }
        };
        each(name, record).map_err(|error| format!("{}: {name}: {error}", pack.display()))?;
    }
    Ok(())
}

/// Appends one line for each judgment in a record.
fn judge(lines: &mut String, title: &str, record: &Record) -> Result<(), Failure> {
    for run in &record.runs {
        let trial = run.trial.as_deref().unwrap_or(&run.system);
        let (process, attempt) = (run.process, run.attempt);
        writeln!(
            lines,
            "{title} {trial} {process}.{attempt}: {}",
            of_run(run)
        )?;
    }
    for one in record.capacity.iter().chain(&record.capacities) {
        let trial = one.trial.as_deref().unwrap_or("capacity");
        let figures = [one.rate_per_s, one.low, one.high].map(show);
        let finding = (one.finding, one.is_confirmed, one.trials.len());
        writeln!(lines, "{title} {trial}: {finding:?} {}", figures.join(" "))?;
    }
    for one in &record.comparisons {
        let figures = [one.ratio, one.low, one.high].map(show).join(" ");
        let (candidate, baseline, metric) = (&one.candidate, &one.baseline, one.metric.name());
        writeln!(
            lines,
            "{title} {candidate} / {baseline} {metric}: {:?} {figures}",
            one.conclusion
        )?;
    }
    for one in &record.sweeps {
        writeln!(lines, "{title} sweep: {:?} {:?}", one.best, one.enough)?;
    }
    for one in &record.claims {
        let figures = [one.measured, one.low, one.high].map(show).join(" ");
        writeln!(lines, "{title} claim: {:?} {figures}", one.holds)?;
    }
    for one in &record.crash {
        let rounds = (one.rounds, one.inconclusive, one.lost);
        writeln!(lines, "{title} crash {}: {rounds:?}", one.trial)?;
    }
    if let Some(one) = &record.tuning {
        let chosen = (&one.best, &one.chosen, one.cause, one.ended);
        writeln!(lines, "{title} tuning: {chosen:?} {:?}", one.irrelevant)?;
    }
    if let Some(one) = &record.gate {
        let ratio = show(one.ratio);
        writeln!(
            lines,
            "{title} gate: {:?} {ratio} {:?}",
            one.decision, one.ended
        )?;
    }
    Ok(())
}

/// Returns the judgment on a run: validity, cause, confidence, path, gain and upper bound.
fn of_run(run: &Run) -> String {
    let validity = if is_only_not_ok(run) {
        "no ok response".to_owned()
    } else {
        name(run.validity.status)
    };
    let Some(verdict) = &run.verdict else {
        return format!("{validity}, no verdict");
    };
    let path: Vec<String> = verdict.path.iter().skip(1).map(|step| step.key()).collect();
    let also: Vec<&str> = verdict.also.iter().map(|cause| cause.name()).collect();
    let gain = verdict.gain.as_ref();
    let gain = gain.map(|gain| format!("{:.1} to {:.1}", gain.low_per_s, gain.high_per_s));
    format!(
        "{validity}, {} ({}), also [{}], path [{}], gain {}, bound {}",
        verdict.cause,
        name(verdict.confidence),
        also.join(", "),
        path.join(" → "),
        gain.as_deref().unwrap_or("–"),
        show(verdict.limit_per_s)
    )
}

/// Returns the name of a variant.
fn name(variant: impl Debug) -> String {
    format!("{variant:?}").to_lowercase()
}

fn show(figure: Option<f64>) -> String {
    figure.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.4}"))
}

/// Returns the terminal text of a record. If a directory is given, also writes the text and the
/// page to it.
fn render(directory: Option<&Path>, title: &str, record: &Record) -> Result<String, Failure> {
    let mut runs = record.runs.iter().rev();
    let own = runs.find(|run| run.client.tool.is_none());
    let next =
        own.map(|run| floodmark_diagnose::next_step(run, run.client_cpus(record.environment.cpus)));
    let text = floodmark_report::terminal::result(record, next.as_deref(), STYLE);
    let page = floodmark_report::html::of_record(record, next.as_deref())
        .map_err(|error| format!("{title}: {error}"))?;
    if let Some(directory) = directory {
        let file = directory.join(title.replace('/', "-"));
        fs::create_dir_all(directory)?;
        write(&file.with_extension("txt"), &text)?;
        write(&file.with_extension("html"), &page)?;
    }
    Ok(text)
}

/// Returns the lines that differ, each prefixed with `-` (expected) or `+` (actual).
fn differences(expected: &str, actual: &str) -> Vec<String> {
    similar::TextDiff::from_lines(expected, actual)
        .iter_all_changes()
        .filter(|change| change.tag() != similar::ChangeTag::Equal)
        .map(|change| format!("{}{}", change.tag(), change.value().trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_only_lines_that_differ() {
        let lines = differences("a\nb\nc\n", "a\nB\nc\nd\n");
        assert_eq!(lines, ["-b", "+B", "+d"]);
        assert!(differences("a\n", "a\n").is_empty());
    }

    #[test]
    fn packs_keep_everything_except_histograms() {
        let mut record = serde_json::json!({
            "runs": [{ "response_time_us": { "p50": 1.5, "histogram": "HIST" } }],
            "series": [{ "response_times": { "counts": [1] }, "failed": 0 }],
        });
        remove_histograms(&mut record);
        let expected = serde_json::json!({
            "runs": [{ "response_time_us": { "p50": 1.5, "histogram": null } }],
            "series": [{ "failed": 0 }],
        });
        assert_eq!(record, expected);
    }
}
