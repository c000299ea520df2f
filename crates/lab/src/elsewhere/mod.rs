//! What `floodmark observe` reads on the server's machine, put beside a load on this one.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use floodmark_record::elsewhere::{self, Aligned, Kind, Second};
use floodmark_record::run::Observation;
use floodmark_record::watch::{Observed, ServerSeen};

use file::ObserverFile;
pub use file::Unusable;
use series::{Joined, Piece, increase, join};

mod clocks;
mod file;
mod series;
mod threads;

/// How long a line is awaited that was to come each second.
const PATIENCE: Duration = Duration::from_secs(3);

/// Time at the end of an attempt that need not have been observed, ms: the steps in it were not over.
const SLACK_MS: f64 = 100.0;

/// Most values of one series, as of those that are read here.
const MOST_VALUES: usize = 3_600;

/// Characters that the values of one run may take in the record: 4 MiB for all of its observations, less their heads.
const MOST_WRITTEN: usize = 3_700_000;

/// Where another machine's observations come in.
#[derive(Debug)]
pub struct Elsewhere(RefCell<ObserverFile>);

impl Elsewhere {
    /// Opens the file of an observation that goes on, of a server on a port.
    ///
    /// # Errors
    /// It is not there, is no such file, is of another port, or does not grow.
    pub fn open(path: &Path, port: u16) -> Result<Self, Unusable> {
        let mut file = ObserverFile::open(path)?;
        let says = |line, what: String| Unusable::Says {
            path: path.to_owned(),
            line,
            what,
        };
        let observed = file.opened.port;
        if observed != port {
            return Err(says(
                1,
                format!(
                    "observes the server on port {observed}, the load is on port {port}; observe with --port {port} there"
                ),
            ));
        }
        let had = file.lines;
        let grows = file.wait_for(PATIENCE, |file| file.lines > had)?;
        let lines = file.lines;
        if let Some(why) = &file.ended {
            return Err(says(
                lines,
                format!("the observation has ended ({why}); start floodmark observe anew"),
            ));
        }
        if !grows {
            return Err(says(
                lines,
                format!(
                    "has not grown for {} s: floodmark observe has ended, or what it writes does not come here",
                    PATIENCE.as_secs()
                ),
            ));
        }
        Ok(Self(RefCell::new(file)))
    }

    /// Puts what was observed there beside what was read here in an attempt that has just ended; what could not be.
    pub fn take(&self, observed: &mut Observed) -> Vec<String> {
        let mut file = self.0.borrow_mut();
        let taken = put_beside(&mut file, observed);
        file.forget();
        taken.unwrap_or_else(|why| vec![format!("server: {}: {why}", file.path().display())])
    }
}

/// The times of one attempt, ms on the clock of its own series.
struct Attempt {
    measured_from_ms: Option<u64>,
    end_ms: f64,
}

fn put_beside(file: &mut ObserverFile, observed: &mut Observed) -> Result<Vec<String>, String> {
    let here = observed.clocks.clone();
    let here = here.ok_or("the load's own series have no clock to put it beside")?;
    let attempt = Attempt {
        measured_from_ms: observed.measured_from_ms,
        end_ms: observed.watcher.map_or(0.0, |watcher| watcher.wall_s * 1e3),
    };
    let by_word = |file: &ObserverFile| {
        let last = file.seconds.back()?;
        Some((clocks::by_word(&here, &last.clocks)?, last.to_ms as f64))
    };
    let covers = |file: &ObserverFile| {
        by_word(file).is_some_and(|(aligned, to_ms)| to_ms + aligned.offset_ms >= attempt.end_ms)
    };
    let mut missing: Vec<String> = Vec::new();
    if let Err(error) = file.wait_for(PATIENCE, covers) {
        missing.push(format!("server: {error}"));
    }
    let (aligned, _) = by_word(file).ok_or(
        "the two machines' clocks cannot be put together: not both kernels take theirs for synchronised (NTP)",
    )?;
    let there = There::new(file, &aligned, &attempt)?;
    let written = |o: &Observation| o.values.iter().map(written_length).sum::<usize>();
    let room = observed.observations.iter().map(written).sum::<usize>();
    let room = MOST_WRITTEN.saturating_sub(room);
    observed.observations.extend(there.observations(room));
    observed.server = there.server();
    if there.to_ms + SLACK_MS < attempt.end_ms {
        missing.push(format!(
            "server: {}: observed until {:.1} s of {:.1} s of the attempt only",
            file.path().display(),
            there.to_ms / 1e3,
            attempt.end_ms / 1e3
        ));
    }
    let said = file.missing.iter();
    missing.extend(said.map(|line| format!("server's machine: {line}")));
    observed.elsewhere = Some(elsewhere::Elsewhere {
        environment: file.opened.environment.clone(),
        from_ms: there.from_ms as u64,
        to_ms: there.to_ms as u64,
        watcher_cpu_s: there.watcher_cpu_s(),
        aligned,
    });
    Ok(missing)
}

/// What was observed there within an attempt.
struct There<'a> {
    file: &'a ObserverFile,
    attempt: &'a Attempt,
    /// The seconds that are within it, at least by a part.
    seconds: Vec<&'a Second>,
    /// What is added to their times, ms.
    offset_ms: i64,
    /// From when on, and until when, it was observed.
    from_ms: f64,
    to_ms: f64,
}

/// One series there, in pieces.
struct InPieces<'a> {
    source: &'a str,
    series: &'a elsewhere::Series,
    pieces: Vec<Piece<'a>>,
}

impl<'a> There<'a> {
    fn new(
        file: &'a ObserverFile,
        aligned: &Aligned,
        attempt: &'a Attempt,
    ) -> Result<Self, String> {
        let offset_ms = aligned.offset_ms.round() as i64;
        let here = |ms: u64| {
            i64::try_from(ms)
                .unwrap_or(i64::MAX)
                .saturating_add(offset_ms) as f64
        };
        let within =
            |second: &&Second| here(second.to_ms) > 0.0 && here(second.from_ms) < attempt.end_ms;
        let seconds: Vec<&Second> = file.seconds.iter().filter(within).collect();
        let (Some(first), Some(last)) = (seconds.first(), seconds.last()) else {
            return Err("nothing was observed during the attempt".to_owned());
        };
        Ok(Self {
            from_ms: here(first.from_ms).max(0.0),
            to_ms: here(last.to_ms).min(attempt.end_ms),
            file,
            attempt,
            seconds,
            offset_ms,
        })
    }

    /// All series there, those of a group that was never described left out.
    fn series(&self) -> Vec<InPieces<'a>> {
        let mut all = Vec::new();
        for (number, group) in self.file.groups() {
            for (index, series) in group.series.iter().enumerate() {
                let values = self.seconds.iter().flat_map(|second| &second.groups);
                let pieces = values.filter(|values| values.group == number);
                let piece = |values: &'a elsewhere::Values| Piece {
                    start_ms: i64::try_from(values.start_ms)
                        .unwrap_or(i64::MAX)
                        .saturating_add(self.offset_ms),
                    step_ms: values.step_ms,
                    values: &values.values[index],
                };
                all.push(InPieces {
                    source: &group.source,
                    series,
                    pieces: pieces.map(piece).collect(),
                });
            }
        }
        all
    }

    /// The series as observations of the load's machine, in at most `room` characters.
    fn observations(&self, room: usize) -> Vec<Observation> {
        let end_ms = self.attempt.end_ms as u64;
        let join = |of: &InPieces, least_ms| join(of.series.kind, &of.pieces, end_ms, least_ms);
        let all = self.series();
        let mut joined: Vec<(&InPieces, Joined, usize)> = Vec::new();
        for of in &all {
            let mut series = join(of, 0);
            while let Some(long) = series.as_ref().filter(|s| s.values.len() > MOST_VALUES) {
                series = join(of, long.step_ms * 2);
            }
            joined.extend(series.map(|series| {
                let length = length(&series);
                (of, series, length)
            }));
        }
        while joined.iter().map(|(.., length)| length).sum::<usize>() > room {
            let longest = joined.iter_mut().max_by_key(|(.., length)| *length);
            let Some((of, series, length_of)) = longest.filter(|(_, s, _)| s.values.len() > 1)
            else {
                break;
            };
            if let Some(shorter) = join(of, series.step_ms * 2) {
                *length_of = length(&shorter);
                *series = shorter;
            }
        }
        let observations = joined.into_iter();
        observations
            .flat_map(|(of, joined, _)| observations_of(of, joined))
            .collect()
    }

    /// The server's processes and threads over the measurement; none where not all of it was observed.
    fn server(&self) -> Option<ServerSeen> {
        let from_ms = self.attempt.measured_from_ms? as f64;
        let end_ms = self.attempt.end_ms;
        if self.from_ms > from_ms || self.to_ms + SLACK_MS < end_ms {
            return None;
        }
        let all = self.series();
        let of = |metric: &str| {
            let mut all = all.iter();
            all.find(|of| of.series.subject == "server" && of.series.metric == metric)
        };
        let most = |metric: &str| {
            let pieces = &of(metric)?.pieces;
            let joined = join(Kind::Level, pieces, end_ms as u64, 0)?;
            let values = joined.values.iter().chain(&joined.largest);
            Some(values.copied().fold(0.0, f64::max) as u64)
        };
        let used = |metric: &str| Some(increase(&of(metric)?.pieces, from_ms, end_ms));
        let on_cpu = of("on_cpu").map_or(&[][..], |of| &of.pieces);
        let parts = self.seconds.iter().map(|second| {
            let here = |ms: u64| ms as f64 + self.offset_ms as f64;
            let (begin, end) = (here(second.from_ms), here(second.to_ms));
            let within = (begin.max(from_ms), end.min(end_ms));
            (*second, part(on_cpu, within, (begin, end)))
        });
        let (threads, other_threads) = threads::sum(parts, (used("user")?, used("system")?));
        Some(ServerSeen {
            name: self.file.opened.name.clone(),
            pids: self.file.opened.pids.clone(),
            processes: most("processes")?,
            peak_rss_bytes: most("rss")?,
            threads,
            other_threads,
        })
    }

    /// CPU that observing took meanwhile, seconds.
    fn watcher_cpu_s(&self) -> f64 {
        let first = self.seconds.first().map_or(0.0, |s| s.watcher_cpu_s);
        let last = self.seconds.last().map_or(0.0, |s| s.watcher_cpu_s);
        last - first
    }
}

/// Which part of what threads used over a time belongs to a time within it: as much as of the CPU that all of them used, and
/// where they used none, of the time.
fn part(on_cpu: &[Piece], within: (f64, f64), of: (f64, f64)) -> f64 {
    if within.0 >= within.1 {
        return 0.0;
    }
    let all = increase(on_cpu, of.0, of.1);
    let part = match all > 0.0 {
        true => increase(on_cpu, within.0, within.1) / all,
        false => (within.1 - within.0) / (of.1 - of.0),
    };
    part.clamp(0.0, 1.0)
}

/// What the series of the load's machine have as name already is the server's here.
fn subject_here(subject: &str) -> String {
    match subject {
        "host" | "network" | "disk" => format!("server {subject}"),
        subject => subject.to_owned(),
    }
}

fn observations_of(of: &InPieces, joined: Joined) -> impl Iterator<Item = Observation> + use<> {
    let elsewhere::Series {
        subject,
        metric,
        unit,
        kind,
    } = of.series.clone();
    let source = of.source.to_owned();
    let observation = move |metric, unit, values| Observation {
        subject: subject_here(&subject),
        metric,
        unit,
        source: source.clone(),
        start_ms: joined.start_ms,
        step_ms: joined.step_ms,
        values,
    };
    let unit_of_largest = match kind {
        Kind::Increase => format!("{unit}/s"),
        Kind::Mean | Kind::Level => unit.clone(),
    };
    let largest = (!joined.largest.is_empty())
        .then(|| observation(format!("{metric}.max"), unit_of_largest, joined.largest));
    [observation(metric, unit, joined.values)]
        .into_iter()
        .chain(largest)
}

/// Characters that a series takes in JSON.
fn length(joined: &Joined) -> usize {
    let values = joined.values.iter().chain(&joined.largest);
    values.map(written_length).sum()
}

fn written_length(value: &f64) -> usize {
    format!("{value:?},").len()
}
