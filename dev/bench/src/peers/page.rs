//! Generates `docs/peers.md` from measurements.

use std::collections::BTreeSet;

use floodmark_record::client::ExternalRun;
use floodmark_record::units::show_count;

use super::stalls::{self, StallRounds};
use super::{CONNECTIONS, MeasuredPeers, OHA, Peer, targets};
use crate::conditions::{Conditions, version};
use crate::samples::{PeerSample, Rounds};
use crate::statistics::{Median, estimate, over};
use crate::table::{cell, table};

/// All measurements on the page.
pub struct PeersPage<'a> {
    /// Number of rounds in the closed model.
    pub rounds: usize,
    /// Duration of a closed-model run, in seconds.
    pub seconds: u64,
    /// Date, source revision and host.
    pub conditions: &'a Conditions,
    /// Peers in order.
    pub peers: &'a [&'static Peer],
    /// Runs in the closed model, by load.
    pub closed: Vec<MeasuredPeers>,
    /// Runs at a fixed rate.
    pub stalls: Vec<StallRounds>,
}

impl MeasuredPeers {
    /// Returns the samples of the named peer.
    pub fn of(&self, name: &str) -> Option<&Rounds> {
        let mut rows = self.rows.iter();
        Some(&rows.find(|(peer, _)| peer.name == name)?.1)
    }
}

impl PeersPage<'_> {
    /// Returns the page as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "# floodmark and its peers\n\nWritten by `cargo xtask peers --rounds {} --seconds {}`. No figure is typed by hand.\n\n",
            self.rounds, self.seconds
        );
        text.push_str(&targets::section(self));
        text.push_str(&self.conditions());
        for measured in &self.closed {
            text.push_str(match measured.load {
                load if load.fresh => {
                    "\n## Fresh connections\n\nClosed model, one connection per request.\n\n"
                }
                load if load.tls => {
                    "\n## HTTPS, kept connections\n\nClosed model, kept connections, TLS 1.3.\n\n"
                }
                _ => {
                    "\n## Kept connections\n\n\
                     Closed model: each connection sends its next request after the response.\n\n"
                }
            });
            text.push_str(&figures(measured));
            text.push_str(&failures(measured));
            text.push_str(&ratios(measured, self.rounds));
        }
        text.push_str(&stalls::section(self));
        text.push_str(&self.notes());
        text.push_str(&self.commands());
        text
    }

    fn conditions(&self) -> String {
        let server = format!("{}, 1 worker", version(&["nginx", "-v"]));
        let tls = "1.3, X25519, TLS_AES_256_GCM_SHA384 for every peer".to_owned();
        let mut others = vec![("server", server), ("TLS", tls)];
        others.extend(self.runs(|run| cell(run.version.clone(), |version| version)));
        if self.peers.iter().any(|peer| peer.name == "oha") {
            others.push(("oha (profile release-ci)", OHA.to_owned()));
        }
        let table = table("what | value", self.conditions.rows(others));
        let mut text = format!("\n## Conditions\n\n{table}");
        let closed = self.closed.iter();
        let skipped: BTreeSet<&String> = closed.flat_map(|load| &load.record.skipped).collect();
        for line in skipped {
            text.push_str(&format!("\nSkipped: {line}.\n"));
        }
        text
    }

    /// Applies `read` to the first run of each peer.
    fn runs<T>(&self, read: impl Fn(&ExternalRun) -> T) -> Vec<(&'static str, T)> {
        let first = |peer: &&'static Peer| {
            let closed = self.closed.iter();
            let mut runs = closed.flat_map(|measured| measured.record.runs_of(peer.name));
            let tool = runs.find_map(|run| run.client.tool.as_ref())?;
            Some((peer.name, read(tool)))
        };
        self.peers.iter().filter_map(first).collect()
    }

    fn notes(&self) -> String {
        let rounds = self.rounds;
        let interval = estimate(vec![0.0; rounds]).and_then(|median| median.interval);
        let level = match interval {
            None => "A single round has no interval.".to_owned(),
            Some(interval) => format!(
                "The ends of an interval are two order statistics; no distribution is assumed. With {rounds} rounds, an interval contains \
                 the true median with a probability of at least {:.1} %. If runs failed, the number of pairs and the level are shown after \
                 the interval.",
                interval.coverage * 100.0
            ),
        };
        let notes = self.peers.iter().map(|peer| peer.note);
        let notes = notes.filter(|note| !note.is_empty());
        let notes: String = notes.map(|note| format!("- {note}\n")).collect();
        format!(
            include_str!("notes.md"),
            rounds = rounds,
            seconds = self.seconds,
            level = level,
            notes = notes,
            connections = CONNECTIONS,
            cpus = self.conditions.cpus,
        )
    }

    fn commands(&self) -> String {
        let mut text = "\n## Commands\n\nWith kept connections:\n\n```text\n".to_owned();
        for (_, command) in self.runs(|tool| tool.command.join(" ")) {
            text.push_str(&format!("{command}\n"));
        }
        text.push_str(
            "```\n\nThe servers are `systems/nginx` and `dev/bench/systems/nginx-tls`; the other commands are in `clients/` and \
             `dev/bench/clients/`.\n",
        );
        text
    }
}

/// Returns the table of measured figures, with a row per peer.
fn figures(measured: &MeasuredPeers) -> String {
    let rows = measured.rows.iter().map(|(peer, rounds)| {
        let range = |median, number: &dyn Fn(f64) -> String| {
            cell(median, |m: Median| {
                let [median, least, most] = [m.median, m.least, m.most].map(number);
                format!("{median} ({least}–{most})")
            })
        };
        let mib = over(rounds, |s| Some(s.peak_bytes as f64 / f64::from(1 << 20)));
        vec![
            peer.name.to_owned(),
            range(over(rounds, |s| Some(s.per_s)), &|n| show_count(n as u64)),
            range(over(rounds, |s| Some(s.cpu_us)), &|us| format!("{us:.2}")),
            cell(over(rounds, |s| s.own_cpu_us), |m| {
                format!("{:.2}", m.median)
            }),
            cell(mib, |m| format!("{:.1}", m.median)),
        ]
    });
    let heads = "peer | requests/s | CPU µs/request | own figure | peak MiB";
    table(heads, rows)
}

/// Lists failed runs, and failures that the peers reported.
fn failures(measured: &MeasuredPeers) -> String {
    let mut text = String::new();
    for (peer, rounds) in &measured.rows {
        let (name, of) = (peer.name, rounds.len());
        let gaps = rounds.iter().filter(|sample| sample.is_none()).count();
        if gaps > 0 {
            text.push_str(&format!("\n{name}: {gaps} of {of} runs failed.\n"));
        }
        let reported = rounds.iter().flatten().filter_map(|s| s.failures.as_ref());
        let reported: Vec<&String> = reported.collect();
        if let Some(last) = reported.last() {
            let runs = reported.len();
            text.push_str(&format!(
                "\n{name} reports failures in {runs} runs; the last failure: {last}\n"
            ));
        }
    }
    text
}

/// Compares each peer with wrk, and each floodmark backend with each peer.
fn ratios(measured: &MeasuredPeers, rounds: usize) -> String {
    let wrk = measured.of("wrk");
    let ours = measured.rows.iter();
    let ours: Vec<_> = ours.filter(|(peer, _)| peer.backend().is_some()).collect();
    let mut heads = "peer".to_owned();
    if wrk.is_some() {
        heads.push_str(" | requests/s ÷ wrk's | CPU ÷ wrk's");
    }
    for (peer, _) in &ours {
        heads.push_str(&format!(" | CPU of {} ÷ peer's", peer.name));
    }
    let cell = |a: &Rounds, b: &Rounds, figure: fn(&PeerSample) -> f64| {
        if std::ptr::eq(a, b) {
            "1".to_owned()
        } else {
            interval(estimate(pairs(a, b, figure)), rounds)
        }
    };
    let rows = measured.rows.iter().map(|(peer, samples)| {
        let mut row = vec![peer.name.to_owned()];
        if let Some(wrk) = wrk {
            row.push(cell(samples, wrk, |sample| sample.per_s));
            row.push(cell(samples, wrk, |sample| sample.cpu_us));
        }
        for (_, our) in &ours {
            row.push(cell(our, samples, |sample| sample.cpu_us));
        }
        row
    });
    let table = table(&heads, rows);
    format!(
        "\nEach ratio compares figures from the same round: median [interval]. CPU is per request.\n\n{table}"
    )
}

/// Returns the ratio of `a`'s figure to `b`'s figure for each round in which both peers have
/// samples.
pub fn pairs(a: &Rounds, b: &Rounds, figure: fn(&PeerSample) -> f64) -> Vec<f64> {
    let both = a.iter().zip(b);
    let both = both.filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?)));
    both.map(|(a, b)| figure(a) / figure(b)).collect()
}

/// Formats a median and its interval. If there are fewer pairs than rounds, appends the number of
/// pairs and the level.
fn interval(ratio: Option<Median>, rounds: usize) -> String {
    cell(ratio, |ratio| {
        let median = ratio.median;
        let has_gaps = ratio.count < rounds;
        match ratio.interval {
            None if has_gaps => format!("{median:.2} (one pair)"),
            None => format!("{median:.2}"),
            Some(i) => {
                let mut text = format!("{median:.2} [{:.2}, {:.2}]", i.low, i.high);
                if has_gaps {
                    let (pairs, level) = (ratio.count, i.coverage * 100.0);
                    text.push_str(&format!(" ({pairs} pairs, {level:.1} %)"));
                }
                text
            }
        }
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn sample(cpu_us: f64) -> Option<PeerSample> {
        Some(PeerSample {
            per_s: 1e6 / cpu_us,
            cpu_us,
            ..PeerSample::default()
        })
    }

    #[test]
    fn pairs_figures_of_the_same_round() {
        let ours = vec![sample(3.0), None, sample(4.0), sample(9.0)];
        let theirs = vec![sample(6.0), sample(1.0), sample(4.0), None];
        assert_eq!(pairs(&ours, &theirs, |s| s.cpu_us), [0.5, 1.0]);
        let both = || estimate(pairs(&ours, &theirs, |s| s.cpu_us));
        assert_eq!(interval(both(), 2), "0.75 [0.50, 1.00]");
        assert_eq!(interval(both(), 4), "0.75 [0.50, 1.00] (2 pairs, 50.0 %)");
        assert_eq!(interval(estimate(vec![0.5]), 1), "0.50");
        assert_eq!(interval(estimate(vec![0.5]), 2), "0.50 (one pair)");
        assert_eq!(interval(estimate(Vec::new()), 2), "–");
    }
}
