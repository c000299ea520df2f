use floodmark_record::comparison::Compared;
use floodmark_record::host::ToolInfo;

use super::*;
use crate::style::Style;
use crate::terminal;

pub(crate) fn comparison(metric: ComparedMetric, conclusion: Conclusion) -> Comparison {
    let undecided = conclusion == Conclusion::Undecided;
    let figures = |figure: f64| Compared {
        figure: Some(figure),
        processes: 5,
        attempts: 15,
    };
    Comparison {
        a: "old".to_owned(),
        b: "new".to_owned(),
        metric,
        ratio: Some(0.943_2),
        low: Some(0.921_4),
        high: Some(if undecided { 1.013 } else { 0.965_5 }),
        confidence: 0.95,
        conclusion,
        repetitions_needed: undecided.then_some(14),
        method: "Welch's t".to_owned(),
        figures_a: figures(184_210.0),
        figures_b: figures(195_302.0),
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
        schema: 1,
        tool: ToolInfo::floodmark("0.1.0", Vec::new()),
        a: side("old"),
        b: side("new"),
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
    p99.figures_a.figure = Some(522.0);
    p99.figures_b.figure = Some(549.0);
    p99.notes
        .push("old: process 3 is far from the others".to_owned());
    let mut lost = comparison(ComparedMetric::ServiceP99, Conclusion::Undecided);
    (lost.ratio, lost.low, lost.high) = (None, None, None);
    (lost.figures_a.figure, lost.repetitions_needed) = (None, None);
    lost.figures_b.figure = Some(0.4);
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
    compared.a.name = "old\u{1b}[2J".to_owned();
    assert!(!terminal::comparison(&compared, style(80)).contains('\u{1b}'));
}
