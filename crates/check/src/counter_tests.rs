//! Tests with simulated counters, and tests against a brute-force reference.

use proptest::prelude::*;

use super::*;

fn judge(answers: &[DrawnNumber], unknown: u64) -> CheckResult {
    let mut answers = answers.to_vec();
    let context = CheckContext {
        unknown,
        ..CheckContext::default()
    };
    sequence(&mut answers, &context)
}

fn answer(number: u64, sent_ns: u64, done_ns: u64) -> DrawnNumber {
    DrawnNumber {
        number,
        sent_ns,
        done_ns,
    }
}

/// Checks the three rules of [`crate::counter`] for each pair of responses.
fn reference(answers: &[DrawnNumber], unknown: u64) -> Option<bool> {
    let smallest = answers.iter().map(|a| a.number).min().unwrap_or(0);
    let largest = answers.iter().map(|a| a.number).max().unwrap_or(0);
    let missing = (smallest..=largest)
        .filter(|n| answers.iter().all(|a| a.number != *n))
        .count() as u64;
    let pairs_hold = answers.iter().enumerate().all(|(i, a)| {
        answers.iter().enumerate().all(|(j, b)| {
            i == j || (a.number != b.number && !(a.number < b.number && b.done_ns < a.sent_ns))
        })
    });
    (!answers.is_empty()).then_some(missing <= unknown && pairs_hold)
}

/// Returns the responses of a correct counter, in the order in which the requests were sent.
/// The send and completion times around each update are random.
fn simulated(first: u64, steps: &[(u64, u64, u64)]) -> Vec<DrawnNumber> {
    let mut moment = 1_000;
    let mut answers: Vec<DrawnNumber> = steps
        .iter()
        .zip(first..)
        .map(|((gap, before, after), number)| {
            moment += gap;
            answer(number, moment.saturating_sub(*before), moment + after)
        })
        .collect();
    answers.sort_by_key(|a| a.sent_ns);
    answers
}

fn steps() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
    proptest::collection::vec((0u64..20, 0u64..200, 0u64..200), 2..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn agrees_with_the_reference(
        triples in proptest::collection::vec((1u64..14, 0u64..40, 0u64..12), 0..12),
        unknown in 0u64..4,
    ) {
        let answers: Vec<DrawnNumber> = triples.iter().map(|(n, s, took)| answer(*n, *s, s + took)).collect();
        prop_assert_eq!(judge(&answers, unknown).held, reference(&answers, unknown), "{:?}", answers);
    }

    #[test]
    fn agrees_with_the_reference_on_nearly_correct_histories(
        steps in steps(), a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(), unknown in 0u64..2,
    ) {
        let mut answers = simulated(7, &steps);
        let (a, b) = (a.index(answers.len()), b.index(answers.len()));
        let number = answers[a].number;
        answers[a].number = answers[b].number;
        answers[b].number = number;
        prop_assert_eq!(judge(&answers, unknown).held, reference(&answers, unknown), "{:?}", answers);
    }

    #[test]
    fn correct_dispenser_passes(first in 0u64..u64::MAX - 200, steps in steps()) {
        let result = judge(&simulated(first, &steps), 0);
        prop_assert_eq!(result.held, Some(true), "{}", result.detail);
    }

    #[test]
    fn missing_response_is_a_gap_unless_its_outcome_is_unknown(steps in steps(), which in any::<prop::sample::Index>()) {
        let mut answers = simulated(1, &steps);
        let lost = answers.remove(which.index(answers.len()));
        let last = steps.len() as u64;
        let inside = lost.number != 1 && lost.number != last;
        prop_assert_eq!(judge(&answers, 0).held, Some(!inside));
        prop_assert_eq!(judge(&answers, 1).held, Some(true));
    }

    #[test]
    fn finds_a_repeated_number(steps in steps(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let mut answers = simulated(1, &steps);
        let (from, to) = (from.index(answers.len()), to.index(answers.len()));
        let copied = DrawnNumber { number: answers[from].number, ..answers[to] };
        answers.push(copied);
        let result = judge(&answers, u64::MAX);
        prop_assert_eq!(result.held, Some(false));
        prop_assert!(result.detail.starts_with("1 number occurs more than once"), "{}", result.detail);
    }

    #[test]
    fn finds_swapped_numbers_of_disjoint_requests(steps in steps(), at in any::<prop::sample::Index>()) {
        let mut answers = simulated(1, &steps);
        let early = answers[at.index(answers.len())];
        let Some(late) = answers.iter().position(|a| a.sent_ns > early.done_ns) else {
            return Ok(());
        };
        let early = answers.iter().position(|a| *a == early).unwrap();
        let number = answers[early].number;
        answers[early].number = answers[late].number;
        answers[late].number = number;
        let result = judge(&answers, 0);
        prop_assert_eq!(result.held, Some(false));
        prop_assert!(result.detail.contains("before a smaller number"), "{}", result.detail);
    }
}

#[test]
fn describes_success() {
    let answers: Vec<DrawnNumber> = (1..=200_000)
        .map(|n| answer(n, n * 10, n * 10 + 25))
        .collect();
    let result = judge(&answers, 0);
    assert_eq!(result.name, "sequence");
    assert_eq!(result.held, Some(true));
    assert_eq!(
        result.detail,
        "200,000 numbers from 1 to 200,000: each once, no gaps, in order"
    );
    let result = judge(&[answers[0], answers[2]], 3);
    assert_eq!(
        result.detail,
        "2 numbers from 1 to 3: each once, 1 missing (explained by 3 requests with unknown outcomes), in order"
    );
}

#[test]
fn describes_each_kind_of_fault() {
    let mut answers = vec![
        answer(5, 0, 1_000_000),
        answer(5, 0, 2_000_000),
        answer(9, 10, 1_500_000),
        answer(10, 10, 1_600_000),
        answer(8, 4_000_000, 5_000_000),
    ];
    let context = CheckContext {
        unknown: 1,
        out_of_order_on_connection: 7,
        offenders: &["connection 3: 8 after 9".to_owned()],
        unreadable: 2,
    };
    let result = sequence(&mut answers, &context);
    assert_eq!(result.held, Some(false));
    assert_eq!(
        result.detail,
        "1 number occurs more than once (5); 2 numbers are missing (6 to 7), but only 1 request has an \
         unknown outcome; 2 numbers were returned before a smaller number was requested (9 was returned \
         2.500 ms before 8 was requested, 10 was returned 2.400 ms before 8 was requested); \
         7 numbers are not larger than the previous number on the same connection (first: connection 3: 8 after 9); \
         2 responses with status 2xx or 3xx were not numbers"
    );
}

#[test]
fn examples_are_bounded() {
    let answers: Vec<DrawnNumber> = (1..=1000).map(|n| answer(n * 2, n, n)).collect();
    let result = judge(&answers, 0);
    assert!(
        result
            .detail
            .contains("999 numbers are missing (first: 3, 5, 7, 9, 11)"),
        "{}",
        result.detail
    );
}

#[test]
fn equal_nanoseconds_are_overlap() {
    for (sent, held) in [(10, true), (11, false)] {
        let answers = [answer(1, sent, 20), answer(2, 5, 10)];
        assert_eq!(judge(&answers, 0).held, Some(held));
    }
}

#[test]
fn is_not_evaluated_without_responses() {
    let result = judge(&[], 10);
    assert_eq!(result.held, None);
    assert!(result.detail.contains("nothing to check"));
}

#[test]
fn handles_the_whole_range_of_numbers() {
    let ends = [answer(0, 0, 1), answer(u64::MAX, 2, 3)];
    assert_eq!(judge(&ends, 0).held, Some(false));
    assert_eq!(judge(&ends, u64::MAX).held, Some(true));
}
