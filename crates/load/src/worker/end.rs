//! Creates the final event of a load process, which combines its threads' results.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};

use floodmark_record::WorkerEnd;
use floodmark_record::events::{AnswersFile, EndReason, HeldConnections};
use floodmark_record::kept::SHOWN;
use floodmark_record::tls::TlsUse;

use super::{Job, PhaseResult, groups};
use crate::core::{Core, HeldSoFar};
use crate::group_times::GroupTimes;
use crate::judge::{NO_VALUE, NOT_A_NUMBER, NOT_A_SCORE};
use crate::kept_responses::{KeptResponses, NotOkBodies};
use crate::slice::PhaseEnd;
use crate::targets;
use crate::usage::peak_rss_bytes;

impl Job<'_> {
    /// Combines the results of all phases, and writes the kept responses.
    ///
    /// # Errors
    /// Writing the responses fails.
    pub(super) fn end(
        &self,
        mut ended: Vec<PhaseResult>,
        cores: &[Core],
        next_number: u64,
        responses: Option<&mut dyn Write>,
    ) -> io::Result<WorkerEnd> {
        let mut measured = ended.pop().unwrap_or_default();
        let warmup = ended.pop();
        let of = |ends: &[PhaseEnd], what: fn(&PhaseEnd) -> u64| {
            ends.iter().map(what).max().unwrap_or(0)
        };
        let reason = [
            EndReason::Interrupted,
            EndReason::ServerGone,
            EndReason::NotHttp,
        ]
        .into_iter()
        .find(|reason| measured.threads.iter().any(|end| end.reason == *reason))
        .unwrap_or(EndReason::Completed);
        let (mut errors, mut unawaited) = (BTreeMap::new(), BTreeMap::new());
        let (mut connects, mut peak_connections, mut out_of_order, mut offenders) =
            (0, 0, 0, Vec::new());
        let mut group_times = GroupTimes::new(groups(&self.input.plan));
        for core in cores {
            group_times.merge(&core.recorder.group_times);
            add_counts(&mut errors, &core.recorder.errors);
            add_counts(&mut unawaited, &core.recorder.unawaited);
            connects += core.recorder.total_connects;
            peak_connections += core.recorder.peak_open;
            out_of_order += core.responses.out_of_order;
            offenders.extend_from_slice(&core.responses.offenders);
        }
        offenders.truncate(SHOWN);
        let tls = measured
            .threads
            .iter_mut()
            .filter_map(|end| end.tls.take())
            .reduce(TlsUse::merged);
        let not_numbers = [NOT_A_NUMBER, NOT_A_SCORE, NO_VALUE]
            .iter()
            .filter_map(|name| errors.get(*name))
            .sum();
        Ok(WorkerEnd {
            reason,
            last_response_ns: (measured.threads.iter())
                .filter_map(|end| end.last_response)
                .max(),
            window_ns: of(&measured.threads, |end| end.window),
            ended_ns: of(&measured.threads, |end| end.ended),
            warmup_ns: warmup
                .as_ref()
                .map_or(0, |w| of(&w.threads, |end| end.ended)),
            warmup_counts: warmup.map(|w| w.totals.counts),
            counts: measured.totals.counts,
            bytes_sent: measured.totals.bytes_sent,
            bytes_received: measured.totals.bytes_received,
            connects,
            peak_connections,
            held: held(cores),
            longest_stall_ns: of(&measured.threads, |end| end.longest_stall),
            errors,
            not_ok_responses: NotOkBodies::join(cores.iter().map(|core| &core.not_ok_responses)),
            unawaited,
            user_s: measured.cpu.0,
            system_s: measured.cpu.1,
            peak_rss_bytes: peak_rss_bytes(),
            threads: measured.threads.into_iter().map(|end| end.usage).collect(),
            addresses: targets::uses(&self.input.plan, cores.iter().map(|core| &core.targets)),
            answers: self.write_kept_responses(cores, responses)?,
            out_of_order,
            offenders,
            not_numbers,
            scored: KeptResponses::scored(cores.iter().map(|core| &core.responses)),
            tls,
            groups: group_times.encode().collect(),
            next_number,
        })
    }

    /// Writes the kept responses to `responses`, or to the file that the input names.
    fn write_kept_responses(
        &self,
        cores: &[Core],
        responses: Option<&mut dyn Write>,
    ) -> io::Result<Option<AnswersFile>> {
        let Some(path) = &self.input.answers_file else {
            return Ok(None);
        };
        let mut file;
        let out: &mut dyn Write = match responses {
            Some(responses) => responses,
            None => {
                file = BufWriter::with_capacity(1 << 20, File::create(path)?);
                &mut file
            }
        };
        let line = KeptResponses::line(cores.iter().map(|core| &core.responses));
        let mut count = 0;
        for core in cores {
            core.responses.write(line, out)?;
            count += core.responses.count() as u64;
        }
        out.flush()?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Some(AnswersFile { file: name, count }))
    }
}

/// Combines the statistics on held connections from all threads. Returns `None` if no connections
/// are held.
fn held(cores: &[Core]) -> Option<HeldConnections> {
    let each: Option<Vec<_>> = cores.iter().map(Core::held).collect();
    let each = each.filter(|each| !each.is_empty())?;
    let sum = |of: fn(&HeldSoFar) -> u64| each.iter().map(|held| of(held)).sum();
    let mut reasons = BTreeMap::new();
    for held in &each {
        add_counts(&mut reasons, &held.reasons);
    }
    Some(HeldConnections {
        standing: sum(|held| held.standing),
        failed: sum(|held| held.failed),
        reasons,
        lost: sum(|held| held.lost),
        reopened: sum(|held| held.reopened),
        opening_ns: each.iter().map(|held| held.opening).max().unwrap_or(0),
    })
}

/// Adds counts by name to a sum.
fn add_counts(sum: &mut BTreeMap<String, u64>, counts: &BTreeMap<&'static str, u64>) {
    for (name, n) in counts {
        *sum.entry((*name).to_owned()).or_default() += n;
    }
}
