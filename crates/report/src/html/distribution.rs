//! The distribution of response times over a percentile axis on which each further nine has the same width.

use floodmark_record::run::Run;
use floodmark_stats::Histogram;
use floodmark_stats::histogram::DecodeError;

use super::axis::Axis;
use super::chart::{Chart, Curve, Ink, Piece};
use super::names::Named;
use crate::figures::{count_of, seconds};

/// Points for each nine: closer ones would share a pixel.
const POINTS_PER_DECADE: u32 = 40;

/// A histogram in the record that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name}: its response-time histogram is damaged ({source}); take the record again, or fold it anew from its events.jsonl"
)]
pub struct DamagedHistogram {
    name: String,
    source: DecodeError,
}

/// The chart; none where nothing was timed.
///
/// # Errors
/// See [`DamagedHistogram`].
pub(crate) fn chart(drawn: &[Named]) -> Result<Option<Chart>, DamagedHistogram> {
    let mut curves = Vec::new();
    let mut decades: f64 = 1.0;
    for (i, one) in drawn.iter().enumerate() {
        let Some(histogram) = histogram(one)? else {
            continue;
        };
        decades = decades.max((histogram.count() as f64).log10());
        curves.push(Curve {
            name: match drawn.len() {
                1 => "response time".to_owned(),
                _ => one.name.clone(),
            },
            ink: Ink::Measured(i),
            pieces: vec![Piece {
                points: points(one.run, &histogram),
                faint: false,
            }],
        });
    }
    if curves.is_empty() {
        return Ok(None);
    }
    let y = Axis::of_times(curves.iter().flat_map(Curve::values));
    let mut notes = vec![
        "So many percent of the requests took no longer than this; each further nine is as wide as the one before, and the last point is the slowest."
            .to_owned(),
    ];
    notes.extend(drawn.iter().filter_map(|one| censored(one, drawn.len())));
    Ok(Some(Chart {
        title: "Response time by share of requests".to_owned(),
        unit: "of the window".to_owned(),
        x: Axis::of_shares(decades),
        y,
        curves,
        shades: Vec::new(),
        marks: Vec::new(),
        notes,
    }))
}

fn histogram(one: &Named) -> Result<Option<Histogram>, DamagedHistogram> {
    let text = one.run.response_time_us.histogram.as_deref();
    let read = text.map(Histogram::decode).transpose();
    let read = read.map_err(|source| DamagedHistogram {
        name: one.name.clone(),
        source,
    })?;
    Ok(read.filter(|histogram| !histogram.is_empty()))
}

/// Points up to the slowest request, or up to where requests timed out: their times are known from below only.
fn points(run: &Run, histogram: &Histogram) -> Vec<(f64, f64)> {
    let count = histogram.count() as f64;
    let last = (count.log10() * f64::from(POINTS_PER_DECADE)).floor() as u32;
    let shares = (0..=last).map(|i| f64::from(i) / f64::from(POINTS_PER_DECADE));
    let end = [count.log10()].into_iter();
    // What is shorter than the timeout did not time out, wherever else timed-out requests may rank.
    let known_us = match run.response_time_us.censored {
        0 => f64::INFINITY,
        _ => run.plan.timeout_s * 1e6,
    };
    shares
        .chain(end)
        .filter_map(|x| {
            let rest = 10f64.powf(-x);
            // Beyond the last sample there is none: the whole share is the largest.
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

fn censored(one: &Named, of: usize) -> Option<String> {
    let times = &one.run.response_time_us;
    let n = Some(times.censored).filter(|n| *n > 0)?;
    let which = if of > 1 {
        format!("{}: the curve", one.name)
    } else {
        "The curve".to_owned()
    };
    Some(format!(
        "{which} ends at the timeout of {}: {} timed out, and took longer than that.",
        seconds(one.run.plan.timeout_s),
        count_of(n, "request"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn drawn(runs: &[Run]) -> Vec<Named<'_>> {
        runs.iter()
            .map(|run| Named {
                run,
                name: "a".to_owned(),
            })
            .collect()
    }

    #[test]
    fn the_curve_goes_through_the_percentiles_of_the_record() {
        let runs = [fixture::closed()];
        let chart = chart(&drawn(&runs)).unwrap().unwrap();
        let points = &chart.curves[0].pieces[0].points;
        let at = |x: f64| points.iter().find(|p| (p.0 - x).abs() < 1e-9).unwrap().1;
        let times = &runs[0].response_time_us;
        assert!((at(1.0) - times.p90.unwrap()).abs() < 1.5);
        assert!((at(2.0) - times.p99.unwrap()).abs() < 1.5);
        assert!((points.last().unwrap().1 - times.max.unwrap()).abs() < 0.5);
        assert_eq!(chart.x.to, 3.0);
    }

    #[test]
    fn where_requests_timed_out_the_curve_ends_and_says_so() {
        let runs = [fixture::open_censored()];
        let chart = chart(&drawn(&runs)).unwrap().unwrap();
        let points = &chart.curves[0].pieces[0].points;
        assert!(points.last().unwrap().0 < 2.0, "1.5 % timed out");
        assert!(chart.notes[1].contains("5 s"), "{:?}", chart.notes);
    }

    #[test]
    fn damage_is_an_error_and_nothing_is_no_chart() {
        let mut runs = [fixture::no_answers()];
        assert!(chart(&drawn(&runs)).unwrap().is_none());
        runs[0].response_time_us.histogram = Some("AAAA".to_owned());
        let text = chart(&drawn(&runs)).unwrap_err().to_string();
        assert!(text.contains("damaged"), "{text}");
    }
}
