//! The report as one HTML page: figures, curves, environment, and how to take them again, from a record and nothing else.
//!
//! The page is whole in itself: no script, no font, no image and no address that a browser would fetch. The same record gives
//! the same page, byte for byte.

use floodmark_record::result::Record;
use floodmark_record::run::Run;
use maud::{DOCTYPE, Markup, PreEscaped, html};

mod again;
mod answer;
mod axis;
mod beside;
mod chart;
mod curves;
mod distribution;
mod figures;
mod knobs;
mod machine;
mod names;
mod observed;
mod over_time;
mod parts;
#[cfg(test)]
mod tests;
mod text;

pub use chart::DrawError;
pub use distribution::DamagedHistogram;

use chart::Chart;
use names::Named;
use text::Shown;

const STYLE: &str = include_str!("style.css");

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The record is damaged.
    #[error(transparent)]
    Damaged(#[from] DamagedHistogram),
    /// A chart failed.
    #[error(transparent)]
    Draw(#[from] DrawError),
}

/// The page of a record. `next` is the one next step, as in the terminal's summary.
///
/// # Errors
/// A damaged histogram in the record.
pub fn of_record(record: &Record, next: Option<&str>) -> Result<String, PageError> {
    let all = names::named(record);
    let (drawn, which) = names::drawn(&all);
    let title = match &record.experiment {
        Some(experiment) => experiment.question.clone(),
        None => title(&all),
    };
    let mut charts = over_time::charts(&drawn);
    charts.extend(distribution::chart(&drawn)?);
    let (observed, unseen) = observed::charts(&drawn);
    let sweeps = knobs::sweeps(record)?;
    let command = again::command(record);
    let body = html! {
        header {
            p.kind { "floodmark report" }
            h1 { (Shown(&title)) }
            (asked(&all))
        }
        (answer::draw(record, &all, next))
        @if let Some(ladder) = knobs::ladder(record) { section { (ladder) } }
        @if let Some(sweeps) = &sweeps { section { (sweeps) } }
        @if let Some(compared) = beside::comparisons(record) { section { (compared) } }
        @if let Some(claims) = beside::claims(record) { section { (claims) } }
        section {
            h2 { "Figures" }
            @match all.as_slice() {
                [] => p { "None." },
                [one] => (figures::of_one(one.run)),
                several => (figures::of_several(several)),
            }
        }
        @if !charts.is_empty() {
            section {
                h2 { "Curves" }
                @if let Some(which) = &which { p.note { (Shown(which)) "." } }
                @for note in over_time::notes(&drawn) { p.note { (Shown(&note)) } }
                (figures_of(&charts)?)
            }
        }
        @if !all.is_empty() {
            section { h2 { "Outcomes" } (parts::outcomes(&drawn)) }
        }
        @if let Some(table) = parts::steps(&drawn) { section { h2 { "Steps" } (table) } }
        @if let Some(table) = parts::groups(&drawn) { section { h2 { "Requests of the mix" } (table) } }
        @if let Some(lines) = answer::judged(record, &all) { section { h2 { "Judged" } (lines) } }
        @if !observed.is_empty() {
            section {
                h2 { "Beside the load" }
                p.note { "Of counters their increase from one value to the next." }
                (figures_of(&observed)?)
                @if !unseen.is_empty() { p.note { "Also in the record: " (Shown(&unseen.join(", "))) "." } }
            }
        }
        section {
            h2 { "How to run it again" }
            @if let Some(command) = &command { pre { (Shown(command)) } }
            @for load in names::by_load(&all) {
                @if all.len() > load.len() { h3 { (Shown(&load[0].name)) } }
                (again::plan(load[0].run))
            }
        }
        section { h2 { "Environment" } (machine::draw(record)) }
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Were anything of the record to slip through unescaped, it still could not run or fetch.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                meta name="color-scheme" content="light dark";
                title { (Shown(&title)) " – floodmark" }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    };
    Ok(page.into_string())
}

/// The heading: what was loaded.
fn title(all: &[Named]) -> String {
    let Some(first) = all.first() else {
        return "Nothing was measured".to_owned();
    };
    let of = |run: &Run| match run.plan.request.method.as_str() {
        "GET" => run.plan.target.url.clone(),
        method => format!("{method} {}", run.plan.target.url),
    };
    let (mut others, first) = (all.iter().map(|one| of(one.run)), of(first.run));
    match others.all(|other| other == first) {
        true => first,
        false => format!("{first} and others"),
    }
}

/// Each plan in words, once for all loads that had it, and when it was carried out first.
fn asked(all: &[Named]) -> Markup {
    let mut plans: Vec<(String, u64, u64)> = Vec::new();
    for load in names::by_load(all) {
        let run = load[0].run;
        let mut words = crate::load_line::describe(&run.plan, load.len());
        if let Some(name) = &run.client.name {
            words = format!("{name}: {words}");
        }
        match plans.iter_mut().find(|(other, ..)| *other == words) {
            Some((_, loads, _)) => *loads += 1,
            None => plans.push((words, 1, run.started_unix_ms)),
        }
    }
    html! {
        @for (words, loads, begun) in &plans {
            p.asked {
                (Shown(words))
                @if *loads > 1 { ", " (loads) " times" }
                ". Begun " (Shown(&text::moment(*begun))) "."
            }
        }
    }
}

fn figures_of(charts: &[Chart]) -> Result<Markup, DrawError> {
    let drawn: Result<Vec<Markup>, DrawError> = charts.iter().map(Chart::figure).collect();
    let drawn = drawn?;
    Ok(html! { div.charts { @for chart in &drawn { (chart) } } })
}
