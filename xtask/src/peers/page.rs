//! The page, `docs/peers.md`: every figure in it comes from the runs.

use std::process::Command;

use super::bars;
use super::closed;
use super::fixed_rate;
use super::install::Ready;
use super::peer::{CONNECTIONS, Load};
use super::stalls;
use crate::command;
use crate::measuring::machine::{Elsewhere, Machine};
use crate::measuring::nginx;
use crate::measuring::statistics::{Estimate, coverage, estimate};
use crate::measuring::table::{Table, grouped};

/// All that the page is made of.
pub struct Page<'a> {
    /// As it was typed.
    pub command: String,
    /// Where.
    pub machine: &'a Machine,
    /// CPU that went elsewhere during the runs.
    pub elsewhere: Elsewhere,
    /// nginx's version.
    pub nginx: String,
    /// The peers, in the order of all samples.
    pub peers: &'a [Ready],
    /// What was left out, and why.
    pub skipped: &'a [String],
    /// Length of a closed run, seconds.
    pub seconds: u64,
    /// Peak memory that is shown for a program that does nothing, bytes.
    pub idle_bytes: u64,
    /// The closed runs, a load after the other.
    pub closed: Vec<Closed<'a>>,
    /// The peers that can send at a fixed rate, and their samples.
    pub rate: Vec<(&'a Ready, fixed_rate::Rounds)>,
}

/// The closed runs of a load.
pub struct Closed<'a> {
    /// The load.
    pub load: Load,
    /// The peers that can, and their samples.
    pub rows: Vec<(&'a Ready, closed::Rounds)>,
}

impl Closed<'_> {
    /// The samples of a peer.
    pub fn of(&self, name: &str) -> Option<&closed::Rounds> {
        let mut rows = self.rows.iter();
        rows.find(|(ready, _)| ready.peer.name == name)
            .map(|(_, rounds)| rounds)
    }

    /// What is asked of the peers.
    fn about(&self) -> &'static str {
        match self.load {
            Load::Fresh => "A connection for each request (`Connection: close`), closed model.",
            Load::Https => "As with kept connections, over TLS 1.3.",
            Load::Kept | Load::Rate => {
                "Kept connections, closed model: each connection sends its next request when it has its answer."
            }
        }
    }
}

impl Page<'_> {
    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "# floodmark beside its peers\n\nWritten by `{}`; no figure is typed by hand.\n\n",
            self.command
        );
        text.push_str(&bars::section(self));
        text.push_str(&self.conditions());
        for closed in &self.closed {
            let title = match closed.load {
                Load::Https => "HTTPS, kept connections".to_owned(),
                load => format!("{load:?} connections"),
            };
            text.push_str(&format!("\n## {title}\n\n{}\n\n", closed.about()));
            text.push_str(&figures(closed));
            text.push_str(&failures(closed));
            if let Some(ratios) = ratios(closed, self.rounds()) {
                text.push_str("\nRatios of figures of the same round, median [interval]; CPU is that per request:\n\n");
                text.push_str(&ratios);
            }
        }
        text.push_str(&stalls::section(self));
        text.push_str(&self.reading());
        text.push_str(&self.commands());
        text
    }

    fn conditions(&self) -> String {
        let mut table = Table::new(&["what", "which"]);
        for row in self.machine.rows(self.elsewhere) {
            table.row(row);
        }
        let mut row = |what: &str, which: String| table.row(vec![what.to_owned(), which]);
        row("server", format!("nginx {}, 1 worker", self.nginx));
        row(
            "TLS",
            format!("1.3, X25519, {}, for every peer", nginx::SUITE),
        );
        for ready in self.peers {
            row(ready.peer.name, ready.version.clone());
        }
        let mut text = format!("\n## Conditions\n\n{}", table.markdown());
        for skipped in self.skipped {
            text.push_str(&format!("\nLeft out: {skipped}.\n"));
        }
        text
    }

    /// Rounds of the closed runs.
    pub fn rounds(&self) -> usize {
        let rows = self.closed.first().and_then(|closed| closed.rows.first());
        rows.map_or(0, |(_, rounds)| rounds.len())
    }

    fn reading(&self) -> String {
        let rounds = self.rounds();
        let level = match rounds {
            0 | 1 => "There is no interval, since there was one round.".to_owned(),
            n => format!(
                "An interval lies between two order statistics and assumes nothing of how figures are spread; with {n} rounds it holds \
                 the true median with at least {:.1} %{}. Where runs failed, the number of pairs that there are and their level stand \
                 behind it.",
                intervals_coverage(n) * 100.0,
                if intervals_coverage(n) < 0.95 {
                    " (95 % needs `--rounds 6`)"
                } else {
                    ""
                }
            ),
        };
        let notes = self
            .peers
            .iter()
            .map(|ready| ready.peer.note)
            .filter(|note| !note.is_empty());
        let mut notes: Vec<String> = notes.map(|note| format!("- {note}\n")).collect();
        notes.dedup();
        format!(
            "\n## How to read this\n\n\
- All peers ran in turn on the same server process, {rounds} rounds of {} s each, the order rotated from round to round, {CONNECTIONS} connections, one thread or process each.\n\
- *Requests/s* is the peer's own figure, median (least–most). *Says ÷ served* is its count of good answers over the requests that nginx counted: \
below 1 are requests that it sent and did not count, such as those under way at the end.\n\
- *CPU* is user and system time of the whole process tree (wait4(2)) over the requests that nginx counted, start and end of the process included: \
floodmark's command, worker and samplers too. *Its own figure* is what the peer itself says.\n\
- *Peak* is the peak resident memory of the tree's largest process (`ru_maxrss`); a program that does nothing shows {:.1} MiB here.\n\
- {level}\n{}\n\
## What this cannot show\n\n\
- Client and server share {} CPUs: where both are full, a cheaper client leaves more to the server, and requests/s are of the pair. \
CPU per request is the steadier figure; it still moves with the load on the caches and with batching.\n\
- Loopback has no network card, no loss and no delay. Its sending side does the receiver's work in the kernel too.\n\
- One thread, {CONNECTIONS} connections, 11 bytes of body: nothing of many threads or large bodies.\n",
            self.seconds,
            mebibytes(self.idle_bytes),
            notes.concat(),
            self.machine.cpus,
        )
    }

    fn commands(&self) -> String {
        let mut text = "\n## Commands\n\n`SECONDS` is the length of a run, `REQUESTS` what fills it by a probe before the first round, `EACH` that over the connections.\n\n```text\n".to_owned();
        for ready in self.peers {
            for load in [Load::Kept, Load::Fresh, Load::Https, Load::Rate] {
                if let Some(line) = ready.peer.shown(load) {
                    text.push_str(&format!("{line}\n"));
                }
            }
        }
        text.push_str("```\n\nnginx, started with `nginx -p FOLDER -c nginx.conf`:\n\n```text\n");
        text.push_str(&nginx::configuration("PORT", "TLS_PORT"));
        let mut certificate = Command::new("openssl");
        certificate.args(nginx::CERTIFICATE);
        text.push_str(&format!(
            "```\n\nIts certificate:\n\n```text\n{}\n```\n",
            command::line(&certificate)
        ));
        text
    }
}

/// The table of what each peer did.
fn figures(closed: &Closed) -> String {
    let mut table = Table::new(&[
        "peer",
        "requests/s",
        "CPU µs/request",
        "its own figure",
        "peak MiB",
        "says ÷ served",
    ]);
    for (ready, rounds) in &closed.rows {
        let of = |figure: &dyn Fn(&closed::Sample) -> Option<f64>| {
            estimate(rounds.iter().flatten().filter_map(figure).collect())
        };
        let cell = |e: Option<Estimate>, show: &dyn Fn(f64) -> String| {
            e.map_or("–".to_owned(), |e| {
                format!("{} ({}–{})", show(e.median), show(e.least), show(e.most))
            })
        };
        let two = |figure: f64| format!("{figure:.2}");
        table.row(vec![
            ready.peer.name.to_owned(),
            cell(of(&|s| Some(s.claim.per_s)), &grouped),
            cell(of(&|s| Some(s.cpu_us)), &two),
            of(&|s| s.claim.own_cpu_us).map_or("–".to_owned(), |e| two(e.median)),
            of(&|s| Some(mebibytes(s.peak_bytes)))
                .map_or("–".to_owned(), |e| format!("{:.1}", e.median)),
            of(&|s| Some(s.claim.answers as f64 / s.served as f64))
                .map_or("–".to_owned(), |e| format!("{:.4}", e.median)),
        ]);
    }
    table.markdown()
}

/// What peers said of failed requests, and rounds that failed as a whole.
fn failures(closed: &Closed) -> String {
    let mut text = String::new();
    for (ready, rounds) in &closed.rows {
        let name = ready.peer.name;
        let gaps = rounds.iter().filter(|sample| sample.is_none()).count();
        if gaps > 0 {
            text.push_str(&format!(
                "\n{name}: {gaps} of {} runs failed.\n",
                rounds.len()
            ));
        }
        let said = rounds
            .iter()
            .flatten()
            .filter_map(|s| s.claim.failures.as_ref());
        let said: Vec<&String> = said.collect();
        if let Some(last) = said.last() {
            let times = said.len();
            text.push_str(&format!(
                "\n{name} reports failures in {times} runs; the last: {last}\n"
            ));
        }
    }
    text
}

/// Each peer against wrk, and each row of floodmark against each peer.
fn ratios(closed: &Closed, rounds: usize) -> Option<String> {
    let names = || closed.rows.iter().map(|(ready, _)| ready.peer.name);
    let samples = |index: usize| &closed.rows[index].1;
    let wrk = names().position(|name| name == "wrk");
    let ours: Vec<usize> = names()
        .enumerate()
        .filter(|(_, name)| name.starts_with("floodmark/"))
        .map(|(index, _)| index)
        .collect();
    if closed.rows.first()?.1.is_empty() || (wrk.is_none() && ours.is_empty()) {
        return None;
    }
    let mut heads = vec!["peer".to_owned()];
    if wrk.is_some() {
        heads.extend(["requests/s ÷ wrk's".to_owned(), "CPU ÷ wrk's".to_owned()]);
    }
    for &index in &ours {
        heads.push(format!("CPU of {} ÷ its", closed.rows[index].0.peer.name));
    }
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = Table::new(&heads);
    for (index, name) in names().enumerate() {
        let mut row = vec![name.to_owned()];
        let mut add = |a: usize, b: usize, figure: fn(&closed::Sample) -> f64| {
            row.push(match a == b {
                true => "1".to_owned(),
                false => interval(estimate(pairs(samples(a), samples(b), figure)), rounds),
            });
        };
        if let Some(wrk) = wrk {
            add(index, wrk, |sample| sample.claim.per_s);
            add(index, wrk, |sample| sample.cpu_us);
        }
        for &our in &ours {
            add(our, index, |sample| sample.cpu_us);
        }
        table.row(row);
    }
    Some(table.markdown())
}

/// Ratios of a figure of two peers in the rounds that both have.
pub fn pairs(
    a: &closed::Rounds,
    b: &closed::Rounds,
    figure: fn(&closed::Sample) -> f64,
) -> Vec<f64> {
    let both = a
        .iter()
        .zip(b)
        .filter_map(|(a, b)| Some((a.as_ref()?, b.as_ref()?)));
    both.map(|(a, b)| figure(a) / figure(b)).collect()
}

/// Median and interval; of fewer pairs than rounds with their number and level.
fn interval(e: Option<Estimate>, rounds: usize) -> String {
    let Some(e) = e else {
        return "–".to_owned();
    };
    let few = e.count < rounds;
    match e.interval {
        None if few => format!("{:.2} (one pair)", e.median),
        None => format!("{:.2}", e.median),
        Some(i) => {
            let shown = format!("{:.2} [{:.2}, {:.2}]", e.median, i.low, i.high);
            let level = i.coverage * 100.0;
            match few {
                true => format!("{shown} ({} pairs, {level:.1} %)", e.count),
                false => shown,
            }
        }
    }
}

/// The coverage of the intervals of that many rounds.
pub fn intervals_coverage(rounds: usize) -> f64 {
    let interval = estimate(vec![0.0; rounds]).and_then(|e| e.interval);
    interval.map_or(coverage(rounds, 0), |i| i.coverage)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::peer::Claim;
    use super::*;

    pub(in super::super) fn sample(cpu_us: f64) -> Option<closed::Sample> {
        Some(closed::Sample {
            claim: Claim {
                answers: 10,
                per_s: 1e6 / cpu_us,
                own_cpu_us: None,
                failures: None,
            },
            served: 10,
            cpu_us,
            peak_bytes: 1 << 20,
        })
    }

    #[test]
    fn only_figures_of_the_same_round_are_paired() {
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

    #[test]
    fn five_rounds_miss_the_level_and_six_reach_it() {
        assert!((intervals_coverage(5) - 0.9375).abs() < 1e-12);
        assert!(intervals_coverage(6) >= 0.95);
    }
}
