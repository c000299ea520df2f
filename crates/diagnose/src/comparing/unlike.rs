//! In what two sides differ beside the systems, and what else weakens their comparison.

use std::collections::{BTreeMap, BTreeSet};

use floodmark_record::Record;
use floodmark_record::events::EndReason;
use floodmark_record::run::{Environment, Run, Status};
use floodmark_record::units::show_bytes;
use serde_json::Value;

use super::side::Side;
use crate::validity::plural;

/// What is to be said before a comparison is read, and after.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Likeness {
    /// Differences of load, machine and version: the ratios are of these too.
    pub unlike: Vec<String>,
    /// Validity, order, what is replicated.
    pub notes: Vec<String>,
}

/// Longest value that is printed; of a longer one only its name is.
const LONGEST: usize = 40;

/// Fields of a plan that differ between equal loads: where it goes, and what follows from that.
const OF_NO_LOAD: [&str; 3] = ["target", "seed", "ports_per_source"];

/// Holds two sides against each other, each with the records that it was taken from.
#[must_use]
pub fn likeness(a: (&Side<'_>, &[&Record]), b: (&Side<'_>, &[&Record])) -> Likeness {
    let mut unlike = Vec::new();
    let names = [a.0.name.as_str(), b.0.name.as_str()];
    let set = |side: &Side<'_>, of: fn(&Run) -> &String| -> BTreeSet<String> {
        side.runs().map(|run| of(run).clone()).collect()
    };
    let workloads = [set(a.0, |run| &run.workload), set(b.0, |run| &run.workload)];
    unlike.extend(apart("workload", names, &workloads[0], &workloads[1]));
    unlike.extend(facts_apart(names, &plans(a.0), &plans(b.0)));
    unlike.extend(facts_apart(names, &machines(a.1), &machines(b.1)));
    let mut notes = Vec::new();
    for (side, records) in [a, b] {
        notes.extend(
            validity(side)
                .into_iter()
                .map(|n| format!("{}: {n}", side.name)),
        );
        notes.extend(unknown_servers(records).map(|n| format!("{}: {n}", side.name)));
    }
    notes.extend(one_after_the_other(a.0, b.0));
    Likeness { unlike, notes }
}

/// Whether two sides were sent the same load for the same workload: everything that their plans say but where it went.
pub(super) fn same_load(a: &Side<'_>, b: &Side<'_>) -> bool {
    let workloads = |side: &Side<'_>| -> BTreeSet<String> {
        side.runs().map(|run| run.workload.clone()).collect()
    };
    workloads(a) == workloads(b) && plans(a) == plans(b)
}

type Facts = BTreeMap<String, BTreeSet<String>>;

/// One line where two sets of values are not one and the same value.
fn apart(
    what: &str,
    names: [&str; 2],
    a: &BTreeSet<String>,
    b: &BTreeSet<String>,
) -> Option<String> {
    let list = |set: &BTreeSet<String>| {
        let values: Vec<&str> = set.iter().map(String::as_str).collect();
        let text = values.join(" and ");
        (!text.is_empty() && text.chars().count() <= LONGEST).then_some(text)
    };
    let what = what.replace('_', " ");
    match (a == b, a.len()) {
        (true, 0 | 1) => None,
        (true, _) => Some(match list(a) {
            Some(values) => format!("{what}: {values} on both sides, put together"),
            None => format!("{what}: several on both sides, put together"),
        }),
        (false, _) => Some(match (list(a), list(b)) {
            (Some(a), Some(b)) => format!("{what}: {a} in {}, {b} in {}", names[0], names[1]),
            _ => format!("{what}: not the same"),
        }),
    }
}

fn facts_apart(names: [&str; 2], a: &Facts, b: &Facts) -> Vec<String> {
    let none = BTreeSet::new();
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    keys.into_iter()
        .filter_map(|key| {
            apart(
                key,
                names,
                a.get(key).unwrap_or(&none),
                b.get(key).unwrap_or(&none),
            )
        })
        .collect()
}

/// Every field of the plans, so that one that is added to a plan is compared without being named here.
fn plans(side: &Side<'_>) -> Facts {
    let mut facts = Facts::new();
    for run in side.runs() {
        // The same plan is another load where another load generator drives it.
        let driver = run.client.name.as_deref().unwrap_or("floodmark");
        let drivers = facts.entry("load generator".to_owned()).or_default();
        drivers.insert(driver.to_owned());
        let Ok(Value::Object(fields)) = serde_json::to_value(&run.plan) else {
            continue;
        };
        for (key, mut value) in fields {
            if OF_NO_LOAD.contains(&key.as_str()) {
                continue;
            }
            if let ("mix", Some(mix)) = (key.as_str(), value.as_object_mut()) {
                // The same file may lie in two places.
                mix.remove("file");
            }
            let text = match value {
                Value::Null => "none".to_owned(),
                Value::String(text) => text,
                other => other.to_string(),
            };
            facts.entry(key).or_default().insert(text);
        }
    }
    facts
}

fn machines(records: &[&Record]) -> Facts {
    let mut facts = Facts::new();
    for record in records {
        let Environment {
            kernel,
            cpus,
            cpu_model,
            memory_bytes,
            cgroup,
            limits,
            sysctls,
        } = &record.environment;
        let mut add = |key: &str, value: String| {
            facts.entry(key.to_owned()).or_default().insert(value);
        };
        add("kernel", kernel.clone());
        add("CPUs", cpus.to_string());
        add("CPU model", cpu_model.clone().unwrap_or_default());
        add("memory", memory_bytes.map(show_bytes).unwrap_or_default());
        add("control group", format!("{cgroup:?}"));
        for (name, value) in limits {
            add(&format!("limit {name}"), value.to_string());
        }
        for (name, value) in sysctls {
            add(name, value.clone());
        }
        add("floodmark", record.tool.version.clone());
    }
    facts
}

/// What weakens the figures of a side.
pub(super) fn validity(side: &Side<'_>) -> Vec<String> {
    let runs: Vec<&Run> = side.runs().collect();
    let of = |n: usize| {
        format!(
            "{n} of {}",
            plural(runs.len() as u64, "attempt", "attempts")
        )
    };
    let count = |held: &dyn Fn(&Run) -> bool| runs.iter().filter(|run| held(run)).count();
    let mut notes = Vec::new();
    let bound = count(&|run| run.validity.status == Status::Bound);
    if bound > 0 {
        notes.push(format!(
            "{} bound by floodmark's own threads: the server may take more, and the latencies include waiting in the client; \
             a ratio of such figures says little of the servers",
            of(bound)
        ));
    }
    let early = count(&|run| run.ended.reason != EndReason::Completed);
    if early > 0 {
        notes.push(format!("{} did not run their course", of(early)));
    }
    let broken = count(&|run| run.checks.iter().any(|check| !check.held));
    if broken > 0 {
        notes.push(format!(
            "{} gave answers that break a check: how fast they came means little",
            of(broken)
        ));
    }
    notes
}

/// What `floodmark load` cannot know of the servers it is pointed at.
fn unknown_servers(records: &[&Record]) -> Option<String> {
    let loads = records
        .iter()
        .filter(|record| record.tool.command.get(1).is_some_and(|c| c == "load"))
        .count();
    (loads > 0).then(|| {
        format!(
            "{} of `floodmark load`, each counted as one server process: whether it met a server started afresh is not known; \
             if not, the interval leaves out what fresh ones differ by",
            plural(loads as u64, "result", "results")
        )
    })
}

/// Measured in turn, slow changes of the machine fall on both sides alike.
fn one_after_the_other(a: &Side<'_>, b: &Side<'_>) -> Option<String> {
    let times = |side: &Side<'_>| {
        let starts = || side.runs().map(|run| run.started_unix_ms);
        Some((starts().min()?, starts().max()?))
    };
    let (of_a, of_b) = (times(a)?, times(b)?);
    let (first, gap_ms) = if of_a.1 < of_b.0 {
        (a, of_b.0 - of_a.1)
    } else if of_b.1 < of_a.0 {
        (b, of_a.0 - of_b.1)
    } else {
        return None;
    };
    Some(format!(
        "all of {} was started before the other ({} before), not in turn: what changed on the machine in between is part of \
         the ratios",
        first.name,
        show_gap(gap_ms)
    ))
}

fn show_gap(ms: u64) -> String {
    match ms / 1000 {
        s if s < 120 => format!("{s} s"),
        s if s < 7_200 => format!("{} min", s / 60),
        s if s < 172_800 => format!("{} h", s / 3_600),
        s => format!("{} days", s / 86_400),
    }
}
