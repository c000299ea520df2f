//! The conditions of a result as JUnit XML.
//!
//! A violated condition is a `failure`, a condition that was not evaluated is `skipped`, and a
//! measurement that failed is an `error`.

use std::borrow::Cow;

use floodmark_record::Record;
use floodmark_record::comparison::ComparisonReport;
use maud::{Markup, PreEscaped, Render, html};

pub use crate::model::cases::{CaseOutcome, RunFault};

use crate::model::cases::{self, CaseSuite, ConditionCase};
use crate::model::names;
use crate::plain;

/// XML declaration, followed by a line break.
const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// Returns the measurements and conditions of a record. `fault` returns the fault of a run.
#[must_use]
pub fn of_record(record: &Record, fault: &RunFault<'_>) -> String {
    draw(&cases::of_record(record, fault))
}

/// Returns the conditions of a comparison. `fault` states why the comparison is invalid, if it is.
#[must_use]
pub fn of_comparison(compared: &ComparisonReport, fault: Option<&str>) -> String {
    draw(&[cases::of_comparison(compared, fault)])
}

fn draw(suites: &[CaseSuite]) -> String {
    let all = Totals::of(suites.iter().flat_map(|suite| &suite.cases));
    let document = html! {
        (PreEscaped(DECLARATION))
        testsuites name="floodmark" tests=(all.tests) failures=(all.failures) errors=(all.errors)
            skipped=(all.skipped) time=(all.time) {
            "\n"
            @for suite in suites { (drawn_suite(suite)) "\n" }
        }
        "\n"
    };
    document.into_string()
}

fn drawn_suite(suite: &CaseSuite) -> Markup {
    let of = Totals::of(&suite.cases);
    let started = suite.started_unix_ms.and_then(names::iso_timestamp);
    html! {
        testsuite name=(XmlText(&suite.name)) tests=(of.tests) failures=(of.failures)
            errors=(of.errors) skipped=(of.skipped) time=(of.time) timestamp=[started] {
            "\n"
            @for case in &suite.cases {
                testcase classname=(XmlText(&suite.name)) name=(XmlText(&case.name))
                    time=(seconds(case.time_s)) { (result(case)) }
                "\n"
            }
        }
    }
}

/// Returns the element for the outcome of a case. The text repeats the message, because some tools
/// show only one of them.
fn result(case: &ConditionCase) -> Markup {
    let detail = XmlText(&case.detail);
    let text = html! { (detail) @for line in &case.history { "\n" (XmlText(line)) } };
    html! {
        @match case.outcome {
            CaseOutcome::Passed if case.detail.is_empty() => {}
            CaseOutcome::Passed => system-out { (text) },
            CaseOutcome::Failed => failure message=(detail) type="violated" { (text) },
            CaseOutcome::NotEvaluated => skipped message=(detail) {},
            CaseOutcome::Error => error message=(detail) type="error" { (text) },
        }
    }
}

/// Number of cases by outcome, and their total time.
struct Totals {
    tests: usize,
    failures: usize,
    errors: usize,
    skipped: usize,
    time: String,
}

impl Totals {
    fn of<'a>(cases: impl IntoIterator<Item = &'a ConditionCase>) -> Self {
        let cases: Vec<&ConditionCase> = cases.into_iter().collect();
        let count = |outcome| cases.iter().filter(|case| case.outcome == outcome).count();
        Totals {
            tests: cases.len(),
            failures: count(CaseOutcome::Failed),
            errors: count(CaseOutcome::Error),
            skipped: count(CaseOutcome::NotEvaluated),
            time: seconds(cases.iter().map(|case| case.time_s).sum()),
        }
    }
}

fn seconds(s: f64) -> String {
    format!("{s:.3}")
}

/// Text for XML 1.0. maud escapes markup; this type also escapes characters that XML forbids.
#[derive(Clone, Copy)]
struct XmlText<'a>(&'a str);

impl Render for XmlText<'_> {
    fn render_to(&self, buffer: &mut String) {
        let mut text = plain::line(self.0);
        if text.contains(['\u{fffe}', '\u{ffff}']) {
            let replaced = text.replace('\u{fffe}', "\\u{fffe}");
            text = Cow::Owned(replaced.replace('\u{ffff}', "\\u{ffff}"));
        }
        // Figures contain no-break spaces, which are useful only in wrapped text.
        text.replace('\u{a0}', " ").render_to(buffer);
    }
}

#[cfg(test)]
#[path = "junit_tests.rs"]
mod tests;
