//! Folds `events.jsonl` into the record. It reads the file twice: once for everything but the histograms, from which the window
//! follows, and once to add up the histograms within the window. So a long run needs no more memory than a short one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use floodmark_record::events::{Phase, RunId};
use floodmark_record::plan::FiguresOf;
use floodmark_record::result::Overall;
use floodmark_record::run::{Bytes, Client, Connections, Run, Status, Validity, Warmup, Window};
use floodmark_record::tls::TlsRun;
use floodmark_record::{Counts, Event, Record, SecondRow, TimeKind};
use floodmark_stats::steady::{Point, steady, varied, window};
use floodmark_stats::{Histogram, attempts, interval};

use crate::changing::{StepTimes, saturated};
use crate::correctness::AnsweredSoFar;
use crate::folder::EVENTS;
use crate::judge;
use crate::tally::Tally;
use crate::watched;

/// Why events could not be folded.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line other than the last is no event.
    #[error("{}:{line}: not an event of floodmark: {reason}", path.display())]
    Garbled {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The stream does not begin as a result does.
    #[error("{}: is no result of floodmark, its first event is missing", path.display())]
    NoResult {
        /// Which file.
        path: PathBuf,
    },
}

/// Reads and judges the events of a result folder.
///
/// A last line that was cut off by a crash is passed over.
///
/// # Errors
/// A file that is missing or is no event stream.
pub fn fold(folder: &Path) -> Result<Record, FoldError> {
    let path = folder.join(EVENTS);
    let mut record = None;
    let mut tallies: Vec<Tally> = Vec::new();
    each_event(&path, |event| match event {
        Event::Opened {
            tool, environment, ..
        } => record = Some(Record::new(tool, environment)),
        Event::Experiment(asked) => {
            if let Some(record) = &mut record {
                record.experiment = Some(asked);
            }
        }
        Event::Resumed(resumed) => {
            for tally in &mut tallies {
                tally.counts_not |= resumed.anew.contains(&tally.id);
            }
            if let Some(record) = &mut record {
                // What was left out before is tried again.
                record.skipped.clear();
                record.resumed.push(resumed);
            }
        }
        Event::Skipped { what } => {
            if let Some(record) = &mut record {
                record.skipped.push(what);
            }
        }
        Event::RunBegan { run, plan, unix_ms } => tallies.push(Tally::new(run, plan, unix_ms)),
        Event::Observed(observed) => {
            if let Some(tally) = tallies.last_mut() {
                tally.observed = observed;
            }
        }
        Event::Proved {
            run,
            windows,
            missing,
        } => {
            // What was measured anew after a resumption has the same name.
            if let Some(tally) = tallies.iter_mut().rfind(|tally| tally.id == run) {
                tally.perturbed = windows;
                tally.missing.extend(missing);
            }
        }
        event => {
            if let Some(tally) = tallies.last_mut() {
                match event {
                    Event::Placed(place) => tally.place = Some(place),
                    Event::Driven { by } => tally.driven_by = Some(by),
                    Event::Ready(ready) => tally.ready = Some(ready),
                    Event::ServerUsed(used) => tally.server_used = Some(used),
                    Event::StoreUsed(used) => tally.store_used = Some(used),
                    Event::Second(row) => tally.take(row),
                    Event::End(end) => tally.end = Some(end),
                    Event::ClientRan(ran) => tally.client = Some(ran),
                    Event::Logged(logged) => tally.logged = logged,
                    Event::Missing { missing } => tally.missing.extend(missing),
                    Event::RunEnded { cut_short, .. } => tally.cut_short = cut_short,
                    Event::Opened { .. }
                    | Event::Experiment(_)
                    | Event::Resumed(_)
                    | Event::Skipped { .. }
                    | Event::RunBegan { .. }
                    | Event::Connecting(_)
                    | Event::Proved { .. }
                    | Event::Began { .. }
                    | Event::Observed(_) => {}
                }
            }
        }
    })?;
    let mut record = record.ok_or(FoldError::NoResult { path: path.clone() })?;

    let shaped: Vec<Shape> = tallies.iter().map(Shape::of).collect();
    let mut times: Vec<TimesInWindow> = tallies.iter().map(|_| TimesInWindow::default()).collect();
    let mut steps: Vec<Option<StepTimes>> = tallies
        .iter()
        .map(|tally| StepTimes::of(&tally.plan))
        .collect();
    let mut run = None;
    each_event(&path, |event| match event {
        Event::RunBegan { .. } => run = Some(run.map_or(0, |i| i + 1)),
        Event::Second(row) if row.phase == Phase::Measure => {
            let Some(i) = run else { return };
            times[i].add(&row, shaped[i].holds(&row));
            if let Some(steps) = &mut steps[i] {
                steps.add(&row);
            }
        }
        _ => {}
    })?;

    let mut answered: BTreeMap<RunId, AnsweredSoFar> = BTreeMap::new();
    for (((tally, shape), times), steps) in tallies.into_iter().zip(shaped).zip(times).zip(steps) {
        if tally.counts_not {
            continue;
        }
        let server = RunId {
            attempt: 0,
            ..tally.id.clone()
        };
        let checks = answered.entry(server).or_default().check(folder, &tally);
        let steps = steps.map(|steps| steps.figures(&tally));
        let (driven_by, driven) = (tally.driven_by.clone(), tally.client.clone());
        let mut run = finish(tally, shape, &times);
        run.client.name = driven_by;
        if let Some(ran) = driven {
            crate::client::figures(&mut run, ran);
        }
        run.steps = steps.unwrap_or_default();
        run.checks = checks;
        let expected = record.experiment.as_ref();
        let expected = expected.map_or(&[][..], |asked| &asked.expected_causes[..]);
        run.validity = judge::validity(&run, run.client_cpus(record.environment.cpus), expected);
        run.verdict = floodmark_diagnose::why::verdict(&run, &record.environment);
        record.runs.push(run);
    }
    match record.experiment {
        None => record.overall = overall(&record.runs),
        Some(_) => judge::beside_each_other(&mut record),
    }
    record.judges = judge::versions();
    Ok(record)
}

/// Calls `on` for each event of a file.
pub(crate) fn each_event(path: &Path, mut on: impl FnMut(Event)) -> Result<(), FoldError> {
    let read = |source| FoldError::Read {
        path: path.to_owned(),
        source,
    };
    let mut reader = BufReader::new(File::open(path).map_err(read)?);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(read)? == 0 {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(event) => on(event),
            // Without its line feed it was being written when the process or the machine died.
            Err(_) if line.last() != Some(&b'\n') => break,
            Err(error) => {
                return Err(FoldError::Garbled {
                    path: path.to_owned(),
                    line: number,
                    reason: error.to_string(),
                });
            }
        }
    }
    Ok(())
}

/// What part of a run figures are of.
struct Shape {
    steady: floodmark_record::run::Steady,
    window: Window,
    sending_end_ns: u64,
}

impl Shape {
    fn of(tally: &Tally) -> Self {
        let sending_end_ns = tally.window_ns();
        let points: Vec<Point> = tally
            .rows
            .iter()
            .filter(|row| row.row.from_ns < sending_end_ns)
            .map(|row| Point {
                from_s: row.figures.from_s,
                to_s: row.figures.to_s.min(sending_end_ns as f64 / 1e9),
                throughput_per_s: row.figures.throughput_per_s,
                p50_us: row.figures.p50_us,
            })
            .collect();
        let changes = tally.plan.profile.is_some();
        let steady = if changes { varied() } else { steady(&points) };
        let whole = (0.0, sending_end_ns as f64 / 1e9);
        let window = match tally.plan.figures_of {
            FiguresOf::Whole if !changes => Window {
                from_s: whole.0,
                to_s: whole.1,
                why: "the whole run, as asked".to_owned(),
            },
            FiguresOf::Steady | FiguresOf::Whole => window(&steady, whole),
        };
        Shape {
            steady,
            window,
            sending_end_ns,
        }
    }

    /// Whether a second's times count: those of the window, and what was awaited after it where it is the run's end.
    fn holds(&self, row: &SecondRow) -> bool {
        let middle = (row.from_ns + row.to_ns) as f64 / 2e9;
        let to_the_end = self.window.to_s * 1e9 >= self.sending_end_ns as f64 - 1.0;
        middle >= self.window.from_s && (to_the_end || middle < self.window.to_s)
    }
}

/// Sums of the histograms within the window.
#[derive(Default)]
struct TimesInWindow {
    sums: BTreeMap<TimeKind, Histogram>,
    /// Shortest service time, within the window or not.
    least_service_ns: Option<u64>,
}

impl TimesInWindow {
    fn add(&mut self, row: &SecondRow, within: bool) {
        for (kind, text) in &row.histograms {
            if !within && *kind != TimeKind::Service {
                continue;
            }
            let Ok(histogram) = Histogram::decode(text) else {
                continue;
            };
            if *kind == TimeKind::Service {
                let least = self.least_service_ns.into_iter().chain(histogram.min());
                self.least_service_ns = least.min();
            }
            if within {
                self.sums.entry(*kind).or_default().merge(&histogram);
            }
        }
    }

    fn of(&self, kind: TimeKind) -> Histogram {
        self.sums.get(&kind).cloned().unwrap_or_default()
    }
}

fn finish(mut tally: Tally, shape: Shape, times: &TimesInWindow) -> Run {
    let rows = tally.rows.iter_mut().map(|row| &mut row.figures);
    watched::fill(rows, &tally.observed);
    let none = Histogram::new();
    let summary = |kind| Histogram::summarise(&times.of(kind), &none);
    let counts = tally.counts();
    let ended = tally.ended();
    let length_s = shape.window.to_s - shape.window.from_s;
    let in_window = |of: &dyn Fn(&SecondRow) -> u64| -> Option<f64> {
        let sum: u64 = tally
            .rows
            .iter()
            .filter(|row| shape.holds(&row.row))
            .map(|row| of(&row.row))
            .sum();
        (length_s > 0.0).then(|| sum as f64 / length_s)
    };
    let groups = crate::groups::groups(&tally, &in_window);
    let seconds: Vec<Point> = tally
        .rows
        .iter()
        .filter(|row| shape.holds(&row.row) && row.row.to_ns <= shape.sending_end_ns)
        .map(|row| Point {
            from_s: row.figures.from_s,
            to_s: row.figures.to_s,
            throughput_per_s: row.figures.throughput_per_s,
            p50_us: row.figures.p50_us,
        })
        .collect();
    let end = tally.end.as_ref();
    Run {
        saturation: saturated(&tally),
        throughput_per_s: in_window(&|row| row.ok_in_window),
        goodput_per_s: in_window(&|row| row.good_in_window),
        // Of a rate that is to change there is no mean that seconds scatter around.
        throughput_interval: (tally.plan.profile.is_none())
            .then(|| interval::within_run(&seconds, &shape.window))
            .flatten(),
        response_time_us: Histogram::summarise(
            &times.of(TimeKind::Response),
            &times.of(TimeKind::Censored),
        ),
        service_time_us: summary(TimeKind::Service),
        least_service_time_us: times.least_service_ns.map(|ns| ns as f64 / 1e3),
        blocked_us: summary(TimeKind::Blocked),
        lateness_us: summary(TimeKind::Lateness),
        connect_time_us: summary(TimeKind::Connect),
        handshake_time_us: summary(TimeKind::Handshake),
        first_byte_us: summary(TimeKind::FirstByte),
        error_time_us: summary(TimeKind::Error),
        groups,
        warmup: (tally.plan.warmup_s > 0.0).then(|| warmup(&tally)),
        bytes: Bytes {
            sent: tally.rows.iter().map(|row| row.row.bytes_sent).sum(),
            received: tally.rows.iter().map(|row| row.row.bytes_received).sum(),
        },
        connections: Connections {
            opened: end.map_or_else(
                || tally.rows.iter().map(|r| r.row.connects).sum(),
                |end| end.connects,
            ),
            peak: end.map(|end| end.peak_connections),
            ports_per_source: tally.plan.ports_per_source,
            addresses: end.map(|end| end.addresses.clone()).unwrap_or_default(),
            fd_limit: tally.ready.as_ref().and_then(|ready| ready.fd_limit),
            fd_limit_before: tally.ready.as_ref().and_then(|ready| ready.fd_limit_before),
            held: end.and_then(|end| end.held.clone()),
            unawaited: end.map(|end| end.unawaited.clone()).unwrap_or_default(),
        },
        tls: tls(&tally),
        client: client(&tally, &counts),
        server: watched::server(&tally.observed, counts.sent),
        store: watched::store(&tally.observed, counts.sent),
        watcher: tally.observed.watcher,
        measured_from_ms: tally.observed.measured_from_ms,
        elsewhere: tally.observed.elsewhere,
        errors: end.map(|end| end.errors.clone()).unwrap_or_default(),
        longest_stall_ns: end.map(|end| end.longest_stall_ns),
        server_gone_since_s: end
            .and_then(|end| end.server_gone_since_ns)
            .map(|ns| ns as f64 / 1e9),
        sending_s: shape.sending_end_ns as f64 / 1e9,
        system: tally.id.system,
        workload: tally.id.workload,
        attempt: tally.id.attempt,
        process: tally.id.process,
        setting: tally.id.setting,
        runtime: tally.logged.runtime,
        trial: tally.id.trial,
        started_unix_ms: tally.unix_ms,
        plan: tally.plan,
        place: tally.place,
        ended,
        window: shape.window,
        requests: counts,
        series: tally.rows.into_iter().map(|row| row.figures).collect(),
        observations: tally.observed.observations,
        missing: tally.missing,
        log_errors: tally.logged.errors,
        steady: shape.steady,
        steps: Vec::new(),
        validity: Validity {
            status: Status::Valid,
            reasons: Vec::new(),
            notes: Vec::new(),
        },
        checks: Vec::new(),
        perturbed: tally.perturbed,
        verdict: None,
    }
}

fn warmup(tally: &Tally) -> Warmup {
    let counted = tally
        .end
        .as_ref()
        .and_then(|end| Some((end.warmup_ns, end.warmup_counts.clone()?)));
    let (ns, requests) = counted.unwrap_or_else(|| (tally.warmup_to_ns, tally.warmup.clone()));
    Warmup {
        duration_s: ns as f64 / 1e9,
        requests,
    }
}

fn client(tally: &Tally, counts: &Counts) -> Client {
    let rows = || {
        tally.rows.iter().fold((0.0, 0.0), |(user, system), row| {
            (user + row.row.user_s, system + row.row.system_s)
        })
    };
    let end = tally.end.as_ref();
    let (user_s, system_s) = end.map_or_else(rows, |end| (end.user_s, end.system_s));
    let cpu_s = user_s + system_s;
    Client {
        cpu_s,
        user_s,
        system_s,
        cpu_us_per_request: (counts.sent > 0).then(|| cpu_s * 1e6 / counts.sent as f64),
        name: None,
        tool: None,
        peak_rss_bytes: end.and_then(|end| end.peak_rss_bytes),
        threads: end.map(|end| end.threads.clone()).unwrap_or_default(),
    }
}

fn tls(tally: &Tally) -> Option<TlsRun> {
    let end = tally.end.as_ref()?;
    let used = end.tls.clone()?;
    let cpu_s = end.user_s + end.system_s;
    Some(TlsRun {
        handshake_cpu_share: (cpu_s > 0.0).then(|| used.handshake_cpu_s / cpu_s),
        used,
    })
}

fn overall(runs: &[Run]) -> Option<Overall> {
    let per_s: Vec<f64> = runs.iter().filter_map(|run| run.throughput_per_s).collect();
    if per_s.len() < 2 {
        return None;
    }
    Some(Overall {
        throughput_per_s: per_s.iter().sum::<f64>() / per_s.len() as f64,
        throughput_interval: interval::over_attempts(&per_s),
        attempts: per_s.len() as u32,
        notes: attempts::notes(&per_s),
    })
}
