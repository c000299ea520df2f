//! What became of held connections (`--hold`).

use floodmark_record::run::Run;
use floodmark_record::units::{show_count, show_ns};

use crate::figures::count_of;
use crate::page::{Page, glue, plain};
use crate::style::Paint;

/// `100,000 of 100,000 connections stood at the start, opened in 10.1 s; 12 ended, 12 opened again`. `which` names the attempt, where
/// there are several.
pub(crate) fn draw(page: &mut Page, run: &Run, which: &str) {
    let Some(held) = &run.connections.held else {
        return;
    };
    let asked = u64::from(run.plan.connections);
    let paint = match held.standing < asked {
        true => Paint::Warn,
        false => Paint::Plain,
    };
    let standing = format!(
        "{} of {} stood at the start",
        show_count(held.standing),
        count_of(asked, "connection")
    );
    let mut rest = format!(", opened in {}", glue(&show_ns(held.opening_ns as f64)));
    if held.lost + held.reopened > 0 {
        let (lost, reopened) = (show_count(held.lost), show_count(held.reopened));
        rest.push_str(&format!("; {lost} ended, {reopened} opened again"));
    }
    page.entry("held", &[plain(which), (paint, standing + &rest)]);
}
