//! Tests of `--github-summary`.

use std::fs;
use std::path::Path;
use std::process::Output;

use floodmark_truth::Scenario;

use crate::support::{code, finish, floodmark, succeeds, text, truth};

const VARIABLE: &str = "GITHUB_STEP_SUMMARY";

/// Runs a command with `--github-summary` and the given job summary, if any.
fn run_with(arguments: &[&str], summary: Option<&Path>) -> Output {
    let mut command = floodmark(arguments);
    command.arg("--github-summary").env_remove(VARIABLE);
    if let Some(summary) = summary {
        command.env(VARIABLE, summary);
    }
    finish(command.spawn().unwrap())
}

#[test]
fn appends_each_result() {
    let (_server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let summary = directory.path().join("summary.md");
    let out = directory.path().join("result");
    let out = out.to_str().unwrap();
    fs::write(&summary, "# Job\n").unwrap();
    let arguments = ["load", &url, "-n", "200", "--fail-if", "p99 > 10s"];
    let output = run_with(&[&arguments[..], &["--out", out]].concat(), Some(&summary));
    succeeds(&output);
    assert!(text(&output.stdout).contains("throughput"));
    let once = fs::read_to_string(&summary).unwrap();
    let own = once.strip_prefix("# Job\n").unwrap();
    assert!(own.starts_with("\n## floodmark load\n"), "{own}");
    for part in [
        "- throughput: **",
        "- validity: ",
        "- why: ",
        "- fail-if: p99 \\> 10s",
        "| --- |",
    ] {
        assert!(own.contains(part), "no {part:?} in {own}");
    }
    let later = run_with(&["report", out], Some(&summary));
    succeeds(&later);
    assert!(later.stdout.is_empty(), "{later:?}");
    assert_eq!(
        fs::read_to_string(&summary).unwrap(),
        format!("{once}{own}")
    );
}

#[test]
fn refuses_a_missing_or_unwritable_summary_before_the_load() {
    let (server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing/summary.md");
    for (summary, told) in [
        (None, "--github-summary: GITHUB_STEP_SUMMARY is not set; "),
        (Some(Path::new("")), "GITHUB_STEP_SUMMARY is not set; "),
        (Some(directory.path()), "; name a writable file"),
        (Some(&missing), "missing/summary.md: "),
    ] {
        let output = run_with(&["load", &url, "-n", "50"], summary);
        assert_eq!(code(&output), 2, "{output:?}");
        let error = text(&output.stderr);
        assert!(
            error.contains(told) && error.lines().count() == 1,
            "{error}"
        );
    }
    assert_eq!(server.stop().unwrap().totals.requests, 0);
}

#[test]
fn keeps_the_result_if_the_disk_is_full() {
    let (_server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("result");
    let arguments = ["load", &url, "-n", "50", "--out", out.to_str().unwrap()];
    let output = run_with(&arguments, Some(Path::new("/dev/full")));
    assert_eq!(code(&output), 5, "{output:?}");
    let error = text(&output.stderr);
    let fix = format!("floodmark report {} --github-summary", out.display());
    assert!(
        error.contains("--github-summary /dev/full: ") && error.contains(&fix),
        "{error}"
    );
    assert!(out.join("record.json").exists());
    assert!(text(&output.stdout).contains("throughput"));
}

#[test]
fn appends_nothing_to_a_full_summary() {
    let (_server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let summary = directory.path().join("summary.md");
    let full = "x".repeat((1 << 20) - 20);
    fs::write(&summary, &full).unwrap();
    let output = run_with(&["load", &url, "-n", "50"], Some(&summary));
    succeeds(&output);
    let note = "nothing was appended, because the summary of a step is limited to 1 MiB";
    assert!(text(&output.stderr).contains(note), "{output:?}");
    assert_eq!(fs::read_to_string(&summary).unwrap(), full);
}
