//! Adds the observations that `floodmark observe` made on the server's host to a run.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use floodmark_plan::FileError;
use floodmark_record::Observation;
use floodmark_record::watch::{Observed, RemoteObservation};

use alignment::align;
use excerpt::{END_SLACK_MS, Excerpt, RunTimes, json_length};
use file::ObserverFile;

mod alignment;
mod excerpt;
mod file;
pub mod series;

/// Timeout for the next line, which is due every second.
const LINE_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum length of a run's observed values in the record, in characters. This is 4 MiB in total,
/// minus the space for descriptions.
const VALUES_LIMIT: usize = 3_700_000;

/// The observer on the server's host, accessed through its output file.
#[derive(Debug)]
pub struct RemoteObserver(RefCell<ObserverFile>);

impl RemoteObserver {
    /// Opens the file of an observation in progress.
    ///
    /// # Errors
    /// The file is missing, does not grow, was not written by an observer, or describes another
    /// port.
    pub fn open(path: &Path, port: u16) -> Result<Self, FileError> {
        let mut file = ObserverFile::open(path)?;
        let observed = file.opened.port;
        if observed != port {
            let what = format!(
                "port {observed} is observed, but the load targets port {port}; run floodmark observe --port {port}"
            );
            return Err(FileError::on_line(path, 1, what));
        }
        let lines = file.lines;
        let grows = file.wait_for(LINE_TIMEOUT, |file| file.lines > lines)?;
        if let Some(why) = &file.ended {
            return Err(file.invalid(format!(
                "the observation has ended ({why}); restart floodmark observe"
            )));
        }
        if !grows {
            return Err(file.invalid(format!(
                "the file has not grown for {} s; check that floodmark observe is running and writes to this file",
                LINE_TIMEOUT.as_secs()
            )));
        }
        Ok(Self(RefCell::new(file)))
    }

    /// Adds remote observations to the local observations of an attempt that has just ended.
    /// Returns a one-line message per missing observation.
    pub fn add_to(&self, observed: &mut Observed) -> Vec<String> {
        let mut file = self.0.borrow_mut();
        let missing = add_to(&mut file, observed);
        file.drop_old();
        missing.unwrap_or_else(|error| vec![format!("server: {}: {error}", file.path().display())])
    }
}

fn add_to(file: &mut ObserverFile, observed: &mut Observed) -> Result<Vec<String>, String> {
    let clocks = observed.clocks.clone();
    let clocks = clocks.ok_or("the clock readings of this host are missing")?;
    let times = RunTimes {
        measured_from_ms: observed.measured_from_ms,
        end_ms: observed.watcher.map_or(0.0, |watcher| watcher.wall_s * 1e3),
    };
    let mut missing: Vec<String> = Vec::new();
    let read = file.wait_for(LINE_TIMEOUT, |file| {
        let Some(last) = file.seconds.back() else {
            return false;
        };
        let covers_end = |offset_ms| last.to_ms as f64 + offset_ms >= times.end_ms;
        align(&clocks, &last.clocks, file.offset)
            .map_or(true, |alignment| covers_end(alignment.offset_ms))
    });
    if let Err(error) = read {
        missing.push(format!("server: {error}"));
    }
    let aligned = align(&clocks, file.clocks(), file.offset)?;
    let excerpt = Excerpt::new(file, &aligned, &times)?;
    let length = |o: &Observation| o.values.iter().map(json_length).sum::<usize>();
    let taken = observed.observations.iter().map(length).sum::<usize>();
    let room = VALUES_LIMIT.saturating_sub(taken);
    observed.observations.extend(excerpt.observations(room));
    observed.server = excerpt.server();
    if excerpt.to_ms + END_SLACK_MS < times.end_ms {
        missing.push(format!(
            "server: {}: only the first {:.1} s of {:.1} s were observed",
            file.path().display(),
            excerpt.to_ms / 1e3,
            times.end_ms / 1e3
        ));
    } else if observed.server.is_none() {
        let path = file.path().display();
        missing.push(format!(
            "server: {path}: no sample of the server during the load; run longer"
        ));
    }
    missing.extend(
        file.missing
            .iter()
            .map(|line| format!("server host: {line}")),
    );
    observed.remote = Some(RemoteObservation {
        environment: file.opened.environment.clone(),
        from_ms: excerpt.from_ms as u64,
        to_ms: excerpt.to_ms as u64,
        watcher_cpu_s: excerpt.watcher_cpu_s(),
        aligned,
    });
    Ok(missing)
}

#[cfg(test)]
mod tests;
