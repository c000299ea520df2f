//! Comparisons of systems: one row per metric, then notes, which name the metrics that they apply
//! to. Also the steps of a ladder, each compared with the previous step, and published claims with
//! the measured figures. Ratios are described in plain language, without statistical terms.

use std::time::Duration;

use floodmark_record::Record;
use floodmark_record::comparison::{
    Agreement, ClaimResult, ComparedMetric, ComparedResult, Comparison, ComparisonReport,
    Conclusion, Holds,
};
use floodmark_record::units::{show_count, show_ratio, show_rough_duration};

use super::document::{
    Blocks, Cell, ColumnCell, Detail, Emphasis, Row, Span, Table, TextLine, count_cell, data,
    faint, gathered, line, listed, plain, shown, text_cell,
};
use super::figures::{NOT_MEASURED, count_of, glue, joined, level, optional};
use super::summary::threshold;

/// Metrics that a terminal shows for an experiment. The page and the record contain all metrics.
const ON_TERMINAL: [ComparedMetric; 5] = [
    ComparedMetric::Throughput,
    ComparedMetric::Capacity,
    ComparedMetric::P50,
    ComparedMetric::P99,
    ComparedMetric::CpuPerRequest,
];

/// Metrics whose result is also stated in a sentence.
const IN_SENTENCES: [ComparedMetric; 3] = [
    ComparedMetric::Throughput,
    ComparedMetric::Capacity,
    ComparedMetric::P99,
];

/// Describes the comparison of two results: differences in setup, one row per metric, then notes.
pub(crate) fn document(compared: &ComparisonReport) -> Blocks {
    let mut blocks = Blocks::default();
    let (baseline, candidate) = (&compared.baseline, &compared.candidate);
    blocks.paragraph([Emphasis::Strong.span(ratio_title(&candidate.name, &baseline.name))]);
    blocks.gap();
    blocks.lines([side("baseline", baseline), side("candidate", candidate)]);
    let unlike = compared.unlike.iter();
    blocks.lines(unlike.map(|text| TextLine::new("differs", [Emphasis::Bad.span(text)])));
    blocks.gap();
    blocks.tables([table(&compared.comparisons)]);
    blocks.gap();
    let all: Vec<&Comparison> = compared.comparisons.iter().collect();
    blocks.lines(inconclusive(&all));
    blocks.lines(notes(&all));
    blocks.lines(compared.notes.iter().map(|note| line("note", note)));
    blocks.lines(methods(&all));
    blocks.lines(compared.thresholds.iter().map(threshold));
    blocks
}

/// Describes a ratio: `ratio = candidate ÷ baseline`, with the names of both.
fn ratio_title(candidate: &str, baseline: &str) -> String {
    format!("ratio = {candidate} ÷ {baseline}")
}

fn side(label: &str, facts: &ComparedResult) -> TextLine {
    let processes = count_of(facts.processes.into(), "server process");
    let attempts = count_of(facts.attempts.into(), "attempt");
    let spans = [
        Emphasis::Strong.span(&facts.name),
        plain(format!("({})", facts.of.join(", "))),
        faint(format!("{processes}, {attempts}")),
    ];
    TextLine::new(label, spans)
}

/// Returns a table with a row per compared metric. The baseline is in the first column of figures.
pub(crate) fn table<'a>(comparisons: impl IntoIterator<Item = &'a Comparison>) -> Table {
    let rows = comparisons.into_iter();
    let rows = rows.map(|of| (of.metric.figure().title(), cells(of)));
    Table::of(rows, "")
}

/// Returns the cells of a comparison.
fn cells(of: &Comparison) -> Vec<ColumnCell> {
    let show = |value| figure(of.metric, value);
    let (baseline, candidate) = (&of.figures_baseline, &of.figures_candidate);
    let ratio = Emphasis::Strong.span(optional(of.ratio, show_ratio));
    vec![
        text_cell("metric", "metric", of.metric.name()),
        text_cell("baseline", "baseline", &of.baseline),
        text_cell("candidate", "candidate", &of.candidate),
        data("unit", of.metric.figure().unit().name()),
        shown("baseline", show(baseline.figure)).at(Detail::Roomy),
        shown("candidate", show(candidate.figure)).at(Detail::Roomy),
        listed(
            "figure_baseline",
            "figure of baseline",
            baseline.figure,
            show(baseline.figure),
        ),
        listed(
            "figure_candidate",
            "figure of candidate",
            candidate.figure,
            show(candidate.figure),
        ),
        listed("ratio", "ratio", of.ratio, ratio).essential(),
        listed("ratio_low", "95 % interval", of.low, interval(of)).essential(),
        data("ratio_high", of.high),
        data("confidence", of.confidence),
        listed(
            "conclusion",
            "conclusion",
            of.conclusion,
            conclusion(of.conclusion),
        )
        .essential(),
        shown(
            "n",
            faint(format!("{}+{}", baseline.processes, candidate.processes)),
        )
        .at(Detail::Roomy),
        count_cell(
            "processes_baseline",
            "processes of baseline",
            baseline.processes,
        ),
        count_cell(
            "processes_candidate",
            "processes of candidate",
            candidate.processes,
        ),
        data("processes_needed", of.repetitions_needed),
    ]
}

/// Returns a conclusion in one word.
fn conclusion(conclusion: Conclusion) -> Span {
    match conclusion {
        Conclusion::Different => Emphasis::Warn.span("different"),
        Conclusion::Equivalent => Emphasis::Good.span("equivalent"),
        Conclusion::Undecided => plain("inconclusive"),
    }
}

/// Groups the comparisons by pair of trials.
fn pairs(comparisons: &[Comparison]) -> impl Iterator<Item = &[Comparison]> {
    comparisons
        .chunk_by(|one, next| (&one.baseline, &one.candidate) == (&next.baseline, &next.candidate))
}

/// Maximum number of pairs for which several metrics are stated.
const FEW_PAIRS: usize = 3;

/// Returns the most important results as sentences: one per pair if there are many pairs.
pub(crate) fn results(comparisons: &[Comparison]) -> Vec<TextLine> {
    let most = match pairs(comparisons).count() {
        ..=FEW_PAIRS => IN_SENTENCES.len(),
        _ => 1,
    };
    let stated = pairs(comparisons).flat_map(|pair| {
        let stated = pair.iter().filter(|c| IN_SENTENCES.contains(&c.metric));
        stated.take(most)
    });
    stated.map(|of| line("result", result(of))).collect()
}

/// Returns the figure of a trial from its comparisons, or `None` if the metric is not compared.
pub(crate) fn figure_of(
    comparisons: &[Comparison],
    trial: &str,
    metric: ComparedMetric,
) -> Option<f64> {
    let mut compared = comparisons.iter().filter(|c| c.metric == metric);
    compared.find_map(|c| match trial {
        trial if c.candidate == trial => c.figures_candidate.figure,
        trial if c.baseline == trial => c.figures_baseline.figure,
        _ => None,
    })
}

/// Adds a table for each pair of trials in an experiment.
pub(crate) fn add_pairs(blocks: &mut Blocks, record: &Record) {
    let on_terminal = |c: &&Comparison| ON_TERMINAL.contains(&c.metric);
    for pair in pairs(&record.comparisons) {
        let (baseline, candidate) = (&pair[0].baseline, &pair[0].candidate);
        let explanation =
            format!("baseline: {baseline}, candidate: {candidate}; n = server processes per side");
        blocks.section(ratio_title(candidate, baseline), &explanation);
        let mut table = table(pair);
        for (row, of) in table.rows.iter_mut().zip(pair) {
            if !ON_TERMINAL.contains(&of.metric) {
                row.detail = Detail::Page;
            }
        }
        blocks.tables([table]);
    }
    let shown = record.comparisons.iter().filter(on_terminal);
    blocks.lines(notes(&shown.collect::<Vec<_>>()));
}

/// Returns what the document of an experiment omits: the number of server processes that
/// inconclusive metrics need, the notes on further metrics, and the statistical methods.
pub(crate) fn appendix(comparisons: &[Comparison]) -> Vec<TextLine> {
    let all: Vec<&Comparison> = comparisons.iter().collect();
    let (shown, further): (Vec<&Comparison>, Vec<&Comparison>) = comparisons
        .iter()
        .partition(|c| ON_TERMINAL.contains(&c.metric));
    let is_shown = |note: &String| shown.iter().any(|c| c.notes.contains(note));
    let further = further.iter().map(|c| {
        let notes = c.notes.iter().filter(|note| !is_shown(note));
        (
            c.metric.figure().title(),
            notes.cloned().collect::<Vec<_>>(),
        )
    });
    [inconclusive(&all), gathered("note", further), methods(&all)].concat()
}

/// Returns the number of server processes needed to make inconclusive metrics conclusive.
fn inconclusive(comparisons: &[&Comparison]) -> Vec<TextLine> {
    let needed = |c: &&Comparison| (c.metric.figure().title(), processes_needed(c));
    gathered("inconclusive", comparisons.iter().map(needed))
}

/// Returns each distinct note of the comparisons, with the metrics that it applies to.
fn notes(comparisons: &[&Comparison]) -> Vec<TextLine> {
    let notes = |c: &&Comparison| (c.metric.figure().title(), c.notes.clone());
    gathered("note", comparisons.iter().map(notes))
}

/// Returns each distinct statistical method with the metrics that it applies to.
fn methods(comparisons: &[&Comparison]) -> Vec<TextLine> {
    let method = |c: &&Comparison| (c.metric.figure().title(), [c.method.clone()]);
    gathered("method", comparisons.iter().map(method))
}

/// Maximum number of server processes per system for which repeating a comparison is usually
/// worthwhile.
const MANY_PROCESSES: u32 = 100;

/// Describes the result of a comparison in a sentence.
pub(crate) fn result(comparison: &Comparison) -> String {
    let (baseline, candidate) = (&comparison.baseline, &comparison.candidate);
    let of = comparison.metric.figure().title();
    let Some(ratio) = comparison.ratio else {
        return format!("{of} of {candidate} and {baseline} cannot be compared");
    };
    let ratio = show_ratio(ratio);
    let differ = format!("{of} of {candidate}: {ratio} times that of {baseline}");
    if comparison.low.is_none() {
        return format!("{differ}; inconclusive: not enough server processes for an interval");
    }
    let level = level(comparison.confidence);
    let interval = glue(&interval(comparison));
    let needed = processes_needed(comparison);
    let conclusion = match (comparison.conclusion, needed) {
        (Conclusion::Different, _) => String::new(),
        (Conclusion::Equivalent, _) => "; equivalent within 2 %".to_owned(),
        (Conclusion::Undecided, None) => "; inconclusive".to_owned(),
        (Conclusion::Undecided, Some(needed)) => format!("; inconclusive: {needed}"),
    };
    format!("{differ} ({level} interval: {interval}){conclusion}")
}

/// Describes how many server processes a conclusive comparison probably needs, and how long their
/// load takes. Returns `None` if the number is unknown or the comparison is conclusive.
fn processes_needed(comparison: &Comparison) -> Option<String> {
    let processes = comparison.repetitions_needed?;
    let needed = match processes {
        10_000.. => "10,000 or more".to_owned(),
        n => show_count(n.into()),
    };
    let load = comparison.repetitions_load_s;
    let load = load.and_then(|s| Duration::try_from_secs_f64(s).ok());
    let load = load.map_or_else(String::new, |load| {
        format!(" ({} of load)", glue(&show_rough_duration(load)))
    });
    let advice = if processes > MANY_PROCESSES {
        "; fewer on a quieter host"
    } else {
        ""
    };
    Some(format!(
        "probably needs {needed} server processes per side{load}{advice}"
    ))
}

/// Returns one word that states whether a claim holds.
pub(crate) fn holds(holds: Holds) -> Span {
    match holds {
        Holds::Yes => Emphasis::Good.span("yes"),
        Holds::No => Emphasis::Bad.span("no"),
        Holds::Undecided => Emphasis::Warn.span("inconclusive"),
    }
}

/// Returns the metric and the trials of a claim: `p50, a ÷ b`.
pub(crate) fn subject(claim: &ClaimResult) -> String {
    let trials = match claim.of.as_slice() {
        [a, b] => format!("{a} ÷ {b}"),
        of => of.join(", "),
    };
    let metric = claim.metric.map(|metric| metric.to_string());
    let parts = metric.into_iter().chain([trials]);
    joined(parts.filter(|part| !part.is_empty()), ", ")
}

/// Returns the measured figure and interval for a claim, in the unit of the published figure.
#[must_use]
pub fn measured(claim: &ClaimResult) -> String {
    let show = |value| claimed(claim, value);
    match (claim.measured, claim.low.zip(claim.high)) {
        (None, _) => NOT_MEASURED.to_owned(),
        (Some(figure), None) => show(figure),
        (Some(figure), Some((low, high))) => {
            format!("{} ({} – {})", show(figure), show(low), show(high))
        }
    }
}

/// Returns the published figure of a claim and its tolerance.
#[must_use]
pub fn published(claim: &ClaimResult) -> String {
    let shown = optional(claim.published, |figure| claimed(claim, figure));
    match claim.agreement.filter(|_| claim.published.is_some()) {
        Some(Agreement::Within(share)) => {
            format!("{shown}, tolerance {} %", (share * 1e3).round() / 10.0)
        }
        Some(Agreement::AtLeast) => format!("at least {shown}"),
        Some(Agreement::AtMost) => format!("at most {shown}"),
        None => shown,
    }
}

/// Formats a claim's figure, which is a ratio or the figure of one trial.
fn claimed(claim: &ClaimResult, value: f64) -> String {
    match (claim.metric, claim.of.len()) {
        (Some(metric), 1) => figure(metric, Some(value)),
        _ => show_ratio(value),
    }
}

/// Formats a metric's figure with its unit.
pub(crate) fn figure(metric: ComparedMetric, value: Option<f64>) -> String {
    optional(value, |value| metric.figure().unit().show(value))
}

/// Formats both ends of a comparison's confidence interval.
pub(crate) fn interval(comparison: &Comparison) -> String {
    let ends = comparison.low.zip(comparison.high);
    ends.map_or_else(|| NOT_MEASURED.to_owned(), |(low, high)| range(low, high))
}

/// Formats a range of ratios: `0.921 – 0.966`.
pub(crate) fn range(low: f64, high: f64) -> String {
    format!("{} – {}", show_ratio(low), show_ratio(high))
}

/// Metrics that are shown for each step of a ladder, with their column headings.
const COSTS: [(ComparedMetric, &str); 4] = [
    (ComparedMetric::Throughput, "ok/s"),
    (ComparedMetric::P50, "p50"),
    (ComparedMetric::P99, "p99"),
    (ComparedMetric::ServerCpuPerRequest, "server CPU"),
];

/// Returns the measured steps of a record's ladder, or `None` if there are none.
pub(crate) fn ladder_table(record: &Record) -> Option<Table> {
    let ladder = &record.experiment.as_ref()?.ladder;
    let all = &record.comparisons;
    let own = |step: &String, metric: ComparedMetric| figure(metric, figure_of(all, step, metric));
    let with_step_below = |step: &String, metric: ComparedMetric| {
        let mut comparisons = all
            .iter()
            .filter(|c| c.candidate == *step && c.metric == metric);
        comparisons.find(|c| ladder.contains(&c.baseline))
    };
    let note = "geometric means over server processes; second line: ratio to the previous step, with a 95 % interval if there are several processes; \
                server CPU: server and store, per request";
    let mut rows = Vec::new();
    for step in ladder {
        let own = COSTS.map(|(metric, _)| own(step, metric));
        if own.iter().all(|text| text == NOT_MEASURED) {
            continue;
        }
        let cells = own.map(|text| Emphasis::Strong.span(text).into());
        rows.push(Row::new(step, cells.into()));
        let costs = COSTS.map(|(metric, _)| with_step_below(step, metric));
        if let Some(below) = costs.iter().flatten().next() {
            let cells = costs.map(cost).into();
            rows.push(Row::new(format!("  ÷ {}", below.baseline), cells));
        }
    }
    let mut table = Table::new(COSTS.map(|(_, head)| head), rows);
    table.note = note.to_owned();
    table.not_empty()
}

/// Formats the ratio to the previous step, with the interval as the cell's supplement.
fn cost(comparison: Option<&Comparison>) -> Cell {
    let range = comparison.filter(|c| c.ratio.is_some() && c.low.is_some());
    let range = range.map(|c| format!("({})", interval(c)));
    let ratio = comparison.and_then(|c| c.ratio);
    Cell::new(optional(ratio, show_ratio), range)
}

/// Adds the claims of an experiment.
pub(crate) fn add_claims(blocks: &mut Blocks, claims: &[ClaimResult]) {
    if claims.is_empty() {
        return;
    }
    let explanation = "in parentheses: the 95 % interval over server processes";
    blocks.section("claims", explanation);
    for claim in claims {
        let source = claim.source.iter();
        let source: String = source.map(|source| format!(" ({source})")).collect();
        blocks.lines([line("claim", format!("{}{source}", claim.text))]);
        let mut subject = subject(claim);
        if !subject.is_empty() {
            subject.push_str(": ");
        }
        let (published, measured) = (published(claim), measured(claim));
        let figures = format!("{subject}published {published}; measured {measured}; holds:");
        blocks.lines([TextLine::new("", [plain(figures), holds(claim.holds)])]);
        let notes = claim.notes.iter();
        blocks.lines(notes.map(|note| TextLine::new("", [faint(note)])));
    }
}

/// Returns a table with a row per claim.
pub(crate) fn claims_table(claims: &[ClaimResult]) -> Table {
    Table::of_data(claims.iter().map(claim_cells))
}

fn claim_cells(claim: &ClaimResult) -> Vec<ColumnCell> {
    let unit = match (claim.metric, claim.of.len()) {
        (Some(metric), 1) => metric.figure().unit().name(),
        _ => "ratio",
    };
    let metric = claim.metric.map(|metric| metric.name());
    vec![
        text_cell("claim", "claim", &claim.text),
        data("source", &claim.source),
        data("metric", metric),
        listed("of", "of", claim.of.join(";"), subject(claim)),
        data("unit", unit),
        listed("published", "published", claim.published, published(claim)),
        listed("measured", "measured", claim.measured, measured(claim)),
        data("measured_low", claim.low),
        data("measured_high", claim.high),
        listed("holds", "holds", claim.holds, holds(claim.holds)),
        text_cell("notes", "notes", claim.notes.join("; ")),
    ]
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
pub(crate) mod tests;

#[cfg(test)]
#[path = "claims_tests.rs"]
pub(crate) mod claims_tests;

#[cfg(test)]
#[path = "ladder_tests.rs"]
pub(crate) mod ladder_tests;
