//! The metrics, shared by the thread that runs the load and the exporter's thread.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use floodmark_record::Event;

use crate::metrics::LoadMetrics;
use crate::prometheus::ExpositionFormat;

/// Shared metrics. No lock is held during I/O.
#[derive(Debug, Default)]
pub(crate) struct SharedMetrics {
    state: Mutex<MetricsState>,
}

#[derive(Debug, Default)]
struct MetricsState {
    metrics: LoadMetrics,
    /// Encoded metrics by format; cleared when the metrics change.
    encoded: Vec<(ExpositionFormat, Bytes)>,
}

impl SharedMetrics {
    fn lock(&self) -> MutexGuard<'_, MetricsState> {
        // The metrics are usable even if another thread panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event of any kind.
    pub(crate) fn on(&self, event: &Event) {
        let mut state = self.lock();
        if state.metrics.on(event) {
            state.encoded.clear();
        }
    }

    /// Returns the encoded metrics.
    pub(crate) fn exposition(&self, format: ExpositionFormat) -> Bytes {
        let state = &mut *self.lock();
        if let Some((_, bytes)) = state.encoded.iter().find(|(known, _)| *known == format) {
            return bytes.clone();
        }
        let bytes = Bytes::from(format.encode(&state.metrics));
        state.encoded.push((format, bytes.clone()));
        bytes
    }

    /// Calls a function with the metrics.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&LoadMetrics) -> T) -> T {
        read(&self.lock().metrics)
    }
}
