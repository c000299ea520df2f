//! Checks that floodmark finds a difference between two servers if there is one, and none
//! otherwise. The first server is the native server. The second is either identical, or a slower
//! copy that is stopped for 5 % of the time ([`slowed`](crate::slowed)).
//!
//! `cargo xtask aa` uses `floodmark run` to compare the native server with itself many times, and
//! then with the slower server. floodmark determines how many processes the second comparison
//! needs. `cargo xtask gate` counts how often a gate fails for an identical server and for the
//! slower one. `cargo xtask compare` counts how often `floodmark compare`, with its defaults,
//! decides correctly for two versions.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Args;
use floodmark_record::Record;
use floodmark_record::comparison::{ComparedMetric, Comparison, Conclusion};
use floodmark_record::gate::{GateDecision, GateResult};

use crate::bench::{Bench, Failure, read, word};
use crate::experiment::{Setup, TrialSetup};
use crate::statistics::Proportion;
use crate::table::cell;

/// Fraction of the time for which the slower server is stopped.
const STOPPED_SHARE: f64 = 0.05;
/// Number of comparisons of identical servers per accepted false positive. At 95 % confidence, 1 of
/// 20 comparisons is expected to report a difference. The probability that more than 2 of 20 do so
/// by chance is 8 %.
const COMPARISONS_PER_FALSE_POSITIVE: usize = 10;
/// Maximum factor by which the number of processes grows per step.
const GROWTH: u32 = 4;
/// Maximum number of processes per server. This limit keeps the run below 15 minutes.
const MAX_PROCESSES: u32 = 400;
/// Maximum time to start, probe and stop a process.
const OVERHEAD: Duration = Duration::from_secs(10);

/// Budget of each gate, in seconds.
const BUDGET_S: u64 = 85;
/// Maximum duration of a gate, including the time to start and end the experiment.
const MAX_TIME: Duration = Duration::from_secs(90);
/// Maximum proportion of gates that fail for identical servers.
const MAX_FALSE_ALARMS: f64 = 0.05;
/// Minimum proportion of gates that fail for the slower server.
const MIN_FOUND: f64 = 0.9;

/// Fraction of the time for which the slower of two versions is stopped.
const SLOWER_VERSION: f64 = 0.1;
/// Minimum proportion of version comparisons with a correct decision.
const MIN_RIGHT: f64 = 0.95;
/// Maximum duration of a version comparison.
const MAX_VERSIONS_TIME: Duration = Duration::from_secs(180);

/// Options of `cargo xtask aa`.
#[derive(Debug, Args)]
pub struct DifferenceOptions {
    /// Number of times to compare the server with itself
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    /// Compare only twice, with 3 processes of 300 ms each, without judging the results
    #[arg(long, conflicts_with = "times")]
    quick: bool,
    /// Program to measure [default: a release build of this checkout]
    #[arg(long, value_name = "FILE")]
    floodmark: Option<PathBuf>,
}

/// Measures, prints the results and returns whether both parts passed.
pub fn aa(options: &DifferenceOptions) -> Result<bool, Failure> {
    let bench = &Bench::new(options.floodmark.as_deref())?;
    let directory = tempfile::tempdir()?;
    let (times, processes, length) = if options.quick {
        (2, 3, Duration::from_millis(300))
    } else {
        (options.times, 5, Duration::from_secs(1))
    };
    let series = ComparisonSeries {
        bench,
        directory: directory.path(),
        length,
    };
    let alike = series.identical(times, processes)?;
    let slower = series.slower(processes)?;
    if options.quick {
        println!("not judged: these measurements are too short");
        return Ok(true);
    }
    Ok(alike && slower)
}

/// Comparisons with the same measurement time per process.
struct ComparisonSeries<'a> {
    bench: &'a Bench,
    directory: &'a Path,
    length: Duration,
}

impl ComparisonSeries<'_> {
    /// Compares the server with itself and returns whether the number of reported differences is
    /// within the limit.
    fn identical(&self, times: u32, processes: u32) -> Result<bool, Failure> {
        let length = self.length;
        println!(
            "Throughput of identical native servers, {processes} processes each, {length:?} per process"
        );
        let native = "system = \"native\"\nworkload = \"hello\"";
        let mut different = 0;
        for time in 1..=times {
            let trials = [("one", native.to_owned()), ("other", native.to_owned())];
            let (comparison, _) = self.measure(&format!("identical-{time}"), trials, processes)?;
            println!("  {time:>2}  {}", describe(&comparison));
            different += usize::from(comparison.conclusion == Conclusion::Different);
        }
        let allowed = times as usize / COMPARISONS_PER_FALSE_POSITIVE;
        let passed = different <= allowed;
        println!(
            "{different} of {times} comparisons found a difference, maximum {allowed}: {}\n",
            word(passed)
        );
        Ok(passed)
    }

    /// Compares the server with a slower copy and returns whether floodmark detects the difference.
    fn slower(&self, mut processes: u32) -> Result<bool, Failure> {
        println!(
            "Throughput of the native server and a copy that is stopped for {:.0} % of the time",
            STOPPED_SHARE * 100.0
        );
        let bench = std::env::current_exe()?;
        let mut needed = None;
        loop {
            let trials = [("whole", 0.0), ("slower", STOPPED_SHARE)];
            let trials = trials.map(|(name, share)| (name, slowed_server(&bench, share)));
            let (comparison, stopped) =
                self.measure(&format!("slower-{processes}"), trials, processes)?;
            let described = describe(&comparison);
            println!("  {processes:>3} processes each: {described}; last process {stopped}");
            let more = comparison
                .repetitions_needed
                .filter(|_| needed != Some(processes));
            let Some(more) = more else {
                let passed = is_slower(&comparison);
                println!("result with {processes} processes each: {}", word(passed));
                return Ok(passed);
            };
            // Increase the number in steps, because an estimate from few processes is inaccurate.
            processes = more.min(processes * GROWTH);
            needed = Some(more);
            if processes > MAX_PROCESSES {
                println!(
                    "{more} processes needed, maximum {MAX_PROCESSES}: {}",
                    word(false)
                );
                return Ok(false);
            }
        }
    }

    /// Runs two trials. Returns the throughput comparison and the last output line of the second
    /// server's last process.
    fn measure(
        &self,
        name: &str,
        trials: [(&str, String); 2],
        processes: u32,
    ) -> Result<(Comparison, String), Failure> {
        let log = format!("result/{}-{processes}.log", trials[1].0);
        let length = self.length.as_millis();
        let sections = format!(
            "[load]\nconnections = 50\nduration = \"{length}ms\"\n[place]\nprocesses = {processes}"
        );
        let directory = self.directory.join(name);
        let limit = (self.length + OVERHEAD) * processes * 2;
        let record = measure(self.bench, sections, trials, &directory, limit)?;
        let log = read(&directory.join(log)).unwrap_or_default();
        let last_line = log.lines().last().unwrap_or_default().to_owned();
        let mut comparisons = record.comparisons.into_iter();
        let comparison =
            comparisons.find(|comparison| comparison.metric == ComparedMetric::Throughput);
        let comparison = comparison.ok_or("the record has no throughput comparison")?;
        Ok((comparison, last_line))
    }
}

/// Runs an experiment with two trials in a new `directory`.
fn measure(
    bench: &Bench,
    sections: String,
    trials: [(&str, String); 2],
    directory: &Path,
    limit: Duration,
) -> Result<Record, Failure> {
    let trials = trials.map(|(name, lines)| TrialSetup {
        name: name.to_owned(),
        lines,
        client: None,
    });
    let setup = Setup {
        question: "Does the second server differ from the first?",
        sections,
        trials: trials.into(),
    };
    setup.run(bench, directory, &["--quiet"], limit)
}

/// Returns the manifest lines for a native server that [`slowed`](crate::slowed) stops for `share`
/// of the time.
fn slowed_server(bench: &Path, share: f64) -> String {
    // A JSON string is also a TOML string.
    let command = serde_json::Value::from(slowed_command(bench, share));
    format!("command = {command}\nworkload = \"hello\"")
}

/// Returns the command that starts this server.
fn slowed_command(bench: &Path, share: f64) -> String {
    let quoted = bench.display().to_string().replace('\'', "'\\''");
    format!(
        "'{quoted}' slowed --share {share} -- {{floodmark}} serve hello --listen 127.0.0.1:{{port}} --threads {{threads}}"
    )
}

/// Returns whether the second trial is slower.
fn is_slower(comparison: &Comparison) -> bool {
    comparison.conclusion == Conclusion::Different
        && comparison.ratio.is_some_and(|ratio| ratio < 1.0)
}

/// Describes a comparison: ratio, interval, conclusion and notes.
fn describe(comparison: &Comparison) -> String {
    let number = |value: Option<f64>| cell(value, |v| format!("{v:.3}"));
    let conclusion = match comparison.conclusion {
        Conclusion::Different => "different",
        Conclusion::Equivalent => "equivalent",
        Conclusion::Undecided => "inconclusive",
    };
    let mut text = format!(
        "{} ({} – {}) {conclusion}",
        number(comparison.ratio),
        number(comparison.low),
        number(comparison.high)
    );
    if let Some(n) = comparison.repetitions_needed {
        text += &format!(", needs {n} processes each");
    }
    for note in &comparison.notes {
        text += &format!("\n        {note}");
    }
    text
}

/// Options of `cargo xtask gate`.
#[derive(Debug, Args)]
pub struct GateOptions {
    /// Number of gates of each kind
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    /// Program to measure [default: a release build of this checkout]
    #[arg(long, value_name = "FILE")]
    floodmark: Option<PathBuf>,
}

/// Results of all gates with an identical server, or of all gates with the slower one.
#[derive(Default)]
struct GateSeries {
    failed: Proportion,
    passed: Proportion,
    longest: Duration,
    total: Duration,
}

impl GateSeries {
    fn add(&mut self, gate: &GateResult, time: Duration) {
        self.failed.add(gate.decision == GateDecision::Failed);
        self.passed.add(gate.decision == GateDecision::Passed);
        self.longest = self.longest.max(time);
        self.total += time;
    }

    fn describe(&self, name: &str) {
        let GateSeries {
            failed,
            passed,
            longest,
            total,
        } = self;
        let mean = *total / failed.total.max(1) as u32;
        println!(
            "{name}: failed {failed}; passed {passed}; mean {mean:.0?}, maximum {longest:.0?}"
        );
    }
}

/// Runs gates of both kinds alternately, prints the proportions of failed and passed gates with
/// 95 % Wilson intervals, and returns whether all requirements were met.
pub fn gate(options: &GateOptions) -> Result<bool, Failure> {
    let bench = Bench::new(options.floodmark.as_deref())?;
    let directory = tempfile::tempdir()?;
    let (mut identical, mut slower) = (GateSeries::default(), GateSeries::default());
    for time in 1..=options.times {
        for (name, share, series) in [
            ("identical", 0.0, &mut identical),
            ("slower", STOPPED_SHARE, &mut slower),
        ] {
            let begin = Instant::now();
            let gate = run_gate(
                &bench,
                &directory.path().join(format!("{name}-{time}")),
                share,
            )?;
            let took = begin.elapsed();
            let range = gate.interval.as_ref();
            let range =
                range.map_or_else(String::new, |of| format!("{:.3} – {:.3}", of.low, of.high));
            println!(
                "{time:>3} {name}: {}, {} ({range}), {} pairs, {took:.0?}",
                gate.decision,
                cell(gate.ratio, |ratio| format!("{ratio:.3}")),
                gate.pairs.len()
            );
            series.add(&gate, took);
        }
    }
    identical.describe("identical");
    slower.describe("slower");
    let is_accurate =
        identical.failed.value() <= MAX_FALSE_ALARMS && slower.failed.value() >= MIN_FOUND;
    let is_short = identical.longest.max(slower.longest) <= MAX_TIME;
    println!("{}", word(is_accurate && is_short));
    Ok(is_accurate && is_short)
}

/// Runs the gate for a native server and a copy that is stopped for `share` of the time.
fn run_gate(bench: &Bench, directory: &Path, share: f64) -> Result<GateResult, Failure> {
    let executable = std::env::current_exe()?;
    let sections = format!(
        "[load]\nconnections = 16\nthreads = 1\nduration = \"1s\"\nwarmup = \"200ms\"\n\
         [gate]\nbudget = \"{BUDGET_S}s\""
    );
    let trials = [("baseline", 0.0), ("candidate", share)];
    let trials = trials.map(|(name, share)| (name, slowed_server(&executable, share)));
    let record = measure(bench, sections, trials, directory, 2 * MAX_TIME)?;
    std::fs::remove_dir_all(directory)?;
    record.gate.ok_or_else(|| "the record has no gate".into())
}

/// Options of `cargo xtask compare`.
#[derive(Debug, Args)]
pub struct CompareOptions {
    /// Number of comparisons of each kind
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    times: u32,
    /// Program to measure [default: a release build of this checkout]
    #[arg(long, value_name = "FILE")]
    floodmark: Option<PathBuf>,
}

/// Comparisons of versions of one kind.
#[derive(Default)]
struct VersionSeries {
    right: Proportion,
    longest: Duration,
}

/// Compares the native server with an identical version and with a slower one, using the defaults
/// of `floodmark compare`. Prints the proportions of correct decisions with 95 % Wilson intervals,
/// and returns whether all requirements were met.
pub fn compare(options: &CompareOptions) -> Result<bool, Failure> {
    let bench = Bench::new(options.floodmark.as_deref())?;
    let executable = std::env::current_exe()?;
    let directory = tempfile::tempdir()?;
    let mut all = [
        (
            "identical",
            0.0,
            GateDecision::Equivalent,
            VersionSeries::default(),
        ),
        (
            "slower",
            SLOWER_VERSION,
            GateDecision::Different,
            VersionSeries::default(),
        ),
    ];
    for time in 1..=options.times {
        for (name, share, right, series) in &mut all {
            let out = directory.path().join(format!("{name}-{time}"));
            let mut command = Command::new(&bench.floodmark);
            command.args(["compare", "--quiet", "--baseline"]);
            command.arg(slowed_command(&executable, 0.0));
            command
                .arg("--candidate")
                .arg(slowed_command(&executable, *share));
            command.arg("--out").arg(&out);
            let begin = Instant::now();
            let status = bench.run(command, 2 * MAX_VERSIONS_TIME)?;
            let took = begin.elapsed();
            let record = floodmark_lab::read(&out).map_err(|error| format!("{status}: {error}"))?;
            std::fs::remove_dir_all(&out)?;
            let gate = record.gate.ok_or("the record has no decision")?;
            println!(
                "{time:>3} {name}: {}, {}, {} pairs, {took:.0?}",
                gate.decision,
                cell(gate.ratio, |ratio| format!("{ratio:.3}")),
                gate.pairs.len()
            );
            let is_faster = gate.ratio.is_some_and(|ratio| ratio >= 1.0);
            let is_right = gate.decision == *right && !(*share > 0.0 && is_faster);
            series.right.add(is_right);
            series.longest = series.longest.max(took);
        }
    }
    let is_good = |series: &VersionSeries| {
        series.right.value() >= MIN_RIGHT && series.longest <= MAX_VERSIONS_TIME
    };
    for (name, .., series) in &all {
        let VersionSeries { right, longest } = series;
        println!("{name}: right {right}; maximum {longest:.0?}");
    }
    let passed = all.iter().all(|(.., series)| is_good(series));
    println!("{}", word(passed));
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::comparison::Compared;

    fn comparison(ratio: f64, conclusion: Conclusion) -> Comparison {
        let figures = Compared {
            figure: Some(1.0),
            processes: 5,
            attempts: 5,
        };
        Comparison {
            baseline: "whole".to_owned(),
            candidate: "slower".to_owned(),
            metric: ComparedMetric::Throughput,
            ratio: Some(ratio),
            low: Some(ratio - 0.01),
            high: Some(ratio + 0.01),
            confidence: 0.95,
            conclusion,
            repetitions_needed: None,
            repetitions_load_s: None,
            method: String::new(),
            figures_baseline: figures.clone(),
            figures_candidate: figures,
            notes: vec!["slower: 1 attempt invalid".to_owned()],
        }
    }

    #[test]
    fn only_a_slower_server_passes() {
        assert!(is_slower(&comparison(0.95, Conclusion::Different)));
        assert!(!is_slower(&comparison(1.05, Conclusion::Different)));
        assert!(!is_slower(&comparison(0.95, Conclusion::Undecided)));
        assert!(!is_slower(&comparison(0.99, Conclusion::Equivalent)));
    }

    #[test]
    fn describes_a_comparison_with_its_notes() {
        assert_eq!(
            describe(&comparison(0.95, Conclusion::Different)),
            "0.950 (0.940 – 0.960) different\n        slower: 1 attempt invalid"
        );
    }

    #[test]
    fn quotes_paths() {
        let server = slowed_server(Path::new("/a 'b' \"c\"/bench"), 0.05);
        let expected = r#"command = "'/a '\\''b'\\'' \"c\"/bench' slowed --share 0.05 -- "#;
        assert!(server.contains(expected), "{server}");
    }
}
