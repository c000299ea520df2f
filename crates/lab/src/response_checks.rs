//! Checks the recorded responses of one server process across all its attempts.

use std::fs;
use std::path::Path;

use floodmark_check::{
    CheckContext, DrawnNumber, FoundItems, check_api, decode_items, decode_numbers,
    decode_operations, decode_scores, scoring, sequence,
};
use floodmark_record::WorkerEnd;
use floodmark_record::api_check::{ApiCheck, ItemsFile};
use floodmark_record::events::EndReason;
use floodmark_record::kept::{KeptScore, ScoringSummary, TotalLine};
use floodmark_record::operation::KeptOperation;
use floodmark_record::plan::Check;
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::run_events::RunEvents;

/// Maximum number of operations that an API check keeps in memory. Each takes 24 bytes.
const MAX_OPERATIONS: u64 = 100_000_000;

/// Responses of one server process in all attempts so far. Each number may occur only once.
#[derive(Default)]
pub struct ResponsesSoFar {
    numbers: Vec<DrawnNumber>,
    scores: Vec<KeptScore>,
    operations: Vec<KeptOperation>,
    /// Items of a set that were found after the latest attempt.
    found: FoundItems,
    /// Expected totals across all attempts.
    line: Option<TotalLine>,
    scored: ScoringSummary,
    unknown: u64,
    out_of_order: u64,
    unreadable: u64,
    offenders: Vec<String>,
    /// Why the responses of an attempt are missing. Later attempts cannot be judged without them.
    missing: Option<String>,
    /// End of the earlier attempts, in ns. Each attempt's own clock starts at zero.
    clock_ns: u64,
}

impl ResponsesSoFar {
    /// Checks all responses so far, including those of this run.
    pub fn check(&mut self, directory: &Path, run: &RunEvents) -> Vec<CheckResult> {
        let Some(check) = &run.plan.check else {
            return Vec::new();
        };
        if self.missing.is_none() {
            self.missing = self.add(directory, run, check).err();
        }
        let result = match &self.missing {
            None => self.judge(check),
            Some(why) => CheckResult {
                name: check.name().to_owned(),
                held: None,
                detail: why.clone(),
                history: Vec::new(),
            },
        };
        vec![result]
    }

    /// Adds the recorded responses of a run.
    fn add(&mut self, directory: &Path, run: &RunEvents, check: &Check) -> Result<(), String> {
        let Some(end) = &run.end else {
            return Err("the client process died before it recorded the responses".to_owned());
        };
        let Some(file) = &end.answers else {
            return Err("no responses were recorded".to_owned());
        };
        let operations = self.operations.len() as u64 + file.count;
        if operations > MAX_OPERATIONS && check.api().is_some() {
            return Err(format!(
                "{} operations; the maximum is {}; make the run shorter",
                show_count(operations),
                show_count(MAX_OPERATIONS)
            ));
        }
        let path = directory.join(&file.file);
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
            Check::Api(api) => {
                if api.readback.is_some() {
                    self.found = found_items(directory, api, run.items.as_ref(), end.reason)?;
                }
                let operations = decode_operations(&bytes).map_err(|e| error(&e))?;
                self.operations.reserve_exact(operations.len());
                for operation in operations {
                    let operation = operation.map_err(|e| error(&e))?.moved(earlier_ns);
                    latest = latest.max(operation.done_ns());
                    self.operations.push(operation);
                }
            }
        }
        self.clock_ns = latest + 1;
        self.unknown += unknown(end);
        self.out_of_order += end.out_of_order;
        self.unreadable += end.not_numbers;
        self.offenders.extend_from_slice(&end.offenders);
        Ok(())
    }

    fn judge(&mut self, check: &Check) -> CheckResult {
        let context = CheckContext {
            unknown: self.unknown,
            out_of_order_on_connection: self.out_of_order,
            offenders: &self.offenders,
            unreadable: self.unreadable,
        };
        match check {
            Check::Sequence => sequence(&mut self.numbers, &context),
            Check::Scoring { score } => {
                let line = self.line.unwrap_or(TotalLine::through(*score, 0, 0.0));
                scoring(&mut self.scores, line, &self.scored, &context)
            }
            Check::Api(api) => {
                check_api(api, &mut self.operations, &mut self.found, self.unreadable)
            }
        }
    }
}

/// Reads the items that were found after an attempt. `reason` states why its load ended.
fn found_items(
    directory: &Path,
    api: &ApiCheck,
    file: Option<&ItemsFile>,
    reason: EndReason,
) -> Result<FoundItems, String> {
    let Some(file) = file else {
        return Err("the items were not read back".to_owned());
    };
    if file.interrupted {
        let why = match reason {
            EndReason::Interrupted => "the load was interrupted, so the items were not read back",
            _ => {
                "the load is complete, but reading the items back was interrupted; repeat the run \
                 and wait for the check"
            }
        };
        return Err(why.to_owned());
    }
    if let Some(why) = &file.failure {
        return Err(format!("the items could not be read back: {why}"));
    }
    if file.before > 0 {
        return Err(format!(
            "the set had {} items before the first attempt; start with an empty set",
            show_count(file.before)
        ));
    }
    if file.count == 0 && file.unreadable > 0 {
        return Err(format!(
            "{}: no item has an integer at this JSON pointer (items found: {}); correct the pointer",
            api.show_value_places(),
            show_count(file.unreadable)
        ));
    }
    let path = directory.join(&file.file);
    let error = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = fs::read(&path).map_err(|e| error(&e))?;
    Ok(FoundItems {
        numbers: decode_items(&bytes).map_err(|e| error(&e))?,
        unreadable: file.unreadable,
    })
}

/// Returns the number of requests, including those of the warm-up, that may have used up a
/// dispatcher number although no response contained this number. A 5xx response may follow a
/// completed write, for example after a journal timeout.
pub(crate) fn unknown(end: &WorkerEnd) -> u64 {
    let counts = end.warmup_counts.iter().chain([&end.counts]);
    let unknown = counts.map(|counts| {
        let failed: u64 = counts.statuses.range(500..600).map(|(_, n)| n).sum();
        counts.unknown() + counts.reconnects + failed
    });
    unknown.sum()
}
