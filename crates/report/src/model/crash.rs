//! Crash rounds: how many lost data, and how quickly the server recovered.

use floodmark_record::crash::{CrashLoss, CrashResult, RecoveryTimes};
use floodmark_record::units::show_count;

use super::document::{
    Blocks, Cell, ColumnCell, Emphasis, Table, TextLine, count_cell, data, line, listed,
    number_cell, plain, shown, text_cell,
};
use super::figures::{NOT_MEASURED, count_of, glue, level, microseconds, optional, seconds};
use super::run::history;

/// Explanation of the table.
const EXPLANATION: &str = "recovery: median time from the restart to the first ok response, and to \
    90 % of the earlier rate";

/// Appended to [`EXPLANATION`] if the table shows the maxima.
const SUPPLEMENT: &str = "; maximum in parentheses";

/// Maximum number of losses that are listed per trial.
const MAX_LOSSES: usize = 20;

/// Adds the crash rounds of an experiment.
pub(crate) fn add(blocks: &mut Blocks, trials: &[CrashResult]) {
    blocks.tables(table(trials).not_empty());
    blocks.lines(trials.iter().map(result));
    blocks.lines(trials.iter().flat_map(|trial| {
        let first = trial.losses.first().into_iter();
        first.flat_map(|loss| {
            let line = line("", loss_text(trial, loss));
            [line].into_iter().chain(history(&loss.history))
        })
    }));
}

/// Returns the table of all trials.
pub(crate) fn table(trials: &[CrashResult]) -> Table {
    let rows = trials.iter();
    let rows = rows.map(|trial| (trial.trial.clone(), cells(trial)));
    let mut table = Table::of(rows, EXPLANATION);
    table.supplement_note = SUPPLEMENT;
    table
}

fn cells(trial: &CrashResult) -> Vec<ColumnCell> {
    let emphasis = match (trial.lost, trial.conclusive()) {
        (0, 0) => Emphasis::Plain,
        (0, _) => Emphasis::Good,
        _ => Emphasis::Bad,
    };
    let count = |n| match trial.rounds {
        0 => NOT_MEASURED.to_owned(),
        _ => show_count(n),
    };
    let ms = |ms: f64| seconds(ms / 1e3);
    let (first_ok, full_speed) = (&trial.first_ok, &trial.full_speed);
    let conclusive = trial.conclusive().to_string();
    let lost = emphasis.span(trial.lost.to_string());
    let (bound, full_median) = (bound(trial), full_speed.median_ms);
    let (acknowledged, unknown) = (count(trial.acknowledged), count(trial.unknown));
    vec![
        text_cell("trial", "trial", &trial.trial),
        data("system", &trial.system),
        data("workload", &trial.workload),
        text_cell("check", "check", &trial.check),
        text_cell("killed", "killed", trial.kill.name()),
        text_cell("signal", "signal", trial.signal.name()),
        data("rounds_requested", trial.rounds_requested),
        count_cell("rounds", "rounds", trial.rounds),
        shown("rounds", conclusive),
        data("inconclusive", trial.inconclusive),
        listed("lost", "lost", trial.lost, lost).essential(),
        listed(
            "upper_bound_loss_share",
            "upper bound",
            trial.upper_bound,
            bound,
        )
        .essential(),
        data("confidence", trial.confidence),
        shown("first ok", recovery(first_ok)),
        shown("full speed", recovery(full_speed)),
        number_cell("first_ok_median_ms", "first ok", first_ok.median_ms, ms),
        data("first_ok_max_ms", first_ok.max_ms),
        number_cell("full_speed_median_ms", "full speed", full_median, ms),
        data("full_speed_max_ms", full_speed.max_ms),
        shown("acknowledged", acknowledged),
        data("acknowledged", trial.acknowledged),
        shown("unknown", unknown),
        data("unknown", trial.unknown),
    ]
}

/// Returns the losses of all trials, for the page. The first loss of a trial includes its history.
pub(crate) fn losses(trials: &[CrashResult]) -> Vec<TextLine> {
    let mut lines = Vec::new();
    for trial in trials {
        for (i, loss) in trial.losses.iter().take(MAX_LOSSES).enumerate() {
            lines.push(line("loss", loss_text(trial, loss)));
            if i == 0 {
                lines.extend(history(&loss.history));
            }
        }
        let more = trial.losses.len().saturating_sub(MAX_LOSSES);
        if more > 0 {
            let more = count_of(more as u64, "more loss");
            lines.push(line("", format!("{more} in the record")));
        }
    }
    lines
}

/// Returns the result of a trial as a sentence, without a full stop.
pub(crate) fn sentence(trial: &CrashResult) -> String {
    let cause = format!("{} to the {}", trial.signal.name(), trial.kill.name());
    let (rounds, requested) = (trial.rounds, trial.rounds_requested);
    let name = &trial.trial;
    if rounds == 0 {
        return format!("{name}: none of {requested} crash rounds was completed ({cause})");
    }
    let conclusive = trial.conclusive();
    let outcome = match trial.lost {
        0 => format!("no loss in {}", count_of(conclusive.into(), "crash round")),
        lost => format!("{lost} of {conclusive} crash rounds lost data"),
    };
    let inconclusive = match trial.inconclusive {
        0 => String::new(),
        1 => "; 1 more round was inconclusive".to_owned(),
        n => format!("; {n} more rounds were inconclusive"),
    };
    let left = match requested.saturating_sub(rounds) {
        0 => String::new(),
        1 => format!("; 1 of {requested} rounds was not run"),
        n => format!("; {n} of {requested} rounds were not run"),
    };
    let bounded = match trial.upper_bound {
        Some(share) if share < 1.0 => {
            let (bound, level) = (bound(trial), level(trial.confidence));
            format!("; at most {bound} of such rounds lose data ({level} upper bound)")
        }
        _ => String::new(),
    };
    format!("{name}: {outcome} ({cause}){inconclusive}{left}{bounded}")
}

fn result(trial: &CrashResult) -> TextLine {
    let emphasis = match trial.lost {
        0 => Emphasis::Plain,
        _ => Emphasis::Bad,
    };
    TextLine::new("crash", [emphasis.span(sentence(trial))])
}

fn bound(trial: &CrashResult) -> String {
    optional(trial.upper_bound, |bound| {
        let percent = 100.0 * bound;
        let steps = if percent < 10.0 { 10.0 } else { 1.0 };
        // Round up, because the figure is an upper bound. The margin absorbs rounding errors.
        let shown = (percent * steps - 1e-9).ceil() / steps;
        glue(&format!("{shown} %"))
    })
}

fn recovery(times: &RecoveryTimes) -> Cell {
    let ms = |ms: f64| microseconds(ms * 1000.0);
    match (times.median_ms, times.max_ms) {
        (Some(median), Some(max)) => Cell::new(ms(median), Some(format!("({})", ms(max)))),
        _ => plain(NOT_MEASURED).into(),
    }
}

fn loss_text(trial: &CrashResult, loss: &CrashLoss) -> String {
    let responses = loss.responses.as_ref();
    let responses = responses.map(|file| format!("; responses: {file}"));
    let responses = responses.unwrap_or_default();
    let (trial, violations) = (&trial.trial, loss.violations.join("; "));
    format!("{trial}, round {}: {violations}{responses}", loss.round)
}

#[cfg(test)]
pub(crate) mod tests {
    use floodmark_record::Counts;
    use floodmark_record::crash::{CrashSignal, CrashTarget};

    use super::*;
    use crate::Style;
    use crate::fixture;
    use crate::terminal;

    pub(crate) fn trial(name: &str, rounds: u32, losses: Vec<CrashLoss>) -> CrashResult {
        let lost = losses.len() as u32;
        let times = RecoveryTimes {
            count: rounds,
            min_ms: Some(20.0),
            median_ms: Some(25.5),
            max_ms: Some(40.25),
        };
        CrashResult {
            trial: name.to_owned(),
            system: "server".to_owned(),
            workload: "dispatcher".to_owned(),
            check: "sequence".to_owned(),
            kill: CrashTarget::Server,
            signal: CrashSignal::Kill,
            rounds_requested: 300,
            rounds,
            inconclusive: 0,
            lost,
            upper_bound: floodmark_stats::crash::upper_bound(lost.into(), rounds.into()),
            confidence: floodmark_stats::estimate::CONFIDENCE,
            first_ok: times,
            full_speed: RecoveryTimes::default(),
            requests: Counts::default(),
            acknowledged: 1_234_567,
            unknown: 4_800,
            plan: fixture::closed_plan(),
            place: None,
            losses,
        }
    }

    pub(crate) fn loss(round: u32) -> CrashLoss {
        CrashLoss {
            round,
            signaled_s: 0.75,
            acknowledged: 1_200,
            unknown: 3,
            recovered: Some(0),
            violations: vec!["the restart lost 1,200 numbers".to_owned()],
            history: Vec::new(),
            responses: Some(format!("crash-control-{round}.bin")),
        }
    }

    #[test]
    fn shows_losses_bounds_and_recovery_times() {
        let trials = [
            trial("durable", 300, Vec::new()),
            trial("control", 5, (1..=5).map(loss).collect()),
            CrashResult {
                rounds: 42,
                inconclusive: 2,
                ..trial("rare", 40, vec![loss(17)])
            },
            CrashResult {
                first_ok: RecoveryTimes::default(),
                ..trial("none", 0, Vec::new())
            },
        ];
        let mut blocks = Blocks::default();
        add(&mut blocks, &trials);
        blocks.lines(losses(&trials));
        for (name, width) in [("wide", 110), ("narrow", 60)] {
            let style = Style {
                color: false,
                width,
            };
            insta::assert_snapshot!(name, terminal::draw(&blocks, style));
        }
    }

    #[test]
    fn rounds_bounds_up() {
        let bound_of = |upper_bound| {
            bound(&CrashResult {
                upper_bound,
                ..trial("a", 1, Vec::new())
            })
        };
        for (figure, shown) in [
            (Some(0.01), "1 %"),
            (Some(3.0 / 299.0), "1.1 %"),
            (Some(0.3), "30 %"),
            (Some(0.3001), "31 %"),
            (Some(1.0), "100 %"),
            (None, "–"),
        ] {
            assert_eq!(bound_of(figure).replace('\u{a0}', " "), shown);
        }
    }
}
