//! Lists below the figures: trials of an experiment, steps of a search, messages.

use floodmark_record::capacity::TrialOutcome;
use floodmark_record::units::show_count;
use floodmark_report::rate;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::panels::{time, title};
use super::{Page, put, row};
use crate::figures::{TrialList, TrialProgress};
use crate::state::{BracketStep, SearchProgress};

/// Draws the trials with their figures so far. If not all trials fit, the current one is shown.
pub(super) fn trials(page: &Page<'_>, list: &TrialList, area: Rect, buffer: &mut Buffer) {
    let text = match page.state.position.as_str() {
        "" => "trials".to_owned(),
        position => format!("trials: {position}"),
    };
    let area = title(page, &text, area, buffer);
    let shown = usize::from(area.height);
    let last = list.trials.len().saturating_sub(shown);
    let first = list
        .current
        .unwrap_or(0)
        .saturating_sub(shown / 2)
        .min(last);
    let rows = list.trials.iter().enumerate().skip(first);
    for (at, (index, trial)) in (0..area.height).zip(rows) {
        let is_current = list.current == Some(index);
        put(buffer, row(area, at), trial_line(page, trial, is_current));
    }
}

fn trial_line(page: &Page<'_>, trial: &TrialProgress, is_current: bool) -> Line<'static> {
    let done = trial.attempts.len();
    let is_complete = done >= trial.planned;
    let mark = match (is_current, is_complete) {
        _ if trial.is_skipped => page.theme.warn("–"),
        (true, _) => page.theme.strong("▶"),
        (false, true) => page.theme.good("✓"),
        (false, false) => Span::raw(" "),
    };
    let name: String = trial.name.chars().take(28).collect();
    let mut text = format!(" {name:<28} {done:>3} of {:<3}", trial.planned);
    let figures = trial.figures();
    if let Some(per_s) = figures.ok_per_s {
        text.push_str(&format!(
            "{:>12}  p99 {:>8}",
            rate(per_s),
            time(figures.p99_ns)
        ));
    }
    let mut spans = vec![mark, Span::raw(text)];
    if trial.is_skipped {
        spans.push(page.theme.warn("  skipped"));
    } else if figures.not_ok > 0 {
        let failed = format!("  {} not ok", show_count(figures.not_ok));
        spans.push(page.theme.bad(&failed));
    }
    Line::from(spans)
}

/// Draws the last steps of a search. Each row shows the interval that the search had left.
pub(super) fn search(page: &Page<'_>, search: &SearchProgress, area: Rect, buffer: &mut Buffer) {
    let area = title(page, "search", area, buffer);
    put(buffer, row(area, 0), search.line.clone());
    let shown = usize::from(area.height.saturating_sub(1));
    let range = search.range(shown);
    let skipped = search.steps.len().saturating_sub(shown);
    for (at, step) in (1..area.height).zip(search.steps.iter().skip(skipped)) {
        put(
            buffer,
            row(area, at),
            step_line(page, step, range, area.width),
        );
    }
}

fn step_line(
    page: &Page<'_>,
    step: &BracketStep,
    range: Option<(f64, f64)>,
    width: u16,
) -> Line<'static> {
    let outcome = match step.outcome {
        TrialOutcome::Pass => page.theme.good("met   "),
        TrialOutcome::Miss => page.theme.bad("missed"),
        TrialOutcome::Void => page.theme.warn("void  "),
    };
    let text = format!("{:>4} {:>12} ", step.number, rate(step.rate_per_s));
    let bar_width = usize::from(width).saturating_sub(text.chars().count() + 8);
    let interval = range.map(|range| interval(step, range, bar_width));
    Line::from(vec![
        Span::raw(text),
        outcome,
        Span::raw("  "),
        Span::raw(interval.unwrap_or_default()),
    ])
}

/// Draws an interval as a line from its lower to its upper end, and the rate of the trial as a sign.
fn interval(step: &BracketStep, (from, to): (f64, f64), width: usize) -> String {
    let last = width.saturating_sub(1);
    let column = |rate: f64| {
        let share = ((rate - from) / (to - from)).clamp(0.0, 1.0);
        (share * last as f64).round() as usize
    };
    let mut cells = vec!['·'; width];
    let low = step.low.map_or(0, column);
    let high = step.high.map_or(last, column);
    if let Some(inside) = cells.get_mut(low..=high) {
        inside.fill('━');
    }
    if let Some(cell) = cells.get_mut(column(step.rate_per_s)) {
        *cell = match step.outcome {
            TrialOutcome::Pass => '●',
            TrialOutcome::Miss => '○',
            TrialOutcome::Void => '×',
        };
    }
    cells.into_iter().collect()
}

/// Draws the last messages.
pub(super) fn messages(page: &Page<'_>, area: Rect, buffer: &mut Buffer) {
    let skipped = page.messages.len().saturating_sub(usize::from(area.height));
    for (at, message) in (0..area.height).zip(page.messages.iter().skip(skipped)) {
        put(buffer, row(area, at), message.clone());
    }
}
