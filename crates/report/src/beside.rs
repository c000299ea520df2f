//! The trials of an experiment beside each other, and what was published beside what was measured, on a terminal.

use floodmark_record::Record;
use floodmark_record::comparison::{Claim, Comparison, Holds, Metric};

use crate::comparison::{draw_gathered, draw_table, gathered};
use crate::page::{Page, faint, plain};
use crate::sentences;
use crate::style::Paint;

/// Metrics that the terminal shows; the page and the record have all.
const SHOWN: [Metric; 4] = [
    Metric::Throughput,
    Metric::P50,
    Metric::P99,
    Metric::CpuPerRequest,
];

/// Metrics that get a sentence.
pub(crate) const SAID: [Metric; 2] = [Metric::Throughput, Metric::P99];

/// Draws a record's comparisons and claims; nothing where it has none.
pub(crate) fn draw(page: &mut Page, record: &Record) {
    draw_comparisons(page, &record.comparisons);
    draw_claims(page, &record.claims);
}

/// The comparisons of each two trials.
pub(crate) fn pairs(comparisons: &[Comparison]) -> impl Iterator<Item = &[Comparison]> {
    comparisons.chunk_by(|one, next| (&one.a, &one.b) == (&next.a, &next.b))
}

fn draw_comparisons(page: &mut Page, comparisons: &[Comparison]) {
    let shown = |of: &&Comparison| SHOWN.contains(&of.metric);
    for pair in pairs(comparisons) {
        page.blank();
        page.headline(&[
            (
                Paint::Strong,
                format!("a = {}, b = {}", pair[0].a, pair[0].b),
            ),
            faint("(ratio = a ÷ b, n = fresh server processes of each)"),
        ]);
        draw_table(page, pair.iter().filter(shown));
        for said in pair.iter().filter(|of| SAID.contains(&of.metric)) {
            page.entry("so", &[plain(sentences::of_comparison(said))]);
        }
    }
    let all = || comparisons.iter().filter(shown);
    for (text, metrics) in gathered(all(), |of| of.notes.clone()) {
        draw_gathered(page, "note", &text, &metrics, SHOWN.len());
    }
}

fn draw_claims(page: &mut Page, claims: &[Claim]) {
    if claims.is_empty() {
        return;
    }
    page.blank();
    page.headline(&[
        (Paint::Strong, "claims".to_owned()),
        faint("(what was published beside what was measured, with its 95 % interval over server processes)"),
    ]);
    for claim in claims {
        let source = claim.source.as_ref();
        let source = source.map_or_else(String::new, |source| format!(" ({source})"));
        page.entry("claim", &[plain(format!("{}{source}", claim.text))]);
        let about = sentences::about(claim);
        let about = if about.is_empty() {
            about
        } else {
            about + ": "
        };
        let paint = match claim.holds {
            Holds::Yes => Paint::Good,
            Holds::No => Paint::Bad,
            Holds::Undecided => Paint::Warn,
        };
        page.entry(
            "",
            &[
                plain(format!(
                    "{about}published {}; measured {}; holds:",
                    sentences::published(claim),
                    sentences::measured(claim)
                )),
                (paint, sentences::holds(claim.holds).to_owned()),
            ],
        );
        for note in &claim.notes {
            page.entry("", &[faint(note.as_str())]);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use floodmark_record::comparison::{Agreement, Conclusion};

    use super::*;
    use crate::comparison::tests::comparison;
    use crate::fixture;
    use crate::style::Style;

    fn claim(text: &str, holds: Holds, notes: &[&str]) -> Claim {
        let measured = holds != Holds::Undecided;
        Claim {
            text: text.to_owned(),
            source: Some("seed E".to_owned()),
            metric: Some(Metric::Throughput),
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

    /// Gives a record two pairs of trials, and claims of each kind.
    pub(crate) fn beside(record: &mut Record) {
        for other in ["old", "older"] {
            let mut all = Metric::ALL.map(|metric| comparison(metric, Conclusion::Different));
            all[3] = comparison(Metric::P99, Conclusion::Undecided);
            for of in &mut all {
                of.a = other.to_owned();
                of.notes = vec!["new: 2 attempts left out as still warming up".to_owned()];
            }
            all[2].notes = vec!["new: process 3 is far from the others".to_owned()];
            record.comparisons.extend(all);
        }
        record.claims = vec![
            claim("no significant difference", Holds::Yes, &[]),
            claim("twice as fast", Holds::No, &[]),
            claim(
                "so they say",
                Holds::Undecided,
                &["no run of \"x\" is in it"],
            ),
        ];
    }

    #[test]
    fn pairs_sentences_and_claims() {
        let mut record = fixture::record(Vec::new());
        beside(&mut record);
        for (name, width) in [("wide", 100), ("narrow", 60)] {
            let mut page = Page::new(Style {
                colour: false,
                width,
            });
            draw(&mut page, &record);
            insta::assert_snapshot!(name, page.finish());
        }
    }
}
