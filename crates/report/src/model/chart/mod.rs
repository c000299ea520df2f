//! Charts: curves on axes, with notes.
//!
//! Charts don't use a plotting library: its ticks would format units differently from the tables,
//! and a damaged record could make it search for ticks endlessly.

pub(crate) mod distribution;
pub(crate) mod over_time;

use floodmark_record::units::show_bytes;

use crate::model::figures::{per_second, seconds};

pub use distribution::DamagedHistogram;

/// Maximum number of curves in a chart. Readers cannot distinguish more colors.
pub(crate) const MAX_CURVES: usize = 5;

/// Maximum number of rows in the table behind a chart.
const MAX_VALUES: usize = 24;

/// What a curve represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CurveRole {
    /// A measured curve. The index selects its color.
    Measured(usize),
    /// Measured points that are not connected.
    Dots(DotColor),
    /// An area of a stacked chart. The index selects its color.
    Area(AreaColor),
    /// The rate offered by the plan.
    Offered,
}

/// Color of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AreaColor {
    /// One of the colors of curves.
    Curve(usize),
    /// The color of unused capacity.
    Idle,
}

/// Color of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DotColor {
    Neutral,
    Good,
    Bad,
}

/// A contiguous part of a curve.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CurvePiece {
    pub(crate) points: Vec<(f64, f64)>,
    /// Whether the piece lies outside the window.
    pub(crate) faint: bool,
}

impl CurvePiece {
    /// Creates a piece within the window.
    pub(crate) fn of(points: Vec<(f64, f64)>) -> Self {
        let faint = false;
        CurvePiece { points, faint }
    }
}

/// A curve. Nothing was measured in the gaps between pieces.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) role: CurveRole,
    pub(crate) pieces: Vec<CurvePiece>,
}

impl Curve {
    /// Creates a measured curve.
    pub(crate) fn measured(color: usize, name: &str, pieces: Vec<CurvePiece>) -> Self {
        Curve {
            name: name.to_owned(),
            role: CurveRole::Measured(color),
            pieces,
        }
    }

    /// Creates a measured curve without gaps through the points that can be drawn.
    pub(crate) fn line(
        color: usize,
        name: &str,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        let points = points.into_iter();
        let points = points.filter(|(x, y)| drawable(*x) && drawable(*y));
        let points: Vec<(f64, f64)> = points.collect();
        let pieces = (!points.is_empty()).then(|| CurvePiece::of(points));
        Curve::measured(color, name, Vec::from_iter(pieces))
    }

    /// Creates points that are not connected.
    pub(crate) fn dots(
        color: DotColor,
        name: &str,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Curve {
            role: CurveRole::Dots(color),
            ..Curve::line(0, name, points)
        }
    }

    /// Returns the value at a position on the x axis, or `None` in a gap. At the boundary of two
    /// steps, returns the value of the later step.
    fn value_at(&self, at: f64) -> Option<f64> {
        if let CurveRole::Dots(_) = self.role {
            return self.points().find(|(x, _)| *x == at).map(|(_, y)| y);
        }
        let within = |piece: &&CurvePiece| {
            let ends = piece.points.first().zip(piece.points.last());
            ends.is_some_and(|(first, last)| (first.0..=last.0).contains(&at))
        };
        let points = &self.pieces.iter().rev().find(within)?.points;
        let next = points.partition_point(|(x, _)| *x <= at);
        let left = points.get(next.checked_sub(1)?)?;
        Some(match points.get(next) {
            Some(right) if right.0 > left.0 => {
                left.1 + (right.1 - left.1) * (at - left.0) / (right.0 - left.0)
            }
            _ => left.1,
        })
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        let pieces = self.pieces.iter();
        pieces.flat_map(|piece| piece.points.iter().copied())
    }

    /// Iterates over all y values.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> + Clone {
        self.points().map(|(_, y)| y)
    }
}

/// A labeled line across a chart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChartMark {
    /// Position on the axis that the line crosses.
    pub(crate) at: f64,
    /// Text beside the line; may be empty.
    pub(crate) label: String,
}

impl ChartMark {
    pub(crate) fn new(at: f64, label: impl Into<String>) -> Self {
        ChartMark {
            at,
            label: label.into(),
        }
    }
}

/// Returns a note if `curves` exceeds the number of curves that a chart can show.
pub(crate) fn more_in_table(curves: usize) -> Option<String> {
    let more = curves.checked_sub(MAX_CURVES).filter(|more| *more > 0)?;
    Some(format!("{more} more in the table."))
}

/// A labeled range of the x axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChartBand {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) label: String,
}

/// How the values of a chart determine an axis.
pub(crate) enum AxisFit {
    /// Linear from zero to the largest value.
    FromZero(Quantity),
    /// Times: linear from zero, or logarithmic for a wide range.
    Times,
    /// The given axis, regardless of the values.
    Given(Axis),
}

impl From<Axis> for AxisFit {
    fn from(axis: Axis) -> Self {
        AxisFit::Given(axis)
    }
}

impl AxisFit {
    fn axis(self, values: impl Iterator<Item = f64> + Clone) -> Axis {
        match self {
            AxisFit::FromZero(quantity) => Axis::from_zero(values.fold(0.0, f64::max), quantity),
            AxisFit::Times => Axis::of_times(values),
            AxisFit::Given(axis) => axis,
        }
    }
}

/// A chart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// Unit of the y axis.
    pub(crate) unit: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
    /// Cells of a heat map, which has no curves.
    pub(crate) cells: Vec<HeatCell>,
    /// Vertical bars. Each has a position on the x axis, a lower end and an upper end.
    pub(crate) ranges: Vec<(f64, (f64, f64))>,
    /// Shaded ranges on the x axis.
    pub(crate) shades: Vec<(f64, f64)>,
    /// Vertical lines.
    pub(crate) marks: Vec<ChartMark>,
    /// Ranges in which something noteworthy happened.
    pub(crate) bands: Vec<ChartBand>,
    /// Horizontal lines, such as a limit.
    pub(crate) levels: Vec<ChartMark>,
    pub(crate) notes: Vec<String>,
}

impl Chart {
    /// Creates a chart without shades, marks or notes. The curves determine the axes.
    pub(crate) fn new(
        title: &str,
        unit: &str,
        (x, y): (impl Into<AxisFit>, impl Into<AxisFit>),
        curves: Vec<Curve>,
    ) -> Self {
        let points = curves.iter().flat_map(Curve::points);
        Chart {
            title: title.to_owned(),
            unit: unit.to_owned(),
            x: x.into().axis(points.clone().map(|(x, _)| x)),
            y: y.into().axis(points.map(|(_, y)| y)),
            curves,
            ..Chart::default()
        }
    }

    /// Adds a horizontal line, and extends the y axis if the line lies above it.
    pub(crate) fn with_level(mut self, at: f64, label: impl Into<String>) -> Self {
        if at > self.y.to {
            self.y = Axis::from_zero(at, self.y.quantity);
        }
        self.levels.push(ChartMark::new(at, label));
        self
    }

    pub(crate) fn with_marks(mut self, marks: impl IntoIterator<Item = ChartMark>) -> Self {
        self.marks.extend(marks);
        self
    }

    pub(crate) fn with_notes(mut self, notes: impl IntoIterator<Item = String>) -> Self {
        self.notes.extend(notes);
        self
    }

    /// Returns the values of each curve at up to [`MAX_VALUES`] positions on the x axis, for
    /// readers who cannot see the chart.
    pub(crate) fn values(&self) -> Vec<(f64, Vec<Option<f64>>)> {
        let mut positions: Vec<f64> = match self.x.quantity {
            Quantity::Nines => self.x.ticks.iter().map(|(at, _)| *at).collect(),
            _ => {
                let points = self.drawn().flat_map(Curve::points);
                points.map(|(at, _)| at).collect()
            }
        };
        positions.sort_by(f64::total_cmp);
        positions.dedup();
        let every = positions.len().div_ceil(MAX_VALUES).max(1);
        let positions = positions.into_iter().step_by(every);
        let row = |at: f64| (at, self.drawn().map(|curve| curve.value_at(at)).collect());
        positions.map(row).collect()
    }

    /// Returns the curves that are not empty.
    pub(crate) fn drawn(&self) -> impl Iterator<Item = &Curve> {
        self.curves.iter().filter(|curve| !curve.pieces.is_empty())
    }
}

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

/// Maximum drawable value. Larger values come from damaged records and would flatten all curves.
const LARGEST: f64 = 1e15;

/// Maximum number of ticks on an axis; more labels would overlap on a phone.
const STEPS: f64 = 5.0;

/// Minimum ratio of the largest to the smallest time for which the axis is logarithmic.
const LOG_FROM: f64 = 20.0;

/// Allowed tick intervals of a time axis, in seconds.
const CLOCK_S: [f64; 15] = [
    1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0,
    21600.0,
];

/// Returns whether a value can be drawn.
pub(crate) fn drawable(value: f64) -> bool {
    (0.0..=LARGEST).contains(&value)
}

/// Quantity of the values on an axis, which decides how they are formatted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// A count or rate whose ticks are abbreviated, such as `150k`.
    #[default]
    Count,
    /// A rate per second whose ticks are written out, such as `12,000`.
    Rate,
    /// A number without a unit, formatted as given.
    Number,
    /// The position in a sequence, from 1.
    Ordinal,
    Percent,
    Bytes,
    Microseconds,
    /// Time since the start of the measurement, in seconds.
    Seconds,
    /// Share of requests as a number of nines: 2 is 99 %.
    Nines,
}

impl Quantity {
    /// Returns the label of a tick.
    fn label(self, value: f64) -> String {
        match self {
            Quantity::Count => label_count(value),
            Quantity::Rate => per_second(value),
            Quantity::Number | Quantity::Ordinal | Quantity::Percent => shortest(value),
            Quantity::Bytes if value >= 1e3 => {
                let label = label_count(value);
                let (number, unit) = label.split_at(label.len() - 1);
                format!("{number} {unit}B")
            }
            Quantity::Bytes => format!("{} B", shortest(value)),
            Quantity::Microseconds => label_us(value),
            Quantity::Seconds => format!("{} s", shortest(value)),
            Quantity::Nines => percentile(value),
        }
    }

    /// Formats a value with its unit, except for counts and rates.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Quantity::Count | Quantity::Rate => match value {
                v if v >= 1e3 => per_second(v),
                v => shortest((v * 1e3).round() / 1e3),
            },
            Quantity::Number | Quantity::Ordinal => shortest(value),
            Quantity::Percent => format!("{value:.1} %"),
            Quantity::Bytes => show_bytes(value as u64),
            Quantity::Microseconds => label_us(value),
            Quantity::Seconds => format!("{} s", shortest((value * 1e2).round() / 1e2)),
            Quantity::Nines => percentile(value),
        }
    }

    /// Returns the name by which the page's script recognizes the quantity.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Quantity::Count | Quantity::Rate => "count",
            Quantity::Number => "number",
            Quantity::Ordinal => "ordinal",
            Quantity::Percent => "percent",
            Quantity::Bytes => "bytes",
            Quantity::Microseconds => "us",
            Quantity::Seconds => "s",
            Quantity::Nines => "nines",
        }
    }
}

/// Formats a share of requests that is given as a number of nines.
fn percentile(nines: f64) -> String {
    let places = (nines - 2.0).ceil().max(0.0) as usize;
    format!("{:.places$} %", 100.0 * (1.0 - 10f64.powf(-nines)))
}

/// An axis in the unit of the plotted values.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Axis {
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Tick positions with labels, ascending.
    pub(crate) ticks: Vec<(f64, String)>,
    /// Whether the scale is logarithmic. If so, all values are positive.
    pub(crate) log: bool,
    pub(crate) quantity: Quantity,
}

impl Axis {
    /// Returns the relative position of a value on the axis, from 0 to 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let position = |value: f64| {
            if self.log {
                value.max(self.from).log10()
            } else {
                value
            }
        };
        (position(value) - position(self.from)) / (position(self.to) - position(self.from))
    }

    fn linear(
        (from, to): (f64, f64),
        quantity: Quantity,
        ticks: impl Iterator<Item = (f64, String)>,
    ) -> Self {
        Axis {
            from,
            to,
            ticks: ticks.collect(),
            log: false,
            quantity,
        }
    }

    /// Returns a linear axis from zero to at least `largest`.
    pub(crate) fn from_zero(largest: f64, quantity: Quantity) -> Self {
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let step = round_step(largest / STEPS);
        let steps = (largest / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=steps as u32).map(|i| f64::from(i) * step);
        let labels = ticks.map(|at| (at, quantity.label(at)));
        Axis::linear((0.0, steps * step), quantity, labels)
    }

    /// Returns a linear axis from `from` to `to`.
    pub(crate) fn of_range((from, to): (f64, f64), quantity: Quantity) -> Self {
        let step = round_step((to - from).max(f64::MIN_POSITIVE) / STEPS);
        let ticks = multiples(step, (from, to));
        let labels = ticks.map(|at| (at, quantity.label(at)));
        Axis::linear((from, to), quantity, labels)
    }

    /// Returns an axis for microseconds: linear from zero, or logarithmic for a wide range.
    pub(crate) fn of_times(values: impl Iterator<Item = f64> + Clone) -> Self {
        let largest = values.clone().fold(0.0, f64::max);
        let least = values.fold(f64::INFINITY, f64::min);
        // Times have a resolution of a nanosecond, so decades below a nanosecond would be empty.
        if largest < least.max(1e-3) * LOG_FROM {
            return Axis::from_zero(largest.max(1e-3), Quantity::Microseconds);
        }
        Axis::of_decades(least.max(1e-3), largest)
    }

    /// Returns a logarithmic axis in microseconds. Its ends are 1, 2 or 5 times a power of ten: the
    /// lower end is at most `least`, and the upper end is at least `largest`.
    pub(crate) fn of_decades(least: f64, largest: f64) -> Self {
        let first = (least.log10() - 1e-9).floor() as i32;
        let last = (largest.log10() + 1e-9).ceil() as i32;
        let all = (first..=last).flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)));
        let below = all.clone().filter(|v| *v <= least * 1.000_001);
        let from = below.fold(10f64.powi(first), f64::max);
        let above = all.clone().filter(|v| *v >= largest * 0.999_999);
        let to = above.fold(10f64.powi(last), f64::min);
        let every = if last - first > 3 { 1 } else { 3 };
        let ticks = all
            .enumerate()
            .filter(|(i, v)| (every == 3 || i % 3 == 0) && (from..=to).contains(v))
            .map(|(_, v)| (v, label_us(v)));
        Axis {
            log: true,
            ..Axis::linear((from, to), Quantity::Microseconds, ticks)
        }
    }

    /// Returns an axis for seconds from the start of the measurement.
    pub(crate) fn of_seconds(from: f64, to: f64) -> Self {
        let rough = (to - from) / STEPS;
        let step = if rough < 1.0 {
            round_step(rough.max(1e-9))
        } else {
            let clock = CLOCK_S.iter().find(|step| **step >= rough);
            clock.copied().unwrap_or_else(|| round_step(rough))
        };
        let ticks = multiples(step, (from, to));
        let labels = ticks.map(|at| (at, label_s(at, step)));
        Axis::linear((from, to), Quantity::Seconds, labels)
    }

    /// Returns an axis for `n` successive items at the positions 1 to `n`.
    pub(crate) fn of_ordinals(n: usize, ticks: Vec<(f64, String)>) -> Self {
        let ends = (0.5, n as f64 + 0.5);
        Axis::linear(ends, Quantity::Ordinal, ticks.into_iter())
    }

    /// Returns an axis for shares of requests: 0 %, 90 %, 99 %, …, up to `decades` nines. Each
    /// additional nine has the same width.
    pub(crate) fn of_shares(decades: f64) -> Self {
        let ticks = (0..=decades.floor() as usize).map(|n| {
            let label = match n {
                // Omit long labels that would overlap.
                n if decades > 5.0 && n > 3 && n % 2 == 0 => String::new(),
                0 => "0 %".to_owned(),
                1 => "90 %".to_owned(),
                2 => "99 %".to_owned(),
                n => format!("99.{} %", "9".repeat(n - 2)),
            };
            (n as f64, label)
        });
        Axis::linear((0.0, decades), Quantity::Nines, ticks)
    }
}

/// Returns the multiples of `step` in a range.
fn multiples(step: f64, (from, to): (f64, f64)) -> impl Iterator<Item = f64> {
    let first = (from / step).ceil() as i64;
    let last = (to / step + 1e-9).floor() as i64;
    (first..=last).map(move |i| i as f64 * step)
}

/// Returns the smallest number that is at least `rough` and is 1, 2 or 5 times a power of ten.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let of = [1.0, 2.0, 5.0, 10.0].map(|m| m * power);
    of.into_iter()
        .find(|step| *step >= rough * 0.999_999)
        .unwrap_or(of[3])
}

/// Formats a count as in command-line flags: `150k`, `2.5M`, `0.5`.
fn label_count(value: f64) -> String {
    let (value, unit) = match value {
        v if v >= 1e12 => (v / 1e12, "T"),
        v if v >= 1e9 => (v / 1e9, "G"),
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    format!("{}{unit}", shortest(value))
}

/// Formats a tick in microseconds: `250 µs`, `1 ms`, `0`.
fn label_us(us: f64) -> String {
    match us {
        0.0 => "0".to_owned(),
        us => seconds(us / 1e6),
    }
}

fn label_s(at: f64, step: f64) -> String {
    match step {
        s if s >= 3600.0 => format!("{} h", shortest(at / 3600.0)),
        s if s >= 60.0 => format!("{} min", shortest(at / 60.0)),
        _ => format!("{} s", shortest(at)),
    }
}

/// Formats a value without binary rounding artifacts.
fn shortest(value: f64) -> String {
    let text = format!("{value:.9}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn rates_start_at_zero_and_end_above_the_largest() {
        let axis = Axis::from_zero(184_210.0, Quantity::Count);
        assert_eq!(labels(&axis), ["0", "50k", "100k", "150k", "200k"]);
        assert_eq!(
            labels(&Axis::from_zero(0.81, Quantity::Count)).last(),
            Some(&"1")
        );
        let zero = Axis::from_zero(0.0, Quantity::Count);
        assert_eq!((zero.from, zero.to), (0.0, 1.0));
        // In floating point, multiples of the step are not exact.
        let axis = Axis::of_range((0.7, 1.3), Quantity::Number);
        assert!(labels(&axis).contains(&"1.2"), "{:?}", labels(&axis));
    }

    #[test]
    fn times_of_a_wide_range_are_logarithmic() {
        let near = Axis::of_times([251.0, 1210.0].into_iter());
        assert!(!near.log);
        assert_eq!(labels(&near), ["0", "500 µs", "1 ms", "1.5 ms"]);
        let far = Axis::of_times([251.0, 40_000.0].into_iter());
        assert!(far.log);
        let expected = [
            "200 µs", "500 µs", "1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms",
        ];
        assert_eq!(labels(&far), expected);
        let wide = Axis::of_times([2.0, 3_000_000.0].into_iter());
        assert_eq!(labels(&wide).first(), Some(&"10 µs"));
        assert!(wide.from <= 2.0 && wide.to >= 3e6);
    }

    #[test]
    fn seconds_have_round_steps() {
        assert_eq!(
            labels(&Axis::of_seconds(0.0, 30.0)),
            ["0 s", "10 s", "20 s", "30 s"]
        );
        assert_eq!(labels(&Axis::of_seconds(-5.0, 10.0)).first(), Some(&"-5 s"));
        assert_eq!(
            labels(&Axis::of_seconds(0.0, 600.0)).last(),
            Some(&"10 min")
        );
        assert_eq!(labels(&Axis::of_seconds(0.0, 0.5)).last(), Some(&"0.5 s"));
    }

    #[test]
    fn shares_add_nines() {
        assert_eq!(
            labels(&Axis::of_shares(4.3)),
            ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]
        );
        assert_eq!(
            labels(&Axis::of_shares(6.1))[3..],
            ["99.9 %", "", "99.999 %", ""]
        );
    }

    proptest! {
        #[test]
        fn every_axis_contains_its_values_and_has_few_ticks(a in 0.0..LARGEST, b in 0.0..LARGEST, small in 0.0..1e-3f64) {
            for axis in [
                Axis::from_zero(a, Quantity::Count),
                Axis::from_zero(small, Quantity::Count),
                Axis::of_times([a, b].into_iter()),
                Axis::of_times([a, small].into_iter()),
                Axis::of_seconds(0.0, a + 1.0),
            ] {
                prop_assert!(axis.ticks.len() <= 24, "{axis:?}");
                prop_assert!(axis.from < axis.to, "{axis:?}");
                prop_assert!(axis.ticks.iter().all(|(at, _)| at.is_finite()), "{axis:?}");
            }
            prop_assert!(Axis::from_zero(a, Quantity::Count).to >= a * 0.999);
        }
    }
}
