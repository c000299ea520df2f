//! The page of a comparison: the ratios, what differs in the setup, and the curves of both results.

use floodmark_record::comparison::{Comparison, ComparisonReport};
use floodmark_record::run::{Environment, Run};

use super::answer::capitalized;
use super::chart::{DamagedHistogram, distribution, over_time};
use super::names::NamedRun;
use super::page::{PageContent, all_outcomes, plans};
use super::summary::threshold;
use super::{Blocks, Emphasis, comparison, line, plain};

/// One of two compared results.
#[derive(Debug, Clone, Copy)]
pub struct ComparedRuns<'a> {
    /// Name of the result.
    pub name: &'a str,
    /// Runs to draw; empty for a search, whose loads have different rates.
    pub runs: &'a [&'a Run],
}

impl PageContent {
    /// Builds the page for a comparison. `environment` is that of the first result.
    ///
    /// # Errors
    /// Fails if a histogram in a record is damaged.
    pub(crate) fn of_comparison(
        compared: &ComparisonReport,
        sides: [ComparedRuns<'_>; 2],
        environment: &Environment,
    ) -> Result<PageContent, DamagedHistogram> {
        let drawn: Vec<NamedRun<'_>> = sides.iter().filter_map(median_run).collect();
        let mut curves = over_time::charts(&drawn, environment);
        curves.extend(distribution::charts(&drawn)?);
        let which = sides.iter().any(|side| side.runs.len() > 1).then(|| {
            "The curves show the run with the median throughput of each result.".to_owned()
        });
        let notes = which.into_iter().chain(over_time::notes(&drawn));
        let mut outcomes = Blocks::default();
        if !drawn.is_empty() {
            outcomes = all_outcomes(&drawn);
        }
        let (a, b) = (&compared.a.name, &compared.b.name);
        Ok(PageContent {
            title: format!("{a} ÷ {b}"),
            plans: plans(&drawn),
            answer: answer(compared),
            sections: vec![
                ("Ratios", ratios(compared)),
                ("Curves", Blocks::of_charts(curves, notes)),
                ("Outcomes", outcomes),
            ],
        })
    }
}

/// Returns the differences in the setup, followed by the most important ratios and the conditions.
fn answer(compared: &ComparisonReport) -> Blocks {
    let mut blocks = Blocks::default();
    for text in &compared.unlike {
        blocks.paragraph([Emphasis::Warn.span("Differs:"), plain(format!("{text}."))]);
    }
    for result in comparison::results(&compared.comparisons) {
        let result = format!("{}.", capitalized(&result));
        blocks.paragraph([Emphasis::Strong.span(result)]);
    }
    blocks.lines(compared.thresholds.iter().map(threshold));
    blocks
}

fn ratios(compared: &ComparisonReport) -> Blocks {
    let all: Vec<&Comparison> = compared.comparisons.iter().collect();
    let (a, b) = (&compared.a.name, &compared.b.name);
    let mut blocks = Blocks::of_tables([comparison::table(all.iter().copied(), a, b)]);
    blocks.lines(comparison::inconclusive(&all));
    blocks.lines(comparison::notes(&all));
    blocks.lines(compared.notes.iter().map(|note| line("note", note)));
    blocks.lines(comparison::methods(&all));
    blocks
}

/// Returns the run with the median throughput, or `None` without runs.
fn median_run<'a>(side: &ComparedRuns<'a>) -> Option<NamedRun<'a>> {
    let mut runs = side.runs.to_vec();
    let throughput = |run: &Run| run.throughput_per_s.unwrap_or(-1.0);
    runs.sort_by(|a, b| throughput(a).total_cmp(&throughput(b)));
    Some(NamedRun {
        run: runs.get(runs.len() / 2).copied()?,
        name: side.name.to_owned(),
    })
}
