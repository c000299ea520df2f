//! Performance targets for floodmark, relative to other load generators.

use std::ops::RangeInclusive;

use floodmark_record::units::show_count;

use super::RATE;
use super::page::{PeersPage, pairs};
use super::stalls::{StallRounds, ms, p99_error};
use crate::experiment::{FRESH, HTTPS, KEPT, NginxLoad};
use crate::samples::{PeerSample, Rounds};
use crate::statistics::{Median, MedianInterval, estimate};
use crate::table::{DASH, cell, table};

/// Required range of a ratio.
type Required = RangeInclusive<f64>;

/// A target: load, name, figure, peer and required ratio. The ratio is floodmark's figure divided
/// by the peer's figure from the same round.
#[rustfmt::skip]
type RatioTarget = (NginxLoad, &'static str, fn(&PeerSample) -> f64, &'static str, Required);

const CPU: fn(&PeerSample) -> f64 = |sample| sample.cpu_us;
const PER_S: fn(&PeerSample) -> f64 = |sample| sample.per_s;

#[rustfmt::skip]
const TARGETS: [RatioTarget; 6] = [
    (KEPT, "kept: CPU per request ÷ wrk's", CPU, "wrk", 0.0..=0.85),
    (KEPT, "kept: CPU per request ÷ oha's", CPU, "oha", 0.0..=0.55),
    (KEPT, "kept: requests/s ÷ wrk's", PER_S, "wrk", 1.0..=f64::INFINITY),
    (FRESH, "fresh: CPU per connection ÷ wrk's", CPU, "wrk", 0.0..=0.75),
    (FRESH, "fresh: requests/s ÷ wrk's", PER_S, "wrk", 1.2..=f64::INFINITY),
    (HTTPS, "HTTPS kept: CPU per request ÷ wrk's", CPU, "wrk", 0.0..=0.85),
];

fn required_text(required: &Required) -> String {
    match (*required.start(), *required.end()) {
        (limit, f64::INFINITY) => format!("≥ {limit:.2}"),
        (_, limit) => format!("≤ {limit:.2}"),
    }
}

/// Returns the section of the page.
pub fn section(page: &PeersPage) -> String {
    let ours = || {
        let peers = page.peers.iter();
        peers.filter_map(|peer| Some((peer.name, peer.backend()?)))
    };
    let mut rows = Vec::new();
    let mut add = |name: &str, backend: &str, cells: [String; 7]| {
        let first = vec![name.to_owned(), backend.to_owned()];
        rows.push([first, cells.to_vec()].concat());
    };
    for (load, name, figure, peer, required) in TARGETS {
        let measured = page.closed.iter().find(|measured| measured.load == load);
        for (our, backend) in ours() {
            let ratio = measured.and_then(|measured| {
                let ours = without_failures(measured.of(our)?);
                estimate(pairs(&ours, measured.of(peer)?, figure))
            });
            add(name, backend, ratio_cells(ratio, page.rounds, &required));
        }
    }
    let rate = show_count(RATE);
    let name = format!("absolute error of p99 at {rate}/s under stalls, ms");
    for (our, backend) in ours() {
        add(&name, backend, error_cells(&page.stalls, our));
    }
    let heads = "target | backend | pairs | median | interval | level | required | met | met by the interval";
    format!(
        "## Targets\n\n\
A ratio compares two figures from the same round. The table shows the median ratio and an exact interval between two order statistics, \
which contains the true median with a probability of at least *level*. *Pairs* is the number of rounds, excluding rounds in \
which floodmark's run was invalid or had failed requests. A target is *met* if the median meets the requirement, and *met by the \
interval* if both ends of the interval do. The last target compares median absolute errors, with their range as the interval; \
floodmark's median error must be lower than every other peer's.\n\n{}",
        table(heads, rows)
    )
}

/// Returns the samples of runs without failures.
fn without_failures(rounds: &Rounds) -> Rounds {
    let whole = |sample: &PeerSample| sample.failures.is_none();
    rounds.iter().map(|s| s.clone().filter(whole)).collect()
}

fn ratio_cells(ratio: Option<Median>, rounds: usize, required: &Required) -> [String; 7] {
    let Some(ratio) = ratio else {
        return unmeasured(rounds, required_text(required));
    };
    let interval = |text: &dyn Fn(MedianInterval) -> String| cell(ratio.interval, text);
    [
        format!("{} of {rounds}", ratio.count),
        format!("{:.3}", ratio.median),
        interval(&|i| format!("[{:.3}, {:.3}]", i.low, i.high)),
        interval(&|i| format!("{:.1} %", i.coverage * 100.0)),
        required_text(required),
        yes(required.contains(&ratio.median)),
        interval(&|i| yes(required.contains(&i.low) && required.contains(&i.high))),
    ]
}

fn error_cells(stalls: &[StallRounds], name: &str) -> [String; 7] {
    let errors = stalls.iter();
    let errors = errors.filter_map(|rounds| Some((rounds.peer, p99_error(rounds)?)));
    let is_ours = |(peer, _): &(&str, Median)| peer.starts_with("floodmark");
    let (ours, theirs): (Vec<_>, Vec<_>) = errors.partition(is_ours);
    let our = ours.iter().find(|(peer, _)| *peer == name);
    let by_median = |(_, a): &&(_, Median), (_, b): &&(_, Median)| a.median.total_cmp(&b.median);
    let best = theirs.iter().min_by(by_median);
    let rounds = stalls.first().map_or(0, |rounds| rounds.samples.len());
    let (Some((_, our)), Some((peer, best))) = (our, best) else {
        return unmeasured(rounds, "< every peer's".to_owned());
    };
    [
        format!("{} of {rounds}", our.count),
        ms(our.median),
        format!("[{}, {}]", ms(our.least), ms(our.most)),
        DASH.to_owned(),
        format!("< {} ({peer})", ms(best.median)),
        yes(our.median < best.median),
        yes(theirs.iter().all(|(_, their)| our.most < their.least)),
    ]
}

fn unmeasured(rounds: usize, required: String) -> [String; 7] {
    let pairs = format!("0 of {rounds}");
    [&pairs, DASH, DASH, DASH, &required, "not measured", DASH].map(str::to_owned)
}

fn yes(met: bool) -> String {
    if met { "yes" } else { "**no**" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::sample;
    use super::*;

    #[test]
    fn excludes_runs_with_failures() {
        let mut bad = sample(1.0);
        bad.as_mut().unwrap().failures = Some("invalid: slow".to_owned());
        let ours = without_failures(&vec![sample(9.0), bad, None, sample(9.5)]);
        let theirs = vec![sample(10.0); 4];
        let ratio = estimate(pairs(&ours, &theirs, CPU));
        let cells = ratio_cells(ratio, 4, &(0.0..=0.85));
        let expected = [
            "2 of 4",
            "0.925",
            "[0.900, 0.950]",
            "50.0 %",
            "≤ 0.85",
            "**no**",
        ];
        assert_eq!(cells[..6], expected);
    }

    #[test]
    fn judges_by_median_and_by_interval() {
        let six = |figures: [f64; 6]| estimate(figures.to_vec());
        let cells = |ratio, required: Required| ratio_cells(ratio, 6, &required);
        let all = cells(six([0.8, 0.81, 0.79, 0.8, 0.82, 0.78]), 0.0..=0.85);
        assert_eq!(all[..4], ["6 of 6", "0.800", "[0.780, 0.820]", "96.9 %"]);
        assert_eq!(all[4..], ["≤ 0.85", "yes", "yes"]);
        let some = cells(six([0.8, 0.81, 0.9, 0.8, 0.82, 0.78]), 0.0..=0.85);
        assert_eq!(some[5..], ["yes", "**no**"]);
        let none = cells(six([1.1; 6]), 1.2..=f64::INFINITY);
        assert_eq!(none[4..], ["≥ 1.20", "**no**", "**no**"]);
        let at_least = || 1.2..=f64::INFINITY;
        assert_eq!(cells(None, at_least())[5], "not measured");
        assert_eq!(cells(estimate(vec![1.2]), at_least())[5..], ["yes", "–"]);
    }
}
