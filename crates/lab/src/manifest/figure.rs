//! How the figures of another load generator are read from what it prints.

use floodmark_record::client::Said;
use regex::{Captures, Regex, RegexBuilder};

use super::fields::{Field, Kind, field, needed};
use super::section::Section;
use crate::source::FileError;

/// Keys of `[figures]`.
pub(super) const FIGURES: &[Field] = &[
    needed(
        "answers",
        Kind::Table(COUNT),
        "Whole answers, whatever their status.",
    ),
    field(
        "wrong",
        Kind::Table(COUNT),
        "Of these the answers whose status is no success (not 2xx or 3xx).",
    ),
    field(
        "errors",
        Kind::Table(COUNT),
        "Requests that had no whole answer.",
    ),
    field(
        "throughput",
        Kind::Table(RATE),
        "Requests per second. Without it the answers are divided by the time from its start to its end.",
    ),
    field("mean", Kind::Table(TIME), "Mean time of a request."),
    field("p50", Kind::Table(TIME), "Median time of a request."),
    field("p90", Kind::Table(TIME), "90th percentile."),
    field("p95", Kind::Table(TIME), "95th percentile."),
    field("p99", Kind::Table(TIME), "99th percentile."),
    field("max", Kind::Table(TIME), "Longest time of a request."),
];

const FIND: Field = needed(
    "find",
    Kind::Text,
    "Regular expression (of the Rust crate regex; ^ and $ match at lines) whose group holds the number.",
);

const RATE: &[Field] = &[FIND];

const COUNT: &[Field] = &[
    FIND,
    field(
        "sum",
        Kind::Flag,
        "Whether all groups of all matches are added up, to 0 where there is none. Without it the first match holds.",
    ),
];

const TIME: &[Field] = &[
    FIND,
    needed(
        "unit",
        Kind::OneOf(&["us", "ms", "s", "printed"]),
        "Unit of the number; printed: a second group holds it.",
    ),
];

/// How one number is found.
#[derive(Debug, Clone)]
struct Figure {
    find: Regex,
    unit: Unit,
    sum: bool,
}

/// The unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Unit {
    /// The number as it stands.
    None,
    /// So many microseconds each.
    Microseconds(f64),
    /// In the second group.
    Printed,
}

/// How all figures of a load generator are found.
#[derive(Debug, Clone)]
pub struct Figures {
    answers: Figure,
    wrong: Option<Figure>,
    errors: Option<Figure>,
    throughput: Option<Figure>,
    mean: Option<Figure>,
    p50: Option<Figure>,
    p90: Option<Figure>,
    p95: Option<Figure>,
    p99: Option<Figure>,
    max: Option<Figure>,
}

impl Figures {
    /// Reads `[figures]`.
    pub(super) fn of(section: &Section<'_>) -> Result<Self, FileError> {
        let count = |key| Figure::of(section, key, COUNT);
        let time = |key| Figure::of(section, key, TIME);
        let Some(answers) = count("answers")? else {
            return Err(section.error("answers", "answers is missing in [figures]"));
        };
        Ok(Figures {
            answers,
            wrong: count("wrong")?,
            errors: count("errors")?,
            throughput: Figure::of(section, "throughput", RATE)?,
            mean: time("mean")?,
            p50: time("p50")?,
            p90: time("p90")?,
            p95: time("p95")?,
            p99: time("p99")?,
            max: time("max")?,
        })
    }

    /// Reads the figures from what was printed.
    ///
    /// # Errors
    /// There is no number of answers, or a figure is none; as the rest of a sentence that the client's name begins.
    pub fn read(&self, output: &str) -> Result<Said, String> {
        let number = |figure: &Option<Figure>, name| match figure {
            Some(figure) => figure.read(output, name),
            None => Ok(None),
        };
        let count = |figure, name| -> Result<Option<u64>, String> {
            Ok(number(figure, name)?.map(|n| n as u64))
        };
        let answers = self.answers.read(output, "answers")?;
        let Some(answers) = answers.filter(|n| *n > 0.0) else {
            return Err("counted no answer".to_owned());
        };
        Ok(Said {
            answers: Some(answers as u64),
            wrong: count(&self.wrong, "wrong")?,
            errors: count(&self.errors, "errors")?,
            throughput_per_s: number(&self.throughput, "throughput")?,
            mean_us: number(&self.mean, "mean")?,
            p50_us: number(&self.p50, "p50")?,
            p90_us: number(&self.p90, "p90")?,
            p95_us: number(&self.p95, "p95")?,
            p99_us: number(&self.p99, "p99")?,
            max_us: number(&self.max, "max")?,
        })
    }
}

impl Figure {
    fn of(
        section: &Section<'_>,
        key: &'static str,
        fields: &'static [Field],
    ) -> Result<Option<Self>, FileError> {
        let Some(table) = section.table(key, fields)? else {
            return Ok(None);
        };
        let text = table.text("find").unwrap_or_default();
        let find = RegexBuilder::new(text)
            .multi_line(true)
            .build()
            .map_err(|error| {
                let text = error.to_string();
                let what = text.lines().last().unwrap_or_default();
                table.error("find", format!("{key}: no regular expression: {what}"))
            })?;
        let sum = table.scalar("sum").as_deref() == Some("true");
        let unit = match table.text("unit") {
            None => Unit::None,
            Some("printed") => Unit::Printed,
            Some(unit) => Unit::Microseconds(microseconds(unit).unwrap_or(1.0)),
        };
        let groups = find.captures_len() - 1;
        let wanted = match unit {
            Unit::Printed => 2,
            Unit::None | Unit::Microseconds(_) => 1,
        };
        let fits = if sum { groups >= 1 } else { groups == wanted };
        if !fits {
            let least = if sum { "at least " } else { "" };
            return Err(table.error(
                "find",
                format!("{key}: the expression has {groups} groups in round brackets, and {least}{wanted} are wanted; write (?:…) for others"),
            ));
        }
        Ok(Some(Figure { find, unit, sum }))
    }

    /// The figure in an output, times in microseconds; none where it is not printed.
    fn read(&self, output: &str, name: &str) -> Result<Option<f64>, String> {
        if self.sum {
            let mut sum = 0.0;
            for found in self.find.captures_iter(output) {
                for group in found.iter().skip(1).flatten() {
                    sum += number(group.as_str(), name)?;
                }
            }
            return Ok(Some(sum));
        }
        let Some(found) = self.find.captures(output) else {
            return Ok(None);
        };
        let text = |group| text_of(&found, group);
        let value = number(text(1), name)?;
        let unit = match self.unit {
            Unit::None => 1.0,
            Unit::Microseconds(each) => each,
            Unit::Printed => microseconds(text(2))
                .ok_or_else(|| format!("says \"{}\" for the unit of {name}", text(2)))?,
        };
        Ok(Some(value * unit))
    }
}

fn text_of<'a>(found: &Captures<'a>, group: usize) -> &'a str {
    found.get(group).map_or("", |group| group.as_str())
}

fn number(text: &str, name: &str) -> Result<f64, String> {
    let value = text.parse().ok();
    value
        .filter(|value: &f64| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| format!("says \"{text}\" for {name}, which is no number"))
}

/// How many microseconds a unit is.
fn microseconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "us" | "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        "h" => 3600e6,
        _ => return None,
    })
}
