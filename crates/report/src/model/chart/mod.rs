//! Charts: curves over axes, with their notes.

mod axis;
mod curves;
pub(crate) mod distribution;
pub(crate) mod observed;
pub(crate) mod over_time;
pub(crate) mod swept;

pub(crate) use axis::Axis;
pub use distribution::DamagedHistogram;

/// Maximum number of curves of a chart. More would need more colors than readers can tell apart.
pub(crate) const MAX_CURVES: usize = 5;

/// What a curve shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CurveRole {
    /// A measurement, with the number of its color.
    Measured(usize),
    /// The rate that the plan offers.
    Offered,
}

/// A part of a curve without a gap.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CurvePiece {
    pub(crate) points: Vec<(f64, f64)>,
    /// Outside the window.
    pub(crate) faint: bool,
}

/// A curve. Nothing was measured between its pieces.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) role: CurveRole,
    pub(crate) pieces: Vec<CurvePiece>,
}

impl Curve {
    /// A measured curve.
    pub(crate) fn measured(color: usize, name: &str, pieces: Vec<CurvePiece>) -> Self {
        Curve {
            name: name.to_owned(),
            role: CurveRole::Measured(color),
            pieces,
        }
    }

    /// Returns all values on the y axis.
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
    /// Shaded ranges of the x axis.
    pub(crate) shades: Vec<(f64, f64)>,
    /// Positions on the x axis with a line across.
    pub(crate) marks: Vec<f64>,
    pub(crate) notes: Vec<String>,
}

impl Chart {
    /// Returns a chart without shades, marks and notes.
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

    /// Returns the curves that have something to show.
    pub(crate) fn drawn(&self) -> impl Iterator<Item = &Curve> {
        self.curves.iter().filter(|curve| !curve.pieces.is_empty())
    }
}

/// Returns the largest value of some curves, or 0.
fn largest(curves: &[Curve]) -> f64 {
    curves.iter().flat_map(Curve::values).fold(0.0, f64::max)
}
