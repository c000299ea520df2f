use super::*;
use crate::testing;
use floodmark_record::events::GroupRow;
use floodmark_record::plan::{Length, Model, RateChange, Schedule, Spacing};
use floodmark_record::units::Rate;

const WIDE: Style = Style {
    color: false,
    width: 100,
};

#[test]
fn duration_run() {
    let mut progress = RunProgress::new(&testing::closed_plan());
    assert_eq!(progress.line(WIDE), "0 s of 10 s  0/s  0 ok  0 connections");
    progress.on(&Event::Second(testing::second_row(0, 1000, 0)));
    progress.on(&Event::Second(testing::second_row(1, 2000, 5)));
    let before = "2 s of 10 s  2,000/s  5 failed  p99 990 µs  p50 500 µs";
    let wide = Style { width: 120, ..WIDE };
    assert_eq!(
        progress.line(wide),
        format!("{before}  CPUs 0.81 client  3,000 ok  50 connections")
    );
    progress.on(&Event::ServerUsed(ServerUsed {
        over_s: 2.0,
        user_s: 0.5,
        system_s: 1.8,
    }));
    assert_eq!(
        progress.line(wide),
        format!("{before}  CPUs 0.81 client 1.15 server  3,000 ok  50 connections")
    );
    progress.on(&Event::StoreUsed(ServerUsed {
        over_s: 1.0,
        user_s: 0.2,
        system_s: 0.1,
    }));
    let with_store = progress.line(Style { width: 140, ..WIDE });
    assert!(
        with_store.contains("CPUs 0.81 client 1.15 server 0.30 store  3,000 ok"),
        "{with_store}"
    );
}

#[test]
fn an_open_load_with_a_number_of_requests_ends_when_all_ended() {
    let share = |length| {
        let mut plan = testing::closed_plan();
        plan.model = Model::Open {
            schedule: Schedule::Constant {
                rate: Rate::new(1000.0).unwrap(),
                spacing: Spacing::Constant,
                length,
            },
            hold: false,
        };
        let mut progress = RunProgress::new(&plan);
        progress.on(&Event::Second(testing::second_row(0, 500, 0)));
        progress.on(&Event::Second(testing::second_row(1, 500, 0)));
        progress.share()
    };
    assert_eq!(share(Length::Requests(2000)), Some(0.5));
    let earlier = Length::Earlier {
        requests: 2000,
        duration: std::time::Duration::from_secs(2),
    };
    assert_eq!(share(earlier), Some(1.0));
}

#[test]
fn shows_the_agents_side_by_side() {
    let mut progress = RunProgress::new(&testing::closed_plan());
    let mut shown = |per_s: &[Option<f64>]| {
        progress.on(&Event::AgentRates {
            ok_per_s: per_s.to_vec(),
        });
        progress.on(&Event::Second(testing::second_row(0, 1000, 0)));
        let line = progress.line(Style { width: 140, ..WIDE });
        let (_, rest) = line.split_once("p50 500 µs  ").unwrap();
        rest.split_once("  CPUs").unwrap().0.to_owned()
    };
    let few = shown(&[Some(500.0), Some(480.0), None]);
    assert_eq!(few, "agents 500/s 480/s –");
    let many = [Some(500.0), Some(480.0), Some(490.0), None, Some(510.0)];
    assert_eq!(shown(&many), "5 agents 480/s to 510/s, 1 silent");
}

#[test]
fn a_short_row_changes_no_rate_and_has_no_bar() {
    let mut progress = RunProgress::new(&testing::closed_plan());
    progress.on(&Event::Second(testing::second_row(0, 1000, 0)));
    let mut row = testing::second_row(1, 500, 0);
    row.to_ns = row.from_ns + 499_000_000;
    progress.on(&Event::Second(row.clone()));
    assert_eq!(progress.history, [1000.0]);
    progress.on(&Event::ServerUsed(ServerUsed {
        over_s: 0.01,
        user_s: 0.16,
        system_s: 0.0,
    }));
    let line = progress.line(Style { width: 120, ..WIDE });
    assert!(line.contains("1,000/s"), "{line}");
    assert!(line.contains("CPUs 0.81 client  1,500 ok"), "{line}");
}

#[test]
fn short_rows_count_together() {
    let mut progress = RunProgress::new(&testing::closed_plan());
    for index in 0..5 {
        let mut row = testing::second_row(index, 300 * (index + 1), 0);
        row.from_ns = index * 300_000_000;
        row.to_ns = row.from_ns + 300_000_000;
        progress.on(&Event::Second(row));
    }
    // The fifth row is too short.
    let rates: Vec<f64> = progress.history.iter().map(|per_s| per_s.round()).collect();
    assert_eq!(rates, [1500.0, 3500.0]);
    let line = progress.line(Style { width: 120, ..WIDE });
    assert!(line.contains("3,500/s"), "{line}");
    // Each row has the CPU time of one full second.
    assert!(line.contains("CPUs 2.70 client  4,500 ok"), "{line}");
}

#[test]
fn a_narrow_terminal_shows_the_most_important_parts() {
    let mut progress = RunProgress::new(&testing::closed_plan());
    progress.on(&Event::Second(testing::second_row(0, 1000, 5)));
    for width in 1..100 {
        let style = Style {
            color: false,
            width,
        };
        assert!(progress.line(style).chars().count() < width);
    }
    let narrow = Style {
        color: false,
        width: 34,
    };
    assert_eq!(progress.line(narrow), "1 s of 10 s  1,000/s  5 failed");
}

#[test]
fn estimates_the_rest_of_a_counted_run() {
    let mut plan = testing::closed_plan();
    plan.model = floodmark_record::plan::Model::Closed {
        length: floodmark_record::plan::Length::Requests(10_000),
    };
    let mut progress = RunProgress::new(&plan);
    progress.on(&Event::Second(testing::second_row(0, 2500, 0)));
    assert!(
        progress
            .line(WIDE)
            .starts_with("2,500 of 10,000 requests, 3 s left")
    );
}

#[test]
fn shows_the_limit_that_ends_a_run_first() {
    for (requests, expected) in [
        (5000, "2,500 of 5,000 requests, 1 s left"),
        (50_000, "1 s of 10 s"),
    ] {
        let mut plan = testing::closed_plan();
        plan.model = floodmark_record::plan::Model::Closed {
            length: floodmark_record::plan::Length::Earlier {
                duration: floodmark_record::plan::DEFAULT_DURATION,
                requests,
            },
        };
        let mut progress = RunProgress::new(&plan);
        progress.on(&Event::Second(testing::second_row(0, 2500, 0)));
        let line = progress.line(WIDE);
        assert!(line.starts_with(expected), "{line}");
    }
}

#[test]
fn parts_count_until_their_second_ends() {
    let part = |from_ms: u64, ok| PartRow {
        phase: Phase::Measure,
        from_ns: from_ms * 1_000_000,
        to_ns: (from_ms + 100) * 1_000_000,
        sums: GroupRow {
            counts: testing::second_row(0, ok, 0).counts,
            ..GroupRow::default()
        },
        groups: Vec::new(),
    };
    let mut progress = RunProgress::new(&testing::closed_plan());
    assert_eq!(
        (progress.share(), progress.left_s()),
        (Some(0.0), Some(10.0))
    );
    progress.on(&Event::Part(part(0, 100)));
    progress.on(&Event::Part(part(100, 140)));
    assert_eq!(
        progress.line(WIDE),
        "0 s of 10 s  1,200/s  CPUs 0.00 client  240 ok  0 connections"
    );
    assert_eq!(
        (progress.share(), progress.left_s()),
        (Some(0.02), Some(9.8))
    );
    progress.on(&Event::Second(testing::second_row(0, 1000, 0)));
    progress.on(&Event::Part(part(1000, 90)));
    assert_eq!(progress.counts().ok, 1090);
    // The rate of a whole second is more precise than the rate of its parts.
    assert_eq!(progress.last.ok_per_s, 1000.0);
}

#[test]
fn counts_the_warmup_separately() {
    let mut plan = testing::closed_plan();
    plan.warmup = std::time::Duration::from_secs(5);
    let mut progress = RunProgress::new(&plan);
    let mut row = testing::second_row(0, 700, 0);
    row.phase = Phase::Warmup;
    progress.on(&Event::Second(row.clone()));
    assert!(progress.line(WIDE).starts_with("warm-up 1 s of 5 s  700/s"));
    progress.on(&Event::Second(testing::second_row(0, 1000, 0)));
    assert!(progress.line(WIDE).contains(" 1,000 ok"));
    progress.length_s = Some(0.6);
    assert!(progress.line(WIDE).starts_with("600 ms of 600 ms "));
}

#[test]
fn shows_a_changing_rate_with_the_achieved_one() {
    let mut progress = RunProgress::new(&testing::steps_plan());
    progress.on(&Event::Second(testing::second_row(0, 900, 100)));
    assert!(
        progress
            .line(WIDE)
            .starts_with("step 1 of 3, 1 s of 10 s  900/s of 1,000/s  100 failed")
    );
    (1..8).for_each(|i| progress.on(&Event::Second(testing::second_row(i, 900, 0))));
    assert!(progress.line(WIDE).starts_with("step 3 of 3, 8 s of 10 s"));
    let replay = testing::replay_plan();
    let mut progress = RunProgress::new(&replay);
    progress.on(&Event::Second(testing::second_row(0, 900, 0)));
    assert!(
        progress
            .line(WIDE)
            .starts_with("1 s of 8 s  900/s of 900/s")
    );
}

#[test]
fn shows_responses_awaited_after_the_last_request() {
    let mut progress = RunProgress::new(&testing::closed_plan());
    for i in 0..10 {
        let mut row = testing::second_row(i, 1000, 0);
        row.counts.sent += 2;
        progress.on(&Event::Second(row.clone()));
    }
    assert!(
        progress
            .line(WIDE)
            .starts_with("all sent, waiting for 20 responses")
    );
}

#[test]
fn shows_opened_connections() {
    let report = |standing, failed| Connecting {
        standing,
        failed,
        of: 100_000,
    };
    let line = opening_line(&report(34_000, 0));
    assert_eq!(line, "opening connections: 34,000 of 100,000");
    let mut progress = RunProgress::new(&testing::closed_plan());
    let lines: Vec<String> = (1..=20)
        .filter_map(|n| progress.plain_opening_line(&report(n * 1000, 5)))
        .collect();
    assert_eq!(
        lines,
        [
            "opening connections: 10,000 of 100,000, 5 failed",
            "opening connections: 20,000 of 100,000, 5 failed"
        ]
    );
}

#[test]
fn returns_a_plain_line_every_five_seconds() {
    let mut progress = RunProgress::new(&testing::closed_plan());
    let mut lines = Vec::new();
    for i in 0..10 {
        progress.on(&Event::Second(testing::second_row(i, 1000, 1)));
        lines.extend(progress.plain_line());
    }
    assert_eq!(
        lines,
        [
            "5 s of 10 s: 1,000/s, 5 failed, p99 990 µs, p50 500 µs, CPUs 0.81 client, 5,000 ok, 50 connections",
            "10 s of 10 s: 1,000/s, 10 failed, p99 990 µs, p50 500 µs, CPUs 0.81 client, 10,000 ok, 50 connections",
        ]
    );
}

#[test]
fn keys_change_the_rate_during_the_measurement() {
    let mut progress = RunProgress::new(&testing::constant_plan(1000.0));
    assert_eq!(
        (progress.change_rate(1), progress.rate_keys()),
        (None, None)
    );
    progress.on(&Event::Began {
        phase: Phase::Measure,
        at_ns: 0,
    });
    assert_eq!(progress.rate_keys().as_deref(), Some(" · +/- rate"));
    let mut press = |steps| progress.change_rate(steps).map(Rate::per_s);
    let pressed = [1, 1, 1, -1, -1, -1, -1].map(|steps| press(steps).unwrap());
    let expected = [1100.0, 1210.0, 1330.0, 1210.0, 1100.0, 1000.0, 909.0];
    for (pressed, expected) in pressed.into_iter().zip(expected) {
        assert!((pressed - expected).abs() < 1e-9, "{pressed} {expected}");
    }
    assert_eq!(progress.rate_keys().as_deref(), Some(" · +/- 909/s"));
    let lowest = std::iter::from_fn(|| progress.change_rate(-1))
        .last()
        .unwrap();
    assert_eq!((lowest.per_s(), progress.change_rate(-1)), (102.0, None));
    progress.on(&Event::RateChanged(RateChange {
        from_s: 1.0,
        rate_per_s: 909.0,
    }));
    (0..2).for_each(|i| progress.on(&Event::Second(testing::second_row(i, 900, 0))));
    assert!(
        progress
            .line(WIDE)
            .starts_with("step 2 of 2, 2 s of 10 s  900/s of 900/s")
    );
    assert!(
        progress.heading[1].contains("909/s"),
        "{:?}",
        progress.heading
    );
}

#[test]
fn hides_the_figures_of_a_damaged_histogram() {
    let mut progress = RunProgress::new(&testing::closed_plan());
    let mut row = testing::second_row(0, 1000, 0);
    row.histograms
        .insert(TimeKind::Response, "garbage".to_owned());
    progress.on(&Event::Second(row.clone()));
    assert_eq!(
        progress.line(WIDE),
        "1 s of 10 s  1,000/s  CPUs 0.81 client  1,000 ok  50 connections"
    );
}
