//! What was observed on the server's machine within one attempt.

use floodmark_record::elsewhere::{self, Aligned, Kind, Second};
use floodmark_record::run::Observation;
use floodmark_record::watch::ServerSeen;

use super::file::ObserverFile;
use super::series::{Joined, Piece, increase, join};
use super::threads;

/// Time at the end of an attempt that need not have been observed, ms: the steps in it were not over.
pub const SLACK_MS: f64 = 100.0;

/// Most values of one series, as of those that are read here.
const MOST_VALUES: usize = 3_600;

/// The times of one attempt, ms on the clock of its own series.
pub struct Attempt {
    pub measured_from_ms: Option<u64>,
    pub end_ms: f64,
}

/// What was observed there within an attempt.
pub struct There<'a> {
    file: &'a ObserverFile,
    attempt: &'a Attempt,
    /// The seconds that are within it, at least by a part.
    seconds: Vec<&'a Second>,
    /// What is added to their times, ms.
    offset_ms: i64,
    /// From when on, and until when, it was observed, ms.
    pub from_ms: f64,
    pub to_ms: f64,
}

/// One series there, in pieces.
pub struct InPieces<'a> {
    source: &'a str,
    pub series: &'a elsewhere::Series,
    pub pieces: Vec<Piece<'a>>,
}

impl<'a> There<'a> {
    pub fn new(
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

    /// All series there.
    fn series(&self) -> Vec<InPieces<'a>> {
        in_pieces(self.file, self.seconds.iter().copied(), self.offset_ms)
    }

    /// The series as observations of the load's machine, in at most `room` characters.
    pub fn observations(&self, room: usize) -> Vec<Observation> {
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
    pub fn server(&self) -> Option<ServerSeen> {
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
    pub fn watcher_cpu_s(&self) -> f64 {
        let first = self.seconds.first().map_or(0.0, |s| s.watcher_cpu_s);
        let last = self.seconds.last().map_or(0.0, |s| s.watcher_cpu_s);
        last - first
    }
}

/// All series of some seconds, `offset_ms` later.
pub fn in_pieces<'a>(
    file: &'a ObserverFile,
    seconds: impl Iterator<Item = &'a Second> + Clone,
    offset_ms: i64,
) -> Vec<InPieces<'a>> {
    let mut all = Vec::new();
    for (number, group) in file.groups() {
        for (index, series) in group.series.iter().enumerate() {
            let values = seconds.clone().flat_map(|second| &second.groups);
            let pieces = values.filter(|values| values.group == number);
            // A series that was found later has no values in earlier seconds.
            let piece = |values: &'a elsewhere::Values| {
                Some(Piece {
                    start_ms: i64::try_from(values.start_ms)
                        .unwrap_or(i64::MAX)
                        .saturating_add(offset_ms),
                    step_ms: values.step_ms,
                    values: values.values.get(index)?,
                })
            };
            all.push(InPieces {
                source: &group.source,
                series,
                pieces: pieces.filter_map(piece).collect(),
            });
        }
    }
    all
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

pub fn written_length(value: &f64) -> usize {
    format!("{value:?},").len()
}
