//! `floodmark compare --fail-if 'p99 ratio > 1.05'`: a metric, its ratio or an end of the ratio's interval, an operator and a value.

use std::str::FromStr;

use floodmark_record::comparison::{Comparison, Metric, UnknownMetric};
use floodmark_record::result::Threshold;

use crate::figures::NOT_MEASURED;
use crate::sentences::ratio;
use crate::threshold::Op;

/// A condition on a ratio that makes the command fail when it is met.
#[derive(Debug, Clone)]
pub struct RatioCondition {
    text: String,
    metric: Metric,
    part: Part,
    op: Op,
    value: f64,
}

/// Which number of a comparison is meant.
#[derive(Debug, Clone, Copy)]
enum Part {
    Ratio,
    Low,
    High,
}

/// Why a condition could not be read; the text names the mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RatioConditionError {
    /// It has another form.
    #[error(
        "\"{0}\" is not a condition on a ratio; write a metric, then ratio, low or high (the ends of its interval), an \
         operator and a number, such as 'p99 ratio > 1.05' or 'throughput high < 1'"
    )]
    Form(String),
    /// A metric that is not known.
    #[error("in \"{text}\": {source}")]
    Metric {
        /// The whole condition.
        text: String,
        /// Which.
        source: UnknownMetric,
    },
    /// An operator or a value that is none.
    #[error("in \"{text}\": {mend}")]
    Rest {
        /// The whole condition.
        text: String,
        /// What to write.
        mend: String,
    },
}

impl FromStr for RatioCondition {
    type Err = RatioConditionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim().to_owned();
        let form = || RatioConditionError::Form(text.clone());
        let rest = |mend: String| RatioConditionError::Rest {
            text: text.clone(),
            mend,
        };
        let is_op = |c: char| "<>=!".contains(c);
        let (subject, tail) = text.split_at(text.find(is_op).ok_or_else(form)?);
        let (op, value) = tail.split_at(tail.find(|c| !is_op(c)).ok_or_else(form)?);
        let (metric, part) = subject.trim().split_once(' ').ok_or_else(form)?;
        let part = match part.trim() {
            "ratio" => Part::Ratio,
            "low" => Part::Low,
            "high" => Part::High,
            _ => return Err(form()),
        };
        let metric = metric
            .parse::<Metric>()
            .map_err(|source| RatioConditionError::Metric {
                text: text.clone(),
                source,
            })?;
        let op = Op::parse(op).map_err(|mend| rest(mend.to_owned()))?;
        let number = value.trim();
        let value = match number.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => value,
            _ => {
                return Err(rest(format!(
                    "\"{number}\" is no ratio; write a number such as 1.05"
                )));
            }
        };
        Ok(RatioCondition {
            text,
            metric,
            part,
            op,
            value,
        })
    }
}

impl RatioCondition {
    /// Which metric it is about.
    #[must_use]
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Holds a comparison by that metric against it; `met` is none where the number is not known.
    #[must_use]
    pub fn of(&self, comparison: &Comparison) -> Threshold {
        let number = match self.part {
            Part::Ratio => comparison.ratio,
            Part::Low => comparison.low,
            Part::High => comparison.high,
        };
        Threshold {
            condition: self.text.clone(),
            met: number.map(|number| self.op.holds(number, self.value)),
            figure: number.map_or_else(|| NOT_MEASURED.to_owned(), ratio),
        }
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::comparison::{Compared, Conclusion};

    use super::*;

    fn comparison(low: Option<f64>) -> Comparison {
        let figures = Compared {
            figure: Some(1.0),
            processes: 5,
            attempts: 5,
        };
        Comparison {
            a: String::new(),
            b: String::new(),
            metric: Metric::P99,
            ratio: Some(1.1),
            low,
            high: low.map(|_| 1.2),
            confidence: 0.95,
            conclusion: Conclusion::Undecided,
            repetitions_needed: None,
            method: String::new(),
            figures_a: figures.clone(),
            figures_b: figures,
            notes: Vec::new(),
        }
    }

    #[test]
    fn the_number_that_is_named_is_held_against_the_value() {
        for (text, wanted) in [
            ("p99 ratio > 1.05", Some(true)),
            (" p99  ratio>1.15 ", Some(false)),
            ("p99 low > 1", Some(false)),
            ("p99 high >= 1.2", Some(true)),
        ] {
            let condition: RatioCondition = text.parse().unwrap();
            assert_eq!(condition.metric(), Metric::P99);
            let got = condition.of(&comparison(Some(0.9)));
            assert_eq!((got.met, got.condition.as_str()), (wanted, text.trim()));
        }
        let unknown = "p99 low > 1".parse::<RatioCondition>().unwrap();
        let got = unknown.of(&comparison(None));
        assert_eq!((got.met, got.figure.as_str()), (None, "–"));
    }

    #[test]
    fn errors_name_the_mend() {
        for (text, mend) in [
            ("", "such as 'p99 ratio > 1.05'"),
            ("p99 > 1.05", "write a metric, then ratio"),
            ("p99 ratio", "is not a condition"),
            ("p99 middle > 1", "is not a condition"),
            ("p98 ratio > 1", "unknown metric \"p98\""),
            ("p99 ratio => 1", "did you mean \">=\"?"),
            ("p99 ratio > 5%", "\"5%\" is no ratio"),
            ("p99 ratio > nan", "\"nan\" is no ratio"),
            ("p99 ratio >", "is not a condition"),
        ] {
            let error = text.parse::<RatioCondition>().unwrap_err().to_string();
            assert!(error.contains(mend), "{error}");
        }
    }
}
