use roxmltree::{Document, Node};

use super::*;
use crate::fixture;

fn no_fault(_: &floodmark_record::Run) -> Option<(CaseOutcome, String)> {
    None
}

fn elements<'a>(document: &'a Document<'_>, name: &str) -> Vec<Node<'a, 'a>> {
    let all = document.descendants();
    all.filter(|node| node.has_tag_name(name)).collect()
}

#[test]
fn counts_agree_with_the_elements() {
    let mut record = fixture::all_tables();
    // Remove the tuning run and the gate, because either may turn errors into skipped cases.
    (record.tuning, record.gate) = (None, None);
    let text = of_record(&record, &no_fault);
    let document = Document::parse(&text).unwrap();
    for suites in elements(&document, "testsuites")
        .into_iter()
        .chain(elements(&document, "testsuite"))
    {
        for (attribute, name) in [
            ("tests", "testcase"),
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ] {
            let within = suites.descendants();
            let n = within.filter(|node| node.has_tag_name(name)).count();
            assert_eq!(suites.attribute(attribute), Some(&*n.to_string()), "{name}");
        }
    }
    for name in ["failure", "error", "skipped"] {
        assert!(!elements(&document, name).is_empty(), "{name}: {text}");
    }
    let time = elements(&document, "testsuites")[0].attribute("time");
    assert_eq!(time, Some("40.000"));
}

#[test]
fn hostile_text_stays_text() {
    let hostile = "a\"'<b>&amp;]]>\u{0}\u{1b}[31m\u{85}\u{fffe}\u{ffff}\n\u{202e}é😀";
    let mut run = fixture::violated();
    run.workload = hostile.to_owned();
    run.checks[0].name = hostile.to_owned();
    run.checks[0].detail = hostile.to_owned();
    run.checks[0].history = vec![hostile.to_owned(), "> read 1".to_owned()];
    let mut record = fixture::record(vec![run]);
    record.thresholds = vec![fixture::threshold(None)];
    record.thresholds[0].figure = hostile.to_owned();
    let text = of_record(&record, &no_fault);
    let allowed =
        |c: char| matches!(c, '\n' | ' '..='\u{7e}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..);
    assert!(text.chars().all(allowed), "{text:?}");
    let document = Document::parse(&text).unwrap();
    let shown = "a\"'<b>&amp;]]>\\u{0}\\u{1b}[31m\\u{85}\\u{fffe}\\u{ffff} \\u{202e}é😀";
    let failure = elements(&document, "failure")[0];
    assert_eq!(
        failure.attribute("message").unwrap(),
        format!("violated: {shown}")
    );
    assert_eq!(
        failure.text().unwrap(),
        format!("violated: {shown}\n{shown}\n> read 1")
    );
    let skipped = elements(&document, "skipped")[0];
    assert_eq!(skipped.attribute("message"), Some(shown));
    let suite = elements(&document, "testsuite")[0];
    let name = suite.attribute("name").unwrap();
    assert_eq!(name, format!("127.0.0.1:8080 {shown}"));
    assert_eq!(suite.attribute("timestamp"), Some("2023-11-14T22:13:20"));
}

#[test]
fn an_invalid_comparison_is_an_error() {
    let side = |name: &str| floodmark_record::comparison::ComparedResult {
        name: name.to_owned(),
        of: Vec::new(),
        processes: 1,
        attempts: 1,
    };
    let record = fixture::record(Vec::new());
    let compared = ComparisonReport {
        schema: record.schema,
        tool: record.tool,
        baseline: side("after"),
        candidate: side("before"),
        unlike: Vec::new(),
        notes: Vec::new(),
        comparisons: Vec::new(),
        thresholds: vec![fixture::threshold(Some(true))],
    };
    let text = of_comparison(&compared, Some("every run is invalid"));
    let document = Document::parse(&text).unwrap();
    assert_eq!(
        elements(&document, "error")[0].attribute("message"),
        Some("every run is invalid")
    );
    let failure = elements(&document, "failure")[0].parent().unwrap();
    assert_eq!(failure.attribute("name"), Some("fail-if p99 > 50ms"));
    assert_eq!(failure.attribute("classname"), Some("before ÷ after"));
    let valid = of_comparison(&compared, None);
    assert!(!valid.contains("<error"), "{valid}");
}
