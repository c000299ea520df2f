//! The values of one source. New metrics may appear in any sample.

use std::collections::HashMap;

use floodmark_record::Metric;
use floodmark_record::metric::MetricKind;

/// The values of one source, in the order in which their metrics first appeared.
///
/// A source appends the values of its initial metrics in order, or sets values by metric.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    metrics: Vec<Metric>,
    positions: HashMap<Metric, usize>,
    values: Vec<f64>,
    /// Number of values appended to the current sample.
    appended: usize,
}

impl Figures {
    /// Returns figures in which each of `metrics` has a series, even if its values stay 0.
    pub(crate) fn with(metrics: impl IntoIterator<Item = Metric>) -> Self {
        let mut figures = Self::default();
        for metric in metrics {
            figures.add(metric);
        }
        figures
    }

    fn add(&mut self, metric: Metric) -> usize {
        let position = self.metrics.len();
        self.positions.insert(metric.clone(), position);
        self.metrics.push(metric);
        self.values.push(0.0);
        position
    }

    /// Begins a sample. A level that is not set becomes 0; a counter that is not set keeps its
    /// value.
    pub(crate) fn begin(&mut self) {
        self.appended = 0;
        for (value, metric) in self.values.iter_mut().zip(&self.metrics) {
            if metric.kind() != MetricKind::Counter {
                *value = 0.0;
            }
        }
    }

    /// Sets the values of the next initial metrics.
    pub(crate) fn extend(&mut self, values: impl IntoIterator<Item = f64>) {
        for value in values {
            self.values[self.appended] = value;
            self.appended += 1;
        }
    }

    /// Sets a counter, or adds to a level. A metric that was always 0 gets no series.
    pub(crate) fn set(&mut self, metric: Metric, value: f64) {
        let position = match self.positions.get(&metric) {
            Some(position) => *position,
            None if value == 0.0 => return,
            None => self.add(metric),
        };
        match self.metrics[position].kind() {
            MetricKind::Counter => self.values[position] = value,
            MetricKind::Mean | MetricKind::Level => self.values[position] += value,
        }
    }

    /// Returns the metrics, in the order in which they first appeared.
    pub(crate) fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// Returns the value of each metric.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::metric::PostgresqlFigure::{Active, Commits, Idle};

    #[test]
    fn series_begin_at_the_first_nonzero_value_and_keep_their_position() {
        let [active, idle, commits] = [Active, Idle, Commits].map(Metric::Postgresql);
        let mut figures = Figures::with([active.clone()]);
        figures.set(idle.clone(), 0.0);
        figures.set(commits.clone(), 0.0);
        assert_eq!(figures.values(), [0.0]);
        figures.begin();
        figures.set(commits.clone(), 7.0);
        figures.set(idle.clone(), 2.0);
        figures.set(idle.clone(), 1.0);
        assert_eq!(figures.values(), [0.0, 7.0, 3.0]);
        assert_eq!(figures.metrics(), [active.clone(), commits, idle]);
        figures.begin();
        figures.set(active, 1.0);
        assert_eq!(figures.values(), [1.0, 7.0, 0.0]);
        figures.begin();
        figures.extend([5.0, 9.0]);
        assert_eq!(figures.values(), [5.0, 9.0, 0.0]);
    }
}
