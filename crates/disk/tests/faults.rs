//! Injects disk errors into small servers: a correct server stops acknowledging.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;

use floodmark_disk::{DiskFault, FaultKind, FaultyCall, Operation, Trace, TraceOptions};
use support::{NUMBERS, test_images, trace_store};

/// Number of the first failing call. The first syncs happen at the start.
const FIRST: u64 = 12;

fn run(method: &str, call: FaultyCall, kind: FaultKind) -> Trace {
    let directory = tempfile::tempdir().unwrap();
    let fault = DiskFault {
        call,
        first: FIRST,
        is_lasting: false,
        kind,
    };
    let options = TraceOptions {
        fault: Some(fault),
        ..TraceOptions::default()
    };
    trace_store(method, directory.path(), options)
}

fn sent_after(trace: &Trace, position: u64) -> BTreeMap<u64, Vec<u8>> {
    trace.sent(|call| call.began > position)
}

/// Checks that the store recovers on every image of a trace.
fn passes(method: &str, trace: &Trace) {
    let report = test_images(method, trace, 100);
    assert_eq!(
        (report.recovered, &report.failures[..]),
        (100, &[][..]),
        "{method}: {:?}",
        report.refusals
    );
}

/// Returns the number of writes of half a record.
fn half_records(trace: &Trace) -> usize {
    let lengths = trace.calls.iter().filter_map(|call| match &call.operation {
        Operation::Write { bytes, .. } => Some(bytes.len()),
        _ => None,
    });
    lengths.filter(|length| *length == 8).count()
}

fn acknowledged(trace: &Trace) -> u64 {
    let is_acknowledgement = |operation: &Operation| match operation {
        Operation::Send { bytes, .. } => bytes.starts_with(b"OK "),
        _ => false,
    };
    let calls = trace.calls.iter();
    let sends = calls.filter(|call| is_acknowledgement(&call.operation));
    sends.count() as u64
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn a_correct_server_acknowledges_nothing_after_a_failed_sync() {
    for kind in [FaultKind::InputOutput, FaultKind::NoSpace] {
        for method in ["journal", "replace"] {
            let trace = run(method, FaultyCall::Sync, kind);
            let failed = trace.first_error.expect("a sync failed");
            assert!(sent_after(&trace, failed).is_empty(), "{method}");
            assert!(acknowledged(&trace) > 0, "{method}");
            passes(method, &trace);
        }
    }
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn finds_a_server_that_ignores_or_repeats_a_failed_sync() {
    for method in ["ignored-error", "repeated-sync"] {
        let trace = run(method, FaultyCall::Sync, FaultKind::InputOutput);
        let failed = trace.first_error.expect("a sync failed");
        assert!(!sent_after(&trace, failed).is_empty(), "{method}");
        assert_eq!(acknowledged(&trace), NUMBERS, "{method}");
        let report = test_images(method, &trace, 300);
        let failure = report
            .failures
            .first()
            .expect("an acknowledged number is lost");
        assert!(failure.reason.contains("lost"), "{method}: {failure:?}");
    }
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn a_correct_server_stops_after_a_failed_write() {
    for kind in [FaultKind::InputOutput, FaultKind::NoSpace] {
        let trace = run("journal", FaultyCall::Write, kind);
        assert_eq!(acknowledged(&trace), FIRST - 1, "{kind:?}");
        // EIO can leave a part of the data.
        let parts = usize::from(kind == FaultKind::InputOutput);
        assert_eq!(half_records(&trace), parts, "{kind:?}");
        passes("journal", &trace);
    }
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn a_correct_server_completes_a_short_write() {
    let trace = run("journal", FaultyCall::Write, FaultKind::Short);
    assert_eq!(acknowledged(&trace), NUMBERS);
    assert_eq!(half_records(&trace), 2);
    passes("journal", &trace);
}
