//! What was observed within a run's window.

use floodmark_record::run::{Observation, Run};

/// The observations of a run, cut to its window.
pub(super) struct Seen<'a> {
    pub(super) run: &'a Run,
    from_ms: f64,
    to_ms: f64,
}

impl<'a> Seen<'a> {
    pub(super) fn of(run: &'a Run) -> Self {
        let begin = run.measured_from_ms.unwrap_or(0) as f64;
        Seen {
            run,
            from_ms: begin + run.window.from_s * 1e3,
            to_ms: begin + run.window.to_s * 1e3,
        }
    }

    pub(super) fn series(&self, subject: &str, metric: &str) -> Option<&'a Observation> {
        let of = |o: &&Observation| o.subject == subject && o.metric == metric;
        self.run.observations.iter().find(of)
    }

    /// Values of the steps that lie in the window as a whole, and how long these are together, seconds. A series whose steps are longer
    /// than the window has none.
    pub(super) fn within(&self, subject: &str, metric: &str) -> Option<(Vec<f64>, f64)> {
        let series = self.series(subject, metric)?;
        let (start, step) = (series.start_ms as f64, series.step_ms as f64);
        let beyond = |by: f64| -> Vec<(f64, f64)> {
            let steps = (0_u32..).zip(&series.values);
            let inside = steps.filter_map(|(i, value)| {
                let begin = start + f64::from(i) * step;
                let last = i as usize + 1 == series.values.len();
                // The last step was cut short by the end of the load.
                let end = match last && begin < self.to_ms {
                    true => (begin + step).min(self.to_ms),
                    false => begin + step,
                };
                let inside = begin >= self.from_ms - step * by && end <= self.to_ms + step * by;
                (inside && end > begin).then_some((*value, end - begin))
            });
            inside.collect()
        };
        // Of a step that is half outside only half is of the window: it counts where there is no better one.
        let mut steps = beyond(0.15);
        if steps.is_empty() {
            steps = beyond(0.5);
        }
        let seconds = steps.iter().map(|(_, ms)| ms / 1e3).sum();
        let values: Vec<f64> = steps.into_iter().map(|(value, _)| value).collect();
        (!values.is_empty()).then_some((values, seconds))
    }

    /// Of a level that is read seldom: the mean of what was read within the window. A step's value was read at its end.
    pub(super) fn level(&self, subject: &str, metric: &str) -> Option<f64> {
        let series = self.series(subject, metric)?;
        let (start, step) = (series.start_ms as f64, series.step_ms as f64);
        let ends = (1_u32..).map(|i| start + f64::from(i) * step);
        let inside = ends
            .zip(&series.values)
            .filter(|(end, _)| *end > self.from_ms && *end <= self.to_ms + step * 0.15);
        let values: Vec<f64> = inside.map(|(_, value)| *value).collect();
        if values.is_empty() {
            return self.mean(subject, metric);
        }
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// Of a counter: its increase per second.
    pub(super) fn rate(&self, subject: &str, metric: &str) -> Option<f64> {
        let (values, seconds) = self.within(subject, metric)?;
        Some(values.iter().sum::<f64>() / seconds)
    }

    /// Of a level: its mean.
    pub(super) fn mean(&self, subject: &str, metric: &str) -> Option<f64> {
        let (values, _) = self.within(subject, metric)?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    }

    /// A counter of the machine's network, or of the server's where that is another one.
    pub(super) fn of_server_network(&self, metric: &str) -> Option<f64> {
        self.rate("server network", metric)
            .or_else(|| self.rate("network", metric))
    }

    pub(super) fn of_client_network(&self, metric: &str) -> Option<f64> {
        self.rate("client network", metric)
            .or_else(|| self.rate("network", metric))
    }
}
