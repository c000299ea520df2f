//! Values for tests.

use std::collections::BTreeMap;

use floodmark_record::events::EndReason;
use floodmark_record::{Counts, WorkerEnd};

/// Returns the end of a worker that sent no request.
pub(crate) fn worker_end() -> WorkerEnd {
    WorkerEnd {
        reason: EndReason::Completed,
        last_response_ns: None,
        window_ns: 0,
        ended_ns: 0,
        counts: Counts::default(),
        warmup_counts: None,
        warmup_ns: 0,
        bytes_sent: 0,
        bytes_received: 0,
        connects: 0,
        peak_connections: 0,
        held: None,
        longest_stall_ns: 0,
        errors: BTreeMap::new(),
        not_ok_responses: Vec::new(),
        unawaited: BTreeMap::new(),
        user_s: 0.0,
        system_s: 0.0,
        peak_rss_bytes: None,
        threads: Vec::new(),
        addresses: Vec::new(),
        answers: None,
        out_of_order: 0,
        offenders: Vec::new(),
        not_numbers: 0,
        scored: None,
        tls: None,
        groups: Vec::new(),
        next_number: 1,
    }
}
