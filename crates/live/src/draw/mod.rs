//! Draws the live view into a buffer. Nothing here does I/O.

mod lists;
mod narrow;
mod panels;
mod theme;
mod wide;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::MIN_SIZE;
use crate::state::LiveState;
pub(crate) use theme::Theme;

/// Minimum size of the full layout: columns and rows.
const WIDE: (u16, u16) = (80, 24);

/// Everything that one drawing needs.
pub(crate) struct Page<'a> {
    pub(crate) state: &'a LiveState,
    /// The last messages, oldest first.
    pub(crate) messages: &'a [String],
    /// Whether keys can be read.
    pub(crate) has_keys: bool,
    pub(crate) is_paused: bool,
    pub(crate) theme: Theme,
}

impl Page<'_> {
    /// Draws the layout that fits `area`.
    pub(crate) fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let fits = |(width, height)| area.width >= width && area.height >= height;
        if fits(WIDE) {
            wide::draw(self, area, buffer);
        } else if fits(MIN_SIZE) {
            narrow::draw(self, area, buffer);
        } else if area.height > 0 {
            put(buffer, row(area, 0), self.one_line(area.width));
        }
    }

    /// Returns the status line for a terminal that is too small for the view.
    fn one_line(&self, width: u16) -> Line<'static> {
        let style = floodmark_report::Style {
            color: false,
            width: usize::from(width),
        };
        let run = self.state.run.as_ref();
        Line::from(run.map_or_else(String::new, |run| run.progress.line(style)))
    }

    /// Returns the progress bar with its text.
    fn progress(&self, width: u16) -> Line<'static> {
        let run = self.state.run.as_ref();
        let text = match run {
            _ if self.state.is_ending => "ending the load".to_owned(),
            None => "starting".to_owned(),
            Some(run) => match (&run.opening, run.progress.left_s()) {
                (Some(opening), _) => opening.clone(),
                (None, Some(left_s)) if !run.progress.position().contains(" left") => {
                    let left = floodmark_report::seconds(left_s.ceil());
                    format!("{} · {left} left", run.progress.position())
                }
                (None, _) => run.progress.position(),
            },
        };
        let share = run.and_then(|run| run.progress.share()).unwrap_or(0.0);
        let taken = text.chars().count() + 2;
        let bar_width = usize::from(width).saturating_sub(taken);
        let mut spans = self.theme.bar(share, bar_width);
        spans.push(Span::raw(format!("  {text}")));
        Line::from(spans)
    }

    /// Returns the keys that can be pressed.
    fn keys(&self) -> Line<'static> {
        let text = match (self.has_keys, self.is_paused) {
            (true, false) => "q end and report · p pause",
            (true, true) => "paused · p resume · q end and report",
            (false, _) => "Ctrl-C end and report",
        };
        Line::from(self.theme.faint(text))
    }

    /// Returns the suspicion, if any.
    fn suspicion(&self) -> Option<Line<'static>> {
        let suspicion = self.state.run.as_ref()?.suspicion.as_ref()?;
        let text = format!("suspicion: {suspicion}");
        Some(Line::from(self.theme.warn(&text)))
    }
}

/// Returns the row at index `at` of an area; an empty area if there is no such row.
fn row(area: Rect, at: u16) -> Rect {
    Rect {
        y: area.y + at.min(area.height),
        height: u16::from(at < area.height),
        ..area
    }
}

/// Draws a line into a row, and cuts it off at the end of the row.
fn put(buffer: &mut Buffer, row: Rect, line: impl Into<Line<'static>>) {
    if row.height > 0 {
        buffer.set_line(row.x, row.y, &line.into(), row.width);
    }
}

#[cfg(test)]
mod tests;
