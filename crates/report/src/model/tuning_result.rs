//! The result of a tuning in words: the chosen setting, how it compares, and why the tuning ended.

use floodmark_record::run::Interval;
use floodmark_record::tuning::{TunedSetting, Tuning, TuningEnd, TuningRatio};

use super::figures::{self, count_of, level, optional, rate};
use super::tuning::{SAME, TunedFigure, bounded, setting};
use super::{Emphasis, TextLine, line, plain};

/// Relative half-width above which an interval is too wide to tell settings apart.
const UNCERTAIN: f64 = 0.05;

/// Returns the result in labeled lines.
pub(crate) fn lines(tuning: &Tuning, of: &TunedFigure) -> Vec<TextLine> {
    let mut lines = Vec::new();
    if let Some(chosen) = chosen(tuning) {
        let setting = Emphasis::Strong.span(setting(&chosen.values));
        lines.push(TextLine::new(
            "setting",
            [setting, plain(format!("– {}", figure(chosen)))],
        ));
    }
    lines.extend(choice(tuning).map(|text| line("", text)));
    lines.extend(against_default(tuning).map(|text| line("default", text)));
    let irrelevant = tuning.irrelevant.iter();
    lines.extend(irrelevant.map(|knob| line("note", irrelevance(tuning, knob))));
    let notes = beyond_client(tuning).into_iter();
    let notes = notes.chain(uncertainty(tuning, of)).chain(missing(tuning));
    lines.extend(notes.map(|text| line("note", text)));
    let failed = tuning.failed.iter();
    lines.extend(failed.map(|failed| line("failed", format!("{}: {}", failed.trial, failed.what))));
    let label = match tuning.ended {
        TuningEnd::Complete => "limit",
        TuningEnd::OutOfTime | TuningEnd::NoStart | TuningEnd::Interrupted => "ended",
    };
    lines.push(line(label, &tuning.why_ended));
    lines
}

/// Returns the result in sentences.
pub(crate) fn sentences(tuning: &Tuning, of: &TunedFigure) -> Vec<String> {
    let chosen = chosen(tuning).map(|one| format!("{}: {}", setting(&one.values), figure(one)));
    let irrelevant = tuning.irrelevant.iter();
    let ended = match tuning.ended {
        TuningEnd::Complete => format!("the limit is now {}", tuning.why_ended),
        TuningEnd::OutOfTime | TuningEnd::NoStart | TuningEnd::Interrupted => {
            tuning.why_ended.clone()
        }
    };
    chosen
        .into_iter()
        .chain(choice(tuning))
        .chain(against_default(tuning))
        .chain(irrelevant.map(|knob| irrelevance(tuning, knob)))
        .chain(beyond_client(tuning))
        .chain(uncertainty(tuning, of))
        .chain(missing(tuning))
        .chain([ended])
        .collect()
}

fn chosen(tuning: &Tuning) -> Option<&TunedSetting> {
    tuning.setting(tuning.chosen.as_ref()?)
}

/// Formats a setting's figure: `2,182/s (95 % interval 2,100 – 2,260/s over 4 server processes)`.
fn figure(of: &TunedSetting) -> String {
    let figure = bounded(optional(of.figure_per_s, rate), of.is_lower_bound);
    let processes = count_of(u64::from(of.processes), "server process");
    let basis = match of.processes {
        1 => "within 1 server process".to_owned(),
        _ => format!("over {processes}"),
    };
    match &of.interval {
        Some(interval) => format!("{figure} ({} {basis})", bounds(interval, rate)),
        None => format!("{figure} ({processes})"),
    }
}

fn bounds(interval: &Interval, show: fn(f64) -> String) -> String {
    let confidence = level(interval.confidence);
    format!(
        "{confidence} interval {} to {}",
        show(interval.low),
        show(interval.high)
    )
}

/// Describes how the chosen setting compares with the best one.
fn choice(tuning: &Tuning) -> Option<String> {
    let chosen = chosen(tuning)?;
    let best = tuning.setting(tuning.best.as_ref()?)?;
    let is_complete = tuning.ended == TuningEnd::Complete;
    let Some(ratio) = &tuning.ratio else {
        return Some(match (is_complete, tuning.settings.len()) {
            (false, _) => "best setting so far; not confirmed by fresh processes".to_owned(),
            (true, 1) => "no other value was worth a trial".to_owned(),
            (true, _) if best.is_lower_bound => {
                "no smaller measured setting is within 2 % of its figure".to_owned()
            }
            (true, _) => {
                "the best setting; no smaller measured setting is within 2 % of its figure"
                    .to_owned()
            }
        });
    };
    let ratio_text = ratio_of(ratio);
    let best_setting = setting(&best.values);
    let best_figure = bounded(optional(best.figure_per_s, rate), best.is_lower_bound);
    let smallest = match is_complete {
        true => "the smallest measured setting within 2 % of the best",
        false => {
            "the smallest setting so far within 2 % of the best; not confirmed by fresh processes"
        }
    };
    debug_assert_ne!(chosen.trial, best.trial);
    Some(format!(
        "{smallest}: {ratio_text} of {best_setting} ({best_figure})"
    ))
}

fn ratio_of(ratio: &TuningRatio) -> String {
    let show = |value: f64| format!("{:.1} %", value * 100.0);
    match &ratio.interval {
        None => show(ratio.ratio),
        Some(interval) => {
            let processes = match ratio.confirmed_by {
                0 => String::new(),
                n => format!(", {} each", count_of(u64::from(n), "fresh process")),
            };
            format!(
                "{} ({}{processes})",
                show(ratio.ratio),
                bounds(interval, show_share)
            )
        }
    }
}

fn show_share(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Compares the chosen setting with the default.
fn against_default(tuning: &Tuning) -> Option<String> {
    let default = tuning.settings.first()?;
    let chosen = chosen(tuning)?;
    if chosen.trial == default.trial {
        return Some("the chosen setting is the default".to_owned());
    }
    let (own, before) = chosen.figure_per_s.zip(default.figure_per_s)?;
    if default.is_lower_bound {
        return None;
    }
    let compared = match own / before {
        ratio if (1.0 - SAME..=1.0 + SAME).contains(&ratio) => "about the same".to_owned(),
        ratio => format!("{ratio:.2} times that rate"),
    };
    Some(format!(
        "{} reaches {}; the chosen setting reaches {}",
        setting(&default.values),
        rate(before),
        bounded(compared, chosen.is_lower_bound)
    ))
}

/// States that the client limits the best setting, so that the tuning cannot find better ones.
fn beyond_client(tuning: &Tuning) -> Option<String> {
    let best = tuning.setting(tuning.best.as_ref()?)?;
    let figure = optional(best.figure_per_s, rate);
    best.is_lower_bound.then(|| {
        format!(
            "the client cannot send more than {figure} on time, so settings with a higher capacity cannot be told apart; \
             repeat the tuning with more load threads or agents"
        )
    })
}

/// States why processes have no capacity, unless this ended the tuning.
fn missing(tuning: &Tuning) -> impl Iterator<Item = String> {
    let steps = tuning.steps.iter();
    let has_start = tuning.ended != TuningEnd::NoStart;
    let missing = steps.filter(move |step| has_start && step.figure_per_s.is_none());
    missing.filter_map(|step| {
        let note = step.note.as_ref()?;
        Some(format!(
            "{}, process {}: {note}",
            setting(&step.values),
            step.process
        ))
    })
}

/// States that the chosen setting's processes differ too much to tell settings apart.
fn uncertainty(tuning: &Tuning, of: &TunedFigure) -> Option<String> {
    let chosen = chosen(tuning)?;
    let (figure, interval) = chosen.figure_per_s.zip(chosen.interval.as_ref())?;
    let half = (interval.high - interval.low) / 2.0 / figure;
    (half > UNCERTAIN).then(|| {
        let half = figures::percent(half * 100.0);
        format!(
            "the interval of ± {half} is wider than the 2 % that the search looks for, so another setting may be better; \
             repeat the tuning on an idle host, or with {}",
            of.precision
        )
    })
}

/// Describes a knob that does not matter.
fn irrelevance(tuning: &Tuning, knob: &str) -> String {
    let chosen = chosen(tuning);
    let is_on_line = |one: &&TunedSetting| {
        chosen.is_some_and(|chosen| {
            let others = one.values.iter().filter(|(name, _)| *name != knob);
            others.eq(chosen.values.iter().filter(|(name, _)| *name != knob))
        })
    };
    let values = tuning.settings.iter().filter(is_on_line);
    let values: Vec<u64> = values
        .filter_map(|one| one.values.get(knob).copied())
        .collect();
    let least = values.iter().min().copied().unwrap_or_default();
    let most = values.iter().max().copied().unwrap_or_default();
    format!(
        "{knob} does not matter: all measured values from {least} to {most} are within 2 % of the best"
    )
}
