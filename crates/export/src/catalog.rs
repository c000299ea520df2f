//! The exported metrics and their series, in a form that is independent of their encoding.

use std::borrow::Cow;

use floodmark_record::grpc::ResponseStatus;

use crate::distribution::TimeDistribution;
use crate::metrics::RunState;
use crate::metrics::{CpuTotals, CurrentRun, LoadMetrics, LoadTarget, PhaseTotals, TargetTotals};

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstrumentKind {
    /// A sum that only grows.
    Counter,
    /// A value that can rise and fall.
    Gauge,
    /// A sum that can fall.
    UpDownCounter,
    /// A distribution.
    Histogram,
}

/// Definition of a metric.
#[derive(Debug)]
pub struct MetricDefinition {
    /// Name in Prometheus.
    pub prometheus: &'static str,
    /// Name in OpenTelemetry.
    pub otlp: &'static str,
    /// Unit in UCUM notation, which OpenTelemetry requires: `s`, `By`, `1` or an annotation in
    /// braces.
    pub unit: &'static str,
    /// Kind of the metric.
    pub(crate) kind: InstrumentKind,
    /// Description.
    pub help: &'static str,
    /// Returns the series.
    series: fn(&LoadMetrics) -> Vec<ExportedSeries<'_>>,
}

/// Name of a label (Prometheus) or attribute (OpenTelemetry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LabelKey {
    System,
    Trial,
    Workload,
    Phase,
    Outcome,
    Status,
    GrpcStatus,
    Direction,
    Role,
    CpuMode,
    State,
    Model,
    Process,
    Attempt,
    Version,
    Method,
    ServerAddress,
    ServerPort,
}

impl LabelKey {
    /// Returns the Prometheus name and the OpenTelemetry name. The Prometheus name is `None` if
    /// only OpenTelemetry requires the label. The OpenTelemetry name follows the semantic
    /// conventions if they define one.
    fn names(self) -> (Option<&'static str>, &'static str) {
        match self {
            LabelKey::System => (Some("system"), "floodmark.system"),
            LabelKey::Trial => (Some("trial"), "floodmark.trial"),
            LabelKey::Workload => (Some("workload"), "floodmark.workload"),
            LabelKey::Phase => (Some("phase"), "floodmark.phase"),
            LabelKey::Outcome => (Some("outcome"), "floodmark.outcome"),
            LabelKey::Status => (Some("status"), "http.response.status_code"),
            LabelKey::GrpcStatus => (Some("grpc_status"), "rpc.response.status_code"),
            LabelKey::Direction => (Some("direction"), "network.io.direction"),
            LabelKey::Role => (Some("role"), "floodmark.role"),
            LabelKey::CpuMode => (Some("mode"), "cpu.mode"),
            LabelKey::State => (Some("state"), "floodmark.state"),
            LabelKey::Model => (Some("model"), "floodmark.model"),
            LabelKey::Process => (Some("process"), "floodmark.process"),
            LabelKey::Attempt => (Some("attempt"), "floodmark.attempt"),
            LabelKey::Version => (Some("version"), "floodmark.version"),
            LabelKey::Method => (None, "http.request.method"),
            LabelKey::ServerAddress => (None, "server.address"),
            LabelKey::ServerPort => (None, "server.port"),
        }
    }

    /// Returns the Prometheus name, or `None` if only OpenTelemetry requires the label.
    pub(crate) fn prometheus(self) -> Option<&'static str> {
        self.names().0
    }

    /// Returns the OpenTelemetry name.
    pub(crate) fn otlp(self) -> &'static str {
        self.names().1
    }

    /// Returns whether the label's value is exported to OpenTelemetry as an integer.
    pub(crate) fn is_integer(self) -> bool {
        matches!(self, LabelKey::Status | LabelKey::ServerPort)
    }
}

/// A label and its value.
pub(crate) type MetricLabel<'a> = (LabelKey, Cow<'a, str>);

/// Value of one series.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ExportedValue<'a> {
    Number(f64),
    Times(&'a TimeDistribution),
}

/// One series of a metric.
#[derive(Debug, Clone)]
pub(crate) struct ExportedSeries<'a> {
    pub(crate) labels: Vec<MetricLabel<'a>>,
    pub(crate) value: ExportedValue<'a>,
}

/// A metric and all its series.
#[derive(Debug, Clone)]
pub(crate) struct MetricFamily<'a> {
    pub(crate) definition: &'static MetricDefinition,
    pub(crate) series: Vec<ExportedSeries<'a>>,
}

/// Returns all metrics that have series, in the order of the catalog.
pub(crate) fn families(metrics: &LoadMetrics) -> Vec<MetricFamily<'_>> {
    let family = |definition: &'static MetricDefinition| MetricFamily {
        definition,
        series: (definition.series)(metrics),
    };
    let families = CATALOG.iter().map(family);
    families
        .filter(|family| !family.series.is_empty())
        .collect()
}

/// Returns a series without labels.
fn one<'a>(value: u64) -> Vec<ExportedSeries<'a>> {
    vec![number([], value as f64)]
}

/// Returns one series for each value of a label.
fn by<'a, L: Into<Cow<'a, str>>>(
    key: LabelKey,
    values: impl IntoIterator<Item = (L, u64)>,
) -> Vec<ExportedSeries<'a>> {
    let series = |(label, value): (L, u64)| number([(key, label.into())], value as f64);
    values.into_iter().map(series).collect()
}

fn number<'a>(labels: impl IntoIterator<Item = MetricLabel<'a>>, value: f64) -> ExportedSeries<'a> {
    ExportedSeries {
        labels: labels.into_iter().collect(),
        value: ExportedValue::Number(value),
    }
}

/// Prepends the labels in `base` to the labels of each series.
fn labeled<'a>(
    base: Vec<MetricLabel<'a>>,
    series: Vec<ExportedSeries<'a>>,
) -> impl Iterator<Item = ExportedSeries<'a>> {
    series.into_iter().map(move |one| ExportedSeries {
        labels: base.iter().cloned().chain(one.labels).collect(),
        ..one
    })
}

/// Returns the series of the current or latest run.
fn of_run<'a>(
    metrics: &'a LoadMetrics,
    series: impl Fn(&'a CurrentRun) -> Vec<ExportedSeries<'a>>,
) -> Vec<ExportedSeries<'a>> {
    let run = metrics.run.iter();
    run.flat_map(|run| labeled(target_labels(&run.target), series(run)))
        .collect()
}

/// Returns the series of each target.
fn of_targets<'a>(
    metrics: &'a LoadMetrics,
    series: impl Fn(&'a TargetTotals) -> Vec<ExportedSeries<'a>>,
) -> Vec<ExportedSeries<'a>> {
    let targets = metrics.targets.iter();
    targets
        .flat_map(|(target, totals)| labeled(target_labels(target), series(totals)))
        .collect()
}

/// Returns the series for each combination of a target and a phase.
fn of_phases<'a>(
    metrics: &'a LoadMetrics,
    series: impl Fn(&'a TargetTotals, &'a PhaseTotals) -> Vec<ExportedSeries<'a>>,
) -> Vec<ExportedSeries<'a>> {
    of_targets(metrics, |target| {
        let phases = target.phases.iter();
        phases
            .flat_map(|(phase, totals)| {
                let label = (LabelKey::Phase, phase.name().into());
                labeled(vec![label], series(target, totals))
            })
            .collect()
    })
}

fn target_labels(target: &LoadTarget) -> Vec<MetricLabel<'_>> {
    let mut labels = vec![
        (LabelKey::System, Cow::from(&*target.system)),
        (LabelKey::Workload, Cow::from(&*target.workload)),
    ];
    labels.extend(
        target
            .trial
            .iter()
            .map(|trial| (LabelKey::Trial, Cow::from(&**trial))),
    );
    labels
}

/// Returns the labels that OpenTelemetry's conventions require for HTTP clients.
fn peer_labels(totals: &TargetTotals) -> Vec<MetricLabel<'_>> {
    let Some(peer) = &totals.peer else {
        return Vec::new();
    };
    let mut labels = vec![
        (LabelKey::Method, Cow::from(&*peer.method)),
        (LabelKey::ServerAddress, Cow::from(&*peer.address)),
    ];
    labels.extend(
        peer.port
            .map(|port| (LabelKey::ServerPort, port.to_string().into())),
    );
    labels
}

fn run_info(run: &CurrentRun) -> Vec<ExportedSeries<'_>> {
    let model = if run.is_open { "open" } else { "closed" };
    let labels = [
        (LabelKey::Model, model.into()),
        (LabelKey::Process, run.id.process.to_string().into()),
        (LabelKey::Attempt, run.id.attempt.to_string().into()),
    ];
    vec![number(labels, 1.0)]
}

fn run_states(metrics: &LoadMetrics) -> Vec<ExportedSeries<'_>> {
    let current = metrics.run.as_ref().map_or(RunState::Idle, |run| run.state);
    let states = RunState::ALL.map(|state| (state.name(), u64::from(state == current)));
    by(LabelKey::State, states)
}

fn in_flight(metrics: &LoadMetrics) -> Vec<ExportedSeries<'_>> {
    of_run(metrics, |run| {
        let totals = metrics.targets.get(&run.target);
        let labels = totals.map(peer_labels).unwrap_or_default();
        vec![number(labels, run.in_flight as f64)]
    })
}

fn outcomes(totals: &PhaseTotals) -> Vec<ExportedSeries<'_>> {
    let counts = &totals.counts;
    let outcomes = [
        ("ok", counts.ok),
        ("rejected", counts.rejected),
        ("wrong", counts.wrong),
        ("malformed", counts.malformed),
        ("reset", counts.reset),
        ("timed_out", counts.timed_out),
        ("in_flight_at_end", counts.in_flight_at_end),
        ("unsent", counts.unsent),
        ("connect_failed", counts.connect_failed),
    ];
    by(LabelKey::Outcome, outcomes)
}

fn responses(totals: &PhaseTotals) -> Vec<ExportedSeries<'_>> {
    let series = |(status, n): (ResponseStatus, u64)| {
        let http = (LabelKey::Status, status.http.to_string().into());
        let grpc = status
            .grpc
            .map(|grpc| (LabelKey::GrpcStatus, grpc.name().into()));
        number([http].into_iter().chain(grpc), n as f64)
    };
    totals.counts.by_status().map(series).collect()
}

fn http_bytes(totals: &PhaseTotals) -> Vec<ExportedSeries<'_>> {
    let bytes = [
        ("transmit", totals.bytes_sent),
        ("receive", totals.bytes_received),
    ];
    by(LabelKey::Direction, bytes)
}

fn cpu(totals: &TargetTotals) -> Vec<ExportedSeries<'_>> {
    let roles = [
        ("client", Some(&totals.client_cpu)),
        ("server", totals.server_cpu.as_ref()),
        ("store", totals.store_cpu.as_ref()),
    ];
    let series = |(role, cpu): (&'static str, Option<&CpuTotals>)| {
        let modes = cpu.map(|cpu| [("user", cpu.user_s), ("system", cpu.system_s)]);
        modes.into_iter().flatten().map(move |(mode, seconds)| {
            let labels = [
                (LabelKey::Role, role.into()),
                (LabelKey::CpuMode, mode.into()),
            ];
            number(labels, seconds)
        })
    };
    roles.into_iter().flat_map(series).collect()
}

fn service_times<'a>(target: &'a TargetTotals, totals: &'a PhaseTotals) -> Vec<ExportedSeries<'a>> {
    vec![ExportedSeries {
        labels: peer_labels(target),
        value: ExportedValue::Times(&totals.service),
    }]
}

fn response_times(totals: &PhaseTotals) -> Vec<ExportedSeries<'_>> {
    vec![ExportedSeries {
        labels: Vec::new(),
        value: ExportedValue::Times(&totals.response),
    }]
}

macro_rules! catalog {
    ($($kind:ident, $prometheus:literal, $otlp:literal, $unit:literal, $help:literal, $series:expr;)*) => {
        /// All exported metrics, in output order.
        pub static CATALOG: &[MetricDefinition] = &[$(MetricDefinition {
            prometheus: $prometheus,
            otlp: $otlp,
            unit: $unit,
            kind: InstrumentKind::$kind,
            help: $help,
            series: $series,
        }),*];
    };
}

catalog! {
    Gauge, "floodmark_build_info", "floodmark.build.info", "1",
        "Version of floodmark; the value is always 1.",
        |_| by(LabelKey::Version, [(env!("CARGO_PKG_VERSION"), 1)]);
    Gauge, "floodmark_run_info", "floodmark.run.info", "1",
        "The current or latest run; the value is always 1.", |all| of_run(all, run_info);
    Gauge, "floodmark_run_state", "floodmark.run.state", "1",
        "1 for the current state (idle, starting, warmup or measure), 0 for the others.",
        run_states;
    Counter, "floodmark_runs_total", "floodmark.runs", "{run}", "Runs started.",
        |all| one(all.runs);
    Counter, "floodmark_intended_requests_total", "floodmark.intended_requests", "{request}",
        "Requests that were due.", |all| of_phases(all, |_, of| one(of.counts.intended));
    Counter, "floodmark_sent_requests_total", "floodmark.sent_requests", "{request}",
        "Requests handed to the kernel.", |all| of_phases(all, |_, of| one(of.counts.sent));
    Counter, "floodmark_requests_total", "floodmark.requests", "{request}",
        "Requests by outcome.", |all| of_phases(all, |_, of| outcomes(of));
    Counter, "floodmark_responses_total", "floodmark.responses", "{response}",
        "Complete responses by HTTP status code, and those of gRPC calls also by gRPC status.", |all| of_phases(all, |_, of| responses(of));
    Counter, "floodmark_good_responses_total", "floodmark.good_responses", "{response}",
        "Ok responses that met their deadline.", |all| of_phases(all, |_, of| one(of.good));
    Counter, "floodmark_reconnects_total", "floodmark.reconnects", "{request}",
        "Requests sent again because the server had closed the kept connection.",
        |all| of_phases(all, |_, of| one(of.counts.reconnects));
    UpDownCounter, "floodmark_requests_in_flight", "http.client.active_requests", "{request}",
        "Requests in flight at the end of the latest second.", in_flight;
    Counter, "floodmark_connections_opened_total", "floodmark.connections_opened", "{connection}",
        "Connections opened.", |all| of_phases(all, |_, of| one(of.connects));
    Gauge, "floodmark_open_connections", "floodmark.open_connections", "{connection}",
        "Open connections at the end of the latest second.",
        |all| of_run(all, |run| one(run.open_connections));
    Counter, "floodmark_http_bytes_total", "floodmark.http.io", "By",
        "Bytes of requests (transmit) and responses (receive), without TLS.",
        |all| of_phases(all, |_, of| http_bytes(of));
    Counter, "floodmark_cpu_seconds_total", "floodmark.cpu.time", "s",
        "CPU time of the client, the server and the store.", |all| of_targets(all, cpu);
    Histogram, "floodmark_response_time_seconds", "floodmark.response_time", "s",
        "Time from the intended time to the end of an ok response, or to the timeout.",
        |all| of_phases(all, |_, of| response_times(of));
    Histogram, "floodmark_service_time_seconds", "http.client.request.duration", "s",
        "Time from sending the request to the end of an ok response.",
        |all| of_phases(all, service_times);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_follow_the_conventions() {
        for metric in CATALOG {
            let name = metric.prometheus;
            assert!(name.starts_with("floodmark_"), "{name}");
            assert_eq!(
                name.ends_with("_total"),
                metric.kind == InstrumentKind::Counter,
                "{name}"
            );
            let stem = name.strip_suffix("_total").unwrap_or(name);
            assert_eq!(stem.ends_with("_seconds"), metric.unit == "s", "{name}");
            assert_eq!(stem.ends_with("_bytes"), metric.unit == "By", "{name}");
            let is_conventional = metric.otlp.starts_with("http.client.");
            assert!(
                is_conventional || metric.otlp.starts_with("floodmark."),
                "{name}"
            );
            assert!(metric.help.ends_with('.'), "{name}");
        }
        let names: BTreeSet<_> = CATALOG
            .iter()
            .flat_map(|m| [m.prometheus, m.otlp])
            .collect();
        assert_eq!(names.len(), 2 * CATALOG.len());
    }
}
