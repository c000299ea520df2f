//! What runs are called on the page, and which of many are drawn.

use floodmark_record::result::Record;
use floodmark_record::run::Run;

use super::chart::MOST_CURVES;
use crate::figures::count_of;
use crate::summary::same_load;

/// A run with the name it has everywhere on the page.
#[derive(Debug, Clone)]
pub(crate) struct Named<'a> {
    pub(crate) run: &'a Run,
    pub(crate) name: String,
}

/// Names for all runs of a record, made of what tells them apart and nothing else.
pub(crate) fn named(record: &Record) -> Vec<Named<'_>> {
    let runs = &record.runs;
    let differ =
        |of: &dyn Fn(&Run) -> String| runs.windows(2).any(|two| of(&two[0]) != of(&two[1]));
    type Part = fn(&Run) -> String;
    let trial: Part = |run| run.trial.clone().unwrap_or_default();
    let told_by_plan: [Part; 4] = [
        |run| run.system.clone(),
        |run| run.workload.clone(),
        |run| {
            let set = run
                .setting
                .iter()
                .map(|(knob, value)| format!("{knob}={value}"));
            set.collect::<Vec<_>>().join(" ")
        },
        load_words,
    ];
    let told: Vec<Part> = match runs.iter().all(|run| run.trial.is_some()) {
        true => vec![trial],
        false => (told_by_plan.into_iter())
            .filter(|part| differ(part))
            .collect(),
    };
    let (processes, attempts) = (
        differ(&|run| run.process.to_string()),
        differ(&|run| run.attempt.to_string()),
    );
    let name = |run: &Run| {
        let mut parts: Vec<String> = told.iter().map(|part| part(run)).collect();
        parts.extend(processes.then(|| format!("process {}", run.process)));
        parts.extend(attempts.then(|| format!("attempt {}", run.attempt)));
        parts.retain(|part| !part.is_empty());
        match parts.is_empty() {
            true => format!("attempt {}", run.attempt),
            false => parts.join(", "),
        }
    };
    // Experiments take turns; on the page those of one load stand together.
    let mut loads: Vec<Vec<Named>> = Vec::new();
    for run in runs {
        let named = Named {
            run,
            name: name(run),
        };
        match loads.iter_mut().find(|load| same_load(load[0].run, run)) {
            Some(load) => load.push(named),
            None => loads.push(vec![named]),
        }
    }
    loads.into_iter().flatten().collect()
}

/// How a run was loaded, where runs differ in nothing that has a name of its own.
fn load_words(run: &Run) -> String {
    crate::load_line::describe(&run.plan, 1)
}

/// Runs of the same load one after the other, as the terminal's summary groups them.
pub(crate) fn by_load<'a, 'b>(all: &'b [Named<'a>]) -> impl Iterator<Item = &'b [Named<'a>]> {
    all.chunk_by(|a, b| same_load(a.run, b.run))
}

/// The runs that get a curve, and in words which those are where they are not all.
///
/// Of one load they are spread evenly over its attempts, first and last among them; of several loads each has its run of median
/// throughput, as many loads as there is room for, those first whose seconds were recorded.
pub(crate) fn drawn<'a>(all: &[Named<'a>]) -> (Vec<Named<'a>>, Option<String>) {
    if all.len() <= MOST_CURVES {
        return (all.to_vec(), None);
    }
    let mut loads: Vec<Vec<&Named<'a>>> = Vec::new();
    for one in all {
        match loads
            .iter_mut()
            .find(|load| same_load(load[0].run, one.run))
        {
            Some(load) => load.push(one),
            None => loads.push(vec![one]),
        }
    }
    let n = count_of(all.len() as u64, "run");
    if let [_] = loads.as_slice() {
        let last = MOST_CURVES - 1;
        let spread = (0..=last).map(|i| all[i * (all.len() - 1) / last].clone());
        let words =
            format!("{MOST_CURVES} of {n} are drawn, first and last among them; the table has all");
        return (spread.collect(), Some(words));
    }
    let shown = loads.len().min(MOST_CURVES);
    loads.sort_by_key(|load| load.iter().all(|one| one.run.series.is_empty()));
    let median = |load: &Vec<&Named<'a>>| {
        let mut load = load.clone();
        load.sort_by(|a, b| {
            let of = |one: &Named| one.run.throughput_per_s.unwrap_or(-1.0);
            of(a).total_cmp(&of(b))
        });
        load[load.len() / 2].clone()
    };
    let drawn = loads.iter().take(shown).map(median).collect();
    let words = match loads.len() - shown {
        0 => format!("of {n} that of median throughput is drawn for each load; the table has all"),
        left => format!(
            "of {n} that of median throughput is drawn for each of {shown} loads; {left} more are in the table only"
        ),
    };
    (drawn, Some(words))
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
    fn names_hold_what_tells_runs_apart() {
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
    fn of_many_a_handful_is_drawn_and_that_is_said() {
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
        let (few, said) = drawn(&named(&record));
        let which: Vec<u32> = few.iter().map(|one| one.run.attempt).collect();
        assert_eq!(which, [1, 3, 5, 7, 9]);
        assert!(said.unwrap().starts_with("5 of"));

        let mut two = attempts(3, "a");
        two.extend(attempts(3, "b"));
        let record = fixture::record(two);
        let (few, said) = drawn(&named(&record));
        let which: Vec<&str> = few.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(which, ["a, attempt 2", "b, attempt 2"]);
        assert!(said.unwrap().contains("median throughput"));
    }

    #[test]
    fn what_has_no_seconds_takes_no_place_from_what_has() {
        let runs = (0..MOST_CURVES + 2).map(|i| {
            let mut run = fixture::closed();
            run.system = format!("s{i}");
            if i == 0 {
                run.series.clear();
            }
            run
        });
        let record = fixture::record(runs.collect());
        let (few, said) = drawn(&named(&record));
        let which: Vec<&str> = few.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(which, ["s1", "s2", "s3", "s4", "s5"]);
        assert!(said.unwrap().contains("2 more are in the table only"));
    }
}
