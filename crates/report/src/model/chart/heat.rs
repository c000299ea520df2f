//! A heat map of response times: one column per second, one row per range of times.

use floodmark_record::fine_series::TimeBuckets;
use floodmark_record::run::{Run, SeriesRow};

use super::over_time::TimeAxis;
use super::{Axis, Chart};

/// Maximum number of columns; more would make the page large.
const MAX_COLUMNS: usize = 120;

/// Number of intensities.
const INTENSITIES: f64 = 8.0;

/// A rectangle of a heat map.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeatCell {
    /// Left and right edge on the x axis.
    pub(crate) x: (f64, f64),
    /// Lower and upper edge on the y axis.
    pub(crate) y: (f64, f64),
    /// Intensity from 1 to 8.
    pub(crate) intensity: u8,
}

/// Returns the heat map of a run, or `None` if the record does not contain the distributions.
pub(super) fn chart(time: &TimeAxis, run: &Run) -> Option<Chart> {
    let each = run.series.len().div_ceil(MAX_COLUMNS).max(1);
    let columns: Vec<(f64, f64, TimeBuckets)> =
        run.series.chunks(each).filter_map(column).collect();
    let of_columns = || columns.iter().map(|(_, _, buckets)| buckets);
    let first = of_columns().map(|buckets| buckets.first).min()?;
    let end = of_columns()
        .map(|buckets| buckets.first + buckets.counts.len() as u32)
        .max()?;
    let us = |index: u32| TimeBuckets::lower_ns(index) / 1e3;
    let mut cells = Vec::new();
    for (from_s, to_s, buckets) in &columns {
        let total: u64 = buckets.counts.iter().sum();
        for (index, count) in (buckets.first..).zip(&buckets.counts) {
            if *count > 0 {
                let share = *count as f64 / total as f64;
                cells.push(HeatCell {
                    x: (*from_s, *to_s),
                    y: (us(index), us(index + 1)),
                    intensity: intensity(share),
                });
            }
        }
    }
    let y = Axis::of_decades(us(first), us(end));
    let mut chart = time.chart("Distribution of response times", "by second", y, Vec::new());
    chart.cells = cells;
    chart.marks.clear();
    let note = "The stronger the color of a cell, the larger its share of the second's responses; the faintest cells \
                have less than 0.1 %.";
    chart.notes.push(note.to_owned());
    Some(chart)
}

/// Merges consecutive rows into one column. The drain after the last second has none.
fn column(rows: &[SeriesRow]) -> Option<(f64, f64, TimeBuckets)> {
    const SHORTEST_S: f64 = 0.1;
    let (first, last) = (rows.first()?, rows.last()?);
    let mut buckets = rows.iter().filter_map(|row| row.response_times.as_ref());
    let mut merged = buckets.next()?.clone();
    buckets.for_each(|other| merged.merge(other));
    let is_sound = first.from_s.is_finite() && last.to_s - first.from_s >= SHORTEST_S;
    is_sound.then_some((first.from_s, last.to_s, merged))
}

/// Returns the intensity of a share of requests. Each step is a factor of about three, so that a
/// few slow requests remain visible.
fn intensity(share: f64) -> u8 {
    let steps = (share.max(1e-9).log10() + 3.5) / 3.5 * INTENSITIES;
    steps.ceil().clamp(1.0, INTENSITIES) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::model::names::NamedRun;

    #[test]
    fn each_second_is_a_column_and_rare_times_stay_visible() {
        let mut run = fixture::closed();
        for row in &mut run.series {
            row.response_times = TimeBuckets::of([(500_000, 99_999), (40_000_000, 1)]);
        }
        let drawn = [NamedRun {
            name: String::new(),
            run: &run,
        }];
        let time = TimeAxis::of(&drawn).unwrap();
        let map = chart(&time, &run).unwrap();
        assert_eq!(map.cells.len(), 2 * run.series.len());
        let intensities: Vec<u8> = map.cells[..2].iter().map(|cell| cell.intensity).collect();
        assert_eq!(intensities, [8, 1]);
        assert!(map.y.from <= 500.0 && map.y.to >= 40_000.0, "{:?}", map.y);
        run.series
            .iter_mut()
            .for_each(|row| row.response_times = None);
        assert!(chart(&time, &run).is_none());
    }

    #[test]
    fn a_long_run_has_few_columns() {
        let mut run = fixture::closed();
        let row = SeriesRow {
            response_times: TimeBuckets::of([(500_000, 10)]),
            ..run.series[0].clone()
        };
        run.series = (0..1_000)
            .map(|i| SeriesRow {
                from_s: f64::from(i),
                to_s: f64::from(i + 1),
                ..row.clone()
            })
            .collect();
        let drawn = [NamedRun {
            name: String::new(),
            run: &run,
        }];
        let map = chart(&TimeAxis::of(&drawn).unwrap(), &run).unwrap();
        assert!(map.cells.len() <= MAX_COLUMNS, "{}", map.cells.len());
    }
}
