//! Renders a record, a comparison or trends as an HTML page.
//!
//! The page is self-contained: it loads no scripts, fonts, images or other resources, and it is
//! complete without its own script. The same record always yields the same page, byte for byte.

mod chart;

use std::sync::LazyLock;

use base64::prelude::{BASE64_STANDARD, Engine};
use floodmark_record::Record;
use floodmark_record::comparison::{ComparisonReport, TrendReport};
use floodmark_record::host::Environment;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use crate::model::document::{
    Block, Blocks, Cell, Column, Detail, Emphasis, Ranking, Row, Span, Table, TextLine,
};
use crate::model::figures::rate;
use crate::model::page::PageContent;
use crate::plain::{self, Harmless};

pub use crate::model::chart::DamagedHistogram;
pub use crate::model::page::ComparedRuns;

/// Maximum length, in characters, of a row name that stays on one line on wide screens.
const LONGEST_NAME: usize = 40;

const STYLE: &str = include_str!("style.css");

/// Script that enhances the charts.
const SCRIPT: &str = include_str!("script.js");

/// Content security policy. It prevents even unescaped content of a record from running scripts or
/// loading data, because it allows only the script with this hash.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = BASE64_STANDARD.encode(Sha256::digest(SCRIPT));
    format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'")
});

/// Returns the page for a record; `next` is the recommended next step.
///
/// # Errors
/// Fails if a histogram in the record is damaged.
pub fn of_record(record: &Record, next: Option<&str>) -> Result<String, DamagedHistogram> {
    PageContent::of(record, next).map(|page| draw(&page))
}

/// Returns the page for a comparison of two results. `environment` is that of the first result.
///
/// # Errors
/// Fails if a histogram in a record is damaged.
pub fn of_comparison(
    compared: &ComparisonReport,
    sides: [ComparedRuns<'_>; 2],
    environment: &Environment,
) -> Result<String, DamagedHistogram> {
    let page = PageContent::of_comparison(compared, sides, environment)?;
    Ok(draw(&page))
}

/// Returns the page for trends over successive results.
#[must_use]
pub fn of_trends(report: &TrendReport) -> String {
    draw(&PageContent::of_trends(report))
}

fn draw(page: &PageContent) -> String {
    let sections = page.sections.iter();
    let sections = sections.filter(|(_, content)| !content.0.is_empty());
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(*POLICY);
                meta name="color-scheme" content="light dark";
                title { (Harmless(&page.title)) " – floodmark" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    p.kind { "floodmark report" }
                    h1 { (Harmless(&page.title)) }
                    div.plans { (blocks(&page.plans)) }
                }
                main {
                    section.answer { (blocks(&page.answer)) }
                    @for (heading, content) in sections {
                        section { h2 { (heading) } (blocks(content)) }
                    }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// Draws blocks and joins adjacent lines into one list.
fn blocks(blocks: &Blocks) -> Markup {
    html! { @for part in blocks.parts() { (drawn(part)) } }
}

fn drawn(part: &[Block]) -> Markup {
    match &part[0] {
        Block::Gap => html! {},
        Block::Paragraph(content)
            if content.iter().all(|span| span.emphasis == Emphasis::Faint) =>
        {
            html! { p.note { (spans(content)) } }
        }
        Block::Paragraph(content) => html! { p { (spans(content)) } },
        Block::Section(heading, explanation) => html! {
            h2 { (Harmless(&heading.text)) }
            p.note { (Harmless(&explanation.text)) }
        },
        Block::Subheading(text) => html! { h3 { (Harmless(text)) } },
        Block::Line(_) => {
            html! {
                dl {
                    @for (i, block) in part.iter().enumerate() {
                        @if let Block::Line(line) = block { (labelled(line, i == 0)) }
                    }
                }
            }
        }
        Block::Command(_, command) => html! { pre { (Harmless(command)) } },
        Block::Table(content) => match &content.collapsed {
            Some(summary) => html! { details { summary { (Harmless(summary)) } (table(content)) } },
            None => table(content),
        },
        Block::Ranking(ranking) => ranked(ranking),
        Block::Charts(charts) => {
            html! { div.charts { @for chart in charts { (chart::figure(chart)) } } }
        }
    }
}

/// Draws a line. A line without a label continues the previous one, unless it is the first.
fn labelled(line: &TextLine, is_first: bool) -> Markup {
    html! {
        @if is_first || !line.label.is_empty() { dt { (Harmless(&line.label)) } }
        dd { (spans(&line.spans)) }
    }
}

/// Separates spans by a space, except before punctuation.
fn spans(spans: &[Span]) -> Markup {
    html! {
        @for (i, span) in spans.iter().enumerate() {
            @if i > 0 && !span.text.starts_with(['.', ':', ';', ',']) { " " }
            @match span.emphasis {
                Emphasis::Plain | Emphasis::Faint => { (Harmless(&span.text)) }
                Emphasis::Strong => { b { (Harmless(&span.text)) } }
                _ => { span class=[class(span.emphasis)] { (Harmless(&span.text)) } }
            }
        }
    }
}

fn class(emphasis: Emphasis) -> Option<&'static str> {
    match emphasis {
        Emphasis::Plain => None,
        Emphasis::Strong => Some("figure"),
        Emphasis::Faint => Some("how"),
        Emphasis::Good => Some("valid"),
        Emphasis::Warn => Some("bound"),
        Emphasis::Bad => Some("invalid"),
        Emphasis::Step => Some("step"),
    }
}

/// Returns the length of a row's name in characters.
fn length(row: &Row) -> usize {
    row.name.chars().count()
}

fn table(table: &Table) -> Markup {
    let label = match table.caption.as_str() {
        "" => "Table",
        caption => caption,
    };
    let shown = table.shown(Detail::Page);
    let has_heads = shown.iter().any(|i| !table.columns[*i].head.is_empty());
    let has_sentences = table.rows.iter().any(|row| length(row) > LONGEST_NAME);
    html! {
        div.wide tabindex="0" role="group" aria-label=(Harmless(label)) { table.facts[!has_heads].sentences[has_sentences] {
            @if has_heads {
                tr.heads {
                    @if table.caption.is_empty() { td {} } @else { th scope="col" { (Harmless(&table.caption)) } }
                    @for i in &shown { th scope="col" { (Harmless(&table.columns[*i].head)) } }
                }
            }
            @for row in &table.rows {
                tr {
                    th.name[length(row) <= LONGEST_NAME] scope="row" {
                        (Harmless(&row.name))
                        @for about in row.about.iter().filter(|about| !about.is_empty()) { " " small { (Harmless(about)) } }
                    }
                    @for i in &shown {
                        (cell_of(&row.cells[*i], has_sentences.then(|| &table.columns[*i])))
                    }
                }
            }
        } }
        @let note = table.note(true);
        @if !note.is_empty() { p.note { (Harmless(&note)) } }
    }
}

/// Draws a bar for each row, and a line from the lower to the upper end of its range.
fn ranked(ranking: &Ranking) -> Markup {
    const WIDTH: f64 = 1000.0;
    let largest = ranking.largest();
    let at = |per_s: f64| (per_s / largest * WIDTH).round();
    html! {
        table.ranking {
            caption { (Harmless(&ranking.caption)) }
            @for bar in &ranking.bars {
                tr {
                    th scope="row" { (Harmless(&bar.name)) }
                    td.bar {
                        svg viewBox={ "0 0 " (WIDTH) " 20" } preserveAspectRatio="none" aria-hidden="true" {
                            rect x="0" y="0" width=(at(bar.per_s)) height="20" {}
                            @if let Some((low, high)) = bar.range {
                                line x1=(at(low)) y1="10" x2=(at(high)) y2="10" {}
                            }
                        }
                    }
                    td.figure { (rate(bar.per_s)) }
                    td.how { (spans(&bar.about)) }
                }
            }
        }
    }
}

/// Draws a cell. On a narrow screen, the heading of its column precedes its text.
fn cell_of(cell: &Cell, column: Option<&Column>) -> Markup {
    let head = column.map(|column| plain::line(&column.head).into_owned());
    html! {
        td class=[class(cell.span.emphasis)] data-head=[head] {
            (Harmless(&cell.span.text))
            @if !cell.supplement.is_empty() { " " small { (Harmless(&cell.supplement)) } }
        }
    }
}

#[cfg(test)]
mod tests;
