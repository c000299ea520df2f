//! Tests of the result directory: events, and the record that is derived from the events.

use std::fs;

use floodmark_truth::Scenario;

use crate::support::{
    Serve, code, finish, floodmark, folded, judging, load, run, start_load_as, succeeds, truth,
};

#[test]
fn folding_again_gives_the_same_record() {
    let server = Serve::start(&["dispatcher"]);
    let url = format!("{}/dispatcher", server.url);
    for arguments in [
        &["-n", "2000", "-c", "5"][..],
        &["-r", "300", "-d", "1200ms", "--warmup", "200ms"],
        &[
            "-n",
            "300",
            "--fresh",
            "--check",
            "sequence",
            "--attempts",
            "2",
        ],
    ] {
        let load = start_load_as(&url, arguments, judging).end();
        let result = load.directory.path().join("result");
        assert_eq!(folded(&result), load.record, "{arguments:?}");
        let kept = serde_json::from_slice(&fs::read(result.join("record.json")).unwrap()).unwrap();
        assert_eq!(crate::support::valid(kept), load.record);
    }
}

#[test]
fn ignores_a_truncated_last_line() {
    let (_server, url) = truth(Scenario::default());
    let load = load(&url, &["-r", "300", "-d", "1s"]);
    let whole = fs::read(load.events()).unwrap();
    // Truncate the last line, which marks the end of the run.
    fs::write(load.events(), &whole[..whole.len() - 10]).unwrap();
    let record = folded(&load.directory.path().join("result"));
    assert_eq!(record.runs[0].requests, load.run().requests);
    assert_eq!(record.runs[0].response_time_us, load.run().response_time_us);
}

#[test]
fn refuses_to_overwrite_a_result() {
    let (_server, url) = truth(Scenario::default());
    let load = load(&url, &["-n", "10"]);
    let result = load.directory.path().join("result");
    let before = fs::read(load.events()).unwrap();
    let again = run(&["load", &url, "-n", "10", "--out", result.to_str().unwrap()]);
    assert_eq!(code(&again), 2);
    assert_eq!(fs::read(load.events()).unwrap(), before);
}

#[test]
fn an_empty_tmpdir_does_not_name_the_current_directory() {
    let (_server, url) = truth(Scenario::default());
    let current = tempfile::tempdir().unwrap();
    let mut load = floodmark(&["load", &url, "-n", "10", "--json", "-"]);
    load.env("TMPDIR", "").current_dir(current.path());
    succeeds(&finish(load.spawn().unwrap()));
    assert_eq!(fs::read_dir(current.path()).unwrap().count(), 0);
}

#[test]
fn writes_the_requested_files() {
    let (_server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let name = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (csv, hdr) = (name("x.csv"), name("x.hdr"));
    let load = load(&url, &["-n", "100", "--csv", &csv, "--hdr", &hdr]);
    load.ends_with(0);
    let csv = fs::read_to_string(csv).unwrap();
    assert_eq!(csv.lines().count(), 1 + load.run().series.len(), "{csv}");
    assert!(fs::read_to_string(hdr).unwrap().contains("Value"));
}
