//! Charts: curves on axes, with notes.

mod axis;
pub(crate) mod capacity;
mod curves;
pub(crate) mod distribution;
pub(crate) mod observed;
pub(crate) mod over_time;
pub(crate) mod swept;
pub(crate) mod tuned;

pub(crate) use axis::Axis;
pub use distribution::DamagedHistogram;

/// Maximum number of curves in a chart. Readers cannot distinguish more colors.
pub(crate) const MAX_CURVES: usize = 5;

/// What a curve represents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CurveRole {
    /// A measured curve. The index selects its color.
    Measured(usize),
    /// Measured points that are not connected.
    Dots(DotColor),
    /// The rate offered by the plan.
    Offered,
}

/// Color of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DotColor {
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

    /// Creates points that are not connected.
    pub(crate) fn dots(color: DotColor, name: &str, points: Vec<(f64, f64)>) -> Self {
        let pieces = (!points.is_empty()).then(|| CurvePiece::of(points));
        Curve {
            name: name.to_owned(),
            role: CurveRole::Dots(color),
            pieces: Vec::from_iter(pieces),
        }
    }

    /// Iterates over all y values.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> + Clone {
        let points = self.pieces.iter().flat_map(|piece| &piece.points);
        points.map(|(_, y)| *y)
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
    /// Shaded ranges on the x axis.
    pub(crate) shades: Vec<(f64, f64)>,
    /// Positions of vertical lines on the x axis.
    pub(crate) marks: Vec<f64>,
    pub(crate) notes: Vec<String>,
}

impl Chart {
    /// Creates a chart without shades, marks or notes.
    pub(crate) fn new(title: &str, unit: &str, (x, y): (Axis, Axis), curves: Vec<Curve>) -> Self {
        Chart {
            title: title.to_owned(),
            unit: unit.to_owned(),
            x,
            y,
            curves,
            shades: Vec::new(),
            marks: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns the curves that are not empty.
    pub(crate) fn drawn(&self) -> impl Iterator<Item = &Curve> {
        self.curves.iter().filter(|curve| !curve.pieces.is_empty())
    }
}

/// Returns the largest y value of the curves, or 0.
fn largest(curves: &[Curve]) -> f64 {
    curves.iter().flat_map(Curve::values).fold(0.0, f64::max)
}
