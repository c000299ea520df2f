//! Tests with simulated servers, both correct and faulty.

use floodmark_record::kept::StrangeTotal;
use proptest::prelude::*;

use super::*;

/// A sequential scoring server and its responses.
struct ScoringServer {
    score: f64,
    number: u64,
    total: f64,
    line: Option<TotalLine>,
    answers: Vec<KeptScore>,
    scored: ScoringSummary,
    moment: u64,
}

impl ScoringServer {
    fn new(score: f64, number: u64, total: f64) -> Self {
        ScoringServer {
            score,
            number,
            total,
            line: None,
            answers: Vec::new(),
            scored: ScoringSummary::default(),
            moment: 1_000,
        }
    }

    /// Returns a server that has no scores yet.
    fn fresh(score: f64) -> Self {
        ScoringServer::new(score, 0, 0.0)
    }

    /// Adds a response with the current figures. The request is sent `before` ns before the update,
    /// and the response is complete `after` ns after the update.
    fn answer(&mut self, before: u64, after: u64) {
        self.moment += 10;
        let (score, number, total) = (self.score, self.number, self.total);
        let line = self
            .line
            .get_or_insert_with(|| TotalLine::through(score, number, total));
        let distance = line.distance(number, total);
        if distance.is_none() {
            self.scored.strange(StrangeTotal { number, total });
        }
        let sent = self.moment.saturating_sub(before);
        self.answers
            .push(KeptScore::new(number, distance, sent, self.moment + after));
    }

    /// Adds a score correctly.
    fn add(&mut self) {
        self.number += 1;
        self.total += self.score;
    }

    fn serve(&mut self, n: usize) {
        for _ in 0..n {
            self.add();
            self.answer(5, 5);
        }
    }

    fn judged(mut self, context: &CheckContext<'_>) -> CheckResult {
        // Reorder the responses as several threads would.
        self.answers.sort_by_key(|a| a.done_ns() % 7);
        let line = self.line.unwrap_or(TotalLine::through(self.score, 0, 0.0));
        scoring(&mut self.answers, line, &self.scored, context)
    }

    fn detail(self) -> String {
        let result = self.judged(&CheckContext::default());
        assert_eq!(result.held, Some(false), "{}", result.detail);
        result.detail
    }
}

/// Possible scores.
fn scores() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(10.0),
        Just(0.1),
        Just(-2.5),
        1e-3f64..1e3,
        -1e6f64..-1e3
    ]
}

fn times() -> impl Strategy<Value = Vec<(u64, u64)>> {
    proptest::collection::vec((0u64..200, 0u64..200), 2..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn correct_server_passes(score in scores(), number in 0u64..1_000_000, other in -1e3f64..1e3, times in times()) {
        let before = if number == 0 { 0.0 } else { other };
        let mut server = ScoringServer::new(score, number, before);
        for (before, after) in times {
            server.add();
            server.answer(before, after);
        }
        let result = server.judged(&CheckContext::default());
        prop_assert_eq!(result.held, Some(true), "{}", result.detail);
    }

    #[test]
    fn finds_a_lost_number(score in scores(), times in times(), at in any::<prop::sample::Index>()) {
        let mut server = ScoringServer::fresh(score);
        let at = at.index(times.len() - 1) + 1;
        for (i, (before, after)) in times.into_iter().enumerate() {
            server.add();
            server.number -= u64::from(i == at);
            server.answer(before, after);
        }
        let detail = server.detail();
        prop_assert!(detail.contains("at least 1 in numberOfTrials, 0 in totalScore"), "{}", detail);
        prop_assert!(detail.contains("1 number occurs more than once"), "{}", detail);
        prop_assert!(detail.contains("1 score too high"), "{}", detail);
    }

    #[test]
    fn finds_a_lost_total(score in scores(), times in times(), at in any::<prop::sample::Index>()) {
        let mut server = ScoringServer::fresh(score);
        let (at, n) = (at.index(times.len()), times.len());
        for (i, (before, after)) in times.into_iter().enumerate() {
            server.number += 1;
            if i != at {
                server.total += score;
            }
            server.answer(before, after);
        }
        let wrong = n - at;
        let detail = server.detail();
        prop_assert!(detail.contains(&format!("{wrong} total{} not", if wrong == 1 { " is" } else { "s are" })), "{}", detail);
        prop_assert!(detail.contains("1 score too low"), "{}", detail);
        prop_assert!(!detail.contains("more than once") && !detail.contains("missing"), "{}", detail);
    }

    #[test]
    fn finds_an_update_lost_in_both(score in scores(), times in times(), at in any::<prop::sample::Index>()) {
        let mut server = ScoringServer::fresh(score);
        let at = at.index(times.len() - 1) + 1;
        for (i, (before, after)) in times.into_iter().enumerate() {
            if i != at {
                server.add();
            }
            server.answer(before, after);
        }
        let detail = server.detail();
        prop_assert!(detail.contains("at least 1 in numberOfTrials, 1 in totalScore"), "{}", detail);
        prop_assert!(!detail.contains("total is not") && !detail.contains("totals are not"), "{}", detail);
    }

    #[test]
    fn missing_response_is_a_gap_unless_its_outcome_is_unknown(score in scores(), n in 2usize..50) {
        let history = || {
            let mut server = ScoringServer::fresh(score);
            server.serve(n);
            server.add();
            server.serve(n);
            server
        };
        prop_assert!(history().detail().contains("1 number is missing"));
        let context = CheckContext { unknown: 1, ..CheckContext::default() };
        prop_assert_eq!(history().judged(&context).held, Some(true));
    }

    #[test]
    fn finds_a_total_that_is_not_a_number_of_scores(score in scores(), n in 1usize..50, part in 0.3f64..0.7) {
        let mut server = ScoringServer::fresh(score);
        server.serve(n);
        server.total += part * score;
        server.serve(1);
        let number = server.number;
        let words = format!("with number {number}");
        let detail = server.detail();
        prop_assert!(detail.contains("1 total is not") && detail.contains(&words), "{}", detail);
    }
}

#[test]
fn describes_success() {
    let mut server = ScoringServer::fresh(10.0);
    server.serve(200_000);
    let result = server.judged(&CheckContext::default());
    assert_eq!((result.name.as_str(), result.held), ("scoring", Some(true)));
    assert_eq!(
        result.detail,
        "200,000 numbers from 1 to 200,000: each once, no gaps, in order; totals are 10 × the number; averages are total / number"
    );
    let mut server = ScoringServer::new(2.5, 4, 7.0);
    server.serve(2);
    assert_eq!(
        server.judged(&CheckContext::default()).detail,
        "2 numbers from 5 to 6: each once, no gaps, in order; totals are 7 + 2.5 for each number from 5; averages are total / number"
    );
}

#[test]
fn describes_each_kind_of_fault() {
    let mut server = ScoringServer::fresh(10.0);
    server.serve(1);
    // Lose the number, then the total, and then both.
    server.total += 10.0;
    server.answer(5, 5);
    server.number += 1;
    server.answer(5, 5);
    (server.number, server.total) = (1, 10.0);
    server.serve(1);
    server.total += 0.5;
    server.serve(1);
    server.scored.wrong_averages = 2;
    server.scored.first_wrong_averages = vec!["20 for 20 / 1".to_owned()];
    let context = CheckContext {
        unreadable: 1,
        ..CheckContext::default()
    };
    let result = server.judged(&context);
    assert_eq!(result.held, Some(false));
    assert_eq!(
        result.detail,
        "lost updates among 5 scores: at least 2 in numberOfTrials, 2 in totalScore; 2 numbers occur more than once \
         (1, 2); 2 totals are not 10 × the number (20 with number 1, 1 score too high, 30.5 with number 3); 2 averages are not the total divided by the number \
         (first: 20 for 20 / 1); 1 response with status 2xx or 3xx lacked averageScore, totalScore or numberOfTrials"
    );
}

#[test]
fn fresh_server_starts_at_0() {
    for (total, words) in [
        (
            20.0,
            "3 totals are not 10 × the number (30 with number 1, 2 scores too high, 40",
        ),
        (
            5.0,
            "3 totals are not 5 + 10 for each number from 1 (15 with number 1, 25 with",
        ),
    ] {
        let mut server = ScoringServer::new(10.0, 0, total);
        server.serve(3);
        let detail = server.detail();
        assert!(detail.contains(words), "{detail}");
    }
}

#[test]
fn is_not_evaluated_without_responses() {
    let result = ScoringServer::fresh(10.0).judged(&CheckContext::default());
    assert_eq!(result.held, None);
    assert_eq!(
        result.detail,
        "no response had a score, so there is nothing to check"
    );
}
