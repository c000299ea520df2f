//! What the tests with real sockets share: plans, servers, and a run of a whole worker.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../../src/testing.rs"]
pub mod plans;
pub mod server;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use floodmark_load::worker::{self, StopFlag};
use floodmark_record::plan::{Plan, WorkerInput};
use floodmark_record::{Counts, Event, SecondRow, WorkerEnd};

/// What a worker emitted.
pub struct Run {
    pub rows: Vec<SecondRow>,
    pub end: WorkerEnd,
    pub took: Duration,
}

/// Runs a plan in this process; everything that must hold of every run is asserted.
pub fn run(plan: Plan) -> Run {
    run_with(plan, None, &StopFlag::default())
}

pub fn run_with(plan: Plan, answers_file: Option<PathBuf>, stop: &StopFlag) -> Run {
    let input = WorkerInput {
        plan,
        start_unix_ns: None,
        answers_file,
    };
    let began = Instant::now();
    let (mut rows, mut end) = (Vec::new(), None);
    worker::run(&input, 1024, stop, |event| match event {
        Event::Second(row) => rows.push(row),
        Event::End(e) => end = Some(e),
        _ => {}
    })
    .unwrap();
    let run = Run {
        rows,
        end: end.expect("a worker's last word"),
        took: began.elapsed(),
    };
    assert_eq!(run.end.counts.balance(), Ok(()));
    let mut sum = Counts::default();
    run.rows
        .iter()
        .filter(|row| row.phase == floodmark_record::events::Phase::Measure)
        .for_each(|row| sum.merge(&row.counts));
    assert_eq!(sum, run.end.counts, "rows add up to the totals");
    assert!(run.end.ended_ns >= run.end.window_ns);
    run
}
