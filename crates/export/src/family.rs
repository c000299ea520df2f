//! The exported metrics, in a form that is independent of their encoding.

use std::borrow::Cow;

use crate::distribution::TimeDistribution;

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstrumentKind {
    /// A sum that only grows.
    Counter,
    /// A value that can rise and fall.
    Gauge,
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
    /// Unit in UCUM, as OpenTelemetry requires: `s`, `By`, `1` or an annotation in braces.
    pub unit: &'static str,
    /// Kind of the metric.
    pub(crate) kind: InstrumentKind,
    /// Description.
    pub help: &'static str,
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
    /// Returns the name in Prometheus; `None` for labels that only OpenTelemetry requires.
    pub(crate) fn prometheus(self) -> Option<&'static str> {
        Some(match self {
            LabelKey::System => "system",
            LabelKey::Trial => "trial",
            LabelKey::Workload => "workload",
            LabelKey::Phase => "phase",
            LabelKey::Outcome => "outcome",
            LabelKey::Status => "status",
            LabelKey::Direction => "direction",
            LabelKey::Role => "role",
            LabelKey::CpuMode => "mode",
            LabelKey::State => "state",
            LabelKey::Model => "model",
            LabelKey::Process => "process",
            LabelKey::Attempt => "attempt",
            LabelKey::Version => "version",
            LabelKey::Method | LabelKey::ServerAddress | LabelKey::ServerPort => return None,
        })
    }

    /// Returns the name in OpenTelemetry, from the semantic conventions if they define one.
    pub(crate) fn otlp(self) -> &'static str {
        match self {
            LabelKey::System => "floodmark.system",
            LabelKey::Trial => "floodmark.trial",
            LabelKey::Workload => "floodmark.workload",
            LabelKey::Phase => "floodmark.phase",
            LabelKey::Outcome => "floodmark.outcome",
            LabelKey::Status => "http.response.status_code",
            LabelKey::Direction => "network.io.direction",
            LabelKey::Role => "floodmark.role",
            LabelKey::CpuMode => "cpu.mode",
            LabelKey::State => "floodmark.state",
            LabelKey::Model => "floodmark.model",
            LabelKey::Process => "floodmark.process",
            LabelKey::Attempt => "floodmark.attempt",
            LabelKey::Version => "floodmark.version",
            LabelKey::Method => "http.request.method",
            LabelKey::ServerAddress => "server.address",
            LabelKey::ServerPort => "server.port",
        }
    }

    /// Returns whether OpenTelemetry's value is an integer.
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

macro_rules! catalog {
    ($($id:ident: $kind:ident, $prometheus:literal, $otlp:literal, $unit:literal, $help:literal;)*) => {
        $(pub(crate) static $id: MetricDefinition = MetricDefinition {
            prometheus: $prometheus,
            otlp: $otlp,
            unit: $unit,
            kind: InstrumentKind::$kind,
            help: $help,
        };)*

        /// All exported metrics, in the order of the output.
        pub static CATALOG: &[&MetricDefinition] = &[$(&$id),*];
    };
}

catalog! {
    BUILD_INFO: Gauge, "floodmark_build_info", "floodmark.build.info", "1",
        "Version of floodmark; the value is always 1.";
    RUN_INFO: Gauge, "floodmark_run_info", "floodmark.run.info", "1",
        "The current or latest run; the value is always 1.";
    RUN_STATE: Gauge, "floodmark_run_state", "floodmark.run.state", "1",
        "1 for the current state (idle, starting, warmup or measure), 0 for the others.";
    RUNS: Counter, "floodmark_runs_total", "floodmark.runs", "{run}",
        "Runs started.";
    INTENDED: Counter, "floodmark_intended_requests_total", "floodmark.intended_requests",
        "{request}", "Requests that were due.";
    SENT: Counter, "floodmark_sent_requests_total", "floodmark.sent_requests", "{request}",
        "Requests handed to the kernel.";
    REQUESTS: Counter, "floodmark_requests_total", "floodmark.requests", "{request}",
        "Requests by outcome.";
    RESPONSES: Counter, "floodmark_responses_total", "floodmark.responses", "{response}",
        "Complete responses by status code.";
    GOOD: Counter, "floodmark_good_responses_total", "floodmark.good_responses", "{response}",
        "Ok responses that met their deadline.";
    RECONNECTS: Counter, "floodmark_reconnects_total", "floodmark.reconnects", "{request}",
        "Requests sent again because the server had closed the kept connection.";
    IN_FLIGHT: Gauge, "floodmark_requests_in_flight", "http.client.active_requests", "{request}",
        "Requests sent and not ended, at the end of the latest second.";
    CONNECTIONS_OPENED: Counter, "floodmark_connections_opened_total",
        "floodmark.connections_opened", "{connection}", "Connections opened.";
    OPEN_CONNECTIONS: Gauge, "floodmark_open_connections", "floodmark.open_connections",
        "{connection}", "Open connections at the end of the latest second.";
    HTTP_BYTES: Counter, "floodmark_http_bytes_total", "floodmark.http.io", "By",
        "Bytes of requests (transmit) and responses (receive), without TLS.";
    CPU: Counter, "floodmark_cpu_seconds_total", "floodmark.cpu.time", "s",
        "CPU time of client, server and store.";
    RESPONSE_TIME: Histogram, "floodmark_response_time_seconds", "floodmark.response_time", "s",
        "Time from the intended time to the end of an ok response, or to the timeout.";
    SERVICE_TIME: Histogram, "floodmark_service_time_seconds", "http.client.request.duration", "s",
        "Time from sending the request to the end of an ok response.";
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
