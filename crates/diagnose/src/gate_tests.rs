use floodmark_record::comparison::ComparedMetric;
use floodmark_record::run::Validity;

use super::*;
use crate::comparing::tests::{experiment, record};

const FAST: f64 = 1000.0;

fn rules(metric: ComparedMetric) -> GateRules {
    GateRules {
        baseline: "a".to_owned(),
        candidate: "b".to_owned(),
        metric,
        margin: 0.05,
        budget_s: 90.0,
    }
}

fn planned(max_pairs: u32) -> GateState {
    GateState {
        max_pairs: Some(max_pairs),
        is_out_of_time: false,
    }
}

/// Returns a record whose pairs have the given ratios.
fn pairs(ratios: &[f64]) -> Record {
    let candidates: Vec<[f64; 1]> = ratios.iter().map(|ratio| [FAST * ratio]).collect();
    let a: Vec<&[f64]> = vec![&[FAST]; ratios.len()];
    let b: Vec<&[f64]> = candidates.iter().map(<[f64; 1]>::as_slice).collect();
    experiment(record(&a, &b))
}

fn judged(ratios: &[f64], max_pairs: u32) -> GateResult {
    let rules = rules(ComparedMetric::Throughput);
    judge(&pairs(ratios), &rules, planned(max_pairs))
}

#[test]
fn decides_once_the_interval_is_narrow_enough() {
    let same = judged(&[1.001, 0.998, 1.002, 0.999, 1.001], 10);
    assert_eq!(
        (same.decision, same.ended),
        (GateDecision::Passed, GateEnd::Decided)
    );
    assert_eq!(same.pairs.len(), 5);
    assert!(same.pairs[3].interval.is_none() && same.pairs[4].interval.is_some());
    let slower = judged(&[0.951, 0.948, 0.952, 0.949, 0.951], 10);
    assert_eq!(
        (slower.decision, slower.ended),
        (GateDecision::Failed, GateEnd::Decided)
    );
    assert!((slower.ratio.unwrap() - 0.95).abs() < 1e-3);
    let unclear = judged(&[0.90, 1.05, 0.93, 1.0, 0.97], 10);
    assert_eq!(unclear.decision, GateDecision::Inconclusive);
    assert_eq!(unclear.ended, GateEnd::Interrupted);
    let all = judged(&[0.90, 1.05, 0.93, 1.0, 0.97], 5);
    assert_eq!(all.ended, GateEnd::OutOfTime);
}

#[test]
fn fewer_looks_give_a_narrower_interval() {
    let ratios = [0.97, 1.02, 0.99, 1.01, 1.0];
    let width = |max_pairs| {
        let interval = judged(&ratios, max_pairs).interval.unwrap();
        interval.high - interval.low
    };
    assert!(width(5) < width(6) && width(6) < width(40));
}

#[test]
fn explains_a_budget_that_allows_too_few_pairs() {
    let result = judged(&[1.0], 4);
    assert_eq!(
        result.caveat.as_deref(),
        Some(
            "the budget of 90 s allows only 4 pairs, but a decision needs at least 5; use a larger budget or a \
             shorter load"
        )
    );
    assert_eq!(
        (result.decision, result.interval),
        (GateDecision::Inconclusive, None)
    );
}

#[test]
fn excludes_invalid_and_unfinished_pairs() {
    let mut record = pairs(&[1.0, 0.5, 1.0]);
    record.runs[3].validity = Validity {
        status: Status::Invalid,
        reasons: vec!["no response was ok".to_owned()],
        notes: Vec::new(),
    };
    record.runs[5].ended.reason = EndReason::Interrupted;
    let result = judge(&record, &rules(ComparedMetric::Throughput), planned(9));
    let processes: Vec<u32> = result.pairs.iter().map(|pair| pair.process).collect();
    assert_eq!(processes, [1]);
    assert_eq!(result.excluded, ["pair 2: b: no response was ok"]);
}

#[test]
fn does_not_pass_if_the_client_limited_the_runs() {
    let mut record = pairs(&[1.001, 0.999, 1.0, 1.002, 0.998]);
    for run in &mut record.runs {
        run.validity.status = Status::Bound;
    }
    let result = judge(&record, &rules(ComparedMetric::Throughput), planned(9));
    assert_eq!(result.decision, GateDecision::Inconclusive);
    assert!(
        result
            .caveat
            .unwrap()
            .starts_with("floodmark limited 10 of 10 runs")
    );
    // A slower candidate still fails.
    let mut record = pairs(&[0.901, 0.899, 0.9, 0.902, 0.898]);
    for run in &mut record.runs {
        run.validity.status = Status::Bound;
    }
    let result = judge(&record, &rules(ComparedMetric::Throughput), planned(9));
    assert_eq!(
        (result.decision, result.caveat),
        (GateDecision::Failed, None)
    );
}
