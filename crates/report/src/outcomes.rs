//! What became of the requests, and their bytes, over one run or several attempts.

use std::collections::BTreeMap;
use std::fmt::Display;

use floodmark_record::outcome::Counts;
use floodmark_record::run::Run;
use floodmark_record::units::{show_bytes, show_count};

use crate::figures::{NOT_MEASURED, share};
use crate::page::{Page, Span, glue, plain};
use crate::style::Paint;

/// At most this many status codes or named errors are listed, most frequent first.
const LISTED: usize = 5;

/// Draws outcomes and bytes, added up over `runs`.
pub(crate) fn draw(page: &mut Page, runs: &[&Run]) {
    let mut counts = Counts::default();
    let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
    for run in runs {
        counts.merge(&run.requests);
        for (name, n) in &run.errors {
            *errors.entry(name).or_default() += n;
        }
    }
    draw_outcomes(page, &counts);
    if counts.statuses.len() > 1 || counts.ok < counts.statuses.values().sum() {
        page.entry("statuses", &[plain(most_frequent(&counts.statuses))]);
    }
    if !errors.is_empty() {
        page.entry("errors", &[plain(most_frequent(&errors))]);
    }
    if counts.intended != counts.sent {
        page.entry("intended", &[plain(equation(&counts))]);
    }
    // A record whose counts do not add up is a fault of floodmark's, and no figure of it may pass unmarked.
    if let Err(equation) = counts.balance() {
        let text = format!("the counts do not add up: {equation}");
        page.entry("", &[(Paint::Bad, text)]);
    }
    draw_bytes(page, runs);
}

/// Requests whose time came and that were not answered ok, whatever became of them.
pub(crate) fn not_ok(counts: &Counts) -> u64 {
    counts.intended.saturating_sub(counts.ok)
}

/// Whether something was asked and nothing came back, not even a refusal.
pub(crate) fn unanswered(counts: &Counts) -> bool {
    counts.intended > 0 && [counts.ok, counts.rejected, counts.wrong, counts.malformed] == [0; 4]
}

fn draw_outcomes(page: &mut Page, counts: &Counts) {
    let mut ok = glue(&format!("{} ok", show_count(counts.ok)));
    if counts.ok < counts.intended {
        ok.push_str(&format!(" ({})", share(counts.ok, counts.intended)));
    }
    let others = [
        (counts.rejected, "rejected"),
        (counts.wrong, "wrong"),
        (counts.malformed, "malformed"),
        (counts.reset, "reset"),
        (counts.timed_out, "timed out"),
        (counts.failed, "failed"),
        (counts.connect_failed, "connect failed"),
        (counts.unsent, "unsent"),
        (counts.in_flight_at_end, "in flight at the end"),
    ];
    let mut pieces = vec![(Paint::Plain, ok)];
    for (n, name) in others.into_iter().filter(|(n, _)| *n > 0) {
        let paint = if name.starts_with("in flight") {
            Paint::Plain
        } else {
            Paint::Bad
        };
        pieces.push((paint, glue(&format!("{} {name}", show_count(n)))));
    }
    let last = pieces.len() - 1;
    let spans: Vec<Span> = pieces
        .into_iter()
        .enumerate()
        .map(|(i, (paint, text))| (paint, if i < last { text + "," } else { text }))
        .collect();
    page.entry("outcomes", &spans);
}

fn equation(counts: &Counts) -> String {
    let parts = [
        (counts.sent, "sent"),
        (counts.unsent, "unsent"),
        (counts.connect_failed, "connect failed"),
    ];
    let sum: Vec<String> = parts
        .into_iter()
        .filter(|(n, name)| *n > 0 || *name == "sent")
        .map(|(n, name)| glue(&format!("{name} {}", show_count(n))))
        .collect();
    format!("{} = {}", show_count(counts.intended), sum.join(" + "))
}

/// `200 × 17, 503 × 2`, most frequent first.
pub(crate) fn most_frequent<K: Display>(counted: &BTreeMap<K, u64>) -> String {
    let mut all: Vec<(&K, &u64)> = counted.iter().collect();
    // Stable: equally frequent ones stay in the order of their names.
    all.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let mut text: Vec<String> = all
        .iter()
        .take(LISTED)
        .map(|(name, n)| format!("{name}\u{a0}×\u{a0}{}", show_count(**n)))
        .collect();
    if all.len() > LISTED {
        text.push(format!("{} more kinds", all.len() - LISTED));
    }
    text.join(", ")
}

fn draw_bytes(page: &mut Page, runs: &[&Run]) {
    if runs.iter().all(|run| run.client.tool.is_some()) {
        // Other load generators are not asked for them.
        return;
    }
    let sent: u64 = runs.iter().map(|run| run.bytes.sent).sum();
    let received: u64 = runs.iter().map(|run| run.bytes.received).sum();
    // Bytes are of the whole measurement, so their rate is over all of it, draining included.
    let length: f64 = runs
        .iter()
        .filter_map(|run| run.series.last())
        .map(|last| last.to_s)
        .sum();
    let per_s = if length > 0.0 {
        format!("{}/s", show_bytes((received as f64 / length) as u64))
    } else {
        NOT_MEASURED.to_owned()
    };
    page.entry(
        "traffic",
        &[plain(format!(
            "sent {}, received {} ({})",
            glue(&show_bytes(sent)),
            glue(&show_bytes(received)),
            glue(&per_s)
        ))],
    );
}
