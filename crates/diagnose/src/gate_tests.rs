use floodmark_record::Counts;
use floodmark_record::reason::Reason;
use floodmark_record::run::Validity;
use floodmark_record::times::Times;

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
        is_alternating: false,
        is_two_sided: false,
    }
}

fn planned(max_pairs: u32) -> GateState {
    GateState {
        max_pairs: Some(max_pairs),
        is_out_of_time: false,
        turns: Vec::new(),
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
    judge(&pairs(ratios), &rules, &planned(max_pairs))
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
fn decides_whether_two_versions_differ() {
    let judged = |ratios: &[f64]| {
        let rules = GateRules {
            is_two_sided: true,
            ..rules(ComparedMetric::Throughput)
        };
        judge(&pairs(ratios), &rules, &planned(10))
    };
    let same = judged(&[1.001, 0.998, 1.002, 0.999, 1.001]);
    assert_eq!(
        (same.decision, same.ended),
        (GateDecision::Equivalent, GateEnd::Decided)
    );
    for center in [0.9, 1.1] {
        let ratios = [0.001, -0.002, 0.002, -0.001, 0.001].map(|d| center + d);
        assert_eq!(judged(&ratios).decision, GateDecision::Different);
    }
    let unclear = judged(&[0.90, 1.05, 0.93, 1.0, 0.97]);
    assert_eq!(
        (unclear.decision, unclear.ended),
        (GateDecision::Inconclusive, GateEnd::Interrupted)
    );
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
        reasons: vec![Reason::NothingOk { mostly: None }.into()],
        unsteady_bound: false,
        notes: Vec::new(),
    };
    record.runs[5].ended.reason = EndReason::Interrupted;
    let result = judge(&record, &rules(ComparedMetric::Throughput), &planned(9));
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
    let result = judge(&record, &rules(ComparedMetric::Throughput), &planned(9));
    assert_eq!(result.decision, GateDecision::Inconclusive);
    assert!(
        result
            .caveat
            .unwrap()
            .starts_with("floodmark limited 5 of 5 valid runs of a, so a difference may be hidden")
    );
    // A slower candidate still fails.
    let mut record = pairs(&[0.901, 0.899, 0.9, 0.902, 0.898]);
    for run in &mut record.runs {
        run.validity.status = Status::Bound;
    }
    let result = judge(&record, &rules(ComparedMetric::Throughput), &planned(9));
    assert_eq!(
        (result.decision, result.caveat),
        (GateDecision::Failed, None)
    );
}

/// Returns the figures of a side that was loaded for two seconds.
fn side(ok: u64, p99: Option<f64>) -> SideFigures {
    SideFigures {
        loaded_s: 2.0,
        requests: Counts {
            ok,
            ..Counts::default()
        },
        good: ok,
        response_us: Times {
            p99,
            ..Times::default()
        },
        service_us: Times::default(),
    }
}

#[test]
fn the_ordinary_runs_of_an_alternating_load_can_prevent_a_decision() {
    let turns = |process, candidate| GateTurns {
        process,
        turn_s: 0.005,
        baseline: side(100_000, None),
        candidate: side(candidate, None),
    };
    let judged = |is_two_sided, candidate, statuses: [Status; 2]| {
        let state = GateState {
            turns: (1..=5)
                .map(|n| turns(n, candidate + u64::from(n)))
                .collect(),
            ..planned(9)
        };
        let rules = GateRules {
            is_alternating: true,
            is_two_sided,
            ..rules(ComparedMetric::Throughput)
        };
        let mut record = pairs(&[1.0]);
        for (run, status) in record.runs.iter_mut().zip(statuses) {
            run.validity.status = status;
        }
        judge(&record, &rules, &state)
    };
    use GateDecision::{Different, Equivalent, Inconclusive, Passed};
    use Status::{Bound, Invalid, Valid};
    for (is_two_sided, candidate, statuses, decision, caveat) in [
        (true, 100_000, [Valid, Valid], Equivalent, None),
        (
            true,
            100_000,
            [Valid, Bound],
            Inconclusive,
            Some("1 of 1 valid run of b"),
        ),
        (
            true,
            100_000,
            [Bound, Valid],
            Inconclusive,
            Some("1 of 1 valid run of a"),
        ),
        (
            true,
            100_000,
            [Valid, Invalid],
            Inconclusive,
            Some("b has no valid run"),
        ),
        (true, 90_000, [Valid, Bound], Different, None),
        (false, 100_000, [Valid, Bound], Passed, None),
        (
            false,
            100_000,
            [Bound, Valid],
            Inconclusive,
            Some("1 of 1 valid run of a"),
        ),
        (
            false,
            100_000,
            [Invalid, Valid],
            Inconclusive,
            Some("a has no valid run"),
        ),
    ] {
        let result = judged(is_two_sided, candidate, statuses);
        // More pairs cannot change the decision.
        assert_eq!(
            (result.decision, result.ended),
            (decision, GateEnd::Decided),
            "{statuses:?}"
        );
        let found = result.caveat.unwrap_or_default();
        assert!(found.contains(caveat.unwrap_or_default()), "{found}");
        assert_eq!(found.is_empty(), caveat.is_none(), "{found}");
    }
}

#[test]
fn takes_the_figures_of_alternating_loads_from_their_turns() {
    let turns = |process, candidate| GateTurns {
        process,
        turn_s: 0.005,
        baseline: side(1000, Some(10.0)),
        candidate: side(candidate, None),
    };
    let state = GateState {
        turns: vec![turns(1, 900), turns(2, 0), turns(4, 950)],
        ..planned(9)
    };
    // The ordinary runs have a different ratio.
    let record = pairs(&[2.0]);
    let alternating = |metric| GateRules {
        is_alternating: true,
        ..rules(metric)
    };
    let result = judge(&record, &alternating(ComparedMetric::Throughput), &state);
    let found = result
        .pairs
        .iter()
        .map(|pair| (pair.process, pair.baseline, pair.candidate));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [(1, 500.0, 450.0), (4, 500.0, 475.0)]
    );
    assert_eq!(result.pairs[0].turn_s, Some(0.005));
    assert_eq!(result.excluded, ["pair 2: b: no response was ok"]);
    let result = judge(&record, &alternating(ComparedMetric::P99), &state);
    assert_eq!(result.excluded[0], "pair 1: b: figure not measured");
}

/// Returns a pseudorandom number from the standard normal distribution (Box & Muller 1958).
fn normal(state: &mut u64) -> f64 {
    let mut unit = || {
        // SplitMix64 (Steele, Lea & Flood 2014).
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    (-2.0 * (1.0 - unit()).ln()).sqrt() * (std::f64::consts::TAU * unit()).cos()
}

/// Simulates gates with up to 29 pairs. Returns the shares of gates that passed and failed.
fn decisions(true_ratio: f64, deviation: f64) -> [f64; 2] {
    const GATES: u32 = 1_000;
    const MAX: usize = 29;
    let rules = rules(ComparedMetric::Throughput);
    let plan = LookPlan::new(MAX);
    let mut random = 7;
    let mut counts = [0; 2];
    for _ in 0..GATES {
        let ratios = [(); MAX].map(|()| true_ratio * (deviation * normal(&mut random)).exp());
        let decision = (FIRST_LOOK..=MAX)
            .map(|n| {
                let interval = plan.interval(&ratios[..n]).unwrap();
                rules.decide(trimmed_ratio(&ratios[..n]).unwrap(), &interval)
            })
            .find(|decision| *decision != GateDecision::Inconclusive);
        match decision {
            Some(GateDecision::Passed) => counts[0] += 1,
            Some(GateDecision::Failed) => counts[1] += 1,
            _ => {}
        }
    }
    counts.map(|count| f64::from(count) / f64::from(GATES))
}

#[test]
fn error_rates_stay_within_their_bounds() {
    for (deviation, min_right) in [(0.02, 0.999), (0.05, 0.95), (0.1, 0.45)] {
        let [passed, failed] = decisions(1.0, deviation);
        assert!(
            passed >= min_right && failed <= 0.035,
            "equal, {deviation}: {passed} {failed}"
        );
        let [passed, failed] = decisions(0.95, deviation);
        assert!(
            failed >= min_right && passed <= 0.04,
            "slower, {deviation}: {passed} {failed}"
        );
    }
}
