//! Tests of `--format` and `--table`.

use floodmark_truth::Scenario;
use serde_json::Value;

use crate::support::{code, load, run, succeeds, text, truth};

/// Returns the rows of a result as JSON objects.
pub fn rows(result: &str, table: &str) -> Vec<Value> {
    let output = run(&["report", result, "--format", "json", "--table", table]);
    succeeds(&output);
    let lines = text(&output.stdout);
    let parsed = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    parsed.collect()
}

/// Returns whether a number is `expected`. The parser of serde_json rounds.
pub fn is_about(number: &Value, expected: Option<f64>) -> bool {
    let ratio = number.as_f64().zip(expected).map(|(a, b)| a / b);
    ratio.is_some_and(|ratio| (ratio - 1.0).abs() < 1e-12)
}

#[test]
fn prints_the_tables_of_a_load() {
    let (_server, url) = truth(Scenario::default());
    let load = load(
        &url,
        &["-n", "200", "--attempts", "2", "--fail-if", "p99 > 1us"],
    );
    load.ends_with(1);
    let result = load.directory.path().join("result");
    let result = result.to_str().unwrap();
    let runs = rows(result, "runs");
    assert_eq!(runs.len(), 2);
    for (row, run) in runs.iter().zip(&load.record.runs) {
        assert_eq!(row["table"], "runs");
        assert_eq!(row["attempt"], run.attempt);
        assert_eq!(row["ok"], 200);
        assert!(is_about(&row["throughput_per_s"], run.throughput_per_s));
        assert!(is_about(&row["response_p99_us"], run.response_time_us.p99));
        assert_eq!(row["trial"], Value::Null);
    }
    let conditions = rows(result, "conditions");
    assert_eq!(conditions[0]["condition"], "fail-if p99 > 1us");
    assert_eq!(conditions[0]["outcome"], "failed");

    let csv = text(&run(&["report", result, "--format", "csv"]).stdout);
    let mut lines = csv.lines();
    assert!(lines.next().unwrap().starts_with("trial,system,workload,"));
    assert_eq!(lines.count(), 2);

    let markdown = text(&run(&["report", result, "--format", "md"]).stdout);
    assert!(
        markdown.starts_with("### runs\n\n| system | "),
        "{markdown}"
    );
    assert!(markdown.contains("### conditions\n\n"), "{markdown}");
}

#[test]
fn refuses_unknown_formats_and_tables() {
    let (_server, url) = truth(Scenario::default());
    let load = load(&url, &["-n", "50"]);
    let result = load.directory.path().join("result");
    let result = result.to_str().unwrap();
    let csv = load.directory.path().join("x.csv");
    let csv = csv.to_str().unwrap();
    let tables = "--table run: the result has no such table; its tables are runs";
    let json = ["--format", "json"];
    for (arguments, told) in [
        (
            [&json[..], &["--table", "run", "--csv", csv]].concat(),
            tables,
        ),
        (
            [&json[..], &["--html", "-"]].concat(),
            "--format: another output is already written to stdout (-); write it to a file instead",
        ),
    ] {
        let output = run(&[&["report", result], &arguments[..]].concat());
        assert_eq!(code(&output), 2, "{output:?}");
        assert!(output.stdout.is_empty());
        let error = text(&output.stderr);
        assert!(
            error.contains(told) && error.lines().count() == 1,
            "{error}"
        );
    }
    assert!(!std::path::Path::new(csv).exists());
    for (arguments, told) in [
        (
            ["--format", "xml"],
            "--format xml: unknown value; use one of: md, json, csv",
        ),
        (["--table", "runs"], "--format <FORMAT>"),
    ] {
        let output = run(&[&["report", result], &arguments[..]].concat());
        assert_eq!(code(&output), 2, "{output:?}");
        assert!(text(&output.stderr).contains(told), "{output:?}");
    }
}

#[test]
fn a_result_without_measurements_has_no_tables() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = truth(Scenario::default());
    let load = load(&url, &["-n", "50"]);
    let mut record = load.record.clone();
    record.runs.clear();
    let path = directory.path().join("record.json");
    std::fs::write(&path, serde_json::to_vec(&record).unwrap()).unwrap();
    let output = run(&["report", path.to_str().unwrap(), "--format", "md"]);
    assert_eq!(code(&output), 2, "{output:?}");
    let error = text(&output.stderr);
    assert!(
        error.contains("--format: the result has no tables"),
        "{error}"
    );
}

#[test]
fn compares_two_loads() {
    let (_server, url) = truth(Scenario::default());
    let loads = [(); 2].map(|()| load(&url, &["-n", "200"]));
    let directories = loads.each_ref().map(|load| {
        let result = load.directory.path().join("result");
        result.to_str().unwrap().to_owned()
    });
    let [a, b] = directories.each_ref().map(String::as_str);
    let conditions = [
        "compare",
        a,
        b,
        "--fail-if",
        "throughput ratio > 0",
        "--fail-if",
        "throughput low > 1",
    ];
    let junit = loads[0].directory.path().join("junit.xml");
    let rest = ["--format", "json", "--junit", junit.to_str().unwrap()];
    let output = run(&[&conditions[..], &rest].concat());
    assert_eq!(code(&output), 1, "{output:?}");
    let lines = text(&output.stdout);
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(first["table"], "ratios");
    assert_eq!(first["metric"], "throughput");
    assert!(first["ratio"].as_f64().unwrap() > 0.0);
    assert_eq!(first["ratio_low"], Value::Null);
    assert_eq!(
        crate::junit::read(&junit),
        [
            format!("{b} ÷ {a}: comparison: passed"),
            format!("{b} ÷ {a}: fail-if throughput ratio > 0: failure"),
            format!("{b} ÷ {a}: fail-if throughput low > 1: skipped"),
        ]
    );
    let markdown = text(&run(&["compare", a, b, "--format", "md"]).stdout);
    assert!(
        markdown.starts_with("### ratios\n\n| metric | baseline | candidate |"),
        "{markdown}"
    );
}
