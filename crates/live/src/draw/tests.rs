//! Snapshots of all layouts.

use floodmark_record::Event;
use floodmark_record::capacity::TrialOutcome::{Miss, Pass, Void};
use floodmark_record::events::{Connecting, Phase};
use floodmark_record::grpc::GrpcStatus;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::*;
use crate::testing::{began, end, feed, load, part, search, second};

/// Returns what a terminal of this size shows.
fn shown(state: &LiveState, (width, height): (u16, u16), color: bool) -> TestBackend {
    let page = Page {
        state,
        messages: &["nginx: started".to_owned()],
        has_keys: true,
        has_rate_keys: true,
        is_paused: false,
        theme: Theme { color },
    };
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| page.draw(frame.area(), frame.buffer_mut()))
        .unwrap();
    terminal.backend().clone()
}

/// Returns an experiment with three trials, of which one is complete and one is running.
fn experiment() -> LiveState {
    let mut state = LiveState::default();
    let attempts = ["native", "nginx", "node", "native", "nginx", "node"];
    state.set_schedule(attempts.map(str::to_owned), false);
    state.skip_trial("node");
    for (trial, failed) in [("native", 0), ("nginx", 40), ("native", 0)] {
        state.on(&began(Some(trial)));
        feed(&mut state, 10, failed);
        state.on(&end(10 * failed));
    }
    state.set_position("4/6 nginx, process 2 · last attempt · 6 s left");
    state.on(&began(Some("nginx")));
    feed(&mut state, 4, 0);
    state
}

#[test]
fn shows_a_load() {
    insta::assert_snapshot!("load_80x24", shown(&load(900), (80, 24), false));
    insta::assert_snapshot!("load_120x40", shown(&load(2_000), (120, 40), false));
    insta::assert_snapshot!("load_40x10", shown(&load(2_000), (40, 10), false));
}

#[test]
fn counts_grpc_statuses_by_name() {
    let Event::Second(mut row) = second(0, 90, 10) else {
        unreachable!()
    };
    row.counts.statuses = [(200, 97), (503, 3)].into();
    row.counts.grpc_statuses = [(GrpcStatus::Ok, 90), (GrpcStatus::Unavailable, 7)].into();
    let mut state = LiveState::default();
    state.on(&began(None));
    state.on(&Event::Began {
        phase: Phase::Measure,
        at_ns: 0,
    });
    state.on(&Event::Second(row));
    let text = shown(&state, (120, 40), false).to_string();
    let statuses = "status 503: 3, OK: 90, UNAVAILABLE: 7";
    assert!(text.contains(statuses), "{text}");
}

#[test]
fn shows_an_experiment() {
    insta::assert_snapshot!("experiment_80x24", shown(&experiment(), (80, 24), false));
    insta::assert_snapshot!("experiment_120x40", shown(&experiment(), (120, 40), false));
    insta::assert_snapshot!("experiment_40x10", shown(&experiment(), (40, 10), false));
}

#[test]
fn shows_how_a_search_narrows_its_interval() {
    let trials = [
        (10_000.0, Pass),
        (20_000.0, Miss),
        (14_000.0, Void),
        (14_100.0, Pass),
        (16_800.0, Miss),
        (15_400.0, Pass),
    ];
    insta::assert_snapshot!("search_80x24", shown(&search(&trials), (80, 24), false));
    insta::assert_snapshot!("search_120x40", shown(&search(&trials), (120, 40), false));
    insta::assert_snapshot!("search_40x10", shown(&search(&trials), (40, 10), false));
}

#[test]
fn shows_figures_before_the_first_second_has_ended() {
    let mut state = LiveState::default();
    let text = |state: &LiveState| shown(state, (80, 24), false).to_string();
    assert!(text(&state).contains("starting"));
    state.on(&began(None));
    state.on(&Event::Connecting(Connecting {
        standing: 10,
        failed: 0,
        of: 50,
    }));
    assert!(text(&state).contains("opening connections: 10 of 50"));
    state.on(&Event::Began {
        phase: floodmark_record::events::Phase::Measure,
        at_ns: 0,
    });
    state.on(&part(0, 5_000));
    let text = text(&state);
    assert!(
        text.contains("50,000/s") && text.contains("5,000"),
        "{text}"
    );
}

#[test]
fn any_size_can_be_drawn() {
    let state = experiment();
    for width in (1..=130).step_by(3) {
        for height in 1..=45 {
            shown(&state, (width, height), true);
        }
    }
    let line = shown(&load(0), (39, 9), false).to_string();
    assert!(line.contains("4 s of 10 s  62,000/s"), "{line}");
}

#[test]
fn uses_no_color_if_disabled() {
    let colored = |color| {
        let terminal = shown(&load(2_000), (80, 24), color);
        let cells = terminal.buffer().content.iter();
        cells
            .filter(|cell| cell.fg != Color::Reset || !cell.modifier.is_empty())
            .count()
    };
    assert!(colored(true) > 100);
    assert_eq!(colored(false), 0);
}
