//! Progress of a search on stderr: one updated line on a terminal, otherwise one line per trial.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use floodmark_record::Event;
use floodmark_record::capacity::CapacityResult;

use floodmark_lab::capacity::CapacityEvents;

use crate::out;

/// Displays the progress of a search from its events.
pub struct CapacityProgress {
    quiet: bool,
    terminal: bool,
    begin: Instant,
    budget: Duration,
    search: Option<CapacityEvents>,
    drawn: bool,
}

impl CapacityProgress {
    /// Creates the view. A quiet view does not print anything.
    pub fn new(quiet: bool, budget: Duration) -> Self {
        CapacityProgress {
            quiet,
            terminal: std::io::stderr().is_terminal(),
            begin: Instant::now(),
            budget,
            search: None,
            drawn: false,
        }
    }

    /// Handles an event of any kind.
    pub fn on(&mut self, event: &Event) {
        if self.quiet {
            return;
        }
        match event {
            Event::CapacityBegan(began) => {
                self.search = Some(CapacityEvents::new(began.clone()));
            }
            Event::CapacityTrial(trial) => {
                let Some(search) = &mut self.search else {
                    return;
                };
                search.take(event);
                let result = search.result();
                match self.terminal {
                    true => self.draw(&result),
                    false => {
                        let line = floodmark_report::capacity_trial_line(trial, &result);
                        out::note(&format!("{line}\n"));
                    }
                }
            }
            Event::Ready(ready) => {
                for notice in &ready.notices {
                    self.clear();
                    out::note(&format!("{notice}\n"));
                }
            }
            _ => {}
        }
    }

    fn draw(&mut self, result: &CapacityResult) {
        let style = out::style(&std::io::stderr());
        let left = self.budget.saturating_sub(self.begin.elapsed());
        let line = floodmark_report::capacity_progress_line(result, left, style.width);
        out::note(&format!("\r\x1b[K{line}"));
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
