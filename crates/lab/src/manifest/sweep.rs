//! A trial that stands for many: one for each combination of some knobs' values.

use std::collections::BTreeMap;

use floodmark_record::sweep::{Point, Sweep};

use super::fields::LONGEST_NAME;
use super::section::Section;
use super::trial::{Server, Trial};
use crate::source::FileError;

/// Most trials that one sweep may come to.
const MOST: usize = 100;

/// The trials that a trial with `sweep` stands for; of one without it that trial alone, and no sweep.
pub(super) fn spread(
    section: &Section<'_>,
    trial: Trial,
) -> Result<(Vec<Trial>, Option<Sweep>), FileError> {
    let lists = section.lists("sweep");
    if lists.is_empty() {
        return match section.has("sweep") {
            true => Err(section.error("sweep", "sweep: which knob? Write { threads = [8, 32] }")),
            false => Ok((vec![trial], None)),
        };
    }
    let Server::System(system) = &trial.server else {
        return Err(section.error(
            "sweep",
            "sweep: only a system has knobs; write a trial for each value",
        ));
    };
    let mut all: Vec<BTreeMap<String, String>> = vec![BTreeMap::new()];
    // The first knob varies fastest: neighbours in the table are neighbours on its curve.
    for (knob, place, values) in lists.iter().rev() {
        let wrong = |what: String| FileError {
            place: place.clone(),
            what: format!("sweep: {what}"),
        };
        if trial.setting.contains_key(knob) {
            return Err(wrong(format!(
                "{knob} is in setting too; leave it out of one of them"
            )));
        }
        for (i, value) in values.iter().enumerate() {
            system.check(knob, value).map_err(wrong)?;
            if values[..i].contains(value) {
                return Err(wrong(format!("{knob}: {value} is there twice")));
            }
        }
        if values.is_empty() {
            return Err(wrong(format!("{knob} has no values")));
        }
        if all.len() * values.len() > MOST {
            return Err(wrong(format!(
                "these are more than {MOST} trials; leave some values out"
            )));
        }
        all = all
            .iter()
            .flat_map(|before| {
                values.iter().map(move |value| {
                    let mut with = before.clone();
                    with.insert(knob.clone(), value.clone());
                    with
                })
            })
            .collect();
    }
    let knobs: Vec<String> = lists.iter().map(|(knob, ..)| knob.clone()).collect();
    let mut trials = Vec::new();
    let mut points = Vec::new();
    for values in all {
        let suffix: String = knobs
            .iter()
            .map(|knob| format!("-{knob}-{}", values[knob]))
            .collect();
        let name = format!("{}{suffix}", trial.name);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.len() > LONGEST_NAME || !name.chars().all(plain) {
            return Err(section.error(
                "sweep",
                format!("sweep: a trial would be called \"{name}\"; names have up to {LONGEST_NAME} letters, digits, \"-\", \"_\" or \".\": give the trial a shorter name"),
            ));
        }
        let mut one = trial.clone();
        one.setting.extend(values.clone());
        one.name.clone_from(&name);
        trials.push(one);
        points.push(Point {
            trial: name,
            values,
        });
    }
    let sweep = Sweep {
        name: trial.name,
        knobs,
        points,
    };
    Ok((trials, Some(sweep)))
}
