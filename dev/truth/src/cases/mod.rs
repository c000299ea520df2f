//! Cases T1 to T16: `floodmark load` against a server whose behavior is known.
//!
//! The first undisturbed attempt decides the result of a case. A failed attempt is repeated only if
//! the host was measurably disturbed ([`findings`]). The report lists each attempt. Cases that
//! mostly wait run side by side, after the others.

mod arrivals;
mod client_fault;
mod environment;
mod findings;
mod http2;
mod overhead;
pub mod reference;
mod request_log;
mod server_fault;
mod sound_server;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::scenario::{ResponseFault, Service, Stall};
use environment::CaseEnvironment;
use findings::CaseRun;

pub use overhead::Awake;

/// Which cases to run, and how.
#[derive(Debug, clap::Args)]
pub struct CaseOptions {
    /// Path of the floodmark binary
    #[arg(long)]
    pub floodmark: PathBuf,
    /// Run only this case, such as T2
    #[arg(long)]
    pub only: Option<String>,
    /// Skip this case (repeatable)
    #[arg(long)]
    pub skip: Vec<String>,
    /// Backend that floodmark uses [default: auto]
    #[arg(long)]
    pub backend: Option<String>,
    /// Divide each load among these agents, such as local:2 [default: a single process]
    #[arg(long)]
    pub agents: Option<String>,
}

/// Findings of an attempt, or the reason why the case cannot run.
type CaseResult = Result<CaseRun, CaseError>;

/// Name, CPU use, description and function of a case.
type Case = (
    &'static str,
    CpuUse,
    &'static str,
    fn(&CaseEnvironment<'_>) -> CaseResult,
);

/// Whether cases can run at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CpuUse {
    /// The case measures microseconds, or keeps a thread busy all the time.
    Alone,
    /// The case mostly waits, and its tolerances are at least 50 µs.
    SideBySide,
}

use CpuUse::{Alone, SideBySide};

/// Number of cases that run side by side.
const LANES: usize = 4;

/// Cases that start first, because they take longest. T3 also uses a CPU for several seconds after
/// its load, and this time must not overlap with T2.
const FIRST: [&str; 3] = ["T3", "T9", "T2"];

/// Reason why a case cannot run.
#[derive(Debug, thiserror::Error)]
enum CaseError {
    #[error("{0}")]
    Server(#[from] crate::server::TruthError),
    #[error("{0}")]
    Child(#[from] floodmark_host::ChildError),
    #[error("cannot run {what}: {error}")]
    Run { what: String, error: std::io::Error },
    #[error("floodmark wrote no record (exit {exit}): {reason}")]
    NoRecord { exit: String, reason: String },
    #[error("floodmark did not finish within {0} s")]
    TooSlow(u64),
}

impl CaseError {
    /// Returns a function that converts an I/O error into [`CaseError::Run`].
    fn run(what: impl std::fmt::Display) -> impl Fn(std::io::Error) -> CaseError {
        move |error| CaseError::Run {
            what: what.to_string(),
            error,
        }
    }
}

const SHORT_STALL: Stall = Stall {
    first_ms: 500,
    every_ms: 1_000,
    length_ms: 100,
};
const LONG_STALL: Stall = Stall {
    first_ms: 2_000,
    every_ms: 4_000,
    length_ms: 1_000,
};
const DRIP: ResponseFault = ResponseFault::Drip {
    pieces: 5,
    gap_us: 20_000,
};
const CONTINUE: ResponseFault = ResponseFault::Continue { gap_us: 20_000 };
const INSTANT: Service = Service::Fixed { delay_us: 0 };
const DELAY: Service = Service::Fixed { delay_us: 1_000 };
const EXPONENTIAL: Service = Service::Exponential {
    mean_us: 500.0,
    servers: 1,
};

#[rustfmt::skip]
const CASES: &[Case] = &[
    ("T1/0ms", Alone, "no delay: median service time", |e| sound_server::fixed_delay(e, 0)),
    ("T1/1ms", Alone, "fixed delay of 1 ms: median service time", |e| sound_server::fixed_delay(e, 1_000)),
    ("T1/10ms", Alone, "fixed delay of 10 ms: median service time", |e| sound_server::fixed_delay(e, 10_000)),
    ("T1/100ms", SideBySide, "fixed delay of 100 ms: median service time", |e| sound_server::fixed_delay(e, 100_000)),
    ("T2/short", SideBySide, "1,000/s for 12 s, stalls of 100 ms every second", |e| server_fault::stall(e, SHORT_STALL)),
    ("T2/long", SideBySide, "1,000/s for 12 s, stalls of 1 s every 4 s", |e| server_fault::stall(e, LONG_STALL)),
    ("T2/sigstop", SideBySide, "39,500 requests at 2,000/s, server stopped for 1.4 s (wrk2's example)", server_fault::stopped),
    ("T3/0.5", SideBySide, "one exponential server at 50 % of its capacity", |e| sound_server::queue(e, 0.5)),
    ("T3/0.8", SideBySide, "one exponential server at 80 % of its capacity", |e| sound_server::queue(e, 0.8)),
    ("T3/0.9", SideBySide, "one exponential server at 90 % of its capacity", |e| sound_server::queue(e, 0.9)),
    ("T4/1-null", Alone, "Little's law, one connection, no delay", |e| sound_server::little(e, 1, INSTANT)),
    ("T4/1", SideBySide, "Little's law, one connection, 1 ms", |e| sound_server::little(e, 1, DELAY)),
    ("T4/20", SideBySide, "Little's law, 20 connections, exponential service", |e| sound_server::little(e, 20, EXPONENTIAL)),
    ("T5", SideBySide, "rejected, wrong, truncated, malformed, reset, slow and missing responses, counted exactly", server_fault::faulty_responses),
    ("T6/announced", SideBySide, "the server closes after 7 requests, with `Connection: close`", |e| server_fault::closing(e, true)),
    ("T6/silent", SideBySide, "the server closes after 7 requests, without `Connection: close`", |e| server_fault::closing(e, false)),
    ("T6/drip", SideBySide, "bodies in five pieces, 20 ms apart, starting after 10 ms", |e| server_fault::slow(e, DRIP)),
    ("T6/continue", SideBySide, "100 Continue after 10 ms, and the response 20 ms later", |e| server_fault::slow(e, CONTINUE)),
    ("T7/stopped", SideBySide, "the load process is stopped for 500 ms", client_fault::stopped),
    ("T7/starved", Alone, "the load process has a tenth of a CPU", client_fault::starved),
    ("T7/overload", Alone, "ten times the client's maximum rate", client_fault::overload),
    ("T8/poisson", Alone, "Poisson arrivals have exponential intervals at the server; counts and bytes agree", arrivals::poisson),
    ("T8/ramp", Alone, "arrivals follow the integral of a ramp from 0 to 1,000/s", arrivals::ramp),
    ("T8/steps", Alone, "arrivals of three steps are on schedule, and each step has its own figures", arrivals::steps),
    ("T9", SideBySide, "the server becomes faster 12 s into a run of 20 s", sound_server::speedup),
    ("T10", Alone, "the client's maximum rate, with a server that responds immediately", sound_server::maximum_rate),
    ("T11/queue", SideBySide, "HTTP/2: 120/s on 4 streams that serve 80/s (D/D/s): blocked time", |e| http2::stream_limit(e, 120.0, 120)),
    ("T11/room", SideBySide, "HTTP/2: 60/s on 4 streams that serve 80/s: no blocked time", |e| http2::stream_limit(e, 60.0, 60)),
    ("T12/1", SideBySide, "HTTP/2: stalls of 100 ms every second, 1 stream per connection", |e| http2::stall(e, "-c 100 --streams 1")),
    ("T12/100", SideBySide, "HTTP/2: stalls of 100 ms every second, 100 streams on one connection", |e| http2::stall(e, "-c 1 --streams 100")),
    ("T13/announced", SideBySide, "HTTP/2: GOAWAY after 25 requests, and all open streams are served", |e| http2::go_away(e, true, "")),
    ("T13/closed", SideBySide, "HTTP/2: GOAWAY after 25 requests leaves streams unprocessed, closed model", |e| http2::go_away(e, false, "")),
    ("T13/open", SideBySide, "HTTP/2: GOAWAY after 25 requests leaves streams unprocessed, 4,000/s", |e| http2::go_away(e, false, "--rate 4000")),
    ("T14", SideBySide, "HTTP/2: the limit on streams changes from 100 to 1 to 100", http2::limit_changes),
    ("T15", Alone, "HTTP/2: no flow-control credit for request bodies for 498 ms", http2::window),
    ("T16", SideBySide, "HTTP/2: the same seed gives the same requests and times as over HTTP/1.1", http2::same_seed),
];

/// Runs the cases and prints a report for each case. The options `only` and `skip` contain names
/// such as `T2` or `T2/short`; without `only`, all cases run. Returns whether all cases passed, or
/// `None` if no case matches.
///
/// Call this function only from `floodmark-truth`: case T2 starts and stops a server process that
/// runs the same program.
#[must_use]
pub fn run_cases(options: &CaseOptions) -> Option<bool> {
    let environment = CaseEnvironment {
        options,
        truth: std::env::current_exe().unwrap_or_default(),
    };
    // Write the output of a previous build to disk now, so that no write disturbs a measurement.
    rustix::fs::sync();
    let begin = Instant::now();
    let is_selected = |case: &&Case| {
        let is_named = |name: &String| matches(name, case.0);
        options.only.as_ref().is_none_or(is_named) && !options.skip.iter().any(is_named)
    };
    let selected = CASES.iter().filter(is_selected);
    let (mut shared, alone): (Vec<&Case>, Vec<&Case>) =
        selected.partition(|(_, cpu_use, ..)| *cpu_use == SideBySide);
    shared.sort_by_key(|(id, ..)| {
        FIRST
            .iter()
            .position(|name| matches(name, id))
            .unwrap_or(usize::MAX)
    });
    let count = alone.len() + shared.len();
    let passed = run_lanes(&environment, &alone, 1) + run_lanes(&environment, &shared, LANES);
    if count == 0 {
        return None;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{passed} of {count} cases passed in {seconds:.0} s");
    Some(passed == count)
}

/// Runs cases, `lanes` at a time, and prints each report. Returns the number of passed cases.
fn run_lanes(environment: &CaseEnvironment<'_>, cases: &[&Case], lanes: usize) -> usize {
    let (queue, passed) = (Mutex::new(cases.iter()), AtomicUsize::new(0));
    let next = || queue.lock().map_or(None, |mut queue| queue.next());
    let lane = || {
        while let Some(case) = next() {
            passed.fetch_add(usize::from(run_case(environment, case)), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(lane);
        }
    });
    passed.into_inner()
}

/// Returns whether a name is the id of a case or of its group.
fn matches(name: &str, id: &str) -> bool {
    let group = id.split('/').next().unwrap_or(id);
    name.eq_ignore_ascii_case(id) || name.eq_ignore_ascii_case(group)
}

/// Runs a case and prints its report in one piece. Returns whether the case passed.
fn run_case(environment: &CaseEnvironment<'_>, (id, _, about, run): &Case) -> bool {
    let begin = Instant::now();
    let (last, void) = findings::decide(|| {
        run(environment).unwrap_or_else(|error| {
            let mut findings = CaseRun::default();
            findings.must("the case runs", false, error.to_string());
            findings
        })
    });
    let passed = last.has_passed();
    let verdict = if passed { "ok    " } else { "FAILED" };
    let seconds = begin.elapsed().as_secs_f64();
    let mut report = format!("{verdict} {id:<12} {about} ({seconds:.1} s)\n");
    for (index, attempt) in void.iter().enumerate() {
        report += &format!("         attempt {}: {attempt}\n", index + 1);
    }
    print!("{report}{last}");
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_selects_its_cases() {
        let count = |name: &str| CASES.iter().filter(|case| matches(name, case.0)).count();
        assert_eq!(count("T1"), 4);
        assert_eq!(count("t2/short"), 1);
        assert_eq!(count("T10"), 1);
        assert_eq!(count("T"), 0);
    }
}
