//! A series of values at equal distances, of bounded length.

use std::borrow::Cow;
use std::time::Duration;

pub(crate) use floodmark_record::elsewhere::Kind;
use floodmark_record::run::Observation;

/// Most values of one series. A run that is longer halves the resolution: three minutes at 20 a second, an hour at one.
pub(crate) const MOST_VALUES: usize = 3_600;

/// Makes one value of those of two steps: what a counter grew by adds up, anything else gives its mean.
fn join(kind: Kind, first: f64, second: f64) -> f64 {
    match kind {
        Kind::Increase => first + second,
        Kind::Mean | Kind::Level => f64::midpoint(first, second),
    }
}

/// What a series is of.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub subject: &'static str,
    pub metric: Cow<'static, str>,
    pub unit: &'static str,
    pub kind: Kind,
}

/// The values of one metric.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub subject: Subject,
    values: Vec<f64>,
    /// The largest reading behind each value, per second where the metric is an increase; empty until readings are joined.
    largest: Vec<f64>,
}

impl Series {
    pub(crate) fn new(subject: Subject) -> Self {
        Self {
            subject,
            values: Vec::new(),
            largest: Vec::new(),
        }
    }

    /// A series that is found after `steps` readings of others.
    pub(crate) fn of_zeros(subject: Subject, steps: usize) -> Self {
        Self {
            values: vec![0.0; steps],
            ..Self::new(subject)
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Adds what was read over `steps` steps of length `step` (more than one where the sampler itself was kept from running): an
    /// increase is spread evenly over them, anything else is repeated.
    pub(crate) fn push(&mut self, value: f64, steps: usize, step: Duration) {
        let steps = steps.max(1);
        let each = match self.subject.kind {
            Kind::Increase => value / steps as f64,
            Kind::Mean | Kind::Level => value,
        };
        self.values
            .extend(std::iter::repeat_n(rounded(each), steps));
        if !self.largest.is_empty() {
            let largest = rounded(self.as_peak(each, step));
            self.largest.resize(self.values.len(), largest);
        }
    }

    /// A reading as it is kept among the largest ones.
    fn as_peak(&self, value: f64, step: Duration) -> f64 {
        match self.subject.kind {
            Kind::Increase => value / step.as_secs_f64(),
            Kind::Mean | Kind::Level => value,
        }
    }

    /// Joins what was read in a last bit of a step to the step before, so that no increase is lost and no share is taken of
    /// a time too short for the kernel's ticks. A level stays as it was: the load may be over when the last one is read.
    pub(crate) fn fold(&mut self, value: f64) {
        if let Some(last) = self.values.last_mut()
            && self.subject.kind == Kind::Increase
        {
            *last = rounded(join(self.subject.kind, *last, value));
        }
    }

    /// Makes one value of each two, which were `step` long; an odd last one is kept alone.
    pub(crate) fn halve(&mut self, step: Duration) {
        let kind = self.subject.kind;
        if self.largest.is_empty() {
            self.largest = self
                .values
                .iter()
                .map(|value| rounded(self.as_peak(*value, step)))
                .collect();
        }
        self.largest = self
            .largest
            .chunks(2)
            .map(|pair| pair.iter().copied().fold(f64::NEG_INFINITY, f64::max))
            .collect();
        self.values = self
            .values
            .chunks(2)
            .map(|pair| match *pair {
                [first, second] => rounded(join(kind, first, second)),
                _ => pair[0],
            })
            .collect();
    }

    /// Hands over the values, and forgets them.
    pub(crate) fn drain(&mut self) -> Vec<f64> {
        self.largest.clear();
        std::mem::take(&mut self.values)
    }

    /// Characters that the values take in JSON, at least as many as are written.
    pub(crate) fn written_length(&self) -> usize {
        let each = |value: &f64| format!("{value:?},").len();
        let values = self.values.iter().chain(&self.largest);
        values.map(each).sum()
    }

    /// The series, and where readings were joined the largest ones beside it.
    pub(crate) fn observations(
        self,
        source: &str,
        start_ms: u64,
        step_ms: u64,
    ) -> impl Iterator<Item = Observation> + use<> {
        let observation = |metric: String, unit: String, values| Observation {
            subject: self.subject.subject.to_owned(),
            metric,
            unit,
            source: source.to_owned(),
            start_ms,
            step_ms,
            values,
        };
        let Subject {
            metric, unit, kind, ..
        } = self.subject;
        let peak_unit = match kind {
            Kind::Increase => format!("{unit}/s"),
            Kind::Mean | Kind::Level => unit.to_owned(),
        };
        let peaks = (!self.largest.is_empty())
            .then(|| observation(format!("{metric}.max"), peak_unit, self.largest));
        [observation(
            metric.into_owned(),
            unit.to_owned(),
            self.values,
        )]
        .into_iter()
        .chain(peaks)
    }
}

/// Six decimals: microseconds of a second, and short in JSON.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(500);

    fn series(kind: Kind, values: &[f64]) -> Series {
        let mut series = Series::new(Subject {
            subject: "host",
            metric: "m".into(),
            unit: "u",
            kind,
        });
        for value in values {
            series.push(*value, 1, STEP);
        }
        series
    }

    #[test]
    fn halving_keeps_sums_and_means_and_what_was_largest() {
        for (kind, expected, largest, unit) in [
            // The last step of the five was half as long as those it is joined with.
            (Kind::Increase, [10.0, 9.0], [8.0, 10.0], "u/s"),
            (Kind::Mean, [2.5, 4.5], [4.0, 5.0], "u"),
            (Kind::Level, [2.5, 4.5], [4.0, 5.0], "u"),
        ] {
            let mut series = series(kind, &[1.0, 2.0, 3.0, 4.0, 5.0]);
            assert_eq!(series.clone().observations("s", 0, 500).count(), 1);
            series.halve(STEP);
            // An increase over the doubled step of a second.
            series.push(4.0, 1, STEP * 2);
            series.halve(STEP * 2);
            let all: Vec<_> = series.observations("s", 0, 2000).collect();
            let [mean, max] = &all[..] else {
                panic!("{all:?}")
            };
            assert_eq!((mean.metric.as_str(), max.metric.as_str()), ("m", "m.max"));
            assert_eq!(max.unit, unit);
            assert_eq!(mean.values, expected, "{kind:?}");
            assert_eq!(max.values, largest, "{kind:?}");
        }
    }

    #[test]
    fn missed_steps_and_a_last_bit() {
        for (kind, expected) in [
            (Kind::Increase, [1.0, 3.0, 3.0, 5.0]),
            (Kind::Mean, [1.0, 9.0, 9.0, 9.0]),
            (Kind::Level, [1.0, 9.0, 9.0, 9.0]),
        ] {
            let mut series = series(kind, &[1.0]);
            series.push(9.0, 3, STEP);
            series.fold(2.0);
            assert_eq!(series.values, expected, "{kind:?}");
        }
        let mut empty = series(Kind::Increase, &[]);
        empty.fold(2.0);
        assert_eq!(empty.len(), 0);
    }
}
