//! Prometheus's exposition formats.

mod accept;
mod protobuf;
mod text;

pub(crate) use accept::ExpositionFormat;

use crate::families::families;
use crate::metrics::LoadMetrics;

impl ExpositionFormat {
    /// Encodes the metrics.
    pub(crate) fn encode(self, metrics: &LoadMetrics) -> Vec<u8> {
        let families = families(metrics);
        match self {
            ExpositionFormat::Text => text::encode(&families).into_bytes(),
            ExpositionFormat::Protobuf => protobuf::encode(&families),
        }
    }
}

#[cfg(test)]
mod tests;
