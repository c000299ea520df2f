//! What a load process says at its end: everything that its threads saw, put together.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};

use floodmark_record::WorkerEnd;
use floodmark_record::events::{AnswersFile, EndReason, Held};
use floodmark_record::kept::SHOWN;
use floodmark_record::tls::TlsUse;

use super::{Ended, Job, groups};
use crate::answers::Answers;
use crate::core::{Core, HeldSoFar};
use crate::gather::Totals;
use crate::group_times::GroupTimes;
use crate::judge::{NOT_A_NUMBER, NOT_A_SCORE};
use crate::message::PhaseEnd;
use crate::targets;
use crate::usage::peak_rss_bytes;

impl Job<'_> {
    /// Puts together what the phases came to, and writes the answers that are kept.
    ///
    /// # Errors
    /// The answers cannot be written.
    pub(super) fn end(
        &self,
        mut ended: Vec<Ended>,
        cores: &[Core],
        next_number: u64,
    ) -> io::Result<WorkerEnd> {
        let mut measured = ended.pop().unwrap_or_else(|| Ended {
            totals: Totals::default(),
            threads: Vec::new(),
            cpu: (0.0, 0.0),
        });
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
            group_times.merge(core.recorder.group_times());
            let (core_errors, core_connects, core_peak) = core.recorder.totals();
            for (name, n) in core_errors {
                *errors.entry(name).or_default() += n;
            }
            for (name, n) in core.recorder.unawaited_errors() {
                *unawaited.entry(name.clone()).or_default() += n;
            }
            connects += core_connects;
            peak_connections += core_peak;
            out_of_order += core.answers.out_of_order;
            offenders.extend_from_slice(&core.answers.offenders);
        }
        offenders.truncate(SHOWN);
        let tls = measured
            .threads
            .iter_mut()
            .filter_map(|end| end.tls.take())
            .reduce(TlsUse::merged);
        let not_numbers = [NOT_A_NUMBER, NOT_A_SCORE]
            .iter()
            .filter_map(|name| errors.get(*name))
            .sum();
        Ok(WorkerEnd {
            reason,
            server_gone_since_ns: measured
                .threads
                .iter()
                .filter_map(|end| end.gone_since)
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
            unawaited,
            user_s: measured.cpu.0,
            system_s: measured.cpu.1,
            peak_rss_bytes: peak_rss_bytes(),
            threads: measured.threads.into_iter().map(|end| end.usage).collect(),
            addresses: targets::uses(&self.input.plan, cores.iter().map(|core| &core.targets)),
            answers: self.write_answers(cores)?,
            out_of_order,
            offenders,
            not_numbers,
            scored: Answers::scored(cores.iter().map(|core| &core.answers)),
            tls,
            groups: group_times.encode().collect(),
            next_number,
        })
    }

    fn write_answers(&self, cores: &[Core]) -> io::Result<Option<AnswersFile>> {
        let Some(path) = &self.input.answers_file else {
            return Ok(None);
        };
        let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
        let line = Answers::line(cores.iter().map(|core| &core.answers));
        let mut count = 0;
        for core in cores {
            core.answers.write(line, &mut file)?;
            count += core.answers.len() as u64;
        }
        file.flush()?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(Some(AnswersFile { file: name, count }))
    }
}

/// What became of the held connections of all threads; none where none are held.
fn held(cores: &[Core]) -> Option<Held> {
    let each: Option<Vec<_>> = cores.iter().map(Core::held).collect();
    let each = each.filter(|each| !each.is_empty())?;
    let sum = |of: fn(&HeldSoFar) -> u64| each.iter().map(|held| of(held)).sum();
    let mut reasons = BTreeMap::new();
    for (name, n) in each.iter().flat_map(|held| &held.reasons) {
        *reasons.entry((*name).to_owned()).or_default() += n;
    }
    Some(Held {
        standing: sum(|held| held.standing),
        failed: sum(|held| held.failed),
        reasons,
        lost: sum(|held| held.lost),
        reopened: sum(|held| held.reopened),
        opening_ns: each.iter().map(|held| held.opening).max().unwrap_or(0),
    })
}
