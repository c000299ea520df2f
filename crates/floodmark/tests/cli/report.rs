//! Tests of `floodmark report`.

use std::fs;

use floodmark_truth::Scenario;

use crate::support::{code, finish, floodmark, full_disk, load, run, succeeds, text, truth};

#[test]
fn renders_the_same_page_from_run_directory_and_record() {
    let (_server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let name = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let hostile = "X: </style></svg><script>alert(1)</script>";
    let html = name("at-once.html");
    let load = load(&url, &["-n", "200", "-H", hostile, "--html", &html]);
    load.ends_with(0);
    let result = load.directory.path().join("result");
    let page = fs::read_to_string(name("at-once.html")).unwrap();
    assert!(
        page.contains("&lt;script&gt;alert(1)"),
        "shown as text: {page}"
    );
    // The page's own script is the only one.
    assert_eq!(page.matches("<script").count(), 1);
    assert!(
        page.contains("<svg") && page.len() < 300_000,
        "{}",
        page.len()
    );
    let record = result.join("record.json");
    for from in [&result, &record] {
        let from = from.to_str().unwrap();
        let output = run(&["report", from, "--html", &name("later.html"), "--json", "-"]);
        assert_eq!(code(&output), 0, "{output:?}");
        assert_eq!(fs::read_to_string(name("later.html")).unwrap(), page);
        assert_eq!(
            serde_json::from_slice::<floodmark_record::Record>(&output.stdout).unwrap(),
            load.record
        );
    }
    // A killed run leaves no record.json. Its record is derived from the events.
    fs::remove_file(record).unwrap();
    let output = run(&[
        "report",
        result.to_str().unwrap(),
        "--html",
        &name("folded.html"),
    ]);
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!(fs::read_to_string(name("folded.html")).unwrap(), page);
    let summary = run(&["report", result.to_str().unwrap()]);
    assert!(text(&summary.stdout).contains("throughput"), "{summary:?}");
}

#[test]
fn refuses_invalid_files_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("broken.json"), "{\n\"schema\": 1, \"tool\": []}").unwrap();
    fs::write(at("later.json"), "{\"schema\": 99}").unwrap();
    fs::create_dir(at("empty")).unwrap();
    for (arguments, told) in [
        (vec![at("absent")], "absent: "),
        (vec![at("empty")], "neither record.json nor events.jsonl"),
        (vec![at("broken.json")], "broken.json:2:"),
        (vec![at("later.json")], "schema version 99"),
        (
            vec![at("broken.json"), "--html".to_owned(), at("missing/x")],
            "missing/x: ",
        ),
        (
            vec![at("later.json"), "--html".to_owned(), at("later.json")],
            "later.json: the record is read from this file",
        ),
    ] {
        let mut all = vec!["report"];
        all.extend(arguments.iter().map(String::as_str));
        let output = run(&all);
        assert_eq!(code(&output), 2, "{output:?}");
        let error = text(&output.stderr);
        assert!(
            error.contains(told) && error.lines().count() == 1,
            "{error}"
        );
    }
}

#[test]
fn keeps_the_measurement_if_a_page_cannot_be_written() {
    let (_server, url) = truth(Scenario::default());
    let load = load(&url, &["-n", "50", "--csv", "/dev/full"]);
    assert_eq!(load.code(), 5, "{}", load.stderr());
    let result = load.directory.path().join("result");
    let printed = load.stderr();
    let summary = printed.find("throughput");
    let fix = format!("floodmark report {} --json - --csv FILE", result.display());
    assert!(
        summary.is_some() && summary < printed.find(&fix),
        "{printed}"
    );
    let events = result.join("events.jsonl");
    let (result, events) = (result.to_str().unwrap(), events.to_str().unwrap());
    let before = fs::read(events).unwrap();
    for (arguments, exit, told) in [
        (
            ["--html", "/dev/full"],
            5,
            "; free up disk space or choose another file",
        ),
        (["--html", events], 2, "the record is read from this file"),
    ] {
        let output = run(&["report", result, arguments[0], arguments[1]]);
        assert_eq!(code(&output), exit, "{output:?}");
        let error = text(&output.stderr);
        assert!(
            error.contains(told) && error.lines().count() == 1,
            "{error}"
        );
    }
    assert_eq!(fs::read(events).unwrap(), before);
    let twice = load.directory.path().join("x");
    let twice = twice.to_str().unwrap();
    let output = run(&["report", result, "--html", twice, "--csv", twice]);
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(text(&output.stderr).contains("--html names the same file"));
}

#[test]
fn the_page_names_an_unreachable_server() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let url = format!("http://127.0.0.1:{port}/");
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("x.html");
    let load = load(&url, &["-n", "5", "--html", page.to_str().unwrap()]);
    assert_eq!(load.code(), 3, "{}", load.stderr());
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains("the server never responded") && page.contains(&url),
        "{page}"
    );
    assert!(
        !page.contains("class=\"valid\""),
        "a run without figures must not be called valid: {page}"
    );
}

#[test]
fn writes_files_to_stdout() {
    let (_server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let result = directory.path().join("result");
    let result = result.to_str().unwrap();
    let loaded = run(&["load", &url, "-n", "50", "--html", "-", "--out", result]);
    succeeds(&loaded);
    let page = text(&loaded.stdout);
    assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
    assert!(page.trim_end().ends_with("</html>"), "{page}");
    assert!(text(&loaded.stderr).contains("throughput"));
    let again = run(&["report", result, "--html", "-"]);
    assert_eq!(text(&again.stdout), page);
    let csv = run(&["report", result, "--csv", "-"]);
    assert!(text(&csv.stdout).lines().count() >= 2, "{csv:?}");
    let twice = run(&["report", result, "--html", "-", "--json", "-"]);
    assert_eq!(code(&twice), 2);
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    let (_server, url) = truth(Scenario::default());
    let load = load(&url, &["-n", "50"]);
    let result = load.directory.path().join("result");
    let page = load.directory.path().join("page.html");
    for old in [None, Some("old page")] {
        if let Some(old) = old {
            fs::write(&page, old).unwrap();
        }
        let arguments = ["report", result.to_str().unwrap(), "--html"];
        let mut command = floodmark(&arguments);
        let output = finish(full_disk(command.arg(&page)).spawn().unwrap());
        assert_eq!(code(&output), 5, "{output:?}");
        assert_eq!(text(&output.stderr).lines().count(), 1, "{output:?}");
        assert_eq!(fs::read_to_string(&page).ok().as_deref(), old);
        assert!(!load.directory.path().join("page.html.new").exists());
    }
}
