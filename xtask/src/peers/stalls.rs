//! The page's section on the runs at a fixed rate under stalls.

use super::fixed_rate::{RATE, Rounds, SECONDS, STALL, Sample};
use super::page::Page;
use super::peer::Percentiles;
use crate::measuring::statistics::{Estimate, estimate};
use crate::measuring::table::{Table, grouped};

/// A percentile by its name.
type Pick = fn(&Percentiles) -> Option<f64>;

const PERCENTILES: [(&str, Pick); 3] = [
    ("p50", |p| p.p50),
    ("p99", |p| p.p99),
    ("p99.9", |p| p.p99_9),
];

/// The absolute error of a peer's 99th percentile against the even schedule, µs, over its rounds.
pub fn p99_error(rounds: &Rounds) -> Option<Estimate> {
    of(rounds, |sample| Some(error(sample, |p| p.p99)?.abs()))
}

/// The section.
pub fn section(page: &Page) -> String {
    let mut text = format!(
        "\n## Truth at {}/s under stalls\n\n\
The server does nothing for {} ms of each {} ms and logs every request and every stall. Each peer is asked for {} requests \
in {SECONDS} s, {} times in turn with the others.\n\n\
**The truth**, as it was laid down before anything was measured: a client sends at an even {}/s from the peer's first request on, \
each request on time. With the stalls that the server logged in that very run, a request that is due within a stall is answered \
when the server goes on, and every other one at once. The percentiles of those waits are what a peer that was asked for that rate \
should report; its error is its figure less that one. Nothing of how the peer sent its requests goes into the truth, so that \
neither sending late nor sending in bursts can move it.\n\n\
All times in ms, medians of the rounds, errors with their range:\n\n\
- *says*: the peer's figure; *even*: the truth.\n\
\n",
        grouped(RATE as f64),
        STALL.length_ms,
        STALL.every_ms,
        grouped((RATE * SECONDS) as f64),
        page.rate.first().map_or(0, |(_, rounds)| rounds.len()),
        grouped(RATE as f64),
    );
    let heads = [
        "peer",
        "requests",
        "percentile",
        "says",
        "even",
        "says − even",
        "absolute error",
    ];
    text.push_str(&table(page, &heads, |rounds, pick| {
        vec![
            median(of(rounds, |s| pick(&s.says))),
            median(of(rounds, |s| pick(&s.even))),
            range(of(rounds, |s| error(s, pick))),
            range(of(rounds, |s| Some(error(s, pick)?.abs()))),
        ]
    }));
    text.push_str(
        "\nA second reading, for information, by what the server's log says of the peer's own requests:\n\n\
- *due*: from when the k-th request was due by an even schedule of the asked rate to the k-th answer. A peer that sends in bursts \
sends most of each burst late, and this holds it.\n\
- *sent*: from when the server's kernel had a request to its answer: what the peer's requests waited, however it sent them.\n\n",
    );
    let heads = [
        "peer",
        "requests",
        "percentile",
        "says",
        "due",
        "says − due",
        "sent",
    ];
    text.push_str(&table(page, &heads, |rounds, pick| {
        vec![
            median(of(rounds, |s| pick(&s.says))),
            median(of(rounds, |s| pick(&s.due))),
            range(of(rounds, |s| Some(pick(&s.says)? - pick(&s.due)?))),
            median(of(rounds, |s| pick(&s.sent))),
        ]
    }));
    let unable = page.peers.iter().filter(|ready| ready.peer.rate.is_none());
    let unable: Vec<&str> = unable.map(|ready| ready.peer.name).collect();
    if !unable.is_empty() {
        text.push_str(&format!(
            "\nCannot send at a fixed rate: {}.\n",
            unable.join(", ")
        ));
    }
    text
}

/// A row for each peer and percentile; `cells` are those behind the percentile's name.
fn table(page: &Page, heads: &[&str], cells: impl Fn(&Rounds, Pick) -> Vec<String>) -> String {
    let mut table = Table::new(heads);
    for (ready, rounds) in &page.rate {
        let requests = of(rounds, |s| Some(s.requests as f64));
        let requests = requests.map_or("–".to_owned(), |e| grouped(e.median));
        let mut first = vec![ready.peer.name.to_owned(), requests];
        for (name, pick) in PERCENTILES {
            let mut row = std::mem::replace(&mut first, vec![String::new(), String::new()]);
            row.push(name.to_owned());
            row.extend(cells(rounds, pick));
            table.row(row);
        }
    }
    table.markdown()
}

fn error(sample: &Sample, pick: Pick) -> Option<f64> {
    Some(pick(&sample.says)? - pick(&sample.even)?)
}

fn of(rounds: &Rounds, figure: impl Fn(&Sample) -> Option<f64>) -> Option<Estimate> {
    estimate(rounds.iter().flatten().filter_map(figure).collect())
}

/// µs as ms.
pub fn ms(us: f64) -> String {
    format!("{:.2}", us / 1e3).replace('-', "−")
}

fn median(e: Option<Estimate>) -> String {
    e.map_or("–".to_owned(), |e| ms(e.median))
}

fn range(e: Option<Estimate>) -> String {
    e.map_or("–".to_owned(), |e| {
        format!("{} ({} to {})", ms(e.median), ms(e.least), ms(e.most))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_to_either_side_do_not_cancel() {
        let sample = |says: f64| {
            let p99 = |us| Percentiles {
                p99: Some(us),
                ..Percentiles::default()
            };
            Some(Sample {
                requests: 12_000,
                says: p99(says),
                even: p99(90_000.0),
                due: p99(1.0),
                sent: p99(1.0),
            })
        };
        let rounds = vec![sample(89_000.0), None, sample(90_500.0), sample(92_000.0)];
        let e = p99_error(&rounds).unwrap();
        assert_eq!((e.median, e.least, e.most), (1_000.0, 500.0, 2_000.0));
        assert_eq!(range(Some(e)), "1.00 (0.50 to 2.00)");
        assert_eq!(ms(-1_234.0), "−1.23");
        assert_eq!(p99_error(&vec![None]), None);
    }
}
