//! `[[claim]]`: a published figure, and the criterion for agreement with the measured figure.

use std::ops::Range;

use floodmark_plan::toml_file::{Located, TomlFile};
use floodmark_plan::values::{Name, Number};
use floodmark_plan::{FileError, did_you_mean};
use floodmark_record::comparison::{Agreement, ComparedMetric};
use floodmark_record::experiment::PublishedClaim;
use schemars::JsonSchema;
use serde::Deserialize;

use super::trial::Trial;

/// A `[[claim]]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimSection {
    /// Text of the claim.
    text: String,
    /// Where the claim was published.
    source: Option<String>,
    /// Metric of the figure. Default: throughput.
    metric: Option<ComparedMetric>,
    /// Names of two trials. The first trial's figure is divided by the second trial's figure.
    ratio: Option<Located<Vec<String>>>,
    /// Name of the trial with the claimed figure, for a claim without `ratio`. Optional if there is
    /// only one trial.
    trial: Option<Located<Name>>,
    /// Published figure: a ratio, a rate per second, or a time in microseconds.
    published: Option<Located<Number>>,
    /// Relative tolerance. With 0.1, the claim holds if the measured figure is between `published`
    /// / 1.1 and `published` * 1.1. The default for a ratio is 0.1. Any other figure requires
    /// `within` or `at`.
    within: Option<Located<Number>>,
    /// Direction of the claim. The claim holds if the measured figure is at least, or at most, the
    /// published figure. Conflicts with `within`.
    at: Option<Located<Bound>>,
}

/// Direction of a one-sided comparison.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Bound {
    Least,
    Most,
}

/// Reads a claim about the trials of an experiment.
pub(super) fn claim(
    file: &TomlFile,
    section: Located<ClaimSection>,
    trials: &[Trial],
) -> Result<PublishedClaim, FileError> {
    let ratio = match &section.ratio {
        None => Vec::new(),
        Some(ratio) => checked_ratio(file, ratio, trials)?,
    };
    if let Some(published) = &section.published
        && published.0 <= 0.0
    {
        return Err(file.error(&published.span(), "published: expected a number above 0"));
    }
    let has_figure = section.published.is_some() || !ratio.is_empty();
    let trial = claimed_trial(file, &section, trials, has_figure && ratio.is_empty())?;
    let agreement = agreement(file, &section)?;
    let section = section.into_inner();
    Ok(PublishedClaim {
        text: section.text,
        source: section.source,
        metric: section
            .metric
            .or(has_figure.then_some(ComparedMetric::Throughput)),
        trial,
        ratio,
        published: section.published.map(|published| published.0),
        agreement,
    })
}

fn checked_ratio(
    file: &TomlFile,
    ratio: &Located<Vec<String>>,
    trials: &[Trial],
) -> Result<Vec<String>, FileError> {
    let invalid = |what: String| Err(file.error(&ratio.span(), format!("ratio: {what}")));
    let [a, b] = &ratio[..] else {
        return invalid("expected two trials, like ratio = [\"one\", \"other\"]".to_owned());
    };
    for name in [a, b] {
        if let Err(what) = check_trial(name, trials) {
            return invalid(what);
        }
    }
    if a == b {
        invalid(format!(
            "both trials are \"{a}\"; name two different trials"
        ))
    } else {
        Ok(ratio.to_vec())
    }
}

/// Checks that a name refers to a trial, or to a system that has exactly one trial.
fn check_trial(name: &str, trials: &[Trial]) -> Result<(), String> {
    let of_system = trials.iter().filter(|trial| trial.server.name == name);
    let names = || trials.iter().map(|trial| trial.name.as_str());
    match (names().any(|trial| trial == name), of_system.count()) {
        (true, _) | (_, 1) => Ok(()),
        (_, 0) => Err(format!(
            "unknown trial \"{name}\"; {}",
            did_you_mean(name, names())
        )),
        _ => Err(format!(
            "the system \"{name}\" has several trials; name one of them"
        )),
    }
}

/// Returns the trial that a claim about a single figure refers to.
fn claimed_trial(
    file: &TomlFile,
    section: &Located<ClaimSection>,
    trials: &[Trial],
    is_single: bool,
) -> Result<Option<String>, FileError> {
    match (&section.trial, trials) {
        (Some(trial), _) if section.ratio.is_some() => Err(file.error(
            &trial.span(),
            "`trial` conflicts with `ratio`; remove one of them",
        )),
        (Some(trial), _) => match check_trial(&trial.0, trials) {
            Ok(()) => Ok(Some(trial.0.clone())),
            Err(what) => Err(file.error(&trial.span(), format!("trial: {what}"))),
        },
        (None, _) if !is_single => Ok(None),
        (None, [only]) => Ok(Some(only.name.clone())),
        (None, _) => Err(file.error(
            &section.span(),
            "the claim names no trial; add trial = \"…\" or ratio = [\"…\", \"…\"]",
        )),
    }
}

fn agreement(file: &TomlFile, section: &ClaimSection) -> Result<Option<Agreement>, FileError> {
    let needs_figure = |key: &str, span: Range<usize>| {
        let what = format!("`{key}` requires a published figure; add published = …");
        Err(file.error(&span, what))
    };
    let has_figure = section.published.is_some();
    match (&section.within, &section.at) {
        (Some(within), _) if !has_figure => needs_figure("within", within.span()),
        (None, Some(at)) if !has_figure => needs_figure("at", at.span()),
        (Some(_), Some(at)) => {
            let what = "`at` conflicts with `within`; remove one of them";
            Err(file.error(&at.span(), what))
        }
        (Some(within), None) if within.0 <= 0.0 => Err(file.error(
            &within.span(),
            "within: expected a number above 0, like within = 0.1",
        )),
        (Some(within), None) => Ok(Some(Agreement::Within(within.0))),
        (None, Some(at)) => Ok(Some(match **at {
            Bound::Most => Agreement::AtMost,
            Bound::Least => Agreement::AtLeast,
        })),
        (None, None) => Ok(None),
    }
}
