//! Charts as SVG. The title, unit and key are HTML.
//!
//! The SVG contains only figures and generated labels. Names are HTML text, so that long names
//! wrap. The style sheet gives each class a color and each curve a dash pattern.

use maud::{Markup, html};

use super::Harmless;
use crate::model::chart::{Chart, Curve, CurvePiece, CurveRole, DotColor};

/// Width of a chart in drawing units. One unit is about half a pixel.
const WIDTH: f64 = 880.0;
const HEIGHT: f64 = 500.0;
/// Edges of the plot area.
const LEFT: f64 = 112.0;
/// Right edge. The margin leaves room for half of the last label below the x axis.
const RIGHT: f64 = WIDTH - 60.0;
const TOP: f64 = 20.0;
const BOTTOM: f64 = HEIGHT - 46.0;

/// Returns a chart with its title, key and notes.
pub(super) fn figure(chart: &Chart) -> Markup {
    let names: Vec<&str> = chart.drawn().map(|curve| curve.name.as_str()).collect();
    let description = format!("{}, {}: {}", chart.title, chart.unit, names.join(", "));
    // Omit the key of a single curve that has the chart's name.
    let has_key = names.len() != 1 || names[0] != chart.title;
    html! {
        figure {
            figcaption {
                b { (Harmless(&chart.title)) } " "
                span.unit { (Harmless(&chart.unit)) @if chart.y.log { ", logarithmic scale" } }
            }
            @if has_key {
                ul.key { @for curve in chart.drawn() { li { (swatch(curve)) (Harmless(&curve.name)) } } }
            }
            div.plot role="img" aria-label=(Harmless(&description)) { (svg(chart)) }
            @for note in &chart.notes { p.note { (Harmless(note)) } }
        }
    }
}

fn svg(chart: &Chart) -> Markup {
    let x = |value: &f64| (LEFT + chart.x.share(*value) * (RIGHT - LEFT)).round();
    let y = |value: &f64| (BOTTOM - chart.y.share(*value) * (BOTTOM - TOP)).round();
    let line = |class: &str, from: (f64, f64), to: (f64, f64)| {
        html! { line class=(class) x1=(from.0) y1=(from.1) x2=(to.0) y2=(to.1) {} }
    };
    let upright = |class: &str, at: &f64| line(class, (x(at), TOP), (x(at), BOTTOM));
    let points = |piece: &CurvePiece| {
        let points = piece.points.iter();
        points
            .map(|(at, value)| format!("{},{} ", x(at), y(value)))
            .collect::<String>()
    };
    // Draw the offered rate first, so that the achieved rate is in front.
    let mut curves: Vec<&Curve> = chart.curves.iter().collect();
    curves.sort_by_key(|curve| curve.role != CurveRole::Offered);
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } {
            @for (from, to) in &chart.shades {
                rect.shade x=(x(from)) y=(TOP) width=(x(to) - x(from)) height=(BOTTOM - TOP) {}
            }
            @for (at, label) in &chart.y.ticks {
                (line("grid", (LEFT, y(at)), (RIGHT, y(at))))
                text.y x=(LEFT - 12.0) y=(y(at)) { (label) }
            }
            @for (at, label) in &chart.x.ticks {
                (upright("grid", at))
                text.x x=(x(at)) y=(BOTTOM + 34.0) { (label) }
            }
            (line("axis", (LEFT, TOP), (LEFT, BOTTOM)))
            (line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM)))
            @for at in &chart.marks { (upright("mark", at)) }
            @for curve in curves {
                @for piece in &curve.pieces {
                    @if let CurveRole::Dots(_) = curve.role {
                        @for (at, value) in &piece.points {
                            circle class=(class(curve.role)) cx=(x(at)) cy=(y(value)) r="8" {}
                        }
                    } @else {
                        @let outside = if piece.faint { " outside" } else { "" };
                        polyline class={ (class(curve.role)) (outside) } points=(points(piece)) {}
                    }
                }
            }
        }
    }
}

fn class(role: CurveRole) -> String {
    match role {
        CurveRole::Measured(i) => format!("curve k{i}"),
        CurveRole::Dots(DotColor::Good) => "dot good".to_owned(),
        CurveRole::Dots(DotColor::Bad) => "dot bad".to_owned(),
        CurveRole::Offered => "curve offered".to_owned(),
    }
}

/// Draws a sample of a curve's stroke for the key.
fn swatch(curve: &Curve) -> Markup {
    html! {
        svg.swatch viewBox="0 0 44 10" aria-hidden="true" {
            @if let CurveRole::Dots(_) = curve.role {
                circle class=(class(curve.role)) cx="22" cy="5" r="4.5" {}
            } @else {
                line class=(class(curve.role)) x1="0" y1="5" x2="44" y2="5" {}
            }
        }
    }
}
