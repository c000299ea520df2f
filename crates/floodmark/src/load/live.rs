//! The live view: a line that is drawn over on a terminal, plain lines elsewhere, both on stderr.

use std::io::IsTerminal;

use floodmark_record::Event;
use floodmark_report::Progress;

use crate::out;

/// Between what stands before the line and the line.
const BETWEEN: &str = " · ";

/// Listens to a run's events and says how far it is.
pub struct Live {
    progress: Option<Progress>,
    quiet: bool,
    terminal: bool,
    /// Whether a line is on the terminal that is to be drawn over.
    drawn: bool,
    /// Stands before the line on the terminal.
    head: String,
}

impl Live {
    /// A live view; a quiet one says nothing.
    pub fn new(quiet: bool) -> Self {
        Live {
            progress: None,
            quiet,
            terminal: std::io::stderr().is_terminal(),
            drawn: false,
            head: String::new(),
        }
    }

    /// What stands before the line on the terminal from now on.
    pub fn head(&mut self, text: &str) {
        if !self.quiet {
            self.head = text.to_owned();
            self.draw("");
        }
    }

    /// Takes in an event.
    pub fn on(&mut self, event: &Event) {
        if self.quiet {
            return;
        }
        match event {
            Event::RunBegan { plan, .. } => self.progress = Some(Progress::new(plan)),
            Event::Ready(ready) => {
                for notice in &ready.notices {
                    self.clear();
                    out::note(&format!("{notice}\n"));
                }
            }
            Event::Connecting(word) => {
                let Some(progress) = &mut self.progress else {
                    return;
                };
                if self.terminal {
                    self.draw(&Progress::opening_line(word));
                } else if let Some(line) = progress.plain_opening_line(word) {
                    out::note(&format!("{line}\n"));
                }
            }
            Event::ServerUsed(used) => {
                if let Some(progress) = &mut self.progress {
                    progress.server_used(used);
                }
            }
            Event::StoreUsed(used) => {
                if let Some(progress) = &mut self.progress {
                    progress.store_used(used);
                }
            }
            Event::Second(row) => {
                let Some(progress) = &mut self.progress else {
                    return;
                };
                progress.feed(row);
                if self.terminal {
                    let mut style = out::style(&std::io::stderr());
                    let taken = self.head.chars().count() + BETWEEN.len();
                    style.width = style.width.saturating_sub(taken);
                    let line = progress.line(style);
                    self.draw(&line);
                } else if let Some(line) = progress.plain_line() {
                    out::note(&format!("{line}\n"));
                }
            }
            Event::End(_) => self.clear(),
            _ => {}
        }
    }

    /// Draws over the line on the terminal.
    fn draw(&mut self, line: &str) {
        let between = if self.head.is_empty() || line.is_empty() {
            ""
        } else {
            BETWEEN
        };
        out::note(&format!("\r\x1b[K{}{between}{line}", self.head));
        self.drawn = true;
    }

    /// Takes the line off the terminal.
    pub fn clear(&mut self) {
        if self.drawn {
            out::note("\r\x1b[K");
            self.drawn = false;
        }
    }
}
