//! Live progress on stderr: a full-screen view or one updated line on a terminal, otherwise separate
//! lines.

use std::io::{IsTerminal, stderr};

use floodmark_host::{Stop, before_immediate_exit};
use floodmark_lab::capacity::CapacityEvents;
use floodmark_live::{LiveState, LiveView, MIN_SIZE, restore_terminal};
use floodmark_record::Event;
use floodmark_record::events::WorkerReady;
use floodmark_report::LoadProgress;

use crate::out;

/// Separator between prefix and status.
const SEPARATOR: &str = " · ";

/// Where progress is shown.
enum LiveMode {
    /// Nowhere (`--quiet`).
    Quiet,
    /// Separate lines in a log or pipe.
    Lines,
    /// One updated line on a terminal.
    OneLine,
    /// A full-screen view on a terminal.
    View(LiveView),
}

/// Displays the progress of a run from its events.
pub struct Live {
    mode: LiveMode,
    progress: Option<LoadProgress>,
    /// The current capacity search.
    search: Option<CapacityEvents>,
    /// Whether a progress line is visible on the terminal.
    drawn: bool,
    /// Prefix of the status line on a terminal.
    prefix: String,
}

impl Live {
    /// Starts to display progress. A quiet display does not print anything. In the full-screen view,
    /// the key `q` sets `stop`.
    pub fn new(quiet: bool, stop: &Stop) -> Self {
        let mode = match quiet {
            true => LiveMode::Quiet,
            false if !stderr().is_terminal() => LiveMode::Lines,
            false => open_view(stop).map_or(LiveMode::OneLine, LiveMode::View),
        };
        Live {
            mode,
            progress: None,
            search: None,
            drawn: false,
            prefix: String::new(),
        }
    }

    /// Returns whether nothing is displayed.
    pub fn is_quiet(&self) -> bool {
        matches!(self.mode, LiveMode::Quiet)
    }

    /// Returns whether progress is shown on a terminal.
    pub fn is_terminal(&self) -> bool {
        matches!(self.mode, LiveMode::OneLine | LiveMode::View(_))
    }

    /// Returns whether the full-screen view is shown.
    pub fn is_view(&self) -> bool {
        matches!(self.mode, LiveMode::View(_))
    }

    /// Sets the prefix of the status line on a terminal.
    pub fn set_prefix(&mut self, text: &str) {
        self.prefix = text.to_owned();
        match &self.mode {
            LiveMode::View(view) => view.update(|state| state.set_position(text)),
            LiveMode::OneLine => self.draw(""),
            LiveMode::Quiet | LiveMode::Lines => {}
        }
    }

    /// Changes the state of the full-screen view, if it is shown.
    pub fn update_view(&self, change: impl FnOnce(&mut LiveState)) {
        if let LiveMode::View(view) = &self.mode {
            view.update(change);
        }
    }

    /// Handles an event of any kind.
    pub fn on(&mut self, event: &Event) {
        if self.is_quiet() {
            return;
        }
        if let Event::Ready(ready) = event {
            self.print_notices(ready);
        }
        if let LiveMode::View(view) = &self.mode {
            view.update(|state| state.on(event));
            return self.on_search(event);
        }
        match event {
            Event::RunBegan { plan, .. } => self.progress = Some(LoadProgress::new(plan)),
            Event::End(_) => self.clear(),
            event => self.on_progress(event),
        }
    }

    /// Prints the notices of a worker, unless the display is quiet.
    pub fn print_notices(&mut self, ready: &WorkerReady) {
        if !self.is_quiet() {
            for notice in &ready.notices {
                self.print_line(notice);
            }
        }
    }

    /// Shows the trials of a capacity search in the full-screen view.
    fn on_search(&mut self, event: &Event) {
        if let Event::CapacityBegan(began) = event {
            self.search = Some(CapacityEvents::new(began.clone()));
        }
        let Some(search) = &mut self.search else {
            return;
        };
        search.take(event);
        if let Event::CapacityTrial(_) = event {
            let result = search.result();
            self.update_view(|state| state.record_search(&result));
        }
    }

    /// Handles an event during a run.
    fn on_progress(&mut self, event: &Event) {
        let is_terminal = self.is_terminal();
        let Some(progress) = &mut self.progress else {
            return;
        };
        let plain = match event {
            Event::ServerUsed(used) => return progress.server_used(used),
            Event::StoreUsed(used) => return progress.store_used(used),
            Event::AgentRates { ok_per_s } => return progress.agent_rates(ok_per_s),
            Event::Connecting(opening) if is_terminal => {
                return self.draw(&LoadProgress::opening_line(opening));
            }
            Event::Connecting(opening) => progress.plain_opening_line(opening),
            Event::Second(row) => {
                progress.feed(row);
                if is_terminal {
                    let mut style = out::style(&stderr());
                    let taken = self.prefix.chars().count() + SEPARATOR.len();
                    style.width = style.width.saturating_sub(taken);
                    let line = progress.line(style);
                    return self.draw(&line);
                }
                progress.plain_line()
            }
            _ => None,
        };
        if let Some(line) = plain {
            out::note(&format!("{line}\n"));
        }
    }

    /// Redraws the progress line on the terminal.
    pub fn draw(&mut self, line: &str) {
        let separator = if self.prefix.is_empty() || line.is_empty() {
            ""
        } else {
            SEPARATOR
        };
        out::note(&format!("\r\x1b[K{}{separator}{line}", self.prefix));
        self.drawn = true;
    }

    /// Prints a line that stays on the terminal.
    pub fn print_line(&mut self, line: &str) {
        self.clear();
        out::note(&format!("{line}\n"));
    }

    /// Clears the progress line on the terminal.
    pub fn clear(&mut self) {
        if self.drawn {
            out::note("\r\x1b[K");
            self.drawn = false;
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Opens the full-screen view. Returns `None` if the terminal is too small or too simple, or if this
/// process runs in the background.
fn open_view(stop: &Stop) -> Option<LiveView> {
    let (width, height) = terminal_size::terminal_size_of(stderr())?;
    let is_simple = std::env::var_os("TERM").is_none_or(|name| name == "dumb");
    if is_simple || width.0 < MIN_SIZE.0 || height.0 < MIN_SIZE.1 {
        return None;
    }
    let color = out::style(&stderr()).color;
    // SAFETY: `restore_terminal` is safe in signal handlers.
    unsafe { before_immediate_exit(restore_terminal) };
    LiveView::open(stop.flag(), color).ok()
}
