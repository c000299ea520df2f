//! Agents whose clocks differ.

use floodmark_truth::Scenario;

use super::{program, start};
use crate::support::{Load, Serve, truth};

/// Clock shifts of three agents in seconds.
const SHIFTS_S: [f64; 3] = [5.0, -3.0, 1.0];

/// Returns three agents with shifted clocks.
fn shifted() -> String {
    let [first, second, third] = SHIFTS_S;
    let script = format!(
        "set -- {first} {second} {third}; shift {{index}}; \
         FLOODMARK_TEST_CLOCK_SHIFT=$1 exec {} worker --agent",
        program()
    );
    format!("command:3:sh -c '{script}'")
}

/// Returns the counts of each second.
fn seconds(load: &Load) -> Vec<(f64, f64)> {
    let rows = load.run().series.iter();
    rows.map(|row| (row.from_s, row.throughput_per_s)).collect()
}

#[test]
fn shifted_clocks_change_neither_counts_nor_seconds() {
    let arguments = ["-r", "600", "-d", "3s"];
    let [plain, shifted] = ["local:3".to_owned(), shifted()].map(|agents| {
        let (_server, url) = truth(Scenario::default());
        let load = start(&url, &agents, &arguments).end();
        load.ends_with(0);
        load
    });
    assert_eq!(shifted.counts().ok, 1800);
    assert_eq!(shifted.counts(), plain.counts());
    for (shifted, plain) in seconds(&shifted).iter().zip(seconds(&plain)) {
        assert_eq!(shifted.0, plain.0);
        // The last responses of a second may be counted in the next one.
        assert!((shifted.1 - plain.1).abs() <= 30.0, "{shifted:?} {plain:?}");
    }
    for (agent, shift_s) in shifted.run().agents.iter().zip(SHIFTS_S) {
        let error_us = (agent.skew_us.unwrap() - shift_s * 1e6).abs();
        // All processes read the same clock, but at slightly different times.
        let bound_us = agent.bound_us.unwrap();
        assert!(error_us <= bound_us + 100.0, "{agent:?}");
        assert!(bound_us < 20_000.0, "{agent:?}");
    }
    for agent in &plain.run().agents {
        let (skew_us, bound_us) = (agent.skew_us.unwrap(), agent.bound_us.unwrap());
        assert!(skew_us.abs() <= bound_us + 100.0, "{agent:?}");
    }
}

#[test]
fn a_check_allows_for_the_clocks() {
    let server = Serve::start(&["dispatcher"]);
    let url = format!("{}/dispatcher", server.url);
    let arguments = ["-n", "6000", "-c", "6", "--check", "sequence"];
    let load = start(&url, &shifted(), &arguments).end();
    load.ends_with(0);
    assert_eq!(load.run().checks[0].held, Some(true));
}
