//! Shared code for tests with real sockets: plans, servers, and functions that run a whole worker.
#![allow(dead_code, unused_macros, reason = "each test binary uses a subset")]
#![allow(clippy::unwrap_used, reason = "tests")]

pub mod driver;
pub mod http2;
#[path = "../../src/testing.rs"]
pub mod plans;
pub mod server;
#[path = "../../src/tls/testing.rs"]
pub mod tls;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floodmark_load::backend::uring::{Uring, unavailable};
use floodmark_load::budget::FileLimit;
use floodmark_load::worker::{self, RateControl, StopFlag, WorkerError};
use floodmark_record::plan::{Backend, Plan};
use floodmark_record::tls::TlsCredentials;
use floodmark_record::worker_input::WorkerInput;
use floodmark_record::{Counts, Event, SecondRow, WorkerEnd};

/// Creates one test per backend from each function. The tests are named after the function.
macro_rules! on_both_backends {
    ($($test:ident)*) => {
        mod epoll {
            $(#[test] fn $test() { super::$test(floodmark_record::plan::Backend::Epoll); })*
        }
        mod uring {
            $(#[test] fn $test() {
                if super::common::uring_works() {
                    super::$test(floodmark_record::plan::Backend::Uring);
                }
            })*
        }
    };
}

/// Returns whether this kernel allows io_uring, and prints a note if it does not.
/// Any other error fails the test.
pub fn uring_works() -> bool {
    let Err(error) = Uring::probe(1) else {
        return true;
    };
    let refused = [libc::EPERM, libc::EACCES, libc::ENOSYS].map(Some);
    assert!(refused.contains(&error.raw_os_error()), "{error}");
    eprintln!("skipped: {}", unavailable(&error));
    false
}

/// Runs a test of this binary in a separate process with these environment variables, and checks
/// that it passes.
pub fn pass_alone(test: &str, backend: Backend, variables: &[(&str, &str)]) {
    let module = match backend {
        Backend::Epoll => "epoll",
        Backend::Uring => "uring",
    };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
        .envs(variables.iter().copied())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    // The process would also succeed if no test had this name.
    assert!(
        output.status.success() && printed.contains(" 1 passed;"),
        "{test}: {printed}"
    );
}

/// Raises the soft limit on open files to the hard limit. Returns the new limit.
pub fn raise_open_files() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` outlives both calls.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    limit.rlim_cur
}

/// The events of a worker.
pub struct Run {
    pub rows: Vec<SecondRow>,
    pub end: WorkerEnd,
    /// Start of the measurement on the worker's clock, in ns.
    pub began_ns: u64,
    pub took: Duration,
}

/// Runs a plan in this process, and checks the invariants of every run.
pub fn run(plan: Plan) -> Run {
    run_with(plan, None, &StopFlag::default())
}

pub fn run_with(plan: Plan, answers_file: Option<PathBuf>, stop: &StopFlag) -> Run {
    try_run(plan, answers_file, stop).unwrap()
}

pub fn try_run(
    plan: Plan,
    answers_file: Option<PathBuf>,
    stop: &StopFlag,
) -> Result<Run, WorkerError> {
    let input = WorkerInput {
        answers_file,
        ..input(plan)
    };
    try_input(input, stop)
}

/// Returns the worker input for a plan.
pub fn input(plan: Plan) -> WorkerInput {
    WorkerInput {
        plan,
        first_number: 1,
        answers_file: None,
        request_log: None,
        credentials: TlsCredentials::default(),
        outlasts_server: false,
        share: None,
        anyway: false,
        other: None,
    }
}

/// Runs a worker input.
pub fn try_input(input: WorkerInput, stop: &StopFlag) -> Result<Run, WorkerError> {
    try_changing(input, stop, |_, _| {})
}

/// Runs a worker input. Calls `on_event` for each event; it may change the rate.
pub fn try_changing(
    input: WorkerInput,
    stop: &StopFlag,
    mut on_event: impl FnMut(&Event, &RateControl),
) -> Result<Run, WorkerError> {
    let rates = RateControl::default();
    let began = Instant::now();
    let (mut rows, mut end, mut began_ns) = (Vec::new(), None, 0);
    let files = Some(FileLimit {
        before: 1024,
        now: 1024,
    });
    worker::run(input, files, stop, &rates, None, |event| {
        on_event(&event, &rates);
        match event {
            Event::Second(row) => rows.push(row),
            Event::Began { at_ns, .. } => began_ns = at_ns,
            Event::End(e) => end = Some(e),
            _ => {}
        }
    })?;
    let run = Run {
        rows,
        end: end.expect("a worker's last event"),
        began_ns,
        took: began.elapsed(),
    };
    assert_eq!(run.end.counts.balance(), Ok(()));
    let mut sum = Counts::default();
    run.rows
        .iter()
        .filter(|row| row.phase == floodmark_record::events::Phase::Measure)
        .for_each(|row| sum.merge(&row.counts));
    assert_eq!(sum, run.end.counts, "rows add up to the totals");
    for row in run.rows.iter().filter(|row| !row.groups.is_empty()) {
        let mut groups = Counts::default();
        row.groups.iter().for_each(|g| groups.merge(&g.counts));
        assert_eq!(
            groups, row.counts,
            "the groups of a row add up to its total"
        );
    }
    assert!(run.end.ended_ns >= run.end.window_ns);
    Ok(run)
}

/// Waits until `look` returns a value.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "timed out waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
