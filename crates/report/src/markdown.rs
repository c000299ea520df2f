//! Documents as GitHub Flavored Markdown.
//!
//! All text is escaped, so text from servers and URLs adds neither markup nor HTML.

use floodmark_record::Record;
use floodmark_record::comparison::ComparisonReport;

use crate::model;
use crate::model::document::{Block, Blocks, Detail, Emphasis, Span, Table, TextLine};
use crate::model::figures::joined;
use crate::plain;

/// Maximum number of rows in a table of a summary.
const MAX_ROWS: usize = 100;

/// Appended to a summary that does not fit.
const TRUNCATED: &str = "\nThe summary is truncated. The result contains all figures.\n";

/// Returns the result of a record, truncated to `max_bytes`, or `None` if not even the heading
/// fits. `next` is the recommended next step.
#[must_use]
pub fn summary(record: &Record, next: Option<&str>, max_bytes: usize) -> Option<String> {
    let command = match (&record.experiment, &record.capacity) {
        (Some(_), _) if record.tuning.is_some() => "tune",
        (Some(_), _) => "run",
        (None, Some(_)) => "capacity",
        (None, None) => "load",
    };
    titled(command, model::document(record, next), max_bytes)
}

/// Returns a comparison, truncated to `max_bytes`, or `None` if not even the heading fits.
#[must_use]
pub fn comparison(compared: &ComparisonReport, max_bytes: usize) -> Option<String> {
    titled("compare", model::comparison::document(compared), max_bytes)
}

/// Draws a document below a heading. Ends the text before the first part that does not fit.
fn titled(command: &str, blocks: Blocks, max_bytes: usize) -> Option<String> {
    // The file to which this text is appended might not end with a line break.
    let mut out = format!("\n## floodmark {command}\n");
    let room = max_bytes.checked_sub(TRUNCATED.len())?;
    for part in parts(&blocks.limited(MAX_ROWS)) {
        let text = format!("\n{}", drawn(part));
        if out.len() + text.len() > room {
            out.push_str(TRUNCATED);
            break;
        }
        out.push_str(&text);
    }
    (out.len() <= max_bytes).then_some(out)
}

/// Draws a document.
pub(crate) fn draw(blocks: &Blocks) -> String {
    joined(parts(blocks).map(drawn), "\n")
}

/// Splits a document into lists of lines and other visible blocks.
fn parts(blocks: &Blocks) -> impl Iterator<Item = &[Block]> {
    let parts = blocks.parts();
    parts.filter(|part| !matches!(part, [Block::Gap | Block::Ranking(_) | Block::Charts(_)]))
}

/// Draws a list of lines, or one other block. The text ends with a line break.
fn drawn(part: &[Block]) -> String {
    let lines = part.iter().map(|block| match block {
        Block::Gap | Block::Ranking(_) | Block::Charts(_) => String::new(),
        Block::Paragraph(spans) => format!("{}\n", text(spans)),
        Block::Section(heading, explanation) => {
            format!("{} {}\n", emphasized(heading), emphasized(explanation))
        }
        Block::Line(line) => list_item(line),
        // An indented code block needs no escapes.
        Block::Command(_, command) => format!("    {}\n", plain::line(command)),
        Block::Table(table) => drawn_table(table),
        Block::Subheading(heading) => format!("### {}\n", escaped(heading)),
    });
    lines.collect()
}

/// A line without a label is part of the item before it.
fn list_item(line: &TextLine) -> String {
    let text = text(&line.spans);
    if line.label.is_empty() {
        format!("  - {text}\n")
    } else {
        format!("- {}: {text}\n", escaped(&line.label))
    }
}

fn drawn_table(table: &Table) -> String {
    let shown = table.shown(Detail::Roomy);
    let row = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let heads = shown.iter().map(|i| escaped(&table.columns[*i].head));
    let caption = [escaped(&table.caption)].into_iter();
    let mut out = row(caption.chain(heads).collect());
    let mut alignments = vec!["---:".to_owned(); shown.len() + 1];
    alignments[0] = "---".to_owned();
    out.push_str(&row(alignments));
    for of in table.rows.iter().filter(|row| row.detail <= Detail::Roomy) {
        let cells = shown.iter().map(|i| {
            let cell = &of.cells[*i];
            let text = format!("{} {}", emphasized(&cell.span), escaped(&cell.supplement));
            text.trim_end().to_owned()
        });
        let name = [escaped(&of.name)].into_iter();
        out.push_str(&row(name.chain(cells).collect()));
    }
    let note = table.note(true);
    if !note.is_empty() {
        out.push_str(&format!("\n({})\n", escaped(&note)));
    }
    out
}

/// Separates spans by a space, except before punctuation.
fn text(spans: &[Span]) -> String {
    let mut out = String::new();
    for span in spans.iter().filter(|span| !span.text.is_empty()) {
        if !out.is_empty() && !span.text.starts_with(['.', ':', ';', ',']) {
            out.push(' ');
        }
        out.push_str(&emphasized(span));
    }
    out
}

fn emphasized(span: &Span) -> String {
    let text = escaped(&span.text);
    match span.emphasis {
        // Asterisks next to a space are not markup.
        _ if text.trim() != text || text.is_empty() => text,
        Emphasis::Strong | Emphasis::Warn | Emphasis::Bad => format!("**{text}**"),
        Emphasis::Plain | Emphasis::Faint | Emphasis::Good | Emphasis::Step => text,
    }
}

/// Escapes characters that start markup, HTML, entities or formulas, anywhere in a line.
fn escaped(text: &str) -> String {
    let text = plain::line(text);
    let mut out = String::with_capacity(text.len());
    for (i, c) in text.chars().enumerate() {
        let starts_block = i == 0 && matches!(c, '-' | '+' | '=');
        match c {
            '\u{a0}' => out.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '#' | '&' | '$' => {
                out.extend(['\\', c]);
            }
            c if starts_block => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
#[path = "markdown_tests.rs"]
mod tests;
