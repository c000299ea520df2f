//! `floodmark report`: the same page and summary from a result, whenever and from wherever it is read.

use std::fs;

use floodmark_truth::Scenario;

use crate::support::{code, load, run, text, truth};

#[test]
fn a_page_is_the_same_from_the_run_its_folder_and_its_record() {
    let (_server, url) = truth(Scenario::default());
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let hostile = "X: </style></svg><script>alert(1)</script>";
    let html = name("at-once.html");
    let load = load(&url, &["-n", "200", "-H", hostile, "--html", &html]);
    load.ends_with(0);
    let result = load.folder.path().join("result");
    let page = fs::read_to_string(name("at-once.html")).unwrap();
    assert!(
        page.contains("&lt;script&gt;alert(1)") && !page.contains("<script"),
        "{page}"
    );
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
    // A run that was killed leaves its events, from which the record follows.
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
fn what_cannot_be_read_or_written_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("broken.json"), "{\n\"schema\": 1, \"tool\": []}").unwrap();
    fs::write(at("later.json"), "{\"schema\": 99}").unwrap();
    fs::create_dir(at("empty")).unwrap();
    for (arguments, told) in [
        (vec![at("absent")], "absent: "),
        (vec![at("empty")], "neither record.json nor events.jsonl"),
        (vec![at("broken.json")], "broken.json:2:"),
        (vec![at("later.json")], "schema 99"),
        (
            vec![
                at("broken.json"),
                "--html".to_owned(),
                "/no/such/folder/x".to_owned(),
            ],
            "--html /no/such/folder/x",
        ),
        (
            vec![at("later.json"), "--html".to_owned(), at("later.json")],
            "later.json: the record is read from it",
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
fn a_page_that_cannot_be_written_leaves_the_measurement() {
    let (_server, url) = truth(Scenario::default());
    let load = load(&url, &["-n", "50", "--csv", "/dev/full"]);
    assert_eq!(load.code(), 5, "{}", load.stderr());
    let result = load.folder.path().join("result");
    let events = result.join("events.jsonl");
    let (result, events) = (result.to_str().unwrap(), events.to_str().unwrap());
    let before = fs::read(events).unwrap();
    for (arguments, exit, told) in [
        (["--html", "/dev/full"], 5, "/dev/full: "),
        (["--html", events], 2, "the record is read from it"),
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
    let twice = load.folder.path().join("x");
    let twice = twice.to_str().unwrap();
    let output = run(&["report", result, "--html", twice, "--csv", twice]);
    assert_eq!(code(&output), 2, "{output:?}");
    assert!(text(&output.stderr).contains("--html names the same file"));
}

#[test]
fn a_server_that_is_not_there_has_a_page_that_says_so() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let url = format!("http://127.0.0.1:{port}/");
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("x.html");
    let load = load(&url, &["-n", "5", "--html", page.to_str().unwrap()]);
    assert_eq!(load.code(), 3, "{}", load.stderr());
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains("The server never answered: none of") && page.contains(&url),
        "{page}"
    );
    assert!(
        !page.contains("class=\"valid\""),
        "there is no figure to call valid: {page}"
    );
}
