//! Runs `floodmark capacity` on small servers in Python, Node.js, Java and Go.
//!
//! The programs are in `dev/bench/servers`. Before the searches, long loads or a formula determine
//! each server's capacity. Results go to a file, so an interrupted measurement can be resumed.

mod known;
mod results;
mod server;

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use floodmark_host::Child;
use floodmark_record::capacity::{CapacityBound, CapacityResult};
use floodmark_record::units::show_rate;

use self::results::{ResultFile, StoredLine, StoredSearch};
use self::server::{GRACE, ProgramServer, directory, servers};
use super::real::ServerSearch;
use super::score::{KnownCapacity, LimitedScore, RateRange, half_width};
use super::{LEAST_COVERAGE, median, percent};
use crate::bench::{Bench, Failure, word};
use crate::statistics::Proportion;
use crate::table::{cell, table};

/// Default number of searches per server.
pub const SEARCHES: u64 = 40;

/// Maximum median half-width of the intervals of undisturbed searches, as a share of the estimate.
const MOST_HALF_WIDTH: f64 = 0.03;

/// How to search.
#[derive(Debug)]
pub struct ProgramSearches<'a> {
    /// Searches per server.
    pub searches: u64,
    /// Only servers whose name contains this text.
    pub only: &'a str,
    /// Maximum duration of a search.
    pub budget: Duration,
    /// Share of one CPU that a competing program uses during every second search.
    pub beside: Option<f64>,
    /// Number of searches that run at the same time, each on its own server process.
    pub side_by_side: usize,
    /// File with the results; the default is in cargo's target directory.
    pub results: Option<&'a Path>,
}

/// Finds each server's capacity with `floodmark capacity` and prints a table. Returns whether
/// the targets were met.
///
/// # Errors
/// A server does not start, a search leaves no record, the file with the results cannot be read or
/// written, or the user interrupts the measurement.
pub fn run(bench: &Bench, options: &ProgramSearches<'_>) -> Result<bool, Failure> {
    let path = match options.results {
        Some(path) => path.to_owned(),
        None => directory(bench)?.join("programs.jsonl"),
    };
    let mut file = ResultFile::read(path)?;
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    let is_chosen = |server: &ProgramServer| server.name.contains(options.only);
    for server in servers().into_iter().filter(is_chosen) {
        let failure = |error| format!("{}: {error}", server.name);
        server.program.build(bench).map_err(failure)?;
        let known = match file.known(server.name) {
            Some(known) => known,
            None => {
                let known = server.measure(bench).map_err(failure)?;
                file.add(StoredLine::Known {
                    server: server.name.to_owned(),
                    known,
                })?;
                known
            }
        };
        println!("{}: capacity {}", server.name, describe_known(&known));
        search_missing(bench, options, &server, &known, &mut file).map_err(failure)?;
        let score = |beside| {
            let mut score = LimitedScore::default();
            for search in file.searches(server.name, options.budget, beside) {
                score.add(&known, &search.result);
            }
            score
        };
        let alone = score(None);
        let beside = options.beside.map(|share| score(Some(share)));
        let scores = ServerScores { alone, beside };
        if !scores.meets_targets() {
            failed.push(server.name);
        }
        rows.push(scores.row(&server, &known));
    }
    let heads = "server | objective | capacity | limit | right, alone | right, beside | \
                 lower only | upper only | impossible | half-width, alone | half-width, beside";
    print!("{}", table(heads, rows));
    println!(
        "right: the interval contains the capacity, or the lower bound is true; impossible: above \
         the server's limit; half-width: median"
    );
    if let Some(share) = options.beside {
        let share = percent(share);
        println!("beside: while another program used {share} of one CPU in random bursts");
    }
    if options.side_by_side > 1 {
        let count = options.side_by_side;
        println!("{count} searches ran at the same time, each on its own server process");
    }
    let (least, most) = (percent(LEAST_COVERAGE), percent(MOST_HALF_WIDTH));
    println!(
        "targets: at least {least} right, none impossible, half-width (alone) at most {most}: {}",
        word(failed.is_empty())
    );
    for name in &failed {
        println!("  {name}");
    }
    println!("results: {}", file.path.display());
    Ok(failed.is_empty())
}

/// Runs the searches that the file does not contain, and adds them to the file.
fn search_missing(
    bench: &Bench,
    options: &ProgramSearches<'_>,
    server: &ProgramServer,
    known: &KnownCapacity,
    file: &mut ResultFile,
) -> Result<(), Failure> {
    let missing = |beside: Option<f64>| -> Vec<u64> {
        let stored = file.searches(server.name, options.budget, beside);
        let stored: Vec<u64> = stored.map(|search| search.seed).collect();
        seeds(options.searches, options.beside.is_some(), beside.is_some())
            .filter(|seed| !stored.contains(seed))
            .collect()
    };
    let alone = missing(None);
    let beside = options
        .beside
        .map_or(Vec::new(), |_| missing(options.beside));
    let mut groups = [
        (None, alone.chunks(options.side_by_side)),
        (options.beside, beside.chunks(options.side_by_side)),
    ];
    loop {
        let mut is_done = true;
        for (share, chunks) in &mut groups {
            let Some(seeds) = chunks.next() else { continue };
            is_done = false;
            let results = search_together(bench, options, server, seeds, *share)?;
            let mut failure = None;
            for (seed, result) in seeds.iter().zip(results) {
                match result {
                    Ok(result) => {
                        let search = StoredSearch {
                            server: server.name.to_owned(),
                            seed: *seed,
                            budget: options.budget,
                            beside: *share,
                            result: Box::new(result),
                        };
                        println!("{}", describe_search(known, &search));
                        file.add(StoredLine::Search(search))?;
                    }
                    Err(error) => failure = Some(format!("search {seed}: {error}")),
                }
            }
            if let Some(failure) = failure {
                return Err(failure.into());
            }
        }
        if is_done {
            return Ok(());
        }
    }
}

/// Searches for the capacity of a fresh server process.
fn search(
    bench: &Bench,
    server: &ProgramServer,
    seed: u64,
    budget: Duration,
) -> Result<CapacityResult, Failure> {
    let running = server.start(bench)?;
    let search = ServerSearch {
        url: &running.url,
        objective: server.objective,
        seed,
        budget,
    };
    let capacity = search.run(bench)?;
    running.stop()?;
    Ok(serde_json::from_value(capacity)?)
}

/// Returns the seeds of the searches with or without a competing program. If `is_shared`, every
/// second search has one.
fn seeds(searches: u64, is_shared: bool, is_beside: bool) -> impl Iterator<Item = u64> {
    (1..=searches).filter(move |seed| !is_shared || seed.is_multiple_of(2) == is_beside)
}

/// Runs concurrent searches, each on its own server process. With `beside`, a program uses that
/// share of one CPU meanwhile.
fn search_together(
    bench: &Bench,
    options: &ProgramSearches<'_>,
    server: &ProgramServer,
    seeds: &[u64],
    beside: Option<f64>,
) -> Result<Vec<Result<CapacityResult, String>>, Failure> {
    let mut burner = match beside {
        Some(share) => {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["burn", "--share", &share.to_string()]);
            command.args(["--seed", &seeds[0].to_string()]);
            command.stdout(Stdio::null());
            Some(Child::start(command)?)
        }
        None => None,
    };
    let results = thread::scope(|scope| {
        let search = |seed| {
            let result = search(bench, server, seed, options.budget);
            result.map_err(|error| error.to_string())
        };
        let start = |seed: &u64| {
            let seed = *seed;
            scope.spawn(move || search(seed))
        };
        let threads: Vec<_> = seeds.iter().map(start).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("panicked".to_owned()))
        };
        threads.into_iter().map(join).collect()
    });
    if let Some(burner) = &mut burner {
        burner.stop(GRACE)?;
    }
    Ok(results)
}

/// Figures of one server.
struct ServerScores {
    alone: LimitedScore,
    /// Searches during which a competing program used CPU.
    beside: Option<LimitedScore>,
}

impl ServerScores {
    fn all(&self) -> impl Iterator<Item = &LimitedScore> {
        std::iter::once(&self.alone).chain(&self.beside)
    }

    fn sum(&self, count: impl Fn(&LimitedScore) -> usize) -> usize {
        self.all().map(count).sum()
    }

    fn meets_targets(&self) -> bool {
        let right = Proportion {
            count: self.sum(|score| score.right.count),
            total: self.sum(|score| score.right.total),
        };
        right.value() >= LEAST_COVERAGE
            && self.sum(|score| score.impossible) == 0
            && median(&self.alone.half_widths).is_some_and(|half| half <= MOST_HALF_WIDTH)
    }

    fn row(&self, server: &ProgramServer, known: &KnownCapacity) -> Vec<String> {
        let half_width = |score: &LimitedScore| cell(median(&score.half_widths), percent);
        let beside = self.beside.as_ref();
        vec![
            server.name.to_owned(),
            server.objective.to_string(),
            describe_known(known),
            cell(known.limit_per_s, |limit| format!("{}/s", show_rate(limit))),
            self.alone.right.to_string(),
            cell(beside, |score| score.right.to_string()),
            self.sum(|score| score.lower_only).to_string(),
            self.sum(|score| score.upper_only).to_string(),
            self.sum(|score| score.impossible).to_string(),
            half_width(&self.alone),
            cell(beside, half_width),
        ]
    }
}

fn describe_range(range: RateRange) -> String {
    let [low, high] = [range.low, range.high].map(show_rate);
    if low == high {
        format!("{low}/s")
    } else {
        format!("{low} – {high}/s")
    }
}

fn describe_known(known: &KnownCapacity) -> String {
    let rising = describe_range(known.rising);
    match known.falling {
        Some(falling) => format!("{rising}; after an overload: {}", describe_range(falling)),
        None => rising,
    }
}

fn describe_search(known: &KnownCapacity, search: &StoredSearch) -> String {
    let StoredSearch {
        server,
        seed,
        beside,
        result,
        ..
    } = search;
    let place = beside.map_or("alone".to_owned(), |share| {
        format!("beside {}", percent(share))
    });
    let rate = cell(result.rate_per_s, |rate| format!("{}/s", show_rate(rate)));
    let found = match (result.low, result.high, result.bound) {
        (Some(low), Some(high), _) => {
            format!("{rate} ({})", describe_range(RateRange { low, high }))
        }
        (_, _, Some(CapacityBound::Lower)) => format!("at least {rate}"),
        (_, _, Some(CapacityBound::Upper)) => format!("below {rate}"),
        _ => format!("no interval, {rate}"),
    };
    let falling = result.falling.as_ref().map_or(String::new(), |falling| {
        format!("; after an overload: {}/s", show_rate(falling.rate_per_s))
    });
    let half_width = cell(half_width(result), percent);
    let right = if known.agrees(result) {
        "right"
    } else {
        "WRONG"
    };
    let impossible = if known.is_exceeded(result) {
        ", above the limit"
    } else {
        ""
    };
    format!(
        "{server}, search {seed} {place}: {found}{falling}, half-width {half_width}, {right}{impossible}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_search_is_beside_a_program() {
        let list = |is_shared, is_beside| seeds(5, is_shared, is_beside).collect::<Vec<u64>>();
        assert_eq!(list(true, false), [1, 3, 5]);
        assert_eq!(list(true, true), [2, 4]);
        assert_eq!(list(false, false), [1, 2, 3, 4, 5]);
    }
}
