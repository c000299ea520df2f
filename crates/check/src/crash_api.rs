//! Checks the operations on any API in a crash round.
//!
//! All rounds share one durable state, so the checks start from the state that the previous round
//! left behind, instead of an empty one:
//!
//! - `set`: with *B* the items that were found before the round, *A* the acknowledged items of the
//!   round and *U* those with an unknown outcome, the items *R* that are found after the round must
//!   satisfy A ∪ B ⊆ R ⊆ A ∪ B ∪ U. No item is found more often than before, or more than once.
//! - `register`: the operations of the round are linearizable across the crash. A round can detect a
//!   lost write only if the key is read between the restart and the next write to that key.
//!
//! If the server is still executing a write when the load ends, the write can take effect in the next
//! round. A write with an unknown outcome therefore counts as an unknown write of the next round as
//! well. When the server restarts in a round, all writes of earlier rounds have ended. A server that
//! keeps running may repeat a write at any later time, so such a write counts as unknown until it is
//! found.

use std::collections::BTreeSet;
use std::mem;

use floodmark_record::api_check::{ApiCheck, ApiCheckKind};
use floodmark_record::crash::RoundFindings;
use floodmark_record::operation::{KeptOperation, OperationKind};
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::api::check_api;
use crate::counter::count;
use crate::crash::is_before_resumption;
use crate::set::{FoundItems, ItemNumbers};

/// Maximum number of writes that may still take effect, 24 bytes each.
const MAX_PENDING: usize = 10_000_000;

/// Operations of a crash round.
#[derive(Debug)]
pub struct ApiRound {
    /// The operations, in any order.
    pub operations: Vec<KeptOperation>,
    /// Items that were found after the load of the round; empty for other checks than `set`.
    pub found: FoundItems,
    /// Number of responses with status 2xx or 3xx that lack the value that the check needs.
    pub unreadable: u64,
    /// Whether the server was started again.
    pub restarts_server: bool,
    /// Time at which the server or its store was started again or resumed, on the clock of the
    /// operations.
    pub resumed_ns: u64,
}

/// What is known about the state of an API between two crash rounds.
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

    /// Judges a round. The state becomes that at the end of the round.
    ///
    /// # Errors
    /// No response has the value that the check needs, too many writes may still take effect, or the
    /// check is of kind `counter`.
    pub fn judge(&mut self, api: &ApiCheck, mut round: ApiRound) -> Result<RoundFindings, String> {
        let unknown = round.operations.iter().filter(|o| is_unknown(o));
        let unknown: Vec<KeptOperation> = unknown.copied().collect();
        let unknown_count = unknown.len() as u64;
        let earlier = mem::take(&mut self.pending);
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
            let more = mem::take(&mut result.detail);
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
    // A read of a value that may have been written later hides whether an earlier one was lost.
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

/// Returns a write of an earlier round as a write at the start of the next round.
fn after_its_round(write: &KeptOperation) -> KeptOperation {
    KeptOperation::new(write.kind(), write.key(), write.value(), 0, 0)
}

/// Compares the items that were found before and after a round, both sorted. Returns the items that
/// were not found before, and the violations of those that were.
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
        let [one, many] = ["item without an integer", "items without an integer"];
        format!("{} lost", count(unreadable, one, many))
    });
    let nouns = ["item", "items"];
    let lost = lost.fault(nouns, "from earlier rounds lost");
    let repeated = repeated.fault(nouns, "from earlier rounds found more often than before");
    let faults = [lost, unreadable, repeated].into_iter().flatten();
    (new, faults.collect())
}

#[cfg(test)]
#[path = "crash_api_tests.rs"]
mod tests;
