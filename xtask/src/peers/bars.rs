//! The bars that floodmark is held against, at the top of the page.

use super::closed::{Rounds, Sample};
use super::fixed_rate::RATE;
use super::page::{Page, pairs};
use super::peer::Load;
use super::stalls::{ms, p99_error};
use crate::measuring::statistics::{Estimate, estimate};
use crate::measuring::table::{Table, grouped};

/// What a ratio has to be.
#[derive(Debug, Clone, Copy)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

/// A figure of floodmark over a peer's of the same round.
struct Bar {
    load: Load,
    what: &'static str,
    figure: fn(&Sample) -> f64,
    peer: &'static str,
    limit: Limit,
}

const CPU: fn(&Sample) -> f64 = |sample| sample.cpu_us;
const PER_S: fn(&Sample) -> f64 = |sample| sample.claim.per_s;

const BARS: [Bar; 6] = [
    Bar {
        load: Load::Kept,
        what: "kept: CPU per request ÷ wrk's",
        figure: CPU,
        peer: "wrk",
        limit: Limit::AtMost(0.85),
    },
    Bar {
        load: Load::Kept,
        what: "kept: CPU per request ÷ oha's",
        figure: CPU,
        peer: "oha",
        limit: Limit::AtMost(0.55),
    },
    Bar {
        load: Load::Kept,
        what: "kept: requests/s ÷ wrk's",
        figure: PER_S,
        peer: "wrk",
        limit: Limit::AtLeast(1.0),
    },
    Bar {
        load: Load::Fresh,
        what: "fresh: CPU per connection ÷ wrk's",
        figure: CPU,
        peer: "wrk",
        limit: Limit::AtMost(0.75),
    },
    Bar {
        load: Load::Fresh,
        what: "fresh: requests/s ÷ wrk's",
        figure: PER_S,
        peer: "wrk",
        limit: Limit::AtLeast(1.2),
    },
    Bar {
        load: Load::Https,
        what: "HTTPS kept: CPU per request ÷ wrk's",
        figure: CPU,
        peer: "wrk",
        limit: Limit::AtMost(0.85),
    },
];

impl Limit {
    fn holds(self, figure: f64) -> bool {
        match self {
            Limit::AtMost(limit) => figure <= limit,
            Limit::AtLeast(limit) => figure >= limit,
        }
    }

    fn shown(self) -> String {
        match self {
            Limit::AtMost(limit) => format!("≤ {limit:.2}"),
            Limit::AtLeast(limit) => format!("≥ {limit:.2}"),
        }
    }
}

/// The section.
pub fn section(page: &Page) -> String {
    let mut table = Table::new(&[
        "bar",
        "floodmark on",
        "pairs",
        "median",
        "interval",
        "level",
        "must be",
        "held",
        "by the whole interval",
    ]);
    let ours = || {
        let names = page.peers.iter().map(|ready| ready.peer.name);
        names.filter_map(|name| Some((name, name.strip_prefix("floodmark/")?)))
    };
    for bar in &BARS {
        for (name, backend) in ours() {
            let ratio = page.closed.iter().find(|c| c.load == bar.load);
            let ratio = ratio.and_then(|closed| {
                let ours = without_failures(closed.of(name)?);
                estimate(pairs(&ours, closed.of(bar.peer)?, bar.figure))
            });
            let mut row = vec![bar.what.to_owned(), backend.to_owned()];
            row.extend(verdict(ratio, page.rounds(), bar.limit));
            table.row(row);
        }
    }
    let what = format!(
        "absolute error of p99 at {}/s under stalls, ms",
        grouped(RATE as f64)
    );
    for (name, backend) in ours() {
        let mut row = vec![what.clone(), backend.to_owned()];
        row.extend(closer(page, name));
        table.row(row);
    }
    format!(
        "## Bars\n\n\
Each ratio is of two figures of the same round, the same server process: its median, and an exact interval of the median (two order \
statistics), which holds it with at least the *level*. *Pairs* is of how many rounds: a run of floodmark that was invalid or had \
requests that were not ok decides nothing. *Held* is by the median; *by the whole interval* says whether both its ends are on the \
right side too. The last bar compares medians of absolute errors, with their range in place of an interval, and has to be below \
every peer's.\n\n{}",
        table.markdown()
    )
}

/// The samples with a gap for each that had failures.
fn without_failures(rounds: &Rounds) -> Rounds {
    let whole = |sample: &Sample| sample.claim.failures.is_none();
    let kept = rounds.iter().map(|s| s.clone().filter(whole));
    kept.collect()
}

/// The cells of a ratio: pairs, median, interval with its level, limit, and whether it holds.
fn verdict(ratio: Option<Estimate>, rounds: usize, limit: Limit) -> Vec<String> {
    let Some(ratio) = ratio else {
        return unmeasured(rounds, limit.shown());
    };
    let interval = ratio.interval;
    vec![
        format!("{} of {rounds}", ratio.count),
        format!("{:.3}", ratio.median),
        interval.map_or("–".to_owned(), |i| {
            format!("[{:.3}, {:.3}]", i.low, i.high)
        }),
        interval.map_or("–".to_owned(), |i| format!("{:.1} %", i.coverage * 100.0)),
        limit.shown(),
        yes(limit.holds(ratio.median)),
        interval.map_or("–".to_owned(), |i| {
            yes(limit.holds(i.low) && limit.holds(i.high))
        }),
    ]
}

/// The cells of the error under stalls, which must be smaller than that of the best peer that is not ours.
fn closer(page: &Page, name: &str) -> Vec<String> {
    let errors = page
        .rate
        .iter()
        .filter_map(|(ready, rounds)| Some((ready.peer.name, p99_error(rounds)?)));
    let errors: Vec<(&str, Estimate)> = errors.collect();
    let our = errors.iter().find(|(peer, _)| *peer == name);
    let theirs = errors.iter().filter(|(p, _)| !p.starts_with("floodmark/"));
    let best = theirs
        .clone()
        .min_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let rounds = page.rate.first().map_or(0, |(_, rounds)| rounds.len());
    let (Some((_, our)), Some((peer, best))) = (our, best) else {
        return unmeasured(rounds, "< every peer's".to_owned());
    };
    vec![
        format!("{} of {rounds}", our.count),
        ms(our.median),
        format!("[{}, {}]", ms(our.least), ms(our.most)),
        "–".to_owned(),
        format!("< {} ({peer})", ms(best.median)),
        yes(our.median < best.median),
        yes(theirs.clone().all(|(_, their)| our.most < their.least)),
    ]
}

fn unmeasured(rounds: usize, limit: String) -> Vec<String> {
    let dash = || "–".to_owned();
    let pairs = format!("0 of {rounds}");
    let unknown = "not measured".to_owned();
    vec![pairs, dash(), dash(), dash(), limit, unknown, dash()]
}

fn yes(held: bool) -> String {
    if held { "yes" } else { "**no**" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::sample;
    use super::*;

    #[test]
    fn a_run_with_failures_decides_no_bar() {
        let mut bad = sample(1.0);
        bad.as_mut().unwrap().claim.failures = Some("invalid: slow".to_owned());
        let ours = without_failures(&vec![sample(9.0), bad, None, sample(9.5)]);
        let theirs = vec![sample(10.0); 4];
        let ratio = estimate(pairs(&ours, &theirs, CPU));
        assert_eq!(
            verdict(ratio, 4, Limit::AtMost(0.85))[..6],
            [
                "2 of 4",
                "0.925",
                "[0.900, 0.950]",
                "50.0 %",
                "≤ 0.85",
                "**no**"
            ]
        );
    }

    #[test]
    fn a_bar_is_held_by_the_median_and_maybe_by_the_interval() {
        let six = |figures: [f64; 6]| estimate(figures.to_vec());
        let held = |e, limit| verdict(e, 6, limit);
        let all = held(six([0.8, 0.81, 0.79, 0.8, 0.82, 0.78]), Limit::AtMost(0.85));
        assert_eq!(all[..4], ["6 of 6", "0.800", "[0.780, 0.820]", "96.9 %"]);
        assert_eq!(all[4..], ["≤ 0.85", "yes", "yes"]);
        let some = held(six([0.8, 0.81, 0.9, 0.8, 0.82, 0.78]), Limit::AtMost(0.85));
        assert_eq!(some[5..], ["yes", "**no**"]);
        let none = held(six([1.1; 6]), Limit::AtLeast(1.2));
        assert_eq!(none[4..], ["≥ 1.20", "**no**", "**no**"]);
        assert_eq!(held(None, Limit::AtLeast(1.2))[5], "not measured");
        assert_eq!(
            held(estimate(vec![1.2]), Limit::AtLeast(1.2))[5..],
            ["yes", "–"]
        );
    }
}
