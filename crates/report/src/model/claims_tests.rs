use floodmark_record::Record;
use floodmark_record::comparison::{Agreement, ComparedMetric, Conclusion, Holds};

use super::*;
use crate::Style;
use crate::fixture;
use crate::model::comparison::tests::comparison;
use crate::terminal;

fn claim(text: &str, holds: Holds, notes: &[&str]) -> ClaimResult {
    let measured = holds != Holds::Undecided;
    ClaimResult {
        text: text.to_owned(),
        source: Some("seed E".to_owned()),
        metric: Some(ComparedMetric::Throughput),
        of: vec!["old".to_owned(), "new".to_owned()],
        published: Some(0.98),
        agreement: Some(Agreement::Within(0.1)),
        measured: measured.then_some(0.943_2),
        low: measured.then_some(0.921_4),
        high: measured.then_some(0.965_5),
        holds,
        notes: notes.iter().map(|note| (*note).to_owned()).collect(),
    }
}

/// Adds two pairs of trials and one claim of each kind to a record.
pub(crate) fn add_comparisons_and_claims(record: &mut Record) {
    for other in ["old", "older"] {
        // Loads have no capacity.
        let metrics = ComparedMetric::ALL.into_iter();
        let metrics = metrics.filter(|metric| *metric != ComparedMetric::Capacity);
        let mut all: Vec<_> = metrics
            .map(|metric| comparison(metric, Conclusion::Different))
            .collect();
        all[3] = comparison(ComparedMetric::P99, Conclusion::Undecided);
        for of in &mut all {
            of.candidate = other.to_owned();
            of.notes = vec!["new: 2 attempts excluded: still warming up".to_owned()];
        }
        all[2].notes = vec!["new: process 3 is far from the others".to_owned()];
        record.comparisons.extend(all);
    }
    record.claims = vec![
        claim("no significant difference", Holds::Yes, &[]),
        claim("twice as fast", Holds::No, &[]),
        claim(
            "10 times as fast",
            Holds::Undecided,
            &["no run of \"x\" in the result"],
        ),
    ];
}

#[test]
fn shows_pairs_results_and_claims() {
    let mut record = fixture::record(Vec::new());
    add_comparisons_and_claims(&mut record);
    let mut blocks = Blocks::default();
    add_pairs(&mut blocks, &record);
    add_claims(&mut blocks, &record.claims);
    for (name, width) in [("wide", 100), ("narrow", 60)] {
        let style = Style {
            color: false,
            width,
        };
        insta::assert_snapshot!(name, terminal::draw(&blocks, style));
    }
}
