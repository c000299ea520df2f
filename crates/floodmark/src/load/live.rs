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
            Event::Second(row) => {
                let Some(progress) = &mut self.progress else {
                    return;
                };
                progress.feed(row);
                if self.terminal {
                    let line = progress.line(out::style(&std::io::stderr()));
                    out::note(&format!("\r\x1b[K{line}"));
                    self.drawn = true;
                } else if let Some(line) = progress.plain_line() {
                    out::note(&format!("{line}\n"));
                }
            }
            Event::End(_) => self.clear(),
            _ => {}
        }
    }

    /// Takes the line off the terminal.
    pub fn clear(&mut self) {
        if self.drawn {
            out::note("\r\x1b[K");
            self.drawn = false;
        }
    }
}
