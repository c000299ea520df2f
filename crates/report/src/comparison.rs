//! `floodmark compare` on a terminal: what is unlike first, then a line for each metric, then what is to be known of them.

use floodmark_record::comparison::{Comparison, Conclusion, Metric, SideBySide, SideFacts};

use crate::figures::{NOT_MEASURED, count_of};
use crate::page::{Page, faint, glue, plain};
use crate::sentences::{deciding, figure, interval, ratio};
use crate::style::{Paint, Style};

/// Width of the metrics' names.
const NAME: usize = 20;

/// Draws a comparison.
#[must_use]
pub fn render(compared: &SideBySide, style: Style) -> String {
    let mut page = Page::new(style);
    page.headline(&[(
        Paint::Strong,
        "ratios are a's figure divided by b's".to_owned(),
    )]);
    page.blank();
    draw_side(&mut page, "a", &compared.a);
    draw_side(&mut page, "b", &compared.b);
    for unlike in &compared.unlike {
        page.entry("unlike", &[(Paint::Bad, unlike.clone())]);
    }
    page.blank();
    draw_table(&mut page, &compared.comparisons);
    page.blank();
    let all = compared.comparisons.len();
    for (text, comparisons) in gathered(&compared.comparisons, |c| asked(c).into_iter().collect()) {
        draw_gathered(&mut page, "undecided", &text, &comparisons, all);
    }
    for (text, comparisons) in gathered(&compared.comparisons, |c| c.notes.clone()) {
        draw_gathered(&mut page, "note", &text, &comparisons, all);
    }
    for note in &compared.notes {
        page.entry("note", &[plain(note.as_str())]);
    }
    for (text, comparisons) in gathered(&compared.comparisons, |c| vec![c.method.clone()]) {
        draw_gathered(&mut page, "method", &text, &comparisons, all);
    }
    for threshold in &compared.thresholds {
        let (paint, word) = match threshold.met {
            Some(true) => (Paint::Bad, "met"),
            Some(false) => (Paint::Good, "not met"),
            None => (Paint::Bad, "not known"),
        };
        page.entry(
            "fail-if",
            &[
                plain(format!("{}: {},", threshold.condition, threshold.figure)),
                (paint, word.to_owned()),
            ],
        );
    }
    page.finish()
}

fn draw_side(page: &mut Page, label: &str, side: &SideFacts) {
    let mut spans = vec![(Paint::Strong, side.name.clone())];
    let of = side.of.join(", ");
    let (processes, attempts) = (side.processes, side.attempts);
    let plural = if processes == 1 { "" } else { "es" };
    spans.push(plain(format!("({of})")));
    spans.push(faint(format!(
        "{}, {}",
        glue(&format!("{processes} server process{plural}")),
        count_of(attempts.into(), "attempt")
    )));
    page.entry(label, &spans);
}

/// A column: its head, its width, whether it is spared where there is no room, and its text.
struct Column {
    head: &'static str,
    width: usize,
    spared: bool,
    of: fn(&Comparison) -> (Paint, String),
}

const COLUMNS: [Column; 6] = [
    Column {
        head: "a",
        width: 12,
        spared: true,
        of: |c| (Paint::Plain, figure(c.metric, c.figures_a.figure)),
    },
    Column {
        head: "b",
        width: 12,
        spared: true,
        of: |c| (Paint::Plain, figure(c.metric, c.figures_b.figure)),
    },
    Column {
        head: "ratio",
        width: 8,
        spared: false,
        of: |c| {
            let text = c.ratio.map_or_else(|| NOT_MEASURED.to_owned(), ratio);
            (Paint::Strong, text)
        },
    },
    Column {
        head: "95 % interval",
        width: 17,
        spared: false,
        of: |c| (Paint::Plain, interval(c)),
    },
    Column {
        head: "conclusion",
        width: 12,
        spared: false,
        of: |c| match c.conclusion {
            Conclusion::Different => (Paint::Warn, "different".to_owned()),
            Conclusion::Equivalent => (Paint::Good, "equivalent".to_owned()),
            Conclusion::Undecided => (Paint::Plain, "undecided".to_owned()),
        },
    },
    Column {
        head: "n",
        width: 8,
        spared: true,
        of: |c| {
            let n = format!("{}+{}", c.figures_a.processes, c.figures_b.processes);
            (Paint::Faint, n)
        },
    },
];

/// Draws a row for each comparison.
pub(crate) fn draw_table<'a>(
    page: &mut Page,
    comparisons: impl IntoIterator<Item = &'a Comparison>,
) {
    let all: usize = COLUMNS.iter().map(|column| column.width).sum();
    let roomy = NAME + all <= page.columns();
    let columns: Vec<&Column> = COLUMNS.iter().filter(|c| roomy || !c.spared).collect();
    let heads: Vec<_> = columns
        .iter()
        .map(|c| (c.width, Paint::Faint, c.head.to_owned()))
        .collect();
    page.row_beside(NAME, "", &heads);
    for comparison in comparisons {
        let cells: Vec<_> = columns
            .iter()
            .map(|c| {
                let (paint, text) = (c.of)(comparison);
                (c.width, paint, text)
            })
            .collect();
        page.row_beside(NAME, comparison.metric.name(), &cells);
    }
}

/// How many processes an undecided metric asks for.
fn asked(comparison: &Comparison) -> Option<String> {
    comparison.repetitions_needed.map(deciding)
}

/// The texts of all metrics, each once with the metrics that it is of.
pub(crate) fn gathered<'a>(
    comparisons: impl IntoIterator<Item = &'a Comparison>,
    of: impl Fn(&Comparison) -> Vec<String>,
) -> Vec<(String, Vec<Metric>)> {
    let mut found: Vec<(String, Vec<Metric>)> = Vec::new();
    for comparison in comparisons {
        for text in of(comparison) {
            match found.iter_mut().find(|(known, _)| *known == text) {
                Some((_, metrics)) if metrics.contains(&comparison.metric) => {}
                Some((_, metrics)) => metrics.push(comparison.metric),
                None => found.push((text, vec![comparison.metric])),
            }
        }
    }
    found
}

/// A text with the metrics that it is of, where it is not of `all` of them.
pub(crate) fn draw_gathered(
    page: &mut Page,
    label: &str,
    text: &str,
    metrics: &[Metric],
    all: usize,
) {
    if metrics.len() == all {
        page.entry(label, &[plain(text)]);
    } else {
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name()).collect();
        page.entry(label, &[plain(format!("{}: {text}", names.join(", ")))]);
    }
}

#[cfg(test)]
#[path = "comparison_tests.rs"]
pub(crate) mod tests;
