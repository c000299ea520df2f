//! The live view: a line that is drawn over on a terminal, plain lines elsewhere, both on stderr.

use std::io::IsTerminal;

use floodmark_record::Event;
use floodmark_report::Progress;

use crate::out;

/// Listens to a run's events and says how far it is.
pub struct Live {
    progress: Option<Progress>,
    quiet: bool,
    terminal: bool,
    /// Whether a line is on the terminal that is to be drawn over.
    drawn: bool,
}

impl Live {
    /// A live view; a quiet one says nothing.
    pub fn new(quiet: bool) -> Self {
        Live {
            progress: None,
            quiet,
            terminal: std::io::stderr().is_terminal(),
            drawn: false,
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
            Event::Second(row) => {
                let Some(progress) = &mut self.progress else {
                    return;
                };
                progress.feed(row);
                if self.terminal {
                    let line = progress.line(out::style(&std::io::stderr()));
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
        out::note(&format!("\r\x1b[K{line}"));
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
