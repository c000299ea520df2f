//! Charts: curves on axes, with notes.

mod axis;
pub(crate) mod capacity;
mod cpu;
mod curves;
pub(crate) mod distribution;
mod evidence;
pub(crate) mod gate;
mod heat;
pub(crate) mod observed;
pub(crate) mod over_time;
pub(crate) mod swept;
pub(crate) mod trend;
pub(crate) mod tuned;

use axis::drawable;
pub(crate) use axis::{Axis, Quantity};
pub use distribution::DamagedHistogram;
pub(crate) use heat::HeatCell;

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

/// A part of a curve without gaps.
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
        let points: Vec<_> = points
            .filter(|(x, y)| drawable(*x) && drawable(*y))
            .collect();
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
    /// steps, this is the value of the later one.
    fn value_at(&self, at: f64) -> Option<f64> {
        if let CurveRole::Dots(_) = self.role {
            return self.points().find(|(x, _)| *x == at).map(|(_, y)| y);
        }
        let within = |piece: &&CurvePiece| {
            let ends = piece.points.first().zip(piece.points.last());
            ends.is_some_and(|(first, last)| (first.0..=last.0).contains(&at))
        };
        let piece = self.pieces.iter().rev().find(within)?;
        let next = piece.points.partition_point(|(x, _)| *x <= at);
        let (left, right) = (
            piece.points.get(next.checked_sub(1)?)?,
            piece.points.get(next),
        );
        Some(match right {
            Some(right) if right.0 > left.0 => {
                left.1 + (right.1 - left.1) * (at - left.0) / (right.0 - left.0)
            }
            _ => left.1,
        })
    }

    pub(crate) fn points(&self) -> impl Iterator<Item = (f64, f64)> + Clone {
        self.pieces
            .iter()
            .flat_map(|piece| piece.points.iter().copied())
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

/// Returns a note if a chart cannot show all of `curves` curves.
fn more_in_table(curves: usize) -> Option<String> {
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
    /// The values don't matter.
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
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// Unit of the y axis.
    pub(crate) unit: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
    /// Cells of a heat map, which has no curves.
    pub(crate) cells: Vec<HeatCell>,
    /// Vertical bars, each at a position on the x axis from a lower to an upper value.
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
            cells: Vec::new(),
            ranges: Vec::new(),
            shades: Vec::new(),
            marks: Vec::new(),
            bands: Vec::new(),
            levels: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Extends the y axis to a level and draws it.
    pub(crate) fn with_level(mut self, at: f64, label: impl Into<String>) -> Self {
        if at > self.y.to {
            self.y = Axis::from_zero(at, self.y.quantity);
        }
        self.levels.push(ChartMark::new(at, label));
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
