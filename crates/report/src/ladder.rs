//! A ladder: what each step adds to the one before costs.

use floodmark_record::Record;
use floodmark_record::comparison::{Comparison, Metric};

use crate::figures::NOT_MEASURED;
use crate::page::{Page, faint};
use crate::sentences::{figure, interval, ratio};
use crate::style::Paint;

/// What a step is measured by, with the heads of their columns.
pub(crate) const COSTS: [(Metric, &str); 4] = [
    (Metric::Throughput, "ok/s"),
    (Metric::P50, "p50"),
    (Metric::P99, "p99"),
    (Metric::ServerCpuPerRequest, "server CPU"),
];

/// Width of the names and of each column: room for a ratio with its interval.
const NAME: usize = 18;
const COLUMN: usize = 25;
/// The same where there is little room, without intervals.
const NARROW: usize = 12;

/// A step of a ladder.
pub(crate) struct Step<'a> {
    /// Its trial.
    pub name: &'a str,
    /// The step that it is held against; none for the lowest.
    pub below: Option<&'a str>,
    /// For each of [`COSTS`] its figure and the comparison with the step below.
    pub costs: Vec<(String, Option<&'a Comparison>)>,
}

/// The steps of a record's ladder that were measured.
pub(crate) fn steps(record: &Record) -> Vec<Step<'_>> {
    let ladder = record.experiment.iter().flat_map(|asked| &asked.ladder);
    let ladder: Vec<&String> = ladder.collect();
    let all = &record.comparisons;
    let of = |name: &str, metric: Metric| {
        let mut own = all
            .iter()
            .filter(move |of| of.a == name && of.metric == metric);
        own.find(|of| ladder.iter().any(|below| **below == of.b))
    };
    let own = |name: &str, metric: Metric| {
        let measured = all.iter().filter(|of| of.metric == metric).find_map(|of| {
            if of.a == name {
                of.figures_a.figure
            } else if of.b == name {
                of.figures_b.figure
            } else {
                None
            }
        });
        figure(metric, measured)
    };
    let steps = ladder.iter().map(|name| {
        let costs = COSTS.map(|(metric, _)| (own(name, metric), of(name, metric)));
        let below = costs.iter().find_map(|(_, of)| of.as_ref());
        Step {
            name,
            below: below.map(|of| of.b.as_str()),
            costs: costs.into(),
        }
    });
    let measured = |step: &Step<'_>| step.costs.iter().any(|(own, _)| own != NOT_MEASURED);
    steps.filter(measured).collect()
}

/// How many times the figure of the step below it is, with its interval.
pub(crate) fn cost(of: Option<&Comparison>, with_interval: bool) -> String {
    match of.and_then(|of| Some((of, of.ratio?))) {
        None => NOT_MEASURED.to_owned(),
        Some((of, times)) if with_interval && of.low.is_some() => {
            format!("× {} ({})", ratio(times), interval(of))
        }
        Some((_, times)) => format!("× {}", ratio(times)),
    }
}

/// Draws a record's ladder; nothing where it has none.
pub(crate) fn draw(page: &mut Page, record: &Record) {
    let steps = steps(record);
    if steps.is_empty() {
        return;
    }
    page.blank();
    page.headline(&[
        (Paint::Strong, "ladder".to_owned()),
        faint(
            "(geometric means over server processes; below each step how many times the step before that is, with its 95 % interval; \
             server CPU: that of server and store per request)",
        ),
    ]);
    let roomy = NAME + COSTS.len() * COLUMN <= page.columns();
    let width = if roomy { COLUMN } else { NARROW };
    let cells = |paint: Paint, texts: Vec<String>| -> Vec<(usize, Paint, String)> {
        texts.into_iter().map(|text| (width, paint, text)).collect()
    };
    let heads = COSTS.iter().map(|(_, head)| (*head).to_owned()).collect();
    page.row_beside(NAME, "", &cells(Paint::Faint, heads));
    for step in &steps {
        let own = step.costs.iter().map(|(own, _)| own.clone()).collect();
        page.row_beside(NAME, step.name, &cells(Paint::Strong, own));
        if step.below.is_some() {
            let costs = step.costs.iter().map(|(_, of)| cost(*of, roomy)).collect();
            page.row_beside(NAME, "", &cells(Paint::Plain, costs));
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use floodmark_record::comparison::Conclusion;
    use floodmark_record::experiment::Asked;

    use super::*;
    use crate::comparison::tests::comparison;
    use crate::fixture;
    use crate::style::Style;

    /// Gives a record a ladder of three steps, the last of which was not measured.
    pub(crate) fn climbed(record: &mut Record) {
        let ladder = ["none", "memory", "cassandra"].map(str::to_owned).to_vec();
        for metric in Metric::ALL {
            let mut of = comparison(metric, Conclusion::Different);
            (of.a, of.b) = ("memory".to_owned(), "none".to_owned());
            record.comparisons.push(of);
        }
        record.experiment = Some(Asked {
            question: "What does each step cost?".to_owned(),
            ladder,
            ..Asked::default()
        });
    }

    #[test]
    fn steps_beside_what_they_add() {
        let mut record = fixture::record(Vec::new());
        climbed(&mut record);
        let names: Vec<_> = steps(&record)
            .iter()
            .map(|step| (step.name, step.below))
            .collect();
        assert_eq!(names, [("none", None), ("memory", Some("none"))]);
        for (name, width) in [("wide", 120), ("narrow", 70)] {
            let mut page = Page::new(Style {
                colour: false,
                width,
            });
            draw(&mut page, &record);
            insta::assert_snapshot!(name, page.finish());
        }
        let mut lone = comparison(Metric::P50, Conclusion::Undecided);
        assert_eq!(cost(Some(&lone), true), "× 0.943 (0.921 – 1.013)");
        (lone.low, lone.high) = (None, None);
        assert_eq!(cost(Some(&lone), true), "× 0.943");
        let mut page = Page::new(Style {
            colour: false,
            width: 100,
        });
        draw(&mut page, &fixture::record(Vec::new()));
        assert_eq!(page.finish(), "");
    }
}
