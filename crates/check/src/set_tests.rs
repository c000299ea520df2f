use std::collections::BTreeSet;

use super::*;
use OperationKind::{Acknowledged, Refused, Unknown};
use proptest::prelude::*;

fn insert(kind: OperationKind, number: u64) -> KeptOperation {
    KeptOperation::new(kind, 1, number, number * 1000, number * 1000 + 500)
}

fn check(inserts: &[(OperationKind, u64)], numbers: &[u64]) -> CheckResult {
    let mut inserts: Vec<KeptOperation> =
        inserts.iter().map(|(kind, n)| insert(*kind, *n)).collect();
    let mut found = FoundItems {
        numbers: numbers.to_vec(),
        unreadable: 0,
    };
    set(&mut inserts, &mut found)
}

#[test]
fn accepts_every_outcome_of_an_unknown_insert() {
    let inserts = [(Acknowledged, 1), (Unknown, 2), (Unknown, 3), (Refused, 4)];
    let result = check(&inserts, &[3, 1]);
    assert_eq!(result.held, Some(true));
    let expected = "1 acknowledged item: each found once, and no other item; 2 items with an unknown outcome, of which 1 found";
    assert_eq!(result.detail, expected);
    assert!(result.history.is_empty());
}

#[test]
fn explains_each_violation() {
    let inserts = [
        (Acknowledged, 2),
        (Acknowledged, 1),
        (Refused, 3),
        (Unknown, 4),
    ];
    for (found, words) in [
        (&[2, 3][..], "1 of 2 acknowledged items lost (item 1)"),
        (&[1, 2, 2], "1 item found more than once (item 2)"),
        (&[1, 2, 4, 4], "1 item found more than once (item 4)"),
        (
            &[1, 2, 3],
            "1 item found although the server had refused the insert (item 3)",
        ),
        (
            &[1, 2, 9, 0],
            "2 items that this run never sent were found (0, 9)",
        ),
    ] {
        let result = check(&inserts, found);
        assert!(
            result.held == Some(false) && result.detail.contains(words),
            "{}",
            result.detail
        );
    }
    let lost = check(&inserts, &[2]);
    let marked: Vec<&String> = lost
        .history
        .iter()
        .filter(|line| line.starts_with('>'))
        .collect();
    assert_eq!(marked, ["> 0.000001 s to 0.000002 s: insert 1"]);
    assert_eq!(check(&[], &[]).held, None);
}

#[test]
fn reports_items_without_a_number() {
    let mut found = FoundItems {
        numbers: vec![1],
        unreadable: 2,
    };
    let result = set(&mut [insert(Acknowledged, 1)], &mut found);
    assert_eq!(result.detail, "2 items that were found have no integer");
}

proptest! {
    #[test]
    fn agrees_with_sets(
        kinds in prop::collection::vec(prop::sample::select(vec![Acknowledged, Refused, Unknown]), 1..30),
        items in prop::collection::vec(1u64..34, 0..30),
    ) {
        let inserts: Vec<(OperationKind, u64)> = kinds.into_iter().zip(1..).collect();
        let of = |wanted: &[OperationKind]| -> BTreeSet<u64> {
            inserts.iter().filter(|(kind, _)| wanted.contains(kind)).map(|(_, n)| *n).collect()
        };
        let found: BTreeSet<u64> = items.iter().copied().collect();
        let expected = found.len() == items.len()
            && of(&[Acknowledged]).is_subset(&found)
            && found.is_subset(&of(&[Acknowledged, Unknown]));
        prop_assert_eq!(check(&inserts, &items).held, Some(expected));
    }
}
