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

#[test]
fn prefers_loads_of_the_open_model() {
    // A search runs two closed-model loads, then five open-model loads at rates near capacity.
    let runs = (0..MAX_CURVES + 2).map(|i| {
        let mut run = if i < 2 {
            fixture::closed()
        } else {
            fixture::open_censored()
        };
        run.system = format!("s{i}");
        run
    });
    let record = fixture::record(runs.collect());
    let (few, _) = drawn(&named(&record));
    let which: Vec<&str> = few.iter().map(|one| one.run.system.as_str()).collect();
    assert_eq!(which, ["s2", "s3", "s4", "s5", "s6"]);
}
