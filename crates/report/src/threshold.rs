//! `--fail-if 'p99 > 50ms'`: a figure of the record, an operator and a value; `'search: p99 > 50ms'` is of one group of a mix.

mod figure;
mod subject;

use std::str::FromStr;

use floodmark_record::result::{Record, Threshold};
use floodmark_record::run::Run;
use floodmark_record::units::{UnitError, parse_count, parse_duration, parse_rate};

use crate::figures::NOT_MEASURED;
use figure::{Figure, Kind, Measured};
use subject::Subject;

/// A condition that makes the command fail when it is met.
#[derive(Debug, Clone)]
pub struct Condition {
    text: String,
    /// The group it is about; the run where it names none.
    group: Option<String>,
    figure: Figure,
    op: Op,
    /// In the figure's own unit: µs, per second, share of one, or a count.
    value: f64,
}

/// Why a condition could not be read; the text names the mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// There is no operator, or nothing on one side of it.
    #[error(
        "\"{0}\" is not a condition; write a figure, an operator and a value, such as 'p99 > 50ms'"
    )]
    NotACondition(String),
    /// A figure that is not known.
    #[error("unknown figure \"{name}\" in \"{text}\"; {mend}")]
    UnknownFigure {
        /// The whole condition.
        text: String,
        /// What stood for the figure.
        name: String,
        /// The nearest name, or all of them.
        mend: String,
    },
    /// An operator that is not known.
    #[error("unknown operator \"{op}\" in \"{text}\"; {mend}")]
    UnknownOperator {
        /// The whole condition.
        text: String,
        /// What stood for the operator.
        op: String,
        /// What to write.
        mend: String,
    },
    /// A value that does not fit the figure.
    #[error("in \"{text}\": {mend}")]
    Value {
        /// The whole condition.
        text: String,
        /// What is wrong with the value, and what to write.
        mend: String,
    },
}

/// How figure and value are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
}

impl Op {
    pub(crate) fn parse(op: &str) -> Result<Self, &'static str> {
        Ok(match op {
            ">" => Op::Greater,
            ">=" => Op::GreaterOrEqual,
            "<" => Op::Less,
            "<=" => Op::LessOrEqual,
            "==" => Op::Equal,
            "!=" => Op::NotEqual,
            "=" => return Err("did you mean \"==\"?"),
            "=>" => return Err("did you mean \">=\"?"),
            "=<" => return Err("did you mean \"<=\"?"),
            "<>" | "!" => return Err("did you mean \"!=\"?"),
            _ => return Err("use >, >=, <, <=, == or !="),
        })
    }

    pub(crate) fn holds(self, figure: f64, value: f64) -> bool {
        match self {
            Op::Greater => figure > value,
            Op::GreaterOrEqual => figure >= value,
            Op::Less => figure < value,
            Op::LessOrEqual => figure <= value,
            Op::Equal => figure == value,
            Op::NotEqual => figure != value,
        }
    }
}

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let no_condition = || ConditionError::NotACondition(text.to_owned());
        let is_op = |c: char| "<>=!".contains(c);
        let (name, rest) = text.split_at(text.find(is_op).ok_or_else(no_condition)?);
        let (op, value) = rest.split_at(rest.find(|c| !is_op(c)).ok_or_else(no_condition)?);
        // No figure has a colon in its name.
        let (group, name) = match name.split_once(':') {
            Some((group, name)) => (Some(group.trim()), name),
            None => (None, name),
        };
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() || value.is_empty() || group == Some("") {
            return Err(no_condition());
        }
        let figure = Figure::named(name).ok_or_else(|| ConditionError::UnknownFigure {
            text: text.to_owned(),
            name: name.to_owned(),
            mend: figure::nearest(name),
        })?;
        let op = Op::parse(op).map_err(|mend| ConditionError::UnknownOperator {
            text: text.to_owned(),
            op: op.to_owned(),
            mend: mend.to_owned(),
        })?;
        let value = parse_value(figure.kind(), value).map_err(|mend| ConditionError::Value {
            text: text.to_owned(),
            mend,
        })?;
        Ok(Condition {
            text: text.to_owned(),
            group: group.map(str::to_owned),
            figure,
            op,
            value,
        })
    }
}

/// Reads a value in the unit of its figure: µs, per second, share of one, or a count.
fn parse_value(kind: Kind, text: &str) -> Result<f64, String> {
    let say = |e: UnitError| e.to_string();
    match kind {
        Kind::Time => parse_duration(text)
            .map(|time| time.as_nanos() as f64 / 1e3)
            .map_err(say),
        Kind::Rate => match text.strip_suffix("/s").unwrap_or(text).trim_end() {
            "0" => Ok(0.0),
            rate => parse_rate(rate).map_err(say),
        },
        Kind::Count => parse_count(text).map(|n| n as f64).map_err(say),
        Kind::Share => parse_share(text),
        Kind::CpuTime => {
            let micros = parse_rate(text).or_else(|_| {
                parse_duration(text)
                    .map(|time| time.as_nanos() as f64 / 1e3)
                    .map_err(say)
            });
            micros.map_err(|_| {
                format!("\"{text}\" is not a time; write microseconds, like \"5\" or \"5us\"")
            })
        }
    }
}

/// `1%` or `0.01`; a whole number alone would be read as a percentage by some and as a share by others.
fn parse_share(text: &str) -> Result<f64, String> {
    let bad = || format!("\"{text}\" is not a share; write it like \"1%\" or \"0.01\"");
    let (number, scale, most) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 100.0, 100.0),
        None => (text, 1.0, 1.0),
    };
    if !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(bad());
    }
    let value: f64 = number.parse().map_err(|_| bad())?;
    if scale == 1.0 && value >= 1.0 {
        return Err(format!(
            "\"{text}\" could be a percentage or a share; write \"{text}%\", or a share below 1 like \"0.01\""
        ));
    }
    if value > most {
        return Err(format!(
            "\"{text}\" is more than all; write at most \"100%\""
        ));
    }
    // The double next to the decimal, as a quotient of counts is: 2.4% must equal 24 of 1,000.
    Ok((value / scale * 1e12).round() / 1e12)
}

impl Condition {
    /// The condition as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The group of a mix that it is about, where it names one.
    #[must_use]
    pub fn group(&self) -> Option<&str> {
        self.group.as_deref()
    }

    /// Compares the figure of one run, or of its group.
    ///
    /// A percentile or maximum that falls among requests that timed out counts as larger than anything. A
    /// figure that was not measured gives `met: None`.
    #[must_use]
    pub fn of_run(&self, run: &Run) -> Threshold {
        let (met, figure) = self.compare(run);
        self.threshold(met, figure)
    }

    /// Compares the figure of every run of a record: met where any run meets it (the figure is then of the
    /// first that does), not known where none does and one was not measured.
    #[must_use]
    pub fn of_record(&self, record: &Record) -> Threshold {
        let several = record.runs.len() > 1;
        let compared: Vec<(Option<bool>, String)> = record
            .runs
            .iter()
            .map(|run| {
                let (met, figure) = self.compare(run);
                match several {
                    true => (met, format!("{figure} (attempt {})", run.attempt)),
                    false => (met, figure),
                }
            })
            .collect();
        let telling = [Some(true), None, Some(false)]
            .into_iter()
            .find_map(|met| compared.iter().find(|(m, _)| *m == met));
        match telling {
            Some((Some(false), _)) => {
                // Every run's figure counts when none meets the condition.
                let all: Vec<&str> = compared.iter().map(|(_, f)| f.as_str()).collect();
                self.threshold(Some(false), all.join(", "))
            }
            Some((met, figure)) => self.threshold(*met, figure.clone()),
            None => self.threshold(None, "nothing was measured".to_owned()),
        }
    }

    fn compare(&self, run: &Run) -> (Option<bool>, String) {
        let subject = match &self.group {
            None => Subject::run(run),
            Some(name) => match run.groups.iter().find(|group| group.name == *name) {
                Some(group) => Subject::group(run, group),
                None => return (None, format!("{NOT_MEASURED} (no such group)")),
            },
        };
        let measured = self.figure.of(&subject);
        let met = match measured {
            Measured::Value(figure) => Some(self.op.holds(figure, self.value)),
            Measured::AboveTimeout => Some(self.op.holds(f64::INFINITY, self.value)),
            Measured::Nothing => None,
        };
        (met, self.figure.show(measured, subject.timeout_s))
    }

    fn threshold(&self, met: Option<bool>, figure: String) -> Threshold {
        Threshold {
            condition: self.text.clone(),
            met,
            figure,
        }
    }
}

#[cfg(test)]
mod tests;
