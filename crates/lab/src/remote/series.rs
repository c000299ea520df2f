//! Joins remote series whose values are spread over several lines. The joined series use the run's
//! clock. Also sums the CPU time that the server's threads used during a measurement.

use std::collections::BTreeMap;

use floodmark_record::metric::MetricKind;
use floodmark_record::watch::{ObservedSecond, OtherThreads, ServerThread};

/// Values from one line, on the run's clock.
#[derive(Debug, Clone, Copy)]
pub struct SeriesPiece<'a> {
    /// Start of the first step, in ms. It is negative if the step starts before the run's own
    /// series.
    pub start_ms: i64,
    /// Length of each step, in ms.
    pub step_ms: u64,
    /// The values.
    pub values: &'a [f64],
}

impl SeriesPiece<'_> {
    fn end_ms(&self) -> i64 {
        let length = self.step_ms.saturating_mul(self.values.len() as u64);
        self.start_ms
            .saturating_add(i64::try_from(length).unwrap_or(i64::MAX))
    }

    /// Returns the start and end of each step, in ms, and the step's value.
    fn steps(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        let (start, step) = (self.start_ms as f64, self.step_ms as f64);
        (0..).zip(self.values).map(move |(i, value)| {
            let begin = start + f64::from(i) * step;
            (begin, begin + step, *value)
        })
    }
}

/// A series in which all steps have the same length.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JoinedSeries {
    /// Start of the first step, in ms.
    pub start_ms: u64,
    /// Length of each step, in ms.
    pub step_ms: u64,
    /// The values.
    pub values: Vec<f64>,
    /// Largest sample in each step. Increases are converted to rates per second. The list is empty
    /// if each value is a single sample.
    pub maximum: Vec<f64>,
}

/// Joins the part of a series between 0 and `end_ms`. Each joined step is at least as long as
/// `min_step_ms` and the longest step in `pieces`.
///
/// The `pieces` follow each other without gaps. If a joined step covers several samples, their
/// increases are summed and other values are averaged. A sample that overlaps two steps counts in
/// proportion to each overlap.
///
/// A step that starts before 0 is dropped. Its increase is added to the first step, because
/// connections open as soon as a run starts. A level that was sampled after the end is dropped,
/// unless it is the only level.
pub fn join(
    kind: MetricKind,
    pieces: &[SeriesPiece],
    end_ms: u64,
    min_step_ms: u64,
) -> Option<JoinedSeries> {
    let end = i64::try_from(end_ms).unwrap_or(i64::MAX);
    let within = |piece: &&SeriesPiece| piece.end_ms() > 0 && piece.start_ms < end;
    let pieces: Vec<&SeriesPiece> = pieces.iter().filter(within).collect();
    let own_ms = pieces.iter().map(|piece| piece.step_ms).max()?;
    let step_ms = own_ms.max(min_step_ms);
    let steps = pieces.iter().flat_map(|piece| piece.steps());
    let mut steps: Vec<_> = steps
        .filter(|(begin, end, _)| *end > 0.0 && *begin < end_ms as f64)
        .collect();
    // A level is sampled at the end of its step. A short run may end before the first sample.
    let sampled = |(_, end, _): &(f64, f64, f64)| *end <= end_ms as f64;
    if kind == MetricKind::Level && steps.iter().any(|step| step.0 >= 0.0 && sampled(step)) {
        steps.retain(sampled);
    }
    if steps.first()?.0 < 0.0 {
        let (.., increase) = steps.remove(0);
        if kind == MetricKind::Counter {
            steps.first_mut()?.2 += increase;
        }
    }
    let start = steps.first()?.0;
    let mut joined = JoinedSeries {
        start_ms: start as u64,
        step_ms,
        ..JoinedSeries::default()
    };
    if pieces.iter().all(|piece| piece.step_ms == step_ms) {
        joined.values = steps.iter().map(|(.., value)| rounded(*value)).collect();
        return Some(joined);
    }
    let step = step_ms as f64;
    let last = steps.last().map_or(start, |(_, end, _)| *end);
    let bins = ((last - start) / step).ceil() as usize;
    let (mut sums, mut parts) = (vec![0.0; bins], vec![0.0; bins]);
    joined.maximum = vec![f64::NEG_INFINITY; bins];
    for (begin, end, value) in steps {
        let reading = match kind {
            MetricKind::Counter => value / (end - begin) * 1e3,
            MetricKind::Mean | MetricKind::Level => value,
        };
        let first = ((begin - start) / step) as usize;
        let bins = first..bins.min(((end - start) / step).ceil() as usize);
        for bin in bins {
            let from = start + bin as f64 * step;
            let part = (end.min(from + step) - begin.max(from)) / (end - begin);
            if part > 0.0 {
                sums[bin] += value * part;
                parts[bin] += part;
                joined.maximum[bin] = joined.maximum[bin].max(rounded(reading));
            }
        }
    }
    let each = |(sum, part): (f64, f64)| match kind {
        MetricKind::Counter => rounded(sum),
        MetricKind::Mean | MetricKind::Level => rounded(sum / part),
    };
    joined.values = sums.into_iter().zip(parts).map(each).collect();
    Some(joined)
}

/// Returns the increase of a counter between two times. A step that lies partly outside these times
/// counts in proportion. Sampling ended at `end_ms`, possibly within the last step.
pub fn increase(pieces: &[SeriesPiece], from_ms: f64, to_ms: f64, end_ms: f64) -> f64 {
    let steps = pieces.iter().flat_map(SeriesPiece::steps);
    let parts = steps.map(|(begin, end, value)| {
        let end = end.min(end_ms).max(begin + 1.0);
        let part = (to_ms.min(end) - from_ms.max(begin)) / (end - begin);
        value * part.clamp(0.0, 1.0)
    });
    parts.sum()
}

/// Rounds to six decimal places, like the values of all series.
pub fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Maximum number of threads listed by name in a record.
const NAMED: usize = 16;

/// Sums the CPU time of threads over `seconds`. Each second is weighted by its share. `used` is the
/// user and system CPU time of all processes, in seconds. CPU time that no named thread used is
/// attributed to the other threads.
pub fn sum<'a>(
    seconds: impl IntoIterator<Item = (&'a ObservedSecond, f64)>,
    used: (f64, f64),
) -> (Vec<ServerThread>, Option<OtherThreads>) {
    let mut threads: BTreeMap<(u32, u32), ServerThread> = BTreeMap::new();
    let (mut max_threads, mut delay_s) = (0, 0.0);
    for (second, share) in seconds {
        let mut seen = second.threads.len() as u64;
        for thread in &second.threads {
            let sum = threads.entry((thread.pid, thread.tid)).or_default();
            sum.pid = thread.pid;
            sum.tid = thread.tid;
            sum.name.clone_from(&thread.name);
            sum.user_s += share * thread.user_s;
            sum.system_s += share * thread.system_s;
            sum.on_cpu_s += share * thread.on_cpu_s;
            sum.run_delay_s += share * thread.run_delay_s;
        }
        if let Some(others) = &second.other_threads {
            seen += others.count;
            delay_s += share * others.run_delay_s;
        }
        max_threads = max_threads.max(seen);
    }
    let all = max_threads.max(threads.len() as u64);
    let mut named: Vec<ServerThread> = threads.into_values().collect();
    named.sort_by(|a, b| b.on_cpu_s.total_cmp(&a.on_cpu_s));
    let rest = named.split_off(named.len().min(NAMED));
    delay_s += rest.iter().map(|thread| thread.run_delay_s).sum::<f64>();
    for thread in &mut named {
        for figure in [
            &mut thread.user_s,
            &mut thread.system_s,
            &mut thread.on_cpu_s,
            &mut thread.run_delay_s,
        ] {
            *figure = rounded(*figure);
        }
    }
    let left = |all: f64, of: fn(&ServerThread) -> f64| {
        rounded((all - named.iter().map(of).sum::<f64>()).max(0.0))
    };
    let others = OtherThreads {
        count: all - named.len() as u64,
        user_s: left(used.0, |thread| thread.user_s),
        system_s: left(used.1, |thread| thread.system_s),
        run_delay_s: rounded(delay_s),
    };
    let any = others.count > 0 || others.user_s + others.system_s > 0.015;
    (named, any.then_some(others))
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::watch::ClockReading;

    fn piece(start_ms: i64, step_ms: u64, values: &[f64]) -> SeriesPiece<'_> {
        SeriesPiece {
            start_ms,
            step_ms,
            values,
        }
    }

    #[test]
    fn joins_and_cuts_lines_of_one_step() {
        let pieces = [
            piece(-75, 50, &[1.0, 2.0, 3.0]),
            piece(75, 50, &[4.0, 5.0]),
            piece(175, 50, &[6.0]),
        ];
        let joined = join(MetricKind::Counter, &pieces, 170, 0).unwrap();
        assert_eq!((joined.start_ms, joined.step_ms), (25, 50));
        // The second step starts before 0 and ends after 0.
        assert_eq!(joined.values, [5.0, 4.0, 5.0]);
        let level = join(MetricKind::Level, &pieces, 170, 0).unwrap();
        // The last level was sampled at 175 ms.
        assert_eq!((level.start_ms, level.values), (25, vec![3.0, 4.0]));
        assert!(joined.maximum.is_empty());
        // The run ends before the first sample, so the next sample counts.
        let level = join(MetricKind::Level, &pieces, 30, 0).unwrap();
        assert_eq!((level.start_ms, level.values), (25, vec![3.0]));
        assert_eq!(join(MetricKind::Counter, &pieces, 10, 0), None);
        assert_eq!(join(MetricKind::Counter, &[], 10, 0), None);
    }

    #[test]
    fn keeps_sums_and_means_in_longer_steps() {
        let pieces = [piece(0, 50, &[1.0, 2.0, 3.0]), piece(150, 100, &[8.0, 2.0])];
        for (kind, values, maximum) in [
            // The second and third joined steps each get half of the step from 150 to 250 ms.
            (
                MetricKind::Counter,
                [3.0, 7.0, 5.0, 1.0],
                [40.0, 80.0, 80.0, 20.0],
            ),
            (
                MetricKind::Level,
                [1.5, 14.0 / 3.0, 5.0, 2.0],
                [2.0, 8.0, 8.0, 2.0],
            ),
        ] {
            let joined = join(kind, &pieces, 1_000, 0).unwrap();
            assert_eq!((joined.start_ms, joined.step_ms), (0, 100), "{kind:?}");
            let expected: Vec<f64> = values.into_iter().map(rounded).collect();
            assert_eq!(joined.values, expected, "{kind:?}");
            assert_eq!(joined.maximum, maximum, "{kind:?}");
        }
        assert_eq!(
            increase(&pieces, 25.0, 175.0, f64::INFINITY),
            0.5 + 2.0 + 3.0 + 2.0
        );
        let longer = join(MetricKind::Counter, &pieces, 1_000, 200).unwrap();
        assert_eq!((longer.step_ms, longer.values), (200, vec![10.0, 6.0]));
    }

    fn thread(tid: u32, on_cpu_s: f64) -> ServerThread {
        ServerThread {
            pid: 1,
            tid,
            name: format!("t{tid}"),
            user_s: on_cpu_s,
            on_cpu_s,
            run_delay_s: 0.1,
            ..ServerThread::default()
        }
    }

    fn second(threads: Vec<ServerThread>, others: u64) -> ObservedSecond {
        ObservedSecond {
            from_ms: 0,
            to_ms: 1_000,
            clocks: ClockReading {
                at_ms: 0.0,
                boot_id: None,
                monotonic_ns: 0,
                unix_ns: 0,
                synchronised: false,
                max_error_us: None,
            },
            groups: Vec::new(),
            threads,
            other_threads: Some(OtherThreads {
                count: others,
                run_delay_s: 0.3,
                ..OtherThreads::default()
            }),
            watcher_cpu_s: 0.0,
            missing: Vec::new(),
        }
    }

    #[test]
    fn names_the_busiest_threads_and_sums_the_others() {
        let first = second((1..=20).map(|tid| thread(tid, 0.01)).collect(), 5);
        let then = second(vec![thread(20, 0.5), thread(99, 0.2)], 5);
        let (named, others) = sum([(&first, 0.5), (&then, 1.0)], (1.0, 0.25));
        let others = others.unwrap();
        assert_eq!(named.len(), NAMED);
        assert_eq!((named[0].tid, named[0].on_cpu_s), (20, 0.505));
        assert_eq!((named[1].tid, named[1].name.as_str()), (99, "t99"));
        // The first second has 25 threads: 20 named and 5 others.
        assert_eq!(others.count, 25 - 16);
        let of_named: f64 = named.iter().map(|thread| thread.user_s).sum();
        assert!((others.user_s + of_named - 1.0).abs() < 1e-5, "{others:?}");
        assert_eq!(others.system_s, 0.25);
        // The sum includes half of the run delay of the five threads that are no longer named. It
        // also includes the run delay of the other threads in both seconds.
        assert!(
            (others.run_delay_s - (5.0 * 0.05 + 0.45)).abs() < 1e-5,
            "{others:?}"
        );
    }

    #[test]
    fn omits_other_threads_if_all_are_named() {
        let mut only = second(vec![thread(1, 0.4)], 0);
        only.other_threads = None;
        let (named, others) = sum([(&only, 1.0)], (0.405, 0.0));
        assert_eq!((named.len(), others), (1, None));
    }
}
