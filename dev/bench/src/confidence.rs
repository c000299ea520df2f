//! `cargo xtask confidence`: fits the weights of the confidence model to the
//! stored results of cases, and measures how reliable the probabilities are
//! (docs/decisions/0057-confidence.md).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::Args;
use floodmark_diagnose::why;
use floodmark_diagnose::why::confidence::{Features, Model, Term};
use floodmark_record::cause::Cause;
use floodmark_record::verdict::Confidence;

use crate::bench::{self, Failure, update};
use crate::confusion::{
    CONFIDENCE_HEADING, FAULT, HIDDEN, JudgedCase, SUITES, Suite, case_causes, family,
    replace_section,
};
use crate::golden;
use crate::statistics::Proportion;
use crate::table::table;

/// Suites that evaluate the model and are excluded from the fit.
const HELD_OUT: [&str; 1] = ["third-party-9"];

/// Causes outside the server and its load. No case has such a cause by design, so the expected cause
/// does not show whether the verdict is right.
const DISTURBANCES: [Cause; 2] = [Cause::OtherProcesses, Cause::Steal];

/// Weight of a verdict with hidden sources, relative to a verdict with all sources.
const HIDDEN_WEIGHT: f64 = 0.25;

/// Precision of the normal prior for the weights of causes, ranks and paths. A precision of 0.2
/// corresponds to a standard deviation of 2.2 log-odds.
const PRECISION: f64 = 0.2;

/// Precision of the normal prior for the weights of doubts. Their sign is known, so they need a
/// weaker prior. Both precisions minimize the log loss on families that the model was not fitted to.
const DOUBT_PRECISION: f64 = 0.003;

/// Number of passes over all weights, enough for the fit to converge.
const PASSES: usize = 60;

/// Bounds of the bins in the reliability diagram and the calibration.
const BINS: [f64; 8] = [0.0, 0.4, 0.6, 0.8, 0.9, 0.95, 0.99, 1.0];

/// Shares of the verdicts, most probable first, in the risk–coverage curve.
const COVERAGES: [f64; 6] = [0.25, 0.5, 0.75, 0.8, 0.9, 1.0];

const WEIGHTS: &str = "crates/diagnose/src/why/confidence/fitted.rs";
const PAGE: &str = "docs/accuracy.md";

/// Options of `cargo xtask confidence`.
#[derive(Debug, Args)]
pub struct ConfidenceOptions {
    /// Write the weights and the section in docs/accuracy.md
    #[arg(long)]
    write: bool,
    /// Date of the fit in docs/accuracy.md; required with --write
    #[arg(long, value_name = "YYYY-MM-DD", required_if_eq("write", "true"))]
    date: Option<String>,
}

/// A verdict on a run of a case.
struct Sample {
    suite: &'static Suite,
    family: String,
    features: Features,
    is_right: bool,
    /// The expected causes.
    expected: Vec<Cause>,
    weight: f64,
}

impl Sample {
    /// Returns whether all sources were visible.
    fn is_complete(&self) -> bool {
        self.weight >= 1.0
    }
}

/// A verdict's probability, and whether the verdict is right.
type Judged = (f64, bool);

/// Fits the weights. Returns whether the probabilities are reliable: in each bin, the share of right
/// verdicts agrees with the mean probability.
pub fn run(options: &ConfidenceOptions) -> Result<bool, Failure> {
    let root = bench::repository()?;
    let (held_out, fitted): (Vec<Sample>, Vec<Sample>) = samples(&root)?
        .into_iter()
        .partition(|sample| HELD_OUT.contains(&sample.suite.name));
    let mut model = fit(fitted.iter());
    let (judged, calibration) = cross_validate(&fitted);
    model.calibration = Cow::Owned(calibration);
    let new: Vec<Judged> = judge(&model, held_out.iter()).collect();
    let text = page(options.date.as_deref(), &model, &judged, &new);
    println!("{text}");
    if options.write {
        update(&root, WEIGHTS, &weights(&model))?;
        let page = bench::read(&root.join(PAGE))?;
        update(
            &root,
            PAGE,
            &replace_section(&page, CONFIDENCE_HEADING, &text),
        )?;
    }
    Ok(bins(&judged).all(|bin| bin.is_reliable()))
}

/// Returns the verdicts on all runs with a fault in the stored results, once with all sources and
/// once for each set of hidden sources. Omits void cases, verdicts without a cause, and disturbances.
fn samples(root: &Path) -> Result<Vec<Sample>, Failure> {
    let causes = case_causes(root)?;
    let mut samples = Vec::new();
    for suite in &SUITES {
        let pack = golden::pack_path(root, suite.name);
        if !pack.exists() {
            continue;
        }
        golden::each_result(&pack, |name, mut record| {
            // The record contains the causes that were expected when it was measured.
            if let (Some(of), Some(causes)) = (&mut record.experiment, causes.get(name)) {
                of.expected_causes.clone_from(causes);
            }
            let Ok(case) = JudgedCase::of(suite, &record, name) else {
                return Ok(());
            };
            let family = if suite.is_own() { name } else { family(name) };
            for run in record.runs_of(FAULT) {
                for (i, is_hidden) in HIDDEN.iter().enumerate() {
                    let mut run = run.clone();
                    run.observations.retain(|of| !is_hidden(&of.metric));
                    let Some(features) = why::features(&run, &record.environment) else {
                        continue;
                    };
                    if DISTURBANCES.contains(&features.cause) {
                        continue;
                    }
                    samples.push(Sample {
                        suite,
                        family: family.to_owned(),
                        is_right: case.expected.contains(&features.cause),
                        expected: case.expected.clone(),
                        features,
                        weight: if i == 0 { 1.0 } else { HIDDEN_WEIGHT },
                    });
                }
            }
            Ok(())
        })?;
    }
    Ok(samples)
}

/// The samples of one family, and a model that was fitted to the other families.
struct Fold<'a> {
    own: Vec<&'a Sample>,
    model: Model,
}

/// Judges each family with a model that was fitted to and calibrated on all other families. Returns
/// the verdicts, and the calibration on all families.
fn cross_validate(samples: &[Sample]) -> (Vec<Judged>, Vec<(f64, f64)>) {
    let families: BTreeSet<&str> = samples.iter().map(|sample| &*sample.family).collect();
    let folds = families.into_iter().map(|family| {
        let (own, others): (Vec<&Sample>, Vec<&Sample>) =
            samples.iter().partition(|sample| sample.family == family);
        let model = fit(others.into_iter());
        Fold { own, model }
    });
    let mut folds: Vec<Fold<'_>> = folds.collect();
    let regressed = folds.iter().map(|fold| {
        let of = fold.own.iter().filter(|sample| sample.is_complete());
        of.map(|sample| {
            let probability = fold.model.probability(&sample.features.terms);
            (probability, sample.is_right)
        })
        .collect()
    });
    let regressed: Vec<Vec<Judged>> = regressed.collect();
    let without = |fold: Option<usize>| {
        let others = regressed.iter().enumerate();
        let others = others.filter(|(i, _)| Some(*i) != fold);
        calibration(&others.flat_map(|(_, of)| of.clone()).collect::<Vec<_>>())
    };
    let mut judged = Vec::new();
    for (i, fold) in folds.iter_mut().enumerate() {
        fold.model.calibration = Cow::Owned(without(Some(i)));
        judged.extend(judge(&fold.model, fold.own.iter().copied()));
    }
    (judged, without(None))
}

/// Returns the points of a calibration: for each bin of the reliability diagram, the mean
/// probability and the share of right verdicts. Adjacent bins are merged until the shares are in
/// increasing order (pool-adjacent-violators algorithm; Zadrozny and Elkan, KDD 2002). One right
/// and one wrong verdict are added to each bin, so that no share is 0 or 1.
fn calibration(judged: &[Judged]) -> Vec<(f64, f64)> {
    let point = |bin: &Bin| {
        let right = (bin.right.count + 1) as f64 / (bin.right.total + 2) as f64;
        (bin.mean, right)
    };
    let mut pooled: Vec<Bin> = Vec::new();
    for mut bin in bins(judged) {
        while let Some(before) = pooled.pop_if(|before| point(before).1 >= point(&bin).1) {
            bin = before.with(&bin);
        }
        pooled.push(bin);
    }
    pooled.iter().map(point).collect()
}

/// Returns the probabilities of the verdicts with all sources.
fn judge<'a>(
    model: &Model,
    samples: impl Iterator<Item = &'a Sample>,
) -> impl Iterator<Item = Judged> {
    let complete = samples.filter(|sample| sample.is_complete());
    complete.map(|sample| (sample.features.probability(model), sample.is_right))
}

/// Fits a logistic regression with a normal prior (coordinate-wise Newton steps). The weights of
/// doubts are at most 0, so that more doubt never raises a probability.
fn fit<'a>(samples: impl Iterator<Item = &'a Sample>) -> Model {
    let samples: Vec<&Sample> = samples.collect();
    let terms: BTreeSet<Term> = samples
        .iter()
        .flat_map(|sample| sample.features.terms.iter().map(|(term, _)| *term))
        .collect();
    let terms: Vec<Term> = terms.into_iter().collect();
    // The samples that have each property, with its value.
    let mut columns: Vec<Vec<(usize, f64)>> = terms
        .iter()
        .map(|term| {
            let has = |(i, sample): (usize, &&Sample)| {
                let mut values = sample.features.terms.iter();
                values.find_map(|(other, value)| (other == term).then_some((i, *value)))
            };
            samples.iter().enumerate().filter_map(has).collect()
        })
        .collect();
    columns.push((0..samples.len()).map(|i| (i, 1.0)).collect());
    let intercept = terms.len();
    let mut weights = vec![0.0; columns.len()];
    let mut log_odds = vec![0.0_f64; samples.len()];
    for _ in 0..PASSES {
        for (j, column) in columns.iter().enumerate() {
            let is_doubt = matches!(terms.get(j), Some(Term::Doubt(_)));
            let precision = match is_doubt {
                _ if j == intercept => 0.0,
                true => DOUBT_PRECISION,
                false => PRECISION,
            };
            let (mut slope, mut curvature) = (-precision * weights[j], precision);
            for &(i, value) in column {
                let p = 1.0 / (1.0 + (-log_odds[i]).exp());
                let residual = f64::from(u8::from(samples[i].is_right)) - p;
                slope += samples[i].weight * value * residual;
                curvature += samples[i].weight * value * value * p * (1.0 - p);
            }
            let mut next = weights[j] + (slope / curvature.max(1e-9)).clamp(-1.0, 1.0);
            if is_doubt {
                next = next.min(0.0);
            }
            for &(i, value) in column {
                log_odds[i] += (next - weights[j]) * value;
            }
            weights[j] = next;
        }
    }
    Model {
        intercept: weights[intercept],
        weights: terms.into_iter().zip(weights).collect(),
        calibration: Cow::Borrowed(&[]),
        confused: Cow::Owned(confused(&samples)),
    }
}

/// For each cause named in a wrong verdict, returns the most frequent correct cause.
fn confused(samples: &[&Sample]) -> Vec<(Cause, Cause)> {
    let mut counts: BTreeMap<Cause, BTreeMap<Cause, usize>> = BTreeMap::new();
    let wrong = samples
        .iter()
        .filter(|one| one.is_complete() && !one.is_right);
    for sample in wrong {
        let of = counts.entry(sample.features.cause).or_default();
        for cause in &sample.expected {
            *of.entry(*cause).or_default() += 1;
        }
    }
    let most = |(cause, of): (Cause, BTreeMap<Cause, usize>)| {
        let most = of.into_iter().max_by_key(|(_, count)| *count)?;
        Some((cause, most.0))
    };
    counts.into_iter().filter_map(most).collect()
}

/// Verdicts with similar probabilities.
struct Bin {
    /// Mean probability.
    mean: f64,
    right: Proportion,
}

impl Bin {
    /// Returns a bin that contains the verdicts of both bins.
    fn with(&self, other: &Bin) -> Bin {
        let total = self.right.total + other.right.total;
        let sum = |bin: &Bin| bin.mean * bin.right.total as f64;
        Bin {
            mean: (sum(self) + sum(other)) / total as f64,
            right: Proportion {
                count: self.right.count + other.right.count,
                total,
            },
        }
    }

    /// Returns whether the mean probability lies in the interval of the share of right verdicts.
    fn is_reliable(&self) -> bool {
        let (low, high) = self.right.interval();
        (low..=high).contains(&self.mean)
    }
}

/// Returns the bins of the reliability diagram that contain verdicts.
fn bins(judged: &[Judged]) -> impl Iterator<Item = Bin> {
    BINS.windows(2).filter_map(|limits| {
        let is_in = |(p, _): &&Judged| {
            (limits[0]..limits[1]).contains(p) || (*p >= limits[1] && limits[1] >= 1.0)
        };
        let of: Vec<&Judged> = judged.iter().filter(is_in).collect();
        (!of.is_empty()).then(|| Bin {
            mean: of.iter().map(|(p, _)| p).sum::<f64>() / of.len() as f64,
            right: Proportion::of(of.iter().map(|(_, is_right)| *is_right)),
        })
    })
}

/// Returns the section in `docs/accuracy.md`.
fn page(date: Option<&str>, model: &Model, judged: &[Judged], new: &[Judged]) -> String {
    let mut text = format!(
        "{}\n{}",
        CONFIDENCE_HEADING,
        include_str!("confidence.md").replace("{date}", date.unwrap_or("(no date)"))
    );
    for (title, judged) in [
        ("Families that the model was not fitted to", judged),
        ("Ninth batch, measured after the fit", new),
    ] {
        if judged.is_empty() {
            continue;
        }
        text += &format!("\n## {title}\n\n");
        text += &table("verdict | verdicts | right", confidences(judged));
        text += &format!("\nMean log loss: {:.4}.\n", log_loss(judged));
        text += "\nA probability is reliable if it lies within the interval in its row.\n\n";
        let rows = bins(judged).map(|bin| {
            let mean = format!("{:.1} %", bin.mean * 100.0);
            vec![mean, bin.right.to_string()]
        });
        text += &table("mean probability | right", rows);
        text += &chart(judged);
        text += "\nRisk and coverage: share of wrong verdicts among the given share of most probable verdicts.\n\n";
        text += &table("coverage | lowest probability | wrong", coverage(judged));
    }
    text += "\n## Calibration\n\nProbability from the regression, and the calibrated probability that the verdict states.\n\n";
    let show = |probability: f64| format!("{:.1} %", probability * 100.0);
    let points = model.calibration.iter();
    let points = points.map(|(from, to)| vec![show(*from), show(*to)]);
    text += &table("regression | verdict", points);
    text += "\n## Weights\n\nLog-odds that each property adds.\n\n";
    let weight = |(term, weight): &(Term, f64)| vec![term.to_string(), format!("{weight:+.2}")];
    let intercept = vec!["intercept".to_owned(), format!("{:+.2}", model.intercept)];
    let rows = std::iter::once(intercept).chain(model.weights.iter().map(weight));
    text += &table("property | weight", rows);
    text + &format!(
        "\nNo stored result names these causes, so they have no weight: {}.\n",
        unweighted(model)
    )
}

/// Lists the causes that have no weight, although a verdict can name them.
fn unweighted(model: &Model) -> String {
    let has_weight = |cause: &Cause| {
        let mut terms = model.weights.iter().map(|(term, _)| *term);
        terms.any(|term| term == Term::Cause(*cause))
    };
    let is_named = |cause: &Cause| *cause != Cause::Unknown && !DISTURBANCES.contains(cause);
    let causes = Cause::ALL.into_iter().filter(is_named);
    let causes = causes.filter(|cause| !has_weight(cause));
    causes
        .map(|cause| format!("`{cause}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the mean log loss of the probabilities.
fn log_loss(judged: &[Judged]) -> f64 {
    let loss = |(p, is_right): &Judged| -(if *is_right { *p } else { 1.0 - p }).ln();
    judged.iter().map(loss).sum::<f64>() / judged.len() as f64
}

/// Returns a row for each level of confidence.
fn confidences(judged: &[Judged]) -> impl Iterator<Item = Vec<String>> {
    let levels = [
        Confidence::Likely,
        Confidence::Possible,
        Confidence::Unknown,
    ];
    levels.into_iter().map(|level| {
        let of = judged.iter().filter(|(p, _)| Confidence::of(*p) == level);
        let right: Vec<bool> = of.map(|(_, is_right)| *is_right).collect();
        let share = Proportion {
            count: right.len(),
            total: judged.len(),
        };
        let name = format!("{level:?}").to_lowercase();
        vec![name, share.to_string(), Proportion::of(right).to_string()]
    })
}

/// Returns the reliability diagram.
fn chart(judged: &[Judged]) -> String {
    let bins: Vec<Bin> = bins(judged).collect();
    let list = |figure: fn(&Bin) -> f64| {
        let figures = bins.iter().map(|bin| format!("{:.0}", figure(bin) * 100.0));
        figures.collect::<Vec<_>>().join(", ")
    };
    let (means, right) = (list(|bin| bin.mean), list(|bin| bin.right.value()));
    format!(
        "\n```mermaid\nxychart-beta\n  title \"Reliability: right verdicts (bars) and mean probability (line)\"\n  \
         x-axis \"mean probability, %\" [{means}]\n  y-axis \"right, %\" 0 --> 100\n  bar [{right}]\n  line [{means}]\n```\n"
    )
}

/// Returns the rows of the risk–coverage curve.
fn coverage(judged: &[Judged]) -> impl Iterator<Item = Vec<String>> {
    let mut sorted = judged.to_vec();
    sorted.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    COVERAGES.into_iter().map(move |share| {
        let most = ((share * sorted.len() as f64).round() as usize).clamp(1, sorted.len());
        let (least, _) = sorted[most - 1];
        let wrong = Proportion::of(sorted[..most].iter().map(|(_, is_right)| !is_right));
        let [share, least] = [share, least].map(|share| format!("{:.0} %", share * 100.0));
        vec![share, least, wrong.to_string()]
    })
}

/// Returns the source file with the weights.
fn weights(model: &Model) -> String {
    let term = |term: &Term| match term {
        Term::Cause(cause) => format!("Term::Cause(Cause::{cause:?})"),
        Term::Evidence(rank) => format!("Term::Evidence(EvidenceRank::{rank:?})"),
        Term::Path(first, last) => {
            format!("Term::Path(StepKind::{first:?}, StepKind::{last:?})")
        }
        Term::Doubt(doubt) => format!("Term::Doubt(Doubt::{doubt:?})"),
    };
    let rows = model.weights.iter();
    let rows = rows.map(|(of, weight)| format!("        ({}, {weight:.2}),\n", term(of)));
    let points = model.calibration.iter();
    let points = points.map(|(from, to)| format!("        ({from:.3}, {to:.3}),\n"));
    let pairs = model.confused.iter();
    let pairs = pairs.map(|(a, b)| format!("        (Cause::{a:?}, Cause::{b:?}),\n"));
    format!(
        "//! Weights of the model, fitted to the stored results.\n//! Written by `cargo xtask confidence --write`.\n\n\
         use super::{{Cause, Cow, Doubt, EvidenceRank, Model, StepKind, Term}};\n\n\
         #[rustfmt::skip]\npub(in crate::why) static MODEL: Model = Model {{\n    intercept: {:.2},\n    weights: Cow::Borrowed(&[\n{}    ]),\n    \
         calibration: Cow::Borrowed(&[\n{}    ]),\n    \
         confused: Cow::Borrowed(&[\n{}    ]),\n}};\n",
        model.intercept,
        rows.collect::<String>(),
        points.collect::<String>(),
        pairs.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_merges_bins_until_the_shares_increase() {
        let verdicts = [
            (0.7, true, 8),
            (0.85, true, 4),
            (0.85, false, 4),
            (0.97, true, 8),
        ];
        let verdicts = verdicts.into_iter();
        let judged = verdicts.flat_map(|(p, is_right, n)| vec![(p, is_right); n]);
        let points = calibration(&judged.collect::<Vec<_>>());
        let expected = [(0.775, 13.0 / 18.0), (0.97, 0.9)];
        assert_eq!(points.len(), expected.len(), "{points:?}");
        for (point, expected) in points.iter().zip(expected) {
            assert!((point.0 - expected.0).abs() < 1e-9, "{points:?}");
            assert!((point.1 - expected.1).abs() < 1e-9, "{points:?}");
        }
    }
}
