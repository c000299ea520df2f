//! Trials beside each other, and what was published beside what was measured.

use floodmark_record::Record;
use floodmark_record::comparison::{Comparison, Conclusion, Holds, Metric};
use maud::{Markup, html};

use super::text::Shown;
use crate::beside::{SAID, pairs};
use crate::comparison::gathered;
use crate::sentences;

/// What each two trials came to, in a sentence or two.
pub(crate) fn sentences(record: &Record) -> impl Iterator<Item = String> {
    let said = record
        .comparisons
        .iter()
        .filter(|of| SAID.contains(&of.metric));
    said.map(sentences::of_comparison)
}

/// A table for each two trials, and what is to be known of them.
pub(crate) fn comparisons(record: &Record) -> Option<Markup> {
    let all = &record.comparisons;
    (!all.is_empty()).then(|| {
        html! {
            h2 { "Comparisons" }
            p.note {
                "A ratio is the first one's figure divided by the second one's, with an interval over server processes that were each \
                 started afresh; processes counts those of the first and of the second."
            }
            @for pair in pairs(all) { (table(pair)) }
            (notes(all))
        }
    })
}

fn table(pair: &[Comparison]) -> Markup {
    let (a, b) = (&pair[0].a, &pair[0].b);
    html! {
        h3 { (Shown(a)) " ÷ " (Shown(b)) }
        div.wide { table {
            tr {
                th {}
                @for head in ["conclusion", "ratio", "95 % interval", a, b, "processes"] {
                    th scope="col" { (Shown(head)) }
                }
            }
            @for of in pair {
                tr {
                    th scope="row" { (of.metric.name()) }
                    td { (conclusion(of)) }
                    td.figure { (of.ratio.map_or_else(|| crate::figures::NOT_MEASURED.to_owned(), sentences::ratio)) }
                    td { (sentences::interval(of)) }
                    td { (sentences::figure(of.metric, of.figures_a.figure)) }
                    td { (sentences::figure(of.metric, of.figures_b.figure)) }
                    td { (of.figures_a.processes) " and " (of.figures_b.processes) }
                }
            }
        } }
    }
}

fn conclusion(of: &Comparison) -> Markup {
    match of.conclusion {
        Conclusion::Different => html! { span.bound { "different" } },
        Conclusion::Equivalent => html! { span.valid { "equivalent" } },
        Conclusion::Undecided => html! {
            "undecided"
            @if let Some(n) = of.repetitions_needed { " (" (sentences::repetitions(n)) " needed)" }
        },
    }
}

/// What was left out, outliers, methods: each once, with the metrics that it is of.
fn notes(all: &[Comparison]) -> Markup {
    let line = |label, text: String, metrics: &[Metric]| {
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name()).collect();
        match names.len() == Metric::ALL.len() {
            true => (label, text),
            false => (label, format!("{}: {text}", names.join(", "))),
        }
    };
    let notes = gathered(all, |of| of.notes.clone()).into_iter();
    let notes = notes.map(|(text, metrics)| line("note", text, &metrics));
    let methods = gathered(all, |of| vec![of.method.clone()]).into_iter();
    let methods = methods.map(|(text, metrics)| line("method", text, &metrics));
    html! { dl.small { @for (label, text) in notes.chain(methods) { dt { (label) } dd { (Shown(&text)) } } } }
}

/// Published figures beside the measured ones.
pub(crate) fn claims(record: &Record) -> Option<Markup> {
    (!record.claims.is_empty()).then(|| {
        html! {
            h2 { "Claims" }
            div.wide { table.claims {
                tr {
                    th {}
                    @for head in ["holds", "published", "measured"] { th scope="col" { (head) } }
                }
                @for claim in &record.claims {
                    tr {
                        th scope="row" {
                            (Shown(&claim.text))
                            @for line in claim.source.iter().chain([&sentences::about(claim)]).chain(&claim.notes) {
                                div.small { (Shown(line)) }
                            }
                        }
                        td { (holds(claim.holds)) }
                        td { (Shown(&sentences::published(claim))) }
                        td.figure { (Shown(&sentences::measured(claim))) }
                    }
                }
            } }
            p.note { "Measured figures have their 95 % interval over server processes in brackets. A claim holds where all of the interval agrees with it, and does not where none of it does." }
        }
    })
}

fn holds(holds: Holds) -> Markup {
    let class = match holds {
        Holds::Yes => "valid",
        Holds::No => "invalid",
        Holds::Undecided => "bound",
    };
    html! { span class=(class) { (sentences::holds(holds)) } }
}
