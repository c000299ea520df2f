//! The summary of a record: full details of each run, or one table for attempts at the same load.

use floodmark_record::comparison::Threshold;
use floodmark_record::result::Record;
use floodmark_record::run::Run;

use super::run::same_load;
use super::{
    Blocks, Emphasis, TextLine, agents, attempts, groups, line, outcomes, plain, plan, process_use,
    run, steps, times, verdict,
};

/// Returns the summary of a record with thresholds, skipped trials and the next step.
pub(crate) fn document(record: &Record, next: Option<&str>) -> Blocks {
    let mut blocks = Blocks::default();
    let loads: Vec<&[Run]> = record.runs.chunk_by(same_load).collect();
    // For a single load, show the next step after the cause. For several loads, show it last.
    let (with_cause, last) = match loads.len() {
        1 => (next, None),
        _ => (None, next),
    };
    // `overall` covers all runs of a record, so the attempts show it only if there is a single
    // load.
    let overall = record.overall.as_ref().filter(|_| loads.len() == 1);
    for (i, runs) in loads.into_iter().enumerate() {
        if i > 0 {
            blocks.gap();
        }
        blocks.paragraph(plan::headline(&runs[0], runs.len()));
        blocks.gap();
        match runs {
            [run] => add_run(&mut blocks, run, with_cause),
            several => attempts::add(&mut blocks, several, overall, with_cause),
        }
    }
    blocks.lines(record.skipped.iter().map(|text| line("skipped", text)));
    blocks.lines(record.thresholds.iter().map(threshold));
    blocks.lines(last.map(|next| line("next", next)));
    blocks
}

fn add_run(blocks: &mut Blocks, run: &Run, next: Option<&str>) {
    blocks.lines(run::ended(run));
    blocks.lines(run::throughput(run));
    cause_and_next(blocks, [run], next);
    blocks.lines(run::window(run, false));
    match times::table(run) {
        Some(table) => blocks.tables([table]),
        None => {
            let text = "not measured: no request succeeded or timed out";
            blocks.lines([line("times", text)]);
        }
    }
    blocks.tables(steps::table(run));
    blocks.lines(run::saturation(run));
    blocks.tables(groups::table(run));
    blocks.lines(outcomes::lines(&[run]));
    blocks.lines(run::held(run));
    blocks.lines([process_use::client(run)]);
    agents::add(blocks, run);
    blocks.lines(process_use::external_client(run));
    blocks.lines(process_use::servers(run));
    blocks.lines(run::tls(run));
    blocks.lines(run::validity(run));
    blocks.lines(run::checks(run));
    blocks.lines(run::notes(run));
}

/// Adds the most frequent cause, its evidence and the next step.
pub(crate) fn cause_and_next<'a>(
    blocks: &mut Blocks,
    runs: impl IntoIterator<Item = &'a Run>,
    next: Option<&str>,
) {
    if let Some((verdict, cause)) = verdict::most_frequent(runs) {
        blocks.lines([cause]);
        blocks.lines(verdict::evidence(verdict));
    }
    blocks.lines(next.map(|next| line("next", next)));
}

/// `fail-if   p99 > 50 ms – failed: 60 ms`.
pub(crate) fn threshold(threshold: &Threshold) -> TextLine {
    let result = match threshold.met {
        Some(true) => Emphasis::Bad.span("– failed:"),
        Some(false) => Emphasis::Good.span("– passed:"),
        None => Emphasis::Warn.span("– not evaluated:"),
    };
    let condition = plain(super::figures::glue(&threshold.condition));
    TextLine::new("fail-if", [condition, result, plain(&threshold.figure)])
}
