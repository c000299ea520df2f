//! Published figures beside the measured ones.

use floodmark_record::Record;
use floodmark_record::comparison::{Agreement, Claim, Holds, Metric};
use floodmark_record::experiment::PublishedClaim;
use floodmark_stats::comparison::{geometric_mean, over_processes};

use super::figures::Figures;
use super::{Side, compare_sides, select, sides, too_few};

/// How far a measured ratio may be from the published one where the experiment does not say. Published figures are of other
/// machines, where a tenth either way would be no other result.
pub const RATIO_WITHIN: Agreement = Agreement::Within(0.1);

/// Holds what was published against what a record has. Only ratios can be expected to hold on another machine, so a figure that is
/// none is judged only where the experiment says what would agree.
#[must_use]
pub fn claims(record: &Record) -> Vec<Claim> {
    let sides = sides(record);
    let published = record
        .experiment
        .iter()
        .flat_map(|experiment| &experiment.claims);
    published
        .map(|published| {
            let measured = match measure(&sides, published) {
                Ok(measured) => measured,
                Err(why) => Measured {
                    notes: vec![why],
                    ..Measured::default()
                },
            };
            claim(published, measured)
        })
        .collect()
}

/// What there is to hold against a claim.
#[derive(Default)]
struct Measured {
    figure: Option<f64>,
    interval: Option<(f64, f64)>,
    notes: Vec<String>,
}

fn measure(sides: &[Side<'_>], published: &PublishedClaim) -> Result<Measured, String> {
    let metric = published
        .metric
        .ok_or("it is about no figure that is measured")?;
    let side = |name: Option<&str>| select(sides, name).map_err(|error| error.to_string());
    let measured = match published.ratio.as_slice() {
        [a, b] => of_two(side(Some(a))?, side(Some(b))?, metric),
        _ => of_one(side(published.trial.as_deref())?, metric),
    };
    Ok(measured)
}

fn of_two(a: &Side<'_>, b: &Side<'_>, metric: Metric) -> Measured {
    let compared = compare_sides(a, b, metric);
    let interval = compared.low.zip(compared.high);
    Measured {
        figure: compared.ratio,
        interval,
        notes: match interval {
            Some(_) => Vec::new(),
            None => compared.notes,
        },
    }
}

fn of_one(side: &Side<'_>, metric: Metric) -> Measured {
    let figures = Figures::of(side, metric);
    let usable = figures.usable();
    let interval = usable.and_then(over_processes);
    let mut notes = Vec::new();
    if interval.is_none() {
        notes.clone_from(&figures.notes);
        notes.extend(usable.map(|_| too_few(&[(side, &figures)])));
    }
    Measured {
        figure: usable.and_then(geometric_mean),
        interval: interval.map(|interval| (interval.low, interval.high)),
        notes,
    }
}

fn claim(asked: &PublishedClaim, measured: Measured) -> Claim {
    let ratio = !asked.ratio.is_empty();
    let agreement = asked.agreement.or(ratio.then_some(RATIO_WITHIN));
    let Measured {
        figure,
        interval,
        mut notes,
    } = measured;
    let holds = match (asked.published, agreement, interval) {
        (Some(published), Some(agreement), Some(interval)) => holds(published, agreement, interval),
        (None, ..) => {
            notes.push("no figure was published to hold it against".to_owned());
            Holds::Undecided
        }
        (_, None, _) => {
            notes.push(
                "the figure is of another machine, and the experiment does not say what would agree with it".to_owned(),
            );
            Holds::Undecided
        }
        (.., None) => Holds::Undecided,
    };
    Claim {
        text: asked.text.clone(),
        source: asked.source.clone(),
        metric: asked.metric,
        of: match ratio {
            true => asked.ratio.clone(),
            false => asked.trial.iter().cloned().collect(),
        },
        published: asked.published,
        agreement,
        measured: figure,
        low: interval.map(|interval| interval.0),
        high: interval.map(|interval| interval.1),
        holds,
        notes,
    }
}

/// Whether all, none or part of an interval is in the range that agrees with what was published.
fn holds(published: f64, agreement: Agreement, (low, high): (f64, f64)) -> Holds {
    let (from, to) = match agreement {
        Agreement::Within(share) => (published / (1.0 + share), published * (1.0 + share)),
        Agreement::AtLeast => (published, f64::INFINITY),
        Agreement::AtMost => (0.0, published),
    };
    if from <= low && high <= to {
        Holds::Yes
    } else if high < from || to < low {
        Holds::No
    } else {
        Holds::Undecided
    }
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
