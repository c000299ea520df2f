//! Tests with simulated servers that crash.

use proptest::prelude::*;

use super::*;

/// Time of the restart.
const RESTART: u64 = 1_000_000;

fn round(unknown: u64, earlier: Option<DurableState>) -> RoundContext<'static> {
    RoundContext {
        restarted_ns: Some(RESTART),
        resumed_ns: RESTART,
        is_fresh_start: false,
        earlier,
        responses: CheckContext {
            unknown,
            ..CheckContext::default()
        },
    }
}

/// Returns responses with the given numbers, one after another from `start_ns`.
fn drawn(numbers: impl IntoIterator<Item = u64>, start_ns: u64) -> Vec<DrawnNumber> {
    let numbers = numbers.into_iter().zip(0u64..);
    let drawn = numbers.map(|(number, i)| DrawnNumber {
        number,
        sent_ns: start_ns + 10 * i,
        done_ns: start_ns + 10 * i + 5,
    });
    drawn.collect()
}

fn sequence_round(
    before: impl IntoIterator<Item = u64>,
    after: impl IntoIterator<Item = u64>,
    round: &RoundContext<'_>,
) -> (RoundFindings, DurableState) {
    let mut all = drawn(after, RESTART);
    all.extend(drawn(before, 0));
    crashed_sequence(&mut all, round)
}

fn scoring_round(
    before: impl IntoIterator<Item = (u64, i32)>,
    after: impl IntoIterator<Item = (u64, i32)>,
    round: &RoundContext<'_>,
) -> (RoundFindings, DurableState) {
    let scores = |numbers: Vec<(u64, i32)>, start_ns| {
        let drawn = drawn(numbers.iter().map(|(number, _)| *number), start_ns);
        let both = drawn.into_iter().zip(numbers);
        both.map(|(drawn, (number, distance))| {
            KeptScore::new(number, Some(distance), drawn.sent_ns, drawn.done_ns)
        })
        .collect::<Vec<_>>()
    };
    let mut all = scores(before.into_iter().collect(), 0);
    all.extend(scores(after.into_iter().collect(), RESTART));
    let line = TotalLine::through(10.0, 1, 10.0);
    crashed_scoring(&mut all, line, &ScoringSummary::default(), round)
}

fn exact(numbers: impl IntoIterator<Item = u64>) -> Vec<(u64, i32)> {
    numbers.into_iter().map(|number| (number, 0)).collect()
}

#[test]
fn an_unknown_outcome_explains_one_missing_number() {
    let two = round(2, None);
    for (before, after, missing) in [
        (vec![1, 2, 5], vec![6, 7], 2),
        (vec![1, 2], vec![5, 6], 2),
        (vec![1, 2, 4], vec![5, 7, 9], 3),
        (vec![1, 2, 5], vec![8, 11], 6),
    ] {
        let violations = scoring_round(exact(before), exact(after), &two)
            .0
            .violations;
        assert_eq!(violations.is_empty(), missing <= 2, "{violations:?}");
    }
}

#[test]
fn accepts_a_sequence_that_continues_after_a_gap() {
    let (found, state) = sequence_round(1..=100, 165..=200, &round(0, None));
    assert_eq!(found.violations, [""; 0]);
    assert_eq!((found.acknowledged, found.recovered), (100, Some(164)));
    assert_eq!(state.number, Some(200));
    let (found, _) = sequence_round(201..=210, 300..=310, &round(0, Some(state)));
    assert_eq!(found.violations, [""; 0]);
}

#[test]
fn finds_numbers_that_are_handed_out_again() {
    let (found, state) = sequence_round(1..=1_200, 1..=50, &round(3, None));
    assert_eq!(
        found.violations,
        [
            "the restart lost 1,200 numbers: number 1,200 was acknowledged before, and number 1 was returned after"
        ]
    );
    // The next round starts with the new state, so each round counts only its own loss.
    assert_eq!(state.number, Some(50));
    let (found, _) = sequence_round(51..=60, 60..=70, &round(0, Some(state)));
    assert_eq!(
        found.violations,
        [
            "the restart lost 1 number: number 60 was acknowledged before, and number 60 was returned after"
        ]
    );
}

#[test]
fn finds_a_loss_between_two_rounds() {
    let earlier = DurableState {
        number: Some(70),
        unknown: 2,
        ..DurableState::default()
    };
    let (found, _) = sequence_round(70..=80, 90..=91, &round(0, Some(earlier)));
    assert_eq!(
        found.violations,
        [
            "the start of the round lost 1 number: number 70 was acknowledged before, and number 70 was returned after"
        ]
    );
    let gap = |first, is_fresh_start| {
        let round = RoundContext {
            is_fresh_start,
            ..round(0, Some(earlier))
        };
        sequence_round(first..=80, 90..=91, &round).0.violations
    };
    assert_eq!(gap(73, false), [""; 0]);
    assert!(gap(74, false)[0].starts_with("the start of the round added 1 number that was not"));
    assert_eq!(gap(74, true), [""; 0]);
}

#[test]
fn judges_each_side_of_the_restart() {
    let (found, _) = sequence_round([1, 2, 2, 5], [9, 12], &round(0, None));
    assert_eq!(found.violations.len(), 2);
    assert!(found.violations[0].starts_with("before the restart: 1 number occurs more than once"));
    assert!(found.violations[1].starts_with("after the restart: 2 numbers are missing"));
}

#[test]
fn a_server_that_keeps_running_has_no_gap() {
    let round = RoundContext {
        restarted_ns: None,
        ..round(1, None)
    };
    let (found, state) = sequence_round([1, 2, 3], [5, 6], &round);
    assert_eq!(found.violations, [""; 0]);
    // Only the first three requests were sent before the server was resumed.
    assert_eq!((found.acknowledged, found.recovered), (3, Some(6)));
    assert_eq!(state.number, Some(6));
    let (found, _) = sequence_round([1, 2, 3], [6, 7], &round);
    assert!(found.violations[0].starts_with("2 numbers are missing (4 to 5), but only"));
}

#[test]
fn scores_continue_without_an_unexplained_gap() {
    let after = |first| scoring_round(exact(1..=9), exact(first..=20), &round(2, None)).0;
    for first in 10..=12 {
        assert_eq!(after(first).violations, [""; 0]);
    }
    assert_eq!(
        after(13).violations,
        [
            "the restart added 1 score that was not sent: number 9 was acknowledged before, \
             number 13 was returned after, and 2 requests have an unknown outcome"
        ]
    );
    assert_eq!(
        after(8).violations,
        [
            "the restart lost 2 scores: number 9 was acknowledged before, and number 8 was returned after"
        ]
    );
}

#[test]
fn totals_continue_after_a_restart() {
    let low = |numbers: std::ops::Range<u64>| numbers.map(|number| (number, -2));
    let (found, state) = scoring_round(exact(2..5), low(5..9), &round(0, None));
    assert_eq!(
        found.violations,
        ["totalScore is 2 scores too low after a restart"]
    );
    assert_eq!(state.distance, Some(-2));
    let (found, _) = scoring_round(low(9..12), low(12..15), &round(0, Some(state)));
    assert_eq!(found.violations, [""; 0]);
    let (found, _) = scoring_round(exact(9..12), exact(12..15), &round(0, Some(state)));
    assert_eq!(
        found.violations,
        ["totalScore is 2 scores too high after a restart"]
    );
}

/// A simulated round: the number of acknowledged requests before and after the crash, the number of
/// requests in flight at the crash, how many of them the server executed, and the size of a gap.
fn simulated() -> impl Strategy<Value = (u64, u64, u64, u64, u64)> {
    (0u64..40, 1u64..40, 0u64..8, 0u64..=8, 0u64..100)
        .prop_map(|(a, b, u, done, gap)| (a, b, u, done.min(u), gap))
}

proptest! {
    #[test]
    fn a_durable_server_has_no_violations(rounds in proptest::collection::vec(simulated(), 1..6), first in 1u64..50) {
        let (mut last, mut block) = (first - 1, first - 1);
        let (mut scored, mut drawn): (Option<DurableState>, Option<DurableState>) = (None, None);
        for (a, b, unknown, executed, gap) in rounds {
            let before = last + 1..=last + a;
            let recovered = last + a + executed;
            last = recovered + b;
            let (found, state) = scoring_round(exact(before), exact(recovered + 1..=last), &round(unknown, scored));
            prop_assert!(found.violations.is_empty(), "{:?}", found.violations);
            prop_assert_eq!((found.acknowledged, found.recovered), (a, Some(recovered)));
            scored = Some(state);

            let before = block + 1..=block + a;
            let recovered = block + a + gap;
            block = recovered + b;
            let (found, state) = sequence_round(before, recovered + 1..=block, &round(0, drawn));
            prop_assert!(found.violations.is_empty(), "{:?}", found.violations);
            drawn = Some(state);
        }
    }

    #[test]
    fn any_loss_is_found((a, b, unknown, _, lost) in simulated(), first in 1u64..50) {
        prop_assume!(a > 0);
        let last = first + a - 1;
        let next = (last + 1).saturating_sub(lost.clamp(1, last));
        let (before, after) = (first..=last, next..next + b);
        let (found, _) = scoring_round(exact(before.clone()), exact(after.clone()), &round(unknown, None));
        prop_assert!(!found.violations.is_empty());
        let (found, _) = sequence_round(before, after, &round(unknown, None));
        prop_assert!(!found.violations.is_empty());
    }

    #[test]
    fn judging_never_panics(
        numbers in proptest::collection::vec((any::<u64>(), 0..2 * RESTART, 0u64..1000), 0..30),
        unknown in any::<u64>(), number in any::<Option<u64>>(), earlier_unknown in any::<u64>(),
    ) {
        let earlier = DurableState { number, unknown: earlier_unknown, ..DurableState::default() };
        let round = round(unknown, Some(earlier));
        let mut drawn: Vec<_> = numbers.iter().map(|(number, sent_ns, took)| DrawnNumber {
            number: *number, sent_ns: *sent_ns, done_ns: sent_ns + took,
        }).collect();
        let _ = crashed_sequence(&mut drawn, &round);
        let mut scores: Vec<_> = numbers.iter().map(|(number, sent_ns, took)| {
            KeptScore::new(*number, Some(0), *sent_ns, sent_ns + took)
        }).collect();
        let line = TotalLine::through(10.0, 1, 10.0);
        let _ = crashed_scoring(&mut scores, line, &ScoringSummary::default(), &round);
    }
}
