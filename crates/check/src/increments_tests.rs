use super::*;
use OperationKind::{Acknowledged, Read, ReadNothing, Refused, Unknown};
use proptest::prelude::*;

fn op(kind: OperationKind, value: u64, sent: u64, done: u64) -> KeptOperation {
    KeptOperation::new(kind, 1, value, sent, done)
}

/// A history of a correct server. Each operation takes effect at one moment.
fn correct_history(
    first: u64,
    steps: &[(u64, u8, u64, u64)],
    returns_value: bool,
) -> Vec<KeptOperation> {
    let mut values = [first; 3];
    let mut operations = Vec::new();
    for ((key, kind, before, after), number) in steps.iter().zip(1..) {
        let now = 1_000 + 10 * number;
        let value = &mut values[*key as usize];
        let (kind, executed) = match kind {
            0 => (Unknown, true),
            1 => (Unknown, false),
            2 => (Refused, false),
            3..7 => (Acknowledged, true),
            _ if *value == 0 => (ReadNothing, false),
            _ => (Read, false),
        };
        *value += u64::from(executed);
        let shown = match kind {
            Read | ReadNothing => *value,
            Acknowledged if returns_value => *value,
            _ => number,
        };
        operations.push(KeptOperation::new(
            kind,
            key + 1,
            shown,
            now - before,
            now + after,
        ));
    }
    operations
}

fn steps() -> impl Strategy<Value = Vec<(u64, u8, u64, u64)>> {
    prop::collection::vec((0u64..3, 0u8..10, 0u64..100, 0u64..100), 20..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn accepts_a_correct_server(first in prop_oneof![Just(0), 0u64..1000], steps in steps(), returns_value: bool) {
        let mut history = correct_history(first, &steps, returns_value);
        let result = increments(&mut history, returns_value);
        prop_assert_ne!(result.held, Some(false), "{}", result.detail);
        prop_assert_eq!(result.held.is_none(), result.detail.starts_with("no response"));
    }

    #[test]
    fn catches_a_lost_increment(steps in steps(), returns_value: bool, lost in 1u64..4) {
        let mut history = correct_history(0, &steps, returns_value);
        let end = history.iter().map(KeptOperation::done_ns).max().unwrap();
        let of_key = |kind| history.iter().filter(move |o| o.key() == 1 && o.kind() == kind).count() as u64;
        let acknowledged = of_key(Acknowledged);
        if acknowledged < lost {
            return Ok(());
        }
        // The counter starts at 0, so a read at the end must return all acknowledged increments.
        history.push(op(ReadNothing, 0, 10, 20));
        history.push(op(Read, acknowledged - lost, end + 1, end + 2));
        let result = increments(&mut history, returns_value);
        prop_assert_eq!(result.held, Some(false), "{}", result.detail);
        prop_assert!(result.detail.contains("key 1: "), "{}", result.detail);
        prop_assert!(result.history.iter().any(|line| line.starts_with('>')), "{:?}", result.history);
    }

    #[test]
    fn catches_a_repeated_value(steps in steps(), place in any::<prop::sample::Index>()) {
        let mut history = correct_history(0, &steps, true);
        let acknowledged: Vec<KeptOperation> = history.iter().filter(|o| o.kind() == Acknowledged).copied().collect();
        prop_assume!(!acknowledged.is_empty());
        history.push(acknowledged[place.index(acknowledged.len())].moved(1));
        let result = increments(&mut history, true);
        prop_assert!(result.held == Some(false) && result.detail.contains("occurs more than once"), "{}", result.detail);
        prop_assert_eq!(result.history.iter().filter(|line| line.starts_with('>')).count(), 2);
    }
}

#[test]
fn explains_each_violation() {
    let increment = |n: u64, sent: u64| op(Acknowledged, n, sent, sent + 5);
    for (returns_value, mut operations, words) in [
        (
            false,
            vec![
                op(Read, 4, 1, 2),
                increment(1, 10),
                increment(2, 20),
                op(Read, 5, 30, 31),
            ],
            "1 of 1 counter is wrong; first violation: key 1: a read returned 5 instead of at least 6",
        ),
        (
            false,
            vec![
                op(ReadNothing, 0, 1, 2),
                increment(1, 10),
                op(Read, 2, 30, 31),
            ],
            "a read returned 2 instead of at most 1",
        ),
        (
            false,
            vec![increment(1, 10), increment(2, 20), op(Read, 1, 30, 31)],
            "a read returned 1 instead of at least 2",
        ),
        (
            false,
            vec![
                op(Unknown, 1, 1, 9),
                op(Unknown, 2, 1, 9),
                op(Read, 2, 10, 11),
                op(Read, 1, 12, 13),
            ],
            "a request returned 1 after another had returned 2",
        ),
        (
            true,
            vec![increment(4, 10), increment(6, 20)],
            "1 number is missing (5), but no request has an unknown outcome",
        ),
        (
            true,
            vec![increment(5, 10), increment(4, 20)],
            "1 number was returned before a smaller number was requested",
        ),
    ] {
        let result = increments(&mut operations, returns_value);
        assert!(
            result.held == Some(false) && result.detail.contains(words),
            "{}",
            result.detail
        );
    }
}

#[test]
fn counts_what_was_checked() {
    let mut operations = vec![
        op(Acknowledged, 8, 10, 20),
        op(Unknown, 2, 30, 40),
        op(Acknowledged, 10, 50, 60),
        op(Read, 10, 70, 80),
    ];
    let result = increments(&mut operations, true);
    let expected = "2 increments of 1 counter: every acknowledged increment is reflected in the 3 values returned";
    assert_eq!(
        (result.held, result.detail.as_str()),
        (Some(true), expected)
    );
    let nothing = increments(&mut [op(Unknown, 1, 1, 2)], true);
    assert_eq!(nothing.held, None);
    assert!(nothing.detail.starts_with("no response had a value"));
}
