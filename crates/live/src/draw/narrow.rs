//! The reduced layout, for terminals from 40×10.

use floodmark_record::units::show_count;
use floodmark_stats::Histogram;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use super::panels::{history, time, used_cpus};
use super::{Page, lists, put, row};
use crate::figures::RunFigures;

pub(super) fn draw(page: &Page<'_>, area: Rect, buffer: &mut Buffer) {
    let mut lines = vec![headline(page), page.progress(area.width)];
    if let Some(run) = &page.state.run {
        lines.extend(figures(page, run));
    }
    lines.extend(
        page.state
            .search
            .as_ref()
            .map(|search| Line::from(search.line.clone())),
    );
    lines.extend(page.suspicion());
    let messages = (page.messages.len() as u16).min((area.height / 8).max(1));
    let rows = Layout::vertical([
        Constraint::Length(lines.len() as u16),
        Constraint::Min(1),
        Constraint::Length(messages),
        Constraint::Length(1),
    ]);
    let [top, chart, notes, keys] = rows.areas(area);
    for (at, line) in (0..top.height).zip(lines) {
        put(buffer, row(top, at), line);
    }
    if let Some(run) = &page.state.run {
        history(page, run, chart, buffer);
    }
    lists::messages(page, notes, buffer);
    put(buffer, keys, page.keys());
}

/// Returns the position in an experiment, or the URL.
fn headline(page: &Page<'_>) -> Line<'static> {
    let url = page.state.run.as_ref().map(|run| run.heading[0].as_str());
    let text = match page.state.position.as_str() {
        "" => url.unwrap_or_default(),
        position => position,
    };
    Line::from(page.theme.strong(text))
}

fn figures(page: &Page<'_>, run: &RunFigures) -> Vec<Line<'static>> {
    let counts = run.progress.counts();
    let failed = (counts.ended() - counts.ok) + counts.connect_failed + counts.unsent;
    let mut outcomes = vec![Span::raw(format!("{} ok", show_count(counts.ok)))];
    if failed > 0 {
        outcomes.push(page.theme.bad(&format!("  {} failed", show_count(failed))));
    }
    let second = run.progress.response();
    let show = |of: fn(&Histogram) -> Option<u64>| time(second.and_then(of));
    let times = format!(
        "p50 {}  p99 {}  max {}",
        show(|of| of.quantile(0.50)),
        show(|of| of.quantile(0.99)),
        show(Histogram::max)
    );
    let used = used_cpus(run).into_iter();
    let used: Vec<String> = used
        .map(|(name, cpus)| format!("{cpus:.2} {name}"))
        .collect();
    let mut lines = vec![
        Line::from(page.theme.strong(&run.progress.achieved())),
        Line::from(times),
        Line::from(outcomes),
    ];
    if !used.is_empty() {
        lines.push(Line::from(format!("CPU {}", used.join(" "))));
    }
    lines
}
