//! Describes the progress of a run in lines.

use floodmark_record::profile::step_at;
use floodmark_record::units::{show_count, show_ns};

use super::LoadProgress;
use crate::model::Emphasis;
use crate::model::figures::{NOT_MEASURED, count_of, extremes, rate, seconds};
use crate::style::Style;

/// Maximum length of a run that prints a line every 5 s if there is no terminal. Longer runs print
/// a line every 10 s.
const SHORT_RUN_S: f64 = 60.0;
const SHORT_INTERVAL_S: f64 = 5.0;
const LONG_INTERVAL_S: f64 = 10.0;

/// Maximum number of agents whose throughput is shown individually.
const LISTED_AGENTS: usize = 4;

impl LoadProgress {
    /// Returns the line for a terminal, without a line break. Parts at the end that do not fit are
    /// dropped.
    #[must_use]
    pub fn line(&self, style: Style) -> String {
        let mut line = String::new();
        let mut columns = 0;
        for (emphasis, text) in self.parts() {
            let gap = if columns == 0 { 0 } else { 2 };
            let width = gap + text.chars().count();
            // Leave the last column free, because some terminals wrap a full line.
            if columns + width >= style.width {
                break;
            }
            line.push_str(&" ".repeat(gap));
            line.push_str(&style.paint(emphasis, &text));
            columns += width;
        }
        line
    }

    /// Returns the line for a log or pipe. A run of up to a minute prints a line every 5 s; longer
    /// runs print a line every 10 s.
    pub fn plain_line(&mut self) -> Option<String> {
        let every_s = match self.length_s {
            Some(length_s) if length_s <= SHORT_RUN_S => SHORT_INTERVAL_S,
            _ => LONG_INTERVAL_S,
        };
        // Rows do not end exactly on whole seconds.
        if self.elapsed_s - self.reported_s < every_s - 0.5 {
            return None;
        }
        self.reported_s = self.elapsed_s;
        let parts: Vec<String> = self.parts().map(|(_, text)| text).collect();
        Some(format!("{}: {}", parts[0], parts[1..].join(", ")))
    }

    /// Returns the position and the figures, most important first. Rates, times and CPU use cover
    /// the last second.
    fn parts(&self) -> impl Iterator<Item = (Emphasis, String)> {
        let last = &self.last;
        let time = |name: &str, ns: u64| format!("{name} {}", show_ns(ns as f64));
        let counts = self.counts();
        let failed = Some(self.done() - counts.ok).filter(|n| *n > 0);
        let quantile = |q| last.response.as_ref().and_then(|times| times.quantile(q));
        let connections = count_of(last.open_connections, "connection");
        let parts = [
            (Emphasis::Strong, Some(self.position())),
            (Emphasis::Plain, Some(self.achieved())),
            (
                Emphasis::Bad,
                failed.map(|n| format!("{} failed", show_count(n))),
            ),
            (Emphasis::Plain, quantile(0.99).map(|ns| time("p99", ns))),
            (Emphasis::Plain, quantile(0.50).map(|ns| time("p50", ns))),
            (Emphasis::Plain, self.agents()),
            (Emphasis::Plain, (self.elapsed_s > 0.0).then(|| self.cpus())),
            (
                Emphasis::Plain,
                Some(format!("{} ok", show_count(counts.ok))),
            ),
            (Emphasis::Faint, Some(connections.replace('\u{a0}', " "))),
        ];
        let shown = parts.into_iter();
        shown.filter_map(|(emphasis, text)| Some((emphasis, text?)))
    }

    /// Returns the throughput in the last second, such as `900/s`, or `900/s of 1,000/s` if the rate
    /// changes.
    #[must_use]
    pub fn achieved(&self) -> String {
        match self.has_profile {
            true => format!(
                "{} of {}",
                rate(self.last.ok_per_s),
                rate(self.last.intended_per_s)
            ),
            false => rate(self.last.ok_per_s),
        }
    }

    /// Describes the throughput of the agents: `agents 500/s 480/s –`, or a range for many agents.
    #[must_use]
    pub fn agents(&self) -> Option<String> {
        let per_s = &self.last.agents_per_s;
        if per_s.len() <= LISTED_AGENTS {
            let each = per_s.iter().map(|per_s| match per_s {
                Some(per_s) => rate(*per_s),
                None => NOT_MEASURED.to_owned(),
            });
            let each = each.collect::<Vec<_>>().join(" ");
            return (!each.is_empty()).then(|| format!("agents {each}"));
        }
        let silent = match per_s.iter().filter(|per_s| per_s.is_none()).count() {
            0 => String::new(),
            n => format!(", {n} silent"),
        };
        let (least, most) = extremes(&Vec::from_iter(per_s.iter().copied().flatten()))?;
        let (least, most) = (rate(least), rate(most));
        Some(format!("{} agents {least} to {most}{silent}", per_s.len()))
    }

    /// Describes the CPUs used in the last second: `CPUs 0.81 client 1.15 server`.
    fn cpus(&self) -> String {
        let last = &self.last;
        let mut text = format!("CPUs {:.2} client", last.client_cpus);
        for (role, cpus) in [("server", last.server_cpus), ("store", last.store_cpus)] {
            text.extend(cpus.map(|cpus| format!(" {cpus:.2} {role}")));
        }
        text
    }

    /// Returns the number of requests that have ended or were never sent.
    pub(super) fn done(&self) -> u64 {
        let counts = [&self.counts, &self.parts];
        let done = counts.map(|of| of.ended() + of.connect_failed + of.unsent);
        done.iter().sum()
    }

    /// Describes the progress: `3 s of 10 s`, `120,000 of 500,000 requests, 4 s left`, `warm-up 2 s
    /// of 5 s`.
    #[must_use]
    pub fn position(&self) -> String {
        if self.warming_up {
            return format!("warm-up {}", self.elapsed_of(self.warmup_s));
        }
        let counts = self.counts();
        let all_sent = match (self.requests, self.length_s) {
            (Some(n), _) => counts.intended >= n,
            (None, Some(length_s)) => self.elapsed_s >= length_s,
            (None, None) => false,
        };
        let in_flight = counts.sent.saturating_sub(counts.ended());
        if all_sent && in_flight > 0 {
            return format!("all sent, waiting for {} responses", show_count(in_flight));
        }
        let Some(length_s) = self.length_s else {
            return self
                .requests
                .map_or_else(|| whole_seconds(self.elapsed_s), |n| self.share_of(n));
        };
        let of = self.elapsed_of(length_s);
        match self.steps.len() {
            0 => of,
            n => format!(
                "step {} of {n}, {of}",
                step_at(&self.steps, self.elapsed_s) + 1
            ),
        }
    }

    /// Returns text such as `3 s of 10 s`. The elapsed time shown never exceeds `length_s`.
    fn elapsed_of(&self, length_s: f64) -> String {
        let all = seconds(length_s);
        match self.elapsed_s.round() < length_s {
            true => format!("{} of {all}", whole_seconds(self.elapsed_s)),
            false => format!("{all} of {all}"),
        }
    }

    /// Estimates the time for the rest of `requests` in seconds. The estimate may be infinite.
    pub(super) fn left_of(&self, requests: u64) -> f64 {
        let done = self.done();
        requests.saturating_sub(done) as f64 * self.elapsed_s / done as f64
    }

    /// Returns text such as `120,000 of 500,000 requests, 4 s left`.
    fn share_of(&self, requests: u64) -> String {
        let done = self.done();
        let left_s = self.left_of(requests);
        let left = match left_s.is_finite() && left_s > 0.0 {
            true => format!(", {} left", whole_seconds(left_s.ceil())),
            false => String::new(),
        };
        format!(
            "{} of {} requests{left}",
            show_count(done),
            show_count(requests)
        )
    }
}

fn whole_seconds(s: f64) -> String {
    format!("{s:.0} s")
}
