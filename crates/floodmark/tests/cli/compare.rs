//! Tests of `floodmark compare`.

use std::fs;
use std::path::{Path, PathBuf};

use floodmark_record::comparison::{ComparedMetric, ComparisonReport, Conclusion};
use floodmark_record::run::Status;
use floodmark_record::{Record, SCHEMA_VERSION};

use crate::support::{Serve, code, floodmark, run, succeeds, text};
use crate::tables::is_about;

/// Measures `servers` fresh servers and saves each result in a separate directory. Each run is much
/// longer than the kernel's 10 ms CPU tick.
fn measured(directory: &Path, servers: usize, path: &str, arguments: &[&str]) {
    for i in 0..servers {
        let server = Serve::start(&["json"]);
        let out = directory.join(i.to_string());
        let url = format!("{}{path}", server.url);
        let mut all = vec!["load", &url, "-c", "4", "-n", "20k", "--quiet"];
        all.extend_from_slice(arguments);
        all.extend_from_slice(&["--out", out.to_str().unwrap()]);
        let output = run(&all);
        succeeds(&output);
    }
}

/// Marks all runs in a directory as valid, because other programs on this host can invalidate them.
pub(crate) fn all_valid(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path().join("record.json");
        let mut record = read(&path);
        for run in &mut record.runs {
            run.validity.status = Status::Valid;
        }
        write(&path, &record);
    }
}

fn read(path: &Path) -> Record {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn write(path: &Path, record: &Record) {
    fs::write(path, serde_json::to_vec(record).unwrap()).unwrap();
}

/// Creates two directories with three results each.
fn two() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (directory.path().join("a"), directory.path().join("b"));
    measured(&a, 3, "/json", &[]);
    measured(&b, 3, "/json", &[]);
    all_valid(&a);
    all_valid(&b);
    (directory, a, b)
}

fn compare(a: &str, b: &str, arguments: &[&str]) -> (i32, ComparisonReport, String) {
    let mut all = vec!["compare", a, b, "--json", "-"];
    all.extend_from_slice(arguments);
    let output = run(&all);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("stdout is not JSON ({error}): {output:?}"));
    let compared = serde_json::from_value(value).unwrap();
    (code(&output), compared, text(&output.stderr))
}

#[test]
fn compares_several_results_per_side() {
    let (directory, a, b) = two();
    let page = directory.path().join("page.html");
    let (code, compared, table) = compare(
        a.to_str().unwrap(),
        b.to_str().unwrap(),
        &["--html", page.to_str().unwrap()],
    );
    assert_eq!(code, 0, "{table}");
    let page = fs::read_to_string(page).unwrap();
    for part in [
        "ratio = b ÷ a",
        "<h2>Curves</h2>",
        "<polyline class=\"curve k1\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Loads have no capacity.
    assert_eq!(compared.comparisons.len(), ComparedMetric::ALL.len() - 1);
    assert_eq!(
        (compared.baseline.processes, compared.candidate.processes),
        (3, 3)
    );
    // Ratios are candidate ÷ baseline, and the baseline is the first argument.
    assert_eq!(
        [&*compared.baseline.name, &*compared.candidate.name],
        ["a", "b"]
    );
    assert_eq!(compared.unlike, Vec::<String>::new());
    for comparison in &compared.comparisons {
        let (low, ratio) = (comparison.low.unwrap(), comparison.ratio.unwrap());
        let high = comparison.high.unwrap();
        assert!(low <= ratio && ratio <= high, "{comparison:?}");
        assert!(comparison.method.contains("Welch"), "{comparison:?}");
        assert_eq!(
            comparison.repetitions_needed.is_some(),
            comparison.conclusion == Conclusion::Undecided
        );
    }
    for row in [
        "throughput",
        "goodput",
        "response time p50",
        "response time p99",
        "service time p50",
        "service time p99",
        "client CPU time per request",
    ] {
        let mut lines = table.lines();
        assert!(lines.any(|line| line.starts_with(row)), "{row}: {table}");
    }
    // A side's figure is the geometric mean over its records.
    let logs = (0..3).map(|i| {
        let record = read(&a.join(i.to_string()).join("record.json"));
        record.runs[0].throughput_per_s.unwrap().ln()
    });
    let mean = (logs.sum::<f64>() / 3.0).exp();
    let figure = compared.comparisons[0].figures_baseline.figure.unwrap();
    assert!((figure / mean - 1.0).abs() < 1e-9, "{figure} {mean}");
    let notes = compared.notes.join("\n");
    assert!(
        notes.contains("3 results from `floodmark load`, each counted as one server process"),
        "{notes}"
    );
    assert!(notes.contains("not interleaved"), "{notes}");

    let (_, back, _) = compare(
        b.to_str().unwrap(),
        a.to_str().unwrap(),
        &["--metric", "p99"],
    );
    assert_eq!(back.comparisons.len(), 1);
    let there = compared
        .comparisons
        .iter()
        .find(|c| c.metric == ComparedMetric::P99)
        .unwrap();
    let product = there.ratio.unwrap() * back.comparisons[0].ratio.unwrap();
    assert!((product - 1.0).abs() < 1e-9, "{product}");
}

#[test]
fn attempts_on_one_server_give_no_interval() {
    let directory = tempfile::tempdir().unwrap();
    measured(directory.path(), 2, "/json", &["--attempts", "3"]);
    all_valid(directory.path());
    let side = |i: usize| directory.path().join(i.to_string());
    let (code, compared, table) = compare(
        side(0).to_str().unwrap(),
        side(1).join("record.json").to_str().unwrap(),
        &["--metric", "throughput"],
    );
    assert_eq!(code, 0);
    let [comparison] = &compared.comparisons[..] else {
        panic!("{compared:?}")
    };
    assert_eq!(
        (compared.candidate.processes, compared.candidate.attempts),
        (1, 3)
    );
    assert_eq!(
        (comparison.low, comparison.conclusion),
        (None, Conclusion::Undecided)
    );
    assert!(comparison.ratio.is_some());
    assert!(
        table.contains("variance between processes is unknown"),
        "{table}"
    );
}

#[test]
fn lists_differences_of_the_loads_first() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (directory.path().join("a"), directory.path().join("b"));
    measured(&a, 1, "/json", &[]);
    measured(&b, 1, "/json?x", &["--fresh"]);
    let output = run(&["compare", a.to_str().unwrap(), b.to_str().unwrap()]);
    let shown = text(&output.stdout);
    let at = |what: &str| {
        shown
            .find(what)
            .unwrap_or_else(|| panic!("{what}: {shown}"))
    };
    assert!(at("workload: /json in") < at("connection use: kept in"));
    assert!(at("connection use: kept in") < at("throughput"));
}

#[test]
fn compares_two_systems_of_one_record() {
    let directory = tempfile::tempdir().unwrap();
    measured(directory.path(), 2, "/json", &[]);
    let mut both = read(&directory.path().join("0/record.json"));
    both.runs
        .extend(read(&directory.path().join("1/record.json")).runs);
    let names = both
        .runs
        .iter()
        .map(|run| run.system.clone())
        .collect::<Vec<_>>();
    let path = directory.path().join("with:colon.json");
    write(&path, &both);
    let path = path.to_str().unwrap();
    let side = |i: usize| format!("{path}:{}", names[i]);
    let (_, compared, _) = compare(&side(0), &side(1), &[]);
    assert_eq!(
        [&compared.baseline.name, &compared.candidate.name],
        [&names[0], &names[1]]
    );
    assert_eq!(compared.baseline.of, [format!("{} /json", names[0])]);
    assert_eq!(compared.candidate.of, [format!("{} /json", names[1])]);

    let output = run(&["compare", path, &side(1)]);
    assert_eq!(code(&output), 2);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("several trials or systems: 127.0.0.1:"),
        "{printed}"
    );
    let output = run(&["compare", &side(0), &format!("{path}:nginx")]);
    assert_eq!(code(&output), 2);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("no trial or system \"nginx\""),
        "{printed}"
    );
}

#[test]
fn the_first_trial_is_the_baseline_in_every_format() {
    let directory = tempfile::tempdir().unwrap();
    measured(directory.path(), 1, "/json", &["--attempts", "2"]);
    all_valid(directory.path());
    let mut record = read(&directory.path().join("0/record.json"));
    for (run, trial) in record.runs.iter_mut().zip(["a", "b"]) {
        run.trial = Some(trial.to_owned());
    }
    let path = directory.path().join("trials.json");
    write(&path, &record);
    let [a, b] = ["a", "b"].map(|trial| format!("{}:{trial}", path.display()));
    let throughputs = [0, 1].map(|i| record.runs[i].throughput_per_s);

    let (_, compared, _) = compare(&a, &b, &["--metric", "throughput"]);
    let comparison = &compared.comparisons[0];
    let names = [&compared.baseline.name, &compared.candidate.name];
    assert_eq!(names, ["a", "b"]);
    assert_eq!([&comparison.baseline, &comparison.candidate], names);
    let figures = [&comparison.figures_baseline, &comparison.figures_candidate];
    for (side, throughput) in figures.into_iter().zip(throughputs) {
        assert!(is_about(&side.figure.into(), throughput), "{comparison:?}");
    }

    let csv = text(&run(&["compare", &a, &b, "--format", "csv"]).stdout);
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    let cell = |column: &str| rows[1][rows[0].iter().position(|name| *name == column).unwrap()];
    assert_eq!([cell("baseline"), cell("candidate")], ["a", "b"]);
    for (column, throughput) in ["figure_baseline", "figure_candidate"]
        .iter()
        .zip(throughputs)
    {
        let figure = cell(column).parse::<f64>().unwrap();
        assert!(is_about(&figure.into(), throughput), "{csv}");
    }
}

#[test]
fn conditions_decide_the_exit_code() {
    let (_directory, a, b) = two();
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    for (condition, wanted) in [
        ("throughput ratio > 0", 1),
        ("throughput ratio < 0", 0),
        ("p99 low >= 0", 1),
        ("p99 high < 0", 0),
    ] {
        let (code, compared, table) = compare(a, b, &["--fail-if", condition]);
        assert_eq!(code, wanted, "{table}");
        assert_eq!(compared.thresholds[0].met, Some(wanted == 1));
        assert_eq!(table.contains("--fail-if"), wanted == 1, "{table}");
    }
    // One process per side yields no interval, so the condition cannot be evaluated.
    let one = format!("{a}/0");
    let (code, compared, _) = compare(&one, b, &["--fail-if", "p99 low > 9"]);
    assert_eq!((code, compared.thresholds[0].met), (1, None));
}

#[test]
fn refuses_invalid_results() {
    let directory = tempfile::tempdir().unwrap();
    measured(directory.path(), 2, "/json", &[]);
    let path = |i: usize| directory.path().join(i.to_string());
    for (status, strict, wanted) in [
        (Status::Invalid, false, 4),
        (Status::Bound, false, 0),
        (Status::Bound, true, 4),
        (Status::Valid, true, 0),
    ] {
        for (i, status) in [(0, Status::Valid), (1, status)] {
            let record = path(i).join("record.json");
            let mut changed = read(&record);
            changed.runs[0].validity.status = status;
            write(&record, &changed);
        }
        let arguments = if strict { &["--strict"][..] } else { &[] };
        let (code, _, printed) = compare(
            path(0).to_str().unwrap(),
            path(1).to_str().unwrap(),
            arguments,
        );
        assert_eq!(code, wanted, "{status:?}: {printed}");
    }
}

#[test]
fn folds_a_partial_result_from_its_events() {
    let directory = tempfile::tempdir().unwrap();
    measured(directory.path(), 2, "/json", &[]);
    fs::remove_file(directory.path().join("0/record.json")).unwrap();
    let path = |i: usize| {
        directory
            .path()
            .join(i.to_string())
            .to_str()
            .unwrap()
            .to_owned()
    };
    let (_, compared, _) = compare(&path(0), &path(1), &[]);
    assert!(compared.comparisons[0].figures_candidate.figure.is_some());
}

#[test]
fn refuses_invalid_input_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("empty"), "").unwrap();
    fs::write(path("other.json"), "{\"schema\": 1}").unwrap();
    let newer = SCHEMA_VERSION + 1;
    fs::write(path("newer.json"), format!("{{\"schema\": {newer}}}")).unwrap();
    fs::create_dir(path("directory")).unwrap();
    let here = directory.path().to_str().unwrap();
    for (a, mend) in [
        (path("missing"), "No such file"),
        (path("missing:nginx"), "No such file"),
        (path("empty"), "not a floodmark record"),
        (path("other.json"), "missing field `tool`"),
        (
            path("newer.json"),
            "use the floodmark version that wrote this record",
        ),
        (path("directory"), "neither record.json nor events.jsonl"),
        ("/dev/zero".to_owned(), "a device"),
        (here.to_owned(), "A and B are both"),
    ] {
        let output = run(&["compare", &a, here]);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{a}: {printed}");
        assert!(
            printed.contains(mend) && printed.lines().count() == 1,
            "{a}: {printed}"
        );
        assert!(output.stdout.is_empty());
    }
    for arguments in [
        &["--metric", "p98"][..],
        &["--fail-if", "p99 > 50ms"],
        &["--fail-if", "p99 ratio > 5%"],
    ] {
        let mut all = vec!["compare", here, "x"];
        all.extend_from_slice(arguments);
        assert_eq!(code(&run(&all)), 2);
    }
    assert_eq!(code(&run(&["compare", here])), 2);
}

#[test]
fn names_a_file_that_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    measured(directory.path(), 2, "/json", &[]);
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let output = run(&[
        "compare",
        &path("0"),
        &path("1"),
        "--json",
        &path("missing/x.json"),
    ]);
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("name a writable file in an existing directory"));
}

#[test]
fn a_closed_stdout_is_not_an_error() {
    let directory = tempfile::tempdir().unwrap();
    measured(directory.path(), 2, "/json", &[]);
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let mut child = floodmark(&["compare", &path("0"), &path("1")])
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = crate::support::finish(child);
    succeeds(&ended);
}
