//! The CPU of the server and of the store behind it, over a measurement and in each second of it, from the series that were read beside
//! the load.

use floodmark_record::run::{Observation, SeriesRow};
use floodmark_record::watch::{Observed, Server, ServerSeen};

/// Share of a second that must have been watched for its CPU to be told.
const MOST_OF: f64 = 0.8;

/// A side's CPU as two series of the same steps.
struct Cpu<'a> {
    user: &'a Observation,
    system: &'a Observation,
    /// Begin of the measurement and end of the watching, ms on the series' clock.
    from_ms: f64,
    to_ms: f64,
    /// Begin of the watching: later than that of the series where the server is observed elsewhere, and that began late.
    watched_from_ms: f64,
}

impl<'a> Cpu<'a> {
    fn of(observed: &'a Observed, side: &str) -> Option<Self> {
        let series = |metric: &str| {
            let mut all = observed.observations.iter();
            all.find(|o| o.subject == side && o.metric == metric)
        };
        let end_ms = observed.watcher?.wall_s * 1e3;
        let there = observed.elsewhere.as_ref();
        Some(Self {
            user: series("user")?,
            system: series("system")?,
            from_ms: observed.measured_from_ms? as f64,
            to_ms: there.map_or(end_ms, |there| end_ms.min(there.to_ms as f64)),
            watched_from_ms: there.map_or(0.0, |there| there.from_ms as f64),
        })
    }

    /// Seconds of user and system time between two moments of the series' clock.
    fn between(&self, from_ms: f64, to_ms: f64) -> (f64, f64) {
        let sum = |series| increase(series, from_ms, to_ms, self.to_ms);
        (sum(self.user), sum(self.system))
    }

    /// CPUs that were used in user mode and in the kernel between two moments of the measurement, seconds from its begin; none where
    /// too little of it was watched.
    fn cpus(&self, from_s: f64, to_s: f64) -> Option<(f64, f64)> {
        let at = |s: f64| self.from_ms + s * 1e3;
        // Of the last second the watching may have missed an end: word of its begin takes a moment.
        let (from_ms, to_ms) = (
            at(from_s).max(self.watched_from_ms),
            at(to_s).min(self.to_ms),
        );
        let watched_s = (to_ms - from_ms) / 1e3;
        let (user, system) = self.between(from_ms, to_ms);
        (watched_s > 0.0 && watched_s >= MOST_OF * (to_s - from_s))
            .then(|| (user / watched_s, system / watched_s))
    }
}

/// What a counter grew by between two moments. A step that lies only partly between them counts by that part: nothing is known of
/// when in the step it grew.
fn increase(series: &Observation, from_ms: f64, to_ms: f64, last_ms: f64) -> f64 {
    let step_ms = series.step_ms as f64;
    let begins = (0..).map(|i| series.start_ms as f64 + f64::from(i) * step_ms);
    begins
        .zip(&series.values)
        .map(|(begin, value)| {
            // The last step was cut short by the end of the watching.
            let end = (begin + step_ms).min(last_ms).max(begin + 1.0);
            let part = (to_ms.min(end) - from_ms.max(begin)) / (end - begin);
            value * part.clamp(0.0, 1.0)
        })
        .sum()
}

/// What the server used from the start of the measurement on, for `sent` requests.
pub fn server(observed: &Observed, sent: u64) -> Option<Server> {
    used(observed, "server", observed.server.clone()?, sent)
}

/// The same of the store behind it.
pub fn store(observed: &Observed, sent: u64) -> Option<Server> {
    used(observed, "store", observed.store.clone()?, sent)
}

fn used(observed: &Observed, side: &str, seen: ServerSeen, sent: u64) -> Option<Server> {
    let cpu = Cpu::of(observed, side)?;
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

/// Puts the CPU of server and store into the rows of a run. What was told with each second stands where the series did not come to be
/// kept.
pub fn fill<'a>(rows: impl IntoIterator<Item = &'a mut SeriesRow>, observed: &Observed) {
    let (server, store) = (Cpu::of(observed, "server"), Cpu::of(observed, "store"));
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
    use floodmark_record::watch::Watcher;

    fn series(metric: &str, values: &[f64]) -> Observation {
        Observation {
            subject: "server".to_owned(),
            metric: metric.to_owned(),
            unit: "s".to_owned(),
            source: String::new(),
            start_ms: 0,
            step_ms: 500,
            values: values.to_vec(),
        }
    }

    /// Watched for 2.25 s; the measurement began after 0.25 s.
    fn observed() -> Observed {
        Observed {
            observations: vec![
                series("user", &[0.2, 0.4, 0.4, 0.4, 0.1]),
                series("system", &[0.1, 0.1, 0.3, 0.1, 0.0]),
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
    fn over_the_measurement_and_by_the_second() {
        let server = server(&observed(), 1000).unwrap();
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
        assert_eq!(rows[2].server_user_cpus, None, "nobody watched any more");
        // 0.95 s of it were watched: half of the second of 0.4, all of the next, and a last step of 0.1 s.
        near(rows[3].server_user_cpus, (0.4 * 0.4 + 0.4 + 0.1) / 0.95);
    }

    #[test]
    fn the_store_behind_it_has_figures_of_its_own() {
        let mut observed = observed();
        let of_store = |metric: &str, values: &[f64]| Observation {
            subject: "store".to_owned(),
            ..series(metric, values)
        };
        observed.observations.extend([
            of_store("user", &[0.1, 0.2, 0.2, 0.2, 0.05]),
            of_store("system", &[0.0; 5]),
        ]);
        assert_eq!(store(&observed, 1000), None, "its processes were not seen");
        observed.store = Some(ServerSeen::default());
        let store = store(&observed, 1000).unwrap();
        assert!((store.cpu_s - 0.7).abs() < 1e-9, "{store:?}");
        assert!((store.cpu_us_per_request.unwrap() - 700.0).abs() < 1e-6);
        let whole = server(&observed, 1000).unwrap();
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
    fn a_server_that_was_not_watched_has_no_figures() {
        let mut observed = observed();
        observed.server = None;
        assert_eq!(server(&observed, 1), None);
        observed.observations.clear();
        let mut rows = vec![SeriesRow::default()];
        fill(&mut rows, &observed);
        assert_eq!(rows[0], SeriesRow::default());
    }
}
