//! The figures a condition may name.

use floodmark_record::times::Times;
use floodmark_record::units::{show_count, show_ns};

use super::subject::Subject;
use crate::figures::{NOT_MEASURED, rate, seconds};

/// One figure of a run or of a group.
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
    of: fn(&Subject<'_>) -> Option<f64>,
}

/// A time of requests.
#[derive(Debug)]
pub(super) struct Time {
    name: &'static str,
    of: for<'a> fn(&Subject<'a>) -> Option<&'a Times>,
}

/// A statistic of a time.
#[derive(Debug)]
pub(super) struct Statistic {
    name: &'static str,
    of: fn(&Times) -> Option<f64>,
    /// Whether it is the time of one request: among timed-out ones it is then known to be above the timeout.
    of_one_request: bool,
}

const fn single(name: &'static str, kind: Kind, of: fn(&Subject<'_>) -> Option<f64>) -> Single {
    Single { name, kind, of }
}

const fn ranked(name: &'static str, of: fn(&Times) -> Option<f64>) -> Statistic {
    Statistic {
        name,
        of,
        of_one_request: true,
    }
}

/// One of the run's counts, which has the name that it has in the record.
macro_rules! count {
    ($name:ident) => {
        single(stringify!($name), Kind::Count, |subject| {
            Some(subject.requests.$name as f64)
        })
    };
}

static SINGLES: [Single; 13] = [
    single("throughput", Kind::Rate, |subject| subject.throughput_per_s),
    single("goodput", Kind::Rate, |subject| subject.goodput_per_s),
    single("errors", Kind::Share, |subject| {
        let known = known(subject);
        (known > 0).then(|| failed(subject) as f64 / known as f64)
    }),
    single(
        "failed",
        Kind::Count,
        |subject| Some(failed(subject) as f64),
    ),
    count!(rejected),
    count!(wrong),
    count!(malformed),
    count!(reset),
    count!(timed_out),
    count!(connect_failed),
    count!(unsent),
    count!(reconnects),
    single("cpu_us_per_request", Kind::CpuTime, |subject| {
        subject.cpu_us_per_request
    }),
];

/// The first one is meant where a statistic stands alone.
static TIMES: [Time; 8] = [
    Time {
        name: "response",
        of: |subject| Some(subject.response),
    },
    Time {
        name: "service",
        of: |subject| Some(subject.service),
    },
    Time {
        name: "blocked",
        of: |subject| Some(subject.blocked),
    },
    Time {
        name: "lateness",
        of: |subject| Some(subject.lateness),
    },
    Time {
        name: "connect",
        of: |subject| subject.connect,
    },
    Time {
        name: "handshake",
        of: |subject| subject.handshake,
    },
    Time {
        name: "first_byte",
        of: |subject| Some(subject.first_byte),
    },
    Time {
        name: "error",
        of: |subject| Some(subject.error),
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
fn known(subject: &Subject<'_>) -> u64 {
    let requests = subject.requests;
    requests.intended.saturating_sub(requests.in_flight_at_end)
}

/// Requests whose time came and which did not end ok, sent or not.
fn failed(subject: &Subject<'_>) -> u64 {
    known(subject).saturating_sub(subject.requests.ok)
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

    pub(super) fn of(self, subject: &Subject<'_>) -> Measured {
        match self {
            Figure::Single(single) => match (single.of)(subject) {
                Some(value) => Measured::Value(value),
                None => Measured::Nothing,
            },
            Figure::Time(time, statistic) => {
                let Some(times) = (time.of)(subject) else {
                    return Measured::Nothing;
                };
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
    pub(super) fn show(self, measured: Measured, timeout_s: f64) -> String {
        let value = match measured {
            Measured::Value(value) => value,
            Measured::AboveTimeout => return format!("> {}", seconds(timeout_s)),
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
