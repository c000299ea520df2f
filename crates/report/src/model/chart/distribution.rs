//! The distribution of response times as a percentile curve and as a histogram. In the percentile
//! curve, each additional nine (90 %, 99 %, 99.9 %) takes up the same width.

use floodmark_record::run::Run;
use floodmark_stats::Histogram;

use super::{Axis, AxisFit, Chart, Curve, Quantity};
use crate::model::figures::{count_of, seconds};
use crate::model::names::NamedRun;

/// Number of points for each additional nine. More points would be less than a pixel apart.
const POINTS_PER_DECADE: u32 = 40;

/// A histogram in the record that cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name}: the response-time histogram is damaged ({reason}); rebuild the record from its events.jsonl"
)]
pub struct DamagedHistogram {
    pub(crate) name: String,
    pub(crate) reason: String,
}

/// A run with its response times.
struct TimedRun<'a> {
    run: &'a Run,
    /// Name of the curve.
    name: String,
    times: Histogram,
}

/// Returns the percentile curve and the histogram, or no charts if no request was timed.
///
/// # Errors
/// Returns [`DamagedHistogram`] if a histogram cannot be decoded.
pub(crate) fn charts(drawn: &[NamedRun<'_>]) -> Result<Vec<Chart>, DamagedHistogram> {
    let mut timed = Vec::new();
    for (i, one) in drawn.iter().enumerate() {
        let Some(times) = histogram(one)? else {
            continue;
        };
        let name = match drawn.len() {
            1 => "response time",
            _ => &one.name,
        };
        let name = name.to_owned();
        let run = one.run;
        timed.push((i, TimedRun { run, name, times }));
    }
    if timed.is_empty() {
        return Ok(Vec::new());
    }
    let mut charts = vec![percentiles(&timed)];
    charts.extend(bins(&timed));
    let ends = drawn.iter().filter_map(|one| censored(one, drawn.len()));
    let ends: Vec<String> = ends.collect();
    for chart in &mut charts {
        chart.notes.extend(ends.iter().cloned());
    }
    Ok(charts)
}

fn percentiles(timed: &[(usize, TimedRun<'_>)]) -> Chart {
    let curves = timed
        .iter()
        .map(|(color, one)| Curve::line(*color, &one.name, points(one.run, &one.times)));
    let curves: Vec<Curve> = curves.collect();
    let counts = timed.iter().map(|(_, one)| one.times.count() as f64);
    let decades = counts.fold(10.0, f64::max).log10();
    let axes = (Axis::of_shares(decades), AxisFit::Times);
    let title = "Response time by share of requests";
    let note = "Share of requests that took at most this long. Each further nine has the same width; the last point is the \
                slowest request.";
    Chart::new(title, "within the window", axes, curves).with_notes([note.to_owned()])
}

fn histogram(one: &NamedRun<'_>) -> Result<Option<Histogram>, DamagedHistogram> {
    let text = one.run.response_time_us.histogram.as_deref();
    let read = text.map(Histogram::decode).transpose();
    let read = read.map_err(|error| DamagedHistogram {
        name: one.name.clone(),
        reason: error.to_string(),
    })?;
    Ok(read.filter(|histogram| !histogram.is_empty()))
}

/// Returns the points of the percentile curve, up to the slowest request, or up to the lower bound
/// of the censored requests.
fn points(run: &Run, histogram: &Histogram) -> Vec<(f64, f64)> {
    let count = histogram.count() as f64;
    let last = (count.log10() * f64::from(POINTS_PER_DECADE)).floor() as u32;
    let shares = (0..=last).map(|i| f64::from(i) / f64::from(POINTS_PER_DECADE));
    let end = [count.log10()].into_iter();
    let known_us = known_us(run);
    shares
        .chain(end)
        .filter_map(|x| {
            let rest = 10f64.powf(-x);
            // The last point is the slowest request.
            let share = if rest * count < 1.000_001 {
                1.0
            } else {
                1.0 - rest
            };
            Some((x, histogram.quantile(share)? as f64 / 1e3))
        })
        .take_while(|(_, us)| *us < known_us)
        .collect()
}

/// Returns the response time, in microseconds, at and above which the distribution is unknown.
fn known_us(run: &Run) -> f64 {
    let above_us = run.response_time_us.censored_above(run.plan.timeout);
    above_us.unwrap_or(f64::INFINITY)
}

fn censored(one: &NamedRun<'_>, of: usize) -> Option<String> {
    let times = &one.run.response_time_us;
    let above_us = times.censored_above(one.run.plan.timeout)?;
    let which = if of > 1 {
        format!("{}: the curve", one.name)
    } else {
        "The curve".to_owned()
    };
    Some(format!(
        "{which} ends at {}, because {} got no response.",
        seconds(above_us / 1e6),
        count_of(times.censored, "request"),
    ))
}

/// Maximum number of bins.
const MOST_BINS: f64 = 60.0;

/// Minimum ratio of a bin's upper to its lower bound. Narrower bins would make the buckets of the
/// recorded histogram visible.
const LEAST_RATIO: f64 = 1.005;

/// Maximum ratio of the largest to the smallest time for which the time axis is linear.
const NARROW: f64 = 4.0;

/// Returns the histogram, or `None` if all requests are censored.
fn bins(timed: &[(usize, TimedRun<'_>)]) -> Option<Chart> {
    let known = timed.iter().map(|(_, one)| known_times(one));
    let known: Vec<Vec<(f64, u64)>> = known.collect();
    let times = || known.iter().flatten().map(|(us, _)| *us);
    let least = times().min_by(f64::total_cmp)?;
    let largest = times().max_by(f64::total_cmp)?;
    // Extend the range, because a time on the boundary of two bins belongs to the upper bin.
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
    let x = if to > from * NARROW {
        Axis::of_decades(from, to)
    } else {
        Axis::of_range((from, to), Quantity::Microseconds)
    };
    let axes = (x, AxisFit::FromZero(Quantity::Percent));
    let title = "Histogram of response times";
    let chart = Chart::new(title, "percent of requests per bin", axes, curves);
    let note = chart
        .x
        .log
        .then(|| "The time axis is logarithmic.".to_owned());
    Some(chart.with_notes(note))
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
    use super::*;
    use crate::fixture;
    use floodmark_stats::Histogram;

    fn drawn(runs: &[Run]) -> Vec<NamedRun<'_>> {
        runs.iter()
            .map(|run| NamedRun {
                run,
                name: "a".to_owned(),
            })
            .collect()
    }

    #[test]
    fn matches_the_percentiles_of_the_record() {
        let runs = [fixture::closed()];
        let chart = &charts(&drawn(&runs)).unwrap()[0];
        let points = &chart.curves[0].pieces[0].points;
        let at = |x: f64| points.iter().find(|p| (p.0 - x).abs() < 1e-9).unwrap().1;
        let times = &runs[0].response_time_us;
        assert!((at(1.0) - times.p90.unwrap()).abs() < 1.5);
        assert!((at(2.0) - times.p99.unwrap()).abs() < 1.5);
        assert!((points.last().unwrap().1 - times.max.unwrap()).abs() < 0.5);
        assert_eq!(chart.x.to, 3.0);
    }

    #[test]
    fn ends_where_requests_timed_out() {
        let runs = [fixture::open_censored()];
        let chart = &charts(&drawn(&runs)).unwrap()[0];
        let points = &chart.curves[0].pieces[0].points;
        assert!(points.last().unwrap().0 < 2.0, "1.5 % timed out");
        assert!(chart.notes[1].contains("5 s"), "{:?}", chart.notes);
    }

    #[test]
    fn refuses_a_damaged_histogram_and_omits_an_empty_chart() {
        let mut runs = [fixture::no_answers()];
        assert!(charts(&drawn(&runs)).unwrap().is_empty());
        runs[0].response_time_us.histogram = Some("AAAA".to_owned());
        let text = charts(&drawn(&runs)).unwrap_err().to_string();
        assert!(text.contains("damaged"), "{text}");
    }

    fn chart_of(us: &[u64]) -> Chart {
        let run = fixture::closed();
        let mut times = Histogram::new();
        us.iter().for_each(|us| times.record(us * 1000));
        let name = "response time".to_owned();
        let run = &run;
        bins(&[(0, TimedRun { run, name, times })]).unwrap()
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
        let chart = bins(&[(
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
