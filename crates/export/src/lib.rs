//! Metrics of a running load, for Prometheus ([`Exporter`] serves them) and OpenTelemetry
//! ([`Exporter`] pushes them).
//!
//! The metrics are computed from the events that the live view shows. The exporter runs in the
//! process that coordinates a run, never in a worker, so it does not disturb the load.
//!
//! Invariants: memory use is limited, and a slow, failing or hostile peer never delays an event.

mod catalog;
mod distribution;
mod exporter;
mod metrics;
mod otlp;
mod prometheus;
#[cfg(test)]
mod testing;

pub use catalog::{CATALOG, MetricDefinition};
pub use exporter::{ExportError, ExportTargets, Exporter, PUSH_INTERVAL};
pub use otlp::{OtlpUrl, OtlpUrlError};
