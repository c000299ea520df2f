//! Tables of judgments: ratios, claims, conditions, crash rounds and skipped parts.

use floodmark_record::Record;
use floodmark_record::comparison::Comparison;
use floodmark_record::units::show_ratio;

use super::{DataCell, DataTable, DataValue, recorded_name};
use crate::model::cases::{self, ConditionCase};
use crate::model::comparison::conclusion;
use crate::model::crash;
use crate::model::figures::seconds;
use crate::model::ratios::{figure, holds, interval, measured, published, subject};

/// Name of the table of conditions.
pub(crate) const CONDITIONS: &str = "conditions";

/// Returns a row per metric and pair of systems.
pub(crate) fn ratios(comparisons: &[Comparison]) -> Option<DataTable> {
    let rows = comparisons.iter().map(|of| {
        let (a, b) = (of.figures_a.figure, of.figures_b.figure);
        let needed = of
            .repetitions_needed
            .map_or(DataValue::Missing, |n| DataValue::Count(n.into()));
        vec![
            DataCell::text("metric", "metric", of.metric.name()),
            DataCell::text("a", "a", &of.a),
            DataCell::text("b", "b", &of.b),
            DataCell::hidden_text("unit", of.metric.figure().unit().name()),
            DataCell::hidden_number("figure_a", a).shown("figure of a", figure(of.metric, a)),
            DataCell::hidden_number("figure_b", b).shown("figure of b", figure(of.metric, b)),
            DataCell::number("ratio", "ratio", of.ratio, show_ratio),
            DataCell::hidden_number("ratio_low", of.low).shown("95 % interval", interval(of)),
            DataCell::hidden_number("ratio_high", of.high),
            DataCell::hidden_number("confidence", Some(of.confidence)),
            DataCell::hidden_text("conclusion", recorded_name(&of.conclusion))
                .shown("conclusion", conclusion(of.conclusion).text),
            DataCell::count("processes_a", "processes of a", of.figures_a.processes),
            DataCell::count("processes_b", "processes of b", of.figures_b.processes),
            DataCell::hidden("processes_needed", needed),
        ]
    });
    DataTable::of("ratios", rows)
}

/// Returns a row per published claim.
pub(crate) fn claims(record: &Record) -> Option<DataTable> {
    let rows = record.claims.iter().map(|claim| {
        let unit = match (claim.metric, claim.of.len()) {
            (Some(metric), 1) => metric.figure().unit().name(),
            _ => "ratio",
        };
        let metric = claim.metric.map(|metric| metric.name());
        let source = claim.source.as_deref().unwrap_or_default();
        vec![
            DataCell::text("claim", "claim", &claim.text),
            DataCell::hidden_text("source", source),
            DataCell::hidden_text("metric", metric.unwrap_or_default()),
            DataCell::hidden_text("of", claim.of.join(";")).shown("of", subject(claim)),
            DataCell::hidden_text("unit", unit),
            DataCell::hidden_number("published", claim.published)
                .shown("published", published(claim)),
            DataCell::hidden_number("measured", claim.measured).shown("measured", measured(claim)),
            DataCell::hidden_number("measured_low", claim.low),
            DataCell::hidden_number("measured_high", claim.high),
            DataCell::hidden_text("holds", recorded_name(&claim.holds))
                .shown("holds", holds(claim.holds).text),
            DataCell::text("notes", "notes", claim.notes.join("; ")),
        ]
    });
    DataTable::of("claims", rows)
}

/// Returns a row per condition of a record.
pub(crate) fn conditions(record: &Record) -> Option<DataTable> {
    let suites = cases::conditions(record);
    let rows = suites.iter();
    let rows = rows.flat_map(|suite| condition_rows(&suite.name, &suite.cases));
    DataTable::of(CONDITIONS, rows)
}

/// Returns the rows of the conditions in a suite.
pub(crate) fn condition_rows(suite: &str, cases: &[ConditionCase]) -> Vec<Vec<DataCell>> {
    let row = |case: &ConditionCase| {
        vec![
            DataCell::text("suite", "suite", suite),
            DataCell::text("condition", "condition", &case.name),
            DataCell::hidden_text("outcome", case.outcome.name())
                .shown("outcome", case.outcome.name().replace('_', " ")),
            DataCell::text("detail", "detail", &case.detail),
        ]
    };
    cases.iter().map(row).collect()
}

/// Returns a row per trial with crash rounds.
pub(crate) fn crash_rounds(record: &Record) -> Option<DataTable> {
    let rows = record.crash.iter().map(|of| {
        let ms = |ms: f64| seconds(ms / 1e3);
        vec![
            DataCell::text("trial", "trial", &of.trial),
            DataCell::hidden_text("system", &of.system),
            DataCell::hidden_text("workload", &of.workload),
            DataCell::text("check", "check", &of.check),
            DataCell::text("killed", "killed", of.kill.name()),
            DataCell::text("signal", "signal", of.signal.name()),
            DataCell::hidden_count("rounds_requested", of.rounds_requested),
            DataCell::count("rounds", "rounds", of.rounds),
            DataCell::hidden_count("inconclusive", of.inconclusive),
            DataCell::count("lost", "lost", of.lost),
            DataCell::hidden_number("upper_bound_loss_share", of.upper_bound)
                .shown("upper bound", crash::bound(of)),
            DataCell::hidden_number("confidence", Some(of.confidence)),
            DataCell::number("first_ok_median_ms", "first ok", of.first_ok.median_ms, ms),
            DataCell::hidden_number("first_ok_max_ms", of.first_ok.max_ms),
            DataCell::number(
                "full_speed_median_ms",
                "full speed",
                of.full_speed.median_ms,
                ms,
            ),
            DataCell::hidden_number("full_speed_max_ms", of.full_speed.max_ms),
            DataCell::hidden_count("acknowledged", of.acknowledged),
            DataCell::hidden_count("unknown", of.unknown),
        ]
    });
    DataTable::of("crash_rounds", rows)
}

/// Returns a row per skipped part.
pub(crate) fn skipped(record: &Record) -> Option<DataTable> {
    let rows = record.skipped.iter().map(|what| {
        let failed = record.failures.contains(what);
        vec![
            DataCell::text("reason", "reason", what),
            DataCell::hidden("has_failed", DataValue::Flag(failed)),
        ]
    });
    DataTable::of("skipped", rows)
}
