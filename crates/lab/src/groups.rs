//! The figures of a mix's groups: counts from the rows, times from the worker's last word.

use floodmark_record::groups::{Group, GroupRow};
use floodmark_record::run::Bytes;
use floodmark_record::{SecondRow, TimeKind};
use floodmark_stats::Histogram;

use crate::tally::Tally;

/// From what is to be summed over the rows of the window to that sum per second.
type PerSecond<'a> = dyn Fn(&dyn Fn(&SecondRow) -> u64) -> Option<f64> + 'a;

/// The groups of a run, in the order of its plan's mix; `in_window` gives what the rows of the window have per second.
pub fn groups(tally: &Tally, in_window: &PerSecond<'_>) -> Vec<Group> {
    let requests = tally.plan.mix.iter().flat_map(|mix| &mix.requests);
    let group = |(index, name): (usize, &String)| {
        let of =
            |row: &SecondRow, what: fn(&GroupRow) -> u64| row.groups.get(index).map_or(0, what);
        let sum =
            |what: fn(&GroupRow) -> u64| tally.rows.iter().map(|row| of(&row.row, what)).sum();
        let told = tally.end.as_ref().and_then(|end| end.groups.get(index));
        let times = |kind: TimeKind| -> Histogram {
            told.and_then(|times| Histogram::decode(times.get(&kind)?).ok())
                .unwrap_or_default()
        };
        let none = Histogram::new();
        let summary = |kind| Histogram::summarise(&times(kind), &none);
        Group {
            name: name.clone(),
            throughput_per_s: in_window(&|row| of(row, |group| group.ok_in_window)),
            goodput_per_s: in_window(&|row| of(row, |group| group.good_in_window)),
            requests: tally.group_counts(index),
            bytes: Bytes {
                sent: sum(|group| group.bytes_sent),
                received: sum(|group| group.bytes_received),
            },
            response_time_us: Histogram::summarise(
                &times(TimeKind::Response),
                &times(TimeKind::Censored),
            ),
            service_time_us: summary(TimeKind::Service),
            blocked_us: summary(TimeKind::Blocked),
            lateness_us: summary(TimeKind::Lateness),
            first_byte_us: summary(TimeKind::FirstByte),
            error_time_us: summary(TimeKind::Error),
        }
    };
    requests
        .map(|request| &request.name)
        .enumerate()
        .map(group)
        .collect()
}
