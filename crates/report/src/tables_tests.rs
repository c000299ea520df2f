use std::collections::BTreeSet;

use serde_json::Value;

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

/// Columns of numbers without a unit, or with the unit in the column `unit`.
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
    "figure_baseline",
    "figure_candidate",
    "published",
    "measured",
    "measured_low",
    "measured_high",
];

fn tables() -> ResultTables {
    ResultTables::of_record(&fixture::all_tables())
}

#[test]
fn json_lines_and_csv_contain_the_same_values() {
    for (name, table) in tables().0 {
        let only = || ResultTables(vec![(name, table.clone())]);
        let named = table.named();
        let (json, csv) = (only().json_lines(), only().csv());
        let mut lines = csv.lines();
        let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(columns, names(&table));
        assert_eq!(json.lines().count(), lines.clone().count());
        for ((row, object), line) in table.rows.iter().zip(json.lines()).zip(lines) {
            assert!(object.starts_with(&format!("{{\"table\":\"{name}\",")));
            let object: Value = serde_json::from_str(object).unwrap();
            assert_eq!(object.as_object().unwrap().len(), columns.len() + 1);
            let fields = named.iter().map(|i| {
                let (column, value) = (table.columns[*i].name, &row.cells[*i].value);
                match (value.as_f64(), object[column].as_f64()) {
                    // serde_json's parser rounds numbers.
                    (Some(number), Some(parsed)) if value.is_f64() => {
                        assert!((parsed / number - 1.0).abs() < 1e-12 || parsed == number);
                    }
                    _ => assert_eq!(object[column], *value),
                }
                field(value)
            });
            assert_eq!(fields.collect::<Vec<_>>().join(","), line);
        }
    }
}

#[test]
fn a_table_is_selected_by_its_name() {
    assert_eq!(tables().first().names(), ["trial_capacities"]);
    assert_eq!(tables().only("runs").unwrap().names(), ["runs"]);
    assert!(tables().only("run").is_none());
}

#[test]
fn a_result_without_measurements_has_no_tables() {
    let record = fixture::record(Vec::new());
    assert!(ResultTables::of_record(&record).names().is_empty());
}

#[test]
fn text_from_servers_is_escaped() {
    let mut run = fixture::closed();
    run.workload = "/a,\"b\"\u{1b}[31m\n|<b>".to_owned();
    run.series.clear();
    let mut record = fixture::record(vec![run]);
    record.skipped = vec!["a | b <script> \u{1b}".to_owned()];
    let tables = ResultTables::of_record(&record);
    let json = tables.json_lines();
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(first["workload"], record.runs[0].workload.as_str());
    let csv = tables.csv();
    assert!(csv.contains("\"/a,\"\"b\"\"\\u{1b}[31m |<b>\""), "{csv}");
    let markdown = tables.markdown();
    assert!(
        markdown.contains("| a \\| b \\<script\\> \\\\u{1b} |"),
        "{markdown}"
    );
}

fn all_tables() -> Vec<(&'static str, Table)> {
    let mut all = tables().0;
    all.extend(ResultTables::of_trends(&report()).0);
    all
}

fn names(table: &Table) -> Vec<&'static str> {
    let named = table.named().into_iter();
    named.map(|i| table.columns[i].name).collect()
}

#[test]
fn names_of_tables_and_columns_are_stable() {
    let mut text = String::new();
    for (name, table) in all_tables() {
        text.push_str(&format!("{name}:\n"));
        for column in names(&table) {
            text.push_str(&format!("  {column}\n"));
        }
    }
    insta::assert_snapshot!(text);
}

#[test]
fn columns_are_distinct_and_numbers_have_units() {
    for (name, table) in all_tables() {
        let columns = names(&table);
        let distinct: BTreeSet<&str> = columns.iter().copied().collect();
        assert_eq!(distinct.len(), columns.len(), "{name}");
        for row in &table.rows {
            assert_eq!(row.cells.len(), table.columns.len(), "{name}");
            for (column, cell) in table.columns.iter().zip(&row.cells) {
                let column = column.name;
                let has_unit = UNITS.iter().any(|unit| column.ends_with(unit));
                let is_number = cell.value.is_f64();
                assert!(
                    !is_number || has_unit || UNITLESS.contains(&column),
                    "{name}.{column} has no unit"
                );
            }
        }
    }
}

#[test]
fn people_read_only_the_most_important_columns() {
    let drawn = all_tables().into_iter().map(|(name, table)| {
        let text = drawn_tables([table.listed()], 250);
        format!("{name}\n{text}\n")
    });
    insta::assert_snapshot!(drawn.collect::<String>());
}

#[test]
fn a_percentile_among_timeouts_is_missing_for_programs() {
    let mut run = fixture::closed();
    run.response_time_us = fixture::times(&[1_000_000], 99);
    let (_, table) = &ResultTables::of_record(&fixture::record(vec![run])).0[0];
    let mut columns = table.columns.iter();
    let p99 = columns.position(|column| column.name == "response_p99_us");
    let cell = &table.rows[0].cells[p99.unwrap()];
    assert_eq!(cell.value, Value::Null);
    assert_eq!(cell.span.text, "> 5 s");
}

#[test]
fn figures_that_are_not_finite_are_missing() {
    let values = [None, Some(f64::NAN), Some(f64::INFINITY)];
    let table = Table::of_data(values.map(|value| vec![data("figure", value)]));
    assert!(table.rows.iter().all(|row| row.cells[0].value.is_null()));
}
