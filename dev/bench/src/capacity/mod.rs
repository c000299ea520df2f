//! `cargo xtask capacity`: counts how often the capacity search finds the capacity of servers whose
//! capacity is known. On simulated servers, it also compares the search with other methods.

mod methods;
mod mlrsearch;
mod queues;
mod random;
mod real;
mod score;
mod servers;

use clap::Args;

use crate::bench::{Bench, Failure, word};
use crate::table::{cell, table};

use self::methods::{PRECISION, SearchMethod};
use self::queues::Queue;
use self::random::Random;
use self::score::{SearchScore, quantile};
use self::servers::{Behavior, SPEED_PER_S, SimulatedServer};

/// Default number of searches per server.
const SEARCHES: u64 = 2000;

/// Minimum number of searches for a judgment. With fewer, the share varies by chance by more than
/// 1.4 %.
const FEWEST_SEARCHES: u64 = 1000;

/// Minimum share of intervals that contain the capacity, and of right verdicts.
const LEAST_COVERAGE: f64 = 0.93;

/// Maximum median number of trials.
const MOST_TRIALS: f64 = 40.0;

/// Maximum length of a trial in seconds, without its transient.
const LONGEST_TRIAL_S: f64 = 60.0;

/// Divisor for the number of searches by the other methods, which take most of the time.
const OTHERS_DIVISOR: u64 = 4;

/// Range of the first rate, as a share of the speed: the throughput of the closed model is usually
/// above the capacity.
const START: (f64, f64) = (0.7, 1.6);

/// Options of `cargo xtask capacity`.
#[derive(Debug, Args)]
pub struct CapacityOptions {
    /// Search with `floodmark capacity` on real servers instead of simulated ones
    #[arg(long)]
    real: bool,
    /// Number of searches per server [default: 2000, with --real 4]; on simulated servers, other
    /// methods search a quarter as often
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    searches: Option<u64>,
    /// Measure only servers whose name contains TEXT
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
}

/// Prints a table and returns whether floodmark's search met its targets.
///
/// # Errors
/// A real search fails or is interrupted.
pub fn run(options: &CapacityOptions) -> Result<bool, Failure> {
    if options.real {
        let searches = options.searches.unwrap_or(real::SEARCHES);
        real::run(&Bench::new(None)?, searches, &options.only)
    } else {
        Ok(simulate(
            options.searches.unwrap_or(SEARCHES),
            &options.only,
        ))
    }
}

/// Searches the capacities of simulated servers. Returns whether floodmark's search met its targets
/// on every judged server.
fn simulate(searches: u64, only: &str) -> bool {
    let is_chosen = |server: &ServerRow| server.name.contains(only);
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for server in servers().into_iter().filter(is_chosen) {
        let scores = SearchMethod::ALL.map(|method| match method {
            SearchMethod::Floodmark => server.score(method, searches),
            _ => server.score(method, searches.div_ceil(OTHERS_DIVISOR)),
        });
        if server.is_judged && !meets_targets(&scores[0]) {
            failed.push(server.name);
        }
        rows.push(row(server.name, &scores));
    }
    let others = SearchMethod::ALL[1..]
        .iter()
        .map(|method| format!(" | {}", method.name()));
    let heads = "server | right | trials | length | half-width | error, p95".to_owned();
    print!("{}", table(&(heads + &others.collect::<String>()), rows));
    println!(
        "right: the interval contains the capacity, or the verdict is right; trials, length and \
         half-width: medians; other searches: right, trials"
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

/// A simulated server of the table.
#[derive(Debug, Clone, Copy)]
struct ServerRow {
    name: &'static str,
    behavior: Behavior,
    /// Standard deviation between the capacities of trials, as a share.
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
    /// Searches many times with different seeds.
    fn score(&self, method: SearchMethod, searches: u64) -> SearchScore {
        let answer = self.behavior.answer();
        let mut score = SearchScore::default();
        for seed in 0..searches {
            let mut random = Random::new(seed);
            let start_per_s = SPEED_PER_S * random.between(START.0.ln(), START.1.ln()).exp();
            let mut server = SimulatedServer::new(self.behavior, self.scatter, random);
            score.add(answer, &method.search(&mut server, start_per_s));
            score
                .lengths_s
                .push(server.time_s / f64::from(server.trials));
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

fn row(name: &str, scores: &[SearchScore]) -> Vec<String> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let median = |values: &[f64]| quantile(values, 0.5);
    let trials = |score: &SearchScore| cell(median(&score.trials), |trials| format!("{trials:.0}"));
    let score = &scores[0];
    let (low, high) = score.right().interval();
    let right = score.right().value() * 100.0;
    let own = [
        name.to_owned(),
        format!("{right:.1} % ({:.1} – {:.1} %)", low * 100.0, high * 100.0),
        trials(score),
        cell(median(&score.lengths_s), |length_s| {
            format!("{length_s:.1} s")
        }),
        cell(median(&score.half_widths), percent),
        cell(quantile(&score.errors, 0.95), percent),
    ];
    let others = scores[1..].iter();
    let others =
        others.map(|other| format!("{}, {}", percent(other.right().value()), trials(other)));
    own.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_searches_are_right() {
        for server in servers().into_iter().filter(|server| server.is_judged) {
            let is_queue = matches!(server.behavior, Behavior::Queue { .. });
            let score = server.score(SearchMethod::Floodmark, if is_queue { 10 } else { 100 });
            // If coverage is 95 %, the probability of fewer than 8 right results in 10, or 88 in
            // 100, is below 1.2 %. The seeds are fixed, so a repetition gives the same result.
            let least = if is_queue { 0.8 } else { 0.88 };
            let right = score.right();
            assert!(right.value() >= least, "{}: {right}", server.name);
            let trials = quantile(&score.trials, 0.5).unwrap();
            assert!(
                trials <= 1.2 * MOST_TRIALS,
                "{}: {trials} trials",
                server.name
            );
        }
    }

    #[test]
    fn other_searches_find_a_capacity_without_noise() {
        let servers = servers();
        let equal_gaps = servers
            .iter()
            .find(|server| server.behavior == Behavior::Constant);
        for method in SearchMethod::ALL {
            let score = equal_gaps.unwrap().score(method, 20);
            assert_eq!(score.right().count, 20, "{}", method.name());
        }
    }
}
