//! Pages as parsed by a browser engine: structure, and escaping of hostile content.

use std::collections::BTreeSet;
use std::fmt::Write;

use floodmark_record::capacity::{CapacityKind, CapacityTrial, TrialOutcome};
use floodmark_record::cause::Cause;
use floodmark_record::comparison::{ComparedMetric, Conclusion};
use floodmark_record::metric::NetworkFigure;
use floodmark_record::outcome::NotOkResponse;
use floodmark_record::path::{Actor, PathStep, StepKind};
use floodmark_record::run::{Run, Saturation, SeriesRow};
use floodmark_record::{Metric, Observation};
use scraper::{ElementRef, Html, Selector};

use super::*;
use crate::fixture;
use crate::model::comparison::tests::comparison;

/// Hostile text that may come from a server, a URL or a mix file.
const HOSTILE: &str = "</style></svg><script>alert(1)</script><img src=x onerror=alert(2)>\"'><b>&amp;\u{202e}\u{1b}[31m";

fn page(record: &Record) -> (String, Html) {
    let text = of_record(record, Some("offer more: -r 270k")).unwrap();
    let read = Html::parse_document(&text);
    assert!(read.errors.is_empty(), "{:?}", read.errors);
    (text, read)
}

fn select<'a>(page: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    let selector = Selector::parse(selector).unwrap();
    page.select(&selector).collect()
}

fn texts(page: &Html, selector: &str) -> Vec<String> {
    let found = select(page, selector).into_iter();
    found.map(|element| element.text().collect()).collect()
}

/// Checks that a page contains no script but its own, and no image.
fn assert_inactive(page: &Html) {
    assert!(select(page, "img").is_empty());
    assert_eq!(texts(page, "script"), [SCRIPT]);
}

/// Returns the headings, tables, notes and charts (with keys, without coordinates) of a page.
fn structure(record: &Record) -> String {
    let (_, read) = page(record);
    let mut out = String::new();
    for element in select(
        &read,
        "h1, h2, h3, p, figcaption, .key li, .plot, tr, dt, dd, pre",
    ) {
        let is_value = |node: ElementRef<'_>| node.value().attr("class") == Some("values");
        if element
            .ancestors()
            .filter_map(ElementRef::wrap)
            .any(is_value)
        {
            continue;
        }
        let words = element.text().collect::<Vec<_>>().join(" ");
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        let name = element.value().name();
        let _ = writeln!(out, "{name}: {words}");
    }
    out
}

#[test]
fn of_one_run() {
    let mut record = fixture::record(vec![fixture::closed()]);
    record.tool.command = vec![
        "floodmark".into(),
        "load".into(),
        "http://127.0.0.1:8080/".into(),
    ];
    insta::assert_snapshot!(structure(&record));
}

#[test]
fn shows_the_cpu_of_a_monitored_server() {
    let keys = |run| {
        let (_, read) = page(&fixture::record(vec![run]));
        (texts(&read, ".key li").join(" "), texts(&read, "dt, dd"))
    };
    let (curves, rows) = keys(fixture::watched());
    assert!(curves.contains("client server"), "{curves}");
    let at = rows.iter().position(|row| row == "server").unwrap();
    let used = &rows[at + 1];
    assert!(used.contains("14.2") && used.contains("nginx"), "{used}");
    let (curves, rows) = keys(fixture::closed());
    assert!(
        curves.contains("client") && !curves.contains("server"),
        "{curves}"
    );
    assert!(rows.iter().all(|row| row != "server"));
}

#[test]
fn shows_the_store_behind_the_server() {
    let store = [fixture::with_store(), fixture::watched()];
    let (_, read) = page(&fixture::record(vec![store[0].clone()]));
    let curves = texts(&read, ".key li").join(" ");
    assert!(curves.contains("client server store"), "{curves}");
    let used = texts(&read, "dd");
    let used = used.iter().find(|used| used.contains("postgres"));
    let used = used.unwrap().replace('\u{a0}', " ");
    assert!(used.contains("3.4") && used.contains("61.0 MB"), "{used}");
    let (_, read) = page(&fixture::record(store.to_vec()));
    let heads = texts(&read, "th");
    assert!(
        heads.iter().any(|head| head == "store CPU/request"),
        "{heads:?}"
    );
    let (_, read) = page(&fixture::record(vec![store[1].clone(), store[1].clone()]));
    assert!(!texts(&read, "th").iter().any(|head| head.contains("store")));
}

#[test]
fn of_an_invalid_run_with_a_window_and_timeouts() {
    let mut run = fixture::invalid();
    run.response_time_us = fixture::open_censored().response_time_us;
    insta::assert_snapshot!(structure(&fixture::record(vec![run])));
}

#[test]
fn of_steps_a_mix_and_a_failing_run() {
    let runs = vec![fixture::steps(), fixture::mixed(), fixture::failing()];
    insta::assert_snapshot!(structure(&fixture::record(runs)));
}

#[test]
fn of_compared_trials_and_claims() {
    let mut record = fixture::record(vec![fixture::closed()]);
    record.experiment = Some(floodmark_record::experiment::ExperimentDescription::default());
    crate::model::comparison::claims_tests::add_comparisons_and_claims(&mut record);
    record.claims[0].text = HOSTILE.to_owned();
    let (_, read) = page(&record);
    assert_inactive(&read);
    let found: String = structure(&record);
    let (found, _) = found.split_once("h2: Curves").unwrap();
    insta::assert_snapshot!(found);
}

#[test]
fn of_a_server_without_a_response() {
    insta::assert_snapshot!(structure(&fixture::record(vec![fixture::no_answers()])));
}

/// Returns a record with hostile text in every text field.
fn hostile() -> Record {
    let mut run = fixture::mixed();
    let bad = || HOSTILE.to_owned();
    run.plan.target.url = format!("http://h/{HOSTILE}");
    (run.system, run.workload) = (bad(), bad());
    run.setting.insert(bad(), bad());
    run.plan.request.method = bad();
    run.plan.request.headers = vec![(bad(), bad())];
    run.plan.request.body = HOSTILE.as_bytes().to_vec().into();
    run.ended.detail = Some(bad());
    run.window.why = bad();
    run.validity.status = floodmark_record::run::Status::Invalid;
    (run.validity.reasons, run.validity.notes, run.missing) =
        (vec![HOSTILE.into()], vec![bad()], vec![bad()]);
    run.errors.insert(bad(), 3);
    run.groups[0].name = bad();
    if let Some(mix) = &mut run.plan.mix {
        (mix.file, mix.requests[0].name, mix.requests[0].path) = (bad(), bad(), bad());
    }
    run.checks = fixture::violated().checks;
    run.not_ok_responses = vec![NotOkResponse {
        status: 500.into(),
        body: bad(),
    }];
    (run.checks[0].name, run.checks[0].detail) = (bad(), bad());
    run.observations = vec![Observation {
        metric: Metric::Other {
            subject: bad(),
            name: bad(),
            unit: bad(),
        },
        is_peak: false,
        source: bad(),
        start_ms: 0,
        step_ms: 1000,
        values: vec![1.0, 2.0],
    }];
    let mut other = run.clone();
    other.system.push('2');
    let mut record = fixture::record(vec![run, other]);
    record.tool.command = vec![bad(), bad()];
    (record.tool.name, record.tool.version) = (bad(), bad());
    record.skipped = vec![bad()];
    record.environment.kernel = bad();
    record.environment.cpu_model = Some(bad());
    record.environment.sysctls.insert(bad(), bad());
    record.environment.limits.insert(bad(), 1);
    record.judges.insert(bad(), bad());
    record
}

#[test]
fn no_content_of_a_record_is_active() {
    let (text, read) = page(&hostile());
    assert!(texts(&read, "h1")[0].contains("<script>"), "shown as text");
    let known: BTreeSet<&str> = [
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "section",
        "h1",
        "h2",
        "h3",
        "p",
        "b",
        "span",
        "small",
        "div",
        "table",
        "tbody",
        "tr",
        "th",
        "td",
        "dl",
        "dt",
        "dd",
        "pre",
        "details",
        "summary",
        "caption",
        "script",
        "figure",
        "figcaption",
        "ul",
        "li",
        "svg",
        "line",
        "rect",
        "polyline",
        "polygon",
        "text",
    ]
    .into();
    for element in select(&read, "*") {
        let name = element.value().name();
        assert!(known.contains(name), "<{name}>");
        for (attribute, value) in element.value().attrs() {
            assert!(!attribute.starts_with("on"), "{attribute}={value}");
            assert!(
                !["src", "href", "style", "xlink:href"].contains(&attribute),
                "{attribute}={value}"
            );
        }
    }
    assert_eq!(select(&read, "style").len(), 1);
    assert!(!text.contains(['\u{202e}', '\u{1b}']));
}

#[test]
fn fetches_nothing() {
    let (text, _) = page(&fixture::record(vec![fixture::closed()]));
    for fetching in [
        "url(", "@import", "<link", "<img", "src=", "fetch", "import(",
    ] {
        assert!(!text.contains(fetching), "{fetching}");
    }
}

#[test]
fn every_svg_is_well_formed_and_has_a_description() {
    let (_, read) = page(&fixture::record(vec![
        fixture::open_censored(),
        fixture::closed(),
    ]));
    let plots = select(&read, ".plot");
    assert!(plots.len() >= 5, "{}", plots.len());
    for plot in plots {
        assert!(plot.value().attr("aria-label").unwrap().len() > 10);
        let lines = plot.html();
        assert!(
            lines.contains("<polyline class=\"curve ") && !lines.contains("NaN"),
            "{lines}"
        );
    }
}

#[test]
fn the_same_record_gives_the_same_page() {
    let record = hostile();
    assert_eq!(page(&record).0, page(&record).0);
}

/// Returns a run of `n` seconds whose figures change every second.
fn long(n: u32) -> Run {
    let mut run = fixture::closed();
    run.series = (0..n)
        .map(|i| SeriesRow {
            from_s: f64::from(i),
            to_s: f64::from(i + 1),
            throughput_per_s: 100_000.0 + f64::from(i * 7919 % 5000),
            p50_us: Some(200.0 + f64::from(i * 31 % 50)),
            p99_us: Some(1200.0 + f64::from(i * 997 % 900)),
            client_user_cpus: 0.3,
            client_system_cpus: 0.5 + f64::from(i % 7) / 50.0,
            ..SeriesRow::default()
        })
        .collect();
    run.window.to_s = f64::from(n);
    run.sending_s = f64::from(n);
    run
}

#[test]
fn a_page_is_small() {
    let size = |runs| page(&fixture::record(runs)).0.len();
    assert!(size(vec![long(30)]) < 60_000, "{}", size(vec![long(30)]));
    let attempts = |n: u32| -> Vec<Run> {
        let one = |attempt| Run {
            attempt,
            ..long(3600)
        };
        (1..=n).map(one).collect()
    };
    assert!(size(attempts(20)) < 300_000, "{}", size(attempts(20)));
}

#[test]
fn each_attempt_has_a_curve() {
    let one = |attempt| Run {
        attempt,
        ..long(30)
    };
    let (_, read) = page(&fixture::record((1..=3).map(one).collect()));
    let keys = texts(&read, "figure:first-of-type .key li");
    assert_eq!(keys, ["attempt 1", "attempt 2", "attempt 3"]);
    let (_, read) = page(&fixture::record((1..=9).map(one).collect()));
    assert_eq!(texts(&read, "figure:first-of-type .key li").len(), 5);
    assert!(
        texts(&read, "p.note")
            .iter()
            .any(|note| note.contains("5 of 9"))
    );
}

#[test]
fn a_key_lists_only_drawn_curves() {
    let mut driven = long(30);
    (driven.system, driven.series) = ("driven".to_owned(), Vec::new());
    let mut ours = long(30);
    ours.system = "ours".to_owned();
    let (_, read) = page(&fixture::record(vec![ours, driven]));
    let keys = texts(&read, "figure:first-of-type .key li");
    assert_eq!(keys, ["ours"]);
    for plot in select(&read, ".plot") {
        let shown = plot.value().attr("aria-label").unwrap();
        let of_seconds = shown.starts_with("Throughput") || shown.starts_with("CPU");
        assert!(!(of_seconds && shown.contains("driven")), "{shown}");
    }
    let without = |note: &String| note.starts_with("No curves") && note.contains("driven.");
    assert!(texts(&read, "p.note").iter().any(without));
}

#[test]
fn draws_a_page_from_damaged_figures() {
    let mut run = long(5);
    run.series[0].throughput_per_s = 1e300;
    run.series[1].to_s = 1e300;
    run.series[2].p99_us = Some(-4.0);
    run.sending_s = f64::INFINITY;
    run.window.from_s = f64::NAN;
    run.started_unix_ms = u64::MAX;
    run.client.user_s = -1.0;
    run.requests.ok = u64::MAX;
    run.saturation = fixture::ramp().saturation;
    if let Some(Saturation::FellBehind(found)) = &mut run.saturation {
        found.at_s = f64::NAN;
    }
    let (_, read) = page(&fixture::record(vec![run]));
    assert!(!select(&read, "svg polyline").is_empty());
}

#[test]
fn monitored_metrics_have_charts() {
    let mut run = long(10);
    let seen = |figure, values: Vec<f64>| Observation {
        metric: Metric::Network(None, figure),
        is_peak: false,
        source: "/proc/net/sockstat".to_owned(),
        start_ms: 0,
        step_ms: 1000,
        values,
    };
    run.observations = vec![
        seen(NetworkFigure::TimeWait, vec![0.0, 12.0, 4000.0]),
        seen(NetworkFigure::Timeouts, vec![0.0; 10]),
    ];
    let (_, read) = page(&fixture::record(vec![run]));
    let titles = texts(&read, "figcaption b");
    assert!(
        titles.contains(&"Network: sockets in TIME_WAIT".to_owned()),
        "{titles:?}"
    );
    assert!(
        !titles.iter().any(|title| title.contains("retransmission")),
        "always zero"
    );
}

#[test]
fn the_answer_reports_a_failed_check() {
    let violated = fixture::violated();
    let mut unevaluated = violated.clone();
    unevaluated.checks[0].held = None;
    let name = violated.checks[0].name.clone();
    for (runs, words) in [
        (vec![violated.clone()], "violated: "),
        (vec![unevaluated.clone()], "not evaluated: "),
        (vec![unevaluated, violated], "violated: "),
    ] {
        let (_, read) = page(&fixture::record(runs));
        let answer = texts(&read, ".answer dd").join("\n");
        assert!(answer.contains(&format!("{name} {words}")), "{answer}");
    }
    let (_, read) = page(&fixture::record(vec![fixture::closed()]));
    assert!(!texts(&read, ".answer dt").contains(&"check".to_owned()));
}

#[test]
fn the_answer_reports_the_cause_and_its_evidence() {
    let mut run = fixture::judged(Cause::WorkerPool);
    if let Some(verdict) = &mut run.verdict {
        verdict.evidence.push(HOSTILE.to_owned());
        verdict.summary.push_str(HOSTILE);
        let step = |kind, who| PathStep::new(kind, who, "counted").with_waiting(8.0);
        verdict.path = vec![
            step(StepKind::Requests, Actor::Client),
            step(StepKind::Threads, Actor::Server),
        ];
    }
    let (_, read) = page(&fixture::record(vec![run]));
    let shown = texts(&read, ".answer dd");
    assert!(
        shown
            .iter()
            .any(|text| text.starts_with("worker-pool (likely) – all 8 threads")),
        "{shown:?}"
    );
    let labels = texts(&read, ".answer dt");
    let evidence = labels.iter().filter(|label| *label == "evidence");
    assert_eq!(evidence.count(), 3);
    let steps = texts(&read, ".answer .step");
    assert_eq!(steps, ["8 requests", "8 threads of the server"]);
    assert_inactive(&read);
}

#[test]
fn ranks_at_least_three_trials() {
    for (trials, ranked) in [(2, 0), (4, 4)] {
        let named = |trial: usize| {
            let mut run = fixture::judged(Cause::WorkerPool);
            run.trial = Some(format!("t{trial}"));
            run
        };
        let (_, read) = page(&fixture::record((0..trials).map(named).collect()));
        assert_eq!(texts(&read, ".ranking th").len(), ranked);
    }
}

#[test]
fn states_a_shared_plan_once() {
    let named = |trial: &str| {
        let mut run = fixture::closed();
        run.trial = Some(trial.to_owned());
        run
    };
    let mut other = named("c");
    other.plan.connections += 1;
    let (_, read) = page(&fixture::record(vec![named("a"), named("b"), other]));
    let shown = texts(&read, ".plans p");
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].contains(", in 2 trials. Started"), "{shown:?}");
    assert!(!shown[1].contains("trials"), "{shown:?}");
}

#[test]
fn a_sweep_has_its_best_point_and_its_limits() {
    let swept = crate::model::sweep::tests::swept();
    let names = swept.sweep.points.iter().map(|point| point.trial.clone());
    let causes = [Cause::WorkerPool, Cause::WorkerPool, Cause::ServerCpu];
    let runs = names.zip(causes).map(|(name, cause)| {
        let mut run = fixture::judged(cause);
        run.trial = Some(name);
        run
    });
    let mut record = fixture::record(runs.collect());
    record.experiment = Some(floodmark_record::experiment::ExperimentDescription::default());
    record.sweeps.push(swept);
    let (_, read) = page(&record);
    let result = "bars: throughput is highest with threads = 2, connections = 10 (2,000/s, 95 % interval: \
                  1,800 – 2,200); no smaller setting reaches 95 % of the maximum";
    let shown = texts(&read, ".answer dd");
    assert!(shown.contains(&result.to_owned()), "{shown:?}");
    let cells = texts(&read, "td").join(" ");
    assert!(
        cells.contains("worker-pool  worker-pool  server-cpu"),
        "{cells}"
    );
}

#[test]
fn a_long_table_of_agents_is_collapsed() {
    let agents = |n| {
        let mut run = fixture::sent_by_agents(n);
        run.agents[0].name = HOSTILE.to_owned();
        page(&fixture::record(vec![run])).1
    };
    let few = agents(16);
    assert!(select(&few, "details:not(.values)").is_empty());
    assert!(texts(&few, "h2").contains(&"Agents".to_owned()));
    let many = agents(17);
    assert_eq!(select(&many, "details:not(.values) tr").len(), 18);
    let summary = texts(&many, "details:not(.values) summary").join("");
    assert!(summary.starts_with("17\u{a0}agents, "), "{summary}");
    assert_inactive(&many);
}

#[test]
fn a_comparison_overlays_both_results() {
    let ratio = comparison(ComparedMetric::Throughput, Conclusion::Different);
    let mut report = crate::model::comparison::tests::compared(vec![ratio]);
    report.unlike = vec!["kernel: 6.1 in old, 6.12 in new".to_owned()];
    let (a, b) = (fixture::closed(), fixture::watched());
    let sides = [("a", &a), ("b", &b)];
    let runs = sides.map(|(_, run)| [run]);
    let compared = |i: usize| ComparedRuns {
        name: sides[i].0,
        runs: &runs[i],
    };
    let text = of_comparison(&report, [compared(0), compared(1)], &Environment::default()).unwrap();
    let read = Html::parse_document(&text);
    assert_inactive(&read);
    let heads = texts(&read, "h2");
    assert_eq!(heads, ["Curves", "Outcomes"]);
    let labels = texts(&read, ".answer dt");
    assert!(labels.contains(&"differs".to_owned()), "{labels:?}");
    let keys = texts(&read, ".key li");
    assert!(
        keys.contains(&"a".to_owned()) && keys.contains(&"b".to_owned()),
        "{keys:?}"
    );

    // The loads of a search are not drawn.
    let none = |i: usize| ComparedRuns {
        runs: &[],
        ..compared(i)
    };
    let text = of_comparison(&report, [none(0), none(1)], &Environment::default()).unwrap();
    assert!(select(&Html::parse_document(&text), ".plot").is_empty());
}

#[test]
fn missed_loads_are_hollow_dots() {
    let mut record = fixture::record(vec![fixture::closed()]);
    let result = fixture::capacity(CapacityKind::Capacity);
    let is_miss = |trial: &&CapacityTrial| trial.outcome == TrialOutcome::Miss;
    let misses = result.trials.iter().filter(is_miss).count();
    record.capacity = Some(result);
    let (text, read) = page(&record);
    assert!(misses > 0);
    // Two charts show the trials, each with a dot in its key.
    assert_eq!(select(&read, "circle.dot.bad").len(), 2 * (misses + 1));
    let rule = |class: &str| {
        let (_, rule) = text.split_once(&format!("\n{class} {{")).unwrap();
        rule.split_once('}').unwrap().0.to_owned()
    };
    let hollow = rule(".dot.bad");
    assert!(hollow.contains("fill: none; stroke: "), "{hollow}");
    assert!(!rule(".dot.good").contains("none"));
}
