//! Computes the CPU use of a server and its store, per run and per second, from sampled series.

use crate::remote::series::{SeriesPiece, increase};
use floodmark_record::metric::{ProcessFigure, Role};
use floodmark_record::run::SeriesRow;
use floodmark_record::watch::{Observed, Server};
use floodmark_record::{Metric, Observation};

/// Minimum share of a second that must be sampled for its CPU use to be reported.
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

    /// Returns whether the measurement took at least one step. The CPU time of a shorter
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

    /// Returns the mean number of user and system CPUs used between two times, in seconds from the
    /// start of the measurement. Returns `None` if too little of this time was sampled.
    fn cpus(&self, from_s: f64, to_s: f64) -> Option<(f64, f64)> {
        let at = |s: f64| self.from_ms + s * 1e3;
        // Sampling may end before the last second.
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
/// number of requests. Returns `None` if the measurement was shorter than a sampling step.
pub fn used(observed: &Observed, role: Role, sent: u64) -> Option<Server> {
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

/// Returns the length of a sampling step in ms if the measurement was shorter. The CPU use of
/// server and store is then unknown.
pub fn too_short(observed: &Observed) -> Option<u64> {
    let roles = [Role::Server, Role::Store].into_iter();
    let mut series = roles.filter_map(|role| CpuSeries::of(observed, role));
    let short = series.find(|cpu| !cpu.has_whole_step())?;
    Some(short.user.step_ms)
}

/// Adds the CPU use of server and store to a run's rows. Rows without sampled series keep the CPU
/// use from the events.
pub fn fill<'a>(rows: impl IntoIterator<Item = &'a mut SeriesRow>, observed: &Observed) {
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
        let server = used(&observed(), Role::Server, 1000).unwrap();
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
        fill(&mut rows, &observed());
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
            used(&observed, Role::Store, 1000),
            None,
            "the store has no processes"
        );
        observed.store = Some(ServerSeen::default());
        let store = used(&observed, Role::Store, 1000).unwrap();
        assert!((store.cpu_s - 0.7).abs() < 1e-9, "{store:?}");
        assert!((store.cpu_us_per_request.unwrap() - 700.0).abs() < 1e-6);
        let whole = used(&observed, Role::Server, 1000).unwrap();
        assert!((whole.cpu_s - 1.95).abs() < 1e-9, "{whole:?}");
        let mut rows = vec![SeriesRow {
            to_s: 1.0,
            ..SeriesRow::default()
        }];
        fill(&mut rows, &observed);
        assert!((rows[0].store_user_cpus.unwrap() - 0.35).abs() < 1e-9);
        assert_eq!(rows[0].store_system_cpus, Some(0.0));
        assert!((rows[0].server_user_cpus.unwrap() - 0.7).abs() < 1e-9);
    }

    #[test]
    fn omits_figures_without_samples() {
        let mut observed = observed();
        observed.measured_from_ms = Some(1_751);
        assert_eq!(
            used(&observed, Role::Server, 1),
            None,
            "shorter than a step"
        );
        assert_eq!(too_short(&observed), Some(500));
        observed.measured_from_ms = Some(1_750);
        assert!(used(&observed, Role::Server, 1).is_some());
        assert_eq!(too_short(&observed), None);
        observed.server = None;
        assert_eq!(used(&observed, Role::Server, 1), None);
        observed.observations.clear();
        let mut rows = vec![SeriesRow::default()];
        fill(&mut rows, &observed);
        assert_eq!(rows[0], SeriesRow::default());
    }
}
