//! What was published about an experiment, and when what is measured agrees with it.

use floodmark_record::comparison::{Agreement, Metric};
use floodmark_record::experiment::PublishedClaim;

use super::fields::{Field, Kind, field, needed};
use super::section::Section;
use super::trial::Trial;
use crate::source::{FileError, did_you_mean};

/// Keys of a claim.
pub(super) const CLAIM: &[Field] = &[
    needed("text", Kind::Text, "What was published, in words."),
    field("source", Kind::Text, "Where."),
    field(
        "metric",
        Kind::OneOf(&Metric::NAMES),
        "Of which figure. Without it throughput.",
    ),
    field(
        "ratio",
        Kind::Texts,
        "Two trials: the first one's figure divided by the second one's.",
    ),
    field(
        "trial",
        Kind::Name,
        "In place of ratio: the trial whose figure was published. Not needed where there is one.",
    ),
    field(
        "published",
        Kind::Number,
        "The published figure: a ratio, or a figure per second or in microseconds.",
    ),
    field(
        "within",
        Kind::Number,
        "It holds where the measured figure is within this share of it: 0.1 is from published / 1.1 to published * 1.1, and what \
         holds for a ratio that says neither this nor at. A figure that is no ratio is not judged without one of them.",
    ),
    field(
        "at",
        Kind::OneOf(&["least", "most"]),
        "In place of within: it holds where the measured figure is at least, or at most, as large.",
    ),
];

/// Reads a `[[claim]]`.
pub(super) fn claim(section: &Section<'_>, trials: &[Trial]) -> Result<PublishedClaim, FileError> {
    let ratio = section.list("ratio");
    if section.has("ratio") && ratio.len() != 2 {
        return Err(section.error(
            "ratio",
            "ratio: expected two trials, like ratio = [\"one\", \"other\"]",
        ));
    }
    for name in &ratio {
        known(section, "ratio", name, trials)?;
    }
    if let [a, b] = &ratio[..]
        && a == b
    {
        let what = format!("ratio: \"{a}\" is on both sides; name two trials");
        return Err(section.error("ratio", what));
    }
    let published = section.number("published");
    if published.is_some_and(|figure| figure <= 0.0) {
        return Err(section.error("published", "published: expected a number above 0"));
    }
    let metric = section.text("metric").and_then(|name| name.parse().ok());
    let of_a_figure = published.is_some() || !ratio.is_empty();
    Ok(PublishedClaim {
        text: section.text("text").unwrap_or_default().to_owned(),
        source: section.text("source").map(str::to_owned),
        metric: metric.or(of_a_figure.then_some(Metric::Throughput)),
        trial: trial(section, trials, of_a_figure && ratio.is_empty())?,
        ratio,
        published,
        agreement: agreement(section)?,
    })
}

/// A name that a claim uses must be that of one trial, or of a system with one.
fn known(section: &Section<'_>, key: &str, name: &str, trials: &[Trial]) -> Result<(), FileError> {
    let of_system = trials
        .iter()
        .filter(|trial| trial.server.name(&trial.name) == name);
    let names = || trials.iter().map(|trial| trial.name.as_str());
    match (names().any(|trial| trial == name), of_system.count()) {
        (true, _) | (_, 1) => Ok(()),
        (_, 0) => {
            let mend = did_you_mean(name, names());
            Err(section.error(key, format!("{key}: no trial is called \"{name}\"; {mend}")))
        }
        _ => Err(section.error(
            key,
            format!("{key}: several trials are of \"{name}\"; name one of the trials"),
        )),
    }
}

/// The trial that a figure is of, where it is that of one.
fn trial(
    section: &Section<'_>,
    trials: &[Trial],
    of_one: bool,
) -> Result<Option<String>, FileError> {
    match (section.text("trial"), trials) {
        (Some(_), _) if section.has("ratio") => Err(section.error(
            "trial",
            "trial: a claim is about a ratio or about one trial, not both; leave one of them out",
        )),
        (Some(name), _) => {
            known(section, "trial", name, trials)?;
            Ok(Some(name.to_owned()))
        }
        (None, _) if !of_one => Ok(None),
        (None, [only]) => Ok(Some(only.name.clone())),
        (None, _) => Err(section.error(
            "",
            "the claim does not say what its figure is of; write trial = \"…\", or ratio = [\"…\", \"…\"]",
        )),
    }
}

fn agreement(section: &Section<'_>) -> Result<Option<Agreement>, FileError> {
    for key in ["within", "at"] {
        if section.has(key) && !section.has("published") {
            return Err(section.error(
                key,
                format!("{key} belongs to a published figure; add published = …"),
            ));
        }
    }
    match (section.number("within"), section.text("at")) {
        (Some(_), Some(_)) => Err(section.error(
            "at",
            "at: a claim has within or at, not both; leave one of them out",
        )),
        (Some(share), None) if share <= 0.0 => Err(section.error(
            "within",
            "within: expected a share above 0, like within = 0.1",
        )),
        (Some(share), None) => Ok(Some(Agreement::Within(share))),
        (None, Some("most")) => Ok(Some(Agreement::AtMost)),
        (None, Some(_)) => Ok(Some(Agreement::AtLeast)),
        (None, None) => Ok(None),
    }
}
