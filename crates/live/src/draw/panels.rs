//! Panels with the figures of the current run.

use floodmark_record::units::{show_count, show_ns};
use floodmark_report::{OTHER_OUTCOMES, rate, share};
use floodmark_stats::Histogram;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, Widget};

use super::{Page, put, row};
use crate::figures::RunFigures;

/// Width of the names in a panel, in columns.
const NAMES: usize = 10;

/// Draws a title and a rule. Returns the area below.
pub(super) fn title(page: &Page<'_>, text: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    let rule = usize::from(area.width).saturating_sub(text.chars().count() + 1);
    let spans = vec![
        page.theme.strong(text),
        Span::raw(" "),
        page.theme.faint(&"─".repeat(rule)),
    ];
    put(buffer, row(area, 0), spans);
    Rect {
        y: area.y + 1.min(area.height),
        height: area.height.saturating_sub(1),
        ..area
    }
}

/// Draws the throughput of the last second and its history.
pub(super) fn throughput(page: &Page<'_>, run: &RunFigures, area: Rect, buffer: &mut Buffer) {
    let area = title(page, "throughput", area, buffer);
    let mut spans = vec![page.theme.strong(&run.progress.achieved())];
    if let Some(most) = run.history.iter().copied().max_by(f64::total_cmp) {
        spans.push(page.theme.faint(&format!("  maximum {}", rate(most))));
    }
    put(buffer, row(area, 0), spans);
    let agents = run.progress.agents();
    let taken = 1 + u16::from(agents.is_some());
    if let Some(agents) = agents {
        put(buffer, row(area, 1), agents);
    }
    let chart = Rect {
        y: area.y + taken.min(area.height),
        height: area.height.saturating_sub(taken),
        ..area
    };
    history(page, run, chart, buffer);
}

/// Draws the throughput of each second. The newest second is on the right.
pub(super) fn history(page: &Page<'_>, run: &RunFigures, area: Rect, buffer: &mut Buffer) {
    let skipped = run.history.len().saturating_sub(usize::from(area.width));
    let mut values: Vec<u64> = run
        .history
        .iter()
        .skip(skipped)
        .map(|of| *of as u64)
        .collect();
    if values.is_empty() {
        values.push(run.progress.ok_per_s() as u64);
    }
    bars(page, &values, area, buffer);
}

fn bars(page: &Page<'_>, values: &[u64], area: Rect, buffer: &mut Buffer) {
    let style = page.theme.style(Style::new().fg(Color::Cyan));
    Sparkline::default()
        .data(values)
        .style(style)
        .render(area, buffer);
}

/// Draws percentiles of the response time, and its histogram in the current phase.
pub(super) fn times(page: &Page<'_>, run: &RunFigures, area: Rect, buffer: &mut Buffer) {
    let area = title(page, "response time", area, buffer);
    let second = run.progress.response();
    let so_far = Some(&run.response);
    let line = |name: &str, of: fn(&Histogram) -> Option<u64>| {
        let show = |times: Option<&Histogram>| time(times.and_then(of));
        Line::from(format!(
            "{name:<NAMES$}{:>12}{:>12}",
            show(second),
            show(so_far)
        ))
    };
    let head = format!("{:NAMES$}{:>12}{:>12}", "", "last second", "so far");
    put(buffer, row(area, 0), page.theme.faint(&head));
    put(buffer, row(area, 1), line("p50", |of| of.quantile(0.50)));
    put(buffer, row(area, 2), line("p99", |of| of.quantile(0.99)));
    put(buffer, row(area, 3), line("max", Histogram::max));
    if area.height < 6 || run.response.is_empty() {
        return;
    }
    let chart = Rect {
        y: area.y + 4,
        height: area.height - 5,
        ..area
    };
    let bins = run.response.log_bins(usize::from(chart.width));
    bars(page, &bins, chart, buffer);
    let (from, to) = (time(run.response.min()), time(run.response.max()));
    let taken = from.chars().count() + to.chars().count();
    let gap = usize::from(area.width).saturating_sub(taken);
    let axis = format!("{from}{}{to}", " ".repeat(gap));
    put(buffer, row(area, area.height - 1), page.theme.faint(&axis));
}

/// Formats a time in nanoseconds, or "–" if there is none.
pub(super) fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".to_owned(), |ns| show_ns(ns as f64))
}

/// Draws the outcomes of the current phase, and the responses by status.
pub(super) fn outcomes(page: &Page<'_>, run: &RunFigures, area: Rect, buffer: &mut Buffer) {
    let area = title(page, "outcomes", area, buffer);
    for (at, line) in (0..area.height).zip(outcome_lines(page, run)) {
        put(buffer, row(area, at), line);
    }
}

/// Returns a line per outcome, and a line with the statuses.
fn outcome_lines(page: &Page<'_>, run: &RunFigures) -> Vec<Line<'static>> {
    let counts = run.progress.counts();
    let ended = counts.ended() + counts.connect_failed + counts.unsent;
    let line =
        |name: &str, n: u64| format!("{name:<15}{:>12}{:>9}", show_count(n), share(n, ended));
    let mut lines = vec![Line::from(line("ok", counts.ok))];
    let statuses = counts.statuses.iter();
    let statuses = statuses.map(|(status, n)| format!("{status}: {}", show_count(*n)));
    let statuses = statuses.collect::<Vec<_>>().join(", ");
    if !statuses.is_empty() {
        lines.push(Line::from(page.theme.faint(&format!("status {statuses}"))));
    }
    let others = OTHER_OUTCOMES.iter().map(|(name, of)| (name, of(&counts)));
    let failed = others.filter(|(_, n)| *n > 0);
    lines.extend(failed.map(|(name, n)| Line::from(page.theme.bad(&line(name, n)))));
    lines
}

/// Draws the CPUs that each role used in the last second.
pub(super) fn cpus(page: &Page<'_>, run: &RunFigures, area: Rect, buffer: &mut Buffer) {
    let host = run.host_cpus();
    let text = match host {
        Some(cpus) => format!("CPU (of {cpus:.0})"),
        None => "CPU".to_owned(),
    };
    let area = title(page, &text, area, buffer);
    for (at, (name, used)) in (0..area.height).zip(used_cpus(run)) {
        let bar_width = usize::from(area.width).saturating_sub(NAMES + 7);
        let mut spans = vec![Span::raw(format!("{name:<NAMES$}{used:>5.2}  "))];
        if let Some(cpus) = host {
            spans.extend(page.theme.bar(used / cpus, bar_width));
        }
        put(buffer, row(area, at), spans);
    }
}

/// Returns the CPUs that client, server, store and other programs used in the last second, if known.
pub(super) fn used_cpus(run: &RunFigures) -> Vec<(&'static str, f64)> {
    if run.history.is_empty() {
        return Vec::new();
    }
    let roles = run.progress.role_cpus().into_iter();
    let all = roles.chain([("others", run.other_cpus())]);
    all.filter_map(|(name, used)| Some((name, used?))).collect()
}
