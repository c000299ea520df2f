//! Checks the recorded responses of one server process across all its attempts.

use std::fs;
use std::path::Path;

use floodmark_check::{
    CheckContext, DrawnNumber, decode_numbers, decode_scores, scoring, sequence,
};
use floodmark_record::Counts;
use floodmark_record::kept::{KeptScore, ScoringSummary, TotalLine};
use floodmark_record::plan::Check;
use floodmark_record::run::CheckResult;

use crate::run_events::RunEvents;

/// Responses of one server process in all attempts so far. Each number may occur only once.
#[derive(Default)]
pub struct ResponsesSoFar {
    numbers: Vec<DrawnNumber>,
    scores: Vec<KeptScore>,
    /// Expected totals over all attempts.
    line: Option<TotalLine>,
    scored: ScoringSummary,
    unknown: u64,
    out_of_order: u64,
    unreadable: u64,
    offenders: Vec<String>,
    /// End of the earlier attempts, in ns. Each attempt's own clock starts at zero.
    clock_ns: u64,
}

impl ResponsesSoFar {
    /// Checks all responses so far, including those of this run.
    pub fn check(&mut self, folder: &Path, run: &RunEvents) -> Vec<CheckResult> {
        let Some(check) = run.plan.check else {
            return Vec::new();
        };
        let result = match self.add(folder, run, check) {
            Ok(()) => self.judge(check),
            Err(why) => CheckResult {
                name: check.name().to_owned(),
                held: false,
                detail: format!("not evaluated: {why}"),
            },
        };
        vec![result]
    }

    /// Adds the recorded responses of a run.
    fn add(&mut self, folder: &Path, run: &RunEvents, check: Check) -> Result<(), String> {
        let Some(end) = &run.end else {
            return Err("the client process died before it recorded the responses".to_owned());
        };
        let Some(file) = &end.answers else {
            return Err("no responses were recorded".to_owned());
        };
        let path = folder.join(&file.file);
        let error = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let bytes = fs::read(&path).map_err(|e| error(&e))?;
        let (earlier_ns, mut latest) = (self.clock_ns, self.clock_ns);
        match check {
            Check::Sequence => {
                for mut answer in decode_numbers(&bytes).map_err(|e| error(&e))? {
                    answer.sent_ns += earlier_ns;
                    answer.done_ns += earlier_ns;
                    latest = latest.max(answer.done_ns);
                    self.numbers.push(answer);
                }
            }
            Check::Scoring { .. } => {
                let scored = end.scored.clone().unwrap_or_default();
                let by = match (scored.line, self.line) {
                    (Some(now), Some(first)) => now.ahead_of(&first),
                    _ => Some(0),
                };
                self.line = self.line.or(scored.line);
                for score in decode_scores(&bytes).map_err(|e| error(&e))? {
                    let score = score.moved(by, earlier_ns);
                    latest = latest.max(score.done_ns());
                    self.scores.push(score);
                }
                self.scored.join(&scored);
            }
        }
        self.clock_ns = latest + 1;
        let warmup = end.warmup_counts.as_ref();
        self.unknown += unknown(&end.counts) + warmup.map_or(0, unknown);
        self.out_of_order += end.out_of_order;
        self.unreadable += end.not_numbers;
        self.offenders.extend_from_slice(&end.offenders);
        Ok(())
    }

    fn judge(&mut self, check: Check) -> CheckResult {
        let context = CheckContext {
            unknown: self.unknown,
            out_of_order_on_connection: self.out_of_order,
            offenders: &self.offenders,
            unreadable: self.unreadable,
        };
        match check {
            Check::Sequence => sequence(&mut self.numbers, &context),
            Check::Scoring { score } => {
                let line = self.line.unwrap_or(TotalLine::through(score, 0, 0.0));
                scoring(&mut self.scores, line, &self.scored, &context)
            }
        }
    }
}

/// Returns how many requests may have used up a dispatcher number that no response contained. A
/// 5xx response may follow a completed write, for example after a journal timeout.
pub(crate) fn unknown(counts: &Counts) -> u64 {
    let failed: u64 = counts.statuses.range(500..600).map(|(_, n)| n).sum();
    counts.unknown() + counts.reconnects + failed
}
