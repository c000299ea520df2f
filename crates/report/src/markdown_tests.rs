use super::*;
use crate::fixture;
use crate::model::document::{Row, faint, line, plain as plain_span};

/// A limit that no document reaches.
const LARGE: usize = 1 << 20;

#[test]
fn a_load_with_its_figures_verdict_and_conditions() {
    let mut record = fixture::record(vec![fixture::judged(
        floodmark_record::cause::Cause::ServerCpu,
    )]);
    record.thresholds = vec![fixture::threshold(Some(true)), fixture::threshold(None)];
    let text = summary(&record, Some("offer more: -r 270k"), LARGE).unwrap();
    insta::assert_snapshot!(text);
}

#[test]
fn an_experiment_with_its_tables_and_claims() {
    let mut record = fixture::all_tables();
    record.tuning = None;
    insta::assert_snapshot!(summary(&record, None, LARGE).unwrap());
}

#[test]
fn escapes_all_markup() {
    let hostile = "`*_[x](y)_*` <b> &lt; a|b ~~ # $x$ \\ \u{1b}";
    let mut blocks = Blocks::default();
    blocks.paragraph([plain_span("- no item"), faint(hostile)]);
    blocks.lines([line("label|", hostile), line("", "continued")]);
    blocks.subheading("# no level");
    blocks.command("", "run `this` <now>");
    let row = Row::new("a|b", vec![hostile.to_owned().into()]);
    blocks.tables([Table::new(["c|d"], [row])]);
    let escaped =
        "\\`\\*\\_\\[x\\](y)\\_\\*\\` \\<b\\> \\&lt; a\\|b \\~\\~ \\# \\$x\\$ \\\\ \\\\u{1b}";
    assert_eq!(
        draw(&blocks),
        format!(
            "\\- no item {escaped}\n\n- label\\|: {escaped}\n  - continued\n\n### \\# no level\n\n    \
             run `this` <now>\n\n|  | c\\|d |\n| --- | ---: |\n| a\\|b | {escaped} |\n"
        )
    );
}

#[test]
fn a_summary_never_exceeds_its_limit() {
    let mut record = fixture::record(vec![fixture::closed(); 3_000]);
    record.skipped = vec!["x".repeat(1_000); 3_000];
    let full = summary(&record, None, 1 << 30).unwrap();
    assert!(full.matches("\n| ").count() <= MAX_ROWS + 2);
    for limit in [300, 5_000, 20_000] {
        let text = summary(&record, None, limit).unwrap();
        assert!(text.len() <= limit && text.ends_with(TRUNCATED), "{text}");
    }
    assert_eq!(summary(&record, None, 70), None);
    assert_eq!(summary(&record, None, 0), None);
}
