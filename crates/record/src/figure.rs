//! The figures of a load: their names, their units, and where they are in a record.
//!
//! A figure is either a [`Number`] or a [`Statistic`] of one of the kinds of time in [`TIMES`].
//! Conditions, comparisons and tables take names, units and values from this module.

use std::time::Duration;

use crate::comparison::ComparedMetric;
use crate::gate::SideFigures;
use crate::outcome::Counts;
use crate::run::{GroupFigures, Run};
use crate::times::{TimeKind, Times};
use crate::units::{
    Rate, parse_count, parse_duration, parse_rate, show_count, show_duration, show_ns, show_rate,
};
use crate::watch::Server;

/// Text for a figure that was not measured.
pub const NOT_MEASURED: &str = "not measured";

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureUnit {
    /// Time in microseconds. [`FigureUnit::parse`] requires a unit.
    Time,
    /// Requests per second.
    Rate,
    /// Share of all requests, from 0 to 1.
    Share,
    /// Number of requests.
    Count,
    /// CPU time in microseconds. [`FigureUnit::parse`] also accepts a number without a unit.
    CpuTime,
}

impl FigureUnit {
    /// Returns the name of the unit in machine-readable tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FigureUnit::Time | FigureUnit::CpuTime => "us",
            FigureUnit::Rate => "per_s",
            FigureUnit::Share => "share",
            FigureUnit::Count => "count",
        }
    }

    /// Formats a value with its unit.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            FigureUnit::Time | FigureUnit::CpuTime => show_ns(value * 1e3),
            FigureUnit::Rate if value == 0.0 => "0/s".to_owned(),
            FigureUnit::Rate => format!("{}/s", show_rate(value)),
            FigureUnit::Share if value == 0.0 => "0 %".to_owned(),
            // Three significant digits distinguish a figure from a limit that is close to it.
            FigureUnit::Share => {
                let percent = value * 100.0;
                let decimals = (2.0 - percent.log10().floor()).clamp(0.0, 12.0);
                format!("{percent:.0$} %", decimals as usize)
            }
            FigureUnit::Count => show_count(value as u64),
        }
    }

    /// Parses a value.
    ///
    /// # Errors
    /// Returns what is wrong with the text, and how to fix it.
    pub fn parse(self, text: &str) -> Result<f64, String> {
        let micros = |text| parse_duration(text).map(|time| time.as_nanos() as f64 / 1e3);
        match self {
            FigureUnit::Time => micros(text),
            FigureUnit::Rate => match text.strip_suffix("/s").unwrap_or(text).trim_end() {
                "0" => Ok(0.0),
                rate => parse_rate(rate).map(Rate::per_s),
            },
            FigureUnit::Count => parse_count(text).map(|n| n as f64),
            FigureUnit::Share => parse_share(text),
            FigureUnit::CpuTime => parse_rate(text)
                .map(Rate::per_s)
                .or_else(|_| micros(text))
                .map_err(|_| {
                    format!(
                        "\"{text}\" is not a time; write microseconds, such as \"5\" or \"5us\""
                    )
                }),
        }
    }
}

/// Parses `1%` or `0.01`. Rejects numbers of at least 1 without a percent sign as ambiguous.
fn parse_share(text: &str) -> Result<f64, String> {
    let invalid = || format!("\"{text}\" is not a share; write a value such as \"1%\" or \"0.01\"");
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0),
        None => (text, 1.0),
    };
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(invalid());
    }
    let value: f64 = number.parse().map_err(|_| invalid())?;
    if scale == 1.0 && value >= 1.0 {
        return Err(format!(
            "\"{text}\" could be a percentage or a share; write \"{text}%\", or a share below 1 such as \"0.01\""
        ));
    }
    if value > scale {
        return Err(format!("\"{text}\" exceeds the maximum of \"100%\""));
    }
    // Without rounding, 2.4% would not exactly equal 24 ÷ 1,000.
    Ok((value / scale * 1e12).round() / 1e12)
}

/// Requests whose figures a record contains.
pub trait Measured {
    /// Throughput and goodput, per second.
    fn rates(&self) -> [Option<f64>; 2];

    /// Counts of the requests.
    fn requests(&self) -> &Counts;

    /// Times of one kind, or `None` if the record does not contain them for these requests.
    fn times(&self, kind: TimeKind) -> Option<&Times>;

    /// Returns the run if these are all of its requests, or `None` if they are only some of them.
    fn run(&self) -> Option<&Run> {
        None
    }

    /// Number of intended requests, excluding those in flight at the end of the run.
    fn with_known_outcome(&self) -> u64 {
        let requests = self.requests();
        requests.intended.saturating_sub(requests.in_flight_at_end)
    }

    /// Number of intended requests that were neither ok nor in flight at the end of the run.
    /// Includes unsent requests.
    fn failed(&self) -> u64 {
        self.with_known_outcome().saturating_sub(self.requests().ok)
    }
}

macro_rules! measured {
    ($type:ty, run: $run:expr, times: { $($kind:ident: $times:ident,)* }) => {
        impl Measured for $type {
            fn rates(&self) -> [Option<f64>; 2] {
                [self.throughput_per_s, self.goodput_per_s]
            }

            fn requests(&self) -> &Counts {
                &self.requests
            }

            fn times(&self, kind: TimeKind) -> Option<&Times> {
                match kind {
                    $(TimeKind::$kind => Some(&self.$times),)*
                    _ => None,
                }
            }

            fn run(&self) -> Option<&Run> {
                $run(self)
            }
        }
    };
}

measured!(Run, run: Some, times: {
    Response: response_time_us, Service: service_time_us, Blocked: blocked_us,
    Lateness: lateness_us, Connect: connect_time_us, Handshake: handshake_time_us,
    FirstByte: first_byte_us, Error: error_time_us,
});

measured!(GroupFigures, run: |_| None, times: {
    Response: response_time_us, Service: service_time_us, Blocked: blocked_us,
    Lateness: lateness_us, FirstByte: first_byte_us, Error: error_time_us,
});

impl Measured for SideFigures {
    fn rates(&self) -> [Option<f64>; 2] {
        [self.requests.ok, self.good].map(|count| Some(count as f64 / self.loaded_s))
    }

    fn requests(&self) -> &Counts {
        &self.requests
    }

    fn times(&self, kind: TimeKind) -> Option<&Times> {
        match kind {
            TimeKind::Response => Some(&self.response_us),
            TimeKind::Service => Some(&self.service_us),
            _ => None,
        }
    }
}

/// A figure that is a single number, such as a rate or a count.
#[derive(Debug)]
pub struct Number {
    /// Name in conditions and records.
    pub name: &'static str,
    title: &'static str,
    unit: FigureUnit,
    get: fn(&dyn Measured) -> Option<f64>,
}

/// Returns a figure whose title is the same as its name.
const fn number(
    name: &'static str,
    unit: FigureUnit,
    get: fn(&dyn Measured) -> Option<f64>,
) -> Number {
    Number {
        name,
        title: name,
        unit,
        get,
    }
}

macro_rules! count {
    ($name:ident) => {
        number(stringify!($name), FigureUnit::Count, |of| {
            Some(of.requests().$name as f64)
        })
    };
}

/// Figures that conditions on a run can use, in the order used in messages.
pub static NUMBERS: [Number; 13] = [
    number("throughput", FigureUnit::Rate, |of| of.rates()[0]),
    number("goodput", FigureUnit::Rate, |of| of.rates()[1]),
    number("errors", FigureUnit::Share, |of| {
        let known = of.with_known_outcome();
        (known > 0).then(|| of.failed() as f64 / known as f64)
    }),
    number("failed", FigureUnit::Count, |of| Some(of.failed() as f64)),
    count!(rejected),
    count!(wrong),
    count!(malformed),
    count!(reset),
    count!(timed_out),
    count!(connect_failed),
    count!(unsent),
    count!(reconnects),
    Number {
        title: "client CPU time per request",
        ..number("cpu_us_per_request", FigureUnit::CpuTime, |of| {
            of.run()?.client.cpu_us_per_request
        })
    },
];

/// Figures that only comparisons use.
static COMPARED_ONLY: [Number; 2] = [
    Number {
        title: "server CPU time per request",
        ..number("server_cpu_us_per_request", FigureUnit::CpuTime, |of| {
            let run = of.run()?;
            let cpu_us = |of: &Server| of.cpu_us_per_request;
            let store_us = run.store.as_ref().map_or(Some(0.0), cpu_us)?;
            Some(cpu_us(run.server.as_ref()?)? + store_us)
        })
    },
    // A capacity belongs to a search, not to a run.
    number("capacity", FigureUnit::Rate, |_| None),
];

/// Kinds of time for which there are figures, in the order used in messages. A figure name without
/// a kind, such as `p99`, refers to the response time.
pub const TIMES: [TimeKind; 8] = [
    TimeKind::Response,
    TimeKind::Service,
    TimeKind::Blocked,
    TimeKind::Lateness,
    TimeKind::Connect,
    TimeKind::Handshake,
    TimeKind::FirstByte,
    TimeKind::Error,
];

crate::names::named! {
    // In the order used in messages.
    /// A statistic of times.
    Statistic {
        /// Median.
        P50 = "p50",
        /// 90th percentile.
        P90 = "p90",
        /// 95th percentile.
        P95 = "p95",
        /// 99th percentile.
        P99 = "p99",
        /// 99.9th percentile.
        P99_9 = "p99.9",
        /// 99.99th percentile.
        P99_99 = "p99.99",
        /// Maximum.
        Max = "max",
        /// Arithmetic mean.
        Mean = "mean",
    }
}

impl Statistic {
    /// Returns the statistic of `times` in microseconds. A percentile or maximum that falls among
    /// timed-out requests is infinite.
    #[must_use]
    pub fn of(self, times: &Times) -> Option<f64> {
        let us = match self {
            Statistic::P50 => times.p50,
            Statistic::P90 => times.p90,
            Statistic::P95 => times.p95,
            Statistic::P99 => times.p99,
            Statistic::P99_9 => times.p99_9,
            Statistic::P99_99 => times.p99_99,
            Statistic::Max => times.max,
            Statistic::Mean => times.mean,
        };
        let is_censored = times.censored > 0 && self != Statistic::Mean;
        us.or(is_censored.then_some(f64::INFINITY))
    }

    /// Returns the quantile, from 0 to 1, if the statistic is a percentile.
    #[must_use]
    pub fn quantile(self) -> Option<f64> {
        let percent: f64 = self.name().strip_prefix('p')?.parse().ok()?;
        Some(percent / 100.0)
    }
}

/// A figure of a load.
#[derive(Debug, Clone, Copy)]
pub enum Figure {
    /// A figure that is a single number, such as a rate or a count.
    Number(&'static Number),
    /// A statistic of times.
    Time(TimeKind, Statistic),
}

impl Figure {
    /// Returns the figure with the given name, such as `throughput`, `p99` or `service.p99.9`, if
    /// conditions on a run can use it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Figure::number_in(&NUMBERS, name).or_else(|| {
            let (kind, statistic) = TIMES
                .iter()
                .find_map(|kind| Some((*kind, name.strip_prefix(kind.name())?.strip_prefix('.')?)))
                .unwrap_or((TimeKind::Response, name));
            Some(Figure::Time(kind, Statistic::from_name(statistic)?))
        })
    }

    fn number_in(numbers: &'static [Number], name: &str) -> Option<Self> {
        let number = numbers.iter().find(|number| number.name == name);
        number.map(Figure::Number)
    }

    /// Returns the name for use in sentences, such as `response time p99`.
    #[must_use]
    pub fn title(self) -> String {
        match self {
            Figure::Number(number) => number.title.to_owned(),
            Figure::Time(kind @ (TimeKind::Response | TimeKind::Service), statistic) => {
                format!("{kind} time {statistic}")
            }
            Figure::Time(kind, statistic) => {
                format!("{} {statistic}", kind.name().replace('_', " "))
            }
        }
    }

    /// Returns the unit.
    #[must_use]
    pub fn unit(self) -> FigureUnit {
        match self {
            Figure::Number(number) => number.unit,
            Figure::Time(..) => FigureUnit::Time,
        }
    }

    /// Returns whether a higher figure is better.
    #[must_use]
    pub fn more_is_better(self) -> bool {
        self.unit() == FigureUnit::Rate
    }

    /// Returns the figure's value in its unit, or `None` if it was not measured. A time above the
    /// timeout is infinite.
    #[must_use]
    pub fn of(self, measured: &dyn Measured) -> Option<f64> {
        match self {
            Figure::Number(number) => (number.get)(measured),
            Figure::Time(kind, statistic) => statistic.of(measured.times(kind)?),
        }
    }

    /// Formats the figure with its unit.
    #[must_use]
    pub fn show(self, figure: Option<f64>, timeout: Duration) -> String {
        match figure {
            None => NOT_MEASURED.to_owned(),
            Some(value) if value.is_infinite() => format!("> {}", show_duration(timeout)),
            Some(value) => self.unit().show(value),
        }
    }
}

impl ComparedMetric {
    /// Returns the figure that corresponds to this metric.
    #[must_use]
    pub fn figure(self) -> Figure {
        let name = self.name();
        Figure::named(name)
            .or_else(|| Figure::number_in(&COMPARED_ONLY, name))
            .expect("every compared metric is a figure")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_compared_metric_is_a_figure() {
        let titles = ComparedMetric::ALL.map(|metric| metric.figure().title());
        assert_eq!(
            titles,
            [
                "throughput",
                "goodput",
                "response time p50",
                "response time p99",
                "service time p50",
                "service time p99",
                "first byte p99",
                "client CPU time per request",
                "server CPU time per request",
                "capacity",
            ]
        );
    }

    #[test]
    fn names_select_a_kind_of_time_and_a_statistic() {
        let of = |name| Figure::named(name).map(Figure::title);
        assert_eq!(of("p99.9").unwrap(), "response time p99.9");
        assert_eq!(of("first_byte.max").unwrap(), "first byte max");
        assert_eq!(of("censored.p50"), None);
        assert_eq!(of("capacity"), None);
    }
}
