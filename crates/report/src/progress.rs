//! How far a run has come: one line from the same second rows that the record is folded from.

use floodmark_record::events::{Connecting, Phase, SecondRow};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::{Arrivals, Plan};
use floodmark_record::profile::{Step, step_at};
use floodmark_record::times::TimeKind;
use floodmark_record::units::{show_count, show_ns};
use floodmark_record::watch::ServerUsed;
use floodmark_stats::Histogram;

use crate::figures::{count_of, rate, seconds};
use crate::style::{Paint, Style};

/// Runs up to this long say something every [`OFTEN_S`] without a terminal, longer ones every [`SELDOM_S`].
const SHORT_RUN_S: f64 = 60.0;
const OFTEN_S: f64 = 5.0;
const SELDOM_S: f64 = 10.0;

/// Connections are reported about twice a second while they are opened: without a terminal one report in so many is told.
const OPENING_EVERY: u32 = 10;

/// State of one run as seen so far; its size does not grow with the run.
#[derive(Debug, Clone)]
pub struct Progress {
    warmup_s: f64,
    /// Length of the sending window, where it is known before the run.
    length_s: Option<f64>,
    requests: Option<u64>,
    steps: Vec<Step>,
    /// Whether the rate changes, so that what was due in the last row says something.
    changes: bool,
    phase: Phase,
    elapsed_s: f64,
    /// Totals of the current phase.
    counts: Counts,
    /// Ok answers per second in the last row.
    last_per_s: f64,
    /// Requests that were due per second in the last row.
    last_due_per_s: f64,
    last_p50_ns: Option<u64>,
    last_p99_ns: Option<u64>,
    /// CPUs that the load process used in the last row, and the server in about the same second where it is watched.
    client_cpus: f64,
    server_cpus: Option<f64>,
    store_cpus: Option<f64>,
    open_connections: u64,
    /// Moment of the phase up to which [`Progress::plain_line`] has spoken.
    spoken_s: f64,
    /// Reports of connections that are being opened.
    openings: u32,
}

impl Progress {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        let scheduled = match (plan.requests, plan.rate_per_s) {
            (Some(n), Some(rate)) if rate > 0.0 => Some(n as f64 / rate),
            _ => None,
        };
        let length_s = match plan.arrivals {
            Some(Arrivals::Burst) => scheduled.or(plan.duration_s),
            _ => plan.duration_s.or(scheduled),
        };
        Progress {
            warmup_s: plan.warmup_s,
            length_s,
            requests: plan.requests,
            steps: plan.steps().unwrap_or_default().to_vec(),
            changes: plan.profile.is_some(),
            phase: if plan.warmup_s > 0.0 {
                Phase::Warmup
            } else {
                Phase::Measure
            },
            elapsed_s: 0.0,
            counts: Counts::default(),
            last_per_s: 0.0,
            last_due_per_s: 0.0,
            last_p50_ns: None,
            last_p99_ns: None,
            client_cpus: 0.0,
            server_cpus: None,
            store_cpus: None,
            open_connections: 0,
            spoken_s: 0.0,
            openings: 0,
        }
    }

    /// How far the opening of connections is that comes before the run.
    #[must_use]
    pub fn opening_line(word: &Connecting) -> String {
        let mut line = format!(
            "opening connections: {} of {}",
            show_count(word.standing),
            show_count(word.of)
        );
        if word.failed > 0 {
            line.push_str(&format!(", {} failed", show_count(word.failed)));
        }
        line
    }

    /// The same for a log or pipe, when it is due: every 5 s.
    pub fn plain_opening_line(&mut self, word: &Connecting) -> Option<String> {
        self.openings += 1;
        self.openings
            .is_multiple_of(OPENING_EVERY)
            .then(|| Self::opening_line(word))
    }

    /// Takes in what the server used in the second whose row comes next.
    pub fn server_used(&mut self, used: &ServerUsed) {
        if used.over_s > 0.0 {
            self.server_cpus = Some((used.user_s + used.system_s) / used.over_s);
        }
    }

    /// Takes in what the store behind it used in that second.
    pub fn store_used(&mut self, used: &ServerUsed) {
        if used.over_s > 0.0 {
            self.store_cpus = Some((used.user_s + used.system_s) / used.over_s);
        }
    }

    /// Takes in one second. Only two percentiles are decoded of its histograms.
    pub fn feed(&mut self, row: &SecondRow) {
        if row.phase != self.phase {
            self.phase = row.phase;
            self.counts = Counts::default();
            self.spoken_s = 0.0;
        }
        self.counts.merge(&row.counts);
        self.elapsed_s = row.to_ns as f64 / 1e9;
        self.open_connections = row.open_connections;
        let length_s = row.to_ns.saturating_sub(row.from_ns) as f64 / 1e9;
        if length_s > 0.0 {
            self.last_per_s = row.counts.ok as f64 / length_s;
            self.last_due_per_s = row.counts.intended as f64 / length_s;
            self.client_cpus = (row.user_s + row.system_s) / length_s;
        }
        // Progress is no measurement: a histogram that cannot be read only leaves its figure out here.
        let response = row
            .histograms
            .get(&TimeKind::Response)
            .and_then(|text| Histogram::decode(text).ok());
        self.last_p50_ns = response.as_ref().and_then(|h| h.quantile(0.50));
        self.last_p99_ns = response.as_ref().and_then(|h| h.quantile(0.99));
    }

    /// The line for a terminal, without a line break, at most as wide as `style` says: what does not fit is
    /// left out from the end.
    #[must_use]
    pub fn line(&self, style: Style) -> String {
        let failed = self.failed();
        let mut pieces = vec![
            (Paint::Strong, self.position()),
            (Paint::Plain, self.achieved()),
        ];
        if failed > 0 {
            pieces.push((Paint::Bad, format!("{} failed", show_count(failed))));
        }
        if let Some(p99) = self.last_p99_ns {
            pieces.push((Paint::Plain, format!("p99 {}", show_ns(p99 as f64))));
        }
        if let Some(p50) = self.last_p50_ns {
            pieces.push((Paint::Plain, format!("p50 {}", show_ns(p50 as f64))));
        }
        if self.elapsed_s > 0.0 {
            pieces.push((Paint::Plain, self.cpus()));
        }
        pieces.push((Paint::Plain, format!("{} ok", show_count(self.counts.ok))));
        pieces.push((
            Paint::Faint,
            count_of(self.open_connections, "connection").replace('\u{a0}', " "),
        ));
        let mut line = String::new();
        let mut columns = 0;
        for (paint, text) in pieces {
            let gap = if columns == 0 { 0 } else { 2 };
            let width = gap + text.chars().count();
            // The last column stays free: a full line makes some terminals go on to the next.
            if columns + width >= style.width {
                break;
            }
            line.push_str(&" ".repeat(gap));
            line.push_str(&style.paint(paint, &text));
            columns += width;
        }
        line
    }

    /// The line for a log or pipe, when one is due: every 5 s of a run of up to a minute, else every 10 s.
    pub fn plain_line(&mut self) -> Option<String> {
        let every = match self.length_s {
            Some(length) if length <= SHORT_RUN_S => OFTEN_S,
            _ => SELDOM_S,
        };
        // Rows end a little off the whole second.
        if self.elapsed_s - self.spoken_s < every - 0.5 {
            return None;
        }
        self.spoken_s = self.elapsed_s;
        let mut line = format!(
            "{}: {}, {} ok, {} failed",
            self.position(),
            self.achieved(),
            show_count(self.counts.ok),
            show_count(self.failed())
        );
        if let (Some(p50), Some(p99)) = (self.last_p50_ns, self.last_p99_ns) {
            let (p50, p99) = (show_ns(p50 as f64), show_ns(p99 as f64));
            line.push_str(&format!(", p50 {p50}, p99 {p99} in the last second"));
        }
        line.push_str(&format!(", {}", self.cpus()));
        Some(line)
    }

    /// `900/s`, and where the rate changes `900/s of 1,000/s`.
    fn achieved(&self) -> String {
        let achieved = rate(self.last_per_s);
        if self.changes {
            format!("{achieved} of {}", rate(self.last_due_per_s))
        } else {
            achieved
        }
    }

    /// CPUs used in the last second: `CPUs 0.81 client 1.15 server`.
    fn cpus(&self) -> String {
        let mut text = format!("CPUs {:.2} client", self.client_cpus);
        for (side, cpus) in [("server", self.server_cpus), ("store", self.store_cpus)] {
            if let Some(cpus) = cpus {
                text.push_str(&format!(" {cpus:.2} {side}"));
            }
        }
        text
    }

    fn failed(&self) -> u64 {
        self.counts.ended() - self.counts.ok + self.counts.connect_failed + self.counts.unsent
    }

    /// Sent and not yet ended.
    fn outstanding(&self) -> u64 {
        self.counts.sent.saturating_sub(self.counts.ended())
    }

    /// Where the run is: `3 s of 10 s`, `120,000 of 500,000 requests, 4 s left`, `warm-up 2 s of 5 s`.
    fn position(&self) -> String {
        let elapsed = whole_seconds(self.elapsed_s);
        if self.phase == Phase::Warmup {
            return format!("warm-up {elapsed} of {}", seconds(self.warmup_s));
        }
        let all_sent = match (self.requests, self.length_s) {
            (Some(n), _) => self.counts.intended >= n,
            (None, Some(length)) => self.elapsed_s >= length,
            (None, None) => false,
        };
        if all_sent && self.outstanding() > 0 {
            let n = show_count(self.outstanding());
            return format!("all sent, awaiting {n} answers");
        }
        match (self.length_s, self.requests) {
            (Some(length), _) if self.steps.is_empty() => {
                format!("{elapsed} of {}", seconds(length))
            }
            (Some(length), _) => format!(
                "step {} of {}, {elapsed} of {}",
                step_at(&self.steps, self.elapsed_s) + 1,
                self.steps.len(),
                seconds(length)
            ),
            (None, Some(n)) => {
                let done = self.counts.ended() + self.counts.connect_failed + self.counts.unsent;
                let left = n.saturating_sub(done) as f64 * self.elapsed_s / done as f64;
                let of = format!("{} of {} requests", show_count(done), show_count(n));
                if left.is_finite() && left > 0.0 {
                    format!("{of}, {} left", whole_seconds(left.ceil()))
                } else {
                    of
                }
            }
            (None, None) => elapsed,
        }
    }
}

fn whole_seconds(s: f64) -> String {
    format!("{s:.0} s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    const WIDE: Style = Style {
        colour: false,
        width: 100,
    };

    #[test]
    fn duration_run() {
        let mut progress = Progress::new(&fixture::closed_plan());
        assert_eq!(progress.line(WIDE), "0 s of 10 s  0/s  0 ok  0 connections");
        progress.feed(&fixture::second(0, 1000, 0));
        progress.feed(&fixture::second(1, 2000, 5));
        let before = "2 s of 10 s  2,000/s  5 failed  p99 990 µs  p50 500 µs";
        let wide = Style { width: 120, ..WIDE };
        assert_eq!(
            progress.line(wide),
            format!("{before}  CPUs 0.81 client  3,000 ok  50 connections")
        );
        progress.server_used(&ServerUsed {
            over_s: 2.0,
            user_s: 0.5,
            system_s: 1.8,
        });
        assert_eq!(
            progress.line(wide),
            format!("{before}  CPUs 0.81 client 1.15 server  3,000 ok  50 connections")
        );
        progress.store_used(&ServerUsed {
            over_s: 1.0,
            user_s: 0.2,
            system_s: 0.1,
        });
        let with_store = progress.line(Style { width: 140, ..WIDE });
        assert!(
            with_store.contains("CPUs 0.81 client 1.15 server 0.30 store  3,000 ok"),
            "{with_store}"
        );
    }

    #[test]
    fn a_narrow_terminal_gets_what_matters_most_and_no_wrapped_line() {
        let mut progress = Progress::new(&fixture::closed_plan());
        progress.feed(&fixture::second(0, 1000, 5));
        for width in 1..100 {
            let style = Style {
                colour: false,
                width,
            };
            assert!(progress.line(style).chars().count() < width);
        }
        let narrow = Style {
            colour: false,
            width: 34,
        };
        assert_eq!(progress.line(narrow), "1 s of 10 s  1,000/s  5 failed");
    }

    #[test]
    fn counted_run_tells_what_is_left() {
        let mut plan = fixture::closed_plan();
        plan.duration_s = None;
        plan.requests = Some(10_000);
        let mut progress = Progress::new(&plan);
        progress.feed(&fixture::second(0, 2500, 0));
        assert!(
            progress
                .line(WIDE)
                .starts_with("2,500 of 10,000 requests, 3 s left")
        );
    }

    #[test]
    fn warmup_is_apart_from_the_measurement() {
        let mut plan = fixture::closed_plan();
        plan.warmup_s = 5.0;
        let mut progress = Progress::new(&plan);
        let mut row = fixture::second(0, 700, 0);
        row.phase = Phase::Warmup;
        progress.feed(&row);
        assert!(progress.line(WIDE).starts_with("warm-up 1 s of 5 s  700/s"));
        progress.feed(&fixture::second(0, 1000, 0));
        assert!(progress.line(WIDE).contains(" 1,000 ok"));
    }

    #[test]
    fn a_rate_that_changes_is_said_beside_what_came_of_it() {
        let mut progress = Progress::new(&fixture::steps().plan);
        progress.feed(&fixture::second(0, 900, 100));
        assert!(
            progress
                .line(WIDE)
                .starts_with("step 1 of 3, 1 s of 10 s  900/s of 1,000/s  100 failed")
        );
        (1..8).for_each(|i| progress.feed(&fixture::second(i, 900, 0)));
        assert!(progress.line(WIDE).starts_with("step 3 of 3, 8 s of 10 s"));
        let replay = fixture::replay().plan;
        let mut progress = Progress::new(&replay);
        progress.feed(&fixture::second(0, 900, 0));
        assert!(
            progress
                .line(WIDE)
                .starts_with("1 s of 8 s  900/s of 900/s")
        );
    }

    #[test]
    fn answers_awaited_after_the_last_request_are_said() {
        let mut progress = Progress::new(&fixture::closed_plan());
        for i in 0..10 {
            let mut row = fixture::second(i, 1000, 0);
            row.counts.sent += 2;
            progress.feed(&row);
        }
        assert!(
            progress
                .line(WIDE)
                .starts_with("all sent, awaiting 20 answers")
        );
    }

    #[test]
    fn connections_that_are_being_opened_are_said() {
        let word = |standing, failed| Connecting {
            standing,
            failed,
            of: 100_000,
        };
        let line = Progress::opening_line(&word(34_000, 0));
        assert_eq!(line, "opening connections: 34,000 of 100,000");
        let mut progress = Progress::new(&fixture::closed_plan());
        let lines: Vec<String> = (1..=20)
            .filter_map(|n| progress.plain_opening_line(&word(n * 1000, 5)))
            .collect();
        assert_eq!(
            lines,
            [
                "opening connections: 10,000 of 100,000, 5 failed",
                "opening connections: 20,000 of 100,000, 5 failed"
            ]
        );
    }

    #[test]
    fn plain_lines_come_every_five_seconds() {
        let mut progress = Progress::new(&fixture::closed_plan());
        let mut lines = Vec::new();
        for i in 0..10 {
            progress.feed(&fixture::second(i, 1000, 1));
            lines.extend(progress.plain_line());
        }
        assert_eq!(
            lines,
            [
                "5 s of 10 s: 1,000/s, 5,000 ok, 5 failed, p50 500 µs, p99 990 µs in the last second, CPUs 0.81 client",
                "10 s of 10 s: 1,000/s, 10,000 ok, 10 failed, p50 500 µs, p99 990 µs in the last second, CPUs 0.81 client",
            ]
        );
    }

    #[test]
    fn a_histogram_that_cannot_be_read_is_left_out() {
        let mut progress = Progress::new(&fixture::closed_plan());
        let mut row = fixture::second(0, 1000, 0);
        row.histograms
            .insert(TimeKind::Response, "garbage".to_owned());
        progress.feed(&row);
        assert_eq!(
            progress.line(WIDE),
            "1 s of 10 s  1,000/s  CPUs 0.81 client  1,000 ok  50 connections"
        );
    }
}
