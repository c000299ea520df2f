//! Outcomes of requests, and bytes transferred.

use std::collections::BTreeMap;
use std::fmt::Display;

use floodmark_record::grpc::ResponseStatus;
use floodmark_record::outcome::Counts;
use floodmark_record::run::Run;
use floodmark_record::units::{show_bytes, show_count};

use super::document::{
    Cell, ColumnCell, Emphasis, Row, Span, Table, TextLine, count_cell, data, line, number_cell,
    plain, shown,
};
use super::figures::{glue, joined, optional, per_second, share};

/// Maximum number of listed status codes or errors. The most frequent come first.
const LISTED: usize = 5;

/// A function that returns the number of requests with an outcome.
pub type OutcomeCount = fn(&Counts) -> u64;

/// All outcomes except ok.
pub const OTHER_OUTCOMES: [(&str, OutcomeCount); 9] = [
    ("rejected", |c| c.rejected),
    ("wrong", |c| c.wrong),
    ("malformed", |c| c.malformed),
    ("reset", |c| c.reset),
    ("timed out", |c| c.timed_out),
    ("failed", |c| c.failed),
    ("connect failed", |c| c.connect_failed),
    ("unsent", |c| c.unsent),
    (IN_FLIGHT, |c| c.in_flight_at_end),
];

/// The only outcome that is neither a success nor a failure.
const IN_FLIGHT: &str = "in flight at the end";

/// Returns the number of intended requests without an ok response, for any reason.
pub(crate) fn not_ok(counts: &Counts) -> u64 {
    counts.intended.saturating_sub(counts.ok)
}

/// Returns whether requests were sent but no response arrived, not even a rejection.
pub(crate) fn unanswered(counts: &Counts) -> bool {
    counts.intended > 0 && [counts.ok, counts.rejected, counts.wrong, counts.malformed] == [0; 4]
}

/// Returns the cells for throughput and goodput.
pub(crate) fn rates(throughput_per_s: Option<f64>, goodput_per_s: Option<f64>) -> [ColumnCell; 2] {
    [
        number_cell("throughput_per_s", "ok/s", throughput_per_s, per_second),
        data("goodput_per_s", goodput_per_s),
    ]
}

/// Returns a cell that contains the number of failed requests.
pub(crate) fn failures(n: u64) -> ColumnCell {
    let failed = Emphasis::Bad.when(n > 0).span(show_count(n));
    shown("not ok", failed)
}

/// Returns the cells for the number of requests, in total and by outcome.
pub(crate) fn count_cells(of: &Counts) -> [ColumnCell; 12] {
    [
        data("intended", of.intended),
        data("sent", of.sent),
        count_cell("ok", "ok", of.ok),
        count_cell("not_ok", "not ok", not_ok(of)),
        data("rejected", of.rejected),
        data("wrong", of.wrong),
        data("malformed", of.malformed),
        data("reset", of.reset),
        data("timed_out", of.timed_out),
        data("in_flight_at_end", of.in_flight_at_end),
        data("unsent", of.unsent),
        data("connect_failed", of.connect_failed),
    ]
}

/// Returns the lines about outcomes. The counts are summed over `runs`.
pub(crate) fn lines(runs: &[&Run]) -> Vec<TextLine> {
    let mut counts = Counts::default();
    let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
    for run in runs {
        counts.merge(&run.requests);
        for (name, n) in run.request_errors() {
            *errors.entry(name).or_default() += n;
        }
    }
    let mut lines = vec![TextLine::new("outcomes", outcomes(&counts))];
    if counts.by_status().count() > 1 || counts.ok < counts.statuses.values().sum() {
        lines.extend(statuses(&counts));
    }
    lines.extend(bodies(runs));
    lines.extend(frequencies("errors", &errors));
    if counts.intended != counts.sent {
        lines.push(line("intended", equation(&counts)));
    }
    lines.extend(imbalance("", &counts));
    lines
}

/// Returns the number of responses by HTTP status and by gRPC status. HTTP statuses are omitted if
/// every response has a gRPC status.
pub(crate) fn statuses(counts: &Counts) -> Vec<TextLine> {
    let has_http =
        counts.grpc_statuses.is_empty() || counts.by_status().any(|(of, _)| of.grpc.is_none());
    let http = has_http.then(|| frequencies("statuses", &counts.statuses));
    let grpc = frequencies("gRPC status", &counts.grpc_statuses);
    http.flatten().into_iter().chain(grpc).collect()
}

/// For each status that was not ok, returns the body or the gRPC message of the first response.
pub(crate) fn bodies(runs: &[&Run]) -> Vec<TextLine> {
    let mut first: BTreeMap<ResponseStatus, &str> = BTreeMap::new();
    for response in runs.iter().flat_map(|run| &run.not_ok_responses) {
        first.entry(response.status).or_insert(&response.body);
    }
    let line = |(status, body): (ResponseStatus, &str)| {
        let body = if body.is_empty() { "(empty)" } else { body };
        match status.grpc {
            Some(grpc) => line("gRPC message", format!("{grpc}: {body}")),
            None => line(format!("body of {status}"), body),
        }
    };
    first.into_iter().map(line).collect()
}

/// Reports inconsistent counts, which indicate a bug in floodmark.
pub(crate) fn imbalance(label: &str, counts: &Counts) -> Option<TextLine> {
    let equation = counts.balance().err()?;
    let text = format!("the counts do not add up: {equation}");
    Some(TextLine::new(label, [Emphasis::Bad.span(text)]))
}

/// Returns a table of counts and shares with a column per named run.
pub(crate) fn table(named: &[(&str, &Run)]) -> Table {
    let ends: [(&str, OutcomeCount); 2] = [("ok", |c| c.ok), ("intended", |c| c.intended)];
    let outcomes = OTHER_OUTCOMES.into_iter();
    let met = outcomes.filter(|(_, count)| named.iter().any(|(_, run)| count(&run.requests) > 0));
    let row = |(name, count): (&str, OutcomeCount)| {
        let cell = |(_, run): &(&str, &Run)| {
            let (n, intended) = (count(&run.requests), run.requests.intended);
            let share = (intended > 0).then(|| share(n, intended));
            Cell::new(show_count(n), share)
        };
        Row::new(name, named.iter().map(cell).collect())
    };
    let rows = ends.into_iter().take(1).chain(met).chain([ends[1]]);
    Table::new(named.iter().map(|(name, _)| *name), rows.map(row))
}

fn outcomes(counts: &Counts) -> Vec<Span> {
    let mut ok = glue(&format!("{} ok", show_count(counts.ok)));
    if counts.ok < counts.intended {
        ok.push_str(&format!(" ({})", share(counts.ok, counts.intended)));
    }
    let mut spans = vec![plain(ok)];
    let others = OTHER_OUTCOMES.map(|(name, count)| (name, count(counts)));
    for (i, (name, n)) in others.into_iter().filter(|(_, n)| *n > 0).enumerate() {
        spans[i].text.push(',');
        let emphasis = Emphasis::Bad.when(name != IN_FLIGHT);
        spans.push(emphasis.span(glue(&format!("{} {name}", show_count(n)))));
    }
    spans
}

/// Returns an equation such as `12,000 = sent 11,900 + unsent 50 + connect failed 50`.
fn equation(counts: &Counts) -> String {
    let unsent = [
        ("unsent", counts.unsent),
        ("connect failed", counts.connect_failed),
    ];
    let unsent = unsent.into_iter().filter(|(_, n)| *n > 0);
    let terms = [("sent", counts.sent)].into_iter().chain(unsent);
    let terms = terms.map(|(name, n)| glue(&format!("{name} {}", show_count(n))));
    format!("{} = {}", show_count(counts.intended), joined(terms, " + "))
}

/// Returns text such as `200 × 17, 503 × 2`, most frequent first; `None` without entries.
pub(crate) fn frequencies<K: Display>(label: &str, counted: &BTreeMap<K, u64>) -> Option<TextLine> {
    let mut all: Vec<(&K, &u64)> = counted.iter().collect();
    // The sort is stable, so equally frequent entries stay ordered by name.
    all.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let listed = all.iter().take(LISTED);
    let listed = listed.map(|(name, n)| format!("{name}\u{a0}×\u{a0}{}", show_count(**n)));
    let more = all.len().saturating_sub(LISTED);
    let more = (more > 0).then(|| format!("{more} more"));
    let text = joined(listed.chain(more), ", ");
    (!text.is_empty()).then(|| line(label, text))
}

/// Describes the bytes sent and received. `None` for external clients, which do not report bytes.
pub(crate) fn traffic(runs: &[&Run]) -> Option<TextLine> {
    if runs.iter().all(|run| run.client.tool.is_some()) {
        return None;
    }
    let sent: u64 = runs.iter().map(|run| run.bytes.sent).sum();
    let received: u64 = runs.iter().map(|run| run.bytes.received).sum();
    // Byte counts cover the whole measurement, including the drain.
    let last = runs.iter().filter_map(|run| run.series.last());
    let length_s: f64 = last.map(|last| last.to_s).sum();
    let per_s = optional(Some(length_s).filter(|s| *s > 0.0), |s| {
        format!("{}/s", show_bytes((received as f64 / s) as u64))
    });
    let [sent, received, per_s] =
        [show_bytes(sent), show_bytes(received), per_s].map(|text| glue(&text));
    let text = format!("sent {sent}, received {received} ({per_s})");
    Some(line("traffic", text))
}
