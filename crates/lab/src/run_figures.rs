//! Figures for a run's window, its rate steps and its mix groups, and the CPU use of its server and
//! store from sampled series.
//!
//! The counts of a group come from the rows. The times of a group come from the worker's last
//! event.

use std::collections::BTreeMap;

use floodmark_record::events::GroupRow;
use floodmark_record::metric::{ProcessFigure, Role};
use floodmark_record::plan::{FiguresOf, RateStep, Schedule, step_at};
use floodmark_record::run::{
    GroupFigures, HttpBytes, Saturation, SeriesRow, Steady, StepFigures, Window,
};
use floodmark_record::watch::{Observed, Server};
use floodmark_record::{Counts, Metric, Observation, Plan, SecondRow, TimeKind, Times};
use floodmark_stats::saturation::{self, saturation};
use floodmark_stats::steady::{SeriesPoint, steady, varied, window};

use crate::remote::series::{SeriesPiece, increase};
use crate::run_events::{MeasuredSecond, RunEvents, TimeHistograms};

/// The window that the figures of a run cover.
pub struct FigureWindow {
    pub steady: Steady,
    pub window: Window,
    /// End of the sending window, in ns.
    pub sending_end_ns: u64,
}

impl FigureWindow {
    /// Determines the window of a run.
    pub fn of(run: &RunEvents) -> Self {
        let sending_end_ns = run.window_ns();
        let end_s = sending_end_ns as f64 / 1e9;
        let rows = run.rows.iter();
        let points: Vec<SeriesPoint> = rows
            .filter(|row| row.row.from_ns < sending_end_ns)
            .map(|row| row.point(end_s))
            .collect();
        let rate_changes = run.plan.rate_changes();
        let steady = if rate_changes {
            varied()
        } else {
            steady(&points)
        };
        let window = match run.plan.figures_of {
            FiguresOf::Whole if !rate_changes => Window {
                from_s: 0.0,
                to_s: end_s,
                why: "the whole run, as requested".to_owned(),
            },
            FiguresOf::Steady | FiguresOf::Whole => window(&steady, (0.0, end_s)),
        };
        FigureWindow {
            steady,
            window,
            sending_end_ns,
        }
    }

    /// Returns the whole measurement, without judging its steady state.
    pub fn whole(run: &RunEvents) -> Self {
        let sending_end_ns = run.window_ns();
        let window = Window {
            from_s: 0.0,
            to_s: sending_end_ns as f64 / 1e9,
            why: "the whole measurement".to_owned(),
        };
        FigureWindow {
            steady: varied(),
            window,
            sending_end_ns,
        }
    }

    /// Returns whether a second belongs to the window. A window that ends with the run includes the
    /// drain.
    pub fn contains(&self, row: &SecondRow) -> bool {
        let middle_s = (row.from_ns + row.to_ns) as f64 / 2e9;
        let ends_with_run = self.window.to_s * 1e9 >= self.sending_end_ns as f64 - 1.0;
        middle_s >= self.window.from_s && (ends_with_run || middle_s < self.window.to_s)
    }

    /// Returns the mean of a count per second within the window, or `None` if the window is empty.
    pub fn per_second(&self, run: &RunEvents, of: impl Fn(&SecondRow) -> u64) -> Option<f64> {
        let length_s = self.window.to_s - self.window.from_s;
        let rows = run.rows.iter().map(|row| &row.row);
        let sum: u64 = rows.filter(|row| self.contains(row)).map(of).sum();
        (length_s > 0.0).then(|| sum as f64 / length_s)
    }

    /// Returns the seconds of the window as points of the throughput curve, excluding the drain.
    pub fn points(&self, run: &RunEvents) -> Vec<SeriesPoint> {
        let sending =
            |row: &&MeasuredSecond| self.contains(&row.row) && row.row.to_ns <= self.sending_end_ns;
        let rows = run.rows.iter().filter(sending);
        rows.map(|row| row.point(f64::INFINITY)).collect()
    }
}

/// Times of the requests in a window.
#[derive(Default)]
pub struct WindowTimes {
    /// Times of the requests in the window.
    pub sums: TimeHistograms,
    /// Shortest service time in the whole run, including the warm-up, in ns.
    min_service_ns: Option<u64>,
    /// Shortest TCP connect in the whole run, including the warm-up, in ns.
    min_connect_ns: Option<u64>,
}

impl WindowTimes {
    /// Adds one second of the warm-up or the measurement.
    pub fn add(&mut self, row: &SecondRow, in_window: bool) {
        let select = |kind| in_window || matches!(kind, TimeKind::Service | TimeKind::Connect);
        let times = TimeHistograms::decode(&row.histograms, select);
        let min = |so_far: Option<u64>, kind| so_far.into_iter().chain(times.min_ns(kind)).min();
        self.min_service_ns = min(self.min_service_ns, TimeKind::Service);
        self.min_connect_ns = min(self.min_connect_ns, TimeKind::Connect);
        if in_window {
            self.sums.merge(&times);
        }
    }

    /// Returns the shortest service time in the whole run, including the warm-up, in µs.
    pub fn min_service_us(&self) -> Option<f64> {
        self.min_service_ns.map(|ns| ns as f64 / 1e3)
    }

    /// Returns the shortest TCP connect in the whole run, including the warm-up, in µs.
    pub fn min_connect_us(&self) -> Option<f64> {
        self.min_connect_ns.map(|ns| ns as f64 / 1e3)
    }
}

/// Returns the figures of a run's groups, in the order of the plan's mix.
pub fn groups(run: &RunEvents, window: &FigureWindow) -> Vec<GroupFigures> {
    let requests = run.plan.mix.iter().flat_map(|mix| &mix.requests);
    let group = |(index, name): (usize, &String)| {
        let of =
            |row: &SecondRow, what: fn(&GroupRow) -> u64| row.groups.get(index).map_or(0, what);
        let sum = |what: fn(&GroupRow) -> u64| run.rows.iter().map(|row| of(&row.row, what)).sum();
        let mean = |what| window.per_second(run, |row| of(row, what));
        let end = run.end.as_ref();
        let times = end.and_then(|end| end.groups.get(index));
        let times = times.map(|times| TimeHistograms::decode(times, |_| true));
        let times = times.unwrap_or_default();
        GroupFigures {
            name: name.clone(),
            throughput_per_s: mean(|group| group.ok_in_window),
            goodput_per_s: mean(|group| group.good_in_window),
            requests: run.group_counts(index),
            bytes: HttpBytes {
                sent: sum(|group| group.bytes_sent),
                received: sum(|group| group.bytes_received),
            },
            response_time_us: times.summary(TimeKind::Response),
            service_time_us: times.summary(TimeKind::Service),
            blocked_us: times.summary(TimeKind::Blocked),
            lateness_us: times.summary(TimeKind::Lateness),
            first_byte_us: times.summary(TimeKind::FirstByte),
            error_time_us: times.summary(TimeKind::Error),
        }
    };
    let names = requests.map(|request| &request.name).enumerate();
    names.map(group).collect()
}

/// Response times per step. Only the histograms of the current step are kept in memory.
#[derive(Default)]
pub struct StepTimes {
    steps: Vec<RateStep>,
    current: usize,
    times: TimeHistograms,
    done: BTreeMap<usize, Times>,
}

impl StepTimes {
    /// Starts with the first step of a plan. Returns `None` for a plan without steps.
    pub fn of(plan: &Plan) -> Option<Self> {
        Some(StepTimes {
            steps: plan.steps()?.to_vec(),
            ..StepTimes::default()
        })
    }

    /// Adds the next row.
    pub fn add(&mut self, row: &SecondRow) {
        let step = step_of(&self.steps, row);
        if step != self.current {
            self.finish_step();
            self.current = step;
        }
        self.times
            .merge(&TimeHistograms::decode_responses(&row.histograms));
    }

    fn finish_step(&mut self) {
        let times = std::mem::take(&mut self.times);
        let summary = times.summary(TimeKind::Response);
        self.done.insert(self.current, summary);
    }

    /// Returns the figures of all steps that started.
    pub fn figures(mut self, run: &RunEvents) -> Vec<StepFigures> {
        self.finish_step();
        let end_s = run.window_ns() as f64 / 1e9;
        let mut from_s = 0.0;
        let mut figures = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let to_s = (from_s + step.duration_s).min(end_s);
            if to_s <= from_s {
                break;
            }
            let rows = || {
                let within = |row: &&SecondRow| step_of(&self.steps, row) == number;
                run.rows.iter().map(|row| &row.row).filter(within)
            };
            let per_s =
                |of: fn(&SecondRow) -> u64| rows().map(of).sum::<u64>() as f64 / (to_s - from_s);
            let mut requests = Counts::default();
            rows().for_each(|row| requests.merge(&row.counts));
            figures.push(StepFigures {
                from_s,
                to_s,
                offered_per_s: step.rate_per_s,
                throughput_per_s: per_s(|row| row.ok_in_window),
                goodput_per_s: per_s(|row| row.good_in_window),
                requests,
                response_time_us: self.done.get(&number).cloned().unwrap_or_default(),
            });
            from_s = to_s;
        }
        figures
    }
}

/// Returns the step that contains a row. Rows are split at the ends of steps, so each row lies in a
/// single step.
pub(crate) fn step_of(steps: &[RateStep], row: &SecondRow) -> usize {
    step_at(steps, (row.from_ns + row.to_ns) as f64 / 2e9)
}

/// Returns whether a ramp reached the server's capacity, and at which point. Returns `None` if the
/// plan is not a rising ramp.
pub fn saturation_of(run: &RunEvents) -> Option<Saturation> {
    let Some(schedule @ Schedule::Ramp { ramp, .. }) = run.plan.schedule() else {
        return None;
    };
    let end_ns = run.window_ns();
    let rows: Vec<saturation::RampRow> = run
        .rows
        .iter()
        .filter(|row| row.row.to_ns <= end_ns)
        .map(|row| saturation::RampRow {
            from_s: row.figures.from_s,
            to_s: row.figures.to_s,
            ok: row.row.ok_in_window,
            p50_us: row.figures.p50_us,
        })
        .collect();
    saturation(ramp, &rows, |at_s| {
        schedule.expected_by(at_s).unwrap_or(0.0)
    })
}

/// Minimum share of a second that must be sampled. With less, the second's CPU use is not reported.
const MIN_SAMPLED: f64 = 0.8;

/// CPU series for the processes of one role. Both series have the same time steps.
struct CpuSeries<'a> {
    user: &'a Observation,
    system: &'a Observation,
    /// Start of the measurement, in ms on the series' clock.
    from_ms: f64,
    /// End of sampling, in ms.
    to_ms: f64,
    /// Start of sampling, in ms. It is above 0 if a remote observation started late.
    sampled_from_ms: f64,
}

impl<'a> CpuSeries<'a> {
    fn of(observed: &'a Observed, role: Role) -> Option<Self> {
        let series = |figure| {
            let metric = Metric::Process(role, figure);
            let mut all = observed.observations.iter().filter(|of| !of.is_peak);
            all.find(|of| of.metric == metric)
        };
        let end_ms = observed.watcher?.wall_s * 1e3;
        let remote = observed.remote.as_ref();
        Some(Self {
            user: series(ProcessFigure::User)?,
            system: series(ProcessFigure::System)?,
            from_ms: observed.measured_from_ms? as f64,
            to_ms: remote.map_or(end_ms, |remote| end_ms.min(remote.to_ms as f64)),
            sampled_from_ms: remote.map_or(0.0, |remote| remote.from_ms as f64),
        })
    }

    /// Returns whether the measurement lasted at least one sampling step. The CPU time of a shorter
    /// measurement cannot be separated from the CPU time before and after.
    fn has_whole_step(&self) -> bool {
        self.to_ms - self.from_ms >= self.user.step_ms as f64
    }

    /// Returns the user and system CPU time used between two times on the series' clock, in
    /// seconds.
    fn between(&self, from_ms: f64, to_ms: f64) -> (f64, f64) {
        let sum = |series: &Observation| {
            let piece = SeriesPiece {
                start_ms: i64::try_from(series.start_ms).unwrap_or(i64::MAX),
                step_ms: series.step_ms,
                values: &series.values,
            };
            increase(&[piece], from_ms, to_ms, self.to_ms)
        };
        (sum(self.user), sum(self.system))
    }

    /// Returns the mean number of CPUs used in user and in system mode between two times. The times
    /// are in seconds from the start of the measurement. Returns `None` if too little of this time
    /// was sampled.
    fn cpus(&self, from_s: f64, to_s: f64) -> Option<(f64, f64)> {
        let at = |s: f64| self.from_ms + s * 1e3;
        // Sampling may end before the end of the last second.
        let (from_ms, to_ms) = (
            at(from_s).max(self.sampled_from_ms),
            at(to_s).min(self.to_ms),
        );
        let sampled_s = (to_ms - from_ms) / 1e3;
        let (user, system) = self.between(from_ms, to_ms);
        (sampled_s > 0.0 && sampled_s >= MIN_SAMPLED * (to_s - from_s))
            .then(|| (user / sampled_s, system / sampled_s))
    }
}

/// Returns the CPU time of the server or store since the start of the measurement. `sent` is the
/// number of requests sent. Returns `None` if the measurement was shorter than a sampling step.
pub fn cpu_used(observed: &Observed, role: Role, sent: u64) -> Option<Server> {
    let seen = match role {
        Role::Store => observed.store.clone()?,
        _ => observed.server.clone()?,
    };
    let cpu = CpuSeries::of(observed, role).filter(CpuSeries::has_whole_step)?;
    let (user_s, system_s) = cpu.between(cpu.from_ms, cpu.to_ms);
    let cpu_s = user_s + system_s;
    Some(Server {
        cpu_s,
        user_s,
        system_s,
        wall_s: (cpu.to_ms - cpu.from_ms).max(0.0) / 1e3,
        cpu_us_per_request: (sent > 0).then(|| cpu_s * 1e6 / sent as f64),
        seen,
    })
}

/// Returns the length of a sampling step, in ms, if the measurement was shorter than one step. In
/// this case, the CPU use of the server or the store is unknown.
pub fn cpu_too_short(observed: &Observed) -> Option<u64> {
    let roles = [Role::Server, Role::Store].into_iter();
    let mut series = roles.filter_map(|role| CpuSeries::of(observed, role));
    let short = series.find(|cpu| !cpu.has_whole_step())?;
    Some(short.user.step_ms)
}

/// Adds the CPU use of the server and the store to a run's rows. Rows without sampled series keep
/// the CPU use from the events.
pub fn fill_cpus<'a>(rows: impl IntoIterator<Item = &'a mut SeriesRow>, observed: &Observed) {
    let (server, store) = (
        CpuSeries::of(observed, Role::Server),
        CpuSeries::of(observed, Role::Store),
    );
    for row in rows {
        let (from_s, to_s) = (row.from_s, row.to_s);
        if let Some((user, system)) = server.as_ref().and_then(|cpu| cpu.cpus(from_s, to_s)) {
            row.server_user_cpus = Some(user);
            row.server_system_cpus = Some(system);
        }
        if let Some((user, system)) = store.as_ref().and_then(|cpu| cpu.cpus(from_s, to_s)) {
            row.store_user_cpus = Some(user);
            row.store_system_cpus = Some(system);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::watch::ServerSeen;
    use floodmark_record::watch::Watcher;

    fn series(role: Role, figure: ProcessFigure, values: &[f64]) -> Observation {
        Observation {
            metric: Metric::Process(role, figure),
            is_peak: false,
            source: String::new(),
            start_ms: 0,
            step_ms: 500,
            values: values.to_vec(),
        }
    }

    /// Returns samples for 2.25 s. The measurement starts after 0.25 s.
    fn observed() -> Observed {
        Observed {
            observations: vec![
                series(
                    Role::Server,
                    ProcessFigure::User,
                    &[0.2, 0.4, 0.4, 0.4, 0.1],
                ),
                series(
                    Role::Server,
                    ProcessFigure::System,
                    &[0.1, 0.1, 0.3, 0.1, 0.0],
                ),
            ],
            measured_from_ms: Some(250),
            server: Some(ServerSeen::default()),
            watcher: Some(Watcher {
                cpu_s: 0.0,
                wall_s: 2.25,
            }),
            ..Observed::default()
        }
    }

    #[test]
    fn sums_over_the_measurement_and_per_second() {
        let server = cpu_used(&observed(), Role::Server, 1000).unwrap();
        assert!((server.user_s - 1.4).abs() < 1e-9, "{server:?}");
        assert!((server.system_s - 0.55).abs() < 1e-9, "{server:?}");
        assert!((server.cpu_us_per_request.unwrap() - 1950.0).abs() < 1e-6);
        assert!((server.wall_s - 2.0).abs() < 1e-9);
        let row = |from_s, to_s| SeriesRow {
            from_s,
            to_s,
            ..SeriesRow::default()
        };
        let mut rows = vec![row(0.0, 1.0), row(1.0, 2.0), row(2.0, 3.0), row(1.05, 2.05)];
        fill_cpus(&mut rows, &observed());
        let near = |value: Option<f64>, expected: f64| {
            assert!(
                (value.unwrap() - expected).abs() < 1e-9,
                "{value:?} {expected}"
            );
        };
        near(rows[0].server_user_cpus, 0.7);
        near(rows[0].server_system_cpus, 0.3);
        near(rows[1].server_user_cpus, 0.7);
        near(rows[1].server_system_cpus, 0.25);
        assert_eq!(rows[2].server_user_cpus, None, "sampling has ended");
        // The row has 0.95 s of samples: 40 % of the third step, and both following steps.
        near(rows[3].server_user_cpus, (0.4 * 0.4 + 0.4 + 0.1) / 0.95);
    }

    #[test]
    fn separates_the_store_from_the_server() {
        let mut observed = observed();
        observed.observations.extend([
            series(
                Role::Store,
                ProcessFigure::User,
                &[0.1, 0.2, 0.2, 0.2, 0.05],
            ),
            series(Role::Store, ProcessFigure::System, &[0.0; 5]),
        ]);
        assert_eq!(
            cpu_used(&observed, Role::Store, 1000),
            None,
            "the store has no processes"
        );
        observed.store = Some(ServerSeen::default());
        let store = cpu_used(&observed, Role::Store, 1000).unwrap();
        assert!((store.cpu_s - 0.7).abs() < 1e-9, "{store:?}");
        assert!((store.cpu_us_per_request.unwrap() - 700.0).abs() < 1e-6);
        let whole = cpu_used(&observed, Role::Server, 1000).unwrap();
        assert!((whole.cpu_s - 1.95).abs() < 1e-9, "{whole:?}");
        let mut rows = vec![SeriesRow {
            to_s: 1.0,
            ..SeriesRow::default()
        }];
        fill_cpus(&mut rows, &observed);
        assert!((rows[0].store_user_cpus.unwrap() - 0.35).abs() < 1e-9);
        assert_eq!(rows[0].store_system_cpus, Some(0.0));
        assert!((rows[0].server_user_cpus.unwrap() - 0.7).abs() < 1e-9);
    }

    #[test]
    fn omits_figures_without_samples() {
        let mut observed = observed();
        observed.measured_from_ms = Some(1_751);
        assert_eq!(
            cpu_used(&observed, Role::Server, 1),
            None,
            "shorter than a step"
        );
        assert_eq!(cpu_too_short(&observed), Some(500));
        observed.measured_from_ms = Some(1_750);
        assert!(cpu_used(&observed, Role::Server, 1).is_some());
        assert_eq!(cpu_too_short(&observed), None);
        observed.server = None;
        assert_eq!(cpu_used(&observed, Role::Server, 1), None);
        observed.observations.clear();
        let mut rows = vec![SeriesRow::default()];
        fill_cpus(&mut rows, &observed);
        assert_eq!(rows[0], SeriesRow::default());
    }
}
