//! Samples within a run's window, and the metrics that verdicts and validity checks depend on.

use floodmark_record::metric::{
    CassandraFigure, CgroupFigure, CodeFigure, HostFigure, JvmFigure, ListenerFigure, MetricKind,
    NetworkFigure, PoolFigure, PostgresqlFigure, ProcessFigure, Role, SocketFigure,
    ThreadGroupFigure, UpstreamFigure, WaitKind, WaitObject,
};
use floodmark_record::run::Run;
use floodmark_record::{Metric, Observation};

/// The observations of a run, restricted to the window.
pub struct WindowSamples<'a> {
    run: &'a Run,
    from_ms: f64,
    to_ms: f64,
}

impl<'a> WindowSamples<'a> {
    pub(super) fn of(run: &'a Run) -> Self {
        Self::between(run, run.window.from_s, run.window.to_s)
    }

    /// Returns the observations from `from_s` to `to_s`, in seconds since the start of the
    /// measurement.
    pub fn between(run: &'a Run, from_s: f64, to_s: f64) -> Self {
        let begin = run.measured_from_ms.unwrap_or(0) as f64;
        WindowSamples {
            run,
            from_ms: begin + from_s * 1e3,
            to_ms: begin + to_s * 1e3,
        }
    }

    /// Returns the series of a metric.
    pub(super) fn series(&self, metric: &Metric) -> Option<&'a Observation> {
        debug_assert!(consumed().contains(&metric.pattern()), "{metric:?}");
        self.series_of(metric, false)
    }

    /// Returns a metric's peaks at the original resolution, or the metric's values if no steps were
    /// merged.
    pub fn peaks(&self, metric: &Metric) -> Option<&'a Observation> {
        self.series_of(metric, true).or_else(|| self.series(metric))
    }

    fn series_of(&self, metric: &Metric, is_peak: bool) -> Option<&'a Observation> {
        let of = |o: &&Observation| o.is_peak == is_peak && o.metric == *metric;
        self.run.observations.iter().find(of)
    }

    /// Returns all metrics of the run, including metrics whose names contain variable parts, such
    /// as the name of a thread group.
    pub(super) fn metrics(&self) -> impl Iterator<Item = &'a Metric> {
        let series = self.run.observations.iter().filter(|of| !of.is_peak);
        series.map(|of| &of.metric)
    }

    /// Returns the value and the length, in seconds, of each step within the window. Returns
    /// nothing if the steps are longer than the window.
    fn within(&self, series: &Observation) -> Vec<(f64, f64)> {
        let step = series.step_ms as f64;
        if self.to_ms - self.from_ms < step {
            return Vec::new();
        }
        let beyond = |by: f64| -> Vec<(f64, f64)> {
            let steps = (0_u32..).zip(&series.values);
            let inside = steps.filter_map(|(i, value)| {
                let begin = series.start_ms as f64 + f64::from(i) * step;
                let mut end = begin + step;
                // The last step ends when the load ends.
                if i as usize + 1 == series.values.len() && begin < self.to_ms {
                    end = end.min(self.to_ms);
                }
                let inside = begin >= self.from_ms - step * by && end <= self.to_ms + step * by;
                (inside && end > begin).then_some((*value, (end - begin) / 1e3))
            });
            inside.collect()
        };
        // Use partial steps only if the window contains no whole step.
        let steps = beyond(0.15);
        if steps.is_empty() { beyond(0.5) } else { steps }
    }

    /// Returns the mean of a rarely sampled level. Each value is the level at the end of a step.
    pub fn level(&self, metric: Metric) -> Option<f64> {
        let series = self.series(&metric)?;
        let (start, step) = (series.start_ms as f64, series.step_ms as f64);
        let ends = (1_u32..).map(|i| start + f64::from(i) * step);
        let inside = ends
            .zip(&series.values)
            .filter(|(end, _)| *end > self.from_ms && *end <= self.to_ms + step * 0.15);
        let values: Vec<f64> = inside.map(|(_, value)| *value).collect();
        if values.is_empty() {
            return self.mean(metric);
        }
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Returns the mean over the window. For a counter, this is the increase per second.
    pub fn mean(&self, metric: Metric) -> Option<f64> {
        let steps = self.within(self.series(&metric)?);
        let sum: f64 = steps.iter().map(|(value, _)| value).sum();
        let divisor = match metric.kind() {
            MetricKind::Counter => steps.iter().map(|(_, seconds)| seconds).sum(),
            MetricKind::Mean | MetricKind::Level => steps.len() as f64,
        };
        (!steps.is_empty()).then(|| sum / divisor)
    }

    /// Returns the rate of a TCP counter in the role's own network namespace. Falls back to the
    /// shared network namespace.
    pub fn network(&self, role: Role, figure: NetworkFigure) -> Option<f64> {
        self.mean(Metric::Network(Some(role), figure))
            .or_else(|| self.mean(Metric::Network(None, figure)))
    }

    /// Returns the rate of a counter in the server's control group. Falls back to floodmark's
    /// control group.
    pub fn cgroup(&self, figure: CgroupFigure) -> Option<f64> {
        self.mean(Metric::Cgroup(Some(Role::Server), figure))
            .or_else(|| self.mean(Metric::Cgroup(None, figure)))
    }

    /// Returns the mean of a socket metric for connections to the target, at the client's or the
    /// server's end. Returns `None` for an unobserved server on a remote host.
    pub fn sockets(&self, role: Role, figure: SocketFigure) -> Option<f64> {
        let mean = self.mean(Metric::Sockets(role, figure));
        mean.filter(|_| role != Role::Server || self.is_server_local())
    }

    /// Returns the mean of a metric for the server's accept queue. Returns `None` for an unobserved
    /// server on a remote host.
    pub fn listener(&self, figure: ListenerFigure) -> Option<f64> {
        let mean = self.mean(Metric::Listener(figure));
        mean.filter(|_| self.is_server_local())
    }

    /// Returns whether the kernel counters include the server. Counters on this host say nothing
    /// about an unobserved server on a remote host.
    pub fn is_server_local(&self) -> bool {
        let exists = |metric| self.mean(metric).is_some_and(|n| n > 0.0);
        self.run.server.is_some()
            || exists(Metric::Sockets(Role::Server, SocketFigure::Established))
            || exists(Metric::Listener(ListenerFigure::AcceptQueueLimit))
    }
}

/// Returns the patterns of all metrics that rules may read. See [`Metric::pattern`].
#[must_use]
pub fn consumed() -> Vec<Metric> {
    let any = String::new;
    let address = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
    let waiting = Metric::ThreadsWaitingIn {
        role: Role::Server,
        group: any(),
        function: any(),
    };
    let blocked = Metric::ThreadsBlocked {
        role: Role::Server,
        group: any(),
        object: WaitObject::Kind(WaitKind::Other),
    };
    let client = Metric::Process(Role::Client, ProcessFigure::RunDelay);
    let mut all = vec![waiting, blocked, client, Metric::PostgresqlWait(any())];
    macro_rules! add {
        ($figures:ident, $metric:expr) => {
            all.extend($figures::ALL.iter().copied().map($metric))
        };
    }
    for scope in [None, Some(Role::Server)] {
        add!(HostFigure, |of| Metric::Host(scope, of));
        add!(CgroupFigure, |of| Metric::Cgroup(scope, of));
    }
    for scope in [None, Some(Role::Server), Some(Role::Client)] {
        add!(NetworkFigure, |of| Metric::Network(scope, of));
    }
    for role in [Role::Server, Role::Store] {
        let figures = ProcessFigure::ALL.iter().copied();
        let sampled = figures.filter(|of| *of != ProcessFigure::Responses);
        all.extend(sampled.map(|of| Metric::Process(role, of)));
    }
    for role in [Role::Server, Role::Client] {
        add!(SocketFigure, |of| Metric::Sockets(role, of));
    }
    add!(CodeFigure, |of| Metric::Code(Role::Server, of));
    add!(JvmFigure, |of| Metric::Jvm(Role::Server, of));
    add!(ListenerFigure, Metric::Listener);
    add!(ThreadGroupFigure, |of| Metric::ThreadGroup(
        Role::Server,
        any(),
        of
    ));
    add!(UpstreamFigure, |of| Metric::Upstream(address, of));
    add!(PostgresqlFigure, Metric::Postgresql);
    add!(CassandraFigure, Metric::Cassandra);
    add!(PoolFigure, |of| Metric::CassandraPool(any(), of));
    all
}
