//! One chart: curves over an axis, drawn by plotters as SVG, with its title, unit and key beside it as HTML.
//!
//! The SVG holds nothing but figures and labels made here; every name stands in the HTML, where it is escaped. Colours are those of
//! paper; the page's style sheet finds them by their value and changes them for a dark screen.

use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;

use super::axis::Axis;
use super::text::Shown;

/// Size in drawing units. Plotters places by whole units, so a unit is half a pixel at the width charts are made for.
const SIZE: (u32, u32) = (880, 500);
const LEFT: u32 = 112;
const BOTTOM: u32 = 46;
const TOP: u32 = 20;
/// Half of the last label below the axis stands to the right of it.
const RIGHT: u32 = 60;
const LABEL: u32 = 25;

/// Colours of curves, which colour-blind readers can tell apart (Okabe and Ito 2008); the style sheet gives each a dash of
/// its own for paper without colour.
const INKS: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xB8, 0x86, 0x00),
];
const ASKED: RGBColor = RGBColor(0x77, 0x77, 0x77);
const TEXT: RGBColor = RGBColor(0x44, 0x44, 0x44);
const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
const SHADE: RGBColor = RGBColor(0xEE, 0xEE, 0xEE);
const MARK: RGBColor = RGBColor(0xAA, 0x33, 0x33);

/// As many curves as a chart can show and a reader follow.
pub(crate) const MOST_CURVES: usize = INKS.len();

/// Plotters could not draw; none of its reasons comes from the record, since SVG is written to memory.
#[derive(Debug, thiserror::Error)]
#[error("a chart could not be drawn: {0}")]
pub struct DrawError(String);

/// What a curve stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Measured; which of the colours.
    Measured(usize),
    /// What the plan asks for.
    Asked,
}

impl Ink {
    fn colour(self) -> RGBColor {
        match self {
            Ink::Measured(i) => INKS[i % INKS.len()],
            Ink::Asked => ASKED,
        }
    }
}

/// A stretch of a curve without a gap.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Piece {
    pub(crate) points: Vec<(f64, f64)>,
    /// Outside the window that figures are of.
    pub(crate) faint: bool,
}

/// A curve, as pieces between which nothing was measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) pieces: Vec<Piece>,
}

impl Curve {
    /// All values on the upright axis.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> + Clone {
        self.pieces
            .iter()
            .flat_map(|piece| piece.points.iter().map(|(_, y)| *y))
    }
}

/// One chart.
#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// What the upright axis counts.
    pub(crate) unit: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
    /// Parts of the level axis that are shaded.
    pub(crate) shades: Vec<(f64, f64)>,
    /// Places of the level axis with a line across.
    pub(crate) marks: Vec<f64>,
    pub(crate) notes: Vec<String>,
}

impl Chart {
    /// The chart with its title, key and notes.
    ///
    /// # Errors
    /// See [`DrawError`].
    pub(crate) fn figure(&self) -> Result<Markup, DrawError> {
        let svg = self.svg()?;
        let names: Vec<&str> = self.seen().map(|curve| curve.name.as_str()).collect();
        let said = format!("{}, {}: {}", self.title, self.unit, names.join(", "));
        let scale = if self.y.log {
            ", logarithmic scale"
        } else {
            ""
        };
        Ok(html! {
            figure {
                figcaption { b { (Shown(&self.title)) } " " span.unit { (Shown(&self.unit)) (scale) } }
                @if !self.named_by_title() {
                    ul.key {
                        @for curve in self.seen() {
                            li { (swatch(curve.ink)) (Shown(&curve.name)) }
                        }
                    }
                }
                div.plot role="img" aria-label=(Shown(&said)) { (PreEscaped(svg)) }
                @for note in &self.notes { p.note { (Shown(note)) } }
            }
        })
    }

    /// The curves that have something to show: a key must not send its reader looking for the others.
    fn seen(&self) -> impl Iterator<Item = &Curve> {
        self.curves.iter().filter(|curve| !curve.pieces.is_empty())
    }

    /// Whether a key would say nothing but the title again.
    fn named_by_title(&self) -> bool {
        matches!(self.curves.as_slice(), [one] if one.name == self.title)
    }

    fn svg(&self) -> Result<String, DrawError> {
        let failed = |e: &dyn std::fmt::Display| DrawError(e.to_string());
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            let mut chart = ChartBuilder::on(&root)
                .margin_top(TOP)
                .margin_right(RIGHT)
                .x_label_area_size(BOTTOM)
                .y_label_area_size(LEFT)
                .build_cartesian_2d(self.x.clone(), self.y.clone())
                .map_err(|e| failed(&e))?;
            chart
                .draw_series(self.shades.iter().map(|(from, to)| {
                    Rectangle::new([(*from, self.y.from), (*to, self.y.to)], SHADE.filled())
                }))
                .map_err(|e| failed(&e))?;
            let label = ("sans-serif", LABEL).into_font().color(&TEXT);
            chart
                .configure_mesh()
                .light_line_style(TRANSPARENT)
                .bold_line_style(GRID.stroke_width(1))
                .axis_style(TEXT.stroke_width(1))
                .x_label_style(label.clone())
                .y_label_style(label)
                .draw()
                .map_err(|e| failed(&e))?;
            for at in &self.marks {
                let across = [(*at, self.y.from), (*at, self.y.to)];
                chart
                    .draw_series(LineSeries::new(across, MARK.stroke_width(2)))
                    .map_err(|e| failed(&e))?;
            }
            // What was asked for lies below what came of it.
            let asked_first = |curve: &&Curve| curve.ink != Ink::Asked;
            let mut curves: Vec<&Curve> = self.curves.iter().collect();
            curves.sort_by_key(asked_first);
            for curve in curves {
                for piece in &curve.pieces {
                    let opacity = if piece.faint { 0.35 } else { 1.0 };
                    let style = curve.ink.colour().mix(opacity).stroke_width(3);
                    chart
                        .draw_series(LineSeries::new(piece.points.iter().copied(), style))
                        .map_err(|e| failed(&e))?;
                }
            }
            root.present().map_err(|e| failed(&e))?;
        }
        Ok(svg)
    }
}

/// A stroke as in the chart.
fn swatch(ink: Ink) -> Markup {
    let RGBColor(r, g, b) = ink.colour();
    let stroke = format!("#{r:02X}{g:02X}{b:02X}");
    html! {
        svg.swatch viewBox="0 0 44 10" aria-hidden="true" {
            line x1="0" y1="5" x2="44" y2="5" stroke=(stroke) stroke-width="4" {}
        }
    }
}
