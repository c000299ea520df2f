//! Searches on servers whose trials pass up to a capacity that scatters.

use proptest::prelude::*;

use super::*;
use crate::testing::Normal;

const CAPACITY: f64 = 20_000.0;

fn settings() -> CapacitySettings {
    CapacitySettings::default()
}

/// Runs a search on a server. Returns the result and the number of trials.
fn search(
    start_per_s: f64,
    settings: CapacitySettings,
    mut server: impl FnMut(f64) -> TrialOutcome,
) -> (CapacityFinding, usize) {
    disturbed_search(start_per_s, settings, |rate| (server(rate), false))
}

/// Runs a search on a server that returns for each trial whether the host was disturbed.
fn disturbed_search(
    start_per_s: f64,
    settings: CapacitySettings,
    mut server: impl FnMut(f64) -> (TrialOutcome, bool),
) -> (CapacityFinding, usize) {
    let mut search = CapacitySearch::new(start_per_s, settings);
    let mut trials = 0;
    loop {
        match search.next() {
            CapacityStep::Trial { rate_per_s, .. } => {
                let (outcome, is_disturbed) = server(rate_per_s);
                search.record(rate_per_s, outcome, is_disturbed);
                trials += 1;
            }
            CapacityStep::Done(finding) => return (finding, trials),
        }
    }
}

fn outcome(is_pass: bool) -> TrialOutcome {
    if is_pass {
        TrialOutcome::Pass
    } else {
        TrialOutcome::Miss
    }
}

/// Returns a server whose capacity scatters with a standard deviation, and changes per trial.
fn scattered(seed: u64, scatter: f64, drift: f64) -> impl FnMut(f64) -> TrialOutcome {
    let mut normal = Normal::new(seed);
    let mut trials = 0.0;
    move |rate| {
        let capacity = CAPACITY * (scatter * normal.next() + drift * trials).exp();
        trials += 1.0;
        outcome(rate <= capacity)
    }
}

/// Returns a server that stays overloaded until the rate is below 80 % of its capacity.
fn metastable(seed: u64, scatter: f64) -> impl FnMut(f64) -> TrialOutcome {
    let mut normal = Normal::new(seed);
    let mut is_collapsed = false;
    move |rate| {
        let edge = if is_collapsed { 0.8 } else { 1.0 };
        is_collapsed = rate > CAPACITY * edge * (scatter * normal.next()).exp();
        outcome(!is_collapsed)
    }
}

/// Returns a first rate between 0.6 and 1.8 times the capacity.
fn start(seed: u64) -> f64 {
    CAPACITY * (0.6 + 1.2 * Normal::new(seed + 1_000).uniform())
}

fn covers(estimate: &CapacityEstimate, capacity: f64) -> bool {
    (estimate.interval.low..=estimate.interval.high).contains(&capacity)
}

#[test]
fn interval_has_its_coverage_for_all_scatters() {
    // At most 100 searches; the standard error of the coverage is 2.2 %.
    for (scatter, most_trials) in [(0.0, 22), (0.003, 25), (0.01, 30), (0.03, 45)] {
        let (mut covered, mut trials, mut scatters) = (0, Vec::new(), 0.0);
        for seed in 0..100 {
            let server = scattered(seed, scatter, 0.0);
            let (finding, n) = search(start(seed), settings(), server);
            trials.push(n);
            if let CapacityFinding::Capacity(estimate) = finding {
                let half = 0.5 * (estimate.interval.high - estimate.interval.low);
                assert!(half <= 0.0203 * estimate.rate_per_s, "{estimate:?}");
                assert!(estimate.is_confirmed, "{estimate:?}");
                covered += usize::from(covers(&estimate, CAPACITY));
                scatters += estimate.scatter / 100.0;
            }
        }
        trials.sort_unstable();
        assert!(
            (scatters - scatter).abs() < 0.008,
            "scatter {scatter}: {scatters}"
        );
        assert!(covered >= 89, "scatter {scatter}: {covered} of 100");
        assert!(trials[50] <= most_trials, "scatter {scatter}: {trials:?}");
    }
}

#[test]
fn hysteresis_has_two_capacities() {
    for seed in 0..30 {
        let (finding, _) = search(start(seed), settings(), metastable(seed, 0.003));
        let CapacityFinding::Hysteresis { rising, falling } = finding else {
            panic!("seed {seed}: {finding:?}");
        };
        assert!(
            (rising.rate_per_s / CAPACITY - 1.0).abs() < 0.03,
            "{rising:?}"
        );
        assert!(
            (falling.rate_per_s / CAPACITY / 0.8 - 1.0).abs() < 0.03,
            "{falling:?}"
        );
    }
}

#[test]
fn drift_is_not_stationary() {
    for drift in [-0.005, 0.005] {
        for seed in 0..30 {
            let (finding, _) = search(start(seed), settings(), scattered(seed, 0.01, drift));
            let CapacityFinding::NotStationary {
                first_per_s,
                last_per_s,
            } = finding
            else {
                panic!("seed {seed}, drift {drift}: {finding:?}");
            };
            assert!((first_per_s / CAPACITY - 1.0).abs() < 0.1, "{first_per_s}");
            assert_eq!(last_per_s < first_per_s, drift < 0.0);
        }
    }
}

#[test]
fn false_alarms_are_rare() {
    // The limit is 1 % for each of the two other models.
    let alarms = (0..300)
        .filter(|seed| {
            let server = scattered(*seed, 0.02, 0.0);
            let (finding, _) = search(start(*seed), settings(), server);
            !matches!(finding, CapacityFinding::Capacity(_))
        })
        .count();
    assert!(alarms <= 9, "{alarms} of 300");
}

#[test]
fn client_limit_makes_a_lower_bound() {
    let limit = 0.4 * CAPACITY;
    let (finding, trials) = search(CAPACITY, settings(), |rate| {
        if rate > limit {
            TrialOutcome::Void
        } else {
            TrialOutcome::Pass
        }
    });
    let CapacityFinding::AtLeast {
        rate_per_s,
        limit: CapacityLimit::Client,
    } = finding
    else {
        panic!("{finding:?}");
    };
    assert!((0.97 * limit..=limit).contains(&rate_per_s), "{rate_per_s}");
    assert!(trials <= 20, "{trials}");
}

#[test]
fn one_late_trial_is_repeated() {
    let mut server = scattered(1, 0.0, 0.0);
    let mut trials = 0;
    let (finding, _) = search(CAPACITY, settings(), |rate| {
        trials += 1;
        match trials {
            1 | 6 | 12 => TrialOutcome::Void,
            _ => server(rate),
        }
    });
    let CapacityFinding::Capacity(estimate) = finding else {
        panic!("{finding:?}");
    };
    assert!(covers(&estimate, CAPACITY), "{estimate:?}");
}

#[test]
fn a_disturbed_client_is_no_client_limit() {
    let settings = CapacitySettings {
        certain_per_s: 0.25 * CAPACITY,
        ..settings()
    };
    let (finding, trials) = search(CAPACITY, settings.clone(), |_| TrialOutcome::Void);
    assert_eq!((finding, trials), (CapacityFinding::Unknown, MOST_LATE));
    // Late up to the certain rate at first, and then on time.
    let mut server = scattered(1, 0.0, 0.0);
    let mut trials = 0;
    let (finding, _) = search(CAPACITY, settings, |rate| {
        trials += 1;
        match trials {
            ..8 => TrialOutcome::Void,
            _ => server(rate),
        }
    });
    let CapacityFinding::Capacity(estimate) = finding else {
        panic!("{finding:?}");
    };
    assert!(covers(&estimate, CAPACITY), "{estimate:?}");
    assert!(estimate.rate_per_s >= 0.9 * CAPACITY, "{estimate:?}");
}

/// Returns a server and a client that is late with a given probability, regardless of the rate.
fn often_late(seed: u64, share: f64) -> impl FnMut(f64) -> TrialOutcome {
    let mut server = scattered(seed, 0.01, 0.0);
    let mut random = Normal::new(seed + 2_000);
    move |rate| {
        let outcome = server(rate);
        if random.uniform() < share {
            TrialOutcome::Void
        } else {
            outcome
        }
    }
}

#[test]
fn a_client_that_is_often_late_has_no_limit() {
    for share in [0.2, 0.4, 0.6] {
        let (mut covered, mut limited) = (0, 0);
        for seed in 0..50 {
            match search(start(seed), settings(), often_late(seed, share)).0 {
                CapacityFinding::Capacity(estimate) => {
                    covered += usize::from(covers(&estimate, CAPACITY));
                }
                CapacityFinding::AtLeast { .. } => limited += 1,
                _ => {}
            }
        }
        assert!(
            covered >= 45,
            "late with probability {share}: {covered} of 50"
        );
        assert!(
            limited <= 2,
            "late with probability {share}: {limited} of 50"
        );
    }
}

#[test]
fn a_client_limit_expires_when_the_client_sends_more() {
    let mut server = scattered(5, 0.0, 0.0);
    let mut trials = 0;
    let (finding, _) = search(0.8 * CAPACITY, settings(), |rate| {
        trials += 1;
        if trials <= 7 && rate > 0.9 * CAPACITY {
            TrialOutcome::Void
        } else {
            server(rate)
        }
    });
    let CapacityFinding::Capacity(estimate) = finding else {
        panic!("{finding:?}");
    };
    assert!(covers(&estimate, CAPACITY), "{estimate:?}");
}

#[test]
fn a_disturbed_host_is_no_client_limit() {
    let limit = 0.4 * CAPACITY;
    let mut server = scattered(6, 0.0, 0.0);
    let (finding, _) = disturbed_search(CAPACITY, settings(), |rate| {
        if rate > limit {
            (TrialOutcome::Void, true)
        } else {
            (server(rate), false)
        }
    });
    assert_eq!(finding, CapacityFinding::Unknown);
}

#[test]
fn disturbed_misses_do_not_mislead() {
    let mut covered = 0;
    for seed in 0..20 {
        let mut server = scattered(seed, 0.01, 0.0);
        let mut random = Normal::new(seed + 2_000);
        let (finding, trials) = disturbed_search(1.2 * CAPACITY, settings(), |rate| {
            let outcome = server(rate);
            if random.uniform() < 0.3 {
                (TrialOutcome::Miss, true)
            } else {
                (outcome, false)
            }
        });
        assert!(trials < 100, "seed {seed}: {trials} trials");
        covered += usize::from(matches!(
            finding,
            CapacityFinding::Capacity(estimate) if covers(&estimate, CAPACITY)
        ));
    }
    assert!(covered >= 17, "{covered} of 20");
}

#[test]
fn an_objective_that_is_never_met_ends_within_10_trials() {
    let (finding, trials) = search(CAPACITY, settings(), |_| TrialOutcome::Miss);
    let below = CapacityFinding::Below {
        rate_per_s: 1.0,
        is_lowest: true,
    };
    assert_eq!(finding, below);
    assert!(trials <= 10, "{trials}");
}

#[test]
fn a_server_above_the_highest_rate_has_a_lower_bound() {
    let settings = CapacitySettings {
        highest_per_s: 50_000.0,
        ..settings()
    };
    let (finding, trials) = search(CAPACITY, settings, |_| TrialOutcome::Pass);
    let CapacityFinding::AtLeast {
        rate_per_s,
        limit: CapacityLimit::Settings,
    } = finding
    else {
        panic!("{finding:?}");
    };
    assert!((rate_per_s / 50_000.0 - 1.0).abs() < 0.002, "{rate_per_s}");
    assert!(trials <= 8, "{trials}");
}

#[test]
fn one_odd_outcome_does_not_mislead() {
    for odd in 1..15 {
        let mut trials = 0;
        let (finding, _) = search(1.3 * CAPACITY, settings(), |rate| {
            trials += 1;
            outcome((rate <= CAPACITY) != (trials == odd))
        });
        let CapacityFinding::Capacity(estimate) = finding else {
            panic!("odd trial {odd}: {finding:?}");
        };
        assert!(covers(&estimate, CAPACITY), "odd trial {odd}: {estimate:?}");
    }
}

#[test]
fn a_search_that_ends_early_has_a_wide_interval() {
    let settings = |most_trials| CapacitySettings {
        most_trials,
        ..settings()
    };
    let width = |trials| {
        let (finding, n) = search(CAPACITY, settings(trials), scattered(3, 0.01, 0.0));
        assert_eq!(n, trials);
        let CapacityFinding::Capacity(estimate) = finding else {
            panic!("{finding:?}");
        };
        assert!(
            !estimate.is_confirmed && covers(&estimate, CAPACITY),
            "{estimate:?}"
        );
        estimate.interval.high / estimate.interval.low
    };
    assert!(width(4) > width(10) && width(10) > 1.04);
    let finding = |trials| search(CAPACITY, settings(trials), |_| TrialOutcome::Miss).0;
    assert_eq!(finding(0), CapacityFinding::Unknown);
    assert!(matches!(
        finding(2),
        CapacityFinding::Below {
            is_lowest: false,
            ..
        }
    ));
}

#[test]
fn an_unusable_first_rate_is_moved_into_the_range() {
    for start in [f64::NAN, -5.0, 0.0, 1e-9, f64::INFINITY] {
        let search = CapacitySearch::new(start, settings());
        let CapacityStep::Trial { rate_per_s, .. } = search.next() else {
            panic!("{start}");
        };
        assert!(
            (0.99..1.01e8).contains(&rate_per_s),
            "{start}: {rate_per_s}"
        );
    }
}

#[test]
fn rounded_rates_are_confirmed() {
    let mut server = scattered(4, 0.0, 0.0);
    let mut search = CapacitySearch::new(CAPACITY, settings());
    while let CapacityStep::Trial { rate_per_s, .. } = search.next() {
        let rate_per_s = (rate_per_s / 50.0).round() * 50.0;
        search.record(rate_per_s, server(rate_per_s), false);
    }
    let CapacityFinding::Capacity(estimate) = search.finding() else {
        panic!("{:?}", search.finding());
    };
    assert!(
        estimate.is_confirmed && covers(&estimate, CAPACITY),
        "{estimate:?}"
    );
}

#[test]
fn impossible_rates_are_accepted() {
    let mut search = CapacitySearch::new(CAPACITY, settings());
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        search.record(rate, TrialOutcome::Pass, false);
        search.record(rate, TrialOutcome::Miss, false);
    }
    assert!(matches!(search.next(), CapacityStep::Trial { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_outcomes_end_the_search(outcomes in prop::collection::vec(0u8..9, 60)) {
        let settings = CapacitySettings { most_trials: 60, ..settings() };
        let range = 0.99..1.01 * settings.highest_per_s;
        let mut search = CapacitySearch::new(CAPACITY, settings.clone());
        let mut past = Vec::new();
        for outcome in outcomes {
            let CapacityStep::Trial { rate_per_s, .. } = search.next() else { break };
            prop_assert!(range.contains(&rate_per_s), "{}", rate_per_s);
            let (outcome, is_disturbed) = match outcome {
                0 | 8 => (TrialOutcome::Void, outcome == 8),
                1..4 => (TrialOutcome::Pass, false),
                _ => (TrialOutcome::Miss, false),
            };
            search.record(rate_per_s, outcome, is_disturbed);
            past.push((rate_per_s, outcome, is_disturbed));
        }
        prop_assert!(matches!(search.next(), CapacityStep::Done(_)));
        let mut resumed = CapacitySearch::new(CAPACITY, settings);
        for (rate_per_s, outcome, is_disturbed) in past {
            resumed.record(rate_per_s, outcome, is_disturbed);
        }
        prop_assert_eq!(resumed.next(), search.next());
    }

    #[test]
    fn a_lower_bound_is_a_rate_that_passed(
        limit in 0.1f64..1.5,
        share in 0.0f64..0.8,
        seed in 0u64..1_000,
        most_trials in 5usize..60,
    ) {
        let mut server = often_late(seed, share);
        let mut passed = Vec::new();
        let settings = CapacitySettings { most_trials, ..settings() };
        let (finding, _) = search(CAPACITY, settings, |rate| {
            let outcome = if rate > limit * CAPACITY { TrialOutcome::Void } else { server(rate) };
            if outcome == TrialOutcome::Pass {
                passed.push(rate);
            }
            outcome
        });
        if let CapacityFinding::AtLeast { rate_per_s, .. } = finding {
            prop_assert!(passed.contains(&rate_per_s), "{} {:?}", rate_per_s, passed);
        }
    }

    #[test]
    fn trials_at_other_rates_are_accepted(rates in prop::collection::vec(1e-3f64..1e9, 20)) {
        let mut search = CapacitySearch::new(CAPACITY, settings());
        for rate in rates {
            search.record(rate, outcome(rate < CAPACITY), false);
        }
        prop_assert!(!matches!(search.finding(), CapacityFinding::Unknown));
    }
}
