//! Computes the figures of a mix's groups. The counts come from the rows. The times come from the
//! worker's last event.

use floodmark_record::events::GroupRow;
use floodmark_record::run::{GroupFigures, HttpBytes};
use floodmark_record::{SecondRow, TimeKind};

use crate::figure_window::FigureWindow;
use crate::run_events::RunEvents;
use crate::time_histograms::TimeHistograms;

/// Returns the figures of a run's groups, in the order of the plan's mix.
pub fn groups(run: &RunEvents, window: &FigureWindow) -> Vec<GroupFigures> {
    let requests = run.plan.mix.iter().flat_map(|mix| &mix.requests);
    let group = |(index, name): (usize, &String)| {
        let of =
            |row: &SecondRow, what: fn(&GroupRow) -> u64| row.groups.get(index).map_or(0, what);
        let sum = |what: fn(&GroupRow) -> u64| run.rows.iter().map(|row| of(&row.row, what)).sum();
        let mean = |what| window.per_second(run, |row| of(row, what));
        let end = run.end.as_ref();
        let times = end.and_then(|end| end.groups.get(index));
        let times = times.map(|times| TimeHistograms::decode(times, |_| true));
        let times = times.unwrap_or_default();
        GroupFigures {
            name: name.clone(),
            throughput_per_s: mean(|group| group.ok_in_window),
            goodput_per_s: mean(|group| group.good_in_window),
            requests: run.group_counts(index),
            bytes: HttpBytes {
                sent: sum(|group| group.bytes_sent),
                received: sum(|group| group.bytes_received),
            },
            response_time_us: times.summary(TimeKind::Response),
            service_time_us: times.summary(TimeKind::Service),
            blocked_us: times.summary(TimeKind::Blocked),
            lateness_us: times.summary(TimeKind::Lateness),
            first_byte_us: times.summary(TimeKind::FirstByte),
            error_time_us: times.summary(TimeKind::Error),
        }
    };
    let names = requests.map(|request| &request.name).enumerate();
    names.map(group).collect()
}
