use serde_json::Value;

use super::*;
use crate::fixture;

fn tables() -> ResultTables {
    ResultTables::of_record(&fixture::all_tables())
}

#[test]
fn json_lines_and_csv_contain_the_same_values() {
    for table in tables().0 {
        let name = table.name;
        let only = || ResultTables(vec![table.clone()]);
        let (json, csv) = (only().json_lines(), only().csv());
        let mut lines = csv.lines();
        let columns: Vec<&str> = lines.next().unwrap().split(',').collect();
        assert_eq!(columns, table.columns().collect::<Vec<_>>());
        assert_eq!(json.lines().count(), lines.clone().count());
        for ((row, object), line) in table.rows().zip(json.lines()).zip(lines) {
            assert!(object.starts_with(&format!("{{\"table\":\"{name}\",")));
            let object: Value = serde_json::from_str(object).unwrap();
            assert_eq!(object.as_object().unwrap().len(), columns.len() + 1);
            let fields = row.map(|(column, value)| {
                match (value, object[column].as_f64()) {
                    // The parser of serde_json rounds.
                    (DataValue::Number(number), Some(parsed)) => {
                        assert!((parsed / number - 1.0).abs() < 1e-12 || parsed == *number);
                    }
                    _ => assert_eq!(object[column], super::json(value)),
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
