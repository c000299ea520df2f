//! The cases T1 to T10: a real `floodmark load` against a server whose truth is known.
//!
//! The first go of a case that nothing disturbed decides; one that misses is repeated only where it shows by itself that the
//! machine was not to be had ([`repetition`]). The report shows each go.

mod anderson;
pub mod awake;
mod bad_answers;
mod ceiling;
mod change;
mod changing;
mod client_fault;
mod connections;
mod delay;
mod disturbance;
mod environment;
mod little;
mod loaded;
mod one_server;
mod poisson;
pub mod reference;
mod repetition;
mod report;
mod stall;
mod way;

use std::path::Path;
use std::time::Instant;

use crate::sys;
use environment::Environment;
use report::Trial;

pub use report::{CaseReport, Finding, Go};

/// A case: its name, what it is about, and how it is run.
struct Case {
    id: &'static str,
    about: &'static str,
    run: fn(&Environment) -> Result<Trial, Failure>,
}

/// Why a case could not be run at all.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("{0}")]
    Server(#[from] crate::server::TruthError),
    #[error("cannot run {what}: {error}")]
    Run { what: String, error: std::io::Error },
    #[error("floodmark gave no record (exit {exit}): {why}")]
    NoRecord { exit: String, why: String },
    #[error("floodmark was still running after {0} s and was ended")]
    Hung(u64),
}

const CASES: &[Case] = &[
    Case {
        id: "T1/0ms",
        about: "no delay: median service time",
        run: delay::none,
    },
    Case {
        id: "T1/1ms",
        about: "fixed delay of 1 ms: median service time",
        run: delay::one,
    },
    Case {
        id: "T1/10ms",
        about: "fixed delay of 10 ms: median service time",
        run: delay::ten,
    },
    Case {
        id: "T1/100ms",
        about: "fixed delay of 100 ms: median service time",
        run: delay::hundred,
    },
    Case {
        id: "T2/short",
        about: "1,000/s for 12 s against stalls of 100 ms every second",
        run: stall::short,
    },
    Case {
        id: "T2/long",
        about: "1,000/s for 12 s against stalls of 1 s every 4 s",
        run: stall::long,
    },
    Case {
        id: "T2/sigstop",
        about: "39,500 requests at 2,000/s, the server stopped for 1.4 s (the example of wrk2)",
        run: stall::stopped,
    },
    Case {
        id: "T3/0.5",
        about: "one exponential server at half its capacity",
        run: one_server::half,
    },
    Case {
        id: "T3/0.8",
        about: "one exponential server at 0.8 of its capacity",
        run: one_server::four_fifths,
    },
    Case {
        id: "T3/0.9",
        about: "one exponential server at 0.9 of its capacity",
        run: one_server::nine_tenths,
    },
    Case {
        id: "T4/1-null",
        about: "Little's law, one connection, no delay",
        run: little::one_without_delay,
    },
    Case {
        id: "T4/1",
        about: "Little's law, one connection, 1 ms",
        run: little::one,
    },
    Case {
        id: "T4/20",
        about: "Little's law, 20 connections, exponential service",
        run: little::twenty,
    },
    Case {
        id: "T5",
        about: "rejected, wrong, truncated, garbage, reset, slow and missing answers, counted to the request",
        run: bad_answers::run,
    },
    Case {
        id: "T6/announced",
        about: "the server closes after 7 requests and says so",
        run: connections::announced,
    },
    Case {
        id: "T6/silent",
        about: "the server closes after 7 requests without a word",
        run: connections::silent,
    },
    Case {
        id: "T6/drip",
        about: "bodies in five pieces, 20 ms apart, after 10 ms: first and last byte",
        run: connections::drip,
    },
    Case {
        id: "T6/continue",
        about: "100 Continue after 10 ms, and the answer 20 ms later",
        run: connections::continued,
    },
    Case {
        id: "T7/stopped",
        about: "the load process stopped for 500 ms",
        run: client_fault::stopped,
    },
    Case {
        id: "T7/starved",
        about: "the load process left with a tenth of a CPU",
        run: client_fault::starved,
    },
    Case {
        id: "T7/overload",
        about: "a rate ten times above what the client can do",
        run: client_fault::overload,
    },
    Case {
        id: "T8/poisson",
        about: "Poisson arrivals are exponential at the server; counts and bytes of both sides agree",
        run: poisson::run,
    },
    Case {
        id: "T8/ramp",
        about: "a ramp from 0 to 1,000/s arrives as its integral says",
        run: changing::ramp,
    },
    Case {
        id: "T8/steps",
        about: "three steps arrive as asked, each with its own figures",
        run: changing::steps,
    },
    Case {
        id: "T9",
        about: "the server becomes faster 12 s into a run of 20 s",
        run: change::run,
    },
    Case {
        id: "T10",
        about: "the fastest server there is: the ceiling of the client",
        run: ceiling::run,
    },
];

/// Runs every case, or those named `only` (`T2`, `T2/short`), against the binary `floodmark` on `backend`, and
/// prints each report when it is done. Empty when no case has that name.
///
/// To be called from `floodmark-truth`, which T2 starts again as the server to be stopped.
#[must_use]
pub fn run_cases(
    floodmark: &Path,
    backend: Option<String>,
    only: Option<&str>,
    skip: &[String],
) -> Vec<CaseReport> {
    let environment = Environment::new(floodmark, backend);
    // What a build has left would be written out while microseconds are compared.
    sys::write_out();
    let skipped = |id| skip.iter().any(|skip| is(skip, id));
    let selected = CASES
        .iter()
        .filter(|case| only.is_none_or(|only| is(only, case.id)) && !skipped(case.id));
    let reports: Vec<CaseReport> = selected
        .map(|case| {
            let report = run_case(&environment, case);
            print!("{report}");
            report
        })
        .collect();
    if !reports.is_empty() {
        let again = reports.iter().filter(|report| report.goes.len() > 1);
        for (index, report) in again.enumerate() {
            if index == 0 {
                println!("\ncases that did not pass at the first go:");
            }
            print!("{}", report.outcome());
        }
        let passed = reports.iter().filter(|r| r.passed).count();
        let seconds: f64 = reports.iter().map(|r| r.duration_s).sum();
        println!(
            "{passed} of {} cases passed in {seconds:.0} s",
            reports.len()
        );
    }
    reports
}

/// Whether a name is that of a case or of its group.
fn is(name: &str, id: &str) -> bool {
    let group = id.split('/').next().unwrap_or(id);
    name.eq_ignore_ascii_case(id) || name.eq_ignore_ascii_case(group)
}

fn run_case(environment: &Environment, case: &Case) -> CaseReport {
    let begin = Instant::now();
    let (trial, passed, goes) = repetition::decide(|| {
        (case.run)(environment).unwrap_or_else(|failure| {
            let mut trial = Trial::default();
            trial.must("the case could be run", false, failure.to_string());
            trial
        })
    });
    CaseReport {
        id: case.id,
        about: case.about,
        passed,
        goes,
        duration_s: begin.elapsed().as_secs_f64(),
        findings: trial.findings,
        notes: trial.notes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_selects_its_cases_and_no_other() {
        let count = |name: &str| CASES.iter().filter(|c| is(name, c.id)).count();
        assert_eq!(count("T1"), 4);
        assert_eq!(count("t2/short"), 1);
        assert_eq!(count("T10"), 1);
        assert_eq!(count("T"), 0);
    }
}
