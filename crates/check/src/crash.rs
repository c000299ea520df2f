//! Compares the state recovered after a crash with the acknowledged requests.
//!
//! A restart splits the responses of a crash round into those before and those after it. Let *A* be
//! the acknowledged requests, *U* the requests with an unknown outcome, and *R* the recovered
//! state. Then A ⊆ R ⊆ A ∪ U must hold, and the order must be kept. A counter numbers its requests,
//! so its state is the last number, and the condition becomes:
//!
//! 1. all numbers after the restart are larger than all acknowledged numbers (A ⊆ R). Otherwise,
//!    the restart lost the latest acknowledged numbers, and the server hands them out again;
//! 2. at most one number is skipped for each request with an unknown outcome (R ⊆ A ∪ U). A server
//!    that reserves numbers in blocks may skip more at a restart;
//! 3. the numbers before the restart and the numbers after it are each those of a correct counter
//!    ([`crate::counter`]).
//!
//! The same holds between the last number of one round and the first number of the next.

use std::collections::BTreeSet;

use floodmark_record::api_check::{ApiCheck, ApiCheckKind};
use floodmark_record::crash::{DurableState, RoundFindings};
use floodmark_record::kept::{KeptScore, ScoringSummary, TotalLine};
use floodmark_record::operation::{KeptOperation, OperationKind};
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::api::check_api;
use crate::counter::{CheckContext, sequence};
use crate::responses::DrawnNumber;
use crate::result::count;
use crate::scoring::scoring;
use crate::set::{FoundItems, ItemNumbers};

/// Facts about a crash round that its kept responses do not contain.
#[derive(Debug, Clone, Copy)]
pub struct RoundContext<'a> {
    /// Time of the restart, on the clock of the responses. Requests that were sent later were
    /// answered by the restarted server. `None` if the server kept running, as with SIGSTOP or with
    /// a crash of its store.
    pub restarted_ns: Option<u64>,
    /// Time at which the server or its store was restarted or resumed, on the same clock.
    pub resumed_ns: u64,
    /// Whether floodmark started the server before this round.
    pub is_fresh_start: bool,
    /// The state at the end of the previous round; `None` in the first round.
    pub earlier: Option<DurableState>,
    /// Facts about the responses.
    pub responses: CheckContext<'a>,
}

/// Judges the numbers of a crash round. Sorts the numbers in place. Returns the findings and the
/// state at the end of the round.
#[must_use]
pub fn crashed_sequence(
    numbers: &mut [DrawnNumber],
    round: &RoundContext<'_>,
) -> (RoundFindings, DurableState) {
    let acknowledged = before_resumption(numbers, round, |number| (number.sent_ns, number.done_ns));
    let (before, after) = split(numbers, round.restarted_ns, |number| number.sent_ns);
    let mut violations = Vec::new();
    let parts = parts(before, after, round);
    for (name, part, context) in parts {
        violations.extend(violation(name, &sequence(part, &context)));
    }
    let [before, after] =
        [&*before, &*after].map(|part| NumberRange::of(part.iter().map(number_of)));
    let bounds = Bounds {
        round,
        acknowledged,
        reserves_blocks: true,
        nouns: ["number", "numbers"],
    };
    bounds.finish(before, after, violations, DurableState::default())
}

fn number_of(drawn: &DrawnNumber) -> u64 {
    drawn.number
}

/// Judges the scores of a crash round. Sorts the scores in place. Returns the findings and the
/// state at the end of the round. `line` comes from the first round and gives the expected total
/// for each number. `scored` is the summary from the load process.
#[must_use]
pub fn crashed_scoring(
    scores: &mut [KeptScore],
    line: TotalLine,
    scored: &ScoringSummary,
    round: &RoundContext<'_>,
) -> (RoundFindings, DurableState) {
    let acknowledged = before_resumption(scores, round, |score| (score.sent_ns(), score.done_ns()));
    let (before, after) = split(scores, round.restarted_ns, KeptScore::sent_ns);
    let mut violations = Vec::new();
    // The summary covers both parts, so only one part reports it.
    let mut summary = scored.clone();
    for (name, part, context) in parts(before, after, round) {
        let result = scoring(part, line, &summary, &context);
        summary = ScoringSummary::default();
        violations.extend(violation(name, &result));
    }
    let earlier = round.earlier.and_then(|state| state.distance);
    let distances = [&*before, &*after].map(|part| part.iter().find_map(KeptScore::distance));
    let mut known = earlier;
    for distance in distances.into_iter().flatten() {
        if let Some(known) = known.filter(|known| *known != distance) {
            let difference = i64::from(distance) - i64::from(known);
            let direction = if difference < 0 { "low" } else { "high" };
            violations.push(format!(
                "totalScore is {} too {direction} after a restart",
                count(difference.unsigned_abs(), "score", "scores")
            ));
        }
        known = Some(distance);
    }
    let [before, after] =
        [&*before, &*after].map(|part| NumberRange::of(part.iter().map(KeptScore::number)));
    let bounds = Bounds {
        round,
        acknowledged,
        reserves_blocks: false,
        nouns: ["score", "scores"],
    };
    let state = DurableState {
        line: Some(line),
        distance: known,
        ..DurableState::default()
    };
    bounds.finish(before, after, violations, state)
}

/// Splits responses by whether their requests were sent before the restart. The send time of a
/// request determines which server process executes it, so the response time does not matter.
fn split<T>(
    responses: &mut [T],
    restarted_ns: Option<u64>,
    sent_ns: impl Fn(&T) -> u64,
) -> (&mut [T], &mut [T]) {
    let at = restarted_ns.unwrap_or(u64::MAX);
    responses.sort_unstable_by_key(|response| sent_ns(response) >= at);
    let middle = responses.partition_point(|response| sent_ns(response) < at);
    responses.split_at_mut(middle)
}

/// Returns the number of responses whose requests were executed before the resumption. `times`
/// returns when a request was sent and when its response was complete.
fn before_resumption<T>(
    responses: &[T],
    round: &RoundContext<'_>,
    times: impl Fn(&T) -> (u64, u64),
) -> u64 {
    let is_before = |(sent_ns, done_ns)| {
        is_before_resumption(
            round.restarted_ns.is_some(),
            round.resumed_ns,
            sent_ns,
            done_ns,
        )
    };
    responses.iter().filter(|one| is_before(times(one))).count() as u64
}

/// Returns whether a request was executed before the server or its store was restarted or resumed.
/// A server that keeps running may hold a request until its store is available again. A busy client
/// may read a killed server's response only after the restart.
pub(crate) fn is_before_resumption(
    restarts_server: bool,
    resumed_ns: u64,
    sent_ns: u64,
    done_ns: u64,
) -> bool {
    let decisive_ns = if restarts_server { sent_ns } else { done_ns };
    decisive_ns < resumed_ns
}

/// Returns the parts of a round that have responses, each with a name and its facts.
fn parts<'a, 'b, T>(
    before: &'a mut [T],
    after: &'a mut [T],
    round: &RoundContext<'b>,
) -> impl Iterator<Item = (&'static str, &'a mut [T], CheckContext<'b>)> {
    let mut context = round.responses;
    let names = match round.restarted_ns {
        Some(_) => ["before the restart: ", "after the restart: "],
        None => [""; 2],
    };
    let parts = names.into_iter().zip([before, after]);
    let parts = parts.filter(|(_, part)| !part.is_empty());
    parts.map(move |(name, part)| {
        // Only the first part reports the facts that cover all responses.
        let unknown = context.unknown;
        let context = std::mem::replace(
            &mut context,
            CheckContext {
                unknown,
                ..CheckContext::default()
            },
        );
        (name, part, context)
    })
}

fn violation(name: &str, result: &CheckResult) -> Option<String> {
    (result.held == Some(false)).then(|| format!("{name}{}", result.detail))
}

/// The smallest and the largest number of a part, and the number of responses.
#[derive(Debug, Clone, Copy)]
struct NumberRange {
    count: u64,
    range: Option<(u64, u64)>,
}

impl NumberRange {
    fn of(numbers: impl Iterator<Item = u64>) -> Self {
        let mut all = NumberRange {
            count: 0,
            range: None,
        };
        for number in numbers {
            let (low, high) = all.range.unwrap_or((number, number));
            all.range = Some((low.min(number), high.max(number)));
            all.count += 1;
        }
        all
    }
}

/// The comparison of the numbers on both sides of a restart.
struct Bounds<'a> {
    round: &'a RoundContext<'a>,
    /// Number of acknowledged requests that were executed before the resumption.
    acknowledged: u64,
    /// Whether the server reserves numbers in blocks. If so, a restart may skip arbitrarily many.
    reserves_blocks: bool,
    nouns: [&'static str; 2],
}

impl Bounds<'_> {
    fn finish(
        &self,
        before: NumberRange,
        after: NumberRange,
        mut violations: Vec<String>,
        state: DurableState,
    ) -> (RoundFindings, DurableState) {
        let round = self.round;
        let unknown = round.responses.unknown;
        let mut last = round.earlier.and_then(|state| state.number);
        let earlier_unknown = round.earlier.map_or(0, |state| state.unknown);
        let mut slack = earlier_unknown.saturating_add(unknown);
        if let Some((low, high)) = before.range {
            // An interrupted round before a fresh start may have sent arbitrarily many requests.
            let explained = (!round.is_fresh_start).then_some(slack);
            // If the last number before the round is unknown, any first number is correct.
            violations.extend(
                last.and_then(|last| {
                    self.violation("the start of the round", last, low, explained)
                }),
            );
            last = Some(high);
            slack = unknown;
        }
        if let Some((low, high)) = after.range {
            let explained = (!self.reserves_blocks).then_some(slack);
            violations
                .extend(last.and_then(|last| self.violation("the restart", last, low, explained)));
            last = Some(high);
        }
        // Each request with an unknown outcome explains one missing number of the round.
        let missing = self.missing(before, after);
        if violations.is_empty() && missing > unknown {
            violations.push(format!(
                "{} missing in the round, but {} an unknown outcome",
                count(missing, "number is", "numbers are"),
                count(unknown, "request has", "requests have")
            ));
        }
        let findings = RoundFindings {
            acknowledged: self.acknowledged,
            unknown,
            recovered: match round.restarted_ns {
                Some(_) => after.range.map(|(low, _)| low.saturating_sub(1)),
                None => last,
            },
            violations,
            history: Vec::new(),
        };
        // If a server that keeps running loses data, the time of the loss is unknown, and so is the
        // last number.
        let is_known = round.restarted_ns.is_some() || findings.violations.is_empty();
        let state = DurableState {
            number: last.filter(|_| is_known),
            unknown,
            ..state
        };
        (findings, state)
    }

    /// Counts the numbers of a round that no response contained, except numbers that the restart
    /// may have skipped.
    fn missing(&self, before: NumberRange, after: NumberRange) -> u64 {
        let within = |part: NumberRange| match part.range {
            Some((low, high)) => (high - low).saturating_add(1).saturating_sub(part.count),
            None => 0,
        };
        let skipped = match (before.range, after.range) {
            (Some((_, last)), Some((next, _))) if !self.reserves_blocks => {
                next.saturating_sub(last).saturating_sub(1)
            }
            _ => 0,
        };
        within(before)
            .saturating_add(within(after))
            .saturating_add(skipped)
    }

    /// Compares the last acknowledged number before an event with the first number after it.
    /// `unknown` is the number of requests that may have drawn the numbers in between; `None` if
    /// the event may skip arbitrarily many numbers.
    fn violation(&self, event: &str, last: u64, next: u64, unknown: Option<u64>) -> Option<String> {
        let [one, many] = self.nouns;
        if next <= last {
            return Some(format!(
                "{event} lost {}: number {} was acknowledged before, and number {} was returned after",
                count((last - next).saturating_add(1), one, many),
                show_count(last),
                show_count(next)
            ));
        }
        let (skipped, unknown) = (next - last - 1, unknown?);
        (skipped > unknown).then(|| {
            format!(
                "{event} added {} that {} not sent: number {} was acknowledged before, number {} was \
                 returned after, and {} an unknown outcome",
                count(skipped - unknown, one, many),
                if skipped - unknown == 1 { "was" } else { "were" },
                show_count(last),
                show_count(next),
                count(unknown, "request has", "requests have")
            )
        })
    }
}

/// Maximum number of pending writes, that is, of writes that may still take effect. Each takes 24
/// bytes of memory.
const MAX_PENDING: usize = 10_000_000;

/// Operations of a crash round.
#[derive(Debug)]
pub struct ApiRound {
    /// The operations, in any order.
    pub operations: Vec<KeptOperation>,
    /// Items that were found after the round's load; empty for checks other than `set`.
    pub found: FoundItems,
    /// Number of responses with status 2xx or 3xx that lack the value that the check needs.
    pub unreadable: u64,
    /// Whether the server was restarted.
    pub restarts_server: bool,
    /// Time at which the server or its store was restarted or resumed, on the clock of the
    /// operations.
    pub resumed_ns: u64,
}

/// What is known about the state of an API between two crash rounds.
///
/// All rounds share one durable state, so each check starts from the state that the previous round
/// left behind, not from an empty one:
///
/// - `set`: let *B* be the items found before the round, *A* the items acknowledged in the round,
///   *U* the items whose outcome is unknown, and *R* the items found after the round. Then
///   A ∪ B ⊆ R ⊆ A ∪ B ∪ U must hold. No earlier item may be found more often than before, and no
///   new item more than once.
/// - `register`: the operations of the round must be linearizable across the crash. A round can
///   detect a lost write only if the key is read between the restart and the next write to that
///   key.
///
/// If the server is still executing a write when the load ends, the write can take effect in the
/// next round. A write with an unknown outcome therefore counts as an unknown write of the next
/// round as well. If the server restarts in a round, writes from earlier rounds cannot take effect
/// after that round. A server that keeps running may retry a write with an unknown outcome at any
/// later time, so the write counts as unknown until it is found.
#[derive(Debug, Default)]
pub struct ApiState {
    /// Items of a set, sorted.
    found: FoundItems,
    /// Writes that may still take effect.
    pending: Vec<KeptOperation>,
}

impl ApiState {
    /// Returns a state with the items that a set contains before the first round.
    #[must_use]
    pub fn with_items(mut found: FoundItems) -> Self {
        found.numbers.sort_unstable();
        ApiState {
            found,
            pending: Vec::new(),
        }
    }

    /// Judges a round, and advances the state to the end of the round.
    ///
    /// # Errors
    /// No response has the value that the check needs, too many writes may still take effect, or
    /// the check is of kind `counter`.
    pub fn judge(&mut self, api: &ApiCheck, mut round: ApiRound) -> Result<RoundFindings, String> {
        let unknown = round.operations.iter().filter(|o| is_unknown(o));
        let unknown: Vec<KeptOperation> = unknown.copied().collect();
        let unknown_count = unknown.len() as u64;
        let earlier = std::mem::take(&mut self.pending);
        round.operations.extend_from_slice(&earlier);
        self.pending = unknown.iter().map(after_its_round).collect();
        if !round.restarts_server {
            self.pending.extend(earlier);
        }
        let acknowledged = acknowledged(api.kind, &round);
        let unreadable = round.unreadable;
        let result = match api.kind {
            ApiCheckKind::Set => self.set(api, round),
            ApiCheckKind::Register => self.register(api, round),
            ApiCheckKind::Counter => {
                return Err(
                    "crash rounds do not support check files of kind \"counter\"".to_owned(),
                );
            }
        };
        let violations = match result.held {
            Some(false) => vec![result.detail],
            None if unreadable > 0 => return Err(result.detail),
            _ => match too_many(self.pending.len()) {
                Some(why) => return Err(why),
                None => Vec::new(),
            },
        };
        Ok(RoundFindings {
            acknowledged,
            unknown: unknown_count,
            recovered: None,
            violations,
            history: result.history,
        })
    }

    fn set(&mut self, api: &ApiCheck, mut round: ApiRound) -> CheckResult {
        let mut found = round.found;
        found.numbers.sort_unstable();
        let (mut new, earlier) = compare(&self.found, &found);
        let inserts = &mut round.operations;
        let mut result = check_api(api, inserts, &mut new, round.unreadable);
        if !earlier.is_empty() {
            let more = std::mem::take(&mut result.detail);
            let more = (result.held == Some(false)).then_some(more);
            let faults: Vec<String> = earlier.into_iter().chain(more).collect();
            result.detail = faults.join("; ");
            result.held = Some(false);
        }
        self.pending
            .retain(|insert| found.numbers.binary_search(&insert.value()).is_err());
        self.found = found;
        result
    }

    fn register(&mut self, api: &ApiCheck, mut round: ApiRound) -> CheckResult {
        let operations = &mut round.operations;
        let result = check_api(api, operations, &mut round.found, round.unreadable);
        let mut unread: BTreeSet<(u64, u64)> = self.pending.iter().map(written).collect();
        let with_value = operations
            .iter()
            .filter(|operation| operation.kind() == OperationKind::Read);
        with_value.for_each(|read| {
            unread.remove(&written(read));
        });
        self.pending
            .retain(|write| unread.contains(&written(write)));
        result
    }
}

/// Returns an error message if too many writes may still take effect.
fn too_many(pending: usize) -> Option<String> {
    (pending > MAX_PENDING).then(|| {
        format!(
            "{} writes with an unknown outcome may still take effect, because the server keeps running; \
             the maximum is {}; reduce `rounds` or the rate of the load",
            show_count(pending as u64),
            show_count(MAX_PENDING as u64)
        )
    })
}

/// Returns the number of acknowledged writes whose loss the round could have detected.
fn acknowledged(kind: ApiCheckKind, round: &ApiRound) -> u64 {
    let is_before = |of: &&KeptOperation| {
        is_before_resumption(
            round.restarts_server,
            round.resumed_ns,
            of.sent_ns(),
            of.done_ns(),
        )
    };
    let of_kind = |kind| move |operation: &&KeptOperation| operation.kind() == kind;
    let operations = || round.operations.iter();
    let writes = operations().filter(of_kind(OperationKind::Acknowledged));
    let before = writes.clone().filter(is_before);
    if kind == ApiCheckKind::Set {
        return before.count() as u64;
    }
    // If a value may have been written after the resumption, a read that returns it does not show
    // whether an earlier write was lost.
    let later = writes.filter(|write| !is_before(write));
    let later = later.chain(operations().filter(|operation| is_unknown(operation)));
    let later: BTreeSet<(u64, u64)> = later.map(written).collect();
    let reads = operations().filter(|of| of.kind().is_read() && of.sent_ns() >= round.resumed_ns);
    let reads = reads.filter(|read| !later.contains(&written(read)));
    let keys: BTreeSet<u64> = reads.map(KeptOperation::key).collect();
    before.filter(|write| keys.contains(&write.key())).count() as u64
}

fn written(operation: &KeptOperation) -> (u64, u64) {
    (operation.key(), operation.value())
}

fn is_unknown(operation: &KeptOperation) -> bool {
    operation.kind() == OperationKind::Unknown
}

/// Converts a write of one round to a write at the start of the next round.
fn after_its_round(write: &KeptOperation) -> KeptOperation {
    KeptOperation::new(write.kind(), write.key(), write.value(), 0, 0)
}

/// Compares the items that were found before and after a round, both sorted. Returns the new items,
/// and the violations that concern earlier items.
fn compare(before: &FoundItems, after: &FoundItems) -> (FoundItems, Vec<String>) {
    let (mut lost, mut repeated) = (ItemNumbers::default(), ItemNumbers::default());
    let mut new = FoundItems {
        numbers: Vec::new(),
        unreadable: after.unreadable.saturating_sub(before.unreadable),
    };
    let mut after_items = after.numbers.chunk_by(|a, b| a == b).peekable();
    for earlier in before.numbers.chunk_by(|a, b| a == b) {
        while let Some(item) = after_items.next_if(|item| item[0] < earlier[0]) {
            new.numbers.extend_from_slice(item);
        }
        match after_items.next_if(|item| item[0] == earlier[0]) {
            Some(item) if item.len() > earlier.len() => repeated.add(item[0]),
            Some(_) => {}
            None => lost.add(earlier[0]),
        }
    }
    after_items.for_each(|item| new.numbers.extend_from_slice(item));
    let unreadable = before.unreadable.saturating_sub(after.unreadable);
    let unreadable = (unreadable > 0).then(|| {
        let [one, many] = [
            "item without an integer was",
            "items without an integer were",
        ];
        format!("{} lost", count(unreadable, one, many))
    });
    let nouns = ["item", "items"];
    let lost = lost.fault(nouns, "from earlier rounds lost");
    let repeated = repeated.fault(nouns, "from earlier rounds found more often than before");
    let faults = [lost, unreadable, repeated].into_iter().flatten();
    (new, faults.collect())
}

#[cfg(test)]
#[path = "crash_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "crash_api_tests.rs"]
mod api_tests;
