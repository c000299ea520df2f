use floodmark_record::comparison::Conclusion;
use floodmark_record::experiment::ExperimentDescription;

use super::*;
use crate::fixture;
use crate::model::comparison::tests::comparison;
use crate::terminal::tests::drawn_tables;

/// Adds a ladder of three steps to a record. The last step was not measured.
pub(crate) fn add_ladder(record: &mut Record) {
    let ladder = ["none", "memory", "cassandra"].map(str::to_owned).to_vec();
    for metric in ComparedMetric::ALL {
        let mut of = comparison(metric, Conclusion::Different);
        (of.candidate, of.baseline) = ("memory".to_owned(), "none".to_owned());
        record.comparisons.push(of);
    }
    record.experiment = Some(ExperimentDescription {
        question: "What does each step cost?".to_owned(),
        ladder,
        ..ExperimentDescription::default()
    });
}

#[test]
fn shows_each_step_with_its_cost() {
    let mut record = fixture::record(Vec::new());
    assert_eq!(ladder_table(&record), None);
    add_ladder(&mut record);
    for (name, width) in [("wide", 120), ("narrow", 60)] {
        insta::assert_snapshot!(name, drawn_tables(ladder_table(&record), width));
    }
    let mut lone = comparison(ComparedMetric::P50, Conclusion::Undecided);
    assert_eq!(cost(Some(&lone)).supplement, "(0.921 – 1.013)");
    (lone.low, lone.high) = (None, None);
    assert_eq!(cost(Some(&lone)), "0.943".to_owned().into());
}
