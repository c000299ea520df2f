//! Objectives of a capacity search: `p99 < 20ms`, `errors < 0.1%` or `goodput > 99%`.

use std::str::FromStr;
use std::time::Duration;

use floodmark_record::capacity::ObjectiveFigure;
use floodmark_record::run::Run;
use floodmark_record::units::show_duration;

use super::figure::{Figure, FigureUnit, Subject};
use super::run::{parse_share, parse_value};
use super::{Comparator, ConditionError, Parts};

const FORM: &str = "a figure, an operator and a value, such as 'p99 < 20ms'";

/// Quantile whose precision a mean demands.
const QUANTILE_OF_MEAN: f64 = 0.9;

/// A condition that a server must meet at its capacity.
#[derive(Debug, Clone)]
pub struct Objective {
    /// The original text of the objective.
    pub text: String,
    /// The request of a mix that the objective applies to; `None` for all requests.
    pub group: Option<String>,
    figure: ObjectiveKind,
    comparator: Comparator,
    /// The limit in the unit of the figure.
    limit: f64,
}

/// What an objective limits.
#[derive(Debug, Clone, Copy)]
enum ObjectiveKind {
    /// A time or the share of errors, which must be low.
    Upper(Figure),
    /// The share of requests with an ok response within the deadline, which must be high.
    Goodput,
}

impl FromStr for Objective {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = Parts::split(text, FORM)?;
        let (group, name) = parts.group_and_name(FORM)?;
        let figure = kind(name, &parts)?;
        let (operators, example) = match figure {
            ObjectiveKind::Upper(_) => (["<", "<="], "<"),
            ObjectiveKind::Goodput => ([">", ">="], ">"),
        };
        if !operators.contains(&parts.operator) {
            return Err(parts.invalid_value(&format!(
                "an objective for {name} needs the operator \"{example}\""
            )));
        }
        let limit = match figure {
            ObjectiveKind::Upper(figure) => parse_value(figure.unit(), parts.value),
            ObjectiveKind::Goodput => parse_share(parts.value).map_err(|problem| {
                format!("{problem}; here, goodput is a share of the offered requests")
            }),
        };
        let limit = limit.map_err(|problem| parts.invalid_value(&problem))?;
        let is_possible = match figure {
            ObjectiveKind::Upper(_) => limit > 0.0,
            ObjectiveKind::Goodput => limit < 1.0,
        };
        if !is_possible {
            let fix = match figure {
                ObjectiveKind::Upper(_) => "use a limit above 0",
                ObjectiveKind::Goodput => "use a limit below 100%",
            };
            return Err(parts.invalid_value(&format!("no server meets this objective; {fix}")));
        }
        Ok(Objective {
            text: parts.text.to_owned(),
            group: group.map(str::to_owned),
            figure,
            comparator: parts.comparator,
            limit,
        })
    }
}

/// Returns the figure with a name, if an objective may limit it.
fn kind(name: &str, parts: &Parts<'_>) -> Result<ObjectiveKind, ConditionError> {
    let unsuitable = |why: &str| Err(parts.unsuitable_figure(name, why));
    if name == "goodput" {
        return Ok(ObjectiveKind::Goodput);
    }
    let Some(figure) = Figure::named(name) else {
        return Err(parts.unknown_figure(name, &Figure::nearest(name)));
    };
    match (figure, figure.unit()) {
        (_, FigureUnit::Rate) => unsuitable(
            "it grows with the offered rate; use \"goodput\", a share, such as 'goodput > 99%'",
        ),
        (_, FigureUnit::Count) => {
            unsuitable("it grows with the length of a trial; use \"errors\", a share")
        }
        (_, FigureUnit::CpuTime) => unsuitable("it describes floodmark, not the server"),
        (Figure::Time(_, statistic), _) if statistic.0 == "max" => {
            unsuitable("it grows with the length of a trial; use a percentile, such as \"p99.9\"")
        }
        (Figure::Time(distribution, _), _) if ["lateness", "error"].contains(&distribution.0) => {
            unsuitable("it does not describe ok responses; use \"p99\" or \"errors\"")
        }
        _ => Ok(ObjectiveKind::Upper(figure)),
    }
}

impl Objective {
    /// Evaluates the objective on a trial. `deadline` is the maximum response time that counts as
    /// goodput; the trial's own plan may have another deadline. A figure without samples is met if the trial has ok
    /// responses: for example, no connection was opened, or no response was late.
    #[must_use]
    pub fn judge(&self, run: &Run, deadline: Duration) -> ObjectiveFigure {
        let subject = Subject::of(run, self.group.as_deref());
        let value = subject.and_then(|subject| match self.figure {
            ObjectiveKind::Upper(figure) => figure.of(subject),
            ObjectiveKind::Goodput => subject.good_share(deadline),
        });
        let has_ok = subject.is_some_and(|subject| match subject.group {
            Some(group) => group.requests.ok > 0,
            None => run.requests.ok > 0,
        });
        // Requests that were never sent have no time, but they would have been slow.
        let requests = &run.requests;
        let unsent = requests.unsent as f64 / requests.intended.max(1) as f64;
        let all_sent = match self.figure {
            ObjectiveKind::Upper(Figure::Time(..)) => unsent <= 1.0 - self.quantile(),
            _ => true,
        };
        let timeout_s = run.plan.timeout.as_secs_f64();
        ObjectiveFigure {
            objective: self.text.clone(),
            figure: match self.figure {
                ObjectiveKind::Upper(figure) => figure.show(value, timeout_s),
                ObjectiveKind::Goodput => Figure::show_share(value),
            },
            value: value.filter(|value| value.is_finite()),
            is_met: has_ok
                && all_sent
                && value.is_none_or(|value| (self.comparator)(&value, &self.limit)),
        }
    }

    /// Returns the quantile that a trial must measure precisely, from 0 to 1: 0.99 for `p99`, and
    /// 0.999 for `errors < 0.1%`.
    #[must_use]
    pub fn quantile(&self) -> f64 {
        match self.figure {
            ObjectiveKind::Goodput => self.limit,
            ObjectiveKind::Upper(Figure::Time(_, statistic)) => {
                let percent = statistic.0.strip_prefix('p').map(str::parse::<f64>);
                percent.map_or(QUANTILE_OF_MEAN, |percent| percent.unwrap_or(90.0) / 100.0)
            }
            ObjectiveKind::Upper(Figure::Number(_)) => 1.0 - self.limit,
        }
    }

    /// Returns the limit of a response time or service time, in seconds.
    #[must_use]
    pub fn time_limit_s(&self) -> Option<f64> {
        match self.figure {
            ObjectiveKind::Upper(Figure::Time(..)) => Some(self.limit / 1e6),
            _ => None,
        }
    }
}

/// Checks that several objectives fit together, and that a request can miss each of them before
/// `timeout`.
///
/// # Errors
/// Two objectives limit the same figure, or a time limit exceeds the timeout.
pub fn check_objectives(objectives: &[Objective], timeout: Duration) -> Result<(), String> {
    for (number, objective) in objectives.iter().enumerate() {
        let text = &objective.text;
        let figure = |text: &str| {
            text.split(['<', '>'])
                .next()
                .map(|name| name.trim().to_owned())
        };
        let earlier = objectives[..number].iter();
        let mut same = earlier.filter(|other| figure(&other.text) == figure(text));
        if let Some(other) = same.next() {
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
                "'{text}': the limit is not below the timeout of {}; use a longer --timeout or a lower \
                 limit",
                show_duration(timeout)
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> String {
        text.parse::<Objective>().unwrap_err().to_string()
    }

    #[test]
    fn refuses_figures_that_are_no_objectives() {
        insta::assert_snapshot!(
            [
                "p99",
                "p99 < 20",
                "p99 < 0ms",
                "p99 > 20ms",
                "p98 < 20ms",
                "max < 20ms",
                "throughput > 5000/s",
                "goodput > 5000/s",
                "goodput >= 100%",
                "goodput < 99%",
                "errors < 0%",
                "errors < 1",
                "timed_out < 3",
                "lateness.p99 < 1ms",
                "cpu_us_per_request < 5us",
                ": p99 < 1ms",
            ]
            .map(message)
            .join("\n")
        );
    }

    #[test]
    fn quantiles_follow_from_the_objective() {
        let quantile = |text: &str| text.parse::<Objective>().unwrap().quantile();
        for (text, expected) in [
            ("p99.9 < 20ms", 0.999),
            ("service.p50 <= 20ms", 0.5),
            ("mean < 20ms", 0.9),
            ("errors < 0.1%", 0.999),
            ("goodput > 99%", 0.99),
        ] {
            assert!((quantile(text) - expected).abs() < 1e-12, "{text}");
        }
    }

    #[test]
    fn refuses_objectives_that_do_not_fit_together() {
        let check = |texts: &[&str]| {
            let objectives: Vec<Objective> = texts.iter().map(|t| t.parse().unwrap()).collect();
            check_objectives(&objectives, Duration::from_secs(5))
        };
        check(&[
            "p99 < 20ms",
            "p50 < 5ms",
            "search: p99 < 50ms",
            "errors < 1%",
        ])
        .unwrap();
        let same = check(&["p99 < 20ms", "p99 <= 10ms"]).unwrap_err();
        assert_eq!(
            same,
            "'p99 <= 10ms': 'p99 < 20ms' limits the same figure; keep the stricter one"
        );
        let long = check(&["p99 < 6s"]).unwrap_err();
        assert!(
            long.starts_with("'p99 < 6s': the limit is not below the timeout of 5 s"),
            "{long}"
        );
    }
}
