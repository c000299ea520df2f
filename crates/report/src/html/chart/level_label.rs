//! Labels of horizontal lines, such as the limit of an objective.

use maud::{Markup, html};

use super::{BOTTOM, LEFT, RIGHT, TOP};
use crate::html::Harmless;
use crate::model::chart::{Chart, ChartMark, CurvePiece, CurveRole};

/// Character width of a label, in drawing units.
const CHARACTER: f64 = 12.0;

/// Line height of a label, in drawing units.
const LINE: f64 = 30.0;

/// Number of equal steps per segment of a curve when checking whether the curve crosses a label.
const STEPS: u32 = 8;

/// Position of a horizontal line's label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LevelLabel {
    /// Whether the label is at the left end of the line.
    is_left: bool,
    is_above: bool,
    /// Position of the line in drawing units.
    at: f64,
}

impl LevelLabel {
    /// Chooses the end and the side of the line at which the fewest curves cross the label.
    /// `position` returns the drawing units of a point.
    pub(super) fn place(
        chart: &Chart,
        mark: &ChartMark,
        position: impl Fn((f64, f64)) -> (f64, f64),
    ) -> Self {
        let (_, at) = position((chart.x.from, mark.at));
        let width = mark.label.chars().count() as f64 * CHARACTER;
        let mut drawn: Vec<(f64, f64)> = Vec::new();
        for curve in chart.drawn() {
            for piece in &curve.pieces {
                match curve.role {
                    CurveRole::Dots(_) => drawn.extend(piece.points.iter().map(|of| position(*of))),
                    _ => drawn.extend(along(piece, &position)),
                }
            }
        }
        let places = [(false, false), (false, true), (true, false), (true, true)];
        let places = places.map(|(is_left, is_above)| LevelLabel {
            is_left,
            is_above,
            at,
        });
        let crossings = |label: &LevelLabel| {
            let left = if label.is_left { LEFT } else { RIGHT - width };
            let top = if label.is_above { at - LINE } else { at };
            let is_crossed = |(x, y): &&(f64, f64)| {
                (left..=left + width).contains(x) && (top..=top + LINE).contains(y)
            };
            let is_outside = top < TOP || top + LINE > BOTTOM;
            (is_outside, drawn.iter().filter(is_crossed).count())
        };
        let best = places.into_iter().min_by_key(crossings);
        best.unwrap_or(places[0])
    }

    /// Draws the label of the line.
    pub(super) fn draw(self, mark: &ChartMark) -> Markup {
        let (x, anchor) = match self.is_left {
            true => (LEFT + 6.0, "start"),
            false => (RIGHT - 6.0, "end"),
        };
        let y = if self.is_above {
            self.at - 8.0
        } else {
            self.at + 24.0
        };
        html! { text.label x=(x) y=((y * 10.0).round() / 10.0) text-anchor=(anchor) { (Harmless(&mark.label)) } }
    }
}

/// Returns points along the segments of a curve, in drawing units.
fn along(
    piece: &CurvePiece,
    position: impl Fn((f64, f64)) -> (f64, f64),
) -> impl Iterator<Item = (f64, f64)> {
    piece.points.windows(2).flat_map(move |ends| {
        let [a, b] = [position(ends[0]), position(ends[1])];
        (0..=STEPS).map(move |i| {
            let share = f64::from(i) / f64::from(STEPS);
            (a.0 + share * (b.0 - a.0), a.1 + share * (b.1 - a.1))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chart::{Axis, Curve, DotColor, Quantity};

    /// Returns `(is_left, is_above)` for the label of a line at y = 50 in a 100 × 100 chart.
    fn place(curve: Curve) -> (bool, bool) {
        let axis = || Axis::from_zero(100.0, Quantity::Number);
        let chart = Chart::new("title", "unit", (axis(), axis()), vec![curve]);
        let position = |(x, y): (f64, f64)| {
            let share = |value: f64| value / 100.0;
            (
                LEFT + share(x) * (RIGHT - LEFT),
                BOTTOM - share(y) * (BOTTOM - TOP),
            )
        };
        let label = LevelLabel::place(&chart, &ChartMark::new(50.0, "p99 < 5ms"), position);
        (label.is_left, label.is_above)
    }

    fn line(points: Vec<(f64, f64)>) -> Curve {
        Curve::measured(0, "curve", vec![CurvePiece::of(points)])
    }

    #[test]
    fn labels_avoid_curves() {
        let low = vec![(0.0, 5.0), (100.0, 5.0)];
        assert_eq!(place(line(low)), (false, false), "no curve is near");
        let below_right = vec![(60.0, 48.0), (100.0, 48.0)];
        assert_eq!(place(line(below_right)), (false, true));
        let through_right = vec![(85.0, 42.0), (100.0, 58.0)];
        assert_eq!(place(line(through_right)), (true, false));
    }

    #[test]
    fn dots_are_not_connected() {
        // A line between these points would cross the label.
        let around = vec![(60.0, 40.0), (100.0, 49.0), (60.0, 60.0)];
        let dots = Curve::dots(DotColor::Neutral, "trials", around.clone());
        assert_eq!(place(dots), (false, true));
        assert_eq!(place(line(around)), (true, false));
    }
}
