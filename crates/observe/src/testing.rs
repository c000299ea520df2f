//! Finds series in the results of a sampler, for tests.

use floodmark_record::Observation;
use floodmark_record::watch::Observed;

/// Returns the series with the given subject and name.
pub(crate) fn series<'a>(observed: &'a Observed, subject: &str, name: &str) -> &'a Observation {
    let mut all = observed.observations.iter().filter(|of| !of.is_peak);
    let found = all.find(|of| of.metric.subject() == subject && of.metric.name() == name);
    found.unwrap_or_else(|| {
        let all: Vec<_> = observed.observations.iter().map(|of| &of.metric).collect();
        panic!("no {subject} {name} among {all:?}")
    })
}

pub(crate) fn sum(observed: &Observed, subject: &str, name: &str) -> f64 {
    series(observed, subject, name).values.iter().sum()
}

pub(crate) fn max(observed: &Observed, subject: &str, name: &str) -> f64 {
    let values = &series(observed, subject, name).values;
    values.iter().copied().fold(0.0, f64::max)
}
