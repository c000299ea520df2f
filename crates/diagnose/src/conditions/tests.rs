//! Tests for conditions.

use floodmark_record::Counts;
use floodmark_record::comparison::{Compared, Conclusion};
use floodmark_record::host::{Environment, ToolInfo};
use floodmark_record::run::{GroupFigures, HttpBytes};
use floodmark_record::times::Times;
use proptest::prelude::*;

use super::*;
use crate::testing::{capacity, closed, open};

/// Returns times with the given percentiles, in microseconds.
fn times(p50: f64, p99: f64) -> Times {
    Times {
        count: 1_000,
        mean: Some(p50),
        p50: Some(p50),
        p90: Some(p99 * 0.9),
        p95: Some(p99 * 0.95),
        p99: Some(p99),
        p99_9: Some(p99 + 9.0),
        p99_99: Some(p99 + 10.0),
        max: Some(p99 + 10.3),
        ..Times::default()
    }
}

/// Returns a closed-model run at 184,210/s with a p99 of 990 µs.
fn fast() -> Run {
    let mut run = crate::next::tests::run(closed());
    run.throughput_per_s = Some(184_210.0);
    run.goodput_per_s = Some(184_210.0);
    run.response_time_us = times(500.0, 990.0);
    run.service_time_us = times(500.0, 990.0);
    run.lateness_us.max = Some(1.5);
    run.client.cpu_us_per_request = Some(4.4);
    run
}

/// Returns a run in which `ok` of the intended requests succeeded and all others were rejected.
fn rejecting(intended: u64, ok: u64) -> Run {
    let mut run = fast();
    run.requests = Counts {
        intended,
        sent: intended,
        ok,
        rejected: intended - ok,
        ..Counts::default()
    };
    run
}

/// Returns a run without any response.
fn unreachable() -> Run {
    let mut run = rejecting(50, 0);
    run.response_time_us = Times::default();
    (run.throughput_per_s, run.goodput_per_s) = (None, None);
    run
}

fn censored(times: Times) -> Times {
    Times {
        censored: 5,
        mean: None,
        p99_9: None,
        p99_99: None,
        max: None,
        ..times
    }
}

fn record(runs: Vec<Run>) -> Record {
    let tool = ToolInfo::floodmark("", Vec::new());
    let mut record = Record::new(tool, Environment::default());
    record.runs = runs;
    record
}

fn judge(condition: &str, run: &Run) -> (Option<bool>, String) {
    condition.parse::<RunCondition>().unwrap().judge_run(run)
}

#[test]
fn compares_figures_in_their_unit() {
    let run = fast();
    for (condition, met, figure) in [
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
        let judged = judge(condition, &run);
        assert_eq!(judged, (Some(met), figure.to_owned()), "{condition}");
    }
}

#[test]
fn errors_are_a_share_of_requests_with_known_outcome() {
    let mut run = rejecting(12_000, 11_890);
    run.requests = Counts {
        rejected: 0,
        sent: 11_900,
        ok: 11_700,
        wrong: 190,
        in_flight_at_end: 10,
        connect_failed: 50,
        unsent: 50,
        ..run.requests
    };
    assert_eq!(judge("failed == 290", &run).0, Some(true));
    assert_eq!(judge("errors > 2.4%", &run), (Some(true), "2.42 %".into()));
    assert_eq!(
        judge("errors == 2.4%", &rejecting(1_000, 976)).0,
        Some(true)
    );
    assert_eq!(
        judge("errors > 0.7%", &rejecting(1_000, 993)).0,
        Some(false)
    );
    assert_eq!(judge("errors > 0.025", &run).0, Some(false));
    assert_eq!(judge("connect_failed > 49", &run).0, Some(true));
    assert_eq!(judge("unsent <= 50", &run).0, Some(true));
}

#[test]
fn percentile_among_timed_out_requests_is_infinite() {
    let mut run = crate::next::tests::run(open());
    run.response_time_us = censored(times(500.0, 990.0));
    assert_eq!(judge("p99.9 > 1h", &run), (Some(true), "> 5 s".into()));
    assert_eq!(judge("max < 1h", &run), (Some(false), "> 5 s".into()));
    assert_eq!(judge("p50 > 1s", &run).0, Some(false));
    assert_eq!(judge("mean > 1ms", &run).0, None);
}

#[test]
fn groups_have_their_own_figures() {
    let group = |name: &str, response_time_us: Times, wrong: u64| GroupFigures {
        name: name.to_owned(),
        throughput_per_s: Some(147_368.0),
        goodput_per_s: None,
        requests: Counts {
            intended: 92_105,
            sent: 92_105,
            ok: 92_105 - wrong,
            wrong,
            ..Counts::default()
        },
        bytes: HttpBytes::default(),
        service_time_us: response_time_us.clone(),
        response_time_us,
        blocked_us: Times::default(),
        lateness_us: Times::default(),
        first_byte_us: Times::default(),
        error_time_us: Times::default(),
    };
    let mut run = fast();
    run.groups = vec![
        group("search", times(400.0, 792.0), 0),
        group("order", censored(times(500.0, 990.0)), 105),
    ];
    for (condition, met, figure) in [
        ("search: p99 > 1ms", Some(false), "792 µs"),
        ("order:service.p50 >= 500us", Some(true), "500 µs"),
        ("order: max > 1h", Some(true), "> 5 s"),
        ("order: errors > 0.1%", Some(true), "0.114 %"),
        ("search: errors > 0%", Some(false), "0 %"),
        ("search: throughput < 150k/s", Some(true), "147,368/s"),
        ("order: wrong == 105", Some(true), "105"),
        ("order: connect.p99 > 1ms", None, "not measured"),
        ("order: cpu_us_per_request > 1", None, "not measured"),
        ("other: p99 > 1ms", None, "not measured (no such group)"),
    ] {
        let judged = judge(condition, &run);
        assert_eq!(judged, (met, figure.to_owned()), "{condition}");
    }
    let condition: RunCondition = " search : p99 > 1ms".parse().unwrap();
    assert_eq!(condition.group.as_deref(), Some("search"));
}

#[test]
fn missing_figures_are_not_judged() {
    let run = unreachable();
    assert_eq!(judge("p99 > 1ms", &run), (None, "not measured".into()));
    assert_eq!(judge("throughput < 10", &run).0, None);
    assert_eq!(judge("errors > 1%", &run), (Some(true), "100 %".into()));
}

#[test]
fn a_single_attempt_can_meet_a_condition() {
    let judge = |runs| {
        let condition: RunCondition = "p99 > 50ms".parse().unwrap();
        condition.judge(&record(runs))
    };
    let (good, mut bad) = (fast(), fast());
    bad.attempt = 2;
    bad.response_time_us.p99 = Some(62_000.0);
    assert_eq!(
        judge(vec![good.clone(), bad]),
        Threshold {
            condition: "p99 > 50ms".to_owned(),
            met: Some(true),
            figure: "62.0 ms (attempt 2)".to_owned(),
        }
    );
    let mut empty = unreachable();
    empty.attempt = 2;
    assert_eq!(judge(vec![good.clone(), empty]).met, None);
    let threshold = judge(vec![good.clone(), good]);
    assert_eq!(threshold.met, Some(false));
    assert_eq!(threshold.figure, "990 µs (attempt 1), 990 µs (attempt 1)");
    assert_eq!(judge(Vec::new()).met, None);
}

#[test]
fn errors_name_the_fix() {
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
    .map(|text| text.parse::<RunCondition>().unwrap_err().to_string())
    .collect();
    insta::assert_snapshot!(messages.join("\n"));
}

fn comparison(low: Option<f64>) -> Comparison {
    let figures = Compared {
        figure: Some(1.0),
        processes: 5,
        attempts: 5,
    };
    Comparison {
        baseline: String::new(),
        candidate: String::new(),
        metric: ComparedMetric::P99,
        ratio: Some(1.1),
        low,
        high: low.map(|_| 1.2),
        confidence: 0.95,
        conclusion: Conclusion::Undecided,
        repetitions_needed: None,
        repetitions_load_s: None,
        method: String::new(),
        figures_baseline: figures.clone(),
        figures_candidate: figures,
        notes: Vec::new(),
    }
}

#[test]
fn ratio_conditions_judge_the_named_number() {
    for (text, met) in [
        ("p99 ratio > 1.05", Some(true)),
        (" p99  ratio>1.15 ", Some(false)),
        ("p99 low > 1", Some(false)),
        ("p99 high >= 1.2", Some(true)),
    ] {
        let condition: RatioCondition = text.parse().unwrap();
        assert_eq!(condition.subject.metric, ComparedMetric::P99);
        let judged = condition.judge(&comparison(Some(0.9)));
        assert_eq!((judged.met, judged.condition.as_str()), (met, text.trim()));
    }
    let unknown = "p99 low > 1".parse::<RatioCondition>().unwrap();
    let judged = unknown.judge(&comparison(None));
    assert_eq!((judged.met, judged.figure.as_str()), (None, "not measured"));
}

#[test]
fn ratio_errors_name_the_fix() {
    for (text, fix) in [
        ("", "such as 'p99 ratio > 1.05'"),
        ("p99 > 1.05", "write a metric, \"ratio\""),
        ("p99 ratio", "is not a condition"),
        ("p99 middle > 1", "is not a condition"),
        ("p98 ratio > 1", "unknown figure \"p98\""),
        ("p99 ratio => 1", "did you mean \">=\"?"),
        ("p99 ratio > 5%", "\"5%\" is not a ratio"),
        ("p99 ratio > nan", "\"nan\" is not a ratio"),
        ("p99 ratio >", "is not a condition"),
    ] {
        let error = text.parse::<RatioCondition>().unwrap_err().to_string();
        assert!(error.contains(fix), "{error}");
    }
}

fn judge_capacity(text: &str, result: &CapacityResult) -> Option<bool> {
    let condition: CapacityCondition = text.parse().unwrap();
    condition.judge(Some(result)).met
}

#[test]
fn compares_the_estimate_and_its_bounds() {
    let result = capacity(20_000.0, 19_700.0, 20_300.0);
    assert_eq!(judge_capacity("capacity < 20k/s", &result), Some(false));
    assert_eq!(judge_capacity("capacity <= 20k/s", &result), Some(true));
    assert_eq!(judge_capacity("low < 19800/s", &result), Some(true));
    assert_eq!(judge_capacity("high < 20k/s", &result), Some(false));
}

#[test]
fn a_bound_decides_only_in_one_direction() {
    let mut result = capacity(20_000.0, 19_700.0, 20_300.0);
    result.bound = Some(CapacityBound::Lower);
    assert_eq!(judge_capacity("capacity < 10k/s", &result), Some(false));
    assert_eq!(judge_capacity("capacity < 30k/s", &result), None);
    assert_eq!(judge_capacity("capacity > 10k/s", &result), Some(true));
    result.bound = Some(CapacityBound::Upper);
    assert_eq!(judge_capacity("capacity < 30k/s", &result), Some(true));
    assert_eq!(judge_capacity("capacity < 10k/s", &result), None);
    let condition: CapacityCondition = "capacity < 10k/s".parse().unwrap();
    assert_eq!(condition.judge(None).figure, "not measured");
}

#[test]
fn refuses_other_figures() {
    let message = |text: &str| text.parse::<CapacityCondition>().unwrap_err().to_string();
    let unknown = message("p99 < 5ms");
    assert!(
        unknown.starts_with("unknown figure \"p99\" in \"p99 < 5ms\""),
        "{unknown}"
    );
    assert!(message("capacity < 5ms").starts_with("in \"capacity < 5ms\": "));
}

fn objective_error(text: &str) -> String {
    text.parse::<Objective>().unwrap_err().to_string()
}

#[test]
fn refuses_figures_that_are_no_objectives() {
    insta::assert_snapshot!(
        [
            "p99",
            "p99 < 20",
            "p99 < 0ms",
            "p99 > 20ms",
            "p98 < 20ms",
            "max < 20ms",
            "throughput > 5000/s",
            "goodput > 5000/s",
            "goodput >= 100%",
            "goodput < 99%",
            "errors < 0%",
            "errors < 1",
            "timed_out < 3",
            "lateness.p99 < 1ms",
            "cpu_us_per_request < 5us",
            ": p99 < 1ms",
        ]
        .map(objective_error)
        .join("\n")
    );
}

#[test]
fn quantiles_follow_from_the_objective() {
    let quantile = |text: &str| text.parse::<Objective>().unwrap().quantile();
    for (text, expected) in [
        ("p99.9 < 20ms", 0.999),
        ("service.p50 <= 20ms", 0.5),
        ("mean < 20ms", 0.9),
        ("errors < 0.1%", 0.999),
        ("goodput > 99%", 0.99),
    ] {
        assert!((quantile(text) - expected).abs() < 1e-12, "{text}");
    }
}

#[test]
fn only_objectives_on_times_have_a_time_limit() {
    let run = rejecting(1_000, 976);
    for (text, limit_us) in [
        ("p99 < 20ms", Some(20_000.0)),
        ("service.p50 <= 400us", Some(400.0)),
        ("errors < 0.1%", None),
        ("goodput > 99%", None),
    ] {
        let objective: Objective = text.parse().unwrap();
        let judged = objective.judge(&run, Duration::from_secs(5));
        assert_eq!(judged.limit_us, limit_us, "{text}");
    }
}

#[test]
fn refuses_objectives_that_do_not_fit_together() {
    let check = |texts: &[&str]| {
        let objectives: Vec<Objective> = texts.iter().map(|t| t.parse().unwrap()).collect();
        check_objectives(&objectives, Duration::from_secs(5))
    };
    check(&[
        "p99 < 20ms",
        "p50 < 5ms",
        "search: p99 < 50ms",
        "errors < 1%",
    ])
    .unwrap();
    let same = check(&["p99 < 20ms", "p99 <= 10ms"]).unwrap_err();
    assert_eq!(
        same,
        "'p99 <= 10ms': 'p99 < 20ms' limits the same figure; keep the stricter one"
    );
    let long = check(&["p99 < 6s"]).unwrap_err();
    assert!(
        long.starts_with("'p99 < 6s': the limit is not below the timeout of 5 s"),
        "{long}"
    );
}

proptest! {
    #[test]
    fn parsing_never_panics(text in "\\PC{0,24}") {
        let _ = (text.parse::<RunCondition>(), text.parse::<RatioCondition>());
    }

    #[test]
    fn parsed_conditions_never_panic(
        name in "(p|service\\.|errors|max)[a-z0-9._]{0,6}",
        operator in "[<>=!]{0,3}",
        value in "[0-9.]{0,8}(ms|s|%|/s|k|µ)?",
    ) {
        if let Ok(condition) = format!("{name} {operator} {value}").parse::<RunCondition>() {
            prop_assert!(condition.judge_run(&fast()).0.is_some());
        }
    }
}
