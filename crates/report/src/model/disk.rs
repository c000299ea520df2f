//! Results of `floodmark disk`: a row per trace, then failures and refusals.

use std::cmp::Reverse;

use floodmark_record::disk::{DiskFailure, DiskResult, DiskRow};
use floodmark_record::units::show_count;

use super::document::{Blocks, Detail, Emphasis, Row, Span, Table, TextLine, faint, line, plain};
use super::figures::{count_of, glue};

/// Maximum number of failures to show for the first row with failures. Later rows show one.
const FIRST_FAILURES: usize = 3;

/// Maximum number of different refusals to show for a row.
const MAX_REFUSALS: usize = 3;

/// Returns the headline, a table and an explanation of each failure.
pub(crate) fn document(result: &DiskResult) -> Blocks {
    let mut blocks = Blocks::default();
    blocks.paragraph([headline(result)]);
    blocks.gap();
    blocks.tables([table(result)]);
    blocks.gap();
    let mut shown = FIRST_FAILURES;
    for row in result.rows.iter().filter(|row| row.failed > 0) {
        let failures = row.failures.iter().take(shown);
        let hidden = row.failed - failures.len() as u64;
        failures.for_each(|failure| add_failure(&mut blocks, row, failure));
        if hidden > 0 {
            let more = count_of(hidden, "more failure");
            blocks.lines([line("", format!("{}: {more}", name(row)))]);
        }
        shown = 1;
    }
    let rows = result.rows.iter();
    rows.for_each(|row| add_refusals(&mut blocks, row));
    blocks
}

fn headline(result: &DiskResult) -> Span {
    let sum = |count: fn(&DiskRow) -> u64| result.rows.iter().map(count).sum::<u64>();
    let states = count_of(sum(|row| row.images), "disk state");
    let failed = sum(|row| row.failed);
    let refused = match sum(|row| row.refused) {
        0 => String::new(),
        refused => format!("; the server refused to start on {}", show_count(refused)),
    };
    let passed = format!("no acknowledged request lost on {states}{refused}");
    match (failed, result.is_complete) {
        (0, true) => Emphasis::Good.span(passed),
        (0, false) => Emphasis::Warn.span(format!("interrupted; {passed}")),
        _ => {
            let failed = show_count(failed);
            Emphasis::Bad.span(format!("the server failed on {failed} of {states}"))
        }
    }
}

fn name(row: &DiskRow) -> &str {
    row.fault.as_deref().unwrap_or("power loss")
}

fn table(result: &DiskResult) -> Table {
    let rows = result.rows.iter().map(|row| {
        let failed = Emphasis::Bad.when(row.failed > 0);
        let crashed = Emphasis::Bad.when(row.crashed > 0);
        let after = row.acknowledged_after_error.map(show_count);
        let cells = vec![
            show_count(row.acknowledged).into(),
            after.unwrap_or_else(|| "–".to_owned()).into(),
            show_count(row.images).into(),
            show_count(row.distinct).into(),
            show_count(row.recovered).into(),
            show_count(row.refused).into(),
            failed.span(show_count(row.failed)).into(),
            crashed.span(show_count(row.crashed)).into(),
            glue(&format!("{:.1} ms", row.mean_ms)).into(),
        ];
        Row::new(name(row), cells)
    });
    let heads = [
        "acknowledged",
        "after error",
        "states",
        "distinct",
        "recovered",
        "refused",
        "failed",
        "crashed",
        "time",
    ];
    let mut table = Table::new(heads, rows);
    for roomy in [3, 8] {
        table.columns[roomy].detail = Detail::Roomy;
    }
    table
}

/// Adds the most frequent refusals of a row.
fn add_refusals(blocks: &mut Blocks, row: &DiskRow) {
    let mut refusals = Vec::from_iter(&row.refusals);
    refusals.sort_by_key(|(_, count)| Reverse(**count));
    refusals.truncate(MAX_REFUSALS);
    blocks.lines(refusals.into_iter().map(|(message, count)| {
        let states = count_of(*count, "disk state");
        let spans = [plain(format!("{}: {states}:", name(row))), faint(message)];
        TextLine::new("refused", spans)
    }));
}

fn add_failure(blocks: &mut Blocks, row: &DiskRow, failure: &DiskFailure) {
    let spans = [
        plain(format!("{}:", name(row))),
        Emphasis::Bad.span(&failure.reason),
        faint(format!("(crash at position {})", failure.at)),
    ];
    blocks.lines([TextLine::new("failed", spans)]);
    let undone = failure.missing.iter();
    blocks.lines(undone.map(|effect| line("  undone", effect)));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Style;
    use crate::terminal;

    fn row(fault: Option<&str>, failed: u64) -> DiskRow {
        let failure = DiskFailure {
            at: 43,
            reason: "number 9 repeated; numbers up to 9 were already acknowledged".to_owned(),
            missing: vec!["write of 64 bytes to state at offset 0 (call 42)".to_owned()],
        };
        DiskRow {
            fault: fault.map(str::to_owned),
            acknowledged: 400,
            acknowledged_after_error: fault.map(|_| 0),
            images: 1000,
            distinct: 700,
            recovered: 1000 - failed - 1,
            refused: 1,
            failed,
            crashed: 0,
            mean_ms: 5.26,
            longest_ms: 20.0,
            elapsed_s: 2.7,
            refusals: BTreeMap::from([("state: damaged".to_owned(), 1)]),
            failures: (failed > 0).then_some(failure).into_iter().collect(),
        }
    }

    fn draw(rows: Vec<DiskRow>, width: usize) -> String {
        let result = DiskResult {
            schema: 1,
            command: vec!["server".to_owned()],
            check: "sequence".to_owned(),
            file_system: "strict".to_owned(),
            seed: 1,
            requests: 400,
            is_complete: true,
            rows,
        };
        let style = Style {
            color: false,
            width,
        };
        terminal::disk(&result, style)
    }

    #[test]
    fn shows_each_failure_with_the_undone_calls() {
        let text = draw(vec![row(None, 2), row(Some("EIO sync 20"), 0)], 100);
        for part in [
            "the server failed on 2 of 2,000 disk states\n",
            "failed       power loss: number 9 repeated; numbers up to 9 were already acknowledged (crash",
            "\n  undone     write of 64 bytes to state at offset 0 (call 42)\n",
            "\n             power loss: 1 more failure\n",
            "\nEIO sync 20 ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn states_that_nothing_was_lost() {
        let text = draw(vec![row(None, 0)], 100);
        let expected =
            "no acknowledged request lost on 1,000 disk states; the server refused to start on 1\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("1 disk state: state: damaged"), "{text}");
    }
}
