//! Figures that conditions can name.

use std::time::Duration;

use floodmark_record::groups::GroupFigures;
use floodmark_record::run::Run;
use floodmark_record::times::Times;
use floodmark_record::units::{show_count, show_duration, show_ns};
use floodmark_stats::Histogram;

use crate::text::per_s;

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FigureUnit {
    /// Time in microseconds. A condition's value must have a unit.
    Time,
    /// Requests per second.
    Rate,
    /// Share of all requests, 0 to 1.
    Share,
    /// Number of requests.
    Count,
    /// CPU time in microseconds. A unit in a condition's value is optional.
    CpuTime,
}

/// A run, or one group of a mix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) run: &'a Run,
    pub(crate) group: Option<&'a GroupFigures>,
}

/// Returns a field of the group, or of the run if there is no group.
macro_rules! field {
    ($subject:expr, $field:ident) => {
        match $subject.group {
            Some(group) => &group.$field,
            None => &$subject.run.$field,
        }
    };
}

impl<'a> Subject<'a> {
    /// Returns the group with a name, or the whole run without a name. Returns `None` if there is no
    /// such group.
    pub(super) fn of(run: &'a Run, name: Option<&str>) -> Option<Self> {
        let group = match name {
            None => None,
            Some(name) => Some(run.groups.iter().find(|group| group.name == name)?),
        };
        Some(Subject { run, group })
    }
}

impl Subject<'_> {
    /// Returns the share of requests with an ok response within `deadline`, even if the response
    /// arrived after the sending window.
    pub(super) fn good_share(self, deadline: Duration) -> Option<f64> {
        let times = field!(self, response_time_us);
        let good = match (&times.histogram, deadline < self.run.plan.timeout) {
            (Some(text), true) => Histogram::decode(text)
                .ok()?
                .count_up_to(deadline.as_nanos() as u64),
            _ => times.count - times.censored,
        };
        let known = self.known();
        (known > 0).then(|| good as f64 / known as f64)
    }

    /// Returns the number of intended requests that were not in flight at the end of the run.
    fn known(self) -> u64 {
        let requests = field!(self, requests);
        requests.intended.saturating_sub(requests.in_flight_at_end)
    }

    /// Returns the number of requests that were due but not ok, including unsent requests.
    fn failed(self) -> u64 {
        self.known().saturating_sub(field!(self, requests).ok)
    }
}

/// A figure other than a request time.
type Number = (&'static str, FigureUnit, fn(Subject<'_>) -> Option<f64>);

/// A distribution of request times.
type Distribution = (&'static str, for<'a> fn(Subject<'a>) -> Option<&'a Times>);

/// A statistic of a distribution, in microseconds.
type Statistic = (&'static str, fn(&Times) -> Option<f64>);

macro_rules! count {
    ($name:ident) => {
        (stringify!($name), FigureUnit::Count, |subject| {
            Some(field!(subject, requests).$name as f64)
        })
    };
}

static NUMBERS: [Number; 13] = [
    ("throughput", FigureUnit::Rate, |s| {
        *field!(s, throughput_per_s)
    }),
    ("goodput", FigureUnit::Rate, |s| *field!(s, goodput_per_s)),
    ("errors", FigureUnit::Share, |s| {
        (s.known() > 0).then(|| s.failed() as f64 / s.known() as f64)
    }),
    ("failed", FigureUnit::Count, |s| Some(s.failed() as f64)),
    count!(rejected),
    count!(wrong),
    count!(malformed),
    count!(reset),
    count!(timed_out),
    count!(connect_failed),
    count!(unsent),
    count!(reconnects),
    ("cpu_us_per_request", FigureUnit::CpuTime, |s| {
        s.run
            .client
            .cpu_us_per_request
            .filter(|_| s.group.is_none())
    }),
];

/// The first distribution is the default.
static DISTRIBUTIONS: [Distribution; 8] = [
    ("response", |s| Some(field!(s, response_time_us))),
    ("service", |s| Some(field!(s, service_time_us))),
    ("blocked", |s| Some(field!(s, blocked_us))),
    ("lateness", |s| Some(field!(s, lateness_us))),
    ("connect", |s| {
        s.group.is_none().then_some(&s.run.connect_time_us)
    }),
    ("handshake", |s| {
        s.group.is_none().then_some(&s.run.handshake_time_us)
    }),
    ("first_byte", |s| Some(field!(s, first_byte_us))),
    ("error", |s| Some(field!(s, error_time_us))),
];

const MEAN: &str = "mean";

static STATISTICS: [Statistic; 8] = [
    ("p50", |t| t.p50),
    ("p90", |t| t.p90),
    ("p95", |t| t.p95),
    ("p99", |t| t.p99),
    ("p99.9", |t| t.p99_9),
    ("p99.99", |t| t.p99_99),
    ("max", |t| t.max),
    (MEAN, |t| t.mean),
];

/// A figure of a run or group.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Figure {
    Number(&'static Number),
    Time(&'static Distribution, &'static Statistic),
}

impl Figure {
    /// Returns the figure with the given name, such as `throughput`, `p99` or `service.p99.9`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        if let Some(number) = NUMBERS.iter().find(|number| number.0 == name) {
            return Some(Figure::Number(number));
        }
        let (distribution, rest) = DISTRIBUTIONS
            .iter()
            .find_map(|of| Some((of, name.strip_prefix(of.0)?.strip_prefix('.')?)))
            .unwrap_or((&DISTRIBUTIONS[0], name));
        let statistic = STATISTICS.iter().find(|statistic| statistic.0 == rest)?;
        Some(Figure::Time(distribution, statistic))
    }

    pub(super) fn unit(self) -> FigureUnit {
        match self {
            Figure::Number((_, unit, _)) => *unit,
            Figure::Time(..) => FigureUnit::Time,
        }
    }

    /// Returns the figure in its unit, or `None` if the figure was not measured. A time above the
    /// timeout is infinite.
    pub(crate) fn of(self, subject: Subject<'_>) -> Option<f64> {
        match self {
            Figure::Number((_, _, number)) => number(subject),
            Figure::Time((_, distribution), (name, statistic)) => {
                let times = distribution(subject)?;
                let above_timeout = times.censored > 0 && *name != MEAN;
                statistic(times).or(above_timeout.then_some(f64::INFINITY))
            }
        }
    }

    /// Formats the figure with its unit.
    pub(super) fn show(self, figure: Option<f64>, timeout_s: f64) -> String {
        let Some(value) = figure else {
            return "not measured".to_owned();
        };
        if value.is_infinite() {
            let timeout = Duration::try_from_secs_f64(timeout_s).unwrap_or_default();
            return format!("> {}", show_duration(timeout));
        }
        match self.unit() {
            FigureUnit::Time | FigureUnit::CpuTime => show_ns(value * 1e3),
            FigureUnit::Rate if value == 0.0 => "0/s".to_owned(),
            FigureUnit::Rate => per_s(value),
            FigureUnit::Share => Figure::show_share(Some(value)),
            FigureUnit::Count => show_count(value as u64),
        }
    }

    /// Formats a share. Three significant digits show that a figure close to a condition's value is
    /// not equal to it.
    pub(super) fn show_share(share: Option<f64>) -> String {
        match share {
            None => "not measured".to_owned(),
            Some(0.0) => "0 %".to_owned(),
            Some(share) => {
                let percent = share * 100.0;
                let decimals = (2.0 - percent.log10().floor()).clamp(0.0, 12.0);
                format!("{percent:.0$} %", decimals as usize)
            }
        }
    }

    /// Suggests a valid name for an unknown figure.
    pub(super) fn nearest(name: &str) -> String {
        let numbers = NUMBERS.map(|number| number.0);
        let statistics = STATISTICS.map(|statistic| statistic.0);
        let distributions = DISTRIBUTIONS.map(|distribution| distribution.0);
        let times = distributions.map(|of| statistics.map(|figure| format!("{of}.{figure}")));
        let known = numbers
            .iter()
            .chain(&statistics)
            .map(|name| (*name).to_owned());
        // Accept common spelling variants.
        let normalized = name
            .to_lowercase()
            .replace("p99_", "p99.")
            .replace('-', "_");
        let nearest = known
            .chain(times.into_iter().flatten())
            .map(|known| (strsim::damerau_levenshtein(&normalized, &known), known))
            .min();
        match nearest {
            // At most a third of the characters may differ.
            Some((distance, known)) if distance * 3 <= known.len().max(3) => {
                format!("did you mean \"{known}\"?")
            }
            _ => format!(
                "valid figures are {}; response-time statistics ({}); and statistics for other times \
                 ({}), such as \"service.p99\"",
                numbers.join(", "),
                statistics.join(", "),
                distributions.join(", ")
            ),
        }
    }
}
