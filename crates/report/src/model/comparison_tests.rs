use floodmark_record::SCHEMA_VERSION;
use floodmark_record::comparison::Compared;
use floodmark_record::host::ToolInfo;

use super::*;
use crate::Style;
use crate::terminal;

pub(crate) fn comparison(metric: ComparedMetric, conclusion: Conclusion) -> Comparison {
    let undecided = conclusion == Conclusion::Undecided;
    let figures = |figure: f64| Compared {
        figure: Some(figure),
        processes: 5,
        attempts: 15,
    };
    Comparison {
        baseline: "new".to_owned(),
        candidate: "old".to_owned(),
        metric,
        ratio: Some(0.943_2),
        low: Some(0.921_4),
        high: Some(if undecided { 1.013 } else { 0.965_5 }),
        confidence: 0.95,
        conclusion,
        repetitions_needed: undecided.then_some(14),
        repetitions_load_s: undecided.then_some(280.0),
        method: "Welch's t".to_owned(),
        figures_baseline: figures(195_302.0),
        figures_candidate: figures(184_210.0),
        notes: Vec::new(),
    }
}

pub(crate) fn compared(comparisons: Vec<Comparison>) -> ComparisonReport {
    let side = |name: &str| ComparedResult {
        name: name.to_owned(),
        of: vec!["127.0.0.1:8080 /".to_owned()],
        processes: 5,
        attempts: 15,
    };
    ComparisonReport {
        schema: SCHEMA_VERSION,
        tool: ToolInfo::floodmark("0.1.0", Vec::new()),
        baseline: side("new"),
        candidate: side("old"),
        unlike: Vec::new(),
        notes: Vec::new(),
        comparisons,
        thresholds: Vec::new(),
    }
}

fn style(width: usize) -> Style {
    Style {
        color: false,
        width,
    }
}

#[test]
fn shows_each_metric_with_its_notes() {
    let mut p99 = comparison(ComparedMetric::P99, Conclusion::Undecided);
    p99.figures_candidate.figure = Some(522.0);
    p99.figures_baseline.figure = Some(549.0);
    p99.notes
        .push("old: process 3 is far from the others".to_owned());
    let mut lost = comparison(ComparedMetric::ServiceP99, Conclusion::Undecided);
    (lost.ratio, lost.low, lost.high) = (None, None, None);
    (lost.figures_candidate.figure, lost.repetitions_needed) = (None, None);
    lost.figures_baseline.figure = Some(0.4);
    lost.method = "no ratio".to_owned();
    let throughput = comparison(ComparedMetric::Throughput, Conclusion::Different);
    let mut compared = compared(vec![throughput, p99, lost]);
    compared
        .unlike
        .push("connections: 50 in old, 100 in new".to_owned());
    compared
        .notes
        .push("the runs of a and b were not interleaved".to_owned());
    insta::assert_snapshot!(terminal::comparison(&compared, style(100)));
    insta::assert_snapshot!("narrow", terminal::comparison(&compared, style(60)));
}

#[test]
fn states_a_note_on_all_metrics_once() {
    let mut all = ComparedMetric::ALL.map(|metric| comparison(metric, Conclusion::Equivalent));
    all.iter_mut()
        .for_each(|c| c.notes.push("one server process".to_owned()));
    let text = terminal::comparison(&compared(all.to_vec()), style(100));
    assert_eq!(text.matches("one server process").count(), 1, "{text}");
    assert!(
        text.contains("\nnote         one server process\n"),
        "{text}"
    );
    assert!(
        !text.contains("differs") && !text.contains("inconclusive"),
        "{text}"
    );
}

#[test]
fn names_cannot_control_a_terminal() {
    let mut compared = compared(vec![comparison(ComparedMetric::P50, Conclusion::Different)]);
    compared.candidate.name = "old\u{1b}[2J".to_owned();
    assert!(!terminal::comparison(&compared, style(80)).contains('\u{1b}'));
}

#[test]
fn states_each_conclusion_in_a_sentence() {
    let shown = |compared: &Comparison| result(compared).replace('\u{a0}', " ");
    let mut compared = comparison(ComparedMetric::Throughput, Conclusion::Different);
    assert_eq!(
        shown(&compared),
        "throughput of old: 0.943 times that of new (95 % interval: 0.921 – 0.966)"
    );
    (compared.ratio, compared.low, compared.high) = (Some(2.31), Some(2.1), Some(2.54));
    assert_eq!(
        shown(&compared),
        "throughput of old: 2.310 times that of new (95 % interval: 2.100 – 2.540)"
    );
    (compared.ratio, compared.low, compared.high) = (Some(1.001), Some(0.99), Some(1.012));
    compared.conclusion = Conclusion::Equivalent;
    assert_eq!(
        shown(&compared),
        "throughput of old: 1.001 times that of new (95 % interval: 0.990 – 1.012); equivalent within 2 %"
    );
    let mut compared = comparison(ComparedMetric::P99, Conclusion::Undecided);
    assert_eq!(
        shown(&compared),
        "response time p99 of old: 0.943 times that of new (95 % interval: 0.921 – 1.013); \
         inconclusive: probably needs 14 server processes per side (5 min of load)"
    );
    compared.repetitions_needed = Some(466);
    compared.repetitions_load_s = None;
    assert!(
        result(&compared)
            .ends_with("probably needs 466 server processes per side; fewer on a quieter host")
    );
    (compared.low, compared.high, compared.repetitions_needed) = (None, None, None);
    assert!(result(&compared).contains("0.943 times that of new; inconclusive: not enough"));
    compared.ratio = None;
    assert!(result(&compared).ends_with("cannot be compared"));
}

#[test]
fn shows_a_claim_in_the_unit_of_the_published_figure() {
    let mut claim = ClaimResult {
        text: "no difference".to_owned(),
        source: None,
        metric: Some(ComparedMetric::P50),
        of: vec!["a".to_owned(), "b".to_owned()],
        published: Some(0.98),
        agreement: Some(Agreement::Within(0.1)),
        measured: Some(1.01),
        low: Some(0.99),
        high: Some(1.03),
        holds: Holds::Yes,
        notes: Vec::new(),
    };
    assert_eq!(subject(&claim), "p50, a ÷ b");
    assert_eq!(published(&claim), "0.980, tolerance 10 %");
    assert_eq!(measured(&claim), "1.010 (0.990 – 1.030)");
    (claim.of, claim.agreement) = (vec!["a".to_owned()], Some(Agreement::AtMost));
    (claim.published, claim.measured) = (Some(102_700.0), Some(900.0));
    (claim.low, claim.high) = (None, None);
    assert_eq!(published(&claim), "at most 103 ms");
    assert_eq!(measured(&claim), "900 µs");
    (claim.published, claim.measured) = (None, None);
    assert_eq!([published(&claim), measured(&claim)], ["–", "–"]);
}

#[test]
fn ratios_of_any_size_fit() {
    let shown = [0.000_4, 0.998_7, 1.0, 9.876_5, 12.34, 1234.6, 1e9].map(show_ratio);
    assert_eq!(
        shown,
        [
            "< 0.001", "0.999", "1.000", "9.877", "12.3", "1,235", "1.0e9"
        ]
    );
}
