//! Names of runs on a page, and the selection of runs to draw.

use floodmark_record::result::Record;
use floodmark_record::run::Run;
use jiff::Timestamp;

use super::chart::MAX_CURVES;
use super::figures::{count_of, joined, settings};
use super::run::same_load;
use super::{capacity, plan};

/// A run with a name that is unique on the page.
#[derive(Debug, Clone)]
pub(crate) struct NamedRun<'a> {
    pub(crate) run: &'a Run,
    pub(crate) name: String,
}

/// Groups the runs of a record by load, and names each run by what distinguishes it.
pub(crate) fn named(record: &Record) -> Vec<NamedRun<'_>> {
    type NamePart = fn(&Run) -> String;
    let runs = &record.runs;
    let of_plan: [NamePart; 4] = [
        |run| run.system.clone(),
        |run| run.workload.clone(),
        |run| settings(&run.setting),
        |run| plan::describe(&run.plan, 1),
    ];
    let attempt: NamePart = |run| format!("attempt {}", run.attempt);
    let repetition: [NamePart; 2] = [|run| format!("process {}", run.process), attempt];
    let differs = |part: &NamePart| runs.windows(2).any(|two| part(&two[0]) != part(&two[1]));
    let mut parts: Vec<NamePart> = if runs.iter().all(|run| run.trial.is_some()) {
        vec![|run| run.trial.clone().unwrap_or_default()]
    } else {
        of_plan.into_iter().filter(differs).collect()
    };
    parts.extend(repetition.into_iter().filter(differs));
    let name = |run: &Run| {
        if let Some(found) = capacity::of_run(record, run) {
            return capacity::run_name(found, run);
        }
        let texts = parts.iter().map(|part| part(run));
        let name = joined(texts.filter(|text| !text.is_empty()), ", ");
        if name.is_empty() { attempt(run) } else { name }
    };
    // Experiments interleave the runs of different trials.
    let mut loads: Vec<Vec<NamedRun<'_>>> = Vec::new();
    for run in runs {
        let name = name(run);
        let named = NamedRun { run, name };
        match loads.iter_mut().find(|load| same_load(load[0].run, run)) {
            Some(load) => load.push(named),
            None => loads.push(vec![named]),
        }
    }
    loads.into_iter().flatten().collect()
}

/// Returns the name of a load, which is a run's name without the process and attempt.
pub(crate) fn load_name(load: &[NamedRun<'_>]) -> String {
    let name = &load[0].name;
    let cut = name.find(", process ").or_else(|| name.find(", attempt "));
    match (load, cut) {
        ([_], _) | (_, None) => name.clone(),
        (_, Some(at)) => name[..at].to_owned(),
    }
}

/// Groups named runs by load.
pub(crate) fn by_load<'a, 'b>(all: &'b [NamedRun<'a>]) -> impl Iterator<Item = &'b [NamedRun<'a>]> {
    all.chunk_by(|a, b| same_load(a.run, b.run))
}

/// Returns the runs to draw as curves. If runs are left out, also returns a note that names the
/// drawn runs.
///
/// For a single load, the drawn runs are spread evenly over its attempts. For several loads, each
/// is represented by the run with median throughput, and loads with per-second data come first.
pub(crate) fn drawn<'a>(all: &[NamedRun<'a>]) -> (Vec<NamedRun<'a>>, Option<String>) {
    if all.len() <= MAX_CURVES {
        return (all.to_vec(), None);
    }
    let mut loads: Vec<&[NamedRun<'a>]> = by_load(all).collect();
    let n = count_of(all.len() as u64, "run");
    if let [_] = loads.as_slice() {
        let last = MAX_CURVES - 1;
        let spread = (0..=last).map(|i| all[i * (all.len() - 1) / last].clone());
        let which = format!(
            "The curves show {MAX_CURVES} of {n}, including the first and the last. The table shows all."
        );
        return (spread.collect(), Some(which));
    }
    let shown = loads.len().min(MAX_CURVES);
    loads.sort_by_key(|load| load.iter().all(|one| one.run.series.is_empty()));
    let drawn = loads.iter().take(shown);
    let drawn = drawn.filter_map(|load| median(load.to_vec())).collect();
    let which = format!(
        "The curves show the run with median throughput for {shown} of {}. The table shows all {n}.",
        count_of(loads.len() as u64, "load")
    );
    (drawn, Some(which))
}

/// Returns the run with the median throughput, or `None` without runs.
pub(crate) fn median(mut runs: Vec<NamedRun<'_>>) -> Option<NamedRun<'_>> {
    let throughput = |one: &NamedRun<'_>| one.run.throughput_per_s.unwrap_or(-1.0);
    runs.sort_by(|a, b| throughput(a).total_cmp(&throughput(b)));
    let middle = runs.len() / 2;
    runs.into_iter().nth(middle)
}

/// Formats a wall-clock time in UTC, from milliseconds since 1970: `2026-11-21 16:08:16 UTC`.
pub(crate) fn timestamp(unix_ms: u64) -> String {
    let timestamp = formatted(unix_ms, "%Y-%m-%d %H:%M:%S UTC");
    timestamp.unwrap_or_else(|| "at an unknown time".to_owned())
}

/// Formats a Unix time in milliseconds as a UTC time without seconds: `2026-11-21 16:08`.
pub(crate) fn minute(unix_ms: u64) -> String {
    formatted(unix_ms, "%Y-%m-%d %H:%M").unwrap_or_default()
}

/// Formats a Unix time in milliseconds as a UTC date: `Nov 21`.
pub(crate) fn day(unix_ms: u64) -> String {
    formatted(unix_ms, "%b %-d").unwrap_or_default()
}

/// Formats a wall-clock time in UTC as in JUnit files, from milliseconds since 1970:
/// `2026-11-21T16:08:16`. Returns `None` if the time is out of range.
pub(crate) fn iso_timestamp(unix_ms: u64) -> Option<String> {
    formatted(unix_ms, "%Y-%m-%dT%H:%M:%S")
}

fn formatted(unix_ms: u64, format: &str) -> Option<String> {
    let ms = i64::try_from(unix_ms).ok()?;
    let timestamp = Timestamp::from_millisecond(ms).ok()?;
    Some(timestamp.strftime(format).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn names(runs: Vec<Run>) -> Vec<String> {
        let record = fixture::record(runs);
        named(&record).into_iter().map(|one| one.name).collect()
    }

    #[test]
    fn names_contain_the_differences() {
        let run = |system: &str, attempt| {
            let mut run = fixture::closed();
            (run.system, run.attempt) = (system.to_owned(), attempt);
            run
        };
        assert_eq!(names(vec![run("a", 1)]), ["attempt 1"]);
        assert_eq!(names(vec![run("a", 1), run("b", 1)]), ["a", "b"]);
        assert_eq!(
            names(vec![run("a", 1), run("a", 2)]),
            ["attempt 1", "attempt 2"]
        );
        assert_eq!(names(vec![run("a", 1), run("b", 2)])[1], "b, attempt 2");
        let mut fresh = run("a", 1);
        fresh.plan.connection_use = floodmark_record::plan::ConnectionUse::Fresh;
        assert!(names(vec![run("a", 1), fresh])[1].contains("fresh"));
    }

    #[test]
    fn draws_a_few_of_many_runs_and_notes_which() {
        let attempts = |n: u32, system: &str| -> Vec<Run> {
            let one = |attempt| {
                let mut run = fixture::closed();
                (run.system, run.attempt) = (system.to_owned(), attempt);
                run.throughput_per_s = Some(f64::from(attempt));
                run
            };
            (1..=n).map(one).collect()
        };
        let record = fixture::record(attempts(9, "a"));
        let (few, note) = drawn(&named(&record));
        let which: Vec<u32> = few.iter().map(|one| one.run.attempt).collect();
        assert_eq!(which, [1, 3, 5, 7, 9]);
        assert!(note.unwrap().contains("5 of"));

        let mut two = attempts(3, "a");
        two.extend(attempts(3, "b"));
        let record = fixture::record(two);
        let (few, note) = drawn(&named(&record));
        let which: Vec<&str> = few.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(which, ["a, attempt 2", "b, attempt 2"]);
        assert!(note.unwrap().contains("median throughput"));
    }

    #[test]
    fn prefers_runs_with_data_per_second() {
        let runs = (0..MAX_CURVES + 2).map(|i| {
            let mut run = fixture::closed();
            run.system = format!("s{i}");
            if i == 0 {
                run.series.clear();
            }
            run
        });
        let record = fixture::record(runs.collect());
        let (few, note) = drawn(&named(&record));
        let which: Vec<&str> = few.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(which, ["s1", "s2", "s3", "s4", "s5"]);
        assert!(note.unwrap().contains("for 5 of 7"));
    }
}
