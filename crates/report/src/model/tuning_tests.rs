use floodmark_record::cause::Cause;
use floodmark_record::experiment::ExperimentDescription;
use floodmark_record::interval::Interval;
use floodmark_record::tuning::{TuningEnd, TuningRatio};

use super::*;
use crate::Style;
use crate::fixture;
use crate::model::chart::ChartMark;
use crate::terminal;

fn interval(low: f64, high: f64) -> Option<Interval> {
    Some(Interval {
        low,
        high,
        confidence: 0.95,
        method: String::new(),
    })
}

/// Returns a record of a tuning run with 100 connections and 8, 40 and 100 threads.
pub(crate) fn tuned_record() -> Record {
    let values = |threads| -> KnobValues {
        [("threads", threads), ("connections", 100)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    };
    let trial = |threads: u64| format!("bars-threads-{threads}-connections-100");
    let step = |action, threads, process, per_s: f64, cause| TuningStep {
        action,
        knob: None,
        reason: "its pool is full".to_owned(),
        values: values(threads),
        trial: trial(threads),
        process,
        figure_per_s: Some(per_s).filter(|per_s| *per_s > 0.0),
        is_lower_bound: false,
        note: None,
        interval: interval(per_s * 0.99, per_s * 1.01),
        cause: Some(cause),
        limit: Some("a summary".to_owned()),
    };
    let setting = |threads, per_s, p99_us| TunedSetting {
        trial: trial(threads),
        values: values(threads),
        figure_per_s: Some(per_s),
        is_lower_bound: false,
        interval: interval(per_s * 0.97, per_s * 1.03),
        processes: 4,
        p99_us: Some(p99_us),
        on_frontier: threads != 100,
    };
    let mut record = fixture::record(Vec::new());
    record.experiment = Some(ExperimentDescription {
        question: "How many threads?".to_owned(),
        ..ExperimentDescription::default()
    });
    record.tuning = Some(Tuning {
        steps: vec![
            step(TuningAction::Start, 8, 1, 190.0, Cause::WorkerPool),
            step(TuningAction::Raise, 100, 1, 1_000.0, Cause::ServerCpu),
            step(TuningAction::Narrow, 40, 1, 990.0, Cause::ServerCpu),
            step(TuningAction::Narrow, 20, 1, 0.0, Cause::Unknown),
            step(TuningAction::Confirm, 40, 2, 995.0, Cause::ServerCpu),
        ],
        settings: vec![
            setting(8, 190.0, 60_000.0),
            setting(100, 1_000.0, 130_000.0),
            setting(40, 990.0, 110_000.0),
        ],
        best: Some(trial(100)),
        chosen: Some(trial(40)),
        ratio: Some(TuningRatio {
            ratio: 0.99,
            interval: interval(0.96, 1.02),
            confirmed_by: 3,
        }),
        cause: Some(Cause::ServerCpu),
        irrelevant: Vec::new(),
        ended: TuningEnd::Complete,
        why_ended: "server-cpu: the server is CPU-bound".to_owned(),
        failed: Vec::new(),
    });
    record
}

fn result(record: &Record) -> String {
    let (tuning, of) = of(record).unwrap();
    terminal::tests::drawn(lines(tuning, &of), 1_000)
}

#[test]
fn shows_steps_result_and_frontier() {
    let record = tuned_record();
    for (name, width) in [("wide", 110), ("narrow", 60)] {
        let style = Style {
            color: false,
            width,
        };
        insta::assert_snapshot!(name, terminal::experiment(&record, style));
    }
    let tuning = record.tuning.as_ref().unwrap();
    let mut without_trade = tuning.clone();
    without_trade.settings.remove(0);
    assert_eq!(frontier(&without_trade), None);
    assert_eq!(
        tuning_step(&tuning.steps[0]),
        "  threads = 8, connections = 100, process 1: 190/s ±\u{a0}1.0\u{a0}% – worker-pool: a summary"
    );
}

#[test]
fn draws_the_path_and_each_knob_with_several_values() {
    let record = tuned_record();
    let charts = charts(&record);
    let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
    assert_eq!(
        titles,
        [
            "Path of the tuning",
            "Path over threads and connections",
            "Figure by threads"
        ]
    );
    let points: Vec<(f64, f64)> = charts[2].curves[0].pieces[0].points.clone();
    assert_eq!(points, [(8.0, 190.0), (40.0, 990.0), (100.0, 1_000.0)]);
    assert_eq!(charts[1].marks, [ChartMark::new(100.0, "chosen")]);
    assert_eq!(charts[2].marks, [ChartMark::new(40.0, "chosen")]);
}

#[test]
fn says_that_an_unfinished_result_is_not_confirmed() {
    let mut record = tuned_record();
    let tuning = record.tuning.as_mut().unwrap();
    tuning.ended = TuningEnd::OutOfTime;
    tuning.why_ended = "the time limit was reached".to_owned();
    let text = result(&record);
    assert!(text.contains("not confirmed"), "{text}");
    assert!(text.ends_with("the time limit was reached\n"), "{text}");
    assert!(!text.contains("wider than"), "{text}");
    let tuning = record.tuning.as_mut().unwrap();
    tuning.settings[2].interval = interval(900.0, 1_100.0);
    tuning.ratio = None;
    tuning.best = tuning.chosen.clone();
    let text = result(&record);
    assert!(
        text.contains("best setting so far; not confirmed"),
        "{text}"
    );
    assert!(text.contains("± 10 % is wider than the 2 %"), "{text}");
}

#[test]
fn shows_capacities_and_their_bounds() {
    let mut record = tuned_record();
    let experiment = record.experiment.as_mut().unwrap();
    experiment.capacity = Some(CapacityGoal {
        objectives: vec!["p99 < 20ms".to_owned()],
        budget_s: 60.0,
    });
    let tuning = record.tuning.as_mut().unwrap();
    for of in &mut tuning.settings {
        (of.p99_us, of.on_frontier) = (None, false);
        of.is_lower_bound = of.figure_per_s > Some(500.0);
    }
    for step in &mut tuning.steps {
        step.is_lower_bound = step.figure_per_s > Some(500.0);
        step.interval.take_if(|_| step.is_lower_bound);
    }
    tuning.steps[3].note = Some("the server misses the objectives even at 10/s".to_owned());
    tuning.why_ended = "the highest rate at which the client can send on time".to_owned();
    let style = Style {
        color: false,
        width: 110,
    };
    insta::assert_snapshot!("capacity", terminal::experiment(&record, style));
    let steps = &record.tuning.as_ref().unwrap().steps;
    assert_eq!(
        tuning_step(&steps[3]),
        "  threads = 20, connections = 100, process 1: none (the server misses the objectives even at \
         10/s) – unknown: a summary"
    );
}
