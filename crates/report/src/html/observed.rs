//! What was read beside the load: counters of the host and of its network.

use floodmark_record::run::{Observation, Run};

use super::axis::{Axis, label_count};
use super::chart::{Chart, Curve, Ink};
use super::curves::{Join, Step, joined, pieces};
use super::names::Named;
use super::over_time::{Time, largest};
use crate::figures::seconds;

/// A value that is of the warm-up by a larger share than this is not one of the measurement.
const OF_WARMUP: f64 = 0.05;

/// Charts of counters at most; the record has all.
const MOST_CHARTS: usize = 8;

/// What is drawn before anything else, where it was not zero throughout: what keeps requests waiting or kills them.
const FIRST: [(&str, &str); 19] = [
    ("server sockets", "time_wait"),
    ("client sockets", "time_wait"),
    ("network", "tw"),
    ("network", "AttemptFails"),
    ("network", "ListenOverflows"),
    ("listener", "accept_queue"),
    ("server cgroup", "throttled_time"),
    ("jvm", "gc_time"),
    ("server", "run_delay"),
    ("store", "run_delay"),
    ("store jvm", "gc_time"),
    ("postgresql", "waiting for locks"),
    ("postgresql", "active"),
    ("cassandra", "Native-Transport-Requests pending"),
    ("cassandra", "MutationStage pending"),
    ("host", "steal"),
    ("server", "rss"),
    ("store", "rss"),
    ("disk", "io_time"),
];

/// What has a chart of its own, or tells nothing that could be seen in one.
const NOT_HERE: [(&str, &str); 10] = [
    ("server", "user"),
    ("server", "system"),
    ("client", "user"),
    ("client", "system"),
    ("store", "user"),
    ("store", "system"),
    ("server", "on_cpu"),
    ("client", "on_cpu"),
    ("store", "on_cpu"),
    ("listener", "accept_queue_limit"),
];

/// Charts of the counters that were not zero throughout, and the names of those that there was no room for.
pub(crate) fn charts(drawn: &[Named]) -> (Vec<Chart>, Vec<String>) {
    let Some(time) = Time::of(drawn) else {
        return (Vec::new(), Vec::new());
    };
    let mut keys: Vec<&Observation> = Vec::new();
    for one in drawn {
        for seen in &one.run.observations {
            let known = keys.iter().any(|key| same(key, seen));
            let moved = seen.values.iter().any(|value| *value != 0.0);
            let elsewhere = NOT_HERE.contains(&(seen.subject.as_str(), seen.metric.as_str()))
                || seen.metric.ends_with(".max");
            if moved && !known && !elsewhere {
                keys.push(seen);
            }
        }
    }
    let place = |key: &&Observation| {
        let of = (key.subject.as_str(), key.metric.as_str());
        FIRST.iter().position(|first| *first == of)
    };
    keys.sort_by_key(|key| place(key).unwrap_or(FIRST.len()));
    let charts = keys
        .iter()
        .take(MOST_CHARTS)
        .map(|key| chart(&time, drawn, key));
    let left = keys.iter().skip(MOST_CHARTS).map(|key| name(key));
    (charts.collect(), left.collect())
}

fn same(a: &Observation, b: &Observation) -> bool {
    (&a.subject, &a.metric, &a.source) == (&b.subject, &b.metric, &b.source)
}

fn name(seen: &Observation) -> String {
    format!("{} {}", seen.subject, seen.metric)
}

fn chart(time: &Time, drawn: &[Named], key: &Observation) -> Chart {
    let curve = |(i, one): (usize, &Named)| {
        let seen = one.run.observations.iter().find(|seen| same(seen, key))?;
        Some(Curve {
            name: match drawn.len() {
                1 => name(key),
                _ => one.name.clone(),
            },
            ink: Ink::Measured(i),
            pieces: pieces(one.run, &joined(&steps(one.run, seen), Join::Mean)),
        })
    };
    let curves: Vec<Curve> = drawn.iter().enumerate().filter_map(curve).collect();
    let y = Axis::from_zero(largest(&curves), label_count);
    let (step, from) = (seconds(key.step_ms as f64 / 1e3), &key.source);
    let unit = format!("{}, a value for each {step}, from {from}", key.unit);
    time.chart(&name(key), &unit, y, curves)
}

/// The values as steps, counted from the start of the measurement as the seconds of the series are.
fn steps(run: &Run, seen: &Observation) -> Vec<Step> {
    let warmup_s = run.warmup.as_ref().map_or(0.0, |warmup| warmup.duration_s);
    let held = run.connections.held.as_ref();
    let opening_s = held.map_or(0.0, |held| held.opening_ns as f64 / 1e9);
    let before_s = run
        .measured_from_ms
        .map_or(warmup_s + opening_s, |ms| ms as f64 / 1e3);
    let (start_s, step_s) = (seen.start_ms as f64 / 1e3, seen.step_ms as f64 / 1e3);
    let end_s = run.series.last().map_or(run.sending_s, |row| row.to_s);
    let step = |(i, value): (usize, &f64)| {
        let begun_s = start_s + i as f64 * step_s - before_s;
        Step {
            from_s: match begun_s {
                // A warm-up ends a little after its last second; the value after it is of the measurement all the same.
                s if s > -step_s * OF_WARMUP => s.max(0.0),
                s => s,
            },
            to_s: (begun_s + step_s).min(end_s),
            value: Some(*value),
        }
    };
    seen.values.iter().enumerate().map(step).collect()
}

#[cfg(test)]
mod tests {
    use floodmark_record::outcome::Counts;
    use floodmark_record::run::Warmup;

    use super::*;
    use crate::fixture;

    #[test]
    fn what_kills_requests_comes_first_and_what_is_drawn_elsewhere_not_at_all() {
        let seen = |subject: &str, metric: &str| Observation {
            subject: subject.to_owned(),
            metric: metric.to_owned(),
            unit: "u".to_owned(),
            source: String::new(),
            start_ms: 0,
            step_ms: 1000,
            values: vec![0.0, 1.0],
        };
        let mut run = fixture::closed();
        run.observations = vec![
            seen("host", "busy"),
            seen("server", "user"),
            seen("server", "rss"),
            seen("server", "rss.max"),
            seen("network", "AttemptFails"),
            seen("client sockets", "time_wait"),
        ];
        let drawn = [Named {
            name: String::new(),
            run: &run,
        }];
        let (charts, left) = charts(&drawn);
        let titles: Vec<&str> = charts.iter().map(|chart| chart.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "client sockets time_wait",
                "network AttemptFails",
                "server rss",
                "host busy"
            ]
        );
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn values_of_the_warmup_are_no_part_of_the_measurement() {
        let mut run = fixture::closed();
        run.measured_from_ms = None;
        let seen = Observation {
            subject: "network".to_owned(),
            metric: "tw".to_owned(),
            unit: "sockets".to_owned(),
            source: "/proc/net/sockstat".to_owned(),
            start_ms: 0,
            step_ms: 1000,
            values: vec![900.0, 901.0, 1.0, 2.0],
        };
        let drawn = |warmup_s: f64, run: &mut Run| {
            run.warmup = Some(Warmup {
                duration_s: warmup_s,
                requests: Counts::default(),
            });
            let steps = joined(&steps(run, &seen), Join::Mean);
            steps
                .iter()
                .map(|step| (step.from_s, step.value))
                .collect::<Vec<_>>()
        };
        let whole = drawn(2.0004, &mut run);
        assert_eq!(whole.len(), 2);
        assert_eq!(whole[0], (0.0, Some(1.0)));
        assert_eq!(whole[1].1, Some(2.0));
        // One that is of both stands for neither.
        assert_eq!(drawn(2.5, &mut run), [(0.5, Some(2.0))]);
        // What was told of the series' own clock is better than the sum of what came before.
        run.measured_from_ms = Some(1000);
        assert_eq!(drawn(2.5, &mut run).len(), 3);
    }
}
