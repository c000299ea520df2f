//! Conditions on a capacity: `capacity < 5000/s`.

use std::str::FromStr;

use floodmark_record::capacity::{CapacityBound, CapacityResult};
use floodmark_record::result::Threshold;

use super::figure::FigureUnit;
use super::run::parse_value;
use super::{Comparator, ConditionError, Parts};
use crate::text::per_s;

const FORM: &str = "\"capacity\" (or \"low\" or \"high\", the bounds of its interval), an operator and a rate, \
                    such as 'capacity < 5000/s'";

/// A condition of `floodmark capacity --fail-if`.
#[derive(Debug, Clone)]
pub struct CapacityCondition {
    text: String,
    number: CapacityNumber,
    comparator: Comparator,
    operator: String,
    /// Requests per second.
    value: f64,
}

/// What a condition compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CapacityNumber {
    Estimate,
    Low,
    High,
}

impl FromStr for CapacityCondition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = Parts::split(text, FORM)?;
        let number = match parts.figure {
            "capacity" => CapacityNumber::Estimate,
            "low" => CapacityNumber::Low,
            "high" => CapacityNumber::High,
            name => {
                let fix = "use \"capacity\", \"low\" or \"high\"";
                return Err(parts.unknown_figure(name, fix));
            }
        };
        let value = parse_value(FigureUnit::Rate, parts.value);
        Ok(CapacityCondition {
            text: parts.text.to_owned(),
            number,
            comparator: parts.comparator,
            operator: parts.operator.to_owned(),
            value: value.map_err(|problem| parts.invalid_value(&problem))?,
        })
    }
}

impl CapacityCondition {
    /// Evaluates the condition on a capacity. If only a bound of the capacity is known, `met` is
    /// `None` unless the bound decides.
    #[must_use]
    pub fn judge(&self, capacity: Option<&CapacityResult>) -> Threshold {
        let number = capacity.and_then(|capacity| match self.number {
            CapacityNumber::Estimate => capacity.rate_per_s,
            CapacityNumber::Low => capacity.low,
            CapacityNumber::High => capacity.high,
        });
        let bound = capacity.and_then(|capacity| capacity.bound);
        let is_met = |number: f64| {
            let is_met = (self.comparator)(&number, &self.value);
            let decides = match bound {
                None => true,
                // The capacity is at least the number.
                Some(CapacityBound::Lower) => is_met == self.operator.starts_with('>'),
                // The capacity is below the number.
                Some(CapacityBound::Upper) => is_met == self.operator.starts_with('<'),
            };
            decides.then_some(is_met)
        };
        let sign = match bound {
            None => "",
            Some(CapacityBound::Lower) => "≥ ",
            Some(CapacityBound::Upper) => "< ",
        };
        Threshold {
            condition: self.text.clone(),
            met: number.and_then(is_met),
            figure: match number {
                Some(number) => format!("{sign}{}", per_s(number)),
                None => "not measured".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::capacity;

    fn judge(text: &str, result: &CapacityResult) -> Option<bool> {
        let condition: CapacityCondition = text.parse().unwrap();
        condition.judge(Some(result)).met
    }

    #[test]
    fn compares_the_estimate_and_its_bounds() {
        let result = capacity(20_000.0, 19_700.0, 20_300.0);
        assert_eq!(judge("capacity < 20k/s", &result), Some(false));
        assert_eq!(judge("capacity <= 20k/s", &result), Some(true));
        assert_eq!(judge("low < 19800/s", &result), Some(true));
        assert_eq!(judge("high < 20k/s", &result), Some(false));
    }

    #[test]
    fn a_bound_decides_only_in_one_direction() {
        let mut result = capacity(20_000.0, 19_700.0, 20_300.0);
        result.bound = Some(CapacityBound::Lower);
        assert_eq!(judge("capacity < 10k/s", &result), Some(false));
        assert_eq!(judge("capacity < 30k/s", &result), None);
        assert_eq!(judge("capacity > 10k/s", &result), Some(true));
        result.bound = Some(CapacityBound::Upper);
        assert_eq!(judge("capacity < 30k/s", &result), Some(true));
        assert_eq!(judge("capacity < 10k/s", &result), None);
        let condition: CapacityCondition = "capacity < 10k/s".parse().unwrap();
        assert_eq!(condition.judge(None).figure, "not measured");
    }

    #[test]
    fn refuses_other_figures() {
        let message = |text: &str| text.parse::<CapacityCondition>().unwrap_err().to_string();
        let unknown = message("p99 < 5ms");
        assert!(
            unknown.starts_with("unknown figure \"p99\" in \"p99 < 5ms\""),
            "{unknown}"
        );
        assert!(message("capacity < 5ms").starts_with("in \"capacity < 5ms\": "));
    }
}
