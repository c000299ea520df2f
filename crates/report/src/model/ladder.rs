//! A ladder: the cost of each step compared with the previous step.

use floodmark_record::Record;
use floodmark_record::comparison::{ComparedMetric, Comparison};
use floodmark_record::units::show_ratio;

use super::figures::NOT_MEASURED;
use super::ratios::{figure, interval};
use super::table::{Cell, Row, Table};
use super::text::Emphasis;

/// Metrics that are shown for each step, with their column headings.
const COSTS: [(ComparedMetric, &str); 4] = [
    (ComparedMetric::Throughput, "ok/s"),
    (ComparedMetric::P50, "p50"),
    (ComparedMetric::P99, "p99"),
    (ComparedMetric::ServerCpuPerRequest, "server CPU"),
];

/// Returns the measured steps of a record's ladder, or `None` if there are none.
pub(crate) fn table(record: &Record) -> Option<Table> {
    let ladder = &record.experiment.as_ref()?.ladder;
    let all = &record.comparisons;
    let own = |step: &String, metric: ComparedMetric| {
        let measured = all
            .iter()
            .filter(|c| c.metric == metric)
            .find_map(|c| match step {
                step if c.a == *step => c.figures_a.figure,
                step if c.b == *step => c.figures_b.figure,
                _ => None,
            });
        figure(metric, measured)
    };
    let with_step_below = |step: &String, metric: ComparedMetric| {
        let mut comparisons = all.iter().filter(|c| c.a == *step && c.metric == metric);
        comparisons.find(|c| ladder.contains(&c.b))
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
            rows.push(Row::new(format!("  ÷ {}", below.b), cells));
        }
    }
    (!rows.is_empty()).then(|| Table {
        note: note.to_owned(),
        ..Table::new(COSTS.map(|(_, head)| head), rows)
    })
}

/// Formats the ratio to the previous step, with the interval as the cell's supplement.
fn cost(comparison: Option<&Comparison>) -> Cell {
    let Some((comparison, ratio)) = comparison.and_then(|c| Some((c, c.ratio?))) else {
        return NOT_MEASURED.to_owned().into();
    };
    let interval = comparison
        .low
        .map(|_| format!("({})", interval(comparison)));
    Cell::new(show_ratio(ratio), interval)
}

#[cfg(test)]
pub(crate) mod tests {
    use floodmark_record::comparison::Conclusion;
    use floodmark_record::experiment::ExperimentDescription;

    use super::*;
    use crate::fixture;
    use crate::model::comparison::tests::comparison;
    use crate::terminal::tests::drawn_tables;

    /// Adds a ladder of three steps to a record. The last step was not measured.
    pub(crate) fn add_ladder(record: &mut Record) {
        let ladder = ["none", "memory", "cassandra"].map(str::to_owned).to_vec();
        for metric in ComparedMetric::ALL {
            let mut of = comparison(metric, Conclusion::Different);
            (of.a, of.b) = ("memory".to_owned(), "none".to_owned());
            record.comparisons.push(of);
        }
        record.experiment = Some(ExperimentDescription {
            question: "What does each step cost?".to_owned(),
            ladder,
            ..ExperimentDescription::default()
        });
    }

    #[test]
    fn shows_each_step_with_its_cost() {
        let mut record = fixture::record(Vec::new());
        assert_eq!(table(&record), None);
        add_ladder(&mut record);
        for (name, width) in [("wide", 120), ("narrow", 60)] {
            insta::assert_snapshot!(name, drawn_tables(table(&record), width));
        }
        let mut lone = comparison(ComparedMetric::P50, Conclusion::Undecided);
        assert_eq!(cost(Some(&lone)).supplement, "(0.921 – 1.013)");
        (lone.low, lone.high) = (None, None);
        assert_eq!(cost(Some(&lone)), "0.943".to_owned().into());
    }
}
