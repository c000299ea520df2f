//! A series of values at equal distances, of bounded length.

use floodmark_record::run::Observation;

/// Most values of one series. A run that is longer halves the resolution: an hour at one a second.
///
/// With the 20 series of the sampler, at most 12 characters a value, this stays below 1 MiB in the record.
pub(crate) const MOST_VALUES: usize = 3_600;

/// What a value is of the step it stands for, and so how two steps become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What a counter grew by: two add up.
    Increase,
    /// A rate or share over the step: two give their mean.
    Mean,
    /// A level at the end of the step: the later one holds.
    Level,
}

impl Kind {
    fn join(self, first: f64, second: f64) -> f64 {
        match self {
            Self::Increase => first + second,
            Self::Mean => f64::midpoint(first, second),
            Self::Level => second,
        }
    }
}

/// What a series is of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject {
    pub subject: &'static str,
    pub metric: &'static str,
    pub unit: &'static str,
    pub kind: Kind,
}

/// The values of one metric.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub subject: Subject,
    values: Vec<f64>,
}

impl Series {
    pub(crate) fn new(subject: Subject) -> Self {
        Self {
            subject,
            values: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Adds what was read over `steps` steps (more than one where the sampler itself was kept from running): an increase is
    /// spread evenly over them, anything else is repeated.
    pub(crate) fn push(&mut self, value: f64, steps: usize) {
        let steps = steps.max(1);
        let each = match self.subject.kind {
            Kind::Increase => value / steps as f64,
            Kind::Mean | Kind::Level => value,
        };
        self.values
            .extend(std::iter::repeat_n(rounded(each), steps));
    }

    /// Joins what was read in a last bit of a step to the step before, so that no increase is lost and no share is taken of
    /// a time too short for the kernel's ticks.
    pub(crate) fn fold(&mut self, value: f64) {
        if let Some(last) = self.values.last_mut()
            && self.subject.kind != Kind::Mean
        {
            *last = rounded(self.subject.kind.join(*last, value));
        }
    }

    /// Makes one value of each two; an odd last one is kept alone.
    pub(crate) fn halve(&mut self) {
        let kind = self.subject.kind;
        self.values = self
            .values
            .chunks(2)
            .map(|pair| match *pair {
                [first, second] => rounded(kind.join(first, second)),
                _ => pair[0],
            })
            .collect();
    }

    pub(crate) fn observation(self, source: &str, start_ms: u64, step_ms: u64) -> Observation {
        Observation {
            subject: self.subject.subject.to_owned(),
            metric: self.subject.metric.to_owned(),
            unit: self.subject.unit.to_owned(),
            source: source.to_owned(),
            start_ms,
            step_ms,
            values: self.values,
        }
    }
}

/// Six decimals: microseconds of a second, and short in JSON.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(kind: Kind, values: &[f64]) -> Series {
        let mut series = Series::new(Subject {
            subject: "host",
            metric: "m",
            unit: "u",
            kind,
        });
        for value in values {
            series.push(*value, 1);
        }
        series
    }

    #[test]
    fn halving_keeps_sums_means_and_levels() {
        for (kind, expected) in [
            (Kind::Increase, [3.0, 7.0, 5.0]),
            (Kind::Mean, [1.5, 3.5, 5.0]),
            (Kind::Level, [2.0, 4.0, 5.0]),
        ] {
            let mut series = series(kind, &[1.0, 2.0, 3.0, 4.0, 5.0]);
            series.halve();
            assert_eq!(series.values, expected, "{kind:?}");
        }
    }

    #[test]
    fn missed_steps_and_a_last_bit() {
        for (kind, expected) in [
            (Kind::Increase, [1.0, 3.0, 3.0, 5.0]),
            (Kind::Mean, [1.0, 9.0, 9.0, 9.0]),
            (Kind::Level, [1.0, 9.0, 9.0, 2.0]),
        ] {
            let mut series = series(kind, &[1.0]);
            series.push(9.0, 3);
            series.fold(2.0);
            assert_eq!(series.values, expected, "{kind:?}");
        }
        let mut empty = series(Kind::Increase, &[]);
        empty.fold(2.0);
        assert_eq!(empty.len(), 0);
    }
}
