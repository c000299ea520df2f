//! Evaluates `--abort-if` conditions on the seconds of a running load.

use std::time::Duration;

use floodmark_diagnose::conditions::AbortCondition;
use floodmark_record::events::{Abort, GroupRow, Phase};
use floodmark_record::figure::{Figure, Measured};
use floodmark_record::plan::Plan;
use floodmark_record::{Counts, SecondRow, TimeKind, Times};

use crate::run_events::TimeHistograms;

/// Shorter rows are not evaluated. The last row of a load may be shorter than a second.
const MIN_ROW_NS: u64 = 100_000_000;

/// Evaluates conditions on each second of a load.
pub(crate) struct AbortMonitor<'a> {
    conditions: Vec<SustainedCondition<'a>>,
    timeout: Duration,
    /// Planned end of the sending window, in ns; `None` if only a number of requests ends it.
    window_ns: Option<u64>,
    /// Number of requests after which the sending window ends, if any.
    requests: Option<u64>,
    /// Number of requests due so far.
    intended: u64,
}

/// A condition and how long it has held.
struct SustainedCondition<'a> {
    of: &'a AbortCondition,
    /// Index of the condition's request in the mix; `None` if the condition applies to all
    /// requests.
    group: Option<usize>,
    held_ns: u64,
}

/// The figures of one second, of all requests or of one request in a mix.
struct IntervalFigures {
    length_s: f64,
    row: GroupRow,
    times: Option<(TimeKind, Times)>,
}

impl Measured for IntervalFigures {
    fn rates(&self) -> [Option<f64>; 2] {
        let per_s = |count| Some(count as f64 / self.length_s);
        [per_s(self.row.ok_in_window), per_s(self.row.good_in_window)]
    }

    fn requests(&self) -> &Counts {
        &self.row.counts
    }

    fn times(&self, kind: TimeKind) -> Option<&Times> {
        let (known, times) = self.times.as_ref()?;
        (*known == kind).then_some(times)
    }

    /// Returns the number of requests that ended in this second. They may have become due earlier.
    fn with_known_outcome(&self) -> u64 {
        let counts = &self.row.counts;
        counts.ended() + counts.connect_failed + counts.unsent
    }
}

impl<'a> AbortMonitor<'a> {
    /// Creates a monitor for a load. The plan's mix must contain every request that a condition names.
    pub(crate) fn new(conditions: &'a [AbortCondition], plan: &Plan) -> Self {
        let group = |of: &AbortCondition| {
            let name = of.condition.group.as_ref()?;
            let requests = &plan.mix.as_ref()?.requests;
            requests.iter().position(|request| request.name == *name)
        };
        let conditions = conditions.iter().map(|of| SustainedCondition {
            of,
            group: group(of),
            held_ns: 0,
        });
        AbortMonitor {
            conditions: conditions.collect(),
            timeout: plan.timeout,
            window_ns: plan.duration_s().map(|s| (s * 1e9).round() as u64),
            requests: plan.request_limit(),
            intended: 0,
        }
    }

    /// Adds a second. Returns the first condition that has held for its required time. Once the
    /// sending window has ended, conditions are not evaluated, because nothing is left to end.
    pub(crate) fn take(&mut self, row: &SecondRow) -> Option<Abort> {
        let length_ns = row.to_ns - row.from_ns;
        if row.phase != Phase::Measure {
            return None;
        }
        self.intended += row.counts.intended;
        let has_sent_all = self.requests.is_some_and(|n| self.intended >= n)
            || self.window_ns.is_some_and(|end| row.to_ns >= end);
        if has_sent_all || length_ns < MIN_ROW_NS {
            return None;
        }
        let mut fired = None;
        for sustained in &mut self.conditions {
            let condition = &sustained.of.condition;
            let figures = figures(row, condition.subject, sustained.group);
            let (met, figure) = condition.judge_figure(&figures, self.timeout);
            sustained.held_ns = match met {
                Some(true) => sustained.held_ns + length_ns,
                Some(false) | None => 0,
            };
            if u128::from(sustained.held_ns) >= sustained.of.sustained.as_nanos() {
                fired.get_or_insert(Abort {
                    condition: sustained.of.to_string(),
                    figure,
                    at_ns: row.to_ns,
                });
            }
        }
        fired
    }
}

/// Returns what a condition on `figure` needs of a second.
fn figures(row: &SecondRow, figure: Figure, group: Option<usize>) -> IntervalFigures {
    let times = match figure {
        Figure::Time(kind, _) => {
            let select = |other| match kind {
                TimeKind::Response => matches!(other, TimeKind::Response | TimeKind::Censored),
                _ => other == kind,
            };
            Some((
                kind,
                TimeHistograms::decode(&row.histograms, select).summary(kind),
            ))
        }
        Figure::Number(_) => None,
    };
    let all = || GroupRow {
        counts: row.counts.clone(),
        good: row.good,
        ok_in_window: row.ok_in_window,
        good_in_window: row.good_in_window,
        bytes_sent: row.bytes_sent,
        bytes_received: row.bytes_received,
    };
    IntervalFigures {
        length_s: (row.to_ns - row.from_ns) as f64 / 1e9,
        row: group.map_or_else(all, |group| {
            row.groups.get(group).cloned().unwrap_or_default()
        }),
        times,
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::plan::{Length, Model};

    use super::*;

    /// Returns second `index`, in which `ok` requests succeed and `wrong` fail.
    fn second(index: u64, ok: u64, wrong: u64) -> SecondRow {
        let counts = Counts {
            intended: ok,
            sent: ok,
            ok,
            wrong,
            ..Counts::default()
        };
        let empty = serde_json::json!({
            "phase": "measure", "index": index, "from_ns": index * 1_000_000_000,
            "to_ns": (index + 1) * 1_000_000_000, "counts": counts, "good": ok, "ok_in_window": ok,
            "good_in_window": ok, "bytes_sent": 0, "bytes_received": 0, "connects": 0,
            "open_connections": 0, "user_s": 0.0, "system_s": 0.0, "histograms": {},
        });
        serde_json::from_value(empty).unwrap()
    }

    /// Returns the times, in seconds, at which a condition fires. Each second has 100 requests.
    fn fires(condition: &str, wrong: &[u64]) -> Vec<u64> {
        let conditions = [condition.parse().unwrap()];
        let address: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
        let mut monitor = AbortMonitor::new(&conditions, &Plan::of(address.into()));
        let rows = (0..)
            .zip(wrong)
            .map(|(index, wrong)| second(index, 100 - wrong, *wrong));
        let fired = rows.filter_map(|row| monitor.take(&row));
        fired.map(|abort| abort.at_ns / 1_000_000_000).collect()
    }

    #[test]
    fn a_condition_must_hold_without_interruption() {
        assert_eq!(fires("errors > 20% for 2s", &[30, 10, 30, 30, 0]), [4]);
        assert_eq!(fires("errors > 20% for 1s", &[0, 21, 20]), [2]);
        assert_eq!(fires("errors > 20%", &[50; 4]), [0; 0]);
        assert_eq!(fires("throughput < 10/s for 2s", &[0, 95, 100, 0]), [3]);
    }

    #[test]
    fn the_last_second_of_the_window_meets_no_condition() {
        let conditions = ["throughput < 200/s for 2s".parse().unwrap()];
        let address: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
        let plan = |seconds| Plan {
            model: Model::Closed {
                length: Length::seconds(seconds),
            },
            ..Plan::of(address.into())
        };
        for (seconds, fires) in [(2.0, false), (3.0, true)] {
            let mut monitor = AbortMonitor::new(&conditions, &plan(seconds));
            let rows = [second(0, 100, 0), second(1, 100, 0)];
            let fired = rows.iter().any(|row| monitor.take(row).is_some());
            assert_eq!(fired, fires, "{seconds}");
        }
    }

    #[test]
    fn the_wait_for_the_last_responses_meets_no_condition() {
        let conditions = ["throughput < 10/s for 1s".parse().unwrap()];
        let address: std::net::SocketAddr = "127.0.0.1:1".parse().unwrap();
        let plan = |length| Plan {
            model: Model::Closed { length },
            ..Plan::of(address.into())
        };
        for length in [Length::seconds(2.0), Length::Requests(200)] {
            let mut monitor = AbortMonitor::new(&conditions, &plan(length));
            let rows = [second(0, 100, 0), second(1, 100, 0), second(2, 0, 0)];
            assert!(
                rows.iter().all(|row| monitor.take(row).is_none()),
                "{length:?}"
            );
        }
        let mut monitor = AbortMonitor::new(&conditions, &plan(Length::Requests(101)));
        let rows = [second(0, 100, 0), second(1, 0, 0)];
        assert!(rows.iter().any(|row| monitor.take(row).is_some()));
    }

    #[test]
    fn a_figure_without_samples_meets_no_condition() {
        assert_eq!(fires("p99 > 1ms for 1s", &[0, 0]), [0; 0]);
    }
}
