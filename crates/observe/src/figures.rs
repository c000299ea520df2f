//! Figures that a source gives by name, of which some come up only while it is read.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::samples::subject;
use crate::series::{Kind, Subject};

/// The figures of one kind of reading, each in the place where it first stood.
#[derive(Debug)]
pub(crate) struct Figures {
    of: &'static str,
    places: HashMap<Cow<'static, str>, usize>,
    kinds: Vec<Kind>,
    values: Vec<f64>,
    found: Vec<Subject>,
}

impl Figures {
    /// Figures of a subject.
    pub(crate) fn of(of: &'static str) -> Self {
        Self {
            of,
            places: HashMap::new(),
            kinds: Vec::new(),
            values: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Begins a reading: a level that is not told is 0, a counter that is not told has stood still.
    pub(crate) fn begin(&mut self) {
        for (value, kind) in self.values.iter_mut().zip(&self.kinds) {
            if *kind != Kind::Increase {
                *value = 0.0;
            }
        }
    }

    /// A figure is there from now on, whatever its value.
    pub(crate) fn keep(
        &mut self,
        metric: impl Into<Cow<'static, str>>,
        unit: &'static str,
        kind: Kind,
    ) {
        self.place(metric.into(), unit, kind);
    }

    /// Takes a level in; one that was 0 so far needs no series. What comes under the same name adds up.
    pub(crate) fn level(
        &mut self,
        metric: impl Into<Cow<'static, str>>,
        unit: &'static str,
        value: f64,
    ) {
        let metric = metric.into();
        if value != 0.0 || self.places.contains_key(&metric) {
            let place = self.place(metric, unit, Kind::Level);
            self.values[place] += value;
        }
    }

    /// Takes in where a counter stands; one that was 0 so far needs no series.
    pub(crate) fn counter(
        &mut self,
        metric: impl Into<Cow<'static, str>>,
        unit: &'static str,
        value: f64,
    ) {
        let metric = metric.into();
        if value != 0.0 || self.places.contains_key(&metric) {
            let place = self.place(metric, unit, Kind::Increase);
            self.values[place] = value;
        }
    }

    fn place(&mut self, metric: Cow<'static, str>, unit: &'static str, kind: Kind) -> usize {
        if let Some(place) = self.places.get(&metric) {
            return *place;
        }
        let place = self.values.len();
        self.found
            .push(subject(self.of, metric.clone(), unit, kind));
        self.places.insert(metric, place);
        self.kinds.push(kind);
        self.values.push(0.0);
        place
    }

    /// The values, in the order in which they were found.
    pub(crate) fn values(&self) -> &[f64] {
        &self.values
    }

    /// What was found since this was last asked.
    pub(crate) fn found(&mut self) -> Vec<Subject> {
        std::mem::take(&mut self.found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_begin_with_the_first_value_and_keep_their_place() {
        let mut figures = Figures::of("postgresql");
        figures.keep("active", "sessions", Kind::Level);
        figures.level("idle", "sessions", 0.0);
        figures.counter("commits", "count", 0.0);
        assert_eq!(figures.values(), [0.0]);
        figures.begin();
        figures.counter("commits", "count", 7.0);
        figures.level("idle", "sessions", 2.0);
        figures.level("idle", "sessions", 1.0);
        assert_eq!(figures.values(), [0.0, 7.0, 3.0]);
        let found = figures.found();
        let names: Vec<&str> = found.iter().map(|subject| &*subject.metric).collect();
        assert_eq!(names, ["active", "commits", "idle"]);
        assert_eq!((found[1].kind, found[1].unit), (Kind::Increase, "count"));
        figures.begin();
        figures.level("active", "sessions", 1.0);
        assert_eq!(figures.values(), [1.0, 7.0, 0.0]);
        assert!(figures.found().is_empty());
    }
}
