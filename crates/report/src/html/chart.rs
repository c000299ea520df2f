//! Charts as SVG, with a table of their values. The title, unit and key are HTML.
//!
//! The SVG contains only figures, generated labels and labels of limits. Names are HTML text, so
//! that long names wrap. The style sheet gives each class a color and each curve a dash pattern.
//! The `data` attributes describe the axes, so that the page's script can convert coordinates to
//! values.

use maud::{Markup, html};

use crate::model::chart::{
    AreaColor, Axis, Chart, ChartMark, Curve, CurvePiece, CurveRole, DotColor,
};
use crate::plain::Harmless;

/// Width of a chart in drawing units. One unit is about half a pixel.
const WIDTH: f64 = 880.0;

const HEIGHT: f64 = 500.0;

/// Left edge of the plot area.
const LEFT: f64 = 112.0;

/// Right edge of the plot area. The space to its right has room for half of the last label below
/// the x axis.
const RIGHT: f64 = WIDTH - 60.0;

const TOP: f64 = 20.0;

const BOTTOM: f64 = HEIGHT - 46.0;

/// Width of the strips on both sides of the plot area into which points at its edges extend.
const MARGIN: f64 = 10.0;

/// Mean character width of a label below the x axis, in drawing units.
const TICK_CHARACTER: f64 = 15.5;

/// Number of characters of a label that fit into half of the plot area.
const HALF_CHARACTERS: usize = 26;

/// Returns a chart with its title, key, values and notes.
pub(super) fn figure(chart: &Chart) -> Markup {
    let names: Vec<&str> = chart.drawn().map(|curve| curve.name.as_str()).collect();
    let description = format!("{}, {}: {}", chart.title, chart.unit, names.join(", "));
    html! {
        figure {
            figcaption {
                b { (Harmless(&chart.title)) } " "
                span.unit { (Harmless(&chart.unit)) @if chart.y.log { ", logarithmic scale" } }
            }
            // Omit the name of a single curve if it equals the chart's title. The script adds
            // values to the key.
            @let is_single = names.len() == 1 && names[0] == chart.title;
            ul.key.single[is_single] {
                @for curve in chart.drawn() {
                    li { (swatch(curve)) @if !is_single { (Harmless(&curve.name)) } }
                }
            }
            div.plot role="img" aria-label=(Harmless(&description))
                data-x=(axis(&chart.x)) data-y=(axis(&chart.y)) { (svg(chart)) }
            (values(chart))
            @for note in &chart.notes { p.note { (Harmless(note)) } }
        }
    }
}

/// Describes an axis: its ends, its scale and its quantity.
fn axis(axis: &Axis) -> String {
    let scale = if axis.log { "log" } else { "linear" };
    format!("{} {} {scale} {}", axis.from, axis.to, axis.quantity.name())
}

/// Returns a collapsed table of the values.
fn values(chart: &Chart) -> Markup {
    let rows = chart.values();
    if rows.is_empty() {
        return html! {};
    }
    html! {
        details.values {
            summary { "Values" }
            div.wide tabindex="0" role="group" aria-label={ "Values of " (Harmless(&chart.title)) } {
                table {
                    tr {
                        td {}
                        @for curve in chart.drawn() { th scope="col" { (Harmless(&curve.name)) } }
                    }
                    @for (at, row) in rows {
                        tr {
                            th scope="row" { (chart.x.quantity.show(at)) }
                            @for value in row {
                                td { (value.map_or_else(|| "–".to_owned(), |value| chart.y.quantity.show(value))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn svg(chart: &Chart) -> Markup {
    let tenth = |units: f64| (units * 10.0).round() / 10.0;
    let x = |value: &f64| tenth(LEFT + chart.x.share(*value) * (RIGHT - LEFT));
    let y = |value: &f64| tenth(BOTTOM - chart.y.share(*value) * (BOTTOM - TOP));
    let line = |class: &str, from: (f64, f64), to: (f64, f64)| {
        html! { line class=(class) x1=(from.0) y1=(from.1) x2=(to.0) y2=(to.1) {} }
    };
    let upright = |class: &str, at: &f64| line(class, (x(at), TOP), (x(at), BOTTOM));
    let points = |points: &[(f64, f64)]| {
        let points = points.iter();
        points
            .map(|(at, value)| format!("{},{} ", x(at), y(value)))
            .collect::<String>()
    };
    let labels = chart.x.ticks.iter();
    let labels: Vec<_> = labels.map(|(at, label)| (x(at), label.as_str())).collect();
    // Draw the offered rate first, so that the achieved rate is in front.
    let mut curves: Vec<&Curve> = chart.curves.iter().collect();
    curves.sort_by_key(|curve| curve.role != CurveRole::Offered);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } {
            @for (at, label) in &chart.y.ticks {
                (line("grid", (LEFT, y(at)), (RIGHT, y(at))))
                text.y x=(LEFT - 7.0) y=(y(at)) { (label) }
            }
            @for (at, label) in spaced(&labels) {
                text.x x=(at) y=(BOTTOM + 34.0) { (label) }
            }
            // This nested SVG clips what the script moves out of the plot area.
            svg x=(LEFT - MARGIN) width=(RIGHT - LEFT + 2.0 * MARGIN) height=(HEIGHT)
                viewBox={ (LEFT - MARGIN) " 0 " (RIGHT - LEFT + 2.0 * MARGIN) " " (HEIGHT) } {
                @for (from, to) in &chart.shades {
                    rect.shade x=(x(from)) y=(TOP) width=(tenth(x(to) - x(from))) height=(BOTTOM - TOP) {}
                }
                @for band in &chart.bands {
                    rect.band x=(x(&band.from)) y=(TOP) width=(tenth(x(&band.to) - x(&band.from)).max(2.0)) height=(BOTTOM - TOP) {}
                }
                @for (at, _) in &chart.x.ticks { (upright("grid", at)) }
                @for cell in &chart.cells {
                    rect class={ "heat h" (cell.intensity) } x=(x(&cell.x.0)) y=(y(&cell.y.1))
                        width=(tenth(x(&cell.x.1) - x(&cell.x.0))) height=(tenth(y(&cell.y.0) - y(&cell.y.1))) {}
                }
                @for (upper, area) in stacked(chart).iter().rev() {
                    polygon class=(class(area.role)) points={
                        (points(upper)) (upper.last().map_or(RIGHT, |last| x(&last.0))) "," (BOTTOM) " "
                        (upper.first().map_or(LEFT, |first| x(&first.0))) "," (BOTTOM)
                    } {}
                }
                @for mark in &chart.marks { (upright("mark", &mark.at)) }
                @for (at, (low, high)) in &chart.ranges { (line("range", (x(at), y(low)), (x(at), y(high)))) }
                @for curve in curves {
                    @for piece in &curve.pieces {
                        @match curve.role {
                            CurveRole::Area(_) => {}
                            CurveRole::Dots(_) => {
                                @for (at, value) in &piece.points {
                                    circle class=(class(curve.role)) cx=(x(at)) cy=(y(value)) r="8" {}
                                }
                            }
                            _ => {
                                @let outside = if piece.faint { " outside" } else { "" };
                                polyline class={ (class(curve.role)) (outside) } points=(points(&piece.points)) {}
                            }
                        }
                    }
                }
                @for mark in chart.marks.iter().filter(|mark| !mark.label.is_empty()) {
                    (upright_label(x(&mark.at), 26.0, mark))
                }
                @for band in one_per_label(chart) { (upright_label(x(&band.at), 54.0, &band)) }
            }
            (line("axis", (LEFT, TOP), (LEFT, BOTTOM)))
            (line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM)))
            @for mark in &chart.levels {
                (line("level", (LEFT, y(&mark.at)), (RIGHT, y(&mark.at))))
                (LevelLabel::place(chart, mark, |(at, value)| (x(&at), y(&value))).draw(mark))
            }
        }
    }
}

/// Keeps every nth label below the x axis, with the smallest n for which labels do not overlap.
fn spaced<'a>(labels: &[(f64, &'a str)]) -> Vec<(f64, &'a str)> {
    let half = |label: &str| 0.5 * TICK_CHARACTER * label.chars().count() as f64;
    let kept = |n: usize| labels.iter().copied().step_by(n).collect::<Vec<_>>();
    let is_free = |kept: &Vec<(f64, &str)>| {
        let mut pairs = kept.windows(2);
        pairs.all(|pair| pair[0].0 + half(pair[0].1) < pair[1].0 - half(pair[1].1))
    };
    let every = (1..=labels.len()).map(kept).find(is_free);
    every.unwrap_or_default()
}

/// Writes a label beside a vertical line, on the side with more room.
fn upright_label(at: f64, below: f64, mark: &ChartMark) -> Markup {
    let is_left = at > f64::midpoint(LEFT, RIGHT);
    let anchor = if is_left { "end" } else { "start" };
    let at = if is_left { at - 8.0 } else { at + 8.0 };
    let label: String = mark.label.chars().take(HALF_CHARACTERS).collect();
    html! { text.label x=(at) y=(TOP + below) text-anchor=(anchor) { (Harmless(&label)) } }
}

/// Returns a mark for each distinct label, at the start of the first band with this label.
fn one_per_label(chart: &Chart) -> Vec<ChartMark> {
    let mut marks: Vec<ChartMark> = Vec::new();
    for band in &chart.bands {
        if marks.iter().all(|mark| mark.label != band.label) {
            marks.push(ChartMark::new(band.from, band.label.clone()));
        }
    }
    marks
}

/// Returns the upper edge of each piece of each area, starting with the lowest area. All areas of a
/// chart have the same pieces.
fn stacked(chart: &Chart) -> Vec<(Vec<(f64, f64)>, &Curve)> {
    let is_area = |curve: &&Curve| matches!(curve.role, CurveRole::Area(_));
    let areas: Vec<&Curve> = chart.curves.iter().filter(is_area).collect();
    let pieces = areas.first().map_or(0, |area| area.pieces.len());
    let mut all = Vec::new();
    for piece in 0..pieces {
        let mut below: Vec<(f64, f64)> = Vec::new();
        for area in &areas {
            let own = area.pieces[piece].points.iter().enumerate();
            let upper = own.map(|(i, (at, value))| {
                let below = below.get(i).map_or(0.0, |(_, value)| *value);
                (*at, value + below)
            });
            below = upper.collect();
            all.push((below.clone(), *area));
        }
    }
    all
}

fn class(role: CurveRole) -> String {
    match role {
        CurveRole::Measured(i) => format!("curve k{i}"),
        CurveRole::Dots(DotColor::Neutral) => "dot neutral".to_owned(),
        CurveRole::Dots(DotColor::Good) => "dot good".to_owned(),
        CurveRole::Dots(DotColor::Bad) => "dot bad".to_owned(),
        CurveRole::Area(AreaColor::Curve(i)) => format!("area a{i}"),
        CurveRole::Area(AreaColor::Idle) => "area idle".to_owned(),
        CurveRole::Offered => "curve offered".to_owned(),
    }
}

/// Draws a sample of a curve's stroke for the key.
fn swatch(curve: &Curve) -> Markup {
    let class = class(curve.role);
    html! {
        svg.swatch viewBox="0 0 44 10" aria-hidden="true" {
            @match curve.role {
                CurveRole::Dots(_) => { circle class=(class) cx="22" cy="5" r="4.5" {} }
                CurveRole::Area(_) => { rect class=(class) x="8" y="0" width="28" height="10" {} }
                _ => { line class=(class) x1="0" y1="5" x2="44" y2="5" {} }
            }
        }
    }
}

/// Character width of a label, in drawing units.
const CHARACTER: f64 = 12.0;

/// Line height of a label, in drawing units.
const LINE: f64 = 30.0;

/// Number of equal steps into which each segment of a curve is divided to check whether the curve
/// crosses a label.
const STEPS: u32 = 8;

/// Position of a horizontal line's label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LevelLabel {
    /// Whether the label is at the left end of the line.
    is_left: bool,
    is_above: bool,
    /// Vertical position of the line, in drawing units.
    at: f64,
}

impl LevelLabel {
    /// Chooses the end and the side of the line where the fewest curves cross the label. `position`
    /// converts a point to drawing units.
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
        let (x, anchor) = if self.is_left {
            (LEFT + 6.0, "start")
        } else {
            (RIGHT - 6.0, "end")
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

    #[test]
    fn leaves_out_overlapping_labels() {
        let labels = [
            (112.0, "20 ms"),
            (229.5, "50 ms"),
            (318.4, "100 ms"),
            (407.3, "200 ms"),
            (524.7, "500 ms"),
            (613.6, "1 s"),
        ];
        let kept: Vec<&str> = spaced(&labels).iter().map(|of| of.1).collect();
        assert_eq!(kept, ["20 ms", "100 ms", "500 ms"]);
        assert_eq!(spaced(&labels[..2]), labels[..2]);
        assert_eq!(spaced(&[]), []);
    }

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
