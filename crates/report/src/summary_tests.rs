//! Snapshots of all kinds of summaries.

use std::collections::BTreeMap;

use floodmark_record::Record;
use floodmark_record::cause::Cause;
use floodmark_record::comparison::Threshold;
use floodmark_record::events::{EndReason, HeldConnections};
use floodmark_record::http2::{Http2Use, ServerSettings};
use floodmark_record::plan::{Http, Http2, Model};
use floodmark_record::result::Overall;
use floodmark_record::run::{Run, Saturation, Status, SteadyClass, WarmupRun, Window};
use floodmark_record::times::{BlockedTimes, Times};

use crate::Style;
use crate::fixture;
use crate::terminal::{self, Extent};

const PLAIN: Style = Style {
    color: false,
    width: 100,
};
const NARROW: Style = Style {
    color: false,
    width: 60,
};
const COLOR: Style = Style {
    color: true,
    width: 100,
};

const NEXT: &str = "measure latency below the limit: floodmark load http://127.0.0.1:8080/ -r 150k";

fn summary(record: &Record, next: Option<&str>, style: Style) -> String {
    terminal::summary(record, next, Extent::Full, style)
}

fn draw(run: &Run, style: Style) -> String {
    summary(&fixture::record(vec![run.clone()]), Some(NEXT), style)
}

/// Draws one run at two widths.
fn both(run: &Run) -> String {
    let (wide, narrow) = (draw(run, PLAIN), draw(run, NARROW));
    format!("{wide}{}\n{narrow}", "─".repeat(60))
}

#[test]
fn closed_kept_valid() {
    insta::assert_snapshot!(both(&fixture::closed()));
}

#[test]
fn open_blocked_and_censored() {
    insta::assert_snapshot!(both(&fixture::open_censored()));
}

#[test]
fn steps_and_their_rows() {
    insta::assert_snapshot!(both(&fixture::steps()));
}

#[test]
fn ramps_that_fell_behind_and_kept_up() {
    let ramps = [fixture::ramp(), kept_up(), undecided()];
    let drawn = ramps.map(|run| draw(&run, PLAIN));
    insta::assert_snapshot!(drawn.join(&format!("{}\n", "─".repeat(60))));
}

fn kept_up() -> Run {
    let mut run = fixture::ramp();
    run.saturation = Some(Saturation::KeptUp {
        up_to_per_s: 6000.0,
        method: "in its last second, at least 95 % of the requests due were ok".to_owned(),
    });
    run
}

fn undecided() -> Run {
    let mut run = fixture::ramp();
    run.saturation = Some(Saturation::Undecided {
        why: "its last second has too few responses".to_owned(),
    });
    run
}

/// The attempts differ in whether the server kept up.
#[test]
fn ramps_and_steps_of_several_attempts() {
    let mut texts = Vec::new();
    for mut runs in [
        vec![fixture::ramp(), kept_up(), undecided()],
        vec![fixture::steps(), fixture::steps()],
    ] {
        for (attempt, run) in (1..).zip(&mut runs) {
            run.attempt = attempt;
        }
        texts.push(summary(&fixture::record(runs), None, PLAIN));
    }
    insta::assert_snapshot!(texts.join(&format!("{}\n", "─".repeat(60))));
}

#[test]
fn a_replay() {
    insta::assert_snapshot!(both(&fixture::replay()));
}

#[test]
fn groups_of_a_mix() {
    insta::assert_snapshot!(both(&fixture::mixed()));
}

#[test]
fn groups_of_several_attempts() {
    let mut runs = vec![fixture::mixed(), fixture::mixed()];
    runs[1].attempt = 2;
    runs[1].window.from_s = 2.5;
    runs[1].groups[2].throughput_per_s = None;
    insta::assert_snapshot!(summary(&fixture::record(runs), None, PLAIN));
}

#[test]
fn bound() {
    insta::assert_snapshot!(both(&fixture::bound()));
}

#[test]
fn invalid() {
    insta::assert_snapshot!(both(&fixture::invalid()));
}

#[test]
fn an_unknown_wait_is_not_shown_as_zero() {
    let mut run = fixture::closed();
    run.client.threads[0].run_delay_s = None;
    let drawn = draw(&run, PLAIN);
    assert!(
        drawn.contains("81 % busy (run delay: not measured)"),
        "{drawn}"
    );
}

#[test]
fn fresh_over_https() {
    insta::assert_snapshot!(both(&fixture::secured()));
}

#[test]
fn fresh_with_connect_failures() {
    insta::assert_snapshot!(both(&fixture::failing()));
}

#[test]
fn no_response_at_all() {
    insta::assert_snapshot!(both(&fixture::no_answers()));
}

#[test]
fn check_violated_and_thresholds() {
    let mut record = fixture::record(vec![fixture::violated()]);
    record.thresholds = vec![
        Threshold {
            condition: "p99 > 50ms".to_owned(),
            met: Some(false),
            figure: "990 µs".to_owned(),
        },
        Threshold {
            condition: "throughput < 200k/s".to_owned(),
            met: Some(true),
            figure: "184,210/s".to_owned(),
        },
        Threshold {
            condition: "connect.p99 > 1ms".to_owned(),
            met: None,
            figure: "not measured".to_owned(),
        },
    ];
    insta::assert_snapshot!(summary(&record, None, PLAIN));
}

fn attempts() -> Vec<Run> {
    let mut runs = vec![fixture::closed(), fixture::closed(), fixture::bound()];
    for (i, run) in runs.iter_mut().enumerate() {
        run.attempt = i as u32 + 1;
        run.plan.threads = 1;
        run.plan.seed = i as u64;
    }
    runs[1].throughput_per_s = Some(179_000.0);
    runs[1].requests.ok -= 10;
    runs[1].requests.rejected += 10;
    runs[1].requests.statuses.insert(503, 10);
    runs[1].response_time_us = fixture::times(&[1_000_000; 100], 2);
    runs
}

#[test]
fn several_attempts() {
    let mut record = fixture::record(attempts());
    record.overall = Some(Overall {
        throughput_per_s: 182_473.0,
        throughput_interval: Some(fixture::interval(182_473.0, 0.021)),
        attempts: 3,
        notes: vec!["the second attempt was slower than the others".to_owned()],
    });
    let (wide, narrow) = (
        summary(&record, Some(NEXT), PLAIN),
        summary(&record, Some(NEXT), NARROW),
    );
    insta::assert_snapshot!(format!("{wide}{}\n{narrow}", "─".repeat(60)));
}

#[test]
fn several_processes_and_windows() {
    let mut runs = vec![fixture::closed(); 2];
    for (i, run) in runs.iter_mut().enumerate() {
        run.process = 10;
        run.attempt = i as u32 + 9;
    }
    runs[0].process = 9;
    runs[0].steady.class = SteadyClass::Unsteady;
    runs[0].window.why = "the whole run: never steady; the level first changed at 3 s".to_owned();
    runs[1].window.from_s = 2.5;
    runs[1].window.why = "steady from 2.5 s; slower before that".to_owned();
    runs[1].client.cpu_us_per_request = Some(5.25);
    insta::assert_snapshot!(summary(&fixture::record(runs), None, PLAIN));
}

#[test]
fn an_interrupted_run_with_a_failing_warmup() {
    let mut run = fixture::closed();
    run.ended.reason = EndReason::Interrupted;
    run.series.truncate(4);
    run.sending_s = 4.0;
    run.window = Window {
        from_s: 0.0,
        to_s: 4.0,
        why: "the whole run: too short to judge whether it was steady".to_owned(),
    };
    run.plan.warmup = std::time::Duration::from_secs(5);
    run.warmup = Some(WarmupRun {
        duration_s: 5.0,
        requests: fixture::failing().requests,
    });
    run.requests.reconnects = 1;
    insta::assert_snapshot!(draw(&run, PLAIN));
}

#[test]
fn requests_sent_again_with_http2() {
    let mut run = fixture::failing();
    run.requests.reconnects = 5_636;
    run.plan.http = Http::V2(Http2::default());
    let text = draw(&run, PLAIN);
    let lines = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let note = "note requests sent again 5,636 times, because the server closed the connection or refused the stream";
    assert!(lines.contains(note), "{text}");
}

#[test]
fn reasons_for_blocked_times() {
    let mut run = fixture::open_censored();
    let words = |run: &Run| {
        let text = draw(run, PLAIN);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(!words(&run).contains("blocked by"), "unknown");
    let of = |ms: u64, n| fixture::times(&vec![ms * 1_000_000; n], 0);
    run.blocked_by = BlockedTimes {
        connecting_us: of(1, 20),
        own_limit_us: of(4, 20),
        server_limit_us: of(10, 90),
        retried_us: Times::default(),
    };
    let text = words(&run);
    let line = "blocked by the server's limit on streams 90 %, all connections in use (-c) 8 %, \
                connecting 2 %";
    assert!(text.contains(line), "{text}");
    run.plan.http = Http::V2(Http2::default());
    let settings = ServerSettings {
        max_streams: Some(100),
        window_bytes: 65_535,
        table_bytes: 4096,
        frame_bytes: 16_384,
    };
    run.http2 = Some(Http2Use {
        settings: Some(settings),
        go_aways: 3,
        go_away_errors: BTreeMap::from([("ENHANCE_YOUR_CALM".to_owned(), 2)]),
        ..Http2Use::default()
    });
    (run.ping_us, run.window_us) = (of(2, 12), of(30, 5));
    let text = words(&run);
    for expected in [
        "blocked by the server's limit of 100 streams 90 %, all streams in use (-c, --streams) 8 %",
        "3 GOAWAY frames (2 with ENHANCE_YOUR_CALM)",
        "ping 2.00 ms",
        "window 30.0 ms",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    run.blocked_us = fixture::times(&[900_000; 100], 0);
    assert!(!words(&run).contains("blocked by"), "hardly blocked");
}

#[test]
fn held_connections() {
    let mut run = fixture::open_censored();
    if let Model::Open { hold, .. } = &mut run.plan.model {
        *hold = true;
    }
    run.plan.connections = 100_000;
    run.connections.held = Some(HeldConnections {
        standing: 99_500,
        failed: 500,
        reasons: BTreeMap::from([("ports_exhausted".to_owned(), 500)]),
        lost: 12,
        reopened: 512,
        opening_ns: 10_100_000_000,
    });
    insta::assert_snapshot!(both(&run));
}

#[test]
fn shows_when_a_server_stopped_responding() {
    let mut run = fixture::closed();
    run.ended.reason = EndReason::ServerGone;
    run.sending_s = 9.1;
    run.server_gone_since_s = Some(4.25);
    let ended =
        "the server stopped responding after 4.25 s; the figures cover the whole run (9.1 s)";
    let one_line = |run: &Run| {
        let text = draw(run, PLAIN);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(one_line(&run).contains(ended));
    run.ended.reason = EndReason::Completed;
    assert!(one_line(&run).contains(ended));
    run.ended.reason = EndReason::ServerGone;
    run.server_gone_since_s = None;
    assert!(draw(&run, PLAIN).contains("the server stopped responding within 9.1 s"));
}

#[test]
fn separates_runs_of_different_loads() {
    let text = summary(
        &fixture::record(vec![fixture::closed(), fixture::failing()]),
        None,
        PLAIN,
    );
    assert_eq!(text.matches("floodmark load").count(), 2);
    assert!(!text.contains("attempt"));
}

#[test]
fn color() {
    let text = draw(&fixture::failing(), COLOR);
    insta::assert_snapshot!(text.replace('\u{1b}', "␛"));
}

/// Color never carries meaning alone.
#[test]
fn color_changes_no_word() {
    for run in [
        fixture::closed(),
        fixture::open_censored(),
        fixture::invalid(),
    ] {
        let mut text = draw(&run, COLOR);
        while let Some(start) = text.find("\u{1b}[") {
            let end = start + text[start..].find('m').unwrap();
            text.replace_range(start..=end, "");
        }
        assert_eq!(text, draw(&run, PLAIN));
    }
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [60, 72, 80, 100, 140] {
        let style = Style {
            color: false,
            width,
        };
        let mut texts = vec![summary(&fixture::record(attempts()), Some(NEXT), style)];
        for run in [
            fixture::closed(),
            fixture::open_censored(),
            fixture::bound(),
            fixture::invalid(),
            fixture::failing(),
            fixture::no_answers(),
            fixture::violated(),
            fixture::mixed(),
        ] {
            texts.push(draw(&run, style));
        }
        for line in texts.iter().flat_map(|text| text.lines()) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn removes_foreign_escape_sequences() {
    let evil = "\u{1b}]0;owned\u{7}\r\nvalidity     valid".to_owned();
    let mut run = fixture::invalid();
    run.plan.target.url = format!("http://127.0.0.1/{evil}");
    run.plan.request.method.clone_from(&evil);
    run.ended.reason = EndReason::ServerGone;
    run.ended.detail = Some(evil.clone());
    run.window.why.clone_from(&evil);
    run.validity.reasons = vec![evil.as_str().into(), evil.as_str().into()];
    run.validity.notes = vec![evil.clone()];
    run.missing = vec![evil.clone()];
    run.errors.insert(evil.clone(), 3);
    run.checks = fixture::violated().checks;
    run.checks[0].name.clone_from(&evil);
    run.checks[0].detail.clone_from(&evil);
    let mut second = run.clone();
    second.attempt = 2;
    second.validity.status = Status::Bound;
    let mut record = fixture::record(vec![run, second]);
    record.skipped = vec![evil.clone()];
    record.thresholds = vec![Threshold {
        condition: evil.clone(),
        met: Some(true),
        figure: evil.clone(),
    }];
    let mut one = record.clone();
    one.runs.truncate(1);
    for text in [&one, &record].map(|record| summary(record, Some(&evil), PLAIN)) {
        assert!(text.contains("owned"));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        assert!(
            !text.lines().any(|line| line == "validity     valid"),
            "{text}"
        );
    }
}

#[test]
fn cause_evidence_and_next_step_follow_the_throughput() {
    let drawn = draw(&fixture::judged(Cause::WorkerPool), PLAIN);
    let labels = drawn.lines().filter(|line| !line.starts_with(' '));
    let labels: Vec<&str> = labels.filter_map(|line| line.split("  ").next()).collect();
    let at = labels.iter().position(|label| *label == "why").unwrap();
    assert_eq!(
        labels[at - 1..at + 5],
        ["goodput", "why", "evidence", "evidence", "limit", "next"],
        "{drawn}"
    );
    assert!(
        drawn.contains("worker-pool (likely) – all 8 threads"),
        "{drawn}"
    );
    assert!(
        drawn.contains("upper bound with this limit: 160/s"),
        "{drawn}"
    );

    // Several attempts show the most frequent cause.
    let mut runs = [
        fixture::judged(Cause::ServerCpu),
        fixture::judged(Cause::WorkerPool),
        fixture::judged(Cause::WorkerPool),
    ];
    for (attempt, run) in (1..).zip(&mut runs) {
        run.attempt = attempt;
    }
    let drawn = summary(&fixture::record(runs.into()), Some(NEXT), PLAIN);
    assert!(
        drawn.contains("worker-pool (likely; 2 of 3 runs)"),
        "{drawn}"
    );
    assert_eq!(drawn.matches(NEXT).count(), 1, "{drawn}");
    let at = |label: &str| drawn.find(&format!("\n{label} ")).unwrap();
    assert!(
        at("why") < at("evidence") && at("evidence") < at("next"),
        "{drawn}"
    );
    assert!(at("next") < at("outcomes"), "{drawn}");
}

#[test]
fn a_short_summary_shows_figures_cause_validity_and_failures() {
    let short = |run: &Run| {
        let record = fixture::record(vec![run.clone()]);
        terminal::summary(&record, Some(NEXT), Extent::Short, PLAIN)
    };
    let good = short(&fixture::judged(Cause::WorkerPool));
    for label in [
        "throughput",
        "why",
        "next",
        "service",
        "response",
        "validity",
    ] {
        assert!(good.lines().any(|line| line.starts_with(label)), "{good}");
    }
    for label in ["evidence", "outcomes", "traffic", "client", "server"] {
        assert!(!good.lines().any(|line| line.starts_with(label)), "{good}");
    }
    assert!(good.lines().count() <= 14, "{good}");
    let failing = short(&fixture::failing());
    assert!(failing.contains("\noutcomes"), "{failing}");
}
