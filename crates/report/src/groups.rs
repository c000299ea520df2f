//! A table of the groups of a mix.

use floodmark_record::groups::Group;
use floodmark_record::run::Run;
use floodmark_record::units::show_count;

use crate::figures::{NOT_MEASURED, per_second, share, time};
use crate::outcomes;
use crate::page::{LABEL, Page, faint};
use crate::style::Paint;

type Cell = (Paint, String);

/// Columns by which names stand in.
const INDENT: usize = 2;

/// A column: its head, its width, whether it is spared where there is no room, and its text.
struct Column {
    head: &'static str,
    width: usize,
    spared: bool,
    of: fn(&Run, &Group) -> Cell,
}

const COLUMNS: [Column; 7] = [
    Column {
        head: "share",
        width: 9,
        spared: true,
        of: |run, group| plain(share_of(run, group)),
    },
    Column {
        head: "ok/s",
        width: 10,
        spared: false,
        of: |_, group| {
            let per_s = group.throughput_per_s.map(per_second);
            plain(per_s.unwrap_or_else(|| NOT_MEASURED.to_owned()))
        },
    },
    Column {
        head: "p50",
        width: 9,
        spared: false,
        of: |run, group| response(run, group, group.response_time_us.p50),
    },
    Column {
        head: "p99",
        width: 9,
        spared: false,
        of: |run, group| response(run, group, group.response_time_us.p99),
    },
    Column {
        head: "p99.9",
        width: 9,
        spared: true,
        of: |run, group| response(run, group, group.response_time_us.p99_9),
    },
    Column {
        head: "max",
        width: 9,
        spared: true,
        of: |run, group| response(run, group, group.response_time_us.max),
    },
    Column {
        head: "not ok",
        width: 9,
        spared: false,
        of: not_ok,
    },
];

/// Draws one row for each group, as wide as names need; nothing without a mix. `which` names the attempt, where there are several.
pub(crate) fn draw(page: &mut Page, run: &Run, which: &str) {
    let Some(longest) = run.groups.iter().map(|group| group.name.len()).max() else {
        return;
    };
    let columns: usize = COLUMNS.iter().map(|column| column.width).sum();
    let label = LABEL.max(INDENT + longest + 1);
    let roomy = label + columns <= page.columns();
    let shown = || COLUMNS.iter().filter(|column| roomy || !column.spared);
    let heads: Vec<_> = shown()
        .map(|column| (column.width, Paint::Faint, column.head.to_owned()))
        .collect();
    let heading = if which.is_empty() { "groups" } else { which };
    page.row_beside(label, heading, &heads);
    for group in &run.groups {
        let cells: Vec<_> = shown()
            .map(|column| {
                let (paint, text) = (column.of)(run, group);
                (column.width, paint, text)
            })
            .collect();
        page.row_beside(label, &format!("{:INDENT$}{}", "", group.name), &cells);
    }
    let whole = run.window.from_s <= 0.0 && run.window.to_s >= run.sending_s * 0.99;
    let of = if whole {
        "(percentiles are of response time)"
    } else {
        "(percentiles are of response time in the whole run)"
    };
    page.entry("", &[faint(of)]);
}

fn plain(text: String) -> Cell {
    (Paint::Plain, text)
}

/// Its part of all requests whose time came.
fn share_of(run: &Run, group: &Group) -> String {
    match run.requests.intended {
        0 => NOT_MEASURED.to_owned(),
        all => share(group.requests.intended, all),
    }
}

fn response(run: &Run, group: &Group, us: Option<f64>) -> Cell {
    plain(time(us, &group.response_time_us, run.plan.timeout_s))
}

fn not_ok(_: &Run, group: &Group) -> Cell {
    let n = outcomes::not_ok(&group.requests);
    let paint = if n > 0 { Paint::Bad } else { Paint::Plain };
    (paint, show_count(n))
}
