//! Whether, and where, a growing rate goes beyond what the server answers.

use floodmark_record::profile::Ramp;
use floodmark_record::run::{FellBehind, Saturation};

use crate::steady::SHORTEST_ROW_S;

/// A second falls behind when fewer than this share of the requests due in it were answered ok. Below a twentieth, chance and the
/// ends of rows weigh as much.
pub const KEPT_UP_SHARE: f64 = 0.95;

/// And when that many standard deviations of a Poisson count are missing.
const BY_CHANCE: f64 = 2.0;

/// Fewest seconds that say anything of a ramp: one may be a stall.
const FEWEST_ROWS: usize = 2;

/// One row of a run's series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Begin, seconds from the start of the measurement.
    pub from_s: f64,
    /// End.
    pub to_s: f64,
    /// Ok answers.
    pub ok: u64,
    /// Median response time, microseconds; none where nothing was answered, or less than half of what ended.
    pub p50_us: Option<f64>,
}

/// Whether fewer requests were answered than were due from some second on, to the end of the ramp; none where the rate does not
/// grow. `expected_by` gives the requests due up to a moment in seconds.
///
/// What is due in a row is taken one response time earlier, the smallest median of all rows: on a growing rate even a server
/// that answers everything is that much behind. Response times that grow are not allowed for, since they are what is looked for,
/// and where no row has a median nothing is: then more went unanswered than was answered.
#[must_use]
pub fn saturation(
    ramp: &Ramp,
    rows: &[Row],
    expected_by: impl Fn(f64) -> f64,
) -> Option<Saturation> {
    if ramp.to_per_s <= ramp.from_per_s {
        return None;
    }
    let rows: Vec<&Row> = rows
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
    let least_us = rows.iter().filter_map(|row| row.p50_us).reduce(f64::min);
    let answer_s = least_us.unwrap_or(0.0) / 1e6;
    let behind = |row: &&&Row| {
        let due = expected_by(row.to_s - answer_s) - expected_by(row.from_s - answer_s);
        let missing = due - row.ok as f64;
        missing > (1.0 - KEPT_UP_SHARE) * due && missing > BY_CHANCE * due.sqrt()
    };
    let rate_at =
        |at_s: f64| ramp.from_per_s + (ramp.to_per_s - ramp.from_per_s) * at_s / ramp.duration_s;
    let earlier = match least_us {
        Some(_) => format!(
            " ({:.3} ms before, the smallest median response time)",
            answer_s * 1e3
        ),
        None => String::new(),
    };
    let share = KEPT_UP_SHARE * 100.0;
    let n = rows.iter().rev().take_while(behind).count();
    match n {
        0 if last.p50_us.is_none() => undecided("its last second has too few answers"),
        0 => Some(Saturation::KeptUp {
            up_to_per_s: rate_at(last.to_s),
            method: format!(
                "in its last second {share:.0} % or more of the requests due{earlier} were answered ok, but for chance (two \
                 standard deviations)"
            ),
        }),
        _ if n < FEWEST_ROWS => undecided("only its last second fell behind, which may be a stall"),
        _ => {
            let since = &rows[rows.len() - n..];
            let from_s = since[0].from_s;
            let ok: u64 = since.iter().map(|row| row.ok).sum();
            Some(Saturation::FellBehind(FellBehind {
                at_s: from_s,
                offered_per_s: rate_at(from_s),
                achieved_per_s: ok as f64 / (last.to_s - from_s),
                method: format!(
                    "from this second to the end of the ramp each had fewer ok answers than {share:.0} % of the requests \
                     due{earlier} and than chance explains (two standard deviations)"
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

    /// Rows of a server that answers `answered_by(t)` requests by t, within `p50_us`.
    fn rows(p50_us: f64, answered_by: impl Fn(f64) -> f64) -> Vec<Row> {
        (0..20)
            .map(|second| {
                let from_s = f64::from(second);
                Row {
                    from_s,
                    to_s: from_s + 1.0,
                    ok: (answered_by(from_s + 1.0) - answered_by(from_s)).round() as u64,
                    p50_us: Some(p50_us),
                }
            })
            .collect()
    }

    fn fell_behind(rows: &[Row]) -> FellBehind {
        match saturation(&RAMP, rows, by) {
            Some(Saturation::FellBehind(found)) => found,
            other => panic!("{other:?}"),
        }
    }

    /// Up to which rate it was kept up with.
    fn kept_up(ramp: &Ramp, rows: &[Row], by: impl Fn(f64) -> f64) -> Option<f64> {
        match saturation(ramp, rows, by) {
            Some(Saturation::KeptUp { up_to_per_s, .. }) => Some(up_to_per_s),
            _ => None,
        }
    }

    fn undecided(rows: &[Row]) -> String {
        match saturation(&RAMP, rows, by) {
            Some(Saturation::Undecided { why }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_server_with_a_limit() {
        let limited = |at: f64| {
            if at < 12.0 {
                by(at)
            } else {
                by(12.0) + 600.0 * (at - 12.0)
            }
        };
        let found = fell_behind(&rows(200.0, limited));
        // At 600/s; a second of rate growing by 50/s is needed to miss a twentieth of it.
        assert!((12.0..=13.0).contains(&found.at_s), "{found:?}");
        assert!((600.0..=650.0).contains(&found.offered_per_s), "{found:?}");
        assert!((found.achieved_per_s - 600.0).abs() < 2.0, "{found:?}");
        assert!(found.method.contains("95 %") && found.method.contains("0.200 ms"));
    }

    #[test]
    fn a_server_that_keeps_up_however_slowly_it_answers() {
        for delay_s in [0.0, 0.01, 0.5, 2.0] {
            let slow = |at: f64| by(at - delay_s);
            let found = kept_up(&RAMP, &rows(delay_s * 1e6, slow), by);
            assert_eq!(found, Some(1000.0), "{delay_s}");
        }
    }

    #[test]
    fn a_stall_that_is_made_up_for_is_no_limit() {
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
    fn chance_is_no_limit() {
        let few = Ramp {
            to_per_s: 20.0,
            ..RAMP
        };
        let by = |at: f64| by(at) / 50.0;
        // Three of each second's few requests missing.
        let mut rows = rows(100.0, by);
        rows.iter_mut()
            .for_each(|row| row.ok = row.ok.saturating_sub(3));
        assert_eq!(kept_up(&few, &rows, by), Some(20.0));
    }

    #[test]
    fn one_second_at_the_end_may_be_a_stall() {
        let mut rows = rows(100.0, by);
        rows[19].ok /= 2;
        assert!(undecided(&rows).contains("stall"));
    }

    #[test]
    fn a_ramp_that_was_cut_short_was_kept_up_with_as_far_as_it_came() {
        let rows = rows(100.0, by);
        assert_eq!(kept_up(&RAMP, &rows[..10], by), Some(500.0));
        assert!(undecided(&rows[..1]).contains("too few whole seconds"));
        assert!(undecided(&[]).contains("too few whole seconds"));
    }

    #[test]
    fn a_falling_rate_says_nothing() {
        let down = Ramp {
            from_per_s: 1000.0,
            to_per_s: 0.0,
            ..RAMP
        };
        assert_eq!(saturation(&down, &rows(100.0, |_| 0.0), by), None);
    }

    #[test]
    fn a_server_that_mostly_does_not_answer_is_behind() {
        for answered in [0.0, 0.4] {
            let mut rows = rows(100.0, |at| answered * by(at));
            // More than half of what ended was given up, so that no second has a median.
            rows.iter_mut().for_each(|row| row.p50_us = None);
            let found = fell_behind(&rows);
            assert!(found.at_s <= 1.0, "{found:?}");
            assert!(found.achieved_per_s <= answered * 550.0, "{found:?}");
            assert!(!found.method.contains("median"), "{found:?}");
        }
    }

    #[test]
    fn silence_that_chance_explains_is_not_kept_up_with() {
        let few = Ramp {
            to_per_s: 3.0,
            ..RAMP
        };
        let mut silent = rows(100.0, |_| 0.0);
        silent.iter_mut().for_each(|row| row.p50_us = None);
        let found = saturation(&few, &silent, |at| by(at) * 0.003);
        assert!(
            matches!(&found, Some(Saturation::Undecided { why }) if why.contains("too few answers")),
            "{found:?}"
        );
    }
}
