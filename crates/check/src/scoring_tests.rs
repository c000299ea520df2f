//! Tests of [`super`]: on simulated servers, honest and not, and of its words.

use floodmark_record::kept::StrangeTotal;
use proptest::prelude::*;

use super::*;

/// A server that is asked one score after the other, with what it answered.
struct Server {
    score: f64,
    number: u64,
    total: f64,
    line: Option<Line>,
    answers: Vec<KeptScore>,
    scored: Scored,
    moment: u64,
}

impl Server {
    fn new(score: f64, number: u64, total: f64) -> Self {
        Server {
            score,
            number,
            total,
            line: None,
            answers: Vec::new(),
            scored: Scored::default(),
            moment: 1_000,
        }
    }

    /// One that was never asked before.
    fn fresh(score: f64) -> Self {
        Server::new(score, 0, 0.0)
    }

    /// Answers with the figures as they are, as if asked `before` and answered `after` its moment, ns.
    fn answer(&mut self, before: u64, after: u64) {
        self.moment += 10;
        let (score, number, total) = (self.score, self.number, self.total);
        let line = self
            .line
            .get_or_insert_with(|| Line::through(score, number, total));
        let distance = line.distance(number, total);
        if distance.is_none() {
            self.scored.strange(StrangeTotal { number, total });
        }
        let sent = self.moment.saturating_sub(before);
        self.answers
            .push(KeptScore::new(number, distance, sent, self.moment + after));
    }

    /// Counts a score, as it should.
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

    fn judged(mut self, beside: &Beside<'_>) -> CheckResult {
        // As answers of several threads come.
        self.answers.sort_by_key(|a| a.done_ns() % 7);
        let line = self.line.unwrap_or(Line::through(self.score, 0, 0.0));
        scoring(&mut self.answers, line, &self.scored, beside)
    }

    fn detail(self) -> String {
        let result = self.judged(&Beside::default());
        assert!(!result.held, "{}", result.detail);
        result.detail
    }
}

/// What a score, a start and a history may be.
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
    fn an_honest_server_is_never_flagged(score in scores(), number in 0u64..1_000_000, other in -1e3f64..1e3, times in times()) {
        let before = if number == 0 { 0.0 } else { other };
        let mut server = Server::new(score, number, before);
        for (before, after) in times {
            server.add();
            server.answer(before, after);
        }
        let result = server.judged(&Beside::default());
        prop_assert!(result.held, "{}", result.detail);
    }

    #[test]
    fn a_lost_number_is_found(score in scores(), times in times(), at in any::<prop::sample::Index>()) {
        let mut server = Server::fresh(score);
        let at = at.index(times.len() - 1) + 1;
        for (i, (before, after)) in times.into_iter().enumerate() {
            server.add();
            server.number -= u64::from(i == at);
            server.answer(before, after);
        }
        let detail = server.detail();
        prop_assert!(detail.contains("at least 1 was lost in numberOfTrials and 0 in totalScore"), "{}", detail);
        prop_assert!(detail.contains("1 number was handed out more than once"), "{}", detail);
        prop_assert!(detail.contains("1 score over"), "{}", detail);
    }

    #[test]
    fn a_lost_total_is_found(score in scores(), times in times(), at in any::<prop::sample::Index>()) {
        let mut server = Server::fresh(score);
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
        prop_assert!(detail.contains("1 score short"), "{}", detail);
        prop_assert!(!detail.contains("handed out"), "{}", detail);
    }

    #[test]
    fn an_update_lost_in_both_is_found(score in scores(), times in times(), at in any::<prop::sample::Index>()) {
        let mut server = Server::fresh(score);
        let at = at.index(times.len() - 1) + 1;
        for (i, (before, after)) in times.into_iter().enumerate() {
            if i != at {
                server.add();
            }
            server.answer(before, after);
        }
        let detail = server.detail();
        prop_assert!(detail.contains("at least 1 was lost in numberOfTrials and 1 in totalScore"), "{}", detail);
        prop_assert!(!detail.contains("total is not") && !detail.contains("totals are not"), "{}", detail);
    }

    #[test]
    fn a_score_nobody_answered_is_a_gap_unless_its_request_is_unknown(score in scores(), n in 2usize..50) {
        let history = || {
            let mut server = Server::fresh(score);
            server.serve(n);
            server.add();
            server.serve(n);
            server
        };
        prop_assert!(history().detail().contains("1 number was never handed out"));
        let beside = Beside { unknown: 1, ..Beside::default() };
        prop_assert!(history().judged(&beside).held);
    }

    #[test]
    fn a_total_that_no_score_explains_is_found(score in scores(), n in 1usize..50, part in 0.3f64..0.7) {
        let mut server = Server::fresh(score);
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
fn success_reads_plainly() {
    let mut server = Server::fresh(10.0);
    server.serve(200_000);
    let result = server.judged(&Beside::default());
    assert_eq!((result.name.as_str(), result.held), ("scoring", true));
    assert_eq!(
        result.detail,
        "200,000 numbers, 1 to 200,000, each once, no gap, in order; totals are 10 × the number; averages are total / number"
    );
    let mut server = Server::new(2.5, 4, 7.0);
    server.serve(2);
    assert_eq!(
        server.judged(&Beside::default()).detail,
        "2 numbers, 5 to 6, each once, no gap, in order; totals are 2.5 × the number, and -3 from before; averages are total / number"
    );
}

#[test]
fn each_kind_of_fault_is_counted_and_its_first_offenders_shown() {
    let mut server = Server::fresh(10.0);
    server.serve(1);
    // The number is lost, then the total, then both go back to what another thread had read.
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
    let beside = Beside {
        unreadable: 1,
        ..Beside::default()
    };
    let result = server.judged(&beside);
    assert!(!result.held);
    assert_eq!(
        result.detail,
        "of 5 answered scores at least 2 were lost in numberOfTrials and 2 in totalScore; 2 numbers were handed out more than once \
         (1, 2); 2 totals are not 10 × the number (20 with number 1, 1 score over, 30.5 with number 3); 2 averages are not the total divided by the number \
         (first: 20 for 20 / 1); 1 ok answer did not say averageScore, totalScore and numberOfTrials"
    );
}

#[test]
fn a_fresh_server_starts_at_nothing() {
    for (total, words) in [
        (
            20.0,
            "3 totals are not 10 × the number (30 with number 1, 2 scores over, 40",
        ),
        (
            5.0,
            "3 totals are not 10 × the number, and 5 from before (15 with number 1, 25 with",
        ),
    ] {
        let mut server = Server::new(10.0, 0, total);
        server.serve(3);
        let detail = server.detail();
        assert!(detail.contains(words), "{detail}");
    }
}

#[test]
fn a_check_of_nothing_does_not_hold() {
    let detail = Server::fresh(10.0).detail();
    assert_eq!(
        detail,
        "no score was answered, so there is nothing to check"
    );
}
