//! `cargo xtask capacity`: counts how often the search for a server's capacity is right, on simulated
//! servers whose capacity is known, and compares it with other searches.

mod methods;
mod mlrsearch;
mod queues;
mod random;
mod score;
mod servers;

use clap::Args;

use crate::bench::word;
use crate::table::{cell, table};

use self::methods::{PRECISION, SearchMethod};
use self::queues::Queue;
use self::random::Random;
use self::score::{SearchScore, quantile};
use self::servers::{Behavior, SPEED_PER_S, SimulatedServer};

/// Minimum share of intervals that contain the capacity, and of right verdicts.
const LEAST_COVERAGE: f64 = 0.93;

/// Maximum median number of trials.
const MOST_TRIALS: f64 = 40.0;

/// Range of the first rate, as a share of the speed: the throughput of the closed model is usually
/// above the capacity.
const START: (f64, f64) = (0.7, 1.6);

/// Options of `cargo xtask capacity`.
#[derive(Debug, Args)]
pub struct CapacityOptions {
    /// Number of searches per server and method
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    searches: u64,
    /// Measure only servers whose name contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// Prints a table and returns whether floodmark's search met its targets on every server.
pub fn run(options: &CapacityOptions) -> bool {
    let servers = servers()
        .into_iter()
        .filter(|server| server.name.contains(&options.only));
    let mut rows = Vec::new();
    let mut passed = true;
    for server in servers {
        for method in SearchMethod::ALL {
            let score = server.score(method, options.searches);
            if method == SearchMethod::Floodmark && server.is_judged {
                passed &= meets_targets(&score);
            }
            rows.push(row(server.name, method, &score));
        }
    }
    let heads = "server | search | right | trials | seconds per trial | half-width | error, p95";
    print!("{}", table(heads, rows));
    println!(
        "targets of floodmark's search: {:.0} % right, {MOST_TRIALS} trials, half-width {:.0} %: {}",
        LEAST_COVERAGE * 100.0,
        PRECISION * 100.0,
        word(passed)
    );
    passed
}

/// A simulated server of the table.
#[derive(Debug, Clone, Copy)]
struct ServerRow {
    name: &'static str,
    behavior: Behavior,
    /// Standard deviation between the speeds of trials, as a share.
    scatter: f64,
    /// Whether the targets apply.
    is_judged: bool,
}

fn servers() -> Vec<ServerRow> {
    let queue = |queue, limit_s| Behavior::Queue { queue, limit_s };
    let mm1 = queue(Queue::Exponential { servers: 1 }, 0.002);
    let mm4 = queue(Queue::Exponential { servers: 4 }, 0.002);
    let md1 = queue(Queue::Deterministic, 0.001);
    let pauses = queue(Queue::Pauses, 0.005);
    [
        ("M/M/1", mm1, 0.0, true),
        ("M/M/1, scatter 3 %", mm1, 0.03, true),
        ("M/M/4", mm4, 0.0, true),
        ("M/D/1", md1, 0.0, true),
        ("pauses", pauses, 0.0, true),
        ("limiter, equal gaps", Behavior::Constant, 0.0, true),
        ("limiter", Behavior::Limiter, 0.0, true),
        ("limiter, scatter 1 %", Behavior::Limiter, 0.01, true),
        ("limiter, scatter 3 %", Behavior::Limiter, 0.03, true),
        ("slow crossing", Behavior::SlowlyCrossing, 0.0, true),
        (
            "slow crossing, scatter 2 %",
            Behavior::SlowlyCrossing,
            0.02,
            true,
        ),
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
    /// Searches many times with different seeds.
    fn score(&self, method: SearchMethod, searches: u64) -> SearchScore {
        let answer = self.behavior.answer();
        let mut score = SearchScore::default();
        for seed in 0..searches {
            let mut random = Random::new(seed);
            let start_per_s = SPEED_PER_S * random.between(START.0.ln(), START.1.ln()).exp();
            let mut server = SimulatedServer::new(self.behavior, self.scatter, random);
            score.add(answer, &method.search(&mut server, start_per_s));
            score.times_s.push(server.time_s / f64::from(server.trials));
        }
        score
    }
}

fn meets_targets(score: &SearchScore) -> bool {
    let median = |values: &[f64]| quantile(values, 0.5);
    score.right().value() >= LEAST_COVERAGE
        && median(&score.trials).is_some_and(|trials| trials <= MOST_TRIALS)
        && median(&score.half_widths).is_none_or(|half| half <= PRECISION)
}

fn row(name: &str, method: SearchMethod, score: &SearchScore) -> Vec<String> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let median = |values: &[f64]| quantile(values, 0.5);
    vec![
        name.to_owned(),
        method.name().to_owned(),
        score.right().to_string(),
        cell(median(&score.trials), |trials| format!("{trials:.0}")),
        cell(median(&score.times_s), |time_s| format!("{time_s:.1}")),
        cell(median(&score.half_widths), percent),
        cell(quantile(&score.errors, 0.95), percent),
    ]
}
