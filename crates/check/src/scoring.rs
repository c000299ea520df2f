//! `scoring`: were scores added up as by one that counts them all?
//!
//! **What must hold.** The server keeps how many scores it was sent and their sum, and answers each with both, and with their mean, as
//! they are after it. Its numbers are those of a counter ([`crate::order`]). Where every request adds the same score `s`, the total that
//! goes with number `n` is `s · n` and what was there before: the same difference in all answers, and none where number 1 was among them. A
//! mean is `total / n`.
//!
//! **Lost updates.** A server that reads, adds and writes without a lock loses what others wrote in between. Numbers then come twice,
//! and fewer are used than were answered; totals fall behind in the same way, but seldom at the same moments, so that they
//! no longer go with their numbers. Both are counted.

use floodmark_record::kept::{KeptScore, Line, SHOWN, Scored};
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::order::{self, Beside, Found, listed, scan, show};

/// Judges what a scoring server answered, `answers` in any order; exact, O(n log n) in time and O(1) beyond the answers in memory,
/// which are sorted in place. `line` is what their totals are held against, `scored` what the load process said of them.
///
/// Without a single answer it does not hold: nothing was shown.
#[must_use]
pub fn scoring(
    answers: &mut [KeptScore],
    line: Line,
    scored: &Scored,
    beside: &Beside<'_>,
) -> CheckResult {
    answers.sort_unstable_by_key(|a| (a.number(), a.sent_ns(), a.done_ns(), a.distance()));
    let found = scan(answers);
    let strays = Strays::of(answers, line);
    let mut faults = Vec::from_iter(lost(&found, &strays, answers.len() as u64));
    faults.extend(order::faults(&found, beside));
    faults.extend(strays.fault(line, scored));
    if scored.wrong_averages > 0 {
        let shown = &scored.first_wrong_averages;
        faults.push(format!(
            "{} not the total divided by the number ({})",
            count(scored.wrong_averages, "average is", "averages are"),
            listed(
                shown.iter().take(SHOWN).cloned(),
                shown.len() as u64 == scored.wrong_averages
            )
        ));
    }
    if beside.unreadable > 0 {
        faults.push(format!(
            "{} averageScore, totalScore and numberOfTrials",
            count(
                beside.unreadable,
                "ok answer did not say",
                "ok answers did not say"
            )
        ));
    }
    if found.range.is_none() && faults.is_empty() {
        faults.push("no score was answered, so there is nothing to check".to_owned());
    }
    let held = faults.is_empty();
    if held {
        faults.push(order::success(&found, answers.len(), beside.unknown));
        faults.push(format!("totals are {}", strays.rule(line)));
        faults.push("averages are total / number".to_owned());
    }
    CheckResult {
        name: "scoring".to_owned(),
        held,
        detail: faults.join("; "),
    }
}

/// Totals that do not go with their numbers.
#[derive(Debug, Default)]
struct Strays {
    /// The distance that right totals have; none where number 1's total already is no whole number of scores.
    right: Option<i32>,
    /// How many have another.
    wrong: u64,
    /// Number and distance of the first.
    first: Vec<(u64, Option<i32>)>,
    /// Totals that are whole numbers of scores, and the smallest and largest of these numbers.
    whole: u64,
    range: Option<(i128, i128)>,
}

impl Strays {
    /// Of answers that are sorted by number.
    fn of(answers: &[KeptScore], line: Line) -> Self {
        let Some(first) = answers.first() else {
            return Strays::default();
        };
        let mut strays = Strays {
            // Before number 1 there was nothing.
            right: match first.number() {
                1 => line.from_zero(),
                _ => answers.iter().find_map(KeptScore::distance),
            },
            ..Strays::default()
        };
        for answer in answers {
            let distance = answer.distance();
            if distance.is_none() || distance != strays.right {
                strays.wrong += 1;
                show(&mut strays.first, (answer.number(), distance));
            }
            if let Some(distance) = distance {
                strays.whole += 1;
                let sum = i128::from(answer.number()) + i128::from(distance);
                let (low, high) = strays.range.unwrap_or((sum, sum));
                strays.range = Some((low.min(sum), high.max(sum)));
            }
        }
        strays
    }

    /// "10 × the number, and 25".
    fn rule(&self, line: Line) -> String {
        let product = format!("{} × the number", line.score);
        if self.right.is_some() && self.right == line.from_zero() {
            return product;
        }
        let before = line.total(f64::from(self.right.unwrap_or_default()));
        format!("{product}, and {before} from before")
    }

    /// What is wrong with the totals.
    fn fault(&self, line: Line, scored: &Scored) -> Option<String> {
        if self.wrong == 0 {
            return None;
        }
        let mut strange = scored.first_strange_totals.iter();
        let mut shown = |number: u64| strange.find(|total| total.number == number);
        let examples = self.first.iter().filter_map(|(number, distance)| {
            let Some(distance) = distance else {
                let total = shown(*number)?.total;
                return Some(format!("{total} with number {}", show_count(*number)));
            };
            let total = line.total(*number as f64 + f64::from(*distance));
            let off = i64::from(*distance) - i64::from(self.right.unwrap_or_default());
            let scores = count(off.unsigned_abs(), "score", "scores");
            let way = if off < 0 { "short" } else { "over" };
            Some(match self.right {
                Some(_) => format!(
                    "{total} with number {}, {scores} {way}",
                    show_count(*number)
                ),
                None => format!("{total} with number {}", show_count(*number)),
            })
        });
        Some(format!(
            "{} not {} ({})",
            count(self.wrong, "total is", "totals are"),
            self.rule(line),
            listed(examples, self.first.len() < SHOWN)
        ))
    }
}

/// How many of the scores are in no number or in no total.
fn lost(found: &Found, strays: &Strays, answered: u64) -> Option<String> {
    let beyond = |n: u64, range: Option<(i128, i128)>| {
        range.map_or(0, |(low, high)| (i128::from(n) - (high - low + 1)).max(0)) as u64
    };
    let of_numbers = beyond(answered, found.range.map(|(a, b)| (a.into(), b.into())));
    let of_totals = beyond(strays.whole, strays.range);
    (of_numbers + of_totals > 0).then(|| {
        format!(
            "of {} at least {} lost in numberOfTrials and {} in totalScore",
            count(answered, "answered score", "answered scores"),
            count_are(of_numbers),
            show_count(of_totals)
        )
    })
}

fn count_are(n: u64) -> String {
    match n {
        1 => "1 was".to_owned(),
        n => format!("{} were", show_count(n)),
    }
}

fn count(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", show_count(n), if n == 1 { one } else { many })
}

#[cfg(test)]
#[path = "scoring_tests.rs"]
mod tests;
