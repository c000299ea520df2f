//! Colors and emphasis. Without colors, the text alone must suffice.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// How text is emphasized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theme {
    /// Whether colors and emphasis are used.
    pub(crate) color: bool,
}

impl Theme {
    pub(crate) fn style(self, style: Style) -> Style {
        if self.color { style } else { Style::new() }
    }

    pub(crate) fn strong(self, text: &str) -> Span<'static> {
        self.span(text, Style::new().add_modifier(Modifier::BOLD))
    }

    pub(crate) fn faint(self, text: &str) -> Span<'static> {
        self.span(text, Style::new().add_modifier(Modifier::DIM))
    }

    pub(crate) fn good(self, text: &str) -> Span<'static> {
        self.span(text, Style::new().fg(Color::Green))
    }

    pub(crate) fn warn(self, text: &str) -> Span<'static> {
        self.span(text, Style::new().fg(Color::Yellow))
    }

    pub(crate) fn bad(self, text: &str) -> Span<'static> {
        self.span(text, Style::new().fg(Color::Red))
    }

    /// Returns a bar of `width` columns, filled to `share`.
    pub(crate) fn bar(self, share: f64, width: usize) -> Vec<Span<'static>> {
        let filled = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
        vec![
            self.span(&"█".repeat(filled), Style::new().fg(Color::Cyan)),
            self.faint(&"░".repeat(width - filled)),
        ]
    }

    fn span(self, text: &str, style: Style) -> Span<'static> {
        Span::styled(text.to_owned(), self.style(style))
    }
}
