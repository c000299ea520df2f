//! Metrics in a form that is independent of their encoding.

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
