use super::*;

use std::net::SocketAddr;

use floodmark_record::client::{ClientRan, ExternalRun};
use floodmark_record::grpc::GrpcStatus;

use crate::catalog::{ExportedSeries, ExportedValue, families};
use crate::testing::{began, example, second, server_used};

/// Returns the value of the only series of a metric whose labels contain all of `labels`.
fn value(metrics: &LoadMetrics, name: &str, labels: &[(&str, &str)]) -> f64 {
    let families = families(metrics);
    let family = families
        .iter()
        .find(|f| f.definition.prometheus == name)
        .unwrap();
    let has = |series: &ExportedSeries<'_>, label: &(&str, &str)| {
        let mut own = series.labels.iter();
        own.any(|(key, value)| (key.prometheus(), &**value) == (Some(label.0), label.1))
    };
    let mut found = family
        .series
        .iter()
        .filter(|s| labels.iter().all(|label| has(s, label)));
    let series = found
        .next()
        .unwrap_or_else(|| panic!("no {name} {labels:?}"));
    assert!(found.next().is_none(), "several {name} {labels:?}");
    match series.value {
        ExportedValue::Number(value) => value,
        ExportedValue::Times(times) => times.count as f64,
    }
}

#[test]
fn adds_up_all_figures() {
    let metrics = example();
    let measure = ("phase", "measure");
    for (name, label, expected) in [
        ("floodmark_requests_total", ("outcome", "ok"), 16.0),
        ("floodmark_requests_total", ("outcome", "timed_out"), 2.0),
        (
            "floodmark_requests_total",
            ("outcome", "connect_failed"),
            2.0,
        ),
        ("floodmark_responses_total", ("status", "503"), 2.0),
        (
            "floodmark_http_bytes_total",
            ("direction", "receive"),
            18000.0,
        ),
        ("floodmark_intended_requests_total", measure, 28.0),
        ("floodmark_good_responses_total", measure, 14.0),
        ("floodmark_connections_opened_total", measure, 4.0),
        // Requests that timed out are included.
        ("floodmark_response_time_seconds", measure, 18.0),
        ("floodmark_service_time_seconds", measure, 16.0),
    ] {
        assert_eq!(
            value(&metrics, name, &[label, measure]),
            expected,
            "{name} {label:?}"
        );
    }
    let warmup = [("phase", "warmup"), ("outcome", "ok")];
    assert_eq!(value(&metrics, "floodmark_requests_total", &warmup), 8.0);
    // In each of three seconds, 12 requests were sent and 10 ended.
    assert_eq!(value(&metrics, "floodmark_requests_in_flight", &[]), 6.0);
    assert_eq!(value(&metrics, "floodmark_open_connections", &[]), 3.0);
    let cpu = |role, mode| {
        value(
            &metrics,
            "floodmark_cpu_seconds_total",
            &[("role", role), ("mode", mode)],
        )
    };
    assert_eq!(
        (cpu("client", "user"), cpu("client", "system")),
        (0.75, 1.5)
    );
    assert_eq!(
        (cpu("server", "user"), cpu("server", "system")),
        (1.25, 0.25)
    );
}

#[test]
fn shows_the_state_of_the_run() {
    let mut metrics = LoadMetrics::default();
    let state = |metrics: &LoadMetrics| {
        let is_current =
            |state: &&str| value(metrics, "floodmark_run_state", &[("state", state)]) > 0.0;
        let all: Vec<&str> = ["idle", "starting", "warmup", "measure"]
            .into_iter()
            .filter(is_current)
            .collect();
        assert_eq!(all.len(), 1);
        all[0]
    };
    // Without a run, later events have no effect.
    assert!(!metrics.on(&server_used(1.0)));
    assert_eq!(state(&metrics), "idle");
    assert!(metrics.on(&began("a", None, 1)));
    assert!(!metrics.on(&Event::Missing { missing: vec![] }));
    assert_eq!(state(&metrics), "starting");
    for phase in [Phase::Warmup, Phase::Measure] {
        metrics.on(&Event::Began { phase, at_ns: 0 });
        assert_eq!(state(&metrics), phase.name());
    }
    metrics.on(&second(Phase::Measure, [1; 8]));
    metrics.on(&Event::ClientRan(ClientRan {
        name: "wrk".to_owned(),
        user_s: None,
        system_s: None,
        peak_rss_bytes: None,
        tool: ExternalRun::default(),
        failure: None,
        interrupted: false,
    }));
    assert_eq!(state(&metrics), "idle");
    assert_eq!(value(&metrics, "floodmark_requests_in_flight", &[]), 0.0);
}

#[test]
fn counts_grpc_statuses_by_name() {
    let Event::Second(mut row) = second(Phase::Measure, [50_000; 8]) else {
        unreachable!()
    };
    row.counts.statuses = [(200, 9), (503, 1)].into();
    row.counts.grpc_statuses = [(GrpcStatus::Ok, 7), (GrpcStatus::Unavailable, 2)].into();
    let mut metrics = LoadMetrics::default();
    metrics.on(&began("a", None, 1));
    metrics.on(&Event::Second(row));
    let name = "floodmark_responses_total";
    for (label, expected) in [
        (("grpc_status", "OK"), 7.0),
        (("grpc_status", "UNAVAILABLE"), 2.0),
        (("status", "503"), 1.0),
    ] {
        assert_eq!(value(&metrics, name, &[label]), expected);
    }
    let families = families(&metrics);
    let responses = families.iter().find(|f| f.definition.prometheus == name);
    // Each gRPC response is counted in only one series.
    assert_eq!(responses.unwrap().series.len(), 3);
}

#[test]
fn series_continue_in_the_next_run_of_the_same_target() {
    let mut metrics = LoadMetrics::default();
    for (system, attempt) in [("a", 1), ("a", 2), ("b", 1)] {
        metrics.on(&began(system, Some("t"), attempt));
        metrics.on(&second(Phase::Measure, [50_000; 8]));
    }
    let ok = |system| {
        value(
            &metrics,
            "floodmark_requests_total",
            &[("system", system), ("outcome", "ok")],
        )
    };
    assert_eq!((ok("a"), ok("b")), (16.0, 8.0));
    assert_eq!(value(&metrics, "floodmark_runs_total", &[]), 3.0);
    assert_eq!(
        value(
            &metrics,
            "floodmark_run_info",
            &[("system", "b"), ("attempt", "1")]
        ),
        1.0
    );
}

#[test]
fn series_continue_if_the_next_process_has_another_port() {
    let mut metrics = LoadMetrics::default();
    for port in [8080, 8081] {
        let Event::RunBegan { run, mut plan, .. } = began("a", None, 1) else {
            unreachable!()
        };
        plan.target = SocketAddr::from(([127, 0, 0, 1], port)).into();
        metrics.on(&Event::RunBegan {
            run,
            plan,
            unix_ms: 0,
        });
        metrics.on(&second(Phase::Measure, [50_000; 8]));
    }
    let ok = [("outcome", "ok")];
    assert_eq!(value(&metrics, "floodmark_requests_total", &ok), 16.0);
    let times = [("phase", "measure")];
    assert_eq!(
        value(&metrics, "floodmark_service_time_seconds", &times),
        16.0
    );
}

#[test]
fn the_number_of_targets_is_limited() {
    let mut metrics = LoadMetrics::default();
    for i in 0..2 * MAX_TARGETS {
        metrics.on(&began(&format!("s{i}"), None, 1));
        metrics.on(&second(Phase::Measure, [50_000; 8]));
    }
    assert_eq!(metrics.targets.len(), MAX_TARGETS + 1);
    let other = [("system", OTHER), ("outcome", "ok")];
    let expected = 8.0 * MAX_TARGETS as f64;
    assert_eq!(
        value(&metrics, "floodmark_requests_total", &other),
        expected
    );
}

#[test]
fn splits_the_authority_into_host_and_port() {
    for (authority, host) in [
        ("127.0.0.1:8080", "127.0.0.1"),
        ("localhost", "localhost"),
        ("[::1]:8080", "::1"),
        ("[::1]", "::1"),
    ] {
        let Event::RunBegan { mut plan, .. } = began("a", None, 1) else {
            unreachable!()
        };
        plan.target.authority = authority.to_owned();
        assert_eq!(HttpPeer::of(&plan).address, host);
        assert_eq!(HttpPeer::of(&plan).port, Some(8080));
    }
}
