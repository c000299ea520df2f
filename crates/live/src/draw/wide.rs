//! The full layout, for 80×24 and larger terminals.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use super::{Page, lists, panels, put};

/// Rows of the panels for outcomes and CPU.
const COUNTS: u16 = 6;

/// Minimum rows of the panels for throughput and response time.
const FIGURES: u16 = 7;

pub(super) fn draw(page: &Page<'_>, area: Rect, buffer: &mut Buffer) {
    let state = page.state;
    let suspicion = page.suspicion();
    // Heading, progress bar and keys.
    let spare = area.height - FIGURES - COUNTS - 3 - u16::from(suspicion.is_some());
    // Without lists, the messages are the only account of the progress (`tune`).
    let has_lists = state.trials.is_some() || state.search.is_some();
    let most_messages = area.height / if has_lists { 12 } else { 4 };
    let messages = (page.messages.len() as u16).min(most_messages);
    let listed = state
        .trials
        .as_ref()
        .map_or(0, |list| list.trials.len() + 1);
    let searched = state
        .search
        .as_ref()
        .map_or(0, |search| search.steps.len() + 2);
    let [listed, searched] = shares([listed, searched], spare - messages.min(spare));
    let rows = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(FIGURES),
        Constraint::Length(COUNTS),
        Constraint::Length(listed),
        Constraint::Length(searched),
        Constraint::Length(messages),
        Constraint::Length(u16::from(suspicion.is_some())),
        Constraint::Length(1),
    ]);
    let [
        heading,
        progress,
        figures,
        counts,
        trials,
        search,
        notes,
        suspected,
        keys,
    ] = rows.areas(area);
    put(buffer, heading, headline(page));
    put(buffer, progress, page.progress(progress.width));
    if let Some(run) = &state.run {
        let [left, right] = halves(figures);
        panels::throughput(page, run, left, buffer);
        panels::times(page, run, right, buffer);
        let [left, right] = halves(counts);
        panels::outcomes(page, run, left, buffer);
        panels::cpus(page, run, right, buffer);
    }
    if let Some(list) = &state.trials {
        lists::trials(page, list, trials, buffer);
    }
    if let Some(steps) = &state.search {
        lists::search(page, steps, search, buffer);
    }
    lists::messages(page, notes, buffer);
    if let Some(suspicion) = suspicion {
        put(buffer, suspected, suspicion);
    }
    put(buffer, keys, page.keys());
}

/// Divides `spare` rows between two lists. The second list gets at least half of the rows that it
/// needs.
fn shares([first, second]: [usize; 2], spare: u16) -> [u16; 2] {
    let spare = usize::from(spare);
    let reserved = second.min(spare / 2);
    let first = first.min(spare - reserved);
    let second = second.min(spare - first);
    [first as u16, second as u16]
}

/// Splits an area into two columns with a gap.
fn halves(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)])
        .spacing(2)
        .areas(area)
}

/// Returns the URL and the plan.
fn headline(page: &Page<'_>) -> Line<'static> {
    let Some(run) = &page.state.run else {
        return Line::from(page.theme.strong(&page.state.position));
    };
    let [url, plan] = &run.heading;
    Line::from(vec![page.theme.strong(url), Span::raw(format!("  {plan}"))])
}
