//! Conditions of `--fail-if` and objectives of `--slo`: syntax and evaluation.
//!
//! A [`Condition`] compares a subject with a value. The command determines the kind of subject: a
//! figure of a run, a capacity, a ratio of two results, or a figure that an objective limits.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::time::Duration;

use floodmark_record::capacity::{CapacityBound, CapacityResult, ObjectiveFigure};
use floodmark_record::comparison::{ComparedMetric, Comparison, Threshold};
use floodmark_record::figure::{
    Figure, FigureUnit, Measured, NOT_MEASURED, NUMBERS, Statistic, TIMES,
};
use floodmark_record::result::Record;
use floodmark_record::run::Run;
use floodmark_record::times::TimeKind;
use floodmark_record::units::{parse_duration, show_duration, show_ratio};
use floodmark_stats::Histogram;

use crate::text::per_s;

/// Quantile that a trial must measure precisely if an objective limits a mean.
const QUANTILE_OF_MEAN: f64 = 0.9;

/// The error for an invalid condition. The message contains a suggestion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConditionError(String);

/// A condition on a subject, such as `p99 > 50ms`.
#[derive(Debug, Clone)]
pub struct Condition<S> {
    /// The original text of the condition.
    pub text: String,
    /// Name of the request in a mix to which the condition is limited, or `None` for all requests.
    pub group: Option<String>,
    /// What the condition compares with its value.
    pub subject: S,
    operator: &'static Operator,
    /// The value, in the subject's unit.
    value: f64,
}

/// A condition of `floodmark load --fail-if`: `p99 > 50ms`, or `search: p99 > 50ms` for one group
/// of a mix.
pub type RunCondition = Condition<Figure>;

/// A condition of `floodmark load --abort-if`: `errors > 20% for 5s`.
#[derive(Debug, Clone)]
pub struct AbortCondition {
    /// Condition that is evaluated on each second's figures.
    pub condition: RunCondition,
    /// Time for which the condition must hold.
    pub sustained: Duration,
}

/// Time for which an [`AbortCondition`] must hold by default.
const DEFAULT_SUSTAINED: Duration = Duration::from_secs(5);

/// A condition of `floodmark compare --fail-if`: `p99 ratio > 1.05`.
pub type RatioCondition = Condition<RatioSubject>;

/// A condition of `floodmark capacity --fail-if`: `capacity < 5000/s`.
pub type CapacityCondition = Condition<CapacitySubject>;

/// A condition that a server must meet at its capacity: `p99 < 20ms`, `errors < 0.1%` or
/// `goodput > 99%`.
pub type Objective = Condition<ObjectiveSubject>;

/// What a condition compares with its value.
pub trait ConditionSubject: Sized {
    /// The expected syntax, for error messages.
    const FORM: &'static str;

    /// Whether a condition can apply to a single request of a mix.
    const HAS_GROUPS: bool;

    /// Parses the subject and the value.
    ///
    /// # Errors
    /// The subject is unknown, or the value is not valid for it.
    fn parse(parts: &Parts<'_>) -> Result<(Self, f64), ConditionError>;
}

type Operator = (&'static str, fn(&f64, &f64) -> bool);

static OPERATORS: [Operator; 6] = [
    (">", f64::gt),
    (">=", f64::ge),
    ("<", f64::lt),
    ("<=", f64::le),
    ("==", f64::eq),
    ("!=", f64::ne),
];

/// The parts of a condition.
pub struct Parts<'a> {
    /// The complete condition without leading and trailing spaces.
    text: &'a str,
    group: Option<&'a str>,
    /// The name of the subject, without the group.
    name: &'a str,
    operator: &'static Operator,
    value: &'a str,
}

impl<'a> Parts<'a> {
    fn split<S: ConditionSubject>(text: &'a str) -> Result<Self, ConditionError> {
        let text = text.trim();
        let is_operator = |c: char| "<>=!".contains(c);
        let (name, operator, value) = text
            .find(is_operator)
            .and_then(|at| {
                let (name, rest) = text.split_at(at);
                let (operator, value) = rest.split_at(rest.find(|c| !is_operator(c))?);
                Some((name.trim(), operator, value.trim()))
            })
            .filter(|(name, _, value)| !name.is_empty() && !value.is_empty())
            .ok_or_else(|| invalid_form::<S>(text))?;
        // A figure's name never contains a colon.
        let (group, name) = match name.split_once(':') {
            Some((group, name)) if S::HAS_GROUPS => (Some(group.trim()), name.trim()),
            _ => (None, name),
        };
        let unknown_operator = || {
            let fix = match operator {
                "=" => "did you mean \"==\"?",
                "=>" => "did you mean \">=\"?",
                "=<" => "did you mean \"<=\"?",
                "<>" | "!" => "did you mean \"!=\"?",
                _ => "use >, >=, <, <=, == or !=",
            };
            ConditionError(format!(
                "unknown operator \"{operator}\" in \"{text}\"; {fix}"
            ))
        };
        let known = OPERATORS.iter().find(|(text, _)| *text == operator);
        let operator = known.ok_or_else(unknown_operator)?;
        if name.is_empty() || group == Some("") {
            return Err(invalid_form::<S>(text));
        }
        Ok(Parts {
            text,
            group,
            name,
            operator,
            value,
        })
    }

    /// Returns the figure that the condition names.
    fn figure(&self) -> Result<Figure, ConditionError> {
        Figure::named(self.name).ok_or_else(|| self.unknown_figure(self.name, &nearest(self.name)))
    }

    fn value_in(&self, unit: FigureUnit) -> Result<f64, ConditionError> {
        let value = unit.parse(self.value);
        value.map_err(|problem| self.invalid_value(&problem))
    }

    fn invalid_value(&self, problem: &str) -> ConditionError {
        ConditionError(format!("in \"{}\": {problem}", self.text))
    }

    fn unknown_figure(&self, name: &str, fix: &str) -> ConditionError {
        let text = self.text;
        ConditionError(format!("unknown figure \"{name}\" in \"{text}\"; {fix}"))
    }
}

fn invalid_form<S: ConditionSubject>(text: &str) -> ConditionError {
    let form = S::FORM;
    ConditionError(format!("\"{text}\" is not a condition; write {form}"))
}

/// Suggests a valid name for an unknown figure of a run.
fn nearest(name: &str) -> String {
    let numbers = NUMBERS.each_ref().map(|number| number.name);
    let statistics = Statistic::ALL.map(Statistic::name);
    let kinds = TIMES.map(TimeKind::name);
    let times = kinds.map(|kind| statistics.map(|statistic| format!("{kind}.{statistic}")));
    // Accept common spelling variants.
    let normalized = name
        .to_lowercase()
        .replace("p99_", "p99.")
        .replace('-', "_");
    let nearest = numbers
        .iter()
        .chain(&statistics)
        .map(|name| (*name).to_owned())
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
            kinds.join(", ")
        ),
    }
}

impl<S: ConditionSubject> FromStr for Condition<S> {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = Parts::split::<S>(text)?;
        let (subject, value) = S::parse(&parts)?;
        Ok(Condition {
            text: parts.text.to_owned(),
            group: parts.group.map(str::to_owned),
            subject,
            operator: parts.operator,
            value,
        })
    }
}

impl<S> Condition<S> {
    fn is_met(&self, figure: f64) -> bool {
        (self.operator.1)(&figure, &self.value)
    }

    fn threshold(&self, met: Option<bool>, figure: Option<String>) -> Threshold {
        Threshold {
            condition: self.text.clone(),
            met,
            figure: figure.unwrap_or_else(|| NOT_MEASURED.to_owned()),
        }
    }

    /// Returns the figures that the condition applies to: those of the whole run, or those of one
    /// request in its mix. Returns `None` if the mix has no such request.
    fn measured<'a>(&self, run: &'a Run) -> Option<&'a dyn Measured> {
        match &self.group {
            None => Some(run),
            Some(name) => {
                let group = run.groups.iter().find(|group| group.name == *name)?;
                Some(group)
            }
        }
    }
}

impl ConditionSubject for Figure {
    const FORM: &'static str = "a figure, an operator and a value, such as 'p99 > 50ms'";
    const HAS_GROUPS: bool = true;

    fn parse(parts: &Parts<'_>) -> Result<(Self, f64), ConditionError> {
        let figure = parts.figure()?;
        Ok((figure, parts.value_in(figure.unit())?))
    }
}

impl RunCondition {
    /// Evaluates the condition for all runs of a record. The condition is met if any run meets it.
    /// The result is unknown if no run meets the condition, but at least one run lacks the figure.
    ///
    /// The result contains the figure of the first run that meets the condition. If the result is
    /// unknown, it states that the figure was not measured. If the condition is not met, the result
    /// contains the figures of all runs. A percentile or maximum that falls among timed-out
    /// requests is infinite.
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
        match decisive {
            Some((met, figure)) => self.threshold(*met, Some(figure.clone())),
            None if judged.is_empty() => self.threshold(None, None),
            None => {
                let all: Vec<&str> = judged.iter().map(|(_, figure)| figure.as_str()).collect();
                self.threshold(Some(false), Some(all.join(", ")))
            }
        }
    }

    /// Returns whether a run meets the condition, and the formatted figure.
    fn judge_run(&self, run: &Run) -> (Option<bool>, String) {
        match self.measured(run) {
            Some(measured) => self.judge_figure(measured, run.plan.timeout),
            None => (None, format!("{NOT_MEASURED} (no such group)")),
        }
    }

    /// Returns whether the requests meet the condition, and the formatted figure. The result is
    /// unknown if the figure was not measured.
    #[must_use]
    pub fn judge_figure(
        &self,
        measured: &dyn Measured,
        timeout: Duration,
    ) -> (Option<bool>, String) {
        let figure = self.subject.of(measured);
        let met = figure.map(|figure| self.is_met(figure));
        (met, self.subject.show(figure, timeout))
    }
}

impl FromStr for AbortCondition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, ConditionError> {
        let (condition, sustained) = match text.rsplit_once(" for ") {
            None => (text, DEFAULT_SUSTAINED),
            Some((condition, sustained)) => {
                let invalid = |what: &str| ConditionError(format!("in \"{text}\": {what}"));
                let sustained = parse_duration(sustained.trim()).map_err(|e| invalid(&e))?;
                if sustained.is_zero() || sustained.subsec_nanos() > 0 {
                    return Err(invalid(
                        "the time after \"for\" must be a whole number of seconds, such as \"for 5s\"",
                    ));
                }
                (condition, sustained)
            }
        };
        let condition: RunCondition = condition.parse()?;
        let only_at_the_end = match (condition.subject, &condition.group) {
            (figure, _) if figure.unit() == FigureUnit::CpuTime => "CPU times",
            (Figure::Time(..), Some(_)) => "the times of a single request",
            _ => {
                return Ok(AbortCondition {
                    condition,
                    sustained,
                });
            }
        };
        Err(ConditionError(format!(
            "in \"{text}\": {only_at_the_end} are not available while the load runs; use another figure, \
             such as \"errors\""
        )))
    }
}

impl Display for AbortCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} for {}s",
            self.condition.text,
            self.sustained.as_secs()
        )
    }
}

/// The ratio of two results, or a bound of the ratio's interval.
#[derive(Debug, Clone)]
pub struct RatioSubject {
    /// The compared metric.
    pub metric: ComparedMetric,
    number: fn(&Comparison) -> Option<f64>,
}

impl ConditionSubject for RatioSubject {
    const FORM: &'static str = "a metric, \"ratio\" (or \"low\" or \"high\", the bounds of its \
                                interval), an operator and a number, such as 'p99 ratio > 1.05' or \
                                'throughput high < 1'";
    const HAS_GROUPS: bool = false;

    fn parse(parts: &Parts<'_>) -> Result<(Self, f64), ConditionError> {
        let form = || invalid_form::<Self>(parts.text);
        let (metric, number) = parts.name.split_once(' ').ok_or_else(form)?;
        let number: fn(&Comparison) -> Option<f64> = match number.trim() {
            "ratio" => |comparison| comparison.ratio,
            "low" => |comparison| comparison.low,
            "high" => |comparison| comparison.high,
            _ => return Err(form()),
        };
        let value = parts.value.parse().ok();
        let value = value.filter(|value: &f64| value.is_finite() && *value >= 0.0);
        let unknown = || {
            let known = ComparedMetric::ALL.map(ComparedMetric::name).join(", ");
            parts.unknown_figure(metric, &format!("the metrics are {known}"))
        };
        let not_a_ratio = || {
            let value = parts.value;
            parts.invalid_value(&format!(
                "\"{value}\" is not a ratio; write a number such as 1.05"
            ))
        };
        let metric = ComparedMetric::from_name(metric).ok_or_else(unknown)?;
        let subject = RatioSubject { metric, number };
        Ok((subject, value.ok_or_else(not_a_ratio)?))
    }
}

impl RatioCondition {
    /// Evaluates the condition for a comparison of its metric. In the result, `met` is `None` if
    /// the ratio or bound is unknown.
    #[must_use]
    pub fn judge(&self, comparison: &Comparison) -> Threshold {
        let number = (self.subject.number)(comparison);
        self.threshold(
            number.map(|number| self.is_met(number)),
            number.map(show_ratio),
        )
    }
}

/// A function that returns the capacity, or a bound of its interval.
pub type CapacitySubject = fn(&CapacityResult) -> Option<f64>;

impl ConditionSubject for CapacitySubject {
    const FORM: &'static str = "\"capacity\" (or \"low\" or \"high\", the bounds of its interval), \
                                an operator and a rate, such as 'capacity < 5000/s'";
    const HAS_GROUPS: bool = false;

    fn parse(parts: &Parts<'_>) -> Result<(Self, f64), ConditionError> {
        let subject: Self = match parts.name {
            "capacity" => |capacity| capacity.rate_per_s,
            "low" => |capacity| capacity.low,
            "high" => |capacity| capacity.high,
            name => {
                let fix = "use \"capacity\", \"low\" or \"high\"";
                return Err(parts.unknown_figure(name, fix));
            }
        };
        Ok((subject, parts.value_in(FigureUnit::Rate)?))
    }
}

impl CapacityCondition {
    /// Evaluates the condition for a capacity. If only a bound on the capacity is known, and the
    /// bound is not enough to decide, `met` is `None`.
    #[must_use]
    pub fn judge(&self, capacity: Option<&CapacityResult>) -> Threshold {
        let number = capacity.and_then(self.subject);
        // A bound can confirm a condition only if the operator starts with `decisive`. With any
        // other operator, the bound can only refute the condition.
        let (sign, decisive) = match capacity.and_then(|capacity| capacity.bound) {
            None => ("", None),
            Some(CapacityBound::Lower) => ("≥ ", Some('>')),
            Some(CapacityBound::Upper) => ("< ", Some('<')),
        };
        let met = number.and_then(|number| {
            let is_met = self.is_met(number);
            decisive
                .is_none_or(|start| is_met == self.operator.0.starts_with(start))
                .then_some(is_met)
        });
        self.threshold(met, number.map(|number| format!("{sign}{}", per_s(number))))
    }
}

/// What an objective limits.
#[derive(Debug, Clone, Copy)]
pub enum ObjectiveSubject {
    /// A time or the share of errors; the objective sets an upper limit.
    Upper(Figure),
    /// The share of requests with an ok response within the deadline; the objective sets a lower
    /// limit.
    Goodput,
}

impl ConditionSubject for ObjectiveSubject {
    const FORM: &'static str = "a figure, an operator and a value, such as 'p99 < 20ms'";
    const HAS_GROUPS: bool = true;

    fn parse(parts: &Parts<'_>) -> Result<(Self, f64), ConditionError> {
        let name = parts.name;
        let (subject, direction, unit, bound, hint) = if name == "goodput" {
            let hint = "; here, goodput is a share of the offered requests";
            let unit = FigureUnit::Share;
            (ObjectiveSubject::Goodput, ">", unit, "below 100%", hint)
        } else {
            let figure = parts.figure()?;
            if let Some(why) = obstacle(figure) {
                let text = parts.text;
                return Err(ConditionError(format!(
                    "\"{name}\" in \"{text}\" cannot be an objective: {why}"
                )));
            }
            let unit = figure.unit();
            (ObjectiveSubject::Upper(figure), "<", unit, "above 0", "")
        };
        if !parts.operator.0.starts_with(direction) {
            return Err(parts.invalid_value(&format!(
                "an objective for {name} needs the operator \"{direction}\""
            )));
        }
        let limit = unit.parse(parts.value);
        let limit = limit.map_err(|problem| parts.invalid_value(&(problem + hint)))?;
        let is_possible = match subject {
            ObjectiveSubject::Upper(_) => limit > 0.0,
            ObjectiveSubject::Goodput => limit < 1.0,
        };
        if !is_possible {
            return Err(parts.invalid_value(&format!(
                "no server meets this objective; use a limit {bound}"
            )));
        }
        Ok((subject, limit))
    }
}

/// Returns why an objective cannot limit a figure, or `None` if it can.
fn obstacle(figure: Figure) -> Option<&'static str> {
    match (figure, figure.unit()) {
        (_, FigureUnit::Rate) => Some(
            "it grows with the offered rate; use \"goodput\", a share, such as 'goodput > 99%'",
        ),
        (_, FigureUnit::Count) => {
            Some("it grows with the length of a trial; use \"errors\", a share")
        }
        (_, FigureUnit::CpuTime) => Some("it describes floodmark, not the server"),
        (Figure::Time(_, Statistic::Max), _) => {
            Some("it grows with the length of a trial; use a percentile, such as \"p99.9\"")
        }
        (Figure::Time(TimeKind::Lateness | TimeKind::Error, _), _) => {
            Some("it does not describe ok responses; use \"p99\" or \"errors\"")
        }
        _ => None,
    }
}

impl Objective {
    /// Evaluates the objective for a trial. Only ok responses within `deadline` count as goodput;
    /// the trial's own plan may have a different deadline. If the figure has no samples, for
    /// example because no connection was opened, the objective is met if the trial has ok
    /// responses.
    #[must_use]
    pub fn judge(&self, run: &Run, deadline: Duration) -> ObjectiveFigure {
        let measured = self.measured(run);
        let timeout = run.plan.timeout;
        let (figure, value) = match self.subject {
            ObjectiveSubject::Upper(figure) => {
                let value = measured.and_then(|of| figure.of(of));
                (figure.show(value, timeout), value)
            }
            ObjectiveSubject::Goodput => {
                let share = measured.and_then(|of| good_share(of, deadline, timeout));
                let show = |share| FigureUnit::Share.show(share);
                (share.map_or_else(|| NOT_MEASURED.to_owned(), show), share)
            }
        };
        let has_ok = measured.is_some_and(|of| of.requests().ok > 0);
        // Requests that were never sent have no response time, but they would have been slow.
        let requests = &run.requests;
        let unsent = requests.unsent as f64 / requests.intended.max(1) as f64;
        let all_sent = self.time_limit_s().is_none() || unsent <= 1.0 - self.quantile();
        ObjectiveFigure {
            objective: self.text.clone(),
            figure,
            value: value.filter(|value| value.is_finite()),
            limit_us: self.time_limit_s().map(|limit_s| 1e6 * limit_s),
            is_met: has_ok && all_sent && value.is_none_or(|value| self.is_met(value)),
        }
    }

    /// Returns the quantile that a trial must measure precisely, from 0 to 1: 0.99 for `p99`, and
    /// 0.999 for `errors < 0.1%`.
    #[must_use]
    pub fn quantile(&self) -> f64 {
        match self.subject {
            ObjectiveSubject::Goodput => self.value,
            ObjectiveSubject::Upper(Figure::Time(_, statistic)) => {
                statistic.quantile().unwrap_or(QUANTILE_OF_MEAN)
            }
            ObjectiveSubject::Upper(Figure::Number(_)) => 1.0 - self.value,
        }
    }

    /// Returns the share of requests that exceed the time limit, or `None` if the objective does not
    /// limit a time or the run has no histogram of it.
    #[must_use]
    pub fn share_beyond(&self, run: &Run) -> Option<f64> {
        let ObjectiveSubject::Upper(Figure::Time(kind, _)) = self.subject else {
            return None;
        };
        let times = self.measured(run)?.times(kind)?;
        let histogram = Histogram::decode(times.histogram.as_ref()?).ok()?;
        let within = histogram.count_up_to((self.value * 1e3) as u64);
        (times.count > 0).then(|| 1.0 - within as f64 / times.count as f64)
    }

    /// Returns the time limit in seconds, or `None` if the objective does not limit a time.
    #[must_use]
    pub fn time_limit_s(&self) -> Option<f64> {
        match self.subject {
            ObjectiveSubject::Upper(Figure::Time(..)) => Some(self.value / 1e6),
            _ => None,
        }
    }
}

/// Returns the share of requests with an ok response within `deadline`, even if the response
/// arrived after the sending window.
fn good_share(measured: &dyn Measured, deadline: Duration, timeout: Duration) -> Option<f64> {
    let times = measured.times(TimeKind::Response)?;
    let good = match &times.histogram {
        Some(text) if deadline < timeout => Histogram::decode(text)
            .ok()?
            .count_up_to(deadline.as_nanos() as u64),
        _ => times.count - times.censored,
    };
    let known = measured.with_known_outcome();
    (known > 0).then(|| good as f64 / known as f64)
}

/// Checks that no two objectives limit the same figure, and that all time limits are below
/// `timeout`.
///
/// # Errors
/// Two objectives limit the same figure, or a time limit is not below the timeout.
pub fn check_objectives(objectives: &[Objective], timeout: Duration) -> Result<(), String> {
    let figure = |objective: &Objective| {
        let end = objective.text.find(['<', '>']);
        end.map(|end| objective.text[..end].trim().to_owned())
    };
    for (number, objective) in objectives.iter().enumerate() {
        let text = &objective.text;
        let mut earlier = objectives[..number].iter();
        if let Some(other) = earlier.find(|other| figure(other) == figure(objective)) {
            return Err(format!(
                "'{text}': '{}' limits the same figure; keep the stricter one",
                other.text
            ));
        }
        if objective
            .time_limit_s()
            .is_some_and(|s| s >= timeout.as_secs_f64())
        {
            return Err(format!(
                "'{text}': the limit is not below the timeout of {}; use a longer --timeout or a \
                 lower limit",
                show_duration(timeout)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
