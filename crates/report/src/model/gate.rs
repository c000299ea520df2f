//! A gate or a comparison of two versions: its decision, its pairs and their chart.

use floodmark_record::gate::{GateDecision, GateEnd, GatePair, GateResult, GateRules};
use floodmark_record::units::show_ratio;
use floodmark_stats::comparison::geometric_mean;
use floodmark_stats::sequential::trimmed_per_end;

use super::chart::{Axis, Chart, Curve, DotColor, Quantity, drawable};
use super::comparison::{figure, range};
use super::document::{
    Emphasis, Span, Table, TextLine, count_cell, data, line, listed, plain, shown,
};
use super::figures::{count_of, duration, ends, extremes, glue, joined, level, optional};

/// Returns `comparison` for two-sided rules, otherwise `gate`.
pub(crate) fn noun(rules: &GateRules) -> &'static str {
    if rules.is_two_sided {
        "comparison"
    } else {
        "gate"
    }
}

/// Returns the result in labeled lines.
pub(crate) fn lines(gate: &GateResult) -> Vec<TextLine> {
    let mut lines = vec![TextLine::new(
        noun(&gate.rules),
        [decision(gate.decision), plain(format!("– {}", ratio(gate)))],
    )];
    lines.extend(reason(gate).map(|text| line("", text)));
    lines.extend(figures(gate).map(|text| line("", text)));
    lines.extend(turns(gate).map(|text| line("", text)));
    lines.extend(gate.excluded.iter().map(|text| line("excluded", text)));
    lines
}

/// Returns the result without the decision, in one line.
pub(crate) fn detail(gate: &GateResult) -> String {
    joined([ratio(gate)].into_iter().chain(reason(gate)), "; ")
}

/// Returns the decision with its emphasis.
pub(crate) fn decision(decision: GateDecision) -> Span {
    let emphasis = match decision {
        GateDecision::Passed | GateDecision::Equivalent => Emphasis::Good,
        GateDecision::Failed => Emphasis::Bad,
        GateDecision::Different | GateDecision::Inconclusive => Emphasis::Warn,
    };
    emphasis.span(decision.name())
}

/// Describes the ratio, its interval and the margin.
#[must_use]
pub fn ratio(gate: &GateResult) -> String {
    let rules = &gate.rules;
    let of = rules.metric.figure().title();
    let (candidate, baseline) = (&rules.candidate, &rules.baseline);
    let Some(ratio) = gate.ratio else {
        return format!("{of} of {candidate} and {baseline}: no pair was measured");
    };
    let is_better = (ratio > 1.0) == rules.metric.figure().more_is_better();
    let better = if is_better { "better" } else { "worse" };
    let (ratio, basis) = (show_ratio(ratio), basis(gate));
    let margin = glue(&format!("{} %", (rules.margin * 1e4).round() / 1e2));
    let margin = match gate.decision {
        GateDecision::Equivalent => format!("no difference of {margin} or more"),
        GateDecision::Different => format!("{candidate} is {better}; margin: {margin}"),
        _ => format!("margin: {margin}"),
    };
    format!("{of} of {candidate}: {ratio} times that of {baseline} ({basis}); {margin}")
}

/// Describes the interval and the number of pairs.
fn basis(gate: &GateResult) -> String {
    let pairs = count_of(gate.pairs.len() as u64, "pair");
    match &gate.interval {
        None => pairs,
        Some(interval) => {
            let level = level(interval.confidence);
            let range = glue(&range(interval.low, interval.high));
            format!("{level} interval: {range}, {pairs}")
        }
    }
}

/// Returns why the gate is inconclusive, and what to do.
fn reason(gate: &GateResult) -> Option<String> {
    if gate.decision != GateDecision::Inconclusive {
        return None;
    }
    if let Some(caveat) = &gate.caveat {
        return Some(caveat.clone());
    }
    Some(match gate.ended {
        GateEnd::Decided => return None,
        GateEnd::OutOfTime => format!(
            "the budget ({}) was used up before the interval was narrow enough; use a larger budget, a shorter load or a \
             quieter host",
            duration(gate.rules.budget_s)
        ),
        GateEnd::Interrupted if gate.pairs.is_empty() => return None,
        GateEnd::Interrupted if gate.rules.is_two_sided => {
            "stopped before a decision; repeat the comparison with a new --out directory".to_owned()
        }
        GateEnd::Interrupted => {
            "interrupted before a decision; continue it with --resume".to_owned()
        }
    })
}

/// Returns the figure of each side of an alternating load: `baseline 57,656/s, candidate 57,700/s`.
/// For other loads, the table of runs contains these figures.
fn figures(gate: &GateResult) -> Option<String> {
    gate.pairs.last()?.turn_s?;
    let mean = |of: fn(&GatePair) -> f64| {
        let figures: Vec<f64> = gate.pairs.iter().map(of).collect();
        Some(figure(gate.rules.metric, Some(geometric_mean(&figures)?)))
    };
    let (baseline, candidate) = (mean(|pair| pair.baseline)?, mean(|pair| pair.candidate)?);
    let rules = &gate.rules;
    let means = if trimmed_per_end(gate.pairs.len()) == 0 {
        "means"
    } else {
        "means of all pairs; the ratio excludes extreme pairs"
    };
    Some(format!(
        "{} {baseline}, {} {candidate} ({means})",
        rules.baseline, rules.candidate
    ))
}

/// Describes the alternating load, if any.
fn turns(gate: &GateResult) -> Option<String> {
    let turn_s = gate.pairs.last()?.turn_s?;
    let length = glue(&duration(turn_s));
    Some(format!(
        "alternating load: both servers of a pair ran at the same time, with turns of about {length}"
    ))
}

/// Describes the latest pair, and the ratio and its interval across all pairs.
#[must_use]
pub fn gate_pair(gate: &GateResult) -> Option<String> {
    let pair = gate.pairs.last()?;
    let of = gate.max_pairs.map(|most| format!(" of up to {most}"));
    let of = of.unwrap_or_default();
    let mean = optional(gate.ratio, show_ratio);
    let interval = gate.interval.as_ref();
    let interval = interval.map(|of| format!(" ({})", range(of.low, of.high)));
    let interval = interval.unwrap_or_default();
    let (rules, ratio) = (&gate.rules, show_ratio(pair.ratio()));
    let pair = format!(
        "pair {}{of}: {} ÷ {} = {ratio}",
        pair.process, rules.candidate, rules.baseline
    );
    Some(format!("{pair}; mean so far: {mean}{interval}"))
}

/// Returns a table with a row per pair.
pub(crate) fn table(gate: &GateResult) -> Table {
    let rules = &gate.rules;
    let of = |value| figure(rules.metric, Some(value));
    let rows = gate.pairs.iter().map(|pair| {
        let (candidate, baseline) = (pair.candidate, pair.baseline);
        let (low, high) = ends(pair.interval.as_ref());
        let after = low.zip(high).map(|(low, high)| range(low, high));
        let after = after.unwrap_or_default();
        let ratio = Emphasis::Strong.span(show_ratio(pair.ratio()));
        let cells = vec![
            count_cell("process", "pair", pair.process),
            data("metric", rules.metric.name()),
            data("baseline", &rules.baseline),
            data("candidate", &rules.candidate),
            data("unit", rules.metric.figure().unit().name()),
            shown(&rules.baseline, of(baseline)),
            shown(&rules.candidate, of(candidate)),
            listed("figure_baseline", "baseline", baseline, of(baseline)),
            listed("figure_candidate", "candidate", candidate, of(candidate)),
            listed("ratio", "ratio", pair.ratio(), ratio).essential(),
            listed("ratio_low", "95 % interval after the pair", low, after).essential(),
            data("ratio_high", high),
        ];
        (pair.process.to_string(), cells)
    });
    Table::of(rows, "").captioned("pair")
}

/// Minimum distance between the ratios and the ends of the y axis. The axis never starts below 0.
const PADDING: f64 = 0.05;

/// Returns a chart of the ratio of each pair, and of the bounds of the interval after each pair.
/// Returns `None` for fewer than two pairs.
pub(crate) fn chart(gate: &GateResult) -> Option<Chart> {
    let points = |of: fn(&GatePair) -> Option<f64>| {
        let pairs = gate.pairs.iter();
        pairs.filter_map(move |pair| Some((f64::from(pair.process), of(pair)?)))
    };
    if gate.pairs.len() < 2 {
        return None;
    }
    let bound = |color, name, of| Curve::line(color, name, points(of));
    let color = match gate.decision {
        GateDecision::Failed => DotColor::Bad,
        GateDecision::Passed
        | GateDecision::Equivalent
        | GateDecision::Different
        | GateDecision::Inconclusive => DotColor::Good,
    };
    let curves = vec![
        bound(0, "lower bound", |pair| Some(pair.interval.as_ref()?.low)),
        bound(1, "upper bound", |pair| Some(pair.interval.as_ref()?.high)),
        Curve::dots(color, "pair", points(|pair| Some(pair.ratio()))),
    ];
    // Fit the y axis to the ratios, because early intervals are much wider than the range of the
    // ratios.
    let margins = margins(&gate.rules);
    let ratios = gate.pairs.iter().map(GatePair::ratio);
    let levels = margins.iter().map(|(level, _)| *level);
    let within = ratios.filter(|y| drawable(*y)).chain(levels).chain([1.0]);
    let (lowest, highest) = extremes(&within.collect::<Vec<_>>())?;
    let range = ((lowest - PADDING).max(0.0), highest + PADDING);
    let curves = curves.into_iter().map(|curve| clipped(curve, range));
    let last = gate.pairs.last()?.process;
    let axes = (
        Axis::from_zero(last.into(), Quantity::Number),
        Axis::of_range(range, Quantity::Number),
    );
    let rules = &gate.rules;
    let unit = format!("{} ÷ {} by pair", rules.candidate, rules.baseline);
    let title = "Ratio of each pair, and the interval so far";
    let mut chart = Chart::new(title, &unit, axes, curves.collect());
    for (level, name) in margins {
        chart = chart.with_level(level, name);
    }
    let chart = chart.with_level(1.0, "no difference");
    Some(chart.with_notes([format!("{}.", ratio(gate))]))
}

/// Returns the ratios at the margin, with a name for each.
fn margins(rules: &GateRules) -> Vec<(f64, &'static str)> {
    let worse = (rules.ratio_at(rules.margin), "worse by the margin");
    let better = (rules.ratio_at(-rules.margin), "better by the margin");
    if rules.is_two_sided {
        vec![worse, better]
    } else {
        vec![worse]
    }
}

/// Limits the points of a curve to the range of the y axis.
fn clipped(mut curve: Curve, (low, high): (f64, f64)) -> Curve {
    for piece in &mut curve.pieces {
        for (_, y) in &mut piece.points {
            *y = y.clamp(low, high);
        }
    }
    curve
}

#[cfg(test)]
#[path = "gate_tests.rs"]
pub(crate) mod tests;
