//! Conditions on runs: `p99 > 50ms`, or `search: p99 > 50ms` for one group of a mix.

use std::str::FromStr;

use floodmark_record::plan::Rate;
use floodmark_record::result::{Record, Threshold};
use floodmark_record::run::Run;
use floodmark_record::units::{parse_count, parse_duration, parse_rate};

use super::figure::{Figure, FigureUnit, Subject};
use super::{Comparator, ConditionError, Parts};

const FORM: &str = "a figure, an operator and a value, such as 'p99 > 50ms'";

/// A condition of `floodmark load --fail-if`.
#[derive(Debug, Clone)]
pub struct Condition {
    /// The original text of the condition.
    pub text: String,
    /// The group that the condition applies to, or `None` for the whole run.
    pub group: Option<String>,
    figure: Figure,
    comparator: Comparator,
    /// The value in the unit of the figure.
    value: f64,
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = Parts::split(text, FORM)?;
        let (group, name) = parts.group_and_name(FORM)?;
        let unknown = || parts.unknown_figure(name, &Figure::nearest(name));
        let figure = Figure::named(name).ok_or_else(unknown)?;
        let value = parse_value(figure.unit(), parts.value);
        Ok(Condition {
            text: parts.text.to_owned(),
            group: group.map(str::to_owned),
            figure,
            comparator: parts.comparator,
            value: value.map_err(|problem| parts.invalid_value(&problem))?,
        })
    }
}

/// Parses a value and returns it in the figure's unit.
pub(super) fn parse_value(unit: FigureUnit, text: &str) -> Result<f64, String> {
    let micros = |text| parse_duration(text).map(|time| time.as_nanos() as f64 / 1e3);
    match unit {
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
                format!("\"{text}\" is not a time; write microseconds, such as \"5\" or \"5us\"")
            }),
    }
}

/// Parses `1%` or `0.01`. The value `1` without a percent sign is ambiguous.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
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

impl Condition {
    /// Evaluates the condition on all runs of a record. The condition is met if any run meets the
    /// condition. The result is unknown if no run meets the condition and at least one run lacks
    /// the figure.
    ///
    /// The result contains the figure of the first decisive run. A percentile or maximum that falls
    /// among timed-out requests is infinite.
    #[must_use]
    pub fn judge(&self, record: &Record) -> Threshold {
        let runs = &record.runs;
        let judged = runs
            .iter()
            .map(|run| match (self.judge_run(run), runs.len()) {
                (judged, 1) => judged,
                ((met, figure), _) => (met, format!("{figure} (attempt {})", run.attempt)),
            });
        let judged: Vec<(Option<bool>, String)> = judged.collect();
        let decisive = [Some(true), None]
            .into_iter()
            .find_map(|met| judged.iter().find(|(m, _)| *m == met));
        let (met, figure) = match decisive {
            Some(decisive) => decisive.clone(),
            None if judged.is_empty() => (None, "not measured".to_owned()),
            None => {
                let all: Vec<&str> = judged.iter().map(|(_, figure)| figure.as_str()).collect();
                (Some(false), all.join(", "))
            }
        };
        Threshold {
            condition: self.text.clone(),
            met,
            figure,
        }
    }

    /// Returns whether a run meets the condition, and the formatted figure.
    pub(super) fn judge_run(&self, run: &Run) -> (Option<bool>, String) {
        let Some(subject) = Subject::of(run, self.group.as_deref()) else {
            return (None, "not measured (no such group)".to_owned());
        };
        let figure = self.figure.of(subject);
        let met = figure.map(|figure| (self.comparator)(&figure, &self.value));
        (
            met,
            self.figure.show(figure, run.plan.timeout.as_secs_f64()),
        )
    }
}
