//! Tests with simulated servers that crash.

use OperationKind::{Acknowledged, Read, Refused, Unknown};
use floodmark_record::crash::CrashTarget;
use proptest::prelude::*;

use super::*;

/// Time of the restart.
const RESTART: u64 = 1_000_000;

fn api(kind: ApiCheckKind) -> ApiCheck {
    ApiCheck {
        kind,
        keys: 1,
        write_value: None,
        read_value: None,
        readback: None,
        value_places: Vec::new(),
    }
}

fn found(numbers: &[u64]) -> FoundItems {
    FoundItems {
        numbers: numbers.to_vec(),
        unreadable: 0,
    }
}

/// Judges a round that inserts items, one every 1,000 ns.
fn set_round(
    state: &mut ApiState,
    inserts: &[(OperationKind, u64)],
    items: &[u64],
    restarted_ns: Option<u64>,
) -> RoundFindings {
    let inserts = inserts.iter().zip(0u64..);
    let operations = inserts
        .map(|((kind, number), i)| KeptOperation::new(*kind, 1, *number, i * 1000, i * 1000 + 500));
    let round = ApiRound {
        operations: operations.collect(),
        found: found(items),
        unreadable: 0,
        restarts_server: restarted_ns.is_some(),
        resumed_ns: restarted_ns.unwrap_or(RESTART),
    };
    state.judge(&api(ApiCheckKind::Set), round).unwrap()
}

#[test]
fn continues_with_the_items_of_the_previous_round() {
    let mut state = ApiState::with_items(found(&[9, 3]));
    let inserts = [(Acknowledged, 10), (Acknowledged, 11), (Unknown, 12)];
    let first = set_round(&mut state, &inserts, &[11, 3, 10, 9], Some(1000));
    assert_eq!(first.violations, [""; 0]);
    assert_eq!((first.acknowledged, first.unknown), (1, 1));
    // Item 12 was inserted after the first round.
    let second = set_round(
        &mut state,
        &[(Acknowledged, 13)],
        &[3, 9, 10, 11, 12, 13],
        Some(0),
    );
    assert_eq!(second.violations, [""; 0]);
    assert_eq!((second.acknowledged, second.unknown), (0, 0));
}

#[test]
fn reports_each_loss_once() {
    let mut state = ApiState::with_items(found(&[1, 2, 3, 3]));
    let inserts = [(Acknowledged, 10), (Acknowledged, 11)];
    let lost = set_round(&mut state, &inserts, &[3, 3, 10], Some(RESTART));
    assert_eq!(
        lost.violations,
        ["2 items from earlier rounds lost (1, 2); 1 of 2 acknowledged items lost (item 11)"]
    );
    assert_eq!(
        lost.history,
        [
            "· 0.000000 s to 0.000000 s: insert 10",
            "> 0.000001 s to 0.000002 s: insert 11"
        ]
    );
    let next = set_round(
        &mut state,
        &[(Acknowledged, 12)],
        &[3, 3, 10, 12],
        Some(RESTART),
    );
    assert_eq!(next.violations, [""; 0]);
}

#[test]
fn explains_violations_of_earlier_items() {
    for (items, violation) in [
        (&[1, 10][..], "1 item from earlier rounds lost (item 2)"),
        (
            &[1, 2, 2, 10],
            "1 item from earlier rounds found more often than before (item 2)",
        ),
        (
            &[1, 2, 5, 10],
            "1 item that this run never sent was found (item 5)",
        ),
        (&[1, 2, 10, 10], "1 item found more than once (item 10)"),
    ] {
        let mut state = ApiState::with_items(found(&[1, 2]));
        let round = set_round(&mut state, &[(Acknowledged, 10)], items, Some(RESTART));
        assert_eq!(round.violations, [violation]);
    }
    let mut state = ApiState::with_items(FoundItems {
        numbers: Vec::new(),
        unreadable: 2,
    });
    let round = set_round(&mut state, &[(Acknowledged, 10)], &[10], Some(RESTART));
    assert_eq!(round.violations, ["2 items without an integer were lost"]);
}

#[test]
fn a_restart_ends_the_writes_of_earlier_rounds() {
    for (restarted_ns, held) in [(Some(RESTART), false), (None, true)] {
        let mut state = ApiState::default();
        set_round(&mut state, &[(Unknown, 1)], &[], restarted_ns);
        set_round(&mut state, &[(Acknowledged, 2)], &[2], restarted_ns);
        let third = set_round(&mut state, &[(Acknowledged, 3)], &[1, 2, 3], restarted_ns);
        assert_eq!(third.violations.is_empty(), held, "{third:?}");
    }
}

/// Judges a round of operations on key 1: kind, value, and the time at which they are sent. The
/// server or its store is killed.
fn register_round_of(
    target: CrashTarget,
    state: &mut ApiState,
    operations: &[(OperationKind, u64, u64)],
) -> Result<RoundFindings, String> {
    let operations = operations
        .iter()
        .map(|(kind, value, sent_ns)| KeptOperation::new(*kind, 1, *value, *sent_ns, sent_ns + 5));
    let round = ApiRound {
        operations: operations.collect(),
        found: FoundItems::default(),
        unreadable: 0,
        restarts_server: target == CrashTarget::Server,
        resumed_ns: RESTART,
    };
    state.judge(&api(ApiCheckKind::Register), round)
}

fn register_round(
    state: &mut ApiState,
    operations: &[(OperationKind, u64, u64)],
) -> Result<RoundFindings, String> {
    register_round_of(CrashTarget::Server, state, operations)
}

#[test]
fn finds_a_register_that_returns_to_an_earlier_value() {
    let before = [
        (Read, 7, 10),
        (Acknowledged, 20, 20),
        (Unknown, 21, 30),
        (Refused, 22, 40),
    ];
    for (value, violation) in [
        (20, None),
        (21, None),
        (7, Some("a read returned 7 after 20 had replaced it")),
        (
            6,
            Some(
                "a read returned 6, which was neither present at the start nor written to this key",
            ),
        ),
        (
            22,
            Some("a read returned 22, but the server had refused to write 22"),
        ),
    ] {
        let mut operations = before.to_vec();
        operations.push((Read, value, RESTART + 10));
        let round = register_round(&mut ApiState::default(), &operations).unwrap();
        // The write of 21 may have hidden that of 20.
        let acknowledged = u64::from(value != 21);
        assert_eq!((round.acknowledged, round.unknown), (acknowledged, 1));
        let violations = &round.violations;
        assert_eq!(violations.len(), violation.iter().count(), "{violations:?}");
        if let Some(violation) = violation {
            assert!(violations[0].ends_with(violation), "{violations:?}");
            assert!(round.history.iter().any(|line| line.starts_with('>')));
        }
    }
}

#[test]
fn a_write_can_take_effect_after_its_round() {
    let mut state = ApiState::default();
    let first = [(Unknown, 20, 10), (Unknown, 21, 20), (Read, 21, RESTART)];
    assert_eq!(
        register_round(&mut state, &first).unwrap().violations,
        [""; 0]
    );
    // The write of 20 ends after the first read of the second round.
    let second = [(Read, 21, 10), (Read, 20, 20), (Read, 20, RESTART)];
    assert_eq!(
        register_round(&mut state, &second).unwrap().violations,
        [""; 0]
    );
    // A later restart ends this write.
    let third = [(Read, 30, 10), (Read, 20, 20), (Read, 20, RESTART)];
    assert_eq!(
        register_round(&mut state, &third).unwrap().violations.len(),
        1
    );
}

#[test]
fn a_register_round_proves_only_the_writes_of_keys_that_are_read_back() {
    let (write, later) = ((Acknowledged, 20, 10), (Acknowledged, 30, RESTART));
    for (operations, acknowledged) in [
        (&[write, (Read, 20, 20)][..], 0),
        (&[write, later, (Read, 30, RESTART + 10)], 0),
        (&[(Unknown, 20, 10), (Read, 20, RESTART + 10)], 0),
        (&[later, (Read, 30, RESTART + 10)], 0),
        (&[write, (Read, 20, RESTART), later], 1),
        (&[(Acknowledged, 19, 0), write, (Read, 20, RESTART)], 2),
    ] {
        for target in [CrashTarget::Server, CrashTarget::Store] {
            let round = register_round_of(target, &mut ApiState::default(), operations).unwrap();
            assert_eq!(round.violations, [""; 0]);
            assert_eq!(round.acknowledged, acknowledged, "{operations:?}");
            assert_eq!(round.is_inconclusive(), acknowledged == 0);
        }
    }
    // Another key was read after the restart.
    let of_key = |key, kind, sent| KeptOperation::new(kind, key, key, sent, sent + 5);
    let mut round = ApiRound {
        operations: vec![of_key(1, Acknowledged, 10), of_key(2, Read, RESTART)],
        found: FoundItems::default(),
        unreadable: 0,
        restarts_server: true,
        resumed_ns: RESTART,
    };
    assert_eq!(acknowledged(ApiCheckKind::Register, &round), 0);
    round.operations.push(of_key(1, Read, RESTART));
    assert_eq!(acknowledged(ApiCheckKind::Register, &round), 1);
}

#[test]
fn reports_a_violation_without_a_read_after_the_restart() {
    let operations = [
        (Acknowledged, 20, 10),
        (Acknowledged, 21, 20),
        (Read, 20, 30),
    ];
    let round = register_round(&mut ApiState::default(), &operations).unwrap();
    assert_eq!(round.violations.len(), 1);
    assert!(!round.is_inconclusive());
}

#[test]
fn a_set_round_needs_an_insert_acknowledged_before_the_restart() {
    let earlier = || ApiState::with_items(found(&[1]));
    for (inserts, items, is_inconclusive) in [
        (&[(Unknown, 10), (Refused, 11)][..], &[1, 10][..], true),
        (&[(Acknowledged, 10)], &[1, 10], false),
        (&[(Unknown, 10)], &[10], false),
    ] {
        let round = set_round(&mut earlier(), inserts, items, Some(RESTART));
        assert_eq!(round.is_inconclusive(), is_inconclusive, "{round:?}");
        assert_eq!(round.violations.is_empty(), items.contains(&1), "{round:?}");
    }
    let round = set_round(&mut earlier(), &[(Acknowledged, 10)], &[1, 10], Some(0));
    assert!(round.is_inconclusive(), "{round:?}");
}

#[test]
fn limits_the_writes_that_may_still_take_effect() {
    assert_eq!(too_many(MAX_PENDING), None);
    let why = too_many(MAX_PENDING + 1).unwrap();
    assert!(
        why.starts_with("10,000,001 writes with an unknown outcome "),
        "{why}"
    );
}

#[test]
fn refuses_counters() {
    let round = ApiRound {
        operations: Vec::new(),
        found: FoundItems::default(),
        unreadable: 0,
        restarts_server: false,
        resumed_ns: RESTART,
    };
    let judged = ApiState::default().judge(&api(ApiCheckKind::Counter), round);
    assert!(judged.is_err());
}

proptest! {
    #[test]
    fn agrees_with_sets(
        before in prop::collection::btree_set(1u64..10, 0..10),
        kinds in prop::collection::vec(prop::sample::select(vec![Acknowledged, Refused, Unknown]), 1..20),
        items in prop::collection::vec(1u64..32, 0..30),
        is_likely in any::<bool>(),
    ) {
        let inserts: Vec<(OperationKind, u64)> = kinds.into_iter().zip(10..).collect();
        let of = |wanted: &[OperationKind]| -> BTreeSet<u64> {
            let of_kind = inserts.iter().filter(|(kind, _)| wanted.contains(kind));
            of_kind.map(|(_, n)| *n).collect()
        };
        let required: BTreeSet<u64> = of(&[Acknowledged]).union(&before).copied().collect();
        let allowed: BTreeSet<u64> = of(&[Unknown]).union(&required).copied().collect();
        // Random items almost never satisfy the conditions, so half of the cases come close.
        let items: Vec<u64> = if is_likely {
            let lucky = items.iter().take(1).chain(&allowed).copied();
            let all: BTreeSet<u64> = lucky.filter(|n| required.contains(n) || n % 2 == 0).collect();
            all.into_iter().collect()
        } else {
            items
        };
        let after: BTreeSet<u64> = items.iter().copied().collect();
        let expected = after.len() == items.len()
            && required.is_subset(&after)
            && after.is_subset(&allowed);
        let before: Vec<u64> = before.into_iter().collect();
        let mut state = ApiState::with_items(found(&before));
        let round = set_round(&mut state, &inserts, &items, Some(RESTART));
        prop_assert_eq!(round.violations.is_empty(), expected, "{:?}", round.violations);
    }
}
