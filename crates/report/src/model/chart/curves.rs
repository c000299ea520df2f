//! Curves of per-second measurements. Each measurement is a step; missing measurements are gaps.

use floodmark_record::Observation;
use floodmark_record::run::{Run, SeriesRow};

use super::{CurvePiece, drawable};

/// Maximum number of steps in a curve; more would be narrower than a pixel.
pub(crate) const MAX_STEPS: usize = 300;

/// Maximum distance between consecutive steps, in seconds.
const ADJACENT_S: f64 = 1e-3;

/// Minimum length of a step whose rate is meaningful, in seconds. Regular samples may be this short,
/// so a step must also be less than half as long as the preceding one to count as too short.
const SLIVER_S: f64 = 0.05;

/// Method of merging several measurements into one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aggregation {
    /// Mean weighted by length; used for rates and CPU.
    Mean,
    /// Maximum; used for percentiles. Unknown if any value is unknown.
    Largest,
}

/// A value over a time range; `None` if not measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CurveStep {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    pub(crate) value: Option<f64>,
}

/// Returns the curve of `value` over the seconds of a run.
pub(crate) fn of_series(
    run: &Run,
    by: Aggregation,
    value: impl Fn(&SeriesRow) -> Option<f64>,
) -> Vec<CurvePiece> {
    let steps = run.series.iter().map(|row| CurveStep {
        from_s: row.from_s,
        to_s: row.to_s,
        value: value(row),
    });
    pieces(run, &joined(steps, by))
}

/// Returns the number of rows merged into one step, or `None` if no rows are merged.
pub(crate) fn rows_per_step(rows: usize) -> Option<usize> {
    Some(rows.div_ceil(MAX_STEPS)).filter(|n| *n > 1)
}

/// Merges steps until at most [`MAX_STEPS`] remain.
pub(crate) fn joined(steps: impl Iterator<Item = CurveStep>, by: Aggregation) -> Vec<CurveStep> {
    let sound =
        |step: &CurveStep| drawable(step.from_s) && drawable(step.to_s) && step.to_s > step.from_s;
    let steps = without_slivers(steps.filter(sound), by);
    let each = rows_per_step(steps.len()).unwrap_or(1);
    steps
        .chunks(each)
        .filter_map(|part| one(part, by))
        .collect()
}

/// Merges steps that are too short for a rate into the preceding step. Otherwise a tick of CPU time
/// in the last microseconds of a run would look like many CPUs. Percentiles of a short step cover
/// few requests and are dropped.
fn without_slivers(steps: impl Iterator<Item = CurveStep>, by: Aggregation) -> Vec<CurveStep> {
    let mut kept: Vec<CurveStep> = Vec::new();
    for step in steps {
        match kept.last_mut() {
            Some(last) if length_s(&step) < SLIVER_S.min(length_s(last) / 2.0) => {
                if by == Aggregation::Mean && step.value.is_some() {
                    last.value = one(&[*last, step], by).and_then(|both| both.value);
                }
                last.to_s = step.to_s;
            }
            _ => kept.push(step),
        }
    }
    kept
}

fn length_s(step: &CurveStep) -> f64 {
    step.to_s - step.from_s
}

fn one(part: &[CurveStep], by: Aggregation) -> Option<CurveStep> {
    let (first, last) = (part.first()?, part.last()?);
    let value = match by {
        Aggregation::Largest => {
            let all: Option<Vec<f64>> = part.iter().map(|step| step.value).collect();
            all.map(|all| all.into_iter().fold(0.0, f64::max))
        }
        Aggregation::Mean => {
            let (mut sum, mut length) = (0.0, 0.0);
            for step in part {
                let Some(value) = step.value else { continue };
                sum += value * length_s(step);
                length += length_s(step);
            }
            (length > 0.0).then(|| sum / length)
        }
    };
    Some(CurveStep {
        from_s: first.from_s,
        to_s: last.to_s,
        value,
    })
}

/// Converts steps to lines. Parts outside the run's window become separate pieces.
pub(crate) fn pieces(run: &Run, steps: &[CurveStep]) -> Vec<CurvePiece> {
    let mut pieces: Vec<CurvePiece> = Vec::new();
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
                // Both pieces include this point, so that the curve has no gap.
                let joint = piece.points.last().copied();
                let points = joint.into_iter().chain(ends).collect();
                pieces.push(CurvePiece { points, faint });
            }
            _ => pieces.push(CurvePiece {
                points: ends.to_vec(),
                faint,
            }),
        }
        end_s = step.to_s;
    }
    pieces
}

/// Returns the values as steps, in seconds since the start of the measurement.
pub(super) fn steps(run: &Run, seen: &Observation) -> impl Iterator<Item = CurveStep> {
    let warmup_s = run.warmup.as_ref().map_or(0.0, |warmup| warmup.duration_s);
    let held = run.connections.held.as_ref();
    let opening_s = held.map_or(0.0, |held| held.opening_ns as f64 / 1e9);
    let before_s = run
        .measured_from_ms
        .map_or(warmup_s + opening_s, |ms| ms as f64 / 1e3);
    let (start_s, step_s) = (seen.start_ms as f64 / 1e3, seen.step_ms as f64 / 1e3);
    let end_s = run.series.last().map_or(run.sending_s, |row| row.to_s);
    let step = move |(i, value): (usize, &f64)| {
        let begun_s = start_s + i as f64 * step_s - before_s;
        CurveStep {
            from_s: match begun_s {
                // A warm-up ends slightly after its last full second.
                s if s > -step_s * OF_WARMUP => s.max(0.0),
                s => s,
            },
            to_s: (begun_s + step_s).min(end_s),
            value: Some(*value),
        }
    };
    seen.values.iter().enumerate().map(step)
}

/// Maximum share of warm-up in a sample that is drawn as part of the measurement.
const OF_WARMUP: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_second_without_a_value_is_a_gap() {
        let mut run = fixture::closed();
        run.series[4].p99_us = None;
        let pieces = of_series(&run, Aggregation::Largest, |row| row.p99_us);
        assert_eq!(pieces.len(), 2);
        assert_eq!(pieces[0].points.last(), Some(&(4.0, 1210.0)));
        assert_eq!(pieces[1].points.first(), Some(&(5.0, 1210.0)));
    }

    #[test]
    fn pieces_outside_the_window_are_faint_and_connected() {
        let mut run = fixture::closed();
        run.window.from_s = 3.0;
        let pieces = of_series(&run, Aggregation::Mean, |row| Some(row.throughput_per_s));
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
        let worst = of_series(&run, Aggregation::Largest, |row| row.p99_us);
        assert!(worst[0].points.len() <= 2 * MAX_STEPS);
        assert!(worst[0].points.iter().any(|(_, y)| *y == 90_000.0));
        let mean = of_series(&run, Aggregation::Mean, |row| Some(row.throughput_per_s));
        assert!(
            mean[0]
                .points
                .iter()
                .all(|(_, y)| (*y - 100.0).abs() < 1e-9)
        );
        run.series[1234].p99_us = None;
        assert_eq!(
            of_series(&run, Aggregation::Largest, |row| row.p99_us).len(),
            2
        );
    }

    #[test]
    fn a_late_clock_tick_does_not_count_as_many_cpus() {
        let mut run = fixture::closed();
        run.series.push(SeriesRow {
            from_s: 10.0,
            to_s: 10.000_2,
            client_system_cpus: 20.0,
            ..SeriesRow::default()
        });
        let cpu = of_series(&run, Aggregation::Mean, |row| Some(row.client_system_cpus));
        assert!(cpu[0].points.iter().all(|(_, y)| *y < 0.52), "{cpu:?}");
        let p99 = of_series(&run, Aggregation::Largest, |row| row.p99_us);
        assert_eq!(p99[0].points.last(), Some(&(10.000_2, 1210.0)));
    }

    #[test]
    fn short_samples_are_merged_evenly() {
        // The computed length of some of these samples is slightly less than 50 ms.
        let steps = (0..3000).map(|i| CurveStep {
            from_s: f64::from(i) * 0.05,
            to_s: f64::from(i) * 0.05 + 0.05,
            value: Some(1.0),
        });
        let merged = joined(steps, Aggregation::Mean);
        assert_eq!(merged.len(), MAX_STEPS);
        assert!(
            merged
                .iter()
                .all(|step| (length_s(step) - 0.5).abs() < 1e-6)
        );
    }

    #[test]
    fn the_drain_does_not_change_the_second_before() {
        let mut run = fixture::closed();
        run.series.push(SeriesRow {
            from_s: 10.0,
            to_s: 10.002,
            p50_us: Some(9_000.0),
            ..SeriesRow::default()
        });
        let before = run.series[9].p50_us.unwrap();
        let p50 = of_series(&run, Aggregation::Largest, |row| row.p50_us);
        assert_eq!(p50[0].points.last(), Some(&(10.002, before)));
    }

    #[test]
    fn leaves_out_damaged_rows() {
        let mut run = fixture::closed();
        run.series[0].from_s = f64::NAN;
        run.series[1].to_s = -1.0;
        run.series[2].throughput_per_s = f64::INFINITY;
        let pieces = of_series(&run, Aggregation::Mean, |row| Some(row.throughput_per_s));
        assert_eq!(pieces[0].points[0].0, 3.0);
    }
}
