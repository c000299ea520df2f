//! Searches with `floodmark capacity` on the truth server, whose capacity is known.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floodmark_record::interval::Interval;
use floodmark_record::units::show_rate;
use floodmark_stats::capacity::{CapacityEstimate, CapacityFinding, CapacityLimit};
use floodmark_truth::TruthServer;
use floodmark_truth::capacity::{KnownAnswer, KnownObjective, KnownServer, known_servers};
use serde_json::Value;

use super::{SearchRun, SearchScore, median, percent};
use crate::bench::{Bench, Failure, word};
use crate::statistics::Proportion;
use crate::table::{cell, table};

/// Default number of searches per server; 44 searches of all 11 servers.
pub const SEARCHES: u64 = 4;

/// Minimum share of right results.
const LEAST_RIGHT: f64 = 0.9;

/// Maximum duration of a search. The trials of queues last up to 8 s.
const BUDGET: Duration = Duration::from_secs(360);

/// Time beyond its budget after which a search is stopped.
const OVERTIME: Duration = Duration::from_secs(240);

/// Searches each server's capacity with `floodmark capacity` and prints a table. Returns whether
/// enough results were right.
///
/// # Errors
/// A server does not start, a search leaves no record, or the user interrupts the measurement.
pub fn run(bench: &Bench, searches: u64, only: &str) -> Result<bool, Failure> {
    let mut rows = Vec::new();
    let mut right = Proportion::default();
    let is_chosen = |server: &KnownServer| server.name.contains(only);
    for server in known_servers().into_iter().filter(is_chosen) {
        let (name, answer) = (server.name, server.answer());
        let mut score = SearchScore::default();
        let mut times_s = Vec::new();
        for seed in 1..=searches {
            let begin = Instant::now();
            let result = search(bench, &server, seed);
            let run = result.map_err(|error| format!("{name}, search {seed}: {error}"))?;
            times_s.push(begin.elapsed().as_secs_f64());
            let before = score.right.count;
            score.add(answer, &run);
            let found = describe(&run.finding);
            let covered = score.right.count - before;
            println!("{name}: {found}, {} trials, right: {covered}", run.trials);
        }
        let own = score.right;
        right.count += own.count;
        right.total += own.total;
        rows.push(row(&server, answer, &score, &times_s));
    }
    let heads = "server | objective | truth | right | trials | time | half-width | error";
    print!("{}", table(heads, rows));
    println!("trials, time, half-width and error of the estimate: medians");
    let is_enough = right.value() >= LEAST_RIGHT;
    let least = LEAST_RIGHT * 100.0;
    println!("right: {right}; at least {least:.0} %: {}", word(is_enough));
    Ok(is_enough)
}

/// Starts the server and searches its capacity.
fn search(bench: &Bench, known: &KnownServer, seed: u64) -> Result<SearchRun, Failure> {
    let mut scenario = known.scenario.clone();
    scenario.seed = seed;
    let server = TruthServer::start(scenario)?;
    let search = ServerSearch {
        url: &format!("http://{}/", server.address()),
        objective: known.objective,
        seed,
        budget: BUDGET,
    };
    let capacity = search.run(bench)?;
    server.stop()?;
    read_run(&capacity).ok_or_else(|| "no result".into())
}

/// A search with `floodmark capacity`.
pub struct ServerSearch<'a> {
    /// URL of the server.
    pub url: &'a str,
    pub objective: KnownObjective,
    pub seed: u64,
    /// Maximum duration of the search.
    pub budget: Duration,
}

impl ServerSearch<'_> {
    /// Searches, and returns the record's `capacity`.
    ///
    /// # Errors
    /// The search leaves no record, takes four minutes longer than its budget, or is interrupted.
    pub fn run(&self, bench: &Bench) -> Result<Value, Failure> {
        let directory = tempfile::tempdir()?;
        let json = directory.path().join("record.json");
        let mut search = Command::new(&bench.floodmark);
        search.args(["capacity", self.url, "--quiet"]);
        search.args(["--slo", &self.objective.to_string()]);
        search.args(["--seed", &self.seed.to_string()]);
        search.args(["--budget", &format!("{}s", self.budget.as_secs_f64())]);
        search.arg("--json").arg(&json);
        search.arg("--out").arg(directory.path().join("result"));
        search.stdout(Stdio::null());
        let status = bench.run(search, self.budget + OVERTIME)?;
        let file = File::open(&json).map_err(|error| format!("{status}: no record: {error}"))?;
        let mut record: Value = serde_json::from_reader(file)?;
        Ok(record["capacity"].take())
    }
}

/// Reads a record's `capacity`.
fn read_run(capacity: &Value) -> Option<SearchRun> {
    let rate_per_s = capacity["rate_per_s"].as_f64().unwrap_or(0.0);
    let estimate = |rates: &Value| {
        Some(CapacityEstimate {
            rate_per_s: rates["rate_per_s"].as_f64()?,
            interval: Interval {
                low: rates["low"].as_f64()?,
                high: rates["high"].as_f64()?,
                confidence: capacity["level"].as_f64()?,
                method: String::new(),
            },
            scatter: capacity["scatter"].as_f64().unwrap_or(0.0),
            is_confirmed: capacity["is_confirmed"].as_bool()?,
        })
    };
    let at_least = |limit| CapacityFinding::AtLeast { rate_per_s, limit };
    let finding = match capacity["finding"].as_str()? {
        "capacity" => CapacityFinding::Capacity(estimate(capacity)?),
        "hysteresis" => CapacityFinding::Hysteresis {
            rising: estimate(capacity)?,
            falling: estimate(&capacity["falling"])?,
        },
        "not_stationary" => CapacityFinding::NotStationary {
            first_per_s: rate_per_s,
            last_per_s: capacity["last_per_s"].as_f64()?,
        },
        "client_limit" => at_least(CapacityLimit::Client),
        "above_highest" => at_least(CapacityLimit::Settings),
        "never" => CapacityFinding::Below {
            rate_per_s,
            is_lowest: true,
        },
        _ => CapacityFinding::Unknown,
    };
    let trials = capacity["trials"].as_array()?.len();
    Some(SearchRun { finding, trials })
}

fn row(
    server: &KnownServer,
    answer: KnownAnswer,
    score: &SearchScore,
    times_s: &[f64],
) -> Vec<String> {
    vec![
        server.name.to_owned(),
        server.objective.to_string(),
        describe_answer(answer),
        score.right.to_string(),
        cell(median(&score.trials), |trials| format!("{trials:.0}")),
        cell(median(times_s), |time_s| format!("{time_s:.0} s")),
        cell(median(&score.half_widths), percent),
        cell(median(&score.errors), percent),
    ]
}

fn describe_answer(answer: KnownAnswer) -> String {
    match answer {
        KnownAnswer::Capacity(rate) => format!("{}/s", show_rate(rate)),
        KnownAnswer::Hysteresis { rising, falling } => {
            format!("{}/s, {}/s", show_rate(rising), show_rate(falling))
        }
        KnownAnswer::NotStationary => "not stationary".to_owned(),
        KnownAnswer::ClientLimit(rate) => format!("at least {}/s", show_rate(rate)),
        KnownAnswer::Never => "never met".to_owned(),
    }
}

fn describe(finding: &CapacityFinding) -> String {
    let estimate = |estimate: &CapacityEstimate| {
        let CapacityEstimate {
            rate_per_s,
            interval,
            ..
        } = estimate;
        let [rate, low, high] = [*rate_per_s, interval.low, interval.high].map(show_rate);
        format!("{rate}/s ({low} – {high}/s)")
    };
    match finding {
        CapacityFinding::Capacity(capacity) => estimate(capacity),
        CapacityFinding::Hysteresis { rising, falling } => {
            format!(
                "{}, after an overload {}",
                estimate(rising),
                estimate(falling)
            )
        }
        CapacityFinding::NotStationary { .. } => "not stationary".to_owned(),
        CapacityFinding::AtLeast { rate_per_s, .. } => {
            format!("at least {}/s", show_rate(*rate_per_s))
        }
        CapacityFinding::Below { rate_per_s, .. } => format!("below {}/s", show_rate(*rate_per_s)),
        CapacityFinding::Unknown => "no result".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_intervals_and_verdicts() {
        let capacity = json!({
            "finding": "hysteresis", "rate_per_s": 3400.0, "low": 3350.0, "high": 3450.0,
            "level": 0.95, "is_confirmed": true, "trials": [{}, {}],
            "falling": {"rate_per_s": 2700.0, "low": 2650.0, "high": 2750.0},
        });
        let run = read_run(&capacity).unwrap();
        assert_eq!(run.trials, 2);
        let text = "3,400/s (3,350 – 3,450/s), after an overload 2,700/s (2,650 – 2,750/s)";
        assert_eq!(describe(&run.finding), text);
        let never = json!({"finding": "never", "rate_per_s": 50.0, "trials": []});
        assert_eq!(describe(&read_run(&never).unwrap().finding), "below 50.0/s");
        assert!(read_run(&Value::Null).is_none());
    }
}
