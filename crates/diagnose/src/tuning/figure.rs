//! The figure of a server process.

use floodmark_record::capacity::{CapacityEnd, CapacityKind, CapacityResult};
use floodmark_record::interval::Interval;

use crate::text::per_s;

/// Figure of a server process: known, a lower bound, or missing.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum MeasuredFigure {
    /// Figure per second, and its interval within the process.
    Known(f64, Option<Interval>),
    /// Lower bound of the figure per second, and why a higher figure was not measured.
    AtLeast(f64, String),
    /// There is no figure. Contains the reason, unless the runs of the process state it.
    Missing(Option<String>),
}

impl MeasuredFigure {
    /// Returns the figure or its lower bound, per second.
    pub(super) fn per_s(&self) -> Option<f64> {
        match self {
            MeasuredFigure::Known(per_s, _) | MeasuredFigure::AtLeast(per_s, _) => Some(*per_s),
            MeasuredFigure::Missing(_) => None,
        }
    }

    /// Returns the interval within the process.
    pub(super) fn interval(&self) -> Option<&Interval> {
        match self {
            MeasuredFigure::Known(_, interval) => interval.as_ref(),
            MeasuredFigure::AtLeast(..) | MeasuredFigure::Missing(_) => None,
        }
    }

    /// Returns why the figure is only a lower bound, or `None` for other figures.
    pub(super) fn bound_limit(&self) -> Option<&str> {
        match self {
            MeasuredFigure::AtLeast(_, limit) => Some(limit),
            MeasuredFigure::Known(..) | MeasuredFigure::Missing(_) => None,
        }
    }

    /// Returns why the figure is missing or only a lower bound.
    pub(super) fn note(&self) -> Option<&String> {
        match self {
            MeasuredFigure::Known(..) => None,
            MeasuredFigure::AtLeast(_, limit) => Some(limit),
            MeasuredFigure::Missing(why) => why.as_ref(),
        }
    }

    /// Returns the capacity of a process from its search. `found` is `None` if no response was ok,
    /// because the search could then not start.
    pub(super) fn of_capacity(found: Option<&CapacityResult>) -> Self {
        let missing = |why: &str| MeasuredFigure::Missing(Some(why.to_owned()));
        let Some(found) = found else {
            return missing("no response was ok, so the search could not start");
        };
        if found
            .end
            .as_ref()
            .is_none_or(|end| end.reason == CapacityEnd::Failed)
        {
            return missing("the search failed");
        }
        if let Some((per_s, interval)) = found.sustained() {
            return MeasuredFigure::Known(per_s, interval);
        }
        let at_least = |per_s, limit: &str| MeasuredFigure::AtLeast(per_s, limit.to_owned());
        match (found.finding, found.rate_per_s, found.last_per_s) {
            (CapacityKind::ClientLimit, Some(rate), _) => {
                at_least(rate, "the highest rate that the client can send on time")
            }
            (CapacityKind::AboveHighest, Some(rate), _) => {
                at_least(rate, "the highest rate of the search")
            }
            (CapacityKind::Never, Some(rate), _) => missing(&format!(
                "the server misses the objectives even at {}",
                per_s(rate)
            )),
            (CapacityKind::NotStationary, Some(first), Some(last)) => missing(&format!(
                "not stationary: the capacity changed from {} to {} during the search",
                per_s(first),
                per_s(last)
            )),
            _ => missing(
                "the search ended before one trial had passed and one had missed; use a longer `budget` in \
                 [capacity]",
            ),
        }
    }
}
