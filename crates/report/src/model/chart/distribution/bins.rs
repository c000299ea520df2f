//! Response times as a histogram. All runs have the same bins.

use super::super::{Axis, AxisFit, Chart, Curve, Quantity};
use super::{TimedRun, known_us};

/// Maximum number of bins.
const MOST_BINS: f64 = 60.0;

/// Minimum ratio of a bin's upper to its lower bound. Narrower bins would make the buckets of the
/// recorded histogram visible.
const LEAST_RATIO: f64 = 1.005;

/// The axis is linear if the ratio of the largest to the smallest time is at most this value.
const NARROW: f64 = 4.0;

/// Returns the histogram, or `None` if all times are above the timeout.
pub(super) fn chart(timed: &[(usize, TimedRun<'_>)]) -> Option<Chart> {
    let known = timed.iter().map(|(_, one)| known_times(one));
    let known: Vec<Vec<(f64, u64)>> = known.collect();
    let times = || known.iter().flatten().map(|(us, _)| *us);
    let least = times().min_by(f64::total_cmp)?;
    let largest = times().max_by(f64::total_cmp)?;
    // Times on the border of a bin belong to the upper one.
    let (from, to) = (least / LEAST_RATIO, largest * LEAST_RATIO);
    let bins = ((to / from).ln() / LEAST_RATIO.ln())
        .clamp(1.0, MOST_BINS)
        .floor();
    let edge = |i: usize| from * (to / from).powf(i as f64 / bins);
    let curves = timed.iter().zip(&known).map(|((color, one), known)| {
        let mut counts = vec![0; bins as usize];
        for (us, n) in known {
            let bin = (us / from).ln() / (to / from).ln() * bins;
            counts[(bin as usize).min(bins as usize - 1)] += n;
        }
        let percent = |n: u64| 100.0 * n as f64 / one.times.count() as f64;
        let steps = counts.iter().enumerate();
        let points = steps.flat_map(|(i, n)| [(edge(i), percent(*n)), (edge(i + 1), percent(*n))]);
        let ends = [(from, 0.0), (to, 0.0)];
        let points = ends[..1].iter().copied().chain(points).chain([ends[1]]);
        Curve::line(*color, &one.name, points)
    });
    let curves: Vec<Curve> = curves.collect();
    let x = match to > from * NARROW {
        true => Axis::of_decades(from, to),
        false => Axis::of_range((from, to), Quantity::Microseconds),
    };
    let axes = (x, AxisFit::FromZero(Quantity::Percent));
    let title = "Histogram of response times";
    let mut chart = Chart::new(title, "percent of requests per bin", axes, curves);
    if chart.x.log {
        chart.notes.push("The time axis is logarithmic.".to_owned());
    }
    Some(chart)
}

/// Returns the times below the timeout in microseconds, with their counts.
fn known_times(one: &TimedRun<'_>) -> Vec<(f64, u64)> {
    let known_us = known_us(one.run);
    let recorded = one.times.recorded();
    let times = recorded.map(|(ns, count)| ((ns as f64 / 1e3).max(1e-3), count));
    times.filter(|(us, _)| *us < known_us).collect()
}

#[cfg(test)]
mod tests {
    use floodmark_stats::Histogram;

    use super::*;
    use crate::fixture;

    fn chart_of(us: &[u64]) -> Chart {
        let run = fixture::closed();
        let mut times = Histogram::new();
        us.iter().for_each(|us| times.record(us * 1000));
        let name = "response time".to_owned();
        let run = &run;
        chart(&[(0, TimedRun { run, name, times })]).unwrap()
    }

    /// Returns the sum of all bins in percent.
    fn total(chart: &Chart) -> f64 {
        let points = &chart.curves[0].pieces[0].points;
        let steps = points[1..points.len() - 1].chunks(2);
        steps.map(|step| step[0].1).sum()
    }

    #[test]
    fn each_request_is_in_one_bin() {
        for us in [
            &[100, 200, 200, 400, 900_000][..],
            &[1_000, 1_001, 1_003, 1_100],
            &[70],
        ] {
            let chart = chart_of(us);
            assert!((total(&chart) - 100.0).abs() < 1e-9, "{us:?}: {chart:?}");
            let points = &chart.curves[0].pieces[0].points;
            assert!(points.is_sorted_by(|a, b| a.0 <= b.0));
            assert!(points.iter().all(|(us, _)| chart.x.share(*us) >= 0.0));
        }
    }

    #[test]
    fn a_narrow_range_has_a_linear_axis() {
        assert!(!chart_of(&[10_000, 10_500, 11_000]).x.log);
        assert!(chart_of(&[100, 90_000]).x.log);
    }

    #[test]
    fn requests_that_timed_out_are_in_no_bin() {
        let run = fixture::open_censored();
        let times = run.response_time_us.histogram.as_deref();
        let times = Histogram::decode(times.unwrap()).unwrap();
        let name = String::new();
        let chart = chart(&[(
            0,
            TimedRun {
                run: &run,
                name,
                times,
            },
        )])
        .unwrap();
        let shown = total(&chart);
        assert!((98.0..99.0).contains(&shown), "1.5 % timed out: {shown}");
    }
}
