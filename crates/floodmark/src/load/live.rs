//! Live progress on stderr: one updated line on a terminal, otherwise separate lines.

use std::io::IsTerminal;

use floodmark_record::Event;
use floodmark_report::LoadProgress;

use crate::out;

/// Separator between prefix and status.
const SEPARATOR: &str = " · ";

/// Displays the progress of a run from its events.
pub struct Live {
    progress: Option<LoadProgress>,
    pub quiet: bool,
    /// Whether stderr is a terminal.
    pub terminal: bool,
    /// Whether a progress line is visible on the terminal.
    drawn: bool,
    /// Prefix of the status line on a terminal.
    prefix: String,
}

impl Live {
    /// Creates a live view. A quiet view does not print anything.
    pub fn new(quiet: bool) -> Self {
        Live {
            progress: None,
            quiet,
            terminal: std::io::stderr().is_terminal(),
            drawn: false,
            prefix: String::new(),
        }
    }

    /// Sets the prefix of the status line on a terminal.
    pub fn set_prefix(&mut self, text: &str) {
        if !self.quiet {
            self.prefix = text.to_owned();
            self.draw("");
        }
    }

    /// Handles an event of any kind.
    pub fn on(&mut self, event: &Event) {
        if self.quiet {
            return;
        }
        match event {
            Event::RunBegan { plan, .. } => self.progress = Some(LoadProgress::new(plan)),
            Event::Ready(ready) => {
                for notice in &ready.notices {
                    self.clear();
                    out::note(&format!("{notice}\n"));
                }
            }
            Event::End(_) => self.clear(),
            event => self.on_progress(event),
        }
    }

    /// Handles an event during a run.
    fn on_progress(&mut self, event: &Event) {
        let Some(progress) = &mut self.progress else {
            return;
        };
        let plain = match event {
            Event::ServerUsed(used) => return progress.server_used(used),
            Event::StoreUsed(used) => return progress.store_used(used),
            Event::AgentRates { ok_per_s } => return progress.agent_rates(ok_per_s),
            Event::Connecting(opening) if self.terminal => {
                return self.draw(&LoadProgress::opening_line(opening));
            }
            Event::Connecting(opening) => progress.plain_opening_line(opening),
            Event::Second(row) => {
                progress.feed(row);
                if self.terminal {
                    let mut style = out::style(&std::io::stderr());
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
    fn draw(&mut self, line: &str) {
        let separator = if self.prefix.is_empty() || line.is_empty() {
            ""
        } else {
            SEPARATOR
        };
        out::note(&format!("\r\x1b[K{}{separator}{line}", self.prefix));
        self.drawn = true;
    }

    /// Clears the progress line on the terminal.
    pub fn clear(&mut self) {
        if self.drawn {
            out::note("\r\x1b[K");
            self.drawn = false;
        }
    }
}
