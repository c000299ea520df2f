use std::collections::BTreeSet;

use super::*;
use OperationKind::{Acknowledged, Read, ReadNothing, Refused, Unknown};
use proptest::prelude::*;

fn op(kind: OperationKind, value: u64, sent: u64, done: u64) -> KeptOperation {
    KeptOperation::new(kind, 1, value, sent, done)
}

fn detail(mut operations: Vec<KeptOperation>) -> (Option<bool>, String) {
    let result = register(&mut operations);
    (result.held, result.detail)
}

/// Returns whether the operations on one key are linearizable, by trying all orders.
fn brute_force(operations: &[KeptOperation]) -> bool {
    let written: BTreeSet<u64> = operations
        .iter()
        .filter(|o| !o.kind().is_read())
        .map(|o| o.value())
        .collect();
    let reads = operations.iter().filter(|o| o.kind().is_read());
    let foreign = reads
        .map(content)
        .filter(|c| c.is_none_or(|value| !written.contains(&value)));
    // A value that nobody wrote can only be the initial value.
    let initial: BTreeSet<Option<u64>> = foreign.chain([None]).collect();
    let pending: Vec<KeptOperation> = operations
        .iter()
        .filter(|o| o.kind() != Refused)
        .copied()
        .collect();
    initial
        .into_iter()
        .any(|initial| can_order(&pending, initial))
}

fn can_order(pending: &[KeptOperation], current: Option<u64>) -> bool {
    if pending.iter().all(|o| o.kind() == Unknown) {
        return true;
    }
    let end = |o: &KeptOperation| {
        if o.kind() == Unknown {
            u64::MAX
        } else {
            o.done_ns()
        }
    };
    let first_end = pending.iter().map(end).min().unwrap();
    (0..pending.len()).any(|i| {
        let next = pending[i];
        let mut rest = pending.to_vec();
        rest.remove(i);
        if next.sent_ns() > first_end {
            return false;
        }
        if next.kind().is_read() {
            content(&next) == current && can_order(&rest, current)
        } else {
            can_order(&rest, content(&next))
        }
    })
}

/// Returns small histories of one key with distinct written values.
fn small_history() -> impl Strategy<Value = Vec<KeptOperation>> {
    let writes = prop::collection::vec((0u8..8, 0u64..20, 0u64..8), 0..4);
    let reads = prop::collection::vec((0u64..6, 0u64..20, 0u64..8), 1..5);
    (writes, reads).prop_map(|(writes, reads)| {
        let writes = (1..).zip(writes).map(|(value, (kind, sent, took))| {
            let kind = match kind {
                0 => Refused,
                1 => Unknown,
                _ => Acknowledged,
            };
            op(kind, value, sent, sent + took)
        });
        let reads = reads.into_iter().map(|(value, sent, took)| {
            let kind = if value == 0 { ReadNothing } else { Read };
            op(kind, value, sent, sent + took)
        });
        writes.chain(reads).collect()
    })
}

/// The history of a correct server with several keys. Each operation takes effect at one moment.
fn correct_history(steps: Vec<(u64, u8, u64, u64)>) -> Vec<KeptOperation> {
    let mut values = [None; 4];
    let (mut now, mut number) = (1_000, 0);
    let mut operations = Vec::new();
    for (key, kind, before, after) in steps {
        now += 10;
        let (sent, done) = (now - before, now + after);
        let value = &mut values[key as usize];
        let (kind, written) = match kind {
            // The server executed the write before the response was lost.
            0 => (Unknown, true),
            1 => (Unknown, false),
            2 => (Refused, false),
            3..6 => (Acknowledged, true),
            _ => match value {
                Some(_) => (Read, false),
                None => (ReadNothing, false),
            },
        };
        if matches!(kind, Read | ReadNothing) {
            operations.push(KeptOperation::new(
                kind,
                key + 1,
                value.unwrap_or(0),
                sent,
                done,
            ));
            continue;
        }
        number += 1;
        if written {
            *value = Some(number);
        }
        operations.push(KeptOperation::new(kind, key + 1, number, sent, done));
    }
    operations
}

fn steps() -> impl Strategy<Value = Vec<(u64, u8, u64, u64)>> {
    prop::collection::vec((0u64..4, 0u8..10, 0u64..200, 0u64..200), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn agrees_with_all_orders(history in small_history()) {
        let refused_read = history.iter().any(|write| {
            write.kind() == Refused && history.iter().any(|o| o.kind().is_read() && content(o) == content(write))
        });
        let expected = brute_force(&history) && !refused_read;
        let mut operations = history.clone();
        let result = register(&mut operations);
        prop_assert_eq!(result.held, Some(expected), "{:#?}", result);
        prop_assert_eq!(expected, result.history.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn accepts_a_correct_server(steps in steps()) {
        let mut history = correct_history(steps);
        let has_reads = history.iter().any(|o| o.kind().is_read());
        let result = register(&mut history);
        prop_assert_eq!(result.held, has_reads.then_some(true), "{}", result.detail);
    }

    #[test]
    fn catches_a_lost_write_and_a_stale_read(steps in steps(), place in any::<prop::sample::Index>(), gap in 1u64..50) {
        let mut history = correct_history(steps);
        // Append a write, and a read that starts after the write ends but misses it.
        let end = history.iter().map(KeptOperation::done_ns).max().unwrap() + gap;
        let earlier: Vec<KeptOperation> = history.iter().filter(|o| o.kind() == Acknowledged).copied().collect();
        let older = (!earlier.is_empty()).then(|| earlier[place.index(earlier.len())]);
        let key = older.map_or(1, |older| older.key());
        history.push(KeptOperation::new(Acknowledged, key, 1_000, end, end + gap));
        let (sent, done) = (end + 2 * gap, end + 3 * gap);
        history.push(match older {
            Some(older) => KeptOperation::new(Read, key, older.value(), sent, done),
            None => KeptOperation::new(ReadNothing, key, 0, sent, done),
        });
        let result = register(&mut history);
        prop_assert_eq!(result.held, Some(false), "{}", result.detail);
        let expected = format!("first violation: key {key}: a read returned {}", older.map_or("no value".to_owned(), |o| show_count(o.value())));
        prop_assert!(result.detail.contains(&expected), "{}", result.detail);
        prop_assert!(result.history.iter().any(|line| line.starts_with('>')));
    }
}

#[test]
fn explains_each_violation() {
    let write = op(Acknowledged, 1, 10, 20);
    for (operations, words) in [
        (
            vec![write, op(Acknowledged, 2, 30, 40), op(Read, 1, 50, 60)],
            "1 of 1 key is not linearizable; first violation: key 1: a read returned 1 after 2 had replaced it",
        ),
        (
            vec![write, op(ReadNothing, 0, 50, 60)],
            "a read returned no value after 1 had replaced it",
        ),
        (
            vec![write, op(Read, 7, 5, 9), op(Read, 8, 11, 12)],
            "a read returned 8, which was neither present at the start nor written to this key",
        ),
        (
            vec![op(Refused, 1, 10, 20), op(Read, 1, 15, 25)],
            "a read returned 1, but the server had refused to write 1",
        ),
        (
            vec![
                op(Acknowledged, 1, 2_000_000, 3_000_000),
                op(Read, 1, 15, 1_000_000),
            ],
            "a read returned 1, but that value was sent 1.000 ms later; if the registers contain values from an earlier run, remove them and repeat the run",
        ),
    ] {
        let (held, detail) = detail(operations);
        assert!(held == Some(false) && detail.contains(words), "{detail}");
    }
}

#[test]
fn is_not_evaluated_without_reads() {
    for operations in [vec![op(Acknowledged, 1, 10, 20)], Vec::new()] {
        let (held, detail) = detail(operations);
        assert!(held.is_none() && detail.starts_with("no read returned a value"));
    }
}

#[test]
fn counts_what_was_checked() {
    let operations = vec![
        op(Acknowledged, 1, 10, 20),
        op(Unknown, 2, 30, 40),
        KeptOperation::new(Read, 5, 9, 50, 60),
        op(Read, 2, 500, 600),
        op(Read, 2, 700, 800),
    ];
    let expected = "3 reads and 2 writes (1 with an unknown outcome) of 2 keys: linearizable";
    assert_eq!(detail(operations), (Some(true), expected.to_owned()));
}

#[test]
fn checks_each_key_separately() {
    let of_key = |key, kind, value, sent| KeptOperation::new(kind, key, value, sent, sent + 5);
    let mut operations = vec![
        of_key(1, Acknowledged, 1, 10),
        of_key(2, Acknowledged, 2, 20),
        of_key(1, Read, 1, 30),
        of_key(2, Read, 1, 40),
        of_key(3, Acknowledged, 3, 50),
        of_key(3, ReadNothing, 0, 60),
    ];
    let result = register(&mut operations);
    let expected = "2 of 3 keys are not linearizable; first violation: key 2: a read returned 1 after 2 had replaced it";
    assert_eq!(result.detail, expected);
    assert_eq!(result.history.len(), 2, "{:#?}", result.history);
}
