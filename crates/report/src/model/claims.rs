//! Published claims, the measured figures, and whether the figures support the claims.

use floodmark_record::comparison::ClaimResult;

use super::blocks::Blocks;
use super::ratios::{holds, measured, published, subject};
use super::table::{self, ColumnCell, Table, data, listed};
use super::text::{TextLine, faint, line, plain};

/// Adds the claims of an experiment.
pub(crate) fn add(blocks: &mut Blocks, claims: &[ClaimResult]) {
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
pub(crate) fn table(claims: &[ClaimResult]) -> Table {
    Table::of_data(claims.iter().map(cells))
}

fn cells(claim: &ClaimResult) -> Vec<ColumnCell> {
    let unit = match (claim.metric, claim.of.len()) {
        (Some(metric), 1) => metric.figure().unit().name(),
        _ => "ratio",
    };
    let metric = claim.metric.map(|metric| metric.name());
    vec![
        table::text("claim", "claim", &claim.text),
        data("source", &claim.source),
        data("metric", metric),
        listed("of", "of", claim.of.join(";"), subject(claim)),
        data("unit", unit),
        listed("published", "published", claim.published, published(claim)),
        listed("measured", "measured", claim.measured, measured(claim)),
        data("measured_low", claim.low),
        data("measured_high", claim.high),
        listed("holds", "holds", claim.holds, holds(claim.holds)),
        table::text("notes", "notes", claim.notes.join("; ")),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use floodmark_record::Record;
    use floodmark_record::comparison::{Agreement, ComparedMetric, Conclusion, Holds};

    use super::*;
    use crate::fixture;
    use crate::model::comparison::{add_pairs, tests::comparison};
    use crate::style::Style;
    use crate::terminal;

    fn claim(text: &str, holds: Holds, notes: &[&str]) -> ClaimResult {
        let measured = holds != Holds::Undecided;
        ClaimResult {
            text: text.to_owned(),
            source: Some("seed E".to_owned()),
            metric: Some(ComparedMetric::Throughput),
            of: vec!["old".to_owned(), "new".to_owned()],
            published: Some(0.98),
            agreement: Some(Agreement::Within(0.1)),
            measured: measured.then_some(0.943_2),
            low: measured.then_some(0.921_4),
            high: measured.then_some(0.965_5),
            holds,
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        }
    }

    /// Adds two pairs of trials and one claim of each kind to a record.
    pub(crate) fn add_comparisons_and_claims(record: &mut Record) {
        for other in ["old", "older"] {
            // Loads have no capacity.
            let metrics = ComparedMetric::ALL.into_iter();
            let metrics = metrics.filter(|metric| *metric != ComparedMetric::Capacity);
            let mut all: Vec<_> = metrics
                .map(|metric| comparison(metric, Conclusion::Different))
                .collect();
            all[3] = comparison(ComparedMetric::P99, Conclusion::Undecided);
            for of in &mut all {
                of.a = other.to_owned();
                of.notes = vec!["new: 2 attempts excluded: still warming up".to_owned()];
            }
            all[2].notes = vec!["new: process 3 is far from the others".to_owned()];
            record.comparisons.extend(all);
        }
        record.claims = vec![
            claim("no significant difference", Holds::Yes, &[]),
            claim("twice as fast", Holds::No, &[]),
            claim(
                "10 times as fast",
                Holds::Undecided,
                &["no run of \"x\" in the result"],
            ),
        ];
    }

    #[test]
    fn shows_pairs_results_and_claims() {
        let mut record = fixture::record(Vec::new());
        add_comparisons_and_claims(&mut record);
        let mut blocks = Blocks::default();
        add_pairs(&mut blocks, &record);
        add(&mut blocks, &record.claims);
        for (name, width) in [("wide", 100), ("narrow", 60)] {
            let style = Style {
                color: false,
                width,
            };
            insta::assert_snapshot!(name, terminal::draw(&blocks, style));
        }
    }
}
