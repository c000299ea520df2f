//! Compares the state recovered after a crash with the acknowledged requests.
//!
//! A crash round splits the responses of one durable state into those before and those after a
//! restart. With *A* the acknowledged requests and *U* those with an unknown outcome, the recovered
//! state *R* must satisfy A ⊆ R ⊆ A ∪ U, in order. A counter numbers its requests, so its state is
//! the last number, and the condition becomes:
//!
//! 1. all numbers after the restart are larger than all acknowledged numbers (A ⊆ R). Otherwise, the
//!    restart lost the numbers in between, and the server hands them out again;
//! 2. at most one number is skipped for each unknown request (R ⊆ A ∪ U). A server that reserves
//!    numbers in blocks may skip more at a restart ([`RestartGap::Any`]);
//! 3. before and after the restart, the numbers are those of a correct counter ([`crate::counter`]).
//!
//! The same holds between the last number of one round and the first number of the next.

use floodmark_record::crash::{DurableState, RoundFindings};
use floodmark_record::kept::{KeptScore, ScoringSummary, TotalLine};
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::counter::{CheckContext, count};
use crate::responses::DrawnNumber;
use crate::scoring::scoring;
use crate::sequence::sequence;

/// Numbers that a server may skip at a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartGap {
    /// Any number of them: the server reserves numbers in blocks.
    Any,
    /// One for each request with an unknown outcome.
    Unknown,
}

/// Facts about a crash round that its kept responses do not contain.
#[derive(Debug, Clone, Copy)]
pub struct RoundContext<'a> {
    /// Time of the restart, on the clock of the responses. Requests that were sent later were
    /// answered by the restarted server. `None` if the server kept running, as with SIGSTOP or with
    /// a crash of its store.
    pub restarted_ns: Option<u64>,
    /// Time at which the server or its store was started again or resumed, on the same clock.
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
        gap: RestartGap::Any,
        nouns: ["number", "numbers"],
    };
    bounds.finish(before, after, violations, DurableState::default())
}

fn number_of(drawn: &DrawnNumber) -> u64 {
    drawn.number
}

/// Judges the scores of a crash round. Sorts the scores in place. Returns the findings and the state
/// at the end of the round. `line` gives the expected total for each number, and is the line of the
/// first round. `scored` is the summary from the load process.
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
        gap: RestartGap::Unknown,
        nouns: ["score", "scores"],
    };
    let state = DurableState {
        line: Some(line),
        distance: known,
        ..DurableState::default()
    };
    bounds.finish(before, after, violations, state)
}

/// Splits responses into those to requests sent before the restart, and all later ones. A request
/// belongs to the server process that its connection leads to, so the time of sending decides.
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
    gap: RestartGap,
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
            let gap = if round.is_fresh_start {
                // The requests of an interrupted round are unknown.
                RestartGap::Any
            } else {
                RestartGap::Unknown
            };
            violations.extend(
                // A state that floodmark has not seen before may start with any number.
                last.and_then(|last| {
                    self.violation("the start of the round", last, low, gap, slack)
                }),
            );
            last = Some(high);
            slack = unknown;
        }
        if let Some((low, high)) = after.range {
            violations.extend(
                last.and_then(|last| self.violation("the restart", last, low, self.gap, slack)),
            );
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
        // A server that keeps running has lost data at an unknown time, so its last number is unknown.
        let is_known = round.restarted_ns.is_some() || findings.violations.is_empty();
        let state = DurableState {
            number: last.filter(|_| is_known),
            unknown,
            ..state
        };
        (findings, state)
    }

    /// Returns how many numbers of a round were not returned. Numbers that the restart may have skipped
    /// do not count.
    fn missing(&self, before: NumberRange, after: NumberRange) -> u64 {
        let within = |part: NumberRange| match part.range {
            Some((low, high)) => (high - low).saturating_add(1).saturating_sub(part.count),
            None => 0,
        };
        let skipped = match (self.gap, before.range, after.range) {
            (RestartGap::Unknown, Some((_, last)), Some((next, _))) => {
                next.saturating_sub(last).saturating_sub(1)
            }
            _ => 0,
        };
        within(before)
            .saturating_add(within(after))
            .saturating_add(skipped)
    }

    /// Compares the last acknowledged number before an event with the first number after it.
    fn violation(
        &self,
        event: &str,
        last: u64,
        next: u64,
        gap: RestartGap,
        unknown: u64,
    ) -> Option<String> {
        let [one, many] = self.nouns;
        if next <= last {
            return Some(format!(
                "{event} lost {}: number {} was acknowledged before, and number {} was returned after",
                count((last - next).saturating_add(1), one, many),
                show_count(last),
                show_count(next)
            ));
        }
        let skipped = next - last - 1;
        (gap == RestartGap::Unknown && skipped > unknown).then(|| {
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

#[cfg(test)]
#[path = "crash_tests.rs"]
mod tests;
