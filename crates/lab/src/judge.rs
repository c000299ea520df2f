//! Puts the judges to work on what was measured: validity from `diagnose`, correctness from `check`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use floodmark_check::{Answer, Kept, decode_answers, sequence};
use floodmark_diagnose::comparing;
use floodmark_diagnose::validity::{Evidence, HostCounters};
use floodmark_record::Record;
use floodmark_record::plan::Check;
use floodmark_record::run::{CheckResult, Run, Validity};

use crate::tally::Tally;

/// Which version of each judge judged.
pub fn versions() -> BTreeMap<String, String> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    [
        "steady",
        "saturation",
        "intervals",
        "validity",
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

/// Numbers answered in this and earlier attempts: they are on the same server, which must not hand out one twice.
#[derive(Default)]
pub struct SequenceSoFar {
    answers: Vec<Answer>,
    unknown: u64,
    out_of_order: u64,
    not_numbers: u64,
    offenders: Vec<String>,
    /// Attempts follow one another, each on a clock of its own that starts at zero.
    clock_ns: u64,
}

impl SequenceSoFar {
    /// Checks all numbers up to and with this run's.
    pub fn check(&mut self, folder: &Path, tally: &Tally) -> Vec<CheckResult> {
        if tally.plan.check != Some(Check::Sequence) {
            return Vec::new();
        }
        let unread = |detail: String| {
            vec![CheckResult {
                name: "sequence".to_owned(),
                held: false,
                detail,
            }]
        };
        let Some(end) = &tally.end else {
            return unread(
                "not checked: the load process died before it wrote down the answers".to_owned(),
            );
        };
        let Some(file) = &end.answers else {
            return unread("not checked: no answers were kept".to_owned());
        };
        let path = folder.join(&file.file);
        let read = fs::read(&path)
            .map_err(|error| error.to_string())
            .and_then(|bytes| decode_answers(&bytes).map_err(|error| error.to_string()));
        let answers = match read {
            Ok(answers) => answers,
            Err(error) => return unread(format!("not checked: {}: {error}", path.display())),
        };
        let mut latest = self.clock_ns;
        for mut answer in answers {
            answer.sent_ns += self.clock_ns;
            answer.done_ns += self.clock_ns;
            latest = latest.max(answer.done_ns);
            self.answers.push(answer);
        }
        self.clock_ns = latest + 1;
        let warmup = end
            .warmup_counts
            .as_ref()
            .map_or(0, |counts| counts.unknown() + counts.reconnects);
        self.unknown += end.counts.unknown() + end.counts.reconnects + warmup;
        self.out_of_order += end.out_of_order;
        self.not_numbers += end.not_numbers;
        self.offenders.extend_from_slice(&end.offenders);
        vec![sequence(Kept {
            answers: &mut self.answers,
            unknown: self.unknown,
            out_of_order_on_connection: self.out_of_order,
            offenders: &self.offenders,
            not_numbers: self.not_numbers,
        })]
    }
}
