//! Puts the judges to work on what was measured: validity, comparisons and claims from `diagnose`.

use std::collections::BTreeMap;

use floodmark_diagnose::comparing;
use floodmark_diagnose::validity::{Evidence, HostCounters};
use floodmark_record::Record;
use floodmark_record::run::{Run, Validity};

/// Which version of each judge judged.
pub fn versions() -> BTreeMap<String, String> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    [
        "steady",
        "saturation",
        "intervals",
        "validity",
        "verdict",
        "checks",
        "comparisons",
        "sweeps",
        "claims",
    ]
    .map(|judge| (judge.to_owned(), version.clone()))
    .into()
}

/// Holds an experiment's trials against each other, and against what was published. The runs are judged by then.
pub fn beside_each_other(record: &mut Record) {
    record.comparisons = comparing::comparisons(record);
    record.sweeps = comparing::sweeps(record);
    record.claims = comparing::claims(record);
}

/// Whether a run's figures can be read as the server's, in an experiment that expects some causes.
pub fn validity(run: &Run, cpus: u32, expected: &[String]) -> Validity {
    if let Some(driven) = crate::client::validity(run) {
        return driven;
    }
    let increase = |metric: &str| -> Option<f64> {
        run.observations
            .iter()
            .find(|o| o.metric == metric)
            .map(|o| o.values.iter().sum())
    };
    floodmark_diagnose::validity::validity(&Evidence {
        plan: &run.plan,
        counts: &run.requests,
        errors: &run.errors,
        unawaited: &run.connections.unawaited,
        lateness: &run.lateness_us,
        response: &run.response_time_us,
        throughput_per_s: run.throughput_per_s,
        window_s: run.window.to_s - run.window.from_s,
        sending_s: run.sending_s,
        threads: &run.client.threads,
        addresses: &run.connections.addresses,
        cpus,
        longest_stall_ns: run.longest_stall_ns,
        host: HostCounters {
            listen_overflows: increase("ListenOverflows"),
            listen_drops: increase("ListenDrops"),
            syn_retransmits: increase("TCPSynRetrans"),
        },
        held: run.connections.held.as_ref(),
        ended: run.ended.reason,
        server_gone_since_s: run.server_gone_since_s,
        expected,
        ceiling_per_s: None,
    })
}
