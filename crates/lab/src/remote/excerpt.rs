//! The part of a remote observation that covers one attempt.

use floodmark_record::metric::{MetricKind, ProcessFigure, Role};
use floodmark_record::watch::{
    ClockAlignment, GroupValues, ObservedSecond, ObservedSeries, ServerSeen,
};
use floodmark_record::{Metric, Observation};

use super::file::ObserverFile;
use super::series;
use super::series::{JoinedSeries, SeriesPiece, increase, join};

/// Maximum unobserved time, in ms, at the end of an attempt that still counts as completely
/// observed. The last steps may be incomplete.
pub const END_SLACK_MS: f64 = 100.0;

/// Maximum number of values in a series. Local series have the same limit.
const SERIES_LIMIT: usize = 3_600;

/// The part of an observation that covers one attempt.
pub struct Excerpt<'a> {
    file: &'a ObserverFile,
    /// Start of the measurement, in ms from the start of the attempt.
    measured_from_ms: Option<u64>,
    /// End of the attempt, in ms on the clock of the attempt's own series.
    end_ms: f64,
    /// The observed seconds that overlap the attempt.
    seconds: Vec<&'a ObservedSecond>,
    /// Offset to add to the times of the observed seconds, in ms.
    offset_ms: i64,
    /// Start of the observation within the attempt, in ms.
    pub from_ms: f64,
    /// End of the observation within the attempt, in ms.
    pub to_ms: f64,
}

/// A remote series in pieces. Each piece comes from one line.
struct PiecewiseSeries<'a> {
    source: &'a str,
    series: &'a ObservedSeries,
    pieces: Vec<SeriesPiece<'a>>,
}

impl<'a> Excerpt<'a> {
    /// Selects the observed seconds that overlap an attempt.
    ///
    /// # Errors
    /// Nothing was observed during the attempt.
    pub fn new(
        file: &'a ObserverFile,
        alignment: &ClockAlignment,
        measured_from_ms: Option<u64>,
        end_ms: f64,
    ) -> Result<Self, String> {
        let offset_ms = alignment.offset_ms.round() as i64;
        let here = |ms| moved(ms, offset_ms) as f64;
        let within =
            |second: &&ObservedSecond| here(second.to_ms) > 0.0 && here(second.from_ms) < end_ms;
        let seconds: Vec<&ObservedSecond> = file.seconds.iter().filter(within).collect();
        let (Some(first), Some(last)) = (seconds.first(), seconds.last()) else {
            return Err("the file contains no observations from this attempt".to_owned());
        };
        Ok(Self {
            from_ms: here(first.from_ms).max(0.0),
            to_ms: here(last.to_ms).min(end_ms),
            file,
            measured_from_ms,
            end_ms,
            seconds,
            offset_ms,
        })
    }

    /// Returns all series on the clock of the attempt.
    fn series(&self) -> Vec<PiecewiseSeries<'a>> {
        let mut all = Vec::new();
        for (number, group) in self.file.groups() {
            for (index, series) in group.series.iter().enumerate() {
                let values = self.seconds.iter().flat_map(|second| &second.groups);
                // A series may appear late. Earlier seconds contain no values for such a series.
                let piece = |values: &'a GroupValues| {
                    Some(SeriesPiece {
                        start_ms: moved(values.start_ms, self.offset_ms),
                        step_ms: values.step_ms,
                        values: values.values.get(index)?,
                    })
                };
                all.push(PiecewiseSeries {
                    source: &group.source,
                    series,
                    pieces: values
                        .filter(|values| values.group == number)
                        .filter_map(piece)
                        .collect(),
                });
            }
        }
        all
    }

    /// Returns the series as observations of the run. The values have at most `room` characters in
    /// total.
    pub fn observations(&self, room: usize) -> Vec<Observation> {
        let end_ms = self.end_ms as u64;
        let join = |of: &PiecewiseSeries, min_step_ms| {
            join(of.series.kind, &of.pieces, end_ms, min_step_ms)
        };
        let all = self.series();
        let mut joined: Vec<(&PiecewiseSeries, JoinedSeries)> = all
            .iter()
            .filter_map(|of| Some((of, join(of, 0)?)))
            .collect();
        loop {
            let total: usize = joined.iter().map(|(_, series)| length(series)).sum();
            let longest = joined
                .iter_mut()
                .max_by_key(|(_, series)| series.values.len());
            let Some((of, series)) = longest.filter(|(_, series)| {
                let values = series.values.len();
                values > SERIES_LIMIT || (total > room && values > 1)
            }) else {
                break;
            };
            match join(of, series.step_ms * 2) {
                Some(shorter) => *series = shorter,
                None => break,
            }
        }
        let observations = joined.into_iter();
        observations
            .flat_map(|(of, joined)| observations_of(of, joined))
            .collect()
    }

    /// Returns the server's processes and threads during the measurement, or `None` if part of the
    /// measurement was not observed.
    pub fn server(&self) -> Option<ServerSeen> {
        let from_ms = self.measured_from_ms? as f64;
        let end_ms = self.end_ms;
        if self.from_ms > from_ms || self.to_ms + END_SLACK_MS < end_ms {
            return None;
        }
        let all = self.series();
        let of = |figure| {
            let metric = Metric::Process(Role::Server, figure);
            all.iter().find(|of| of.series.metric == metric)
        };
        let maximum = |figure| {
            let pieces = &of(figure)?.pieces;
            let joined = join(MetricKind::Level, pieces, end_ms as u64, 0)?;
            let values = joined.values.iter().chain(&joined.maximum);
            Some(values.copied().fold(0.0, f64::max) as u64)
        };
        let used = |figure| {
            Some(increase(
                &of(figure)?.pieces,
                from_ms,
                end_ms,
                f64::INFINITY,
            ))
        };
        let on_cpu = of(ProcessFigure::OnCpu).map_or(&[][..], |of| &of.pieces);
        let shares = self.seconds.iter().map(|second| {
            let here = |ms| moved(ms, self.offset_ms) as f64;
            let (begin, end) = (here(second.from_ms), here(second.to_ms));
            let within = (begin.max(from_ms), end.min(end_ms));
            (*second, share(on_cpu, within, (begin, end)))
        });
        let used = (used(ProcessFigure::User)?, used(ProcessFigure::System)?);
        let (threads, other_threads) = series::sum(shares, used);
        Some(ServerSeen {
            name: self.file.opened.name.clone(),
            pids: self.file.opened.pids.clone(),
            allowed_cpus: self.file.opened.allowed_cpus.clone(),
            processes: maximum(ProcessFigure::Processes)?,
            peak_rss_bytes: maximum(ProcessFigure::Rss)?,
            threads,
            other_threads,
        })
    }

    /// Returns the CPU time that the observer used during the attempt, in seconds.
    pub fn watcher_cpu_s(&self) -> f64 {
        let first = self.seconds.first().map_or(0.0, |s| s.watcher_cpu_s);
        let last = self.seconds.last().map_or(0.0, |s| s.watcher_cpu_s);
        last - first
    }
}

/// Converts a time to the clock of the attempt, in ms.
fn moved(ms: u64, offset_ms: i64) -> i64 {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    ms.saturating_add(offset_ms)
}

/// Returns the share of the CPU time in `second` that was used during the interval `within`. If no
/// CPU time was used, returns the interval's share of the second's length.
fn share(on_cpu: &[SeriesPiece], within: (f64, f64), second: (f64, f64)) -> f64 {
    if within.0 >= within.1 {
        return 0.0;
    }
    let total = increase(on_cpu, second.0, second.1, f64::INFINITY);
    let share = if total > 0.0 {
        increase(on_cpu, within.0, within.1, f64::INFINITY) / total
    } else {
        (within.1 - within.0) / (second.1 - second.0)
    };
    share.clamp(0.0, 1.0)
}

fn observations_of(
    of: &PiecewiseSeries,
    joined: JoinedSeries,
) -> impl Iterator<Item = Observation> + use<> {
    let metric = of.series.metric.clone().on_server_host();
    let source = of.source.to_owned();
    let both = [(false, joined.values), (true, joined.maximum)].into_iter();
    let kept = both.filter(|(is_peak, values)| !is_peak || !values.is_empty());
    kept.map(move |(is_peak, values)| Observation {
        metric: metric.clone(),
        is_peak,
        source: source.clone(),
        start_ms: joined.start_ms,
        step_ms: joined.step_ms,
        values,
    })
}

/// Returns the length of a series as JSON, in characters.
fn length(joined: &JoinedSeries) -> usize {
    let values = joined.values.iter().chain(&joined.maximum);
    values.map(json_length).sum()
}

/// Returns the length of a value and its comma as JSON, in characters.
pub fn json_length(value: &f64) -> usize {
    format!("{value:?},").len()
}
