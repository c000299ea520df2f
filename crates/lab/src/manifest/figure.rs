//! `[figures]`: how to read the figures of an external client from its output.

use floodmark_record::client::PrintedFigures;
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;

/// `[figures]`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientFigures {
    /// Complete responses of any status.
    answers: CountFigure,
    /// Responses with a status other than 2xx or 3xx.
    wrong: Option<CountFigure>,
    /// Requests without a complete response.
    errors: Option<CountFigure>,
    /// Requests per second. Default: the number of responses divided by the client's run time.
    throughput: Option<RateFigure>,
    /// Mean response time.
    mean: Option<TimeFigure>,
    /// Median response time.
    p50: Option<TimeFigure>,
    /// 90th percentile of response time.
    p90: Option<TimeFigure>,
    /// 95th percentile of response time.
    p95: Option<TimeFigure>,
    /// 99th percentile of response time.
    p99: Option<TimeFigure>,
    /// Maximum response time.
    max: Option<TimeFigure>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CountSection {
    /// Regular expression (Rust crate regex) with a capture group for the number. ^ and $ match the
    /// start and end of each line.
    find: String,
    /// Whether to add up all groups of all matches. Without a match, the sum is 0. Default: only
    /// the first match counts.
    sum: Option<bool>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RateSection {
    /// Regular expression (Rust crate regex) with a capture group for the number. ^ and $ match the
    /// start and end of each line.
    find: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimeSection {
    /// Regular expression (Rust crate regex) with a capture group for the number. ^ and $ match the
    /// start and end of each line.
    find: String,
    /// Unit of the number. With `printed`, the second capture group contains the unit.
    unit: TimeUnit,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TimeUnit {
    Us,
    Ms,
    S,
    Printed,
}

// Each kind of section has its own type, because the keys differ.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "CountSection")]
#[schemars(with = "CountSection")]
struct CountFigure(ClientFigure);

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "RateSection")]
#[schemars(with = "RateSection")]
struct RateFigure(ClientFigure);

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(try_from = "TimeSection")]
#[schemars(with = "TimeSection")]
struct TimeFigure(ClientFigure);

impl TryFrom<CountSection> for CountFigure {
    type Error = String;

    fn try_from(section: CountSection) -> Result<Self, String> {
        ClientFigure::new(&section.find, None, section.sum == Some(true)).map(Self)
    }
}

impl TryFrom<RateSection> for RateFigure {
    type Error = String;

    fn try_from(section: RateSection) -> Result<Self, String> {
        ClientFigure::new(&section.find, None, false).map(Self)
    }
}

impl TryFrom<TimeSection> for TimeFigure {
    type Error = String;

    fn try_from(section: TimeSection) -> Result<Self, String> {
        ClientFigure::new(&section.find, Some(section.unit), false).map(Self)
    }
}

/// How to find one figure.
#[derive(Debug, Clone)]
struct ClientFigure {
    find: Regex,
    /// Unit of a time.
    unit: Option<TimeUnit>,
    sum: bool,
}

impl ClientFigures {
    /// Reads the figures from a client's output.
    ///
    /// The number of responses is missing, or a figure is not a number. The error message continues
    /// a sentence that starts with the client's name.
    pub fn read(&self, output: &str) -> Result<PrintedFigures, String> {
        let count = |figure: &Option<CountFigure>, name| match figure {
            Some(figure) => Ok(figure.0.read(output, name)?.map(|n| n as u64)),
            None => Ok::<_, String>(None),
        };
        let time = |figure: &Option<TimeFigure>, name| match figure {
            Some(figure) => figure.0.read(output, name),
            None => Ok(None),
        };
        let answers = self.answers.0.read(output, "answers")?;
        let Some(answers) = answers.filter(|n| *n > 0.0) else {
            return Err("reported no responses".to_owned());
        };
        Ok(PrintedFigures {
            answers: Some(answers as u64),
            wrong: count(&self.wrong, "wrong")?,
            errors: count(&self.errors, "errors")?,
            throughput_per_s: match &self.throughput {
                Some(figure) => figure.0.read(output, "throughput")?,
                None => None,
            },
            mean_us: time(&self.mean, "mean")?,
            p50_us: time(&self.p50, "p50")?,
            p90_us: time(&self.p90, "p90")?,
            p95_us: time(&self.p95, "p95")?,
            p99_us: time(&self.p99, "p99")?,
            max_us: time(&self.max, "max")?,
        })
    }
}

impl ClientFigure {
    fn new(find: &str, unit: Option<TimeUnit>, sum: bool) -> Result<Self, String> {
        let find = RegexBuilder::new(find).multi_line(true).build();
        let find = find.map_err(|error| {
            let message = error.to_string();
            let what = message.lines().last().unwrap_or_default();
            format!("invalid regular expression: {what}")
        })?;
        let groups = find.captures_len() - 1;
        let wanted = 1 + usize::from(unit == Some(TimeUnit::Printed));
        let fits = if sum { groups >= 1 } else { groups == wanted };
        if !fits {
            let least = if sum { "at least " } else { "" };
            return Err(format!(
                "capture groups: expected {least}{wanted}, found {groups}; write (?:…) for other groups"
            ));
        }
        Ok(ClientFigure { find, unit, sum })
    }

    /// Returns the figure that an output contains, or `None` if the figure is missing. Times are in
    /// microseconds.
    fn read(&self, output: &str, name: &str) -> Result<Option<f64>, String> {
        if self.sum {
            let matches = self.find.captures_iter(output);
            let groups =
                matches.flat_map(|found| found.iter().skip(1).flatten().collect::<Vec<_>>());
            return groups
                .map(|group| number(group.as_str(), name))
                .sum::<Result<_, _>>()
                .map(Some);
        }
        let Some(found) = self.find.captures(output) else {
            return Ok(None);
        };
        let text = |group| found.get(group).map_or("", |group| group.as_str());
        let unit = match self.unit {
            None | Some(TimeUnit::Us) => 1.0,
            Some(TimeUnit::Ms) => 1e3,
            Some(TimeUnit::S) => 1e6,
            Some(TimeUnit::Printed) => microseconds(text(2))
                .ok_or_else(|| format!("printed {name} in the unknown unit \"{}\"", text(2)))?,
        };
        Ok(Some(number(text(1), name)? * unit))
    }
}

fn number(text: &str, name: &str) -> Result<f64, String> {
    let value = text.parse().ok();
    value
        .filter(|value: &f64| value.is_finite() && *value >= 0.0)
        .ok_or_else(|| format!("printed \"{text}\" as {name}, which is not a number"))
}

/// Returns the length of a unit in microseconds.
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
