//! The page as a browser's parser reads it: its parts, and that nothing of a record acts in it.

use std::collections::BTreeSet;
use std::fmt::Write;

use floodmark_record::cause::Cause;
use floodmark_record::run::{Observation, Saturation, SeriesRow};
use scraper::{ElementRef, Html, Selector};

use super::*;
use crate::fixture;

/// What a hostile server, URL or mix file would like the page to hold.
const HOSTILE: &str = "</style></svg><script>alert(1)</script><img src=x onerror=alert(2)>\"'><b>&amp;\u{202e}\u{1b}[31m";

fn page(record: &Record) -> (String, Html) {
    let text = of_record(record, Some("offer more: -r 270k")).unwrap();
    let read = Html::parse_document(&text);
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

/// Headings, tables, charts with their keys and remarks; no coordinates.
fn structure(record: &Record) -> String {
    let (_, read) = page(record);
    let mut out = String::new();
    for element in select(
        &read,
        "h1, h2, h3, p, figcaption, .key li, .plot, tr, dt, dd, pre",
    ) {
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
fn of_a_server_that_was_watched_and_one_that_was_not() {
    let keys = |run| {
        let (_, read) = page(&fixture::record(vec![run]));
        (texts(&read, ".key li").join(" "), texts(&read, "tr"))
    };
    let (curves, rows) = keys(fixture::watched());
    for curve in [
        "client, user",
        "client, system",
        "server, user",
        "server, system",
    ] {
        assert!(curves.contains(curve), "{curves}");
    }
    let cpu = rows.iter().find(|row| row.contains("server CPU")).unwrap();
    assert!(cpu.contains("14.2") && cpu.contains("nginx"), "{cpu}");
    let (curves, rows) = keys(fixture::closed());
    assert!(
        curves.contains("client, user") && !curves.contains("server"),
        "{curves}"
    );
    assert!(rows.iter().all(|row| !row.contains("server CPU")));
}

#[test]
fn of_a_store_behind_the_server() {
    let store = [fixture::with_store(), fixture::watched()];
    let (_, read) = page(&fixture::record(vec![store[0].clone()]));
    let curves = texts(&read, ".key li").join(" ");
    assert!(
        curves.contains("store, user") && curves.contains("store, system"),
        "{curves}"
    );
    let rows = texts(&read, "tr");
    let cpu = rows.iter().find(|row| row.contains("store CPU")).unwrap();
    assert!(cpu.contains("3.4") && cpu.contains("postgres"), "{cpu}");
    let memory = rows
        .iter()
        .find(|row| row.contains("store memory"))
        .unwrap();
    assert!(memory.contains("61.0 MB"), "{memory}");
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
fn of_trials_beside_each_other_and_claims() {
    let mut record = fixture::record(vec![fixture::closed()]);
    crate::beside::tests::beside(&mut record);
    record.claims[0].text = HOSTILE.to_owned();
    let (_, read) = page(&record);
    assert!(select(&read, "script, img").is_empty());
    let found: String = structure(&record);
    let found = found.split("h2: ").filter(|part| {
        ["Comparisons", "Claims"]
            .iter()
            .any(|head| part.starts_with(head))
    });
    let answer = texts(&read, ".answer p").join("\n");
    insta::assert_snapshot!(answer + "\n" + &found.collect::<String>());
}

#[test]
fn of_a_server_that_never_answered() {
    insta::assert_snapshot!(structure(&fixture::record(vec![fixture::no_answers()])));
}

/// Every text of the record that somebody else may have chosen.
fn hostile() -> Record {
    let mut run = fixture::mixed();
    let bad = || HOSTILE.to_owned();
    run.plan.target.url = format!("http://h/{HOSTILE}");
    (run.system, run.workload) = (bad(), bad());
    run.setting.insert(bad(), bad());
    run.plan.request.method = bad();
    run.plan.request.headers = vec![(bad(), bad())];
    run.plan.request.body = HOSTILE.into();
    run.ended.detail = Some(bad());
    run.window.why = bad();
    run.validity.status = floodmark_record::run::Status::Invalid;
    (run.validity.reasons, run.validity.notes, run.missing) =
        (vec![bad()], vec![bad()], vec![bad()]);
    run.errors.insert(bad(), 3);
    run.groups[0].name = bad();
    if let Some(mix) = &mut run.plan.mix {
        (mix.file, mix.requests[0].name, mix.requests[0].path) = (bad(), bad(), bad());
    }
    run.checks = fixture::violated().checks;
    (run.checks[0].name, run.checks[0].detail) = (bad(), bad());
    run.observations = vec![Observation {
        subject: bad(),
        metric: bad(),
        unit: bad(),
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
fn nothing_of_a_record_acts_in_the_page() {
    let (text, read) = page(&hostile());
    assert!(
        texts(&read, "h1")[0].contains("<script>"),
        "it is shown as text"
    );
    let known: BTreeSet<&str> = [
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
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
fn nothing_is_fetched() {
    let (text, _) = page(&fixture::record(vec![fixture::closed()]));
    for fetching in ["url(", "@import", "<link", "<img", "<script", "src="] {
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
            lines.contains("<polyline") && !lines.contains("NaN"),
            "{lines}"
        );
    }
}

#[test]
fn the_same_record_gives_the_same_page() {
    let record = hostile();
    assert_eq!(page(&record).0, page(&record).0);
}

/// A run of `n` seconds that all differ.
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
fn of_several_attempts_each_has_its_curve() {
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
fn a_key_names_only_what_is_drawn() {
    let mut driven = long(30);
    (driven.system, driven.series) = ("driven".to_owned(), Vec::new());
    let mut ours = long(30);
    ours.system = "ours".to_owned();
    let (_, read) = page(&fixture::record(vec![ours, driven]));
    let keys = texts(&read, "figure:first-of-type .key li");
    assert_eq!(keys, ["ours"]);
    for plot in select(&read, ".plot") {
        let said = plot.value().attr("aria-label").unwrap();
        let of_seconds = said.starts_with("Throughput") || said.starts_with("CPU");
        assert!(!(of_seconds && said.contains("driven")), "{said}");
    }
    let without = |note: &String| note.starts_with("Without curves") && note.contains("driven.");
    assert!(texts(&read, "p.note").iter().any(without));
}

#[test]
fn damaged_figures_do_not_stop_a_page() {
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
fn counters_beside_the_load_have_charts() {
    let mut run = long(10);
    let seen = |metric: &str, values: Vec<f64>| Observation {
        subject: "network".to_owned(),
        metric: metric.to_owned(),
        unit: "sockets".to_owned(),
        source: "/proc/net/sockstat".to_owned(),
        start_ms: 0,
        step_ms: 1000,
        values,
    };
    run.observations = vec![
        seen("tw", vec![0.0, 12.0, 4000.0]),
        seen("quiet", vec![0.0; 10]),
    ];
    let (_, read) = page(&fixture::record(vec![run]));
    let titles = texts(&read, "figcaption b");
    assert!(titles.contains(&"network tw".to_owned()), "{titles:?}");
    assert!(
        !titles.contains(&"network quiet".to_owned()),
        "zero throughout"
    );
}

#[test]
fn a_check_that_does_not_hold_is_in_the_answer() {
    let run = fixture::violated();
    let said = format!(
        "The check {} is violated: {}.",
        run.checks[0].name, run.checks[0].detail
    );
    let (_, read) = page(&fixture::record(vec![run]));
    let answer = texts(&read, ".answer").concat();
    assert!(answer.contains(&said), "{answer}");
    let (_, read) = page(&fixture::record(vec![fixture::closed()]));
    assert!(!texts(&read, ".answer").concat().contains("The check"));
}

#[test]
fn the_cause_and_its_evidence_are_in_the_answer() {
    let mut run = fixture::judged(Cause::WorkerPool);
    if let Some(verdict) = &mut run.verdict {
        verdict.evidence.push(HOSTILE.to_owned());
        verdict.summary.push_str(HOSTILE);
    }
    let (_, read) = page(&fixture::record(vec![run]));
    let why = texts(&read, ".answer .why");
    assert!(
        why[0].starts_with("Why: worker-pool (likely): all 8 threads"),
        "{why:?}"
    );
    assert_eq!(texts(&read, ".answer .why li").len(), 3);
    assert!(select(&read, "script, img").is_empty());

    let named = |trial: usize| {
        let mut run = fixture::judged(Cause::WorkerPool);
        run.trial = Some(format!("t{trial}"));
        run
    };
    // Beside two others it has its evidence and its own next step, beside more neither.
    for (trials, lines) in [(3, 9), (4, 0)] {
        let (_, read) = page(&fixture::record((0..trials).map(named).collect()));
        assert_eq!(texts(&read, ".answer .why").len(), trials);
        let said = texts(&read, ".answer .why li");
        assert_eq!(said.len(), lines, "{said:?}");
        let next = said.iter().filter(|line| line.starts_with("Next: "));
        assert_eq!(next.count(), lines / 3);
    }
}

#[test]
fn a_plan_that_many_loads_have_is_said_once() {
    let named = |trial: &str| {
        let mut run = fixture::closed();
        run.trial = Some(trial.to_owned());
        run
    };
    let mut other = named("c");
    other.plan.connections += 1;
    let (_, read) = page(&fixture::record(vec![named("a"), named("b"), other]));
    let said = texts(&read, ".asked");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains(", 2 times. Begun"), "{said:?}");
    assert!(!said[1].contains("times"), "{said:?}");
}

#[test]
fn of_the_points_of_a_sweep_each_cause_is_said_once() {
    let swept = crate::sweep::tests::swept();
    let names = swept.sweep.points.iter().map(|point| point.trial.clone());
    let causes = [Cause::WorkerPool, Cause::WorkerPool, Cause::ServerCpu];
    let runs = names.zip(causes).map(|(name, cause)| {
        let mut run = fixture::judged(cause);
        run.trial = Some(name);
        run
    });
    let mut record = fixture::record(runs.collect());
    record.sweeps.push(swept);
    let (_, read) = page(&record);
    let one = "bars-threads-1-connections-10";
    let two = "bars-threads-2-connections-10";
    let four = "bars-threads-4-connections-10";
    assert_eq!(
        texts(&read, ".answer .why"),
        [
            format!("Why: worker-pool limits {one}, {two}."),
            format!("Why: server-cpu limits {four}.")
        ]
    );
    let said = texts(&read, ".answer p").join("\n");
    assert!(!said.contains(&format!("{one}: ")), "{said}");

    record.runs.truncate(1);
    let (_, read) = page(&record);
    let said = texts(&read, ".answer .why");
    assert!(
        said[0].starts_with("Why: worker-pool (likely): all 8"),
        "{said:?}"
    );
}
