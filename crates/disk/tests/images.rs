//! Starts small servers with known durability faults on post-crash images: every fault must be
//! found, and a correct server must pass.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use floodmark_disk::{
    ImageReport, ImageTest, Operation, Persistence, RecoveryProbe, ServerCommand, TestError,
    TraceOptions,
};
use support::{NumberProbe, example, store, test_images, trace_store};

fn run(method: &str, images: u64) -> ImageReport {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace_store(method, directory.path(), TraceOptions::default());
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
fn images_without_a_write_are_equal() {
    let directory = tempfile::tempdir().unwrap();
    let mut trace = trace_store("journal", directory.path(), TraceOptions::default());
    assert!(trace.changes_directory());
    let is_send = |operation: &Operation| matches!(operation, Operation::Send { .. });
    trace.calls.retain(|call| is_send(&call.operation));
    assert!(!trace.changes_directory());
    let report = test_images("journal", &trace, 20);
    assert_eq!((report.images, report.distinct()), (20, 1));
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
    let missing = fails("no-directory-sync");
    assert!(missing.contains("new file numbers"), "{missing}");
    let missing = fails("rename-unsynced-directory");
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

/// Reports a loss for every image, and stops the test after [`StoppingProbe::IMAGES`] images.
#[derive(Default)]
struct StoppingProbe {
    images: AtomicU64,
    stop: AtomicBool,
}

impl StoppingProbe {
    /// Number of images after which the test is stopped.
    const IMAGES: u64 = 20;
}

impl RecoveryProbe for StoppingProbe {
    type Acknowledged = ();

    fn acknowledged(&self, _: &BTreeMap<u64, Vec<u8>>) {}

    fn check(&self, _: SocketAddr, (): &()) -> io::Result<Option<String>> {
        let images = self.images.fetch_add(1, Ordering::Relaxed) + 1;
        self.stop
            .fetch_or(images == Self::IMAGES, Ordering::Relaxed);
        Ok(Some("lost".to_owned()))
    }
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn starts_no_server_after_a_stop() {
    let directory = tempfile::tempdir().unwrap();
    let trace = trace_store("no-sync", directory.path(), TraceOptions::default());
    let probe = StoppingProbe::default();
    let scratch = tempfile::tempdir().unwrap();
    let test = ImageTest {
        trace: &trace,
        server: &store("no-sync"),
        probe: &probe,
        persistence: Persistence::Strict,
        scratch: scratch.path(),
        images: 300,
        seed: 1,
        threads: 1,
        has_controls: false,
    };
    let report = test.run(&probe.stop).unwrap();
    let started = probe.images.load(Ordering::Relaxed);
    assert_eq!((report.failed, started), (StoppingProbe::IMAGES, started));
    let failures = &report.failures;
    assert!(failures.iter().all(|failure| failure.reason == "lost"));
    assert!(failures.iter().any(|failure| !failure.missing.is_empty()));
}

/// Tests a server command on images from a trace of the `journal` store. `directory` is the traced
/// directory.
fn run_command(
    directory: &Path,
    words: &[&str],
    has_controls: bool,
) -> Result<ImageReport, TestError> {
    let trace = trace_store("journal", directory, TraceOptions::default());
    let scratch = tempfile::tempdir().unwrap();
    let test = ImageTest {
        trace: &trace,
        server: &ServerCommand {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
        },
        probe: &NumberProbe,
        persistence: Persistence::Strict,
        scratch: scratch.path(),
        images: 20,
        seed: 1,
        threads: 2,
        has_controls,
    };
    test.run(&AtomicBool::new(false))
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn counts_equal_refusals_once() {
    let directory = tempfile::tempdir().unwrap();
    let script = "echo \"error: $0/numbers: damaged\nrestore it\" >&2; exit 1";
    let words = ["sh", "-c", script, "{run}", "{address}"];
    let report = run_command(directory.path(), &words, false).unwrap();
    let expected = BTreeMap::from([("error: {run}/numbers: damaged".to_owned(), 20)]);
    assert_eq!(report.refusals, expected);
    let error = run_command(directory.path(), &words, true).unwrap_err();
    let expected = "own complete directory: error: {run}/numbers: damaged; check";
    assert!(error.to_string().contains(expected), "{error}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn counts_crashes_as_failures() {
    let directory = tempfile::tempdir().unwrap();
    let script = "echo bye >&2; kill -SEGV $$";
    let words = ["sh", "-c", script, "{run}", "{address}"];
    let report = run_command(directory.path(), &words, false).unwrap();
    assert_eq!((report.failed, report.crashed), (20, 20), "{report:?}");
    let reason = &report.failures[0].reason;
    let expected = "the server crashed on this disk state (signal: 11 (SIGSEGV)): bye";
    assert_eq!(reason, expected);
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn finds_a_server_that_keeps_its_data_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let (program, path) = (example("faulty_store"), directory.path().to_owned());
    let (program, path) = (program.to_str().unwrap(), path.to_str().unwrap());
    let words = [program, "journal", path, "{address}"];
    let error = run_command(directory.path(), &words, true).unwrap_err();
    assert!(matches!(error, TestError::StoredElsewhere), "{error}");
    let words = [program, "journal", "{run}", "{address}"];
    let directory = tempfile::tempdir().unwrap();
    let report = run_command(directory.path(), &words, true).unwrap();
    assert_eq!((report.images, report.recovered), (20, 20), "{report:?}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn does_not_ask_a_process_that_it_did_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let program = example("faulty_store");
    // `timeout` moves the store to another process group.
    let script = "timeout 4 \"$0\" journal \"$1\" \"$2\" & exec sleep 9";
    let program = program.to_str().unwrap();
    let words = ["sh", "-c", script, program, "{run}", "{address}"];
    let error = run_command(directory.path(), &words, false).unwrap_err();
    assert!(matches!(error, TestError::ForeignServer(_)), "{error}");
}
