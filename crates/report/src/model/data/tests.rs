use std::collections::BTreeSet;

use super::*;
use crate::fixture;
use crate::model::trend::tests::report;
use crate::terminal::tests::drawn_tables;

/// Endings of column names that state the unit.
const UNITS: [&str; 7] = [
    "_per_s",
    "_s",
    "_us",
    "_us_per_request",
    "_ms",
    "_share",
    "_cpus",
];

/// Numbers without a unit, and numbers whose unit is in the column `unit`.
const UNITLESS: [&str; 16] = [
    "figure",
    "figure_low",
    "figure_high",
    "figure_before",
    "figure_after",
    "confidence",
    "throughput_confidence",
    "ratio",
    "ratio_low",
    "ratio_high",
    "figure_a",
    "figure_b",
    "published",
    "measured",
    "measured_low",
    "measured_high",
];

fn all_tables() -> Vec<DataTable> {
    let mut tables = of_record(&fixture::all_tables());
    tables.extend(of_trends(&report()));
    tables
}

#[test]
fn names_of_tables_and_columns_are_stable() {
    let mut names = String::new();
    for table in all_tables() {
        names.push_str(&format!("{}:\n", table.name));
        table.columns().for_each(|column| {
            names.push_str(&format!("  {column}\n"));
        });
    }
    insta::assert_snapshot!(names);
}

#[test]
fn rows_have_the_same_columns_and_numbers_have_units() {
    for table in all_tables() {
        let columns: Vec<&str> = table.columns().collect();
        let distinct: BTreeSet<&str> = columns.iter().copied().collect();
        assert_eq!(distinct.len(), columns.len(), "{}", table.name);
        for row in table.rows() {
            let (names, values): (Vec<&str>, Vec<&DataValue>) = row.unzip();
            assert_eq!(names, columns, "{}", table.name);
            for (name, value) in names.iter().zip(values) {
                let has_unit = UNITS.iter().any(|unit| name.ends_with(unit));
                let is_number = matches!(value, DataValue::Number(_));
                assert!(
                    !is_number || has_unit || UNITLESS.contains(name),
                    "{}.{name} has no unit",
                    table.name
                );
            }
        }
    }
}

#[test]
fn people_read_only_the_most_important_columns() {
    let tables = all_tables();
    let drawn = tables.iter().map(|table| {
        let text = drawn_tables([table.figures()], 250);
        format!("{}\n{text}\n", table.name)
    });
    insta::assert_snapshot!(drawn.collect::<String>());
}

#[test]
fn a_percentile_among_timeouts_is_missing_for_programs() {
    let mut run = fixture::closed();
    run.response_time_us = fixture::times(&[1_000_000], 99);
    let tables = of_record(&fixture::record(vec![run]));
    let cell = tables[0].rows[0].iter();
    let mut cell = cell.filter(|cell| cell.name == "response_p99_us");
    let cell = cell.next().unwrap();
    assert_eq!(cell.value, DataValue::Missing);
    assert_eq!(cell.shown, "> 5 s");
}

#[test]
fn figures_that_are_not_finite_are_missing() {
    for value in [None, Some(f64::NAN), Some(f64::INFINITY)] {
        let cell = DataCell::hidden_number("x_s", value);
        assert_eq!(cell.value, DataValue::Missing);
    }
}
