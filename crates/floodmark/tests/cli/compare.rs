//! `floodmark compare` on records of real loads.

use std::fs;
use std::path::{Path, PathBuf};

use floodmark_record::Record;
use floodmark_record::comparison::{Conclusion, Metric, SideBySide};
use floodmark_record::run::Status;

use crate::support::{Serve, code, floodmark, run, text};

/// Results of short loads on `servers` fresh servers, one in each folder. They are long enough for the server's CPU to show in the kernel's
/// ticks of 10 ms.
fn measured(folder: &Path, servers: usize, path: &str, arguments: &[&str]) {
    for i in 0..servers {
        let server = Serve::start(&["json"]);
        let out = folder.join(i.to_string());
        let url = format!("{}{path}", server.url);
        let mut all = vec!["load", &url, "-c", "4", "-n", "20k", "--quiet"];
        all.extend_from_slice(arguments);
        all.extend_from_slice(&["--out", out.to_str().unwrap()]);
        let output = run(&all);
        assert!(matches!(code(&output), 0 | 4), "{output:?}");
    }
}

/// Gives the records of a folder of results what a busy machine may have taken from them.
fn all_valid(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
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

/// Two folders of three results each.
fn two() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    measured(&a, 3, "/json", &[]);
    measured(&b, 3, "/json", &[]);
    all_valid(&a);
    all_valid(&b);
    (folder, a, b)
}

fn compare(a: &str, b: &str, arguments: &[&str]) -> (i32, SideBySide, String) {
    let mut all = vec!["compare", a, b, "--json", "-"];
    all.extend_from_slice(arguments);
    let output = run(&all);
    let value: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("stdout is no JSON ({error}): {output:?}"));
    let compared = serde_json::from_value(value).unwrap();
    (code(&output), compared, text(&output.stderr))
}

#[test]
fn several_results_on_each_side() {
    let (_folder, a, b) = two();
    let (code, compared, table) = compare(a.to_str().unwrap(), b.to_str().unwrap(), &[]);
    assert_eq!(code, 0, "{table}");
    assert_eq!(compared.comparisons.len(), Metric::ALL.len());
    assert_eq!((compared.a.processes, compared.b.processes), (3, 3));
    assert_eq!(compared.unlike, Vec::<String>::new());
    for comparison in &compared.comparisons {
        let (low, ratio) = (comparison.low.unwrap(), comparison.ratio.unwrap());
        let high = comparison.high.unwrap();
        assert!(low <= ratio && ratio <= high, "{comparison:?}");
        assert!(comparison.method.contains("Welch"), "{comparison:?}");
        assert!(table.contains(comparison.metric.name()), "{table}");
        assert_eq!(
            comparison.repetitions_needed.is_some(),
            comparison.conclusion == Conclusion::Undecided
        );
    }
    // The figure is that of the records: their geometric mean.
    let logs = (0..3).map(|i| {
        let record = read(&a.join(i.to_string()).join("record.json"));
        record.runs[0].throughput_per_s.unwrap().ln()
    });
    let mean = (logs.sum::<f64>() / 3.0).exp();
    let figure = compared.comparisons[0].figures_a.figure.unwrap();
    assert!((figure / mean - 1.0).abs() < 1e-9, "{figure} {mean}");
    let notes = compared.notes.join("\n");
    assert!(
        notes.contains("3 results of `floodmark load`, each counted as one server process"),
        "{notes}"
    );
    assert!(notes.contains("not in turn"), "{notes}");

    let (_, back, _) = compare(
        b.to_str().unwrap(),
        a.to_str().unwrap(),
        &["--metric", "p99"],
    );
    assert_eq!(back.comparisons.len(), 1);
    let there = compared
        .comparisons
        .iter()
        .find(|c| c.metric == Metric::P99)
        .unwrap();
    let product = there.ratio.unwrap() * back.comparisons[0].ratio.unwrap();
    assert!((product - 1.0).abs() < 1e-9, "{product}");
}

#[test]
fn attempts_on_one_server_give_no_interval() {
    let folder = tempfile::tempdir().unwrap();
    measured(folder.path(), 2, "/json", &["--attempts", "3"]);
    all_valid(folder.path());
    let side = |i: usize| folder.path().join(i.to_string());
    let (code, compared, table) = compare(
        side(0).to_str().unwrap(),
        side(1).join("record.json").to_str().unwrap(),
        &["--metric", "throughput"],
    );
    assert_eq!(code, 0);
    let [comparison] = &compared.comparisons[..] else {
        panic!("{compared:?}")
    };
    assert_eq!((compared.a.processes, compared.a.attempts), (1, 3));
    assert_eq!(
        (comparison.low, comparison.conclusion),
        (None, Conclusion::Undecided)
    );
    assert!(comparison.ratio.is_some());
    assert!(table.contains("attempts on one do not tell"), "{table}");
}

#[test]
fn unlike_loads_are_said_first() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
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
fn two_systems_of_one_record() {
    let folder = tempfile::tempdir().unwrap();
    measured(folder.path(), 2, "/json", &[]);
    let mut both = read(&folder.path().join("0/record.json"));
    both.runs
        .extend(read(&folder.path().join("1/record.json")).runs);
    let names = both
        .runs
        .iter()
        .map(|run| run.system.clone())
        .collect::<Vec<_>>();
    let path = folder.path().join("with:colon.json");
    write(&path, &both);
    let path = path.to_str().unwrap();
    let side = |i: usize| format!("{path}:{}", names[i]);
    let (_, compared, _) = compare(&side(0), &side(1), &[]);
    assert_eq!(compared.a.of, [format!("{} /json", names[0])]);
    assert_eq!(compared.b.of, [format!("{} /json", names[1])]);

    let output = run(&["compare", path, &side(1)]);
    assert_eq!(code(&output), 2);
    let said = text(&output.stderr);
    assert!(
        said.contains("several trials or systems in it; name one: 127.0.0.1:"),
        "{said}"
    );
    let output = run(&["compare", &side(0), &format!("{path}:nginx")]);
    assert_eq!(code(&output), 2);
    let said = text(&output.stderr);
    assert!(said.contains("no run of \"nginx\" is in it"), "{said}");
}

#[test]
fn conditions_decide_the_exit_code() {
    let (_folder, a, b) = two();
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
    // With one process on a side the interval is not known, and what is not known is not passed.
    let one = format!("{a}/0");
    let (code, compared, _) = compare(&one, b, &["--fail-if", "p99 low > 9"]);
    assert_eq!((code, compared.thresholds[0].met), (1, None));
}

#[test]
fn what_is_invalid_cannot_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    measured(folder.path(), 2, "/json", &[]);
    let path = |i: usize| folder.path().join(i.to_string());
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
        let (code, _, said) = compare(
            path(0).to_str().unwrap(),
            path(1).to_str().unwrap(),
            arguments,
        );
        assert_eq!(code, wanted, "{status:?}: {said}");
    }
}

#[test]
fn a_result_that_was_cut_off_is_folded_from_its_events() {
    let folder = tempfile::tempdir().unwrap();
    measured(folder.path(), 2, "/json", &[]);
    fs::remove_file(folder.path().join("0/record.json")).unwrap();
    let path = |i: usize| {
        folder
            .path()
            .join(i.to_string())
            .to_str()
            .unwrap()
            .to_owned()
    };
    let (_, compared, _) = compare(&path(0), &path(1), &[]);
    assert!(compared.comparisons[0].figures_a.figure.is_some());
}

#[test]
fn wrong_input_has_one_line_and_code_2() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("empty"), "").unwrap();
    fs::write(path("other.json"), "{\"schema\": 1}").unwrap();
    fs::write(path("newer.json"), "{\"schema\": 2}").unwrap();
    fs::create_dir(path("folder")).unwrap();
    let here = folder.path().to_str().unwrap();
    for (a, mend) in [
        (path("missing"), "No such file"),
        (path("missing:nginx"), "No such file"),
        (path("empty"), "not a record of floodmark"),
        (path("other.json"), "missing field `tool`"),
        (path("newer.json"), "use the floodmark that took it"),
        (path("folder"), "neither record.json nor events.jsonl"),
        ("/dev/zero".to_owned(), "is no file"),
        (here.to_owned(), "is on both sides"),
    ] {
        let output = run(&["compare", &a, here]);
        let said = text(&output.stderr);
        assert_eq!(code(&output), 2, "{a}: {said}");
        assert!(
            said.contains(mend) && said.lines().count() == 1,
            "{a}: {said}"
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
fn a_file_that_cannot_be_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    measured(folder.path(), 2, "/json", &[]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let output = run(&[
        "compare",
        &path("0"),
        &path("1"),
        "--json",
        &path("no/such.json"),
    ]);
    assert_eq!(code(&output), 2);
    assert!(text(&output.stderr).contains("name a file in a folder that exists"));
}

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    measured(folder.path(), 2, "/json", &[]);
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let mut child = floodmark(&["compare", &path("0"), &path("1")])
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = crate::support::finish(child);
    assert!(matches!(code(&ended), 0 | 4), "{ended:?}");
}
