//! Folds `events.jsonl` into the record. Also folds the events of a single run while its load is
//! being sent.
//!
//! The file is read twice, so that memory use does not grow with the run's length. The first pass
//! reads everything except histograms and determines the windows. The second pass adds up the
//! histograms in each window.

use std::collections::BTreeMap;
use std::path::Path;

use floodmark_diagnose::validity::wide_interval;
use floodmark_diagnose::{comparing, gate, tuning};
use floodmark_plan::FileError;
use floodmark_record::events::{Phase, RunId};
use floodmark_record::metric::Role;
use floodmark_record::plan::Plan;
use floodmark_record::reason::{Disturbance, Reason, Worded};
use floodmark_record::result::Overall;
use floodmark_record::run::{
    ClientUsage, Connections, HttpBytes, Run, Status, Validity, WarmupRun,
};
use floodmark_record::times::BlockedTimes;
use floodmark_record::tls::TlsRun;
use floodmark_record::{Counts, Event, Record, SecondRow, TimeKind};
use floodmark_stats::{attempts, estimate};

use crate::capacity::CapacityEvents;
use crate::directory::EVENTS;
use crate::response_checks::ResponsesSoFar;
use crate::result_events::{ResultEvents, each_event};
use crate::run_events::{MeasuredSecond, RunEvents, fill_from_client};
use crate::run_figures::{
    FigureWindow, StepTimes, WindowTimes, cpu_too_short, cpu_used, fill_cpus, groups, saturation_of,
};
use crate::series::SeriesJoiner;

/// Environment variable that sets the validity in tests. Without it, other programs on the host
/// could invalidate a test's runs.
const TEST_VALIDITY: &str = "FLOODMARK_TEST_VALIDITY";

/// Names of the judges whose versions the record lists.
const JUDGES: [&str; 12] = [
    "steady",
    "saturation",
    "intervals",
    "validity",
    "verdict",
    "checks",
    "comparisons",
    "sweeps",
    "claims",
    "crash",
    "tuning",
    "gate",
];

/// Folds the events of a result directory and evaluates the runs. Ignores an incomplete last line.
///
/// # Errors
/// The file is missing or is not an event stream.
pub fn fold(directory: &Path) -> Result<Record, FileError> {
    fold_with(directory, &[])
}

/// Folds the events of a result directory and the events in `unsaved`.
///
/// # Errors
/// The same as for [`fold`].
pub(crate) fn fold_with(directory: &Path, unsaved: &[Event]) -> Result<Record, FileError> {
    let path = directory.join(EVENTS);
    let events = ResultEvents::read(&path, unsaved)?;
    let (tool, environment) = events.opened.ok_or_else(|| {
        let what = "not a floodmark result: the first event is missing";
        FileError::in_file(&path, what)
    })?;
    let mut record = Record {
        experiment: events.experiment,
        resumed: events.resumed,
        skipped: events.skipped,
        failures: events.failures,
        ..Record::new(tool, environment)
    };

    let mut folded: Vec<FoldedRun> = events.runs.iter().map(FoldedRun::of).collect();
    let mut begun = 0;
    each_event(&path, unsaved, |event| match event {
        Event::RunBegan { .. } => begun += 1,
        Event::Second(row) if begun > 0 => {
            folded[begun - 1].add(&row);
        }
        _ => {}
    })?;

    let mut responses: BTreeMap<RunId, ResponsesSoFar> = BTreeMap::new();
    for (events, folded) in events.runs.into_iter().zip(folded) {
        if events.left_out {
            continue;
        }
        let process = RunId {
            attempt: 0,
            ..events.id.clone()
        };
        let checks = responses
            .entry(process)
            .or_default()
            .check(directory, &events);
        let FoldedRun {
            window,
            times,
            steps,
            series,
        } = folded;
        let steps = steps.map(|steps| steps.figures(&events));
        let external = events.client.clone();
        let last_response_ns = events.end.as_ref().and_then(|end| end.last_response_ns);
        let mut run = fold_run(events, window, &times, series);
        let last_response_s = last_response_ns.map(|ns| ns as f64 / 1e9);
        run.server_gone_since_s = floodmark_diagnose::server_gone_since_s(&run, last_response_s);
        if let Some(ran) = external {
            fill_from_client(&mut run, ran);
        }
        run.steps = steps.unwrap_or_default();
        run.checks = checks;
        record.runs.push(run);
    }
    judge_runs(&mut record);
    let mut capacities = events.capacity.iter().map(CapacityEvents::result);
    match record.experiment {
        None => record.capacity = capacities.next(),
        Some(_) => record.capacities = capacities.collect(),
    }
    let asked = record.experiment.clone().unwrap_or_default();
    if let Some(tuning) = &asked.tuning {
        // A tuning run has its own comparison of settings.
        record.tuning = Some(tuning::judge(&record, tuning, events.tuning).0);
    } else if let Some(rules) = &asked.gate {
        // A gate adds pairs until it reaches a decision, so ordinary intervals would be too narrow.
        record.gate = Some(gate::judge(&record, rules, &events.gate));
    } else {
        compare(&mut record);
    }
    if let Some(settings) = &asked.crash {
        let trials = events.crash.into_iter();
        record.crash = trials.map(|trial| trial.result(settings)).collect();
    }
    let version = env!("CARGO_PKG_VERSION");
    let judges = JUDGES.map(|judge| (judge.to_owned(), version.to_owned()));
    record.judges = judges.into();
    Ok(record)
}

/// Judges the runs of a saved record again, and compares the trials. Keeps the judgments that also
/// depend on events: capacities, tuning runs, gates, crash rounds and checks.
pub fn judge_again(record: &mut Record) {
    judge_runs(record);
    if record.tuning.is_none() && record.gate.is_none() {
        compare(record);
    }
}

/// Sets the verdict and the validity of each run.
fn judge_runs(record: &mut Record) {
    let expected = record
        .experiment
        .as_ref()
        .map_or(&[][..], |asked| &asked.expected_causes);
    for run in &mut record.runs {
        run.verdict = floodmark_diagnose::why::verdict(run, &record.environment);
        run.validity = validity(run, run.client_cpus(record.environment.cpus), expected);
        if wide_interval(run).is_some()
            && let Some(verdict) = &mut run.verdict
        {
            verdict.gain = None;
        }
    }
}

/// Compares the attempts of a load, or the trials of an experiment.
fn compare(record: &mut Record) {
    if record.experiment.is_some() {
        record.trial_capacities = comparing::trial_capacities(record);
        record.comparisons = comparing::comparisons(record);
        record.sweeps = comparing::sweeps(record);
        record.claims = comparing::claims(record);
    } else if record.capacity.is_none() {
        record.overall = overall(&record.runs);
    }
}

/// Judges a run. Its agents have already been judged.
fn validity(run: &Run, cpus: u32, expected: &[String]) -> Validity {
    let judged = floodmark_diagnose::validity(run, cpus, expected);
    if run.client.name.is_some() || !run.agents.is_empty() {
        judged
    } else {
        test_validity(judged)
    }
}

/// In debug builds, replaces the validity of a floodmark client with the one that [`TEST_VALIDITY`]
/// sets.
pub(crate) fn test_validity(judged: Validity) -> Validity {
    if !cfg!(debug_assertions) {
        return judged;
    }
    let bound = || Worded::Text(format!("{TEST_VALIDITY} is bound"));
    let unsteady = || {
        Worded::Fact(Reason::Unsteady {
            half_width: 0.2,
            disturbance: Disturbance::Server,
        })
    };
    let (status, reasons) = match std::env::var(TEST_VALIDITY).as_deref() {
        Ok("valid") => (Status::Valid, Vec::new()),
        Ok("bound") => (Status::Bound, vec![bound()]),
        Ok("unsteady") => (Status::Unsteady, vec![unsteady()]),
        Ok("unsteady-bound") => (Status::Unsteady, vec![unsteady(), bound()]),
        _ => return judged,
    };
    Validity {
        status,
        unsteady_bound: status == Status::Unsteady && reasons.len() > 1,
        reasons,
        ..judged
    }
}

/// What the second pass over the events collects for a run.
struct FoldedRun {
    window: FigureWindow,
    times: WindowTimes,
    steps: Option<StepTimes>,
    series: SeriesJoiner,
}

impl FoldedRun {
    fn of(run: &RunEvents) -> Self {
        let window = FigureWindow::of(run);
        let measured = run.rows.len() - run.rows_of_parts;
        let rows = run.rows[..measured].iter().map(|row| &row.row);
        FoldedRun {
            times: WindowTimes::default(),
            steps: StepTimes::of(&run.plan),
            series: SeriesJoiner::of(&run.plan, rows, window.sending_end_ns),
            window,
        }
    }

    /// Adds a row with its histograms.
    fn add(&mut self, row: &SecondRow) {
        let is_measured = row.phase == Phase::Measure;
        self.times
            .add(row, is_measured && self.window.contains(row));
        if is_measured {
            self.steps.iter_mut().for_each(|steps| steps.add(row));
            self.series.add(row);
        }
    }
}

/// Removes the fault of a trial's client if [`TEST_VALIDITY`] is set in debug builds.
pub(crate) fn test_fault(fault: Option<Reason>) -> Option<Reason> {
    let is_test = cfg!(debug_assertions) && std::env::var_os(TEST_VALIDITY).is_some();
    fault.filter(|_| !is_test)
}

/// Computes the figures of a run, but does not judge the run.
pub(crate) fn fold_run(
    mut run: RunEvents,
    window: FigureWindow,
    times: &WindowTimes,
    series: SeriesJoiner,
) -> Run {
    if let Some(ms) = cpu_too_short(&run.observed) {
        let what = format!("CPU use of the server: the run was shorter than one sample ({ms} ms)");
        run.missing.push(what);
    }
    let counts = run.counts();
    let (end, sums) = (run.end.as_ref(), &times.sums);
    let mean = |of: fn(&SecondRow) -> u64| window.per_second(&run, of);
    let mut series = series.series(&run.rows, window.sending_end_ns);
    fill_cpus(&mut series, &run.observed);
    Run {
        saturation: saturation_of(&run),
        throughput_per_s: mean(|row| row.ok_in_window),
        goodput_per_s: mean(|row| row.good_in_window),
        // If the rate changes, the per-second throughput does not vary around a single mean.
        throughput_interval: (!run.plan.rate_changes())
            .then(|| estimate::within_run(&window.points(&run), &window.window))
            .flatten(),
        response_time_us: sums.summary(TimeKind::Response),
        service_time_us: sums.summary(TimeKind::Service),
        least_service_time_us: times.min_service_us(),
        least_connect_time_us: times.min_connect_us(),
        blocked_us: sums.summary(TimeKind::Blocked),
        blocked_by: BlockedTimes {
            connecting_us: sums.summary(TimeKind::BlockedConnecting),
            own_limit_us: sums.summary(TimeKind::BlockedOwnLimit),
            server_limit_us: sums.summary(TimeKind::BlockedServerLimit),
            retried_us: sums.summary(TimeKind::BlockedRetried),
        },
        lateness_us: sums.summary(TimeKind::Lateness),
        connect_time_us: sums.summary(TimeKind::Connect),
        handshake_time_us: sums.summary(TimeKind::Handshake),
        first_byte_us: sums.summary(TimeKind::FirstByte),
        error_time_us: sums.summary(TimeKind::Error),
        window_us: sums.summary(TimeKind::Window),
        ping_us: sums.summary(TimeKind::Ping),
        groups: groups(&run, &window),
        warmup: (!run.plan.warmup.is_zero()).then(|| warmup(&run)),
        bytes: HttpBytes {
            sent: run.rows.iter().map(|row| row.row.bytes_sent).sum(),
            received: run.rows.iter().map(|row| row.row.bytes_received).sum(),
        },
        connections: connections(&run),
        tls: tls(&run),
        http2: end.and_then(|end| end.http2.clone()),
        client: client(&run, &counts),
        server: cpu_used(&run.observed, Role::Server, counts.sent),
        store: cpu_used(&run.observed, Role::Store, counts.sent),
        watcher: run.observed.watcher,
        measured_from_ms: run.observed.measured_from_ms,
        errors: end.map_or_else(BTreeMap::new, |end| end.errors.clone()),
        not_ok_responses: end.map_or_else(Vec::new, |end| end.not_ok_responses.clone()),
        request_log: end.and_then(|end| end.request_log.clone()),
        longest_stall_ns: end.map(|end| end.longest_stall_ns),
        server_gone_since_s: None,
        silence: run.silences.until(window.sending_end_ns),
        sending_s: window.sending_end_ns as f64 / 1e9,
        ended: run.end_reason(),
        remote: run.observed.remote,
        other_processes: run.observed.other_processes,
        system: run.id.system,
        workload: run.id.workload,
        attempt: run.id.attempt,
        process: run.id.process,
        setting: run.id.setting,
        runtime: run.logged.runtime,
        trial: run.id.trial,
        started_unix_ms: run.unix_ms,
        plan: run.plan,
        place: run.place,
        agents: run.agents,
        window: window.window,
        requests: counts,
        series,
        fine_throughput: run.fine.finish(),
        observations: run.observed.observations,
        missing: run.missing,
        log_errors: run.logged.errors,
        steady: window.steady,
        steps: Vec::new(),
        validity: Validity::default(),
        checks: Vec::new(),
        perturbed: run.perturbed,
        verdict: None,
    }
}

fn warmup(run: &RunEvents) -> WarmupRun {
    let end = run.end.as_ref();
    let counted = end.and_then(|end| Some((end.warmup_ns, end.warmup_counts.clone()?)));
    let (ns, requests) = counted.unwrap_or_else(|| (run.warmup_to_ns, run.warmup.clone()));
    WarmupRun {
        duration_s: ns as f64 / 1e9,
        requests,
    }
}

fn connections(run: &RunEvents) -> Connections {
    let (end, ready) = (run.end.as_ref(), run.ready.as_ref());
    let opened = || run.rows.iter().map(|row| row.row.connects).sum();
    Connections {
        opened: end.map_or_else(opened, |end| end.connects),
        peak: end.map(|end| end.peak_connections),
        silent: end.map_or(0, |end| end.silent_connections),
        ports_per_source: run.plan.ports_per_source,
        addresses: end.map(|end| end.addresses.clone()).unwrap_or_default(),
        fd_limit: ready.and_then(|ready| ready.fd_limit),
        fd_limit_before: ready.and_then(|ready| ready.fd_limit_before),
        held: end.and_then(|end| end.held.clone()),
        unawaited: end.map(|end| end.unawaited.clone()).unwrap_or_default(),
    }
}

fn client(run: &RunEvents, counts: &Counts) -> ClientUsage {
    let end = run.end.as_ref();
    let (user_s, system_s) = match end {
        Some(end) => (end.user_s, end.system_s),
        None => run.rows.iter().fold((0.0, 0.0), |(user, system), row| {
            (user + row.row.user_s, system + row.row.system_s)
        }),
    };
    let cpu_s = user_s + system_s;
    ClientUsage {
        cpu_s,
        user_s,
        system_s,
        cpu_us_per_request: (counts.sent > 0).then(|| cpu_s * 1e6 / counts.sent as f64),
        name: run.driven_by.clone(),
        tool: None,
        peak_rss_bytes: end.and_then(|end| end.peak_rss_bytes),
        threads: end.map(|end| end.threads.clone()).unwrap_or_default(),
    }
}

fn tls(run: &RunEvents) -> Option<TlsRun> {
    let end = run.end.as_ref()?;
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
        throughput_interval: estimate::over_attempts(&per_s),
        attempts: per_s.len() as u32,
        notes: attempts::notes(&per_s),
    })
}

/// A run in progress. It does not keep individual rows, so its memory use does not grow with the
/// run's length.
pub struct JoinedRun {
    pub(crate) events: RunEvents,
    times: WindowTimes,
}

impl JoinedRun {
    /// Returns a run that has just started.
    pub fn new(id: RunId, plan: Plan) -> Self {
        JoinedRun {
            events: RunEvents::new(id, plan, 0),
            times: WindowTimes::default(),
        }
    }

    /// Adds an event of the run.
    pub fn take(&mut self, event: &Event) {
        let Event::Second(row) = event else {
            return self.events.take(event.clone());
        };
        self.times.add(row, row.phase == Phase::Measure);
        self.events.take(Event::Second(SecondRow {
            histograms: BTreeMap::new(),
            ..row.clone()
        }));
        self.join_rows();
    }

    /// Joins all measured rows into one row.
    fn join_rows(&mut self) {
        let rows = std::mem::take(&mut self.events.rows).into_iter();
        self.events.rows = rows.reduce(MeasuredSecond::join).into_iter().collect();
    }

    /// Returns the run. Its figures cover the whole measurement, and it has not been judged.
    pub fn finish(mut self) -> Run {
        self.events.complete();
        self.join_rows();
        let window = FigureWindow::whole(&self.events);
        fold_run(self.events, window, &self.times, SeriesJoiner::default())
    }

    /// Returns the part of the run that starts at `from_ns`. The caller must have added only rows
    /// from this part. The request counts cover only this part, but the errors by name, the groups
    /// and the CPU time cover the whole run.
    pub fn finish_from(mut self, from_ns: u64) -> Run {
        self.events.complete();
        self.join_rows();
        let mut window = FigureWindow::whole(&self.events);
        window.window.from_s = from_ns as f64 / 1e9;
        let last = self.events.rows.last();
        let mut requests = last.map_or_else(Counts::default, |row| row.row.counts.clone());
        requests.complete();
        let mut run = fold_run(self.events, window, &self.times, SeriesJoiner::default());
        run.requests = requests;
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::events::{GroupRow, PartRow};
    use floodmark_stats::Histogram;
    use std::net::SocketAddr;

    /// Returns a second in which one request took `service_ns`.
    fn second(phase: Phase, service_ns: u64) -> Event {
        let counts = Counts {
            intended: 1,
            sent: 1,
            ok: 1,
            ..Counts::default()
        };
        let part = PartRow {
            phase,
            from_ns: 0,
            to_ns: 1_000_000_000,
            sums: GroupRow {
                counts,
                ..GroupRow::default()
            },
            groups: Vec::new(),
        };
        let mut row = SecondRow::of_parts(&[part], 0).unwrap();
        let mut times = Histogram::new();
        times.record(service_ns);
        row.histograms.insert(TimeKind::Service, times.encode());
        Event::Second(row)
    }

    fn closed() -> (RunId, Plan) {
        let id = RunId {
            system: "s".to_owned(),
            workload: "/".to_owned(),
            process: 1,
            trial: None,
            setting: BTreeMap::new(),
            attempt: 1,
        };
        let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
        (id, Plan::of(address.into()))
    }

    #[test]
    fn the_parts_before_the_death_of_a_worker_stay_separate() {
        let (id, plan) = closed();
        let mut run = RunEvents::new(id, plan, 0);
        let Event::Second(row) = second(Phase::Measure, 2_500_000) else {
            unreachable!("a second is a row")
        };
        run.take(Event::Second(SecondRow {
            open_connections: 7,
            ..row
        }));
        run.take(Event::Part(PartRow {
            phase: Phase::Measure,
            from_ns: 1_000_000_000,
            to_ns: 1_100_000_000,
            sums: GroupRow::default(),
            groups: Vec::new(),
        }));
        run.complete();
        let FoldedRun {
            window,
            times,
            series,
            ..
        } = FoldedRun::of(&run);
        let rows = fold_run(run, window, &times, series).series;
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.to_s, row.open_connections))
            .collect();
        assert_eq!(rows, [(1.0, 7), (1.1, 0)]);
    }

    #[test]
    fn the_shortest_service_time_includes_the_warm_up() {
        let (id, plan) = closed();
        let mut run = JoinedRun::new(id, plan);
        run.take(&second(Phase::Warmup, 100_000));
        run.take(&second(Phase::Measure, 2_500_000));
        let run = run.finish();
        let (least, mean) = (run.least_service_time_us, run.service_time_us.mean);
        assert!(least.is_some_and(|us| us < 101.0), "{least:?}");
        assert!(mean.is_some_and(|us| us > 2_400.0), "{mean:?}");
    }
}
