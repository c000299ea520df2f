//! Progress of a search on stderr: the live view or one updated line on a terminal, otherwise one
//! line per trial.

use std::io::stderr;

use floodmark_host::Stop;
use floodmark_lab::capacity::CapacityEvents;
use floodmark_record::Event;

use crate::load::live::Live;
use crate::out;

/// Displays the progress of a search from its events.
pub struct CapacityProgress {
    live: Live,
    search: Option<CapacityEvents>,
}

impl CapacityProgress {
    /// Starts to display progress. A quiet display does not print anything.
    pub fn new(quiet: bool, stop: &Stop) -> Self {
        CapacityProgress {
            live: Live::new(quiet, stop),
            search: None,
        }
    }

    /// Clears the progress line on the terminal.
    pub fn clear(&mut self) {
        self.live.clear();
    }

    /// Handles an event of any kind.
    pub fn on(&mut self, event: &Event) {
        if self.live.is_view() {
            return self.live.on(event);
        }
        match event {
            Event::CapacityBegan(began) => {
                self.search = Some(CapacityEvents::new(began.clone()));
            }
            Event::CapacityTrial(trial) if !self.live.is_quiet() => {
                let Some(search) = &mut self.search else {
                    return;
                };
                search.take(event);
                let result = search.result();
                if self.live.is_terminal() {
                    let width = out::style(&stderr()).width;
                    let line = floodmark_report::capacity_progress_line(&result, width);
                    self.live.draw(&line);
                } else {
                    let line = floodmark_report::capacity_trial_line(trial, &result);
                    self.live.print_line(&line);
                }
            }
            Event::Ready(ready) => self.live.print_notices(ready),
            _ => {}
        }
    }
}
