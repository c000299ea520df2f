//! Weaknesses of a comparison, such as differences in load, host or version between two results.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use floodmark_record::Record;
use floodmark_record::events::EndReason;
use floodmark_record::host::Environment;
use floodmark_record::plan::{Check, Http, Http2, Plan};
use floodmark_record::run::{Run, Status};
use floodmark_record::units::{show_bytes, show_exact_bytes, show_rough_duration};
use serde_json::Value;

use super::run_group::RunGroup;
use crate::text::plural;

/// Weaknesses of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caveats {
    /// Differences in load, host and version, which also affect the ratios.
    pub unlike: Vec<String>,
    /// Notes on validity, order and repetition.
    pub notes: Vec<String>,
}

/// Maps each property to its values in a group's runs.
type Properties = BTreeMap<String, BTreeSet<String>>;

/// Maximum length of a printed value, in characters. Longer values are printed as "different".
const MAX_VALUE: usize = 40;

/// Property that is listed first.
const WORKLOAD: &str = "workload";

/// Plan fields that are not part of the load, and the field that [`http`] splits into properties.
const NOT_OF_LOAD: [&str; 4] = ["target", "seed", "ports_per_source", "http"];

/// Returns the caveats for a comparison of two groups. Each argument contains a group and the
/// group's records.
#[must_use]
pub fn caveats(a: (&RunGroup<'_>, &[Record]), b: (&RunGroup<'_>, &[Record])) -> Caveats {
    let names = [a.0.name.as_str(), b.0.name.as_str()];
    let mut unlike = differences(names, &load(a.0), &load(b.0));
    unlike.extend(differences(names, &hosts(a.1), &hosts(b.1)));
    let [of_a, of_b] = [a, b].map(|(group, records)| {
        let mut notes = validity_notes(group);
        notes.extend(unknown_processes(records));
        notes
    });
    let (of_both, of_a): (Vec<String>, _) = of_a.into_iter().partition(|n| of_b.contains(n));
    let of_b = Vec::from_iter(of_b.into_iter().filter(|note| !of_both.contains(note)));
    let of_both = of_both.iter().map(|note| format!("each result: {note}"));
    let mut notes = Vec::from_iter(of_both);
    notes.extend([a.0.named(&of_a), b.0.named(&of_b)].concat());
    notes.extend(not_interleaved(a.0, b.0));
    let has_interval =
        |group: &RunGroup<'_>| group.processes.len() > 1 || !group.capacities.is_empty();
    if !has_interval(a.0) || !has_interval(b.0) {
        notes.push(MEASURE_BOTH.to_owned());
    }
    Caveats { unlike, notes }
}

/// Advice for results of a single server process.
const MEASURE_BOTH: &str = "to decide whether two versions differ, measure them together: floodmark compare \
     --baseline COMMAND --candidate COMMAND";

/// Returns one line for each property that differs or has several values.
pub(super) fn differences(names: [&str; 2], a: &Properties, b: &Properties) -> Vec<String> {
    let none = BTreeSet::new();
    let mut keys = Vec::from_iter(a.keys().chain(b.keys()).collect::<BTreeSet<_>>());
    // The workload matters most, so it comes first.
    keys.sort_by_key(|key| *key != WORKLOAD);
    let list = |values: &BTreeSet<String>| {
        let text = Vec::from_iter(values.iter().map(String::as_str)).join(" and ");
        (!text.is_empty() && text.chars().count() <= MAX_VALUE).then_some(text)
    };
    let lines = keys.into_iter().filter_map(|key| {
        let [a, b] = [a, b].map(|properties| properties.get(key).unwrap_or(&none));
        let values = match (list(a), list(b)) {
            _ if a == b && a.len() < 2 => return None,
            (Some(values), _) if a == b => format!("{values} in both"),
            _ if a == b => "several values in both".to_owned(),
            (Some(a), Some(b)) => format!("{a} in {}, {b} in {}", names[0], names[1]),
            _ => "different".to_owned(),
        };
        Some(format!("{}: {values}", key.replace('_', " ")))
    });
    lines.collect()
}

/// Returns the workload, the client and all plan fields. New plan fields are therefore compared
/// automatically.
pub(super) fn load(group: &RunGroup<'_>) -> Properties {
    let mut properties = Properties::new();
    let mut add = |key: &str, value| properties.entry(key.to_owned()).or_default().insert(value);
    // The loads of a search follow from its first load and its objectives.
    let runs = if group.capacities.is_empty() {
        usize::MAX
    } else {
        1
    };
    for found in &group.capacities {
        add("objectives", found.settings.objectives.join(", "));
    }
    for run in group.runs().take(runs) {
        add(WORKLOAD, run.workload.clone());
        let client = run.client.name.as_deref().unwrap_or("floodmark");
        add("load generator", client.to_owned());
        for (key, value) in http(&run.plan) {
            add(key, value);
        }
        let mut plan = run.plan.clone();
        if let Some(Check::Api(api)) = &mut plan.check {
            // Files with different lines can describe the same check.
            api.value_places.clear();
        }
        let Ok(Value::Object(fields)) = serde_json::to_value(&plan) else {
            continue;
        };
        for (key, mut value) in fields {
            if NOT_OF_LOAD.contains(&key.as_str()) {
                continue;
            }
            if let ("mix", Some(mix)) = (key.as_str(), value.as_object_mut()) {
                // Files with different names can contain the same mix.
                mix.remove("file");
            }
            let text = match value {
                Value::Null => "none".to_owned(),
                Value::String(text) => text,
                other => other.to_string(),
            };
            add(&key, text);
        }
    }
    properties
}

/// Returns the version of HTTP, and its settings.
fn http(plan: &Plan) -> [(&'static str, String); 4] {
    let (version, [window, table]) = match plan.http {
        Http::V1 => ("1.1", ["none", "none"].map(str::to_owned)),
        Http::V2(Http2 {
            streams: _,
            window_bytes,
            table_bytes,
            // One PING per second is a measurement, not load.
            ping: _,
        }) => {
            let sizes = [window_bytes, table_bytes];
            ("2", sizes.map(|bytes| show_exact_bytes(bytes.into())))
        }
    };
    [
        ("HTTP version", version.to_owned()),
        ("streams", plan.http.streams().to_string()),
        ("HTTP/2 window", window),
        ("HTTP/2 header table", table),
    ]
}

/// Returns the properties of the records' hosts, and the versions of floodmark.
pub(super) fn hosts(records: &[Record]) -> Properties {
    let mut properties = Properties::new();
    for record in records {
        let Environment {
            kernel,
            cpus,
            // Only the number of allowed CPUs (`cpus`) is compared.
            allowed_cpus: _,
            cpu_model,
            memory_bytes,
            cgroup,
            limits,
            sysctls,
        } = &record.environment;
        let named = [
            ("kernel", kernel.clone()),
            ("CPUs", cpus.to_string()),
            ("CPU model", cpu_model.clone().unwrap_or_default()),
            ("memory", memory_bytes.map(show_bytes).unwrap_or_default()),
            ("control group", format!("{cgroup:?}")),
            ("floodmark", record.tool.version.clone()),
        ];
        let named = named.map(|(name, value)| (name.to_owned(), value));
        let limits = limits
            .iter()
            .map(|(name, value)| (format!("limit {name}"), value.to_string()));
        let sysctls = sysctls.clone().into_iter();
        for (name, value) in sysctls.chain(named).chain(limits) {
            properties.entry(name).or_default().insert(value);
        }
    }
    properties
}

/// Returns notes on runs that were client-bound or unsteady, that ended early, or that have failed or
/// unevaluated checks. The notes do not contain the group's name.
pub(super) fn validity_notes(group: &RunGroup<'_>) -> Vec<String> {
    let total = plural(group.runs().count() as u64, "attempt");
    let count = |problem: fn(&Run) -> bool| group.runs().filter(|run| problem(run)).count();
    let bound = count(|run| run.validity.is_lower_bound());
    let unsteady = count(|run| run.validity.status == Status::Unsteady);
    let ended = count(|run| run.ended.reason != EndReason::Completed);
    let incorrect = count(|run| run.checks.iter().any(|check| check.held == Some(false)));
    let unchecked = count(|run| run.checks.iter().any(|check| check.held.is_none()));
    let problems = [
        (
            bound,
            "bound by the client, so the figures say little about the servers",
        ),
        (
            unsteady,
            "unsteady: the 95 % interval of their throughput is wider than ± 10 %",
        ),
        (ended, "ended early"),
        (
            incorrect,
            "failed a check, so their figures are meaningless",
        ),
        (unchecked, "had a check that was not evaluated"),
    ];
    let found = problems.iter().filter(|(n, _)| *n > 0);
    found
        .map(|(n, meaning)| format!("{n} of {total} {meaning}"))
        .collect()
}

/// Returns a note if several records come from `floodmark load`, which does not know when the
/// server started. A single result has no interval.
fn unknown_processes(records: &[Record]) -> Option<String> {
    let is_load = |record: &&Record| record.tool.command.get(1).is_some_and(|c| c == "load");
    let results = match records.iter().filter(is_load).count() {
        0 | 1 => return None,
        results => plural(results as u64, "result"),
    };
    Some(format!(
        "{results} from `floodmark load`, each counted as one server process; if the server was not \
         restarted in between, the interval is too narrow"
    ))
}

/// Returns a note if the runs of the two groups were not interleaved. Slow changes on the host
/// affect interleaved groups equally.
fn not_interleaved(a: &RunGroup<'_>, b: &RunGroup<'_>) -> Option<String> {
    let times = |group: &RunGroup<'_>| {
        let starts = || group.runs().map(|run| run.started_unix_ms);
        Some((starts().min()?, starts().max()?))
    };
    let ((from_a, to_a), (from_b, to_b)) = (times(a)?, times(b)?);
    let (first, gap_ms) = match (from_b.checked_sub(to_a), from_a.checked_sub(to_b)) {
        (Some(gap_ms @ 1..), _) => (a, gap_ms),
        (_, Some(gap_ms @ 1..)) => (b, gap_ms),
        _ => return None,
    };
    Some(format!(
        "not interleaved: {} was measured {} earlier; changes on the host in the meantime \
         affect the ratios",
        first.name,
        show_rough_duration(Duration::from_millis(gap_ms))
    ))
}
