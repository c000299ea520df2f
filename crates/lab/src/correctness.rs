//! Puts `check` to work on the answers that were kept, of one server process over all its attempts.

use std::fs;
use std::path::Path;

use floodmark_check::{Answer, Beside, decode_answers, decode_scores, scoring, sequence};
use floodmark_record::Counts;
use floodmark_record::kept::{KeptScore, Line, Scored};
use floodmark_record::plan::Check;
use floodmark_record::run::CheckResult;

use crate::tally::Tally;

/// What was answered in this and earlier attempts: they are on the same server, which must not hand out a number twice.
#[derive(Default)]
pub struct AnsweredSoFar {
    numbers: Vec<Answer>,
    scores: Vec<KeptScore>,
    /// What the totals of all attempts are held against.
    line: Option<Line>,
    scored: Scored,
    unknown: u64,
    out_of_order: u64,
    unreadable: u64,
    offenders: Vec<String>,
    /// Attempts follow one another, each on a clock of its own that starts at zero.
    clock_ns: u64,
}

impl AnsweredSoFar {
    /// Checks all answers up to and with this run's.
    pub fn check(&mut self, folder: &Path, tally: &Tally) -> Vec<CheckResult> {
        let Some(check) = tally.plan.check else {
            return Vec::new();
        };
        let result = match self.take(folder, tally, check) {
            Ok(()) => self.judge(check),
            Err(why) => CheckResult {
                name: match check {
                    Check::Sequence => "sequence",
                    Check::Scoring { .. } => "scoring",
                }
                .to_owned(),
                held: false,
                detail: format!("not checked: {why}"),
            },
        };
        vec![result]
    }

    /// Takes in what a run kept.
    fn take(&mut self, folder: &Path, tally: &Tally, check: Check) -> Result<(), String> {
        let Some(end) = &tally.end else {
            return Err("the load process died before it wrote down the answers".to_owned());
        };
        let Some(file) = &end.answers else {
            return Err("no answers were kept".to_owned());
        };
        let path = folder.join(&file.file);
        let error = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let bytes = fs::read(&path).map_err(|e| error(&e))?;
        let (earlier_ns, mut latest) = (self.clock_ns, self.clock_ns);
        match check {
            Check::Sequence => {
                for mut answer in decode_answers(&bytes).map_err(|e| error(&e))? {
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
        let beside = Beside {
            unknown: self.unknown,
            out_of_order_on_connection: self.out_of_order,
            offenders: &self.offenders,
            unreadable: self.unreadable,
        };
        match check {
            Check::Sequence => sequence(&mut self.numbers, &beside),
            Check::Scoring { score } => {
                let line = self.line.unwrap_or(Line::through(score, 0, 0.0));
                scoring(&mut self.scores, line, &self.scored, &beside)
            }
        }
    }
}

/// Requests that may have drawn a number which nobody saw: an answer of the 5xx class says nothing of what was done before it, such as
/// when the server gave up waiting for its own journal.
fn unknown(counts: &Counts) -> u64 {
    let failed: u64 = counts.statuses.range(500..600).map(|(_, n)| n).sum();
    counts.unknown() + counts.reconnects + failed
}
