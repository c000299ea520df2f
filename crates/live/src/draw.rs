//! Draws the live view into a buffer. Nothing here does I/O.

use floodmark_record::capacity::TrialOutcome;
use floodmark_record::units::{show_count, show_ns};
use floodmark_report::{OTHER_OUTCOMES, rate, share};
use floodmark_stats::Histogram;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Sparkline, Widget};

use crate::MIN_SIZE;
use crate::progress::{RunProgress, failed};
use crate::state::{BracketStep, LiveState, SearchProgress, TrialList, TrialProgress};

/// Minimum terminal size for the full layout, in columns and rows.
const WIDE: (u16, u16) = (80, 24);

/// Everything that is needed to draw the view once.
pub(crate) struct Page<'a> {
    pub(crate) state: &'a LiveState,
    /// The last messages, oldest first.
    pub(crate) messages: &'a [String],
    /// Whether keys can be read.
    pub(crate) has_keys: bool,
    /// Whether keys can change the rate of a load whose rate is adjustable.
    pub(crate) has_rate_keys: bool,
    pub(crate) is_paused: bool,
    pub(crate) theme: Theme,
}

impl Page<'_> {
    /// Draws the layout that fits `area`.
    pub(crate) fn draw(&self, area: Rect, buffer: &mut Buffer) {
        let fits = |(width, height)| area.width >= width && area.height >= height;
        if fits(WIDE) {
            draw_wide(self, area, buffer);
        } else if fits(MIN_SIZE) {
            draw_narrow(self, area, buffer);
        } else if area.height > 0 {
            put(buffer, area, [self.one_line(area.width)]);
        }
    }

    /// Returns the status line for a terminal that is too small for the view.
    fn one_line(&self, width: u16) -> Line<'static> {
        let style = floodmark_report::Style {
            color: false,
            width: usize::from(width),
        };
        let run = self.state.run.as_ref();
        Line::from(run.map_or_else(String::new, |run| run.line(style)))
    }

    /// Returns the progress bar with its text.
    fn progress(&self, width: u16) -> Line<'static> {
        let run = self.state.run.as_ref();
        let text = match run {
            _ if self.state.is_ending => "ending the load".to_owned(),
            None => "starting".to_owned(),
            Some(run) => match (&run.opening, run.left_s()) {
                (Some(opening), _) => opening.clone(),
                (None, Some(left_s)) if !run.position().contains(" left") => {
                    let left = floodmark_report::seconds(left_s.ceil());
                    format!("{} · {left} left", run.position())
                }
                (None, _) => run.position(),
            },
        };
        let share = run.and_then(|run| run.share()).unwrap_or(0.0);
        let taken = text.chars().count() + 2;
        let bar_width = usize::from(width).saturating_sub(taken);
        let mut spans = self.theme.bar(share, bar_width);
        spans.push(Span::raw(format!("  {text}")));
        Line::from(spans)
    }

    /// Returns the line that lists the available keys.
    fn keys(&self) -> Line<'static> {
        let text = match (self.has_keys, self.is_paused) {
            (true, false) => "q end and report · p pause",
            (true, true) => "paused · p resume · q end and report",
            (false, _) => "Ctrl-C end and report",
        };
        let run = self.state.run.as_ref();
        let run = run.filter(|_| self.has_keys && self.has_rate_keys && !self.is_paused);
        let rate_keys = run.and_then(RunProgress::rate_keys).unwrap_or_default();
        Line::from(self.theme.faint(&format!("{text}{rate_keys}")))
    }

    /// Returns the suspicion, if any.
    fn suspicion(&self) -> Option<Line<'static>> {
        let suspicion = self.state.run.as_ref()?.suspicion.as_ref()?;
        let text = format!("suspicion: {suspicion}");
        Some(Line::from(self.theme.warn(&text)))
    }
}

/// Returns `area` without its first `rows` rows.
fn below(area: Rect, rows: u16) -> Rect {
    Rect {
        y: area.y + rows.min(area.height),
        height: area.height.saturating_sub(rows),
        ..area
    }
}

/// Draws lines into the rows of an area. Cuts off what does not fit.
fn put<L: Into<Line<'static>>>(
    buffer: &mut Buffer,
    area: Rect,
    lines: impl IntoIterator<Item = L>,
) {
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        buffer.set_line(area.x, y, &line.into(), area.width);
    }
}

/// How text is emphasized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theme {
    /// Whether colors and emphasis are used.
    pub(crate) color: bool,
}

impl Theme {
    fn style(self, style: Style) -> Style {
        if self.color { style } else { Style::new() }
    }

    fn strong(self, text: &str) -> Span<'static> {
        self.span(text, Style::new().add_modifier(Modifier::BOLD))
    }

    fn faint(self, text: &str) -> Span<'static> {
        self.span(text, Style::new().add_modifier(Modifier::DIM))
    }

    fn good(self, text: &str) -> Span<'static> {
        self.span(text, Style::new().fg(Color::Green))
    }

    fn warn(self, text: &str) -> Span<'static> {
        self.span(text, Style::new().fg(Color::Yellow))
    }

    fn bad(self, text: &str) -> Span<'static> {
        self.span(text, Style::new().fg(Color::Red))
    }

    /// Returns a bar of `width` columns. `share` is the filled part, from 0 to 1.
    fn bar(self, share: f64, width: usize) -> Vec<Span<'static>> {
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

/// Height, in rows, of the outcome and CPU panels.
const COUNTS: u16 = 6;

/// Minimum height, in rows, of the throughput and response time panels.
const FIGURES: u16 = 7;

/// Draws the full layout, for 80×24 and larger terminals.
fn draw_wide(page: &Page<'_>, area: Rect, buffer: &mut Buffer) {
    let state = page.state;
    let suspicion = page.suspicion();
    // The heading, the progress bar and the keys take one row each.
    let spare = area.height - FIGURES - COUNTS - 3 - u16::from(suspicion.is_some());
    // Without lists (as in `tune`), only the messages show progress, so they get more rows.
    let has_lists = !state.trials.trials.is_empty() || state.search.is_some();
    let most_messages = area.height / if has_lists { 12 } else { 4 };
    let messages = (page.messages.len() as u16).min(most_messages);
    let listed = match state.trials.trials.len() {
        0 => 0,
        n => n + 1,
    };
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
    put(buffer, heading, [headline(page)]);
    put(buffer, progress, [page.progress(progress.width)]);
    if let Some(run) = &state.run {
        let [left, right] = halves(figures);
        draw_throughput(page, run, left, buffer);
        draw_times(page, run, right, buffer);
        let [left, right] = halves(counts);
        draw_outcomes(page, run, left, buffer);
        draw_cpus(page, run, right, buffer);
    }
    if !state.trials.trials.is_empty() {
        draw_trials(page, &state.trials, trials, buffer);
    }
    if let Some(steps) = &state.search {
        draw_search(page, steps, search, buffer);
    }
    draw_messages(page, notes, buffer);
    put(buffer, suspected, suspicion);
    put(buffer, keys, [page.keys()]);
}

/// Divides `spare` rows between two lists of the given lengths. Reserves up to half of the rows for
/// the second list.
fn shares([first, second]: [usize; 2], spare: u16) -> [u16; 2] {
    let spare = usize::from(spare);
    let reserved = second.min(spare / 2);
    let first = first.min(spare - reserved);
    let second = second.min(spare - first);
    [first as u16, second as u16]
}

/// Splits an area into two columns with a gap between them.
fn halves(area: Rect) -> [Rect; 2] {
    Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)])
        .spacing(2)
        .areas(area)
}

/// Returns the URL and the plan, or the position in the schedule if no run has started.
fn headline(page: &Page<'_>) -> Line<'static> {
    let Some(run) = &page.state.run else {
        return Line::from(page.theme.strong(&page.state.position));
    };
    let [url, plan] = &run.heading;
    Line::from(vec![page.theme.strong(url), Span::raw(format!("  {plan}"))])
}

/// Draws the reduced layout, for 40×10 and larger terminals.
fn draw_narrow(page: &Page<'_>, area: Rect, buffer: &mut Buffer) {
    let mut lines = vec![position(page), page.progress(area.width)];
    if let Some(run) = &page.state.run {
        lines.extend(figures(page, run));
    }
    let search = page.state.search.as_ref();
    lines.extend(search.map(|search| Line::from(search.line.clone())));
    lines.extend(page.suspicion());
    let messages = (page.messages.len() as u16).min((area.height / 8).max(1));
    let rows = Layout::vertical([
        Constraint::Length(lines.len() as u16),
        Constraint::Min(1),
        Constraint::Length(messages),
        Constraint::Length(1),
    ]);
    let [top, chart, notes, keys] = rows.areas(area);
    put(buffer, top, lines);
    if let Some(run) = &page.state.run {
        history(page, run, chart, buffer);
    }
    draw_messages(page, notes, buffer);
    put(buffer, keys, [page.keys()]);
}

/// Returns the position in the schedule, or the URL if the load does not belong to an experiment.
fn position(page: &Page<'_>) -> Line<'static> {
    let url = page.state.run.as_ref().map(|run| run.heading[0].as_str());
    let text = match page.state.position.as_str() {
        "" => url.unwrap_or_default(),
        position => position,
    };
    Line::from(page.theme.strong(text))
}

fn figures(page: &Page<'_>, run: &RunProgress) -> Vec<Line<'static>> {
    let counts = run.counts();
    let failed = failed(&counts);
    let mut outcomes = vec![Span::raw(format!("{} ok", show_count(counts.ok)))];
    if failed > 0 {
        outcomes.push(page.theme.bad(&format!("  {} failed", show_count(failed))));
    }
    let second = run.last.response.as_ref();
    let quantile = |share| time(second.and_then(|of| of.quantile(share)));
    let (p50, p99) = (quantile(0.50), quantile(0.99));
    let max = time(second.and_then(Histogram::max));
    let times = format!("p50 {p50}  p99 {p99}  max {max}");
    let used = used_cpus(run).into_iter();
    let used: String = used
        .map(|(name, cpus)| format!(" {cpus:.2} {name}"))
        .collect();
    let mut lines = vec![
        Line::from(page.theme.strong(&run.achieved())),
        Line::from(times),
        Line::from(outcomes),
    ];
    if !used.is_empty() {
        lines.push(Line::from(format!("CPU{used}")));
    }
    lines
}

/// Width of the names in a panel, in columns.
const NAMES: usize = 10;

/// Draws a title and a rule. Returns the area below.
fn title(page: &Page<'_>, text: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    let rule = usize::from(area.width).saturating_sub(text.chars().count() + 1);
    let spans = vec![
        page.theme.strong(text),
        Span::raw(" "),
        page.theme.faint(&"─".repeat(rule)),
    ];
    put(buffer, area, [spans]);
    below(area, 1)
}

/// Draws the throughput in the last second, above a chart of the throughput in each second.
fn draw_throughput(page: &Page<'_>, run: &RunProgress, area: Rect, buffer: &mut Buffer) {
    let area = title(page, "throughput", area, buffer);
    let mut spans = vec![page.theme.strong(&run.achieved())];
    if let Some(most) = run.history.iter().copied().max_by(f64::total_cmp) {
        spans.push(page.theme.faint(&format!("  maximum {}", rate(most))));
    }
    let agents = run.agents().map(Line::from);
    let chart = below(area, 1 + u16::from(agents.is_some()));
    put(buffer, area, [Line::from(spans)].into_iter().chain(agents));
    history(page, run, chart, buffer);
}

/// Draws a bar for the throughput in each second. The newest second is on the right.
fn history(page: &Page<'_>, run: &RunProgress, area: Rect, buffer: &mut Buffer) {
    let skipped = run.history.len().saturating_sub(usize::from(area.width));
    let mut values: Vec<u64> = run
        .history
        .iter()
        .skip(skipped)
        .map(|of| *of as u64)
        .collect();
    if values.is_empty() {
        values.push(run.last.ok_per_s as u64);
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

/// Draws response-time percentiles of the last second and of the current phase, and a histogram of
/// the current phase.
fn draw_times(page: &Page<'_>, run: &RunProgress, area: Rect, buffer: &mut Buffer) {
    let area = title(page, "response time", area, buffer);
    let second = run.last.response.as_ref();
    let so_far = Some(&run.response);
    let line = |name: &str, of: fn(&Histogram) -> Option<u64>| {
        let [second, so_far] = [second, so_far].map(|times| time(times.and_then(of)));
        Line::from(format!("{name:<NAMES$}{second:>12}{so_far:>12}"))
    };
    let head = format!("{:NAMES$}{:>12}{:>12}", "", "last second", "so far");
    let lines = [
        Line::from(page.theme.faint(&head)),
        line("p50", |of| of.quantile(0.50)),
        line("p99", |of| of.quantile(0.99)),
        line("max", Histogram::max),
    ];
    put(buffer, area, lines);
    if area.height < 6 || run.response.is_empty() {
        return;
    }
    let chart = Rect {
        height: area.height - 5,
        ..below(area, 4)
    };
    let bins = run.response.log_bins(usize::from(chart.width));
    bars(page, &bins, chart, buffer);
    let (from, to) = (time(run.response.min()), time(run.response.max()));
    let taken = from.chars().count() + to.chars().count();
    let gap = usize::from(area.width).saturating_sub(taken);
    let axis = format!("{from}{}{to}", " ".repeat(gap));
    put(
        buffer,
        below(area, area.height - 1),
        [page.theme.faint(&axis)],
    );
}

/// Formats a time in nanoseconds. `None` becomes "–".
fn time(ns: Option<u64>) -> String {
    ns.map_or_else(|| "–".to_owned(), |ns| show_ns(ns as f64))
}

/// Draws the outcomes of the current phase, and the responses by status.
fn draw_outcomes(page: &Page<'_>, run: &RunProgress, area: Rect, buffer: &mut Buffer) {
    let area = title(page, "outcomes", area, buffer);
    put(buffer, area, outcome_lines(page, run));
}

/// Returns a line per outcome, and a line with the statuses.
fn outcome_lines(page: &Page<'_>, run: &RunProgress) -> Vec<Line<'static>> {
    let counts = run.counts();
    let ended = counts.ok + failed(&counts);
    let line =
        |name: &str, n: u64| format!("{name:<15}{:>12}{:>9}", show_count(n), share(n, ended));
    let mut lines = vec![Line::from(line("ok", counts.ok))];
    let statuses = counts.by_status();
    let statuses = statuses.map(|(status, n)| format!("{status}: {}", show_count(n)));
    let statuses = statuses.collect::<Vec<_>>().join(", ");
    if !statuses.is_empty() {
        lines.push(Line::from(page.theme.faint(&format!("status {statuses}"))));
    }
    let others = OTHER_OUTCOMES.iter().map(|(name, of)| (name, of(&counts)));
    let failed = others.filter(|(_, n)| *n > 0);
    lines.extend(failed.map(|(name, n)| Line::from(page.theme.bad(&line(name, n)))));
    lines
}

/// Draws the CPU use of each role, and of other programs, in the last second.
fn draw_cpus(page: &Page<'_>, run: &RunProgress, area: Rect, buffer: &mut Buffer) {
    let host = run.host_cpus();
    let text = match host {
        Some(cpus) => format!("CPU (of {cpus:.0})"),
        None => "CPU".to_owned(),
    };
    let area = title(page, &text, area, buffer);
    let bar_width = usize::from(area.width).saturating_sub(NAMES + 7);
    put(
        buffer,
        area,
        used_cpus(run).into_iter().map(|(name, used)| {
            let mut spans = vec![Span::raw(format!("{name:<NAMES$}{used:>5.2}  "))];
            if let Some(cpus) = host {
                spans.extend(page.theme.bar(used / cpus, bar_width));
            }
            spans
        }),
    );
}

/// Returns how many CPUs the client, the server, the store and other programs each used in the last
/// second. Omits those whose use is unknown.
fn used_cpus(run: &RunProgress) -> Vec<(&'static str, f64)> {
    if run.history.is_empty() {
        return Vec::new();
    }
    let roles = run.role_cpus().into_iter();
    let all = roles.chain([("others", run.other_cpus())]);
    all.filter_map(|(name, used)| Some((name, used?))).collect()
}

/// Draws the trials with their figures so far. If not all trials fit, the list is scrolled so that
/// the current trial is visible.
fn draw_trials(page: &Page<'_>, list: &TrialList, area: Rect, buffer: &mut Buffer) {
    let text = match page.state.position.as_str() {
        "" => "trials".to_owned(),
        position => format!("trials: {position}"),
    };
    let area = title(page, &text, area, buffer);
    let shown = usize::from(area.height);
    let last = list.trials.len().saturating_sub(shown);
    let current = list.current.unwrap_or(0);
    let first = current.saturating_sub(shown / 2).min(last);
    let trials = list.trials.iter().enumerate().skip(first);
    put(
        buffer,
        area,
        trials.map(|(index, trial)| trial_line(page, trial, list.current == Some(index))),
    );
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
        let (per_s, p99) = (rate(per_s), time(figures.p99_ns));
        text.push_str(&format!("{per_s:>12}  p99 {p99:>8}"));
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

/// Draws the last steps of a search. Each row shows the interval that remained after the step.
fn draw_search(page: &Page<'_>, search: &SearchProgress, area: Rect, buffer: &mut Buffer) {
    let area = title(page, "search", area, buffer);
    put(buffer, area, [search.line.clone()]);
    let area = below(area, 1);
    let shown = usize::from(area.height);
    let range = search.range(shown);
    let last = search
        .steps
        .iter()
        .skip(search.steps.len().saturating_sub(shown));
    put(
        buffer,
        area,
        last.map(|step| step_line(page, step, range, area.width)),
    );
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

/// Draws an interval as a line from its lower to its upper end, and the trial's rate as a symbol.
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
fn draw_messages(page: &Page<'_>, area: Rect, buffer: &mut Buffer) {
    let skipped = page.messages.len().saturating_sub(usize::from(area.height));
    put(buffer, area, page.messages.iter().skip(skipped).cloned());
}

#[cfg(test)]
mod tests;
