//! `sweep`: one trial per combination of knob values.

use std::collections::BTreeMap;

use floodmark_plan::FileError;
use floodmark_plan::toml_file::{Located, LocatedMap, TomlFile};
use floodmark_plan::values::{MAX_NAME, ScalarText, is_name};
use floodmark_record::experiment::{Sweep, SweepPoint};

use super::trial::Trial;

/// Maximum number of trials in one sweep.
const MAX_TRIALS: usize = 100;

/// The key `sweep`: knobs and their lists of values.
pub(super) type SweepSection = LocatedMap<Vec<ScalarText>>;

/// Expands a trial into the trials of its sweep.
pub(super) fn spread(
    file: &TomlFile,
    section: &Located<SweepSection>,
    trial: Trial,
) -> Result<(Vec<Trial>, Sweep), FileError> {
    let invalid = |what: String| file.error(&section.span(), format!("sweep: {what}"));
    let mut lists: Vec<(&String, &Located<Vec<ScalarText>>)> = section.iter().collect();
    // Restore the file's order, because the first knob is the axis of the curve.
    lists.sort_by_key(|(_, values)| values.span().start);
    if lists.is_empty() {
        return Err(invalid(
            "no knobs; add knobs with lists of values, such as { threads = [8, 32] }".to_owned(),
        ));
    }
    let mut all: Vec<BTreeMap<String, String>> = vec![BTreeMap::new()];
    // Vary the first knob fastest, so that adjacent rows of the table are adjacent on the curve.
    for (knob, values) in lists.iter().rev() {
        let invalid = |what: String| file.error(&values.span(), format!("sweep: {what}"));
        let values: Vec<&String> = values.iter().map(|value| &value.0).collect();
        if trial.setting.contains_key(*knob) {
            return Err(invalid(format!(
                "`{knob}` is in both `sweep` and `setting`; remove one of them"
            )));
        }
        for (i, value) in values.iter().enumerate() {
            trial.server.check(knob, value).map_err(invalid)?;
            if values[..i].contains(value) {
                return Err(invalid(format!("{knob}: duplicate value {value}")));
            }
        }
        if values.is_empty() {
            return Err(invalid(format!("`{knob}` has no values")));
        }
        if all.len() * values.len() > MAX_TRIALS {
            return Err(invalid(format!(
                "more than {MAX_TRIALS} trials; remove some values"
            )));
        }
        let combined = all.iter().flat_map(|before| {
            values.iter().map(|value| {
                let mut setting = before.clone();
                setting.insert((*knob).clone(), (*value).clone());
                setting
            })
        });
        all = combined.collect();
    }
    let knobs: Vec<String> = lists.iter().map(|(knob, _)| (*knob).clone()).collect();
    let mut trials = Vec::new();
    let mut points = Vec::new();
    for values in all {
        let suffix: String = knobs
            .iter()
            .map(|knob| format!("-{knob}-{}", values[knob]))
            .collect();
        let name = format!("{}{suffix}", trial.name);
        if !is_name(&name) {
            return Err(invalid(format!(
                "the trial name \"{name}\" is invalid: names have up to {MAX_NAME} letters, digits, \"-\", \"_\" or \".\"; \
                 give the trial a shorter name"
            )));
        }
        let mut one = trial.clone();
        one.setting.extend(values.clone());
        one.name.clone_from(&name);
        trials.push(one);
        points.push(SweepPoint {
            trial: name,
            values,
        });
    }
    let sweep = Sweep {
        name: trial.name,
        knobs,
        points,
    };
    Ok((trials, sweep))
}
