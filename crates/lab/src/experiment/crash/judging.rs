//! Reads the responses of a crash round and has them judged.
//!
//! A check must provide the acknowledged requests, the number of unknown ones, and what the state
//! contained after the restart. The checks of counters get the recovered state from the responses
//! after the restart. The check of a set reads its items back.

use floodmark_check::crash::{RoundContext, crashed_scoring, crashed_sequence};
use floodmark_check::{
    ApiRound, ApiState, CheckContext, FoundItems, decode_numbers, decode_operations, decode_scores,
};
use floodmark_record::WorkerEnd;
use floodmark_record::api_check::ApiCheckKind;
use floodmark_record::crash::{DurableState, RoundFindings};
use floodmark_record::kept::{KeptScore, TotalLine};
use floodmark_record::operation::{KeptOperation, OperationKind};
use floodmark_record::plan::Check;

use crate::response_checks::unknown;

/// What is known about a round besides its responses.
#[derive(Debug)]
pub struct RoundFacts<'a> {
    /// The worker's last event.
    pub end: &'a WorkerEnd,
    /// Time of the restart on the worker's clock; `None` if the server kept running.
    pub restarted_ns: Option<u64>,
    /// Time at which the process was started again or resumed, on the worker's clock.
    pub resumed_ns: u64,
    /// Whether floodmark started the server before this round.
    pub is_fresh_start: bool,
    /// Whether this is round 1.
    pub is_first: bool,
    /// The state at the end of the previous round.
    pub earlier: Option<DurableState>,
    /// The items that were read back after the load; `None` for other checks than that of a set.
    pub found: Option<FoundItems>,
}

/// Result of judging a round.
#[derive(Debug)]
pub struct JudgedRound {
    pub findings: RoundFindings,
    pub state: DurableState,
    /// Times of all ok responses, on the worker's clock.
    pub done_ns: Vec<u64>,
}

/// Judges a round from the content of its response file. `api` is the state of an API that a check
/// file describes.
///
/// # Errors
/// The file is damaged, or the first round could not have detected a loss.
pub fn judge(
    check: &Check,
    bytes: &[u8],
    facts: RoundFacts<'_>,
    api: &mut ApiState,
) -> Result<JudgedRound, String> {
    let end = facts.end;
    let warmup = end.warmup_counts.as_ref();
    let round = RoundContext {
        restarted_ns: facts.restarted_ns,
        resumed_ns: facts.resumed_ns,
        is_fresh_start: facts.is_fresh_start,
        earlier: facts.earlier,
        responses: CheckContext {
            unknown: unknown(&end.counts) + warmup.map_or(0, unknown),
            out_of_order_on_connection: end.out_of_order,
            offenders: &end.offenders,
            unreadable: end.not_numbers,
        },
    };
    let judged = match check {
        Check::Sequence => {
            let mut numbers = decode_numbers(bytes).map_err(|error| error.to_string())?;
            let (findings, state) = crashed_sequence(&mut numbers, &round);
            JudgedRound {
                findings,
                state,
                done_ns: done_times(&numbers, &facts, |one| (one.sent_ns, one.done_ns)),
            }
        }
        Check::Scoring { score } => {
            let scored = end.scored.clone().unwrap_or_default();
            let first = facts.earlier.and_then(|state| state.line);
            let line = first.or(scored.line);
            let line = line.unwrap_or(TotalLine::through(*score, 0, 0.0));
            let by = scored.line.map_or(Some(0), |own| own.ahead_of(&line));
            let scores = decode_scores(bytes).map_err(|error| error.to_string())?;
            let mut scores: Vec<KeptScore> = scores.iter().map(|one| one.moved(by, 0)).collect();
            let (findings, state) = crashed_scoring(&mut scores, line, &scored, &round);
            JudgedRound {
                findings,
                state,
                done_ns: done_times(&scores, &facts, |one| (one.sent_ns(), one.done_ns())),
            }
        }
        Check::Api(check) => {
            let operations: Vec<KeptOperation> = decode_operations(bytes)
                .and_then(Iterator::collect)
                .map_err(|error| error.to_string())?;
            let ok = operations.iter().filter(|operation| is_ok(operation));
            let ok: Vec<KeptOperation> = ok.copied().collect();
            let done_ns = done_times(&ok, &facts, |one| (one.sent_ns(), one.done_ns()));
            let round = ApiRound {
                operations,
                found: facts.found.unwrap_or_default(),
                unreadable: end.not_numbers,
                restarts_server: facts.restarted_ns.is_some(),
                resumed_ns: facts.resumed_ns,
            };
            JudgedRound {
                findings: api.judge(check, round)?,
                state: DurableState::default(),
                done_ns,
            }
        }
    };
    // A wrong load would waste all rounds. Later rounds can be inconclusive by chance.
    if facts.is_first && judged.findings.is_inconclusive() {
        let advice = match check.api().map(|api| api.kind) {
            Some(ApiCheckKind::Register) => {
                "no key with an acknowledged write was read after the restart, before it was written \
                 again; increase the weight of the read"
            }
            _ => {
                "no request was acknowledged before the restart; check the server's log, or set a \
                 later time with `at`"
            }
        };
        return Err(format!("inconclusive: {advice}"));
    }
    Ok(judged)
}

/// Returns whether an operation has an ok response.
fn is_ok(operation: &KeptOperation) -> bool {
    !matches!(
        operation.kind(),
        OperationKind::Refused | OperationKind::Unknown
    )
}

/// Returns the time of each response. A busy client may read a response from the killed server only
/// after the restart. Such a response counts as received just before the restart.
fn done_times<T>(
    responses: &[T],
    facts: &RoundFacts<'_>,
    times: impl Fn(&T) -> (u64, u64),
) -> Vec<u64> {
    let restarted = facts.restarted_ns.unwrap_or(0);
    let done = responses.iter().map(|response| match times(response) {
        (sent, done) if sent < restarted => done.min(restarted - 1),
        (_, done) => done,
    });
    done.collect()
}
