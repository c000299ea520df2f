//! Snapshots of every kind of summary.

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::events::{EndReason, Held};
use floodmark_record::result::{Overall, Threshold};
use floodmark_record::run::{Run, Saturation, Status, SteadyClass, Warmup, Window};

use crate::fixture;
use crate::style::Style;
use crate::summary::{of_record, of_run};

const PLAIN: Style = Style {
    colour: false,
    width: 100,
};
const NARROW: Style = Style {
    colour: false,
    width: 60,
};
const COLOUR: Style = Style {
    colour: true,
    width: 100,
};

const NEXT: &str = "find the highest rate it keeps: floodmark load http://127.0.0.1:8080/ -r 150k";

fn draw(run: &Run, style: Style) -> String {
    of_run(run, &[], Some(NEXT), style)
}

/// Both widths of one run, a line between them.
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
fn ramps_that_went_beyond_and_that_did_not() {
    let ramps = [fixture::ramp(), kept_up(), undecided()];
    let drawn = ramps.map(|run| draw(&run, PLAIN));
    insta::assert_snapshot!(drawn.join(&format!("{}\n", "─".repeat(60))));
}

fn kept_up() -> Run {
    let mut run = fixture::ramp();
    run.saturation = Some(Saturation::KeptUp {
        up_to_per_s: 6000.0,
        method: "in its last second enough were answered".to_owned(),
    });
    run
}

fn undecided() -> Run {
    let mut run = fixture::ramp();
    run.saturation = Some(Saturation::Undecided {
        why: "its last second has too few answers".to_owned(),
    });
    run
}

/// Each attempt has its own answer: one may fall behind and another not.
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
        texts.push(of_record(&fixture::record(runs), None, PLAIN));
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
    insta::assert_snapshot!(of_record(&fixture::record(runs), None, PLAIN));
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
fn a_wait_that_could_not_be_read_is_no_zero() {
    let mut run = fixture::closed();
    run.client.threads[0].run_delay_s = None;
    let drawn = draw(&run, PLAIN);
    assert!(
        drawn.contains("81 % busy and waited – for a CPU (not known)"),
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
fn no_answers_at_all() {
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
            figure: "– (not measured)".to_owned(),
        },
    ];
    insta::assert_snapshot!(of_record(&record, None, PLAIN));
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
        of_record(&record, Some(NEXT), PLAIN),
        of_record(&record, Some(NEXT), NARROW),
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
    runs[0].window.why = "no steady part".to_owned();
    runs[1].window.from_s = 2.5;
    runs[1].window.why = "slower before".to_owned();
    runs[1].client.cpu_us_per_request = Some(5.25);
    insta::assert_snapshot!(of_record(&fixture::record(runs), None, PLAIN));
}

#[test]
fn an_interrupted_run_and_a_failing_warmup_are_said() {
    let mut run = fixture::closed();
    run.ended.reason = EndReason::Interrupted;
    run.series.truncate(4);
    run.sending_s = 4.0;
    run.window = Window {
        from_s: 0.0,
        to_s: 4.0,
        why: "all that was sent".to_owned(),
    };
    run.plan.warmup_s = 5.0;
    run.warmup = Some(Warmup {
        duration_s: 5.0,
        requests: fixture::failing().requests,
    });
    run.requests.reconnects = 1;
    insta::assert_snapshot!(draw(&run, PLAIN));
}

#[test]
fn held_connections() {
    let mut run = fixture::open_censored();
    run.plan.hold = true;
    run.plan.connections = 100_000;
    run.connections.held = Some(Held {
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
fn a_server_that_dies_midway_is_dated() {
    let mut run = fixture::closed();
    run.ended.reason = EndReason::ServerGone;
    run.sending_s = 9.1;
    run.server_gone_since_s = Some(4.25);
    assert!(draw(&run, PLAIN).contains("the server went away: no answer after 4.25 s;"));
    run.server_gone_since_s = None;
    assert!(draw(&run, PLAIN).contains("the server went away within 9.1 s;"));
}

#[test]
fn runs_of_different_loads_are_drawn_apart() {
    let text = of_record(
        &fixture::record(vec![fixture::closed(), fixture::failing()]),
        None,
        PLAIN,
    );
    assert_eq!(text.matches("floodmark load").count(), 2);
    assert!(!text.contains("attempt"));
}

#[test]
fn colour() {
    let text = draw(&fixture::failing(), COLOUR);
    insta::assert_snapshot!(text.replace('\u{1b}', "␛"));
}

/// The same words with and without colour: colour never carries meaning alone.
#[test]
fn colour_changes_no_word() {
    for run in [
        fixture::closed(),
        fixture::open_censored(),
        fixture::invalid(),
    ] {
        let mut text = draw(&run, COLOUR);
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
            colour: false,
            width,
        };
        let mut texts = vec![of_record(&fixture::record(attempts()), Some(NEXT), style)];
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
fn escape_sequences_from_outside_never_reach_the_terminal() {
    let evil = "\u{1b}]0;owned\u{7}\r\nvalidity     valid".to_owned();
    let mut run = fixture::invalid();
    run.plan.target.url = format!("http://127.0.0.1/{evil}");
    run.plan.request.method.clone_from(&evil);
    run.ended.reason = EndReason::ServerGone;
    run.ended.detail = Some(evil.clone());
    run.window.why.clone_from(&evil);
    run.validity.reasons = vec![evil.clone(), evil.clone()];
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
    let one = of_run(&record.runs[0], &record.thresholds, Some(&evil), PLAIN);
    for text in [one, of_record(&record, Some(&evil), PLAIN)] {
        assert!(text.contains("owned"));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        assert!(
            !text.lines().any(|line| line == "validity     valid"),
            "{text}"
        );
    }
}

#[test]
fn the_cause_its_evidence_and_the_next_step_stand_right_below_the_figure() {
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
    assert!(drawn.contains("at most 160/s come of it"), "{drawn}");

    // Of several attempts the one that most of them have.
    let mut runs = [
        fixture::judged(Cause::ServerCpu),
        fixture::judged(Cause::WorkerPool),
        fixture::judged(Cause::WorkerPool),
    ];
    for (attempt, run) in (1..).zip(&mut runs) {
        run.attempt = attempt;
    }
    let drawn = of_record(&fixture::record(runs.into()), Some(NEXT), PLAIN);
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
