//! Starts small servers with known durability faults on post-crash images: every fault must be
//! found, and a correct server must pass.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use floodmark_disk::TraceOptions;
use support::{test_images, trace_store};

fn run(method: &str, images: u64) -> floodmark_disk::ImageReport {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace_store(method, folder.path(), TraceOptions::default());
    let report = test_images(method, &trace, images);
    assert_eq!(report.images, images);
    report
}

fn passes(method: &str) {
    let report = run(method, 300);
    assert_eq!(report.failures, [], "{method}");
    assert_eq!(report.recovered, 300, "{method}: {:?}", report.refusals);
    assert!(report.distinct() > 50, "{method}: {}", report.distinct());
}

/// Returns the explanation of the first failure.
fn fails(method: &str) -> String {
    let report = run(method, 300);
    let failure = report.failures.first();
    let failure = failure.unwrap_or_else(|| panic!("{method} was not detected: {report:?}"));
    assert!(failure.reason.contains("lost"), "{method}: {failure:?}");
    failure.missing.join("\n")
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn correct_stores_lose_nothing() {
    passes("journal");
    passes("replace");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn finds_a_response_before_the_write() {
    // The write may not even have begun.
    let report = run("early-response", 300);
    assert!(report.failed > 0, "{report:?}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn finds_missing_syncs() {
    let missing = fails("no-sync");
    assert!(missing.contains("bytes to numbers at offset"), "{missing}");
    let missing = fails("no-folder-sync");
    assert!(missing.contains("new file numbers"), "{missing}");
    let missing = fails("rename-unsynced-folder");
    assert!(
        missing.contains("rename of numbers.new to numbers"),
        "{missing}"
    );
    let missing = fails("rename-unsynced-file");
    assert!(missing.contains("numbers.new"), "{missing}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn finds_torn_writes_in_place() {
    // Up to 64 numbers fill one sector, which persists as a whole.
    let report = run("in-place", 1_000);
    assert!(report.failed > 0, "{report:?}");
    for failure in &report.failures[..3] {
        let missing = failure.missing.join("\n");
        assert!(
            missing.contains("bytes to numbers at offset") && missing.contains("(torn"),
            "{failure:?}"
        );
        assert!(failure.reason.contains("lost"), "{failure:?}");
    }
}
