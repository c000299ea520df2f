//! From rows of seconds to curves: steps as wide as what they are of, with gaps where nothing was measured.

use floodmark_record::run::{Run, SeriesRow};

use super::axis::drawable;
use super::chart::Piece;

/// Steps of a curve at most; more than that share a pixel, and would only make the page large.
pub(crate) const MOST_STEPS: usize = 300;

/// Rows that lie closer than this follow each other, seconds.
const ADJACENT_S: f64 = 1e-3;

/// Shorter than this a step has no rate of its own, seconds.
const SLIVER_S: f64 = 0.05;

/// How several seconds become one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Join {
    /// Their mean by length: rates and CPU.
    Mean,
    /// The largest: percentiles, which have no mean. Unknown where one of them is, since that one may be the largest.
    Largest,
}

/// Something that held from one moment to another; none where it was not measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    pub(crate) value: Option<f64>,
}

/// The curve of what `of` says of each row.
pub(crate) fn of_series(
    run: &Run,
    join: Join,
    of: impl Fn(&SeriesRow) -> Option<f64>,
) -> Vec<Piece> {
    let steps: Vec<Step> = run
        .series
        .iter()
        .map(|row| Step {
            from_s: row.from_s,
            to_s: row.to_s,
            value: of(row),
        })
        .collect();
    pieces(run, &joined(&steps, join))
}

/// How many rows make a step of a run's curves, where it is more than one.
pub(crate) fn rows_per_step(rows: usize) -> Option<usize> {
    Some(rows.div_ceil(MOST_STEPS)).filter(|n| *n > 1)
}

/// As many steps as a curve may have.
pub(crate) fn joined(steps: &[Step], join: Join) -> Vec<Step> {
    let sound =
        |step: &Step| drawable(step.from_s) && drawable(step.to_s) && step.to_s > step.from_s;
    let steps = without_slivers(steps.iter().copied().filter(sound), join);
    let each = rows_per_step(steps.len()).unwrap_or(1);
    steps
        .chunks(each)
        .filter_map(|part| one(part, join))
        .collect()
}

/// Steps that are too short for a rate go with the one before: CPU time comes in ticks, and a tick in the last microseconds of a run
/// would be many CPUs. Percentiles of so short a step, such as the wait for the last answers, are of a few requests and must not stand
/// for the whole second before: they are left to the distribution.
fn without_slivers(steps: impl Iterator<Item = Step>, join: Join) -> Vec<Step> {
    let mut kept: Vec<Step> = Vec::new();
    for step in steps {
        match kept.last_mut() {
            Some(last) if step.to_s - step.from_s < SLIVER_S => {
                let value = match (join, step.value) {
                    (Join::Mean, Some(_)) => one(&[*last, step], join).and_then(|both| both.value),
                    (Join::Largest, _) | (_, None) => last.value,
                };
                *last = Step {
                    from_s: last.from_s,
                    to_s: step.to_s,
                    value,
                };
            }
            _ => kept.push(step),
        }
    }
    kept
}

fn one(part: &[Step], join: Join) -> Option<Step> {
    let (first, last) = (part.first()?, part.last()?);
    let value = match join {
        Join::Largest => {
            let all: Option<Vec<f64>> = part.iter().map(|step| step.value).collect();
            all.map(|all| all.into_iter().fold(0.0, f64::max))
        }
        Join::Mean => {
            let (mut sum, mut length) = (0.0, 0.0);
            for step in part {
                let Some(value) = step.value else { continue };
                sum += value * (step.to_s - step.from_s);
                length += step.to_s - step.from_s;
            }
            (length > 0.0).then(|| sum / length)
        }
    };
    Some(Step {
        from_s: first.from_s,
        to_s: last.to_s,
        value,
    })
}

/// Steps as lines; those outside the run's window are apart, since figures are not of them.
pub(crate) fn pieces(run: &Run, steps: &[Step]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut end_s = f64::NEG_INFINITY;
    for step in steps {
        let Some(value) = step.value.filter(|value| drawable(*value)) else {
            end_s = f64::NEG_INFINITY;
            continue;
        };
        let middle = f64::midpoint(step.from_s, step.to_s);
        let faint = middle < run.window.from_s || middle > run.window.to_s;
        let follows = (step.from_s - end_s).abs() < ADJACENT_S;
        let ends = [(step.from_s, value), (step.to_s, value)];
        match pieces.last_mut() {
            Some(piece) if follows && piece.faint == faint => piece.points.extend(ends),
            Some(piece) if follows => {
                // The step between the two belongs to both, or a gap would show where there is none.
                let joint = piece.points.last().copied();
                let points = joint.into_iter().chain(ends).collect();
                pieces.push(Piece { points, faint });
            }
            _ => pieces.push(Piece {
                points: ends.to_vec(),
                faint,
            }),
        }
        end_s = step.to_s;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_second_without_a_figure_is_a_gap() {
        let mut run = fixture::closed();
        run.series[4].p99_us = None;
        let pieces = of_series(&run, Join::Largest, |row| row.p99_us);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].points.last(), Some(&(4.0, 1210.0)));
        assert_eq!(pieces[1].points.first(), Some(&(5.0, 1210.0)));
    }

    #[test]
    fn what_is_outside_the_window_is_faint_and_joined() {
        let mut run = fixture::closed();
        run.window.from_s = 3.0;
        let pieces = of_series(&run, Join::Mean, |row| Some(row.throughput_per_s));
        let faint: Vec<bool> = pieces.iter().map(|piece| piece.faint).collect();
        assert_eq!(faint, [true, false]);
        assert_eq!(pieces[1].points[0], *pieces[0].points.last().unwrap());
    }

    #[test]
    fn a_long_run_has_few_steps_and_keeps_its_worst_second() {
        let mut run = fixture::closed();
        run.series = (0..4000)
            .map(|i| SeriesRow {
                from_s: f64::from(i),
                to_s: f64::from(i + 1),
                throughput_per_s: 100.0,
                p99_us: Some(if i == 1234 { 90_000.0 } else { 10.0 }),
                ..SeriesRow::default()
            })
            .collect();
        run.window.to_s = 4000.0;
        let worst = of_series(&run, Join::Largest, |row| row.p99_us);
        assert!(worst[0].points.len() <= 2 * MOST_STEPS);
        assert!(worst[0].points.iter().any(|(_, y)| *y == 90_000.0));
        let mean = of_series(&run, Join::Mean, |row| Some(row.throughput_per_s));
        assert!(
            mean[0]
                .points
                .iter()
                .all(|(_, y)| (*y - 100.0).abs() < 1e-9)
        );
        run.series[1234].p99_us = None;
        assert_eq!(of_series(&run, Join::Largest, |row| row.p99_us).len(), 2);
    }

    #[test]
    fn a_tick_in_the_last_microseconds_is_not_many_cpus() {
        let mut run = fixture::closed();
        run.series.push(SeriesRow {
            from_s: 10.0,
            to_s: 10.000_2,
            client_system_cpus: 20.0,
            ..SeriesRow::default()
        });
        let cpu = of_series(&run, Join::Mean, |row| Some(row.client_system_cpus));
        assert!(cpu[0].points.iter().all(|(_, y)| *y < 0.52), "{cpu:?}");
        let p99 = of_series(&run, Join::Largest, |row| row.p99_us);
        assert_eq!(p99[0].points.last(), Some(&(10.000_2, 1210.0)));
    }

    #[test]
    fn the_wait_for_the_last_answers_is_not_the_second_before() {
        let mut run = fixture::closed();
        run.series.push(SeriesRow {
            from_s: 10.0,
            to_s: 10.002,
            p50_us: Some(9_000.0),
            ..SeriesRow::default()
        });
        let before = run.series[9].p50_us.unwrap();
        let p50 = of_series(&run, Join::Largest, |row| row.p50_us);
        assert_eq!(p50[0].points.last(), Some(&(10.002, before)));
    }

    #[test]
    fn rows_that_make_no_sense_are_left_out() {
        let mut run = fixture::closed();
        run.series[0].from_s = f64::NAN;
        run.series[1].to_s = -1.0;
        run.series[2].throughput_per_s = f64::INFINITY;
        let pieces = of_series(&run, Join::Mean, |row| Some(row.throughput_per_s));
        assert_eq!(pieces[0].points[0].0, 3.0);
    }
}
