use floodmark_record::plan::Model;
use proptest::prelude::*;

use super::*;
use crate::fixture;

fn met(condition: &str, run: &Run) -> (Option<bool>, String) {
    let threshold = condition.parse::<Condition>().unwrap().of_run(run);
    (threshold.met, threshold.figure)
}

fn error(condition: &str) -> String {
    condition.parse::<Condition>().unwrap_err().to_string()
}

#[test]
fn every_figure_compares_in_its_own_unit() {
    let run = fixture::closed();
    for (condition, expected, figure) in [
        ("p99 > 900us", true, "990 µs"),
        ("p99 > 1ms", false, "990 µs"),
        ("response.p99>=989us", true, "990 µs"),
        ("service.p50 < 1ms", true, "500 µs"),
        ("p99.9 <= 1ms", true, "999 µs"),
        ("max == 1ms", false, "1.00 ms"),
        ("throughput < 200k/s", true, "184,210/s"),
        ("throughput < 200k", true, "184,210/s"),
        ("lateness.max > 0", true, "1.50 µs"),
        ("goodput == 0", false, "184,210/s"),
        ("failed != 0", false, "0"),
        ("errors > 0%", false, "0 %"),
        ("cpu_us_per_request > 4", true, "4.40 µs"),
        ("cpu_us_per_request > 5us", false, "4.40 µs"),
    ] {
        assert_eq!(
            met(condition, &run),
            (Some(expected), figure.to_owned()),
            "{condition}"
        );
    }
}

#[test]
fn errors_are_a_share_of_the_requests_whose_fate_is_known() {
    let run = fixture::failing();
    // 12,000 intended, 10 in flight at the end, 11,700 ok.
    assert_eq!(met("failed == 290", &run).0, Some(true));
    assert_eq!(met("errors > 2.4%", &run), (Some(true), "2.42 %".into()));
    assert_eq!(met("errors == 2.4%", &exactly(24, 1000)).0, Some(true));
    assert_eq!(met("errors > 0.7%", &exactly(7, 1000)).0, Some(false));
    assert_eq!(met("errors > 0.025", &run).0, Some(false));
    assert_eq!(met("connect_failed > 49", &run).0, Some(true));
    assert_eq!(met("unsent <= 50", &run).0, Some(true));
}

/// A run of which `failed` of `all` requests were rejected.
fn exactly(failed: u64, all: u64) -> Run {
    let mut run = fixture::closed();
    run.requests.intended = all;
    run.requests.sent = all;
    run.requests.ok = all - failed;
    run.requests.rejected = failed;
    run
}

#[test]
fn a_percentile_among_timed_out_requests_is_larger_than_anything() {
    let run = fixture::open_censored();
    assert_eq!(run.plan.model, Model::Open);
    assert_eq!(met("p99.9 > 1h", &run), (Some(true), "> 5 s".into()));
    assert_eq!(met("max < 1h", &run), (Some(false), "> 5 s".into()));
    assert_eq!(met("p50 > 1s", &run).0, Some(false));
    // The mean of times that are not all known is not known.
    assert_eq!(met("mean > 1ms", &run).0, None);
}

#[test]
fn a_group_has_figures_of_its_own() {
    let run = fixture::mixed();
    for (condition, expected, figure) in [
        ("search: p99 > 1ms", Some(false), "792 µs"),
        ("order:service.p50 >= 500us", Some(true), "500 µs"),
        ("order: max > 1h", Some(true), "> 5 s"),
        ("order: errors > 0.1%", Some(true), "0.114 %"),
        ("search: errors > 0%", Some(false), "0 %"),
        ("search: throughput < 150k/s", Some(true), "147,368/s"),
        ("order: wrong == 105", Some(true), "105"),
        ("order: connect.p99 > 1ms", None, "– (not measured)"),
        ("order: cpu_us_per_request > 1", None, "– (not measured)"),
        ("other: p99 > 1ms", None, "– (no such group)"),
    ] {
        assert_eq!(
            met(condition, &run),
            (expected, figure.to_owned()),
            "{condition}"
        );
    }
    let condition: Condition = " search : p99 > 1ms".parse().unwrap();
    assert_eq!(condition.group(), Some("search"));
}

#[test]
fn what_was_not_measured_is_not_decided() {
    let run = fixture::no_answers();
    assert_eq!(met("p99 > 1ms", &run), (None, "– (not measured)".into()));
    assert_eq!(met("throughput < 10", &run).0, None);
    assert_eq!(met("errors > 1%", &run), (Some(true), "100 %".into()));
}

#[test]
fn one_attempt_that_meets_it_is_enough() {
    let (good, mut bad) = (fixture::closed(), fixture::closed());
    bad.attempt = 2;
    bad.response_time_us.p99 = Some(62_000.0);
    let over_attempts = |runs| {
        let condition: Condition = "p99 > 50ms".parse().unwrap();
        condition.of_record(&fixture::record(runs))
    };
    let threshold = over_attempts(vec![good.clone(), bad]);
    assert_eq!(threshold.met, Some(true));
    assert_eq!(threshold.figure, "62.0 ms (attempt 2)");
    assert_eq!(threshold.condition, "p99 > 50ms");
    let mut empty = fixture::no_answers();
    empty.attempt = 2;
    assert_eq!(over_attempts(vec![good.clone(), empty]).met, None);
    let threshold = over_attempts(vec![good.clone(), good]);
    assert_eq!(threshold.met, Some(false));
    assert_eq!(threshold.figure, "990 µs (attempt 1), 990 µs (attempt 1)");
    assert_eq!(over_attempts(Vec::new()).met, None);
}

#[test]
fn errors_name_the_mend() {
    let messages: Vec<String> = [
        "p99",
        ": p99 > 5ms",
        "search: p98 > 5ms",
        "> 5ms",
        "p99 >",
        "p98 > 5ms",
        "P99 > 5ms",
        "p99_9 > 5ms",
        "latency > 5ms",
        "thruput > 5",
        "sevice.p99 > 5ms",
        "p99 = 5ms",
        "p99 => 5ms",
        "p99 >> 5ms",
        "p99 > 50",
        "p99 > 50 parsecs",
        "errors > 1",
        "errors > 101%",
        "errors > many",
        "failed > 1%",
        "throughput < fast",
        "cpu_us_per_request > x",
    ]
    .into_iter()
    .map(error)
    .collect();
    insta::assert_snapshot!(messages.join("\n"));
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC{0,24}") {
        let _ = text.parse::<Condition>();
    }

    #[test]
    fn conditions_of_any_shape_never_panic(
        name in "(p|service\\.|errors|max)[a-z0-9._]{0,6}",
        op in "[<>=!]{0,3}",
        value in "[0-9.]{0,8}(ms|s|%|/s|k|µ)?",
    ) {
        if let Ok(condition) = format!("{name} {op} {value}").parse::<Condition>() {
            prop_assert!(condition.of_run(&fixture::closed()).met.is_some());
        }
    }
}
