//! Comparisons: one row per metric, then notes. Each note names the metrics that it applies to.

use floodmark_record::Record;
use floodmark_record::comparison::{
    ComparedMetric, ComparedResult, Comparison, ComparisonReport, Conclusion,
};
use floodmark_record::units::show_ratio;

use super::blocks::Blocks;
use super::figures::{count_of, optional};
use super::ratios::{self, figure, interval, processes_needed};
use super::summary::threshold;
use super::table::{self, ColumnCell, Detail, Table, data, listed, shown};
use super::text::{Emphasis, Span, TextLine, faint, gathered, line, plain};

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
    blocks.paragraph([Emphasis::Strong.span("ratio = a ÷ b")]);
    blocks.gap();
    blocks.lines([side("a", &compared.a), side("b", &compared.b)]);
    let unlike = compared.unlike.iter();
    blocks.lines(unlike.map(|text| TextLine::new("differs", [Emphasis::Bad.span(text)])));
    blocks.gap();
    blocks.tables([table(&compared.comparisons, "a", "b")]);
    blocks.gap();
    let all: Vec<&Comparison> = compared.comparisons.iter().collect();
    blocks.lines(inconclusive(&all));
    blocks.lines(notes(&all));
    blocks.lines(compared.notes.iter().map(|note| line("note", note)));
    blocks.lines(methods(&all));
    blocks.lines(compared.thresholds.iter().map(threshold));
    blocks
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

/// Returns a table with a row per compared metric of `a` and `b`.
pub(crate) fn table<'a>(
    comparisons: impl IntoIterator<Item = &'a Comparison>,
    a: &str,
    b: &str,
) -> Table {
    let rows = comparisons.into_iter();
    let rows = rows.map(|of| (of.metric.figure().title(), cells(of, a, b)));
    Table::of(rows, "")
}

fn cells(of: &Comparison, a: &str, b: &str) -> Vec<ColumnCell> {
    let show = |value| figure(of.metric, value);
    let (figure_a, figure_b) = (of.figures_a.figure, of.figures_b.figure);
    let (n_a, n_b) = (of.figures_a.processes, of.figures_b.processes);
    let ratio = Emphasis::Strong.span(optional(of.ratio, show_ratio));
    vec![
        table::text("metric", "metric", of.metric.name()),
        table::text("a", "a", &of.a),
        table::text("b", "b", &of.b),
        data("unit", of.metric.figure().unit().name()),
        shown(a, show(figure_a)).at(Detail::Roomy),
        shown(b, show(figure_b)).at(Detail::Roomy),
        listed("figure_a", "figure of a", figure_a, show(figure_a)),
        listed("figure_b", "figure of b", figure_b, show(figure_b)),
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
        shown("n", faint(format!("{n_a}+{n_b}"))).at(Detail::Roomy),
        table::count("processes_a", "processes of a", n_a),
        table::count("processes_b", "processes of b", n_b),
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
    comparisons.chunk_by(|one, next| (&one.a, &one.b) == (&next.a, &next.b))
}

/// Returns the most important results as sentences.
fn results(comparisons: &[Comparison]) -> impl Iterator<Item = String> {
    let stated = comparisons
        .iter()
        .filter(|c| IN_SENTENCES.contains(&c.metric));
    stated.map(ratios::result)
}

/// Adds a table and a summary for each pair of trials in an experiment.
pub(crate) fn add_pairs(blocks: &mut Blocks, record: &Record) {
    let on_terminal = |c: &&Comparison| ON_TERMINAL.contains(&c.metric);
    for pair in pairs(&record.comparisons) {
        let (a, b) = (&pair[0].a, &pair[0].b);
        let explanation = "ratio = a ÷ b, n = server processes per side";
        blocks.section(format!("a = {a}, b = {b}"), explanation);
        let mut table = table(pair, "a", "b");
        for (row, of) in table.rows.iter_mut().zip(pair) {
            if !ON_TERMINAL.contains(&of.metric) {
                row.detail = Detail::Page;
            }
        }
        blocks.tables([table]);
        blocks.lines(results(pair).map(|text| line("result", text)));
    }
    let shown = record.comparisons.iter().filter(on_terminal);
    blocks.lines(notes(&shown.collect::<Vec<_>>()));
}

/// Returns what the document of an experiment leaves out: what inconclusive metrics need, the notes
/// on further metrics, and the methods.
pub(crate) fn appendix(comparisons: &[Comparison]) -> Vec<TextLine> {
    let all: Vec<&Comparison> = comparisons.iter().collect();
    let further = comparisons.iter();
    let further = further.filter(|c| !ON_TERMINAL.contains(&c.metric));
    let lines = [
        inconclusive(&all),
        notes(&further.collect::<Vec<_>>()),
        methods(&all),
    ];
    lines.concat()
}

/// Returns the number of server processes needed to make inconclusive metrics conclusive.
fn inconclusive(comparisons: &[&Comparison]) -> Vec<TextLine> {
    let needed = |c: &&Comparison| {
        let needed = c.repetitions_needed.map(processes_needed);
        (c.metric.figure().title(), needed)
    };
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

#[cfg(test)]
#[path = "comparison_tests.rs"]
pub(crate) mod tests;
