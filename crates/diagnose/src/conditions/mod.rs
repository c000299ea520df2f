//! `--fail-if` conditions: syntax and evaluation.

mod capacity;
mod figure;
mod objective;
mod ratio;
mod run;

pub use capacity::CapacityCondition;
pub(crate) use figure::{Figure, Subject};
pub use objective::{Objective, check_objectives};
pub use ratio::RatioCondition;
pub use run::Condition;

/// The error for an invalid condition. The message contains a suggestion.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConditionError(String);

/// Compares a figure with a condition's value.
type Comparator = fn(&f64, &f64) -> bool;

/// The parts of a condition.
struct Parts<'a> {
    /// The complete condition without leading and trailing spaces.
    text: &'a str,
    figure: &'a str,
    operator: &'a str,
    comparator: Comparator,
    value: &'a str,
}

impl<'a> Parts<'a> {
    /// Splits a condition into its parts. Error messages show `form` as the expected syntax.
    fn split(text: &'a str, form: &str) -> Result<Self, ConditionError> {
        let text = text.trim();
        let is_operator = |c: char| "<>=!".contains(c);
        let parts = text.find(is_operator).and_then(|at| {
            let (figure, rest) = text.split_at(at);
            let (operator, value) = rest.split_at(rest.find(|c| !is_operator(c))?);
            Some((figure.trim(), operator, value.trim()))
        });
        let parts = parts.filter(|(figure, _, value)| !figure.is_empty() && !value.is_empty());
        let (figure, operator, value) = parts.ok_or_else(|| invalid_form(text, form))?;
        let comparator: Result<Comparator, &str> = match operator {
            ">" => Ok(f64::gt),
            ">=" => Ok(f64::ge),
            "<" => Ok(f64::lt),
            "<=" => Ok(f64::le),
            "==" => Ok(f64::eq),
            "!=" => Ok(f64::ne),
            "=" => Err("did you mean \"==\"?"),
            "=>" => Err("did you mean \">=\"?"),
            "=<" => Err("did you mean \"<=\"?"),
            "<>" | "!" => Err("did you mean \"!=\"?"),
            _ => Err("use >, >=, <, <=, == or !="),
        };
        let comparator = comparator.map_err(|fix| {
            ConditionError(format!(
                "unknown operator \"{operator}\" in \"{text}\"; {fix}"
            ))
        })?;
        Ok(Parts {
            text,
            figure,
            operator,
            comparator,
            value,
        })
    }

    /// Splits the figure into the name of a group, if any, and the name of the figure.
    fn group_and_name(&self, form: &str) -> Result<(Option<&'a str>, &'a str), ConditionError> {
        // A figure's name never contains a colon.
        let (group, name) = match self.figure.split_once(':') {
            Some((group, name)) => (Some(group.trim()), name.trim()),
            None => (None, self.figure),
        };
        match name.is_empty() || group == Some("") {
            true => Err(invalid_form(self.text, form)),
            false => Ok((group, name)),
        }
    }

    fn invalid_value(&self, problem: &str) -> ConditionError {
        ConditionError(format!("in \"{}\": {problem}", self.text))
    }

    fn unsuitable_figure(&self, name: &str, why: &str) -> ConditionError {
        let text = self.text;
        ConditionError(format!(
            "\"{name}\" in \"{text}\" cannot be an objective: {why}"
        ))
    }

    fn unknown_figure(&self, name: &str, fix: &str) -> ConditionError {
        let text = self.text;
        ConditionError(format!("unknown figure \"{name}\" in \"{text}\"; {fix}"))
    }
}

fn invalid_form(text: &str, form: &str) -> ConditionError {
    ConditionError(format!("\"{text}\" is not a condition; write {form}"))
}

#[cfg(test)]
mod tests;
