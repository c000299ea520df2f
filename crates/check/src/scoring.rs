//! The `scoring` check: the server must add up scores without losing any.
//!
//! The server keeps the number of scores and their total. After adding a score, the server returns
//! the number, the total and the mean. The numbers are those of a counter ([`crate::counter`]).
//! Every request adds the same score `s`. The total returned with number `n` is therefore `s · n`
//! plus the initial total. The initial total is 0 if number 1 is among the responses. The mean is
//! `total / n`.
//!
//! A server that reads, adds and writes without a lock loses concurrent updates. Numbers then
//! repeat, so there are fewer distinct numbers than responses. The total and the number lose
//! different updates, so the total no longer matches the number. The check counts both kinds of
//! lost updates.

use floodmark_record::kept::{KeptScore, SHOWN, ScoringSummary, TotalLine};
use floodmark_record::run::CheckResult;
use floodmark_record::units::show_count;

use crate::counter::{self, CheckContext, NumberScan, scan};
use crate::responses::DrawnNumber;
use crate::result::{count, fault};

/// Checks the responses of a scoring server. The responses may be in any order.
///
/// The result is exact. The check sorts the responses in place, which takes O(n log n) time and
/// O(1) extra memory. `line` gives the expected total for each number. `scored` is the summary from
/// the load process.
///
/// The check is not evaluated if there are no responses.
#[must_use]
pub fn scoring(
    scores: &mut [KeptScore],
    line: TotalLine,
    scored: &ScoringSummary,
    context: &CheckContext<'_>,
) -> CheckResult {
    scores.sort_unstable_by_key(|a| (a.number(), a.sent_ns(), a.done_ns(), a.distance()));
    let scan = scan(scores, |score| DrawnNumber {
        number: score.number(),
        sent_ns: score.sent_ns(),
        done_ns: score.done_ns(),
    });
    let totals = TotalScan::of(scores, line);
    let mut faults = Vec::from_iter(lost(&scan, &totals, scores.len() as u64));
    faults.extend(counter::faults(&scan, context));
    faults.extend(totals.fault(line, scored));
    let averages = &scored.first_wrong_averages;
    faults.extend(fault(
        scored.wrong_averages,
        ["average is", "averages are"],
        "not the total divided by the number",
        averages,
        averages.len() as u64 == scored.wrong_averages,
    ));
    if context.unreadable > 0 {
        faults.push(count(
            context.unreadable,
            "response with status 2xx or 3xx lacked averageScore, totalScore or numberOfTrials",
            "responses with status 2xx or 3xx lacked averageScore, totalScore or numberOfTrials",
        ));
    }
    counter::counter_result("scoring", "a score", &scan, &faults, || {
        let numbers = counter::success(&scan, scores.len(), context.unknown);
        let totals = totals.rule(line);
        format!("{numbers}; totals are {totals}; averages are total / number")
    })
}

/// Result of a scan of the totals.
#[derive(Debug, Default)]
struct TotalScan {
    /// Lowest number of the scores; 1 if there are none.
    lowest: u64,
    /// Expected distance of the totals from the line, in scores. `None` if no distance is an
    /// integer number of scores.
    expected: Option<i32>,
    /// Number of totals whose distance from the line is not `expected`.
    wrong: u64,
    /// The first wrong totals, as pairs of number and distance.
    first: Vec<(u64, Option<i32>)>,
    /// Number of totals whose distance from the line is an integer number of scores.
    whole: u64,
    /// Smallest and largest of these totals, in scores.
    range: Option<(i128, i128)>,
}

impl TotalScan {
    /// Scans scores sorted by number.
    fn of(scores: &[KeptScore], line: TotalLine) -> Self {
        let mut scan = TotalScan {
            lowest: scores.first().map_or(1, KeptScore::number),
            expected: match scores.first().map(KeptScore::number) {
                Some(1) => line.from_zero(),
                _ => scores.iter().find_map(KeptScore::distance),
            },
            ..TotalScan::default()
        };
        for score in scores {
            let distance = score.distance();
            if distance.is_none() || distance != scan.expected {
                scan.wrong += 1;
                if scan.first.len() < SHOWN {
                    scan.first.push((score.number(), distance));
                }
            }
            if let Some(distance) = distance {
                scan.whole += 1;
                let sum = i128::from(score.number()) + i128::from(distance);
                let (low, high) = scan.range.unwrap_or((sum, sum));
                scan.range = Some((low.min(sum), high.max(sum)));
            }
        }
        scan
    }

    /// Describes correct totals: "10 × the number", or "25 + 10 for each number from 4".
    fn rule(&self, line: TotalLine) -> String {
        if self.expected.is_some() && self.expected == line.from_zero() {
            return format!("{} × the number", line.score);
        }
        let lowest = self.lowest;
        let earlier = lowest as f64 - 1.0 + f64::from(self.expected.unwrap_or_default());
        let (before, score) = (line.total(earlier), line.score);
        format!(
            "{before} + {score} for each number from {}",
            show_count(lowest)
        )
    }

    /// Describes wrong totals.
    fn fault(&self, line: TotalLine, scored: &ScoringSummary) -> Option<String> {
        let mut strange = scored.first_strange_totals.iter();
        let examples = self.first.iter().filter_map(|(number, distance)| {
            let shown = show_count(*number);
            let Some(distance) = distance else {
                let total = strange.find(|total| total.number == *number)?.total;
                return Some(format!("{total} with number {shown}"));
            };
            let total = line.total(*number as f64 + f64::from(*distance));
            let difference = self.expected.map_or_else(String::new, |expected| {
                let difference = i64::from(*distance) - i64::from(expected);
                let scores = count(difference.unsigned_abs(), "score", "scores");
                let direction = if difference < 0 { "low" } else { "high" };
                format!(", {scores} too {direction}")
            });
            Some(format!("{total} with number {shown}{difference}"))
        });
        fault(
            self.wrong,
            ["total is", "totals are"],
            &format!("not {}", self.rule(line)),
            &Vec::from_iter(examples),
            self.first.len() < SHOWN,
        )
    }
}

/// Describes how many updates the numbers and the totals lost.
fn lost(numbers: &NumberScan, totals: &TotalScan, responses: u64) -> Option<String> {
    let missing = |n: u64, range: Option<(i128, i128)>| {
        range.map_or(0, |(low, high)| (i128::from(n) - (high - low + 1)).max(0)) as u64
    };
    let in_numbers = missing(responses, numbers.range.map(|(a, b)| (a.into(), b.into())));
    let in_totals = missing(totals.whole, totals.range);
    (in_numbers + in_totals > 0).then(|| {
        format!(
            "lost updates among {}: at least {} in numberOfTrials, {} in totalScore",
            count(responses, "score", "scores"),
            show_count(in_numbers),
            show_count(in_totals)
        )
    })
}

#[cfg(test)]
#[path = "scoring_tests.rs"]
mod tests;
