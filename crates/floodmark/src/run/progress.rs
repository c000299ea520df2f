//! What runs, what comes and how long it takes: on a terminal one line that is drawn over, elsewhere a line for each measurement.

use std::io::IsTerminal;

use floodmark_lab::Listener;
use floodmark_lab::experiment::{Position, Schedule, Watcher};
use floodmark_record::Event;
use floodmark_record::units::show_duration;
use std::time::Duration;

use crate::load::live::Live;
use crate::out;

/// Watches an experiment.
pub struct Progress {
    schedule: Schedule,
    live: Live,
    quiet: bool,
    terminal: bool,
}

impl Progress {
    /// Nothing has happened yet.
    pub fn new(schedule: Schedule, quiet: bool) -> Self {
        Progress {
            schedule,
            live: Live::new(quiet),
            quiet,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Takes the line off the terminal.
    pub fn clear(&mut self) {
        self.live.clear();
    }

    fn say(&mut self, line: &str) {
        if !self.quiet {
            self.live.clear();
            out::note(&format!("{}\n", floodmark_report::plain::line(line)));
        }
    }
}

impl Listener for Progress {
    fn on(&mut self, event: &Event) {
        if let Event::RunBegan { run, .. } = event
            && let Some(position) = self.schedule.begin(run)
        {
            let name = run.trial.as_deref().unwrap_or(&run.system);
            let line = line(name, run.process, run.attempt, &position);
            if self.terminal {
                self.live.head(&line);
            } else {
                self.say(&line);
            }
        }
        // Without a terminal each measurement has its line already.
        if self.terminal {
            self.live.on(event);
        }
    }
}

impl Watcher for Progress {
    fn doing(&mut self, what: &str) {
        self.say(what);
    }

    fn trouble(&mut self, what: &str) {
        // Said even where nothing else is: it is why something is missing in the record.
        self.live.clear();
        out::note(&format!(
            "floodmark: {}\n",
            floodmark_report::plain::line(what)
        ));
    }

    fn left_out(&mut self, trial: &str) {
        self.schedule.leave_out(trial);
    }
}

/// `3/6 nginx, process 2 · next native · 18 s left`.
fn line(name: &str, process: u32, attempt: u32, position: &Position) -> String {
    let mut line = format!(
        "{}/{} {name}, process {process}",
        position.number, position.of
    );
    if attempt > 1 {
        line.push_str(&format!(" attempt {attempt}"));
    }
    match &position.next {
        Some(next) => line.push_str(&format!(" · next {next}")),
        None => line.push_str(" · the last one"),
    }
    if let Some(left) = position.left {
        line.push_str(&format!(" · {} left", about(left)));
    }
    line
}

/// A length of time in whole seconds or minutes: more is not known of what is to come.
pub fn about(length: Duration) -> String {
    let seconds = length.as_secs_f64().ceil();
    let whole = match seconds {
        s if s < 120.0 => return show_duration(Duration::from_secs_f64(s)),
        s => (s / 60.0).ceil(),
    };
    format!("{whole} min")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_what_runs_what_comes_and_how_long() {
        let mut position = Position {
            number: 3,
            of: 6,
            next: Some("native".to_owned()),
            left: Some(Duration::from_millis(17_500)),
        };
        assert_eq!(
            line("nginx", 2, 1, &position),
            "3/6 nginx, process 2 · next native · 18 s left"
        );
        position.next = None;
        position.left = None;
        assert_eq!(
            line("nginx", 2, 3, &position),
            "3/6 nginx, process 2 attempt 3 · the last one"
        );
        assert_eq!(about(Duration::from_secs(600)), "10 min");
    }
}
