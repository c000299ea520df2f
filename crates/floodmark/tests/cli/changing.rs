//! Tests of changing rates and replays, checked against the server's log.

use std::path::{Path, PathBuf};

use floodmark_record::plan::{Arrivals, Schedule};
use floodmark_record::run::{Run, Saturation, SteadyClass};
use floodmark_truth::{Log, Scenario};

use crate::live_view::split;
use crate::support::pty::{OnTerminal, TerminalSetup};
use crate::support::{Load, folded, load, run, succeeds, text, truth};

/// Rounding error of the maximum response time: relative, then absolute in seconds.
const ROUNDING: (f64, f64) = (2e-3, 2e-6);

/// Runs a load against a known-truth server. Compares floodmark's counts with the server's.
fn against_truth(arguments: &[&str]) -> (Load, Log) {
    let (server, url) = truth(Scenario::default());
    // Without --anyway, floodmark sends one more request, which it does not count.
    let load = load(&url, &[arguments, &["--anyway"]].concat());
    server.settle().unwrap();
    let log = server.stop().unwrap();
    load.ends_with(0);
    assert_eq!(load.counts().sent, log.totals.requests);
    assert_eq!(load.counts().ok, log.totals.requests);
    (load, log)
}

/// Compares the arrivals at the server with the schedule `due`, in seconds. No request may be
/// early, and none may be late by more than the maximum response time.
///
/// The server does not know the start of the run. The comparison assumes the latest start for which
/// no request is early.
fn on_time(run: &Run, log: &Log, due: &[f64]) {
    let mut arrivals: Vec<u64> = log.requests.iter().map(|r| r.arrival_ns).collect();
    arrivals.sort_unstable();
    let counts = &run.requests;
    assert_eq!(counts.intended, due.len() as u64);
    // On a busy host, the last requests may be unsent. The threads take requests in turn, so all
    // unsent requests are at the end.
    let cut = u64::from(run.plan.threads) * counts.unsent;
    let kept = due.len().saturating_sub(cut as usize);
    assert!(
        2 * kept >= due.len(),
        "{} of {} unsent",
        counts.unsent,
        due.len()
    );
    let base = arrivals[0];
    let after: Vec<f64> = arrivals[..kept]
        .iter()
        .zip(due)
        .map(|(at, due)| (at - base) as f64 / 1e9 - due)
        .collect();
    let start = after.iter().copied().fold(f64::INFINITY, f64::min);
    let latest = after.iter().copied().fold(0.0, f64::max) - start;
    let longest = run.response_time_us.max.unwrap() / 1e6;
    let (share, least) = ROUNDING;
    assert!(
        latest <= longest * (1.0 + share) + least,
        "latest arrival: {latest} s late; maximum response time: {longest} s"
    );
}

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_ramp_follows_its_schedule() {
    let (load, log) = against_truth(&["--ramp", "0-1k", "-d", "3s", "-t", "2", "-c", "100"]);
    let due: Vec<f64> = (0..1500)
        .map(|k| (f64::from(k) * 2.0 * 3.0 / 1000.0).sqrt())
        .collect();
    on_time(load.run(), &log, &due);
    let run = load.run();
    assert_eq!(run.plan.rate_per_s(), Some(500.0));
    assert_eq!(
        (run.plan.duration_s(), run.plan.request_limit()),
        (Some(3.0), None)
    );
    assert_eq!(run.steady.class, SteadyClass::Varied);
    assert_eq!((run.window.from_s, run.window.to_s), (0.0, 3.0));
    assert_eq!(run.throughput_interval, None);
    assert!(run.steps.is_empty());
}

#[test]
fn keys_change_the_rate_and_the_record_has_steps() {
    let (server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let result = directory.path().join("result");
    let arguments = [
        "load", &url, "-r", "300", "-d", "6s", "-t", "2", "-c", "100", "--anyway", "--out",
    ];
    let arguments = [&arguments[..], &[shown(&result)]].concat();
    let mut load = OnTerminal::start(&arguments, &TerminalSetup::default());
    load.wait_for("+/- rate");
    load.keys("+");
    load.wait_for("step 2 of 2");
    load.keys("-");
    load.wait_for("step 3 of 3");
    let (code, shown) = load.end();
    assert_eq!(code, 0, "{shown}");
    server.settle().unwrap();
    let log = server.stop().unwrap();
    let record = folded(&result);
    let run = &record.runs[0];
    let steps = run.plan.steps().unwrap();
    let rates: Vec<f64> = steps.iter().map(|step| step.rate_per_s).collect();
    assert_eq!(rates, [300.0, 330.0, 300.0]);
    // The requests arrive as they would with --steps.
    let schedule = run.plan.schedule().unwrap();
    let mut due = Vec::new();
    for segment in schedule.segments() {
        let next = |k: usize| (k as f64 - segment.before) / segment.rate_per_s;
        let within = (due.len()..)
            .map(next)
            .take_while(|at| *at < segment.length_s - 1e-9);
        let within: Vec<f64> = within.map(|at| segment.from_s + at).collect();
        due.extend(within);
    }
    on_time(run, &log, &due);
    let offered: Vec<f64> = run.steps.iter().map(|step| step.offered_per_s).collect();
    assert_eq!(offered, rates);
    assert_eq!(run.steady.class, SteadyClass::Varied);
    assert_eq!(run.throughput_interval, None);
    let (_, after) = split(&shown);
    assert!(after.contains("330/s"), "{after}");
}

#[test]
fn only_a_constant_rate_of_one_attempt_has_rate_keys() {
    let (_server, url) = truth(Scenario::default());
    for arguments in [&["-c", "2"][..], &["-r", "300", "--attempts", "2"]] {
        let arguments = [&["load", &url, "-d", "60s"], arguments].concat();
        let mut load = OnTerminal::start(&arguments, &TerminalSetup::default());
        load.wait_for("200:");
        load.keys("++q");
        let (code, shown) = load.end();
        assert_eq!(code, 130, "{shown}");
        assert!(
            shown.contains("p pause") && !shown.contains("+/-"),
            "{shown}"
        );
    }
}

#[test]
fn steps_have_rows_that_add_up() {
    // Rows of the series end at step boundaries, here every 1/3 s instead of every second.
    let (load, log) = against_truth(&["--steps", "300,0,900", "-d", "1s", "-c", "100"]);
    let first = (0..100).map(|k| f64::from(k) / 300.0);
    let last = (0..300).map(|k| 2.0 / 3.0 + f64::from(k) / 900.0);
    on_time(load.run(), &log, &first.chain(last).collect::<Vec<_>>());
    let run = load.run();
    let offered: Vec<f64> = run.steps.iter().map(|s| s.offered_per_s).collect();
    assert_eq!(offered, [300.0, 0.0, 900.0]);
    let intended: Vec<u64> = run.steps.iter().map(|s| s.requests.intended).collect();
    assert_eq!(intended.iter().sum::<u64>(), 400);
    let sum = |of: fn(&floodmark_record::Counts) -> u64| -> u64 {
        run.steps.iter().map(|s| of(&s.requests)).sum()
    };
    assert_eq!(sum(|c| c.ok), run.requests.ok);
    let timed: u64 = run.steps.iter().map(|s| s.response_time_us.count).sum();
    assert_eq!(timed, run.response_time_us.count);
    assert!((run.steps[2].from_s - 2.0 / 3.0).abs() < 1e-9);
    let cut = |at: f64| run.series.iter().any(|row| (row.from_s - at).abs() < 1e-6);
    assert!(cut(1.0 / 3.0) && cut(2.0 / 3.0), "{:?}", run.series);
    assert_eq!(
        &folded(&load.directory.path().join("result")).runs[0].steps,
        &run.steps
    );
}

#[test]
fn poisson_steps_are_the_same_for_the_same_seed() {
    let counted = |seed: &str| {
        let steps = ["--steps", "400:500ms,100:500ms", "--arrivals", "poisson"];
        let (load, _) = against_truth(&[&steps[..], &["-c", "100", "--seed", seed]].concat());
        assert_eq!(
            load.run().plan.schedule().map(Schedule::arrivals),
            Some(Arrivals::Poisson)
        );
        load.counts().intended
    };
    let n = counted("7");
    assert_eq!(n, counted("7"));
    // The tolerance is five standard deviations of a Poisson count with mean 250.
    assert!((170..=330).contains(&n), "{n}");
}

#[test]
fn a_warm_up_uses_the_first_rate() {
    let (server, url) = truth(Scenario::default());
    let load = load(
        &url,
        &[
            "--steps",
            "200:500ms,400:500ms",
            "--warmup",
            "500ms",
            "-c",
            "100",
            "--anyway",
        ],
    );
    load.ends_with(0);
    let run = load.run();
    assert_eq!(run.warmup.as_ref().unwrap().requests.intended, 100);
    assert_eq!(run.requests.intended, 300);
    let sent = run.warmup.as_ref().unwrap().requests.sent + run.requests.sent;
    assert_eq!(server.stop().unwrap().totals.requests, sent);
}

#[test]
fn a_replay_follows_its_file() {
    // The last three requests are due at the same time.
    let mut due: Vec<f64> = (0..200).map(|k| f64::from(k * k) / 40_000.0).collect();
    due.extend([1.5; 3]);
    let lines: String = due
        .iter()
        .map(|s| format!("{:.9}\n", 1_763_741_296.0 + s))
        .collect();
    let (_directory, path) = file(&lines);
    for (speed, threads) in [("1x", "1"), ("2x", "3")] {
        let (load, log) = against_truth(&[
            "--replay",
            shown(&path),
            "--replay-speed",
            speed,
            "-t",
            threads,
        ]);
        let factor: f64 = speed.trim_end_matches('x').parse().unwrap();
        on_time(
            load.run(),
            &log,
            &due.iter().map(|s| s / factor).collect::<Vec<_>>(),
        );
        let run = load.run();
        let Some(Schedule::Replay { replay, .. }) = run.plan.schedule() else {
            panic!("the plan has no replay");
        };
        let window_s = 1.5 / factor * 203.0 / 202.0;
        assert!(
            (replay.window_s - window_s).abs() < 1e-6,
            "{}",
            replay.window_s
        );
        assert!((run.sending_s - window_s).abs() < 1e-6, "{}", run.sending_s);
        assert_eq!(run.plan.request_limit(), Some(203));
        assert_eq!(replay.file, shown(&path));
        assert!(!load.stderr().contains("whole seconds"));
    }
}

#[test]
fn throughput_includes_the_last_response_of_a_replay() {
    let (_directory, path) = file("0\n100\n200\n");
    let (load, _) = against_truth(&["--replay", shown(&path), "--replay-unit", "ms"]);
    let run = load.run();
    assert!((run.sending_s - 0.3).abs() < 1e-6);
    // The throughput counts responses within the 300 ms window. The order of the three response
    // times is unknown, so every order is tried.
    let times = &run.response_time_us;
    let (middle, most) = (times.p50.unwrap(), times.max.unwrap());
    let us = [3.0 * times.mean.unwrap() - middle - most, middle, most];
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    let in_time = orders.map(|[first, second, third]| {
        let left = [(first, 300_000.0), (second, 200_000.0), (third, 100_000.0)];
        left.iter()
            .filter(|(which, left)| us[*which] < *left)
            .count()
    });
    let counted = run.throughput_per_s.unwrap() * 0.3;
    let is = |count: &usize| (counted - *count as f64).abs() < 0.003;
    assert!(in_time.iter().any(is), "{counted} of {us:?}");
}

#[test]
fn replays_an_access_log_and_notes_its_resolution() {
    let line = |second: u32| {
        format!(
            "::1 - - [21/Nov/2026:16:08:{second:02} +0000] \"GET /\u{1b}[31m HTTP/1.1\" 200 2 \"-\" \"-\"\n"
        )
    };
    let (_directory, path) = file(&[line(1), line(1), line(2)].concat());
    let (load, _) = against_truth(&["--replay", shown(&path)]);
    assert_eq!((load.counts().intended, load.counts().ok), (3, 3));
    assert!(load.stderr().contains("whole seconds"), "{}", load.stderr());
    assert!(!load.stderr().contains('\u{1b}'));
}

#[test]
fn the_result_omits_the_times_of_a_long_replay() {
    let lines: String = (0..10_000).map(|k| format!("{}\n", k * 300)).collect();
    let (_directory, path) = file(&lines);
    let flags = ["--replay", shown(&path), "--replay-unit", "us", "-c", "20"];
    let (load, _) = against_truth(&flags);
    assert_eq!(load.counts().intended, 10_000);
    let Some(Schedule::Replay { replay, .. }) = load.run().plan.schedule() else {
        panic!("the plan has no replay");
    };
    // A difference of 300,000 ns takes three bytes with seven bits each. The first timestamp, 0,
    // takes one byte.
    assert_eq!(replay.timetable_bytes.0, 1 + 3 * 9_999);
    assert!(replay.timetable.times().is_empty());
    let began = std::fs::read_to_string(load.events()).unwrap();
    let plan = began
        .lines()
        .find(|line| line.contains("run_began"))
        .unwrap();
    assert!(plan.len() < 3000, "{plan}");
}

#[test]
fn summary_and_progress_show_the_schedule() {
    let (_server, url) = truth(Scenario::default());
    let shown = |arguments: &[&str]| {
        let output = run(&[&["load", &url], arguments].concat());
        succeeds(&output);
        (text(&output.stdout), text(&output.stderr))
    };
    let (summary, progress) = shown(&["--steps", "100:1s,200:5s"]);
    for words in [
        "open, 2 steps from 100/s to 200/s",
        "offered  achieved",
        "0 to 1 s",
        "1 s to 6 s",
    ] {
        assert!(summary.contains(words), "{words}: {summary}");
    }
    assert!(progress.contains("step 2 of 2, 5 s of 6 s: "), "{progress}");
    let (summary, _) = shown(&["--ramp", "200-400", "-d", "3s", "--arrivals", "poisson"]);
    assert!(
        summary.contains("open, ramp from 200/s to 400/s Poisson"),
        "{summary}"
    );
    let (_directory, path) = file("0\n0.1\n0.5\n");
    let (summary, _) = shown(&["--replay", path.to_str().unwrap(), "--attempts", "2"]);
    assert!(
        summary.contains("access.log") && summary.contains("3 requests"),
        "{summary}"
    );
}

#[test]
fn detects_a_server_that_falls_behind_a_ramp() {
    // With a response time of 20 ms, one connection handles at most 50 requests per second.
    let (_server, url) = truth(Scenario {
        service: floodmark_truth::scenario::Service::Fixed { delay_us: 20_000 },
        ..Scenario::default()
    });
    let load = load(&url, &["--ramp", "10-300", "-d", "6s", "-c", "1"]);
    let run = load.run();
    let Some(Saturation::FellBehind(found)) = &run.saturation else {
        panic!("{:?}", run.saturation);
    };
    assert!(found.achieved_per_s < 55.0, "{found:?}");
    assert!((10.0..160.0).contains(&found.offered_per_s), "{found:?}");
    assert!(found.at_s < 3.5, "{found:?}");
}
