//! `cargo xtask capacity`: counts how often the capacity search is right for servers whose capacity
//! is known.

mod budgeted;
pub mod burn;
mod host;
mod programs;
mod real;
mod score;
mod servers;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use floodmark_record::units::parse_duration;
use floodmark_stats::capacity::{
    CapacityEstimate, CapacityFinding, CapacityLimit, CapacitySearch, CapacitySettings,
    CapacityStep,
};
use floodmark_truth::capacity::KnownAnswer;

use crate::bench::{Bench, Failure, word};
use crate::statistics::Proportion;
use crate::table::{cell, table};

use self::burn::parse_share;
use self::programs::ProgramSearches;
use self::servers::{Behavior, Queue, Random, SPEED_PER_S, SimulatedServer};

/// A search ends when the half-width of the interval is at most this share of the estimate.
const PRECISION: f64 = 0.02;

/// Lowest rate that a search tries, in requests per second.
const LOWEST_PER_S: f64 = 1.0;

/// Default number of searches per server.
const SEARCHES: u64 = 2000;

/// Minimum number of searches per server at which the targets are evaluated. With fewer searches,
/// the share of correct results would vary by more than 1.4 % by chance.
const FEWEST_SEARCHES: u64 = 1000;

/// Minimum share of correct results: intervals that contain the capacity, and correct verdicts.
const LEAST_COVERAGE: f64 = 0.93;

/// Maximum share of searches without a result on a disturbed host.
const MOST_UNKNOWN: f64 = 0.5;

/// Maximum median number of trials per search.
const MOST_TRIALS: f64 = 40.0;

/// Maximum length of a trial in seconds, excluding its transient.
const LONGEST_TRIAL_S: f64 = 60.0;

/// Range of a search's first rate, as shares of the server's speed. A search on a real server
/// starts near the throughput of the closed model, which is usually above the capacity.
const START: (f64, f64) = (0.7, 1.6);

/// Options of `cargo xtask capacity`.
#[derive(Debug, Args)]
pub struct CapacityOptions {
    /// Run `floodmark capacity` on the known-truth server instead of simulating servers
    #[arg(long)]
    real: bool,
    /// Run `floodmark capacity` on small servers in Python, Node.js, Java and Go
    #[arg(long, conflicts_with = "real")]
    programs: bool,
    /// Number of searches per server [default: 2000; 4 with --real; 40 with --programs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    searches: Option<u64>,
    /// Measure only servers whose name contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Maximum duration of a search on a program
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration,
          requires = "programs")]
    budget: Duration,
    /// Run every second search on a program beside a process that uses SHARE of one CPU
    #[arg(long, value_name = "SHARE", value_parser = parse_share, requires = "programs")]
    beside: Option<f64>,
    /// Number of searches on a program that run at the same time, each on its own server process
    #[arg(long, value_name = "N", default_value_t = 1, requires = "programs",
          value_parser = clap::value_parser!(u64).range(1..=16))]
    side_by_side: u64,
    /// File to resume from and append search results to, as JSON lines; use another file for
    /// another floodmark binary [default: capacity/programs.jsonl in cargo's target directory]
    #[arg(long, value_name = "FILE", requires = "programs")]
    results: Option<PathBuf>,
    /// Search with this floodmark binary [default: the binary next to this program]
    #[arg(long, value_name = "PATH")]
    floodmark: Option<PathBuf>,
}

/// Prints a table and returns whether floodmark's search met its targets.
///
/// # Errors
/// A search on a real server fails or is interrupted.
pub fn run(options: &CapacityOptions) -> Result<bool, Failure> {
    let bench = || Bench::new(options.floodmark.as_deref());
    if options.real {
        let searches = options.searches.unwrap_or(real::SEARCHES);
        real::run(&bench()?, searches, &options.only)
    } else if options.programs {
        let searches = ProgramSearches {
            searches: options.searches.unwrap_or(programs::SEARCHES),
            only: &options.only,
            budget: options.budget,
            beside: options.beside,
            side_by_side: options.side_by_side as usize,
            results: options.results.as_deref(),
        };
        programs::run(&bench()?, &searches)
    } else {
        let searches = options.searches.unwrap_or(SEARCHES);
        let is_met = simulate(searches, &options.only);
        Ok(simulate_minutes(searches, &options.only) && is_met)
    }
}

/// Searches for the capacities of simulated servers. Returns whether floodmark's search met its
/// targets on every server to which they apply.
fn simulate(searches: u64, only: &str) -> bool {
    let is_chosen = |server: &ServerRow| server.name.contains(only);
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for server in servers().into_iter().filter(is_chosen) {
        let score = server.score(searches);
        if server.is_judged && !score.meets_targets() {
            failed.push(server.name);
        }
        rows.push(row(server.name, &score));
    }
    let heads = "server | right | trials | length | half-width | error, p95";
    print!("{}", table(heads, rows));
    println!(
        "right: the interval contains the capacity, or the verdict is right; trials, length and \
         half-width: medians"
    );
    let (least, precision) = (LEAST_COVERAGE * 100.0, PRECISION * 100.0);
    if searches < FEWEST_SEARCHES {
        println!("not judged: at least {FEWEST_SEARCHES} searches are needed");
        return true;
    }
    println!(
        "targets: at least {least:.0} % right, at most {MOST_TRIALS} trials, half-width at most \
         {precision:.0} %: {}",
        word(failed.is_empty())
    );
    for name in &failed {
        println!("  {name}");
    }
    failed.is_empty()
}

/// Searches for the capacities of servers with a known physical limit, one minute each. Returns
/// whether the searches met their targets.
fn simulate_minutes(searches: u64, only: &str) -> bool {
    let mut is_met = true;
    let mut rows = Vec::new();
    for server in budgeted::servers() {
        if !server.name.contains(only) {
            continue;
        }
        let score = server.score(searches);
        let half_width = median(&score.half_widths);
        let share = |count: usize| count as f64 / score.right.total as f64;
        let (wrong, unknown) = (share(score.wrong), share(score.unknown));
        let is_right = score.right.value() >= LEAST_COVERAGE;
        // A search on a disturbed host may find nothing or only an upper bound.
        let is_seldom_wrong = wrong <= 1.0 - LEAST_COVERAGE && unknown <= MOST_UNKNOWN;
        let meets_target = is_right || !server.is_quiet() && is_seldom_wrong;
        is_met &= meets_target && score.impossible == 0;
        let (low, high) = score.right.interval();
        let right = score.right.value() * 100.0;
        rows.push(vec![
            server.name.clone(),
            format!("{:.1}/s", server.truth_per_s()),
            format!("{right:.1} % ({:.1} – {:.1} %)", low * 100.0, high * 100.0),
            score.impossible.to_string(),
            percent(wrong),
            score.lower_only.to_string(),
            score.upper_only.to_string(),
            percent(unknown),
            cell(median(&score.trials), |trials| format!("{trials:.0}")),
            cell(half_width, percent),
        ]);
    }
    let heads = "server | capacity | right | impossible | wrong | lower only | upper only | unknown \
                 | trials | half-width";
    print!("{}", table(heads, rows));
    println!(
        "searches of 60 s; right: the interval contains the capacity, or the lower bound is true; \
         impossible: above the server's limit; wrong: the capacity is outside the interval or the bound"
    );
    let (least, most_wrong) = (LEAST_COVERAGE * 100.0, (1.0 - LEAST_COVERAGE) * 100.0);
    println!(
        "targets: none impossible and at least {least:.0} % right; or, on a disturbed host, at most \
         {most_wrong:.0} % wrong and {:.0} % unknown: {}",
        MOST_UNKNOWN * 100.0,
        word(is_met)
    );
    is_met
}

/// A simulated server of the table.
#[derive(Debug, Clone, Copy)]
struct ServerRow {
    name: &'static str,
    behavior: Behavior,
    /// Standard deviation of the capacity across trials, as a share of the capacity.
    scatter: f64,
    /// Whether the targets apply.
    is_judged: bool,
}

fn servers() -> Vec<ServerRow> {
    let limited = |queue, limit_s, longest_s| Behavior::Queue {
        queue,
        limit_s,
        longest_s,
    };
    let queue = |queue, limit_s| limited(queue, limit_s, LONGEST_TRIAL_S);
    let mm1_short = limited(Queue::Exponential { servers: 1 }, 0.005, 1.0);
    let md1_short = limited(Queue::Deterministic, 0.0025, 1.0);
    let mm1 = queue(Queue::Exponential { servers: 1 }, 0.002);
    let mm4 = queue(Queue::Exponential { servers: 4 }, 0.002);
    let md1 = queue(Queue::Deterministic, 0.001);
    let pauses = queue(Queue::Pauses, 0.0015);
    [
        ("M/M/1", mm1, 0.0, true),
        ("M/M/1, scatter 3 %", mm1, 0.03, true),
        ("M/M/1, trials of 1 s", mm1_short, 0.0, false),
        ("M/D/1, trials of 1 s", md1_short, 0.0, false),
        ("M/M/4", mm4, 0.0, true),
        ("M/M/4, scatter 3 %", mm4, 0.03, true),
        ("M/D/1", md1, 0.0, true),
        ("M/D/1, scatter 3 %", md1, 0.03, true),
        ("pauses", pauses, 0.0, true),
        ("pauses, scatter 3 %", pauses, 0.03, true),
        ("limiter, equal gaps", Behavior::Constant, 0.0, true),
        ("limiter", Behavior::Limiter, 0.0, true),
        ("limiter, scatter 1 %", Behavior::Limiter, 0.01, true),
        ("limiter, scatter 3 %", Behavior::Limiter, 0.03, true),
        ("limiter, scatter 6 %", Behavior::Limiter, 0.06, false),
        ("slow crossing", Behavior::SlowlyCrossing, 0.0, true),
        (
            "slow crossing, scatter 3 %",
            Behavior::SlowlyCrossing,
            0.03,
            true,
        ),
        ("disturbed, scatter 1 %", Behavior::Disturbed, 0.01, true),
        ("disturbed, scatter 3 %", Behavior::Disturbed, 0.03, false),
        ("hysteresis", Behavior::Hysteresis, 0.0, true),
        ("hysteresis, scatter 1 %", Behavior::Hysteresis, 0.01, true),
        ("hysteresis, scatter 3 %", Behavior::Hysteresis, 0.03, false),
        ("degrading", Behavior::Degrading, 0.0, true),
        ("degrading, scatter 3 %", Behavior::Degrading, 0.03, true),
        (
            "client limit, scatter 1 %",
            Behavior::ClientLimit,
            0.01,
            true,
        ),
        ("never", Behavior::Never, 0.0, true),
    ]
    .map(|(name, behavior, scatter, is_judged)| ServerRow {
        name,
        behavior,
        scatter,
        is_judged,
    })
    .into()
}

impl ServerRow {
    /// Runs `searches` searches, each with a different seed.
    fn score(&self, searches: u64) -> SearchScore {
        let answer = self.behavior.answer();
        let mut score = SearchScore::default();
        for seed in 0..searches {
            let mut random = Random::new(seed);
            let start_per_s = SPEED_PER_S * random.between(START.0.ln(), START.1.ln()).exp();
            let mut server = SimulatedServer::new(self.behavior, self.scatter, random);
            score.add(answer, &search(&mut server, start_per_s));
            score
                .lengths_s
                .push(server.time_s / f64::from(server.trials));
        }
        score
    }
}

/// What a search found, and its cost.
#[derive(Debug, Clone)]
struct SearchRun {
    finding: CapacityFinding,
    trials: usize,
}

/// Searches for the capacity of a simulated server. `start_per_s` is the first rate.
fn search(server: &mut SimulatedServer, start_per_s: f64) -> SearchRun {
    let settings = CapacitySettings {
        lowest_per_s: LOWEST_PER_S,
        precision: PRECISION,
        ..CapacitySettings::default()
    };
    let mut search = CapacitySearch::new(start_per_s, settings);
    let mut trials = 0;
    loop {
        match search.next() {
            CapacityStep::Trial { rate_per_s, .. } => {
                let outcome = server.trial(rate_per_s);
                search.record(rate_per_s, outcome, server.is_disturbed);
                trials += 1;
            }
            CapacityStep::Done(finding) => {
                let finding = finding.with_short_trials(server.shortest_share);
                return SearchRun { finding, trials };
            }
        }
    }
}

fn row(name: &str, score: &SearchScore) -> Vec<String> {
    let (low, high) = score.right.interval();
    let right = score.right.value() * 100.0;
    vec![
        name.to_owned(),
        format!("{right:.1} % ({:.1} – {:.1} %)", low * 100.0, high * 100.0),
        cell(median(&score.trials), |trials| format!("{trials:.0}")),
        cell(median(&score.lengths_s), |length_s| {
            format!("{length_s:.1} s")
        }),
        cell(median(&score.half_widths), percent),
        cell(quantile(&score.errors, 0.95), percent),
    ]
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Figures of many searches with the same known answer.
#[derive(Debug, Clone, Default)]
struct SearchScore {
    /// Proportion of correct results: intervals that contain the capacity, and correct verdicts.
    right: Proportion,
    /// Number of trials of each search.
    trials: Vec<f64>,
    /// Mean trial length in each search, in seconds.
    lengths_s: Vec<f64>,
    /// Half-widths of the intervals, as shares of the estimates.
    half_widths: Vec<f64>,
    /// Relative errors of the estimates, without sign.
    errors: Vec<f64>,
}

impl SearchScore {
    /// Returns whether the searches met the targets for simulated servers.
    fn meets_targets(&self) -> bool {
        self.right.value() >= LEAST_COVERAGE
            && median(&self.trials).is_some_and(|trials| trials <= MOST_TRIALS)
            && median(&self.half_widths).is_none_or(|half| half <= PRECISION)
    }

    /// Adds the result of a search.
    fn add(&mut self, answer: KnownAnswer, run: &SearchRun) {
        self.right.total += match answer {
            KnownAnswer::Hysteresis { .. } => 2,
            _ => 1,
        };
        self.trials.push(run.trials as f64);
        let pairs: Vec<(f64, &CapacityEstimate)> = match (answer, &run.finding) {
            (KnownAnswer::Capacity(truth), CapacityFinding::Capacity(estimate)) => {
                vec![(truth, estimate)]
            }
            (
                KnownAnswer::Hysteresis { rising, falling },
                CapacityFinding::Hysteresis {
                    rising: up,
                    falling: down,
                },
            ) => vec![(rising, up), (falling, down)],
            (answer, finding) => {
                self.right.count += usize::from(agrees(answer, finding));
                return;
            }
        };
        let covers = |(truth, estimate): &(f64, &CapacityEstimate)| {
            (estimate.interval.low..=estimate.interval.high).contains(truth)
        };
        self.right.count += pairs.iter().filter(|pair| covers(pair)).count();
        for (truth, estimate) in pairs {
            let width = estimate.interval.high - estimate.interval.low;
            self.half_widths.push(0.5 * width / estimate.rate_per_s);
            self.errors.push((estimate.rate_per_s / truth - 1.0).abs());
        }
    }
}

/// Returns whether a result without an interval agrees with the known answer.
fn agrees(answer: KnownAnswer, finding: &CapacityFinding) -> bool {
    match (answer, finding) {
        (KnownAnswer::NotStationary, CapacityFinding::NotStationary { .. }) => true,
        (KnownAnswer::Never, CapacityFinding::Below { is_lowest, .. }) => *is_lowest,
        (
            KnownAnswer::ClientLimit(limit),
            CapacityFinding::AtLeast {
                rate_per_s,
                limit: reason,
            },
        ) => *reason == CapacityLimit::Client && (0.95 * limit..=limit).contains(rate_per_s),
        _ => false,
    }
}

/// Returns a quantile of unsorted values, or `None` if there are no values.
fn quantile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    let last = sorted.len().checked_sub(1)?;
    let at = (p * last as f64).round() as usize;
    Some(*sorted.select_nth_unstable_by(at, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_searches_are_right() {
        for server in servers().into_iter().filter(|server| server.is_judged) {
            let is_queue = matches!(server.behavior, Behavior::Queue { .. });
            let score = server.score(if is_queue { 10 } else { 100 });
            // If the coverage is 95 %, the probability of fewer than 8 correct results out of 10,
            // or of fewer than 88 out of 100, is below 1.2 %. The seeds are fixed, so every run of
            // this test gives the same result.
            let least = if is_queue { 0.8 } else { 0.88 };
            let right = score.right;
            assert!(right.value() >= least, "{}: {right}", server.name);
            let trials = quantile(&score.trials, 0.5).unwrap();
            assert!(
                trials <= 1.2 * MOST_TRIALS,
                "{}: {trials} trials",
                server.name
            );
        }
    }
}
