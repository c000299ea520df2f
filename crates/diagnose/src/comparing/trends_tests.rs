use floodmark_record::host::Environment;
use floodmark_record::run::Status;

use super::*;
use crate::comparing::tests::record;

/// Returns results one minute apart, with the given throughputs for system `a`.
fn results(rates: &[f64]) -> Vec<NamedRecord> {
    let named = (0..).zip(rates).map(|(i, per_s)| {
        let mut record = record(&[&[*per_s]], &[]);
        record.runs[0].started_unix_ms = i * 60_000;
        NamedRecord {
            name: format!("day-{i:02}"),
            record,
        }
    });
    named.collect()
}

const THROUGHPUT: [ComparedMetric; 1] = [ComparedMetric::Throughput];

const SLOWER_SINCE_8: [f64; 14] = [
    100.0, 101.0, 99.0, 100.5, 99.5, 100.2, 99.8, 100.1, 90.0, 91.0, 89.5, 90.2, 89.8, 90.4,
];

#[test]
fn reports_the_first_result_of_a_new_level() {
    let mut results = results(&SLOWER_SINCE_8);
    // The order in which the results are listed does not matter.
    results.reverse();
    let (series, notes) = trend_series(&results, &THROUGHPUT);
    let [series] = &series[..] else {
        panic!("{series:?}")
    };
    assert_eq!(series.name, "a");
    assert_eq!(series.results[8].name, "day-08");
    let [before, after] = &series.trends[0].levels[..] else {
        panic!("{series:?}")
    };
    assert_eq!((before.first, after.first), (0, 8));
    let change = after.change.unwrap();
    assert!(
        change.low < 0.9 && 0.9 < change.high && change.high < 0.93,
        "{change:?}"
    );
    assert!(
        notes.is_empty() && series.host_changes.is_empty(),
        "{notes:?}"
    );
}

#[test]
fn results_without_a_figure_keep_their_place() {
    let mut results = results(&SLOWER_SINCE_8);
    for i in [2, 5] {
        results[i].record.runs[0].validity.status = Status::Invalid;
    }
    let (series, notes) = trend_series(&results, &THROUGHPUT);
    let trend = &series[0].trends[0];
    assert_eq!((trend.figures.len(), trend.measured()), (14, 12));
    assert_eq!(trend.levels[1].first, 8);
    assert_eq!(notes, ["day-02, day-05: 1 attempt excluded: invalid"]);
}

#[test]
fn another_load_starts_another_series() {
    let mut results = results(&[100.0, 101.0, 50.0, 51.0]);
    for result in &mut results[2..] {
        result.record.runs[0].plan.timeout = std::time::Duration::from_secs(9);
    }
    let (series, notes) = trend_series(&results, &THROUGHPUT);
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    assert_eq!(names, ["a", "a since day-02"]);
    assert_eq!([0, 1].map(|i| series[i].results.len()), [2, 2]);
    assert!(
        notes[0].starts_with("a since day-02: the load differs: timeout"),
        "{notes:?}"
    );
}

#[test]
fn a_trend_shows_changes_to_the_host_and_version() {
    let mut results = results(&[100.0, 101.0, 99.0]);
    results[1].record.environment = Environment {
        kernel: "6.12".to_owned(),
        ..Environment::default()
    };
    results[2].record.environment = results[1].record.environment.clone();
    results[2].record.tool.version = "0.2.0".to_owned();
    let (series, _) = trend_series(&results, &THROUGHPUT);
    let [kernel, version] = &series[0].host_changes[..] else {
        panic!("{series:?}")
    };
    assert_eq!((kernel.first, version.first), (1, 2));
    assert_eq!(
        version.differences,
        ["floodmark: 0.1.0 in day-01, 0.2.0 in day-02"]
    );
}

#[test]
fn metrics_that_were_never_measured_have_no_trend() {
    let metrics = [ComparedMetric::Throughput, ComparedMetric::Capacity];
    let (series, notes) = trend_series(&results(&[100.0, 101.0]), &metrics);
    assert_eq!(series[0].trends.len(), 1);
    assert!(notes.is_empty(), "{notes:?}");
}
