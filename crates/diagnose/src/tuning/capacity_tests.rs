//! Tests of tuning for capacity, on records of simulated servers.

use floodmark_record::Record;
use floodmark_record::capacity::{
    CapacityBound, CapacityEnd, CapacityEnded, CapacityKind, CapacityResult, FallingCapacity,
};
use floodmark_record::cause::Cause;
use floodmark_record::host::{Environment, ToolInfo};
use floodmark_record::plan::{Length, Schedule, Spacing};
use floodmark_record::run::Run;
use floodmark_record::tuning::{
    Tuning, TuningAction, TuningDescription, TuningEnd, TuningGoal, TuningStep,
};
use floodmark_record::units::Rate;

use super::search_tests::{threads, verdict};
use super::{TuningState, judge};
use crate::next::tests::run;
use crate::testing::{capacity, closed, scheduled};

/// A search on a simulated server process.
struct SimulatedSearch {
    found: CapacityResult,
    closed_per_s: f64,
    /// Verdict on the closed-model load.
    closed: Cause,
    /// Verdict on the load at 105 % of the capacity.
    above: Cause,
}

impl SimulatedSearch {
    fn of(found: CapacityResult) -> Self {
        SimulatedSearch {
            found,
            closed_per_s: 2_000.0,
            closed: Cause::WorkerPool,
            above: Cause::OfferedRate,
        }
    }

    /// Adds the search to a record, as the measurement of the process that a tuning run needs next.
    fn add(self, record: &mut Record, next: &TuningStep) {
        let threads = next.values["threads"];
        let of_process = |attempt, plan| Run {
            trial: Some(next.trial.clone()),
            process: next.process,
            setting: [("threads".to_owned(), threads.to_string())].into(),
            attempt,
            ..run(plan)
        };
        record.runs.push(Run {
            throughput_per_s: Some(self.closed_per_s),
            verdict: Some(verdict(self.closed, threads as f64)),
            ..of_process(1, closed())
        });
        for (attempt, level) in [(2, 1.0), (3, 1.05)] {
            let rate = self.found.rate_per_s.map(|per_s| level * per_s);
            let Some(rate) = rate.and_then(Rate::new) else {
                continue;
            };
            let plan = scheduled(Schedule::Constant {
                rate,
                spacing: Spacing::Poisson,
                length: Length::seconds(2.0),
            });
            record.runs.push(Run {
                verdict: Some(if level > 1.0 {
                    verdict(self.above, threads as f64)
                } else {
                    verdict(Cause::None, 0.0)
                }),
                ..of_process(attempt, plan)
            });
        }
        record.capacities.push(CapacityResult {
            trial: Some(next.trial.clone()),
            process: next.process,
            ..self.found
        });
    }
}

fn ended(reason: CapacityEnd, found: CapacityResult) -> CapacityResult {
    let end = CapacityEnded {
        elapsed_s: 50.0,
        reason,
        notes: Vec::new(),
    };
    CapacityResult {
        end: Some(end),
        ..found
    }
}

fn settled(per_s: f64) -> CapacityResult {
    let found = capacity(per_s, 0.98 * per_s, 1.02 * per_s);
    ended(CapacityEnd::Settled, found)
}

/// Returns a search that found no capacity, or only a bound.
fn without_capacity(finding: CapacityKind, bound: Option<CapacityBound>) -> CapacityResult {
    CapacityResult {
        finding,
        bound,
        low: None,
        high: None,
        ..settled(1_000.0)
    }
}

/// Tunes a simulated server's threads, starting at 2, with at most `processes` processes.
fn tune(processes: usize, server: impl Fn(u64) -> SimulatedSearch) -> Tuning {
    let tuning = TuningDescription {
        trial: "t".to_owned(),
        goal: TuningGoal::Capacity,
        knobs: vec![threads(2)],
    };
    let tool = ToolInfo::floodmark("0.1.0", vec!["floodmark".to_owned()]);
    let mut record = Record::new(tool, Environment::default());
    for _ in 0..processes {
        let (_, next) = judge(&record, &tuning, TuningState::default());
        let Some(next) = next else { break };
        server(next.values["threads"]).add(&mut record, &next);
    }
    let (tuned, _) = judge(&record, &tuning, TuningState::default());
    tuned
}

fn first_step(found: CapacityResult) -> TuningStep {
    let tuned = tune(1, |_| SimulatedSearch::of(found.clone()));
    tuned.steps[0].clone()
}

/// Threads that serve 50/s each, and CPUs that serve 2,000/s. The objectives are met up to a share
/// of the throughput that grows with the number of threads.
fn pool(threads: u64) -> SimulatedSearch {
    let throughput = 50.0 * threads.min(50) as f64;
    let closed_per_s = throughput.min(2_000.0);
    let share = 1.0 - 0.8 / threads as f64;
    SimulatedSearch {
        closed_per_s,
        closed: if throughput < 2_000.0 {
            Cause::WorkerPool
        } else {
            Cause::ServerCpu
        },
        ..SimulatedSearch::of(settled((share * throughput).min(0.95 * 2_000.0)))
    }
}

#[test]
fn finds_the_smallest_pool_with_the_best_capacity() {
    let tuned = tune(100, pool);
    assert_eq!(tuned.ended, TuningEnd::Complete);
    assert_eq!(tuned.steps[1].action, TuningAction::Raise);
    assert_eq!(tuned.steps[1].values["threads"], 50);
    let chosen = tuned.setting(tuned.chosen.as_ref().unwrap()).unwrap();
    // 39 threads have the capacity of 50 threads.
    assert!((38..=50).contains(&chosen.values["threads"]), "{chosen:?}");
    assert_eq!(tuned.cause, Some(Cause::ServerCpu));
    let step = &tuned.steps[0];
    assert_eq!(step.figure_per_s, Some(60.0));
    assert_eq!(step.interval.as_ref().map(|of| of.low), Some(0.98 * 60.0));
    assert!(tuned.settings.iter().all(|one| one.p99_us.is_none()));
    assert!(tuned.settings.iter().all(|one| !one.on_frontier));
}

#[test]
fn says_that_the_load_limits_the_size_of_a_pool() {
    let server = |threads: u64| SimulatedSearch::of(settled(40.0 * threads.min(50) as f64));
    let tuned = tune(100, server);
    let expected = "no larger pool was tried, because at most 50 requests are in flight";
    assert!(tuned.why_ended.ends_with(expected), "{}", tuned.why_ended);
}

#[test]
fn computes_the_smallest_pool_from_the_throughput() {
    // The capacity per thread is higher with 10 threads (47.5/s) than with 2 (30/s), so a bound
    // computed from the capacity would rule out 10.
    let server = |threads: u64| SimulatedSearch {
        closed: match threads {
            ..10 => Cause::WorkerPool,
            _ => Cause::ServerCpu,
        },
        closed_per_s: 50.0 * threads.min(10) as f64,
        ..SimulatedSearch::of(settled(match threads {
            ..10 => 30.0 * threads as f64,
            _ => 475.0,
        }))
    };
    let tuned = tune(100, server);
    let chosen = tuned.setting(tuned.chosen.as_ref().unwrap()).unwrap();
    assert!((10..15).contains(&chosen.values["threads"]), "{chosen:?}");
}

#[test]
fn follows_the_load_above_the_capacity_if_it_names_a_limit() {
    for (above, expected) in [
        (Cause::StoreCpu, Cause::StoreCpu),
        (Cause::OfferedRate, Cause::WorkerPool),
        (Cause::Unknown, Cause::WorkerPool),
        (Cause::None, Cause::WorkerPool),
    ] {
        let server = |_| SimulatedSearch {
            above,
            ..SimulatedSearch::of(settled(1_000.0))
        };
        assert_eq!(tune(1, server).steps[0].cause, Some(expected), "{above}");
    }
}

#[test]
fn the_capacity_after_an_overload_counts() {
    let falling = FallingCapacity {
        rate_per_s: 700.0,
        low: Some(680.0),
        high: Some(720.0),
    };
    let step = first_step(CapacityResult {
        finding: CapacityKind::Hysteresis,
        falling: Some(falling),
        ..settled(1_000.0)
    });
    assert_eq!(step.figure_per_s, Some(700.0));
    assert_eq!(
        step.interval.map(|of| (of.low, of.high)),
        Some((680.0, 720.0))
    );
}

#[test]
fn states_why_a_process_has_no_capacity() {
    let changing = CapacityResult {
        last_per_s: Some(500.0),
        ..without_capacity(CapacityKind::NotStationary, None)
    };
    for (found, expected) in [
        (
            changing,
            "not stationary: the capacity changed from 1,000/s to 500/s",
        ),
        (
            without_capacity(CapacityKind::Never, Some(CapacityBound::Upper)),
            "misses the objectives even at 1,000/s",
        ),
        (
            without_capacity(CapacityKind::Unfinished, Some(CapacityBound::Lower)),
            "the search ended before",
        ),
        (
            ended(CapacityEnd::Failed, settled(1_000.0)),
            "the search failed",
        ),
    ] {
        let tuned = tune(1, |_| SimulatedSearch::of(found.clone()));
        let step = &tuned.steps[0];
        assert_eq!((step.figure_per_s, step.is_lower_bound), (None, false));
        let note = step.note.as_deref().unwrap();
        assert!(note.contains(expected), "{note}");
        assert_eq!(tuned.ended, TuningEnd::NoStart);
        assert!(tuned.why_ended.ends_with(note), "{}", tuned.why_ended);
    }
}

#[test]
fn does_not_raise_knobs_beyond_the_limit_of_the_client() {
    let bound = Some(CapacityBound::Lower);
    let server = |_| SimulatedSearch::of(without_capacity(CapacityKind::ClientLimit, bound));
    let tuned = tune(100, server);
    assert_eq!(tuned.ended, TuningEnd::Complete);
    let is_raised = |step: &TuningStep| step.values["threads"] > 2;
    assert!(!tuned.steps.iter().any(is_raised), "{:?}", tuned.steps);
    assert!(tuned.settings.iter().all(|one| one.is_lower_bound));
    assert!(tuned.why_ended.contains("client"), "{}", tuned.why_ended);
    assert_eq!(tuned.chosen.as_deref(), Some("t-threads-1"));
    assert_eq!(tuned.irrelevant, Vec::<String>::new());
}

#[test]
fn an_interrupted_search_is_no_process() {
    let found = ended(CapacityEnd::Interrupted, settled(1_000.0));
    let tuned = tune(1, |_| SimulatedSearch::of(found.clone()));
    assert_eq!(tuned.steps, []);
    assert_eq!(tuned.ended, TuningEnd::Interrupted);
}
