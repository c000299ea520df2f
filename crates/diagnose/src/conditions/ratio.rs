//! Conditions on the ratio of two results: `p99 ratio > 1.05`.

use std::str::FromStr;

use floodmark_record::comparison::{ComparedMetric, Comparison};
use floodmark_record::result::Threshold;
use floodmark_record::units::show_ratio;

use super::{Comparator, ConditionError, Parts, invalid_form};

const FORM: &str = "a metric, \"ratio\" (or \"low\" or \"high\", the bounds of its interval), an operator and \
                    a number, such as 'p99 ratio > 1.05' or 'throughput high < 1'";

/// A condition of `floodmark compare --fail-if`.
#[derive(Debug, Clone)]
pub struct RatioCondition {
    text: String,
    /// The metric that the condition applies to.
    pub metric: ComparedMetric,
    number: fn(&Comparison) -> Option<f64>,
    comparator: Comparator,
    value: f64,
}

impl FromStr for RatioCondition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = Parts::split(text, FORM)?;
        let form = || invalid_form(parts.text, FORM);
        let (metric, number) = parts.figure.split_once(' ').ok_or_else(form)?;
        let number: fn(&Comparison) -> Option<f64> = match number.trim() {
            "ratio" => |comparison| comparison.ratio,
            "low" => |comparison| comparison.low,
            "high" => |comparison| comparison.high,
            _ => return Err(form()),
        };
        let known = format!(
            "the metrics are {}",
            ComparedMetric::ALL.map(ComparedMetric::name).join(", ")
        );
        let unknown = || parts.unknown_figure(metric, &known);
        let value = parts.value.parse().ok();
        let value = value.filter(|value: &f64| value.is_finite() && *value >= 0.0);
        let not_a_ratio = || {
            let value = parts.value;
            parts.invalid_value(&format!(
                "\"{value}\" is not a ratio; write a number such as 1.05"
            ))
        };
        Ok(RatioCondition {
            text: parts.text.to_owned(),
            metric: ComparedMetric::from_name(metric).ok_or_else(unknown)?,
            number,
            comparator: parts.comparator,
            value: value.ok_or_else(not_a_ratio)?,
        })
    }
}

impl RatioCondition {
    /// Evaluates the condition on a comparison of the condition's metric. In the result, `met` is
    /// `None` if the ratio or bound is unknown.
    #[must_use]
    pub fn judge(&self, comparison: &Comparison) -> Threshold {
        let number = (self.number)(comparison);
        Threshold {
            condition: self.text.clone(),
            met: number.map(|number| (self.comparator)(&number, &self.value)),
            figure: number.map_or_else(|| "not measured".to_owned(), show_ratio),
        }
    }
}
