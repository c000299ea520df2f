//! The figures a condition may name.

use floodmark_record::run::Run;
use floodmark_record::times::Times;
use floodmark_record::units::{show_count, show_ns};

use crate::figures::{NOT_MEASURED, rate, seconds};

/// One figure of a run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Figure {
    /// A number of its own.
    Single(&'static Single),
    /// A statistic of one of the times, such as `service.p99`.
    Time(&'static Time, &'static Statistic),
}

/// What a figure is measured in, and so which values it is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Microseconds; the value carries a unit.
    Time,
    /// Per second.
    Rate,
    /// Part of all requests, 0 to 1.
    Share,
    /// Requests.
    Count,
    /// Microseconds of CPU; the name carries the unit.
    CpuTime,
}

/// A figure as it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Measured {
    /// In the figure's own unit.
    Value(f64),
    /// A time only known to be above the timeout.
    AboveTimeout,
    /// Not measured.
    Nothing,
}

/// A figure that is not a time of requests.
#[derive(Debug)]
pub(super) struct Single {
    name: &'static str,
    kind: Kind,
    of: fn(&Run) -> Option<f64>,
}

/// A time of requests.
#[derive(Debug)]
pub(super) struct Time {
    name: &'static str,
    of: fn(&Run) -> &Times,
}

/// A statistic of a time.
#[derive(Debug)]
pub(super) struct Statistic {
    name: &'static str,
    of: fn(&Times) -> Option<f64>,
    /// Whether it is the time of one request: among timed-out ones it is then known to be above the timeout.
    of_one_request: bool,
}

const fn single(name: &'static str, kind: Kind, of: fn(&Run) -> Option<f64>) -> Single {
    Single { name, kind, of }
}

const fn ranked(name: &'static str, of: fn(&Times) -> Option<f64>) -> Statistic {
    Statistic {
        name,
        of,
        of_one_request: true,
    }
}

static SINGLES: [Single; 13] = [
    single("throughput", Kind::Rate, |run| run.throughput_per_s),
    single("goodput", Kind::Rate, |run| run.goodput_per_s),
    single("errors", Kind::Share, |run| {
        let known = known(run);
        (known > 0).then(|| failed(run) as f64 / known as f64)
    }),
    single("failed", Kind::Count, |run| Some(failed(run) as f64)),
    single("rejected", Kind::Count, |run| count(run.requests.rejected)),
    single("wrong", Kind::Count, |run| count(run.requests.wrong)),
    single("malformed", Kind::Count, |run| {
        count(run.requests.malformed)
    }),
    single("reset", Kind::Count, |run| count(run.requests.reset)),
    single("timed_out", Kind::Count, |run| {
        count(run.requests.timed_out)
    }),
    single("connect_failed", Kind::Count, |run| {
        count(run.requests.connect_failed)
    }),
    single("unsent", Kind::Count, |run| count(run.requests.unsent)),
    single("reconnects", Kind::Count, |run| {
        count(run.requests.reconnects)
    }),
    single("cpu_us_per_request", Kind::CpuTime, |run| {
        run.client.cpu_us_per_request
    }),
];

/// The first one is meant where a statistic stands alone.
static TIMES: [Time; 8] = [
    Time {
        name: "response",
        of: |run| &run.response_time_us,
    },
    Time {
        name: "service",
        of: |run| &run.service_time_us,
    },
    Time {
        name: "blocked",
        of: |run| &run.blocked_us,
    },
    Time {
        name: "lateness",
        of: |run| &run.lateness_us,
    },
    Time {
        name: "connect",
        of: |run| &run.connect_time_us,
    },
    Time {
        name: "handshake",
        of: |run| &run.handshake_time_us,
    },
    Time {
        name: "first_byte",
        of: |run| &run.first_byte_us,
    },
    Time {
        name: "error",
        of: |run| &run.error_time_us,
    },
];

static STATISTICS: [Statistic; 8] = [
    ranked("p50", |t| t.p50),
    ranked("p90", |t| t.p90),
    ranked("p95", |t| t.p95),
    ranked("p99", |t| t.p99),
    ranked("p99.9", |t| t.p99_9),
    ranked("p99.99", |t| t.p99_99),
    ranked("max", |t| t.max),
    Statistic {
        name: "mean",
        of: |t| t.mean,
        of_one_request: false,
    },
];

/// Requests whose fate is known: all but those in flight when the run was ended early.
fn known(run: &Run) -> u64 {
    let requests = &run.requests;
    requests.intended.saturating_sub(requests.in_flight_at_end)
}

/// Requests whose time came and which did not end ok, sent or not.
fn failed(run: &Run) -> u64 {
    known(run).saturating_sub(run.requests.ok)
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a count is a figure like those that may be missing"
)]
fn count(n: u64) -> Option<f64> {
    Some(n as f64)
}

impl Figure {
    /// The figure of that name, such as `throughput`, `p99`, `service.p99.9`.
    pub(super) fn named(name: &str) -> Option<Self> {
        if let Some(single) = SINGLES.iter().find(|single| single.name == name) {
            return Some(Figure::Single(single));
        }
        let (time, rest) = TIMES
            .iter()
            .find_map(|time| {
                let rest = name.strip_prefix(time.name)?.strip_prefix('.')?;
                Some((time, rest))
            })
            .unwrap_or((&TIMES[0], name));
        let statistic = STATISTICS.iter().find(|s| s.name == rest)?;
        Some(Figure::Time(time, statistic))
    }

    pub(super) fn kind(self) -> Kind {
        match self {
            Figure::Single(single) => single.kind,
            Figure::Time(..) => Kind::Time,
        }
    }

    pub(super) fn of(self, run: &Run) -> Measured {
        match self {
            Figure::Single(single) => match (single.of)(run) {
                Some(value) => Measured::Value(value),
                None => Measured::Nothing,
            },
            Figure::Time(time, statistic) => {
                let times = (time.of)(run);
                match (statistic.of)(times) {
                    Some(value) => Measured::Value(value),
                    None if times.censored > 0 && statistic.of_one_request => {
                        Measured::AboveTimeout
                    }
                    None => Measured::Nothing,
                }
            }
        }
    }

    /// The figure as people read it.
    pub(super) fn show(self, measured: Measured, run: &Run) -> String {
        let value = match measured {
            Measured::Value(value) => value,
            Measured::AboveTimeout => return format!("> {}", seconds(run.plan.timeout_s)),
            Measured::Nothing => return format!("{NOT_MEASURED} (not measured)"),
        };
        match self.kind() {
            Kind::Time | Kind::CpuTime => show_ns(value * 1e3),
            Kind::Rate => rate(value),
            // Three significant digits: rounding must not hide which side of the value it is on.
            Kind::Share => format!("{} %", significant(value * 100.0)),
            Kind::Count => show_count(value as u64),
        }
    }
}

fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let decimals = (2.0 - value.abs().log10().floor()).clamp(0.0, 12.0);
    format!("{value:.0$}", decimals as usize)
}

/// What to write in place of an unknown name: the nearest one, or the whole list.
pub(super) fn nearest(name: &str) -> String {
    let times = TIMES.iter().flat_map(|time| {
        STATISTICS
            .iter()
            .map(move |statistic| format!("{}.{}", time.name, statistic.name))
    });
    let known: Vec<String> = SINGLES
        .iter()
        .map(|single| single.name.to_owned())
        .chain(STATISTICS.iter().map(|s| s.name.to_owned()))
        .chain(times)
        .collect();
    // Other spellings of the same name come first: case, and the record's underscores.
    let spelt = name
        .to_lowercase()
        .replace("p99_", "p99.")
        .replace('-', "_");
    let best = known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(&spelt, k), k))
        .min();
    match best {
        // A third of the letters wrong is still a slip; more is another word.
        Some((distance, best)) if distance * 3 <= best.len().max(3) => {
            format!("did you mean \"{best}\"?")
        }
        _ => {
            let singles: Vec<&str> = SINGLES.iter().map(|s| s.name).collect();
            let statistics: Vec<&str> = STATISTICS.iter().map(|s| s.name).collect();
            let times: Vec<&str> = TIMES.iter().map(|t| t.name).collect();
            format!(
                "the figures are {}; {} (of response time); and the same of another time, like \"service.p99\" ({})",
                singles.join(", "),
                statistics.join(", "),
                times.join(", ")
            )
        }
    }
}
