//! Finds the rate at which the server falls behind during a rising ramp.

use floodmark_record::plan::Ramp;
use floodmark_record::run::{FellBehind, Saturation};

use crate::steady::SHORTEST_ROW_S;

/// Minimum ratio of ok responses to due requests per second for a server that keeps up.
/// Smaller shortfalls may be noise.
pub const KEPT_UP_SHARE: f64 = 0.95;

/// Minimum shortfall per second for a server that falls behind, in standard deviations of a
/// Poisson count.
const BY_CHANCE: f64 = 2.0;

/// Minimum number of seconds for a judgment. A single second may contain a stall.
const FEWEST_ROWS: usize = 2;

/// One row of a run's series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RampRow {
    /// Start in seconds from the start of the run.
    pub from_s: f64,
    /// End in seconds from the start of the run.
    pub to_s: f64,
    /// Number of ok responses.
    pub ok: u64,
    /// Median response time in µs; `None` if less than half of the ended requests had a response.
    pub p50_us: Option<f64>,
}

/// Returns whether the server fell behind by the end of the ramp; `None` if the rate does not grow.
///
/// `expected_by` returns the number of requests due by a given time, in seconds. Due requests are
/// counted one response time earlier, because responses lag behind the rising rate by that time.
/// The smallest median of all rows is used as the response time. Increasing response times are not
/// compensated for, because they are a sign of saturation.
#[must_use]
pub fn saturation(
    ramp: &Ramp,
    rows: &[RampRow],
    expected_by: impl Fn(f64) -> f64,
) -> Option<Saturation> {
    if ramp.to_per_s <= ramp.from_per_s {
        return None;
    }
    let rows: Vec<&RampRow> = rows
        .iter()
        .filter(|row| row.to_s - row.from_s >= SHORTEST_ROW_S && row.to_s <= ramp.duration_s + 1e-9)
        .collect();
    let undecided = |why: &str| {
        Some(Saturation::Undecided {
            why: why.to_owned(),
        })
    };
    let Some(last) = rows.last().filter(|_| rows.len() >= FEWEST_ROWS) else {
        return undecided("the ramp has too few whole seconds");
    };
    let shortest_us = rows.iter().filter_map(|row| row.p50_us).reduce(f64::min);
    let response_s = shortest_us.unwrap_or(0.0) / 1e6;
    let behind = |row: &&&RampRow| {
        let due = expected_by(row.to_s - response_s) - expected_by(row.from_s - response_s);
        let missing = due - row.ok as f64;
        missing > (1.0 - KEPT_UP_SHARE) * due && missing > BY_CHANCE * due.sqrt()
    };
    let rate_at =
        |at_s: f64| ramp.from_per_s + (ramp.to_per_s - ramp.from_per_s) * at_s / ramp.duration_s;
    let earlier = shortest_us.map_or_else(String::new, |_| {
        let response_ms = response_s * 1e3;
        format!(" {response_ms:.3} ms earlier (the smallest median response time)")
    });
    let share = KEPT_UP_SHARE * 100.0;
    let n = rows.iter().rev().take_while(behind).count();
    match n {
        0 if last.p50_us.is_none() => undecided("the last second has too few responses"),
        0 => Some(Saturation::KeptUp {
            up_to_per_s: rate_at(last.to_s),
            method: format!(
                "in its last second, at least {share:.0} % of the requests due{earlier} were ok, or the shortfall \
                 was at most two standard deviations"
            ),
        }),
        _ if n < FEWEST_ROWS => {
            undecided("the server fell behind only in the last second, possibly because of a stall")
        }
        _ => {
            let since = &rows[rows.len() - n..];
            let from_s = since[0].from_s;
            let ok: u64 = since.iter().map(|row| row.ok).sum();
            Some(Saturation::FellBehind(FellBehind {
                at_s: from_s,
                offered_per_s: rate_at(from_s),
                achieved_per_s: ok as f64 / (last.to_s - from_s),
                method: format!(
                    "in each second from then to the end, fewer than {share:.0} % of the requests due{earlier} \
                     were ok, and the shortfall exceeded two standard deviations"
                ),
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAMP: Ramp = Ramp {
        from_per_s: 0.0,
        to_per_s: 1000.0,
        duration_s: 20.0,
    };

    fn by(at_s: f64) -> f64 {
        let at_s = at_s.clamp(0.0, RAMP.duration_s);
        25.0 * at_s * at_s
    }

    /// Returns the rows of a server that has answered `answered_by(t)` requests by time `t`.
    /// The median response time is `p50_us`.
    fn rows(p50_us: f64, answered_by: impl Fn(f64) -> f64) -> Vec<RampRow> {
        (0..20)
            .map(|second| {
                let from_s = f64::from(second);
                RampRow {
                    from_s,
                    to_s: from_s + 1.0,
                    ok: (answered_by(from_s + 1.0) - answered_by(from_s)).round() as u64,
                    p50_us: Some(p50_us),
                }
            })
            .collect()
    }

    fn fell_behind(rows: &[RampRow]) -> FellBehind {
        match saturation(&RAMP, rows, by) {
            Some(Saturation::FellBehind(found)) => found,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the rate up to which the server kept up.
    fn kept_up(ramp: &Ramp, rows: &[RampRow], by: impl Fn(f64) -> f64) -> Option<f64> {
        match saturation(ramp, rows, by) {
            Some(Saturation::KeptUp { up_to_per_s, .. }) => Some(up_to_per_s),
            _ => None,
        }
    }

    fn undecided(rows: &[RampRow]) -> String {
        match saturation(&RAMP, rows, by) {
            Some(Saturation::Undecided { why }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn finds_a_limit() {
        let limited = |at: f64| {
            if at < 12.0 {
                by(at)
            } else {
                by(12.0) + 600.0 * (at - 12.0)
            }
        };
        let found = fell_behind(&rows(200.0, limited));
        // The limit is 600/s, and the rate rises by 50/s per second. One second later, a twentieth
        // of the responses is therefore missing.
        assert!((12.0..=13.0).contains(&found.at_s), "{found:?}");
        assert!((600.0..=650.0).contains(&found.offered_per_s), "{found:?}");
        assert!((found.achieved_per_s - 600.0).abs() < 2.0, "{found:?}");
        assert!(found.method.contains("95 %") && found.method.contains("0.200 ms"));
    }

    #[test]
    fn slow_responses_keep_up() {
        for delay_s in [0.0, 0.01, 0.5, 2.0] {
            let slow = |at: f64| by(at - delay_s);
            let found = kept_up(&RAMP, &rows(delay_s * 1e6, slow), by);
            assert_eq!(found, Some(1000.0), "{delay_s}");
        }
    }

    #[test]
    fn recovered_stall_is_not_a_limit() {
        for stalled in [5.0, 17.0, 18.0] {
            let stall = |at: f64| {
                if at == stalled + 1.0 {
                    by(stalled)
                } else {
                    by(at)
                }
            };
            let mut rows = rows(100.0, by);
            let from = rows.iter().position(|row| row.from_s == stalled).unwrap();
            rows[from].ok = (stall(stalled + 1.0) - stall(stalled)) as u64;
            assert_eq!(kept_up(&RAMP, &rows, by), Some(1000.0), "{stalled}");
        }
    }

    #[test]
    fn noise_is_not_a_limit() {
        let few = Ramp {
            to_per_s: 20.0,
            ..RAMP
        };
        let by = |at: f64| by(at) / 50.0;
        // Three responses are missing per second.
        let mut rows = rows(100.0, by);
        rows.iter_mut()
            .for_each(|row| row.ok = row.ok.saturating_sub(3));
        assert_eq!(kept_up(&few, &rows, by), Some(20.0));
    }

    #[test]
    fn last_second_alone_is_undecided() {
        let mut rows = rows(100.0, by);
        rows[19].ok /= 2;
        assert!(undecided(&rows).contains("stall"));
    }

    #[test]
    fn interrupted_ramp_is_judged_up_to_the_interruption() {
        let rows = rows(100.0, by);
        assert_eq!(kept_up(&RAMP, &rows[..10], by), Some(500.0));
        assert!(undecided(&rows[..1]).contains("too few whole seconds"));
        assert!(undecided(&[]).contains("too few whole seconds"));
    }

    #[test]
    fn falling_rate_is_not_judged() {
        let down = Ramp {
            from_per_s: 1000.0,
            to_per_s: 0.0,
            ..RAMP
        };
        assert_eq!(saturation(&down, &rows(100.0, |_| 0.0), by), None);
    }

    #[test]
    fn few_responses_count_as_falling_behind() {
        for answered in [0.0, 0.4] {
            let mut rows = rows(100.0, |at| answered * by(at));
            // More than half of the requests timed out, so no second has a median.
            rows.iter_mut().for_each(|row| row.p50_us = None);
            let found = fell_behind(&rows);
            assert!(found.at_s <= 1.0, "{found:?}");
            assert!(found.achieved_per_s <= answered * 550.0, "{found:?}");
            assert!(!found.method.contains("median"), "{found:?}");
        }
    }

    #[test]
    fn no_response_at_a_low_rate_is_undecided() {
        let few = Ramp {
            to_per_s: 3.0,
            ..RAMP
        };
        let mut silent = rows(100.0, |_| 0.0);
        silent.iter_mut().for_each(|row| row.p50_us = None);
        let found = saturation(&few, &silent, |at| by(at) * 0.003);
        assert!(
            matches!(&found, Some(Saturation::Undecided { why }) if why.contains("too few responses")),
            "{found:?}"
        );
    }
}
