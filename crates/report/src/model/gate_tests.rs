use floodmark_record::comparison::ComparedMetric;
use floodmark_record::gate::{GatePair, GateRules};
use floodmark_record::interval::Interval;

use super::*;
use crate::model::document::Detail;

fn interval(low: f64, high: f64) -> Interval {
    Interval {
        low,
        high,
        confidence: 0.95,
        method: String::new(),
    }
}

/// Returns a gate that passed with four pairs.
pub(crate) fn passed() -> GateResult {
    let pair = |process: u32, candidate: f64| GatePair {
        process,
        baseline: 20_000.0,
        candidate,
        turn_s: None,
        interval: (process == 4).then(|| interval(0.981, 1.012)),
    };
    GateResult {
        rules: GateRules {
            baseline: "before".to_owned(),
            candidate: "after".to_owned(),
            metric: ComparedMetric::Throughput,
            margin: 0.05,
            budget_s: 90.0,
            is_alternating: false,
            is_two_sided: false,
        },
        decision: GateDecision::Passed,
        ratio: Some(0.996),
        interval: Some(interval(0.981, 1.012)),
        pairs: vec![
            pair(1, 19_900.0),
            pair(2, 20_100.0),
            pair(3, 19_700.0),
            pair(4, 20_000.0),
        ],
        max_pairs: Some(12),
        excluded: Vec::new(),
        caveat: None,
        ended: GateEnd::Decided,
    }
}

fn shown(gate: &GateResult) -> Vec<String> {
    let text = |line: TextLine| {
        let spans: Vec<String> = line.spans.into_iter().map(|span| span.text).collect();
        format!("{}: {}", line.label, spans.join(" ")).replace('\u{a0}', " ")
    };
    lines(gate).into_iter().map(text).collect()
}

#[test]
fn states_decision_ratio_and_margin() {
    let mut gate = passed();
    assert_eq!(
        shown(&gate),
        [
            "gate: passed – throughput of after: 0.996 times that of before (95 % interval: 0.981 – 1.012, 4 \
             pairs); margin: 5 %"
        ]
    );
    assert_eq!(
        gate_pair(&gate).as_deref(),
        Some("pair 4 of up to 12: after ÷ before = 1.000; mean so far: 0.996 (0.981 – 1.012)")
    );
    (gate.ratio, gate.interval, gate.pairs) = (None, None, Vec::new());
    assert!(shown(&gate)[0].ends_with("of after and before: no pair was measured"));
    assert_eq!(gate_pair(&gate), None);
}

#[test]
fn states_whether_two_versions_differ() {
    let mut gate = passed();
    gate.rules.is_two_sided = true;
    gate.decision = GateDecision::Equivalent;
    assert_eq!(
        shown(&gate),
        [
            "comparison: equivalent – throughput of after: 0.996 times that of before (95 % interval: 0.981 – \
             1.012, 4 pairs); no difference of 5 % or more"
        ]
    );
    gate.decision = GateDecision::Different;
    let text = shown(&gate).concat();
    assert!(text.starts_with("comparison: different"), "{text}");
    assert!(text.contains("; after is worse; margin: 5 %"), "{text}");
    gate.rules.metric = ComparedMetric::P99;
    assert!(ratio(&gate).contains("; after is better;"), "{text}");
    // Both margins and the level of no difference.
    assert_eq!(chart(&gate).unwrap().levels.len(), 3);
}

#[test]
fn states_how_the_servers_were_loaded() {
    let mut gate = passed();
    gate.rules.margin = 0.005;
    for pair in &mut gate.pairs {
        pair.turn_s = Some(0.005);
    }
    let shown = shown(&gate);
    assert!(shown[0].ends_with("margin: 0.5 %"), "{shown:?}");
    assert_eq!(
        shown[1],
        ": before 20,000/s, after 19,924/s (means of all pairs; the ratio excludes extreme pairs)"
    );
    assert_eq!(
        shown[2],
        ": alternating load: both servers of a pair ran at the same time, with turns of about 5 ms"
    );
    // Too few pairs to trim.
    gate.pairs.truncate(3);
    assert!(figures(&gate).unwrap().ends_with("(means)"));
}

#[test]
fn explains_why_there_is_no_decision() {
    let mut gate = passed();
    gate.decision = GateDecision::Inconclusive;
    gate.ended = GateEnd::OutOfTime;
    assert_eq!(
        shown(&gate)[1],
        ": the budget (90 s) was used up before the interval was narrow enough; use a larger budget, a shorter load or a \
         quieter host"
    );
    gate.caveat = Some("floodmark limited 8 of 8 runs".to_owned());
    assert_eq!(shown(&gate)[1], ": floodmark limited 8 of 8 runs");
    gate.excluded = vec!["pair 2: after: no response was ok".to_owned()];
    assert_eq!(
        shown(&gate)[2],
        "excluded: pair 2: after: no response was ok"
    );
}

#[test]
fn has_a_row_per_pair() {
    let table = table(&passed());
    assert_eq!(table.rows.len(), 4);
    let cells = &table.rows[3].cells;
    let shown = table.shown(Detail::Page).into_iter();
    let last: Vec<&str> = shown.map(|i| cells[i].span.text.as_str()).collect();
    assert_eq!(last, ["20,000/s", "20,000/s", "1.000", "0.981 – 1.012"]);
}

#[test]
fn keeps_early_intervals_within_the_axis() {
    let mut gate = passed();
    if let Some(interval) = &mut gate.pairs[3].interval {
        interval.low = 0.2;
    }
    let drawn = chart(&gate).unwrap();
    let values = drawn.curves.iter().flat_map(Curve::values);
    assert!(
        values
            .into_iter()
            .all(|y| (drawn.y.from..=drawn.y.to).contains(&y))
    );
    assert_eq!(drawn.levels.len(), 2);
    gate.pairs.truncate(1);
    assert!(chart(&gate).is_none());
}
