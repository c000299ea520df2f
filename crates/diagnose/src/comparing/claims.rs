//! Published claims compared with measured figures.

use floodmark_record::Record;
use floodmark_record::comparison::{Agreement, ClaimResult, Holds};
use floodmark_record::experiment::PublishedClaim;

use super::process_figures::ProcessFigures;
use super::{RunGroup, compare, run_groups, select, too_few};

/// Default criterion for ratios. Published ratios come from other hosts, so a margin is allowed.
pub const RATIO_WITHIN: Agreement = Agreement::Within(0.1);

/// Judges the published claims in a record's experiment.
///
/// Only ratios can be expected to hold on another host. Therefore, a single figure is judged only
/// if the experiment defines a criterion.
#[must_use]
pub fn claims(record: &Record) -> Vec<ClaimResult> {
    let groups = run_groups(record);
    let experiments = record.experiment.iter();
    let claims = experiments.flat_map(|experiment| &experiment.claims);
    let unmeasured = |reason| (None, None, vec![reason]);
    claims
        .map(|claim| judge(claim, measure(&groups, claim).unwrap_or_else(unmeasured)))
        .collect()
}

/// The measured figure for a claim, the interval of that figure, and notes.
type MeasuredClaim = (Option<f64>, Option<(f64, f64)>, Vec<String>);

fn measure(groups: &[RunGroup<'_>], published: &PublishedClaim) -> Result<MeasuredClaim, String> {
    let metric = published.metric.ok_or("the claim names no metric")?;
    let group = |name: Option<&str>| select(groups, name).map_err(|error| error.to_string());
    if let [a, b] = published.ratio.as_slice() {
        let mut compared = compare(group(Some(a))?, group(Some(b))?, metric);
        let interval = compared.low.zip(compared.high);
        if interval.is_some() {
            compared.notes.clear();
        }
        return Ok((compared.ratio, interval, compared.notes));
    }
    let group = group(published.trial.as_deref())?;
    let figures = ProcessFigures::of(group, metric);
    let (figure, interval) = (figures.mean(), figures.interval());
    let mut notes = Vec::new();
    if interval.is_none() {
        notes = group.named(&figures.notes);
        notes.extend(figure.map(|_| too_few(&[(group, &figures)])));
    }
    let interval = interval.map(|interval| (interval.low, interval.high));
    Ok((figure, interval, notes))
}

fn judge(published: &PublishedClaim, measured: MeasuredClaim) -> ClaimResult {
    let (figure, interval, mut notes) = measured;
    let is_ratio = !published.ratio.is_empty();
    let agreement = published.agreement.or(is_ratio.then_some(RATIO_WITHIN));
    let mut verdict = Holds::Undecided;
    match (published.published, agreement, interval) {
        (None, ..) => notes.push("the claim has no published figure".to_owned()),
        (_, None, _) => notes.push(
            "the published figure is from another host, and the experiment defines no criterion"
                .to_owned(),
        ),
        (Some(figure), Some(agreement), Some(interval)) => {
            verdict = holds(figure, agreement, interval);
        }
        _ => {}
    }
    ClaimResult {
        text: published.text.clone(),
        source: published.source.clone(),
        metric: published.metric,
        of: if is_ratio {
            published.ratio.clone()
        } else {
            published.trial.iter().cloned().collect()
        },
        published: published.published,
        agreement,
        measured: figure,
        low: interval.map(|interval| interval.0),
        high: interval.map(|interval| interval.1),
        holds: verdict,
        notes,
    }
}

/// Returns whether an interval agrees with a published figure entirely, partly or not at all.
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
