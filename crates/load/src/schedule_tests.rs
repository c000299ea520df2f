//! Properties of [`super`].

use super::*;
use crate::mix::Picks;
use crate::testing::{closed_plan, open_plan, ramp_plan, replay_plan, steps_plan};
use floodmark_record::plan::{Model, RateChange, Spacing};
use proptest::prelude::*;

fn all(plan: &Plan, thread: u64, threads: u64) -> Vec<u64> {
    let share = share((0, 1), (thread as u32, threads as u32));
    let mut schedule = ArrivalSchedule::new(plan, share).unwrap();
    std::iter::from_fn(|| schedule.take()).collect()
}

/// Takes all arrivals of a schedule.
fn times_of(mut schedule: ArrivalSchedule) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || schedule.take())
}

#[test]
fn a_thousand_per_second_for_twelve_seconds_is_twelve_thousand() {
    let times = all(
        &open_plan(Arrivals::Constant, 1000.0, Some(12.0), None),
        0,
        1,
    );
    assert_eq!(times.len(), 12_000);
    assert_eq!(
        (times[0], times[1], times[11_999]),
        (0, 1_000_000, 11_999_000_000)
    );
}

#[test]
fn rounding_keeps_the_number_of_arrivals() {
    for (rate, seconds, n) in [
        (30.0, 0.1, 3),
        (3.0, 0.3, 1),
        (7.0, 1.0, 7),
        (0.1, 10.0, 1),
        (49_999.0, 10.0, 499_990),
    ] {
        let plan = open_plan(Arrivals::Constant, rate, Some(seconds), None);
        assert_eq!(all(&plan, 0, 1).len(), n, "{rate}/s for {seconds} s");
    }
}

#[test]
fn a_changed_schedule_is_the_schedule_of_its_steps() {
    for spacing in [Arrivals::Constant, Arrivals::Poisson] {
        for thread in 0..3 {
            let thread = share((0, 1), (thread, 3));
            let mut plan = open_plan(spacing, 700.0, Some(5.0), None);
            let mut changed = ArrivalSchedule::new(&plan, thread).unwrap();
            let mut taken = Vec::new();
            for (from_s, rate_per_s) in [(1.0, 910.0), (2.0, 0.25), (4.0, 1200.0)] {
                while changed.next.is_some_and(|at| at < seconds(from_s)) {
                    taken.extend(changed.take());
                }
                plan.change_rate(RateChange { from_s, rate_per_s });
                changed.change(plan.schedule().unwrap());
            }
            taken.extend(times_of(changed));
            let steps = ArrivalSchedule::new(&plan, thread).unwrap();
            let expected: Vec<_> = times_of(steps).collect();
            assert_eq!(taken.len(), expected.len());
            // A constant rate and the first of several steps round to different nanoseconds.
            let differs = |(a, b): (&u64, &u64)| a.abs_diff(*b) > 1;
            assert!(!taken.iter().zip(&expected).any(differs));
        }
    }
}

#[test]
fn poisson_has_the_requested_mean_and_variance() {
    let times = all(
        &open_plan(Arrivals::Poisson, 10_000.0, None, Some(200_000)),
        0,
        1,
    );
    let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    assert!((mean - 1e5).abs() < 1e3, "mean gap {mean} ns");
    assert!(
        (variance.sqrt() / mean - 1.0).abs() < 0.02,
        "the standard deviation equals the mean"
    );
}

#[test]
fn the_same_seed_gives_the_same_arrivals() {
    let plan = open_plan(Arrivals::Poisson, 500.0, Some(2.0), None);
    assert_eq!(all(&plan, 0, 1), all(&plan, 0, 1));
    let other = Plan {
        seed: plan.seed + 1,
        ..plan.clone()
    };
    assert_ne!(all(&plan, 0, 1), all(&other, 0, 1));
}

/// Returns a plan for each kind of arrivals.
fn every_kind(seed: u64) -> Vec<Plan> {
    let steps = steps_plan(&[(400.0, 0.3), (0.0, 0.1), (900.0, 0.4)]);
    let plans = [
        open_plan(Arrivals::Constant, 500.0, Some(0.7), None),
        open_plan(Arrivals::Poisson, 500.0, Some(0.7), None),
        open_plan(Arrivals::Poisson, 500.0, None, Some(300)),
        open_plan(Arrivals::Poisson, 500.0, Some(0.7), Some(300)),
        open_plan(Arrivals::Burst, 5000.0, None, Some(400)),
        ramp_plan(0.0, 900.0, 0.8),
        steps,
        replay_plan(vec![0, 5, 5, 5, 1_000_000, 70_000_000], 0.1),
    ];
    plans.map(|plan| Plan { seed, ..plan }).into()
}

proptest! {
    #[test]
    fn agents_share_the_schedule_of_one_thread(
        seed in any::<u64>(), agents in 1u32..6, threads in 1u32..4,
    ) {
        for plan in every_kind(seed) {
            let alone = ArrivalSchedule::new(&plan, alone()).unwrap();
            let (window, total) = (alone.window, alone.total);
            let whole: Vec<(u64, u64)> = (1..).zip(times_of(alone)).collect();
            let mut union = Vec::new();
            for (agent, thread) in (0..agents).flat_map(|a| (0..threads).map(move |t| (a, t))) {
                let share = share((agent, agents), (thread, threads));
                let mut own = ArrivalSchedule::new(&plan, share).unwrap();
                prop_assert_eq!((own.window, own.total), (window, total));
                let mut picks = Picks::new(&plan, share, 1);
                while let Some(at) = own.take() {
                    union.push((picks.take().number, at));
                }
            }
            union.sort_unstable();
            prop_assert_eq!(union, whole);
        }
    }

    #[test]
    fn threads_share_the_schedule_of_one_thread(
        rate in 1.0f64..5000.0,
        n in 0u64..500,
        threads in 1u64..7,
        arrivals in prop_oneof![Just(Arrivals::Constant), Just(Arrivals::Poisson), Just(Arrivals::Burst)],
    ) {
        let plan = open_plan(arrivals, rate, None, Some(n));
        let whole = all(&plan, 0, 1);
        prop_assert_eq!(whole.len() as u64, n);
        prop_assert!(whole.is_sorted());
        let mut parts: Vec<u64> = (0..threads).flat_map(|t| all(&plan, t, threads)).collect();
        parts.sort_unstable();
        prop_assert_eq!(parts, whole);
    }
}

fn of(plan: &Plan) -> Vec<u64> {
    all(plan, 0, 1)
}

/// Counts the arrivals between two times in seconds.
fn within(times: &[u64], from_s: f64, to_s: f64) -> usize {
    times
        .iter()
        .filter(|at| (from_s..to_s).contains(&(**at as f64 / NS_PER_S as f64)))
        .count()
}

#[test]
fn a_ramp_inverts_its_integral() {
    // Λ(t) = 50 t², so arrival k is at √(k / 50) s.
    let times = of(&ramp_plan(0.0, 1000.0, 10.0));
    assert_eq!(times.len(), 5000);
    for k in [0usize, 1, 2, 50, 200, 1250, 4999] {
        let due = (k as f64 / 50.0).sqrt() * NS_PER_S as f64;
        assert!((times[k] as f64 - due).abs() <= 1.0, "{k}: {}", times[k]);
    }
    // A falling ramp is the same ramp reversed.
    let down = of(&ramp_plan(1000.0, 0.0, 10.0));
    assert_eq!(down.len(), 5000);
    assert_eq!((down[0], down[5000 - 1250]), (0, 5_000_000_000));
    // A ramp without a slope is a constant rate.
    let level = of(&ramp_plan(1000.0, 1000.0, 2.0));
    assert_eq!(
        level,
        of(&open_plan(Arrivals::Constant, 1000.0, Some(2.0), None))
    );
}

#[test]
fn steps_keep_their_rates_and_carry_fractions_over() {
    let times = of(&steps_plan(&[(1000.0, 1.0), (0.0, 0.5), (2000.0, 1.0)]));
    assert_eq!(times.len(), 3000);
    assert_eq!(
        (times[999], times[1000], times[1001], times[2999]),
        (999_000_000, 1_500_000_000, 1_500_500_000, 2_499_500_000)
    );
    // One and a half arrivals per second.
    let times = of(&steps_plan(&[(1.5, 1.0), (1.5, 1.0)]));
    assert_eq!(times, [0, 666_666_667, 1_333_333_333]);
    assert_eq!(of(&steps_plan(&[(0.0, 1.0), (2.0, 1.0)]))[0], 1_000_000_000);
    assert_eq!(of(&steps_plan(&[(2.0, 1.0), (0.0, 1.0)])).len(), 2);
}

#[test]
fn replays_the_times_of_its_file() {
    let times = vec![0, 5, 5, 1_000_000_000, 4_000_000_000];
    let plan = replay_plan(times.clone(), 5.0);
    assert_eq!(of(&plan), times);
    let schedule = ArrivalSchedule::new(&plan, alone()).unwrap();
    assert_eq!((schedule.total, schedule.window), (5, 5_000_000_000));
}

#[test]
fn the_earlier_limit_ends_the_window() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let of = |duration_s, requests| {
            let plan = open_plan(arrivals, 1000.0, duration_s, requests);
            let schedule = ArrivalSchedule::new(&plan, alone()).unwrap();
            (schedule.total, schedule.window)
        };
        let (timed, counted) = (of(Some(1.0), None), of(None, Some(500)));
        assert_eq!(of(Some(1.0), Some(5000)), timed);
        assert_eq!(of(Some(1.0), Some(500)), counted);
        assert_eq!(of(Some(0.7), Some(0)), (0, of(None, Some(0)).1));
    }
}

#[test]
fn the_last_arrival_is_within_the_window() {
    let count = |arrivals| open_plan(arrivals, 1000.0, None, Some(500));
    for plan in [
        count(Arrivals::Constant),
        count(Arrivals::Poisson),
        count(Arrivals::Burst),
        ramp_plan(10.0, 2000.0, 1.5),
        steps_plan(&[(10.0, 0.3), (900.0, 0.7)]),
    ] {
        let schedule = ArrivalSchedule::new(&plan, alone()).unwrap();
        let last = of(&plan).pop().unwrap();
        assert!(
            last < schedule.window,
            "{:?}",
            plan.schedule().map(Schedule::arrivals)
        );
    }
}

#[test]
fn poisson_steps_and_ramps_have_mean_and_variance_of_the_integral() {
    let ramp = ramp_plan(100.0, 700.0, 1.0);
    let steps = steps_plan(&[(100.0, 0.5), (0.0, 0.1), (700.0, 0.5)]);
    for (plan, from_s, to_s, mean) in [
        (&ramp, 0.0, 1.0, 400.0),
        (&ramp, 0.5, 1.0, 275.0),
        (&steps, 0.0, 0.5, 50.0),
        (&steps, 0.5, 0.6, 0.0),
        (&steps, 0.6, 1.1, 350.0),
    ] {
        const SEEDS: u64 = 400;
        let counts: Vec<f64> = (0..SEEDS)
            .map(|seed| {
                let plan = Plan {
                    seed,
                    ..poisson(plan.clone())
                };
                within(&of(&plan), from_s, to_s) as f64
            })
            .collect();
        let n = SEEDS as f64;
        let got = counts.iter().sum::<f64>() / n;
        let variance = counts.iter().map(|c| (c - got).powi(2)).sum::<f64>() / n;
        // Allow five standard errors. The variance of a Poisson count equals its mean, and the
        // variance estimate has a relative standard error of √(2/n).
        assert!(
            (got - mean).abs() <= 5.0 * (mean / n).sqrt(),
            "{mean}: {got}"
        );
        assert!(
            (variance - mean).abs() <= 5.0 * (2.0 / n).sqrt() * mean,
            "{mean}: variance {variance}"
        );
    }
}

/// Returns the plan with Poisson arrivals. A replay is returned unchanged.
fn poisson(mut plan: Plan) -> Plan {
    if let Model::Open {
        schedule: Schedule::Ramp { spacing, .. } | Schedule::Steps { spacing, .. },
        ..
    } = &mut plan.model
    {
        *spacing = Spacing::Poisson;
    }
    plan
}

fn changing() -> impl Strategy<Value = Plan> {
    let ramp = (0.0f64..3000.0, 1.0f64..3000.0, 0.1f64..3.0)
        .prop_map(|(from, to, length)| ramp_plan(from, to, length));
    let rate = prop_oneof![Just(0.0), 0.5f64..3000.0];
    let steps = proptest::collection::vec((rate, 0.01f64..1.0), 1..9)
        .prop_map(|steps| [steps, vec![(10.0, 0.1)]].concat())
        .prop_map(|steps| steps_plan(&steps));
    let replay = proptest::collection::vec(0u64..3_000_000_000, 1..500).prop_map(|mut times| {
        times.sort_unstable();
        replay_plan(times, 3.5)
    });
    prop_oneof![ramp, steps, replay]
}

proptest! {
    #[test]
    fn threads_share_changing_rates(plan in changing(), random: bool, threads in 1u64..7) {
        let plan = if random { poisson(plan) } else { plan };
        let whole = of(&plan);
        prop_assert!(whole.is_sorted());
        let mut parts: Vec<u64> = (0..threads).flat_map(|t| all(&plan, t, threads)).collect();
        parts.sort_unstable();
        prop_assert_eq!(&parts, &whole);
        let schedule = plan.schedule().unwrap();
        let end = schedule.window_s();
        prop_assert!(whole.last().is_none_or(|at| *at as f64 <= end * NS_PER_S as f64));
        if plan.schedule().map(Schedule::arrivals) == Some(Arrivals::Constant) {
            let expected = schedule.expected_by(end).unwrap();
            prop_assert!((whole.len() as f64 - expected).abs() < 1.0 + 1e-6);
            // At every time, the number of arrivals differs from the integral of the rate by at
            // most 1.
            for at in (1..20).map(|i| end * f64::from(i) / 20.0) {
                let expected = schedule.expected_by(at).unwrap();
                let n = within(&whole, 0.0, at) as f64;
                prop_assert!((n - expected).abs() <= 1.0 + 1e-3, "{} at {}: {}", expected, at, n);
            }
        }
    }
}

fn open(seed: u64) -> Plan {
    Plan {
        seed,
        ..open_plan(Arrivals::Constant, 1000.0, None, Some(1000))
    }
}

#[test]
fn agents_get_equal_shares_in_no_fixed_order() {
    let agents: Vec<u32> = (0..40_000).map(|k| agent_of(k, 1, 4)).collect();
    for agent in 0..4 {
        let n = agents.iter().filter(|a| **a == agent).count();
        // Three standard deviations of a binomial distribution.
        assert!(n.abs_diff(10_000) < 260, "{n}");
    }
    let repeats = agents.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!(repeats.abs_diff(10_000) < 260, "{repeats}");
}

proptest! {
    #[test]
    fn each_index_belongs_to_one_thread_of_one_agent(
        seed in any::<u64>(), agents in 1u32..9, threads in 1u32..5, is_open in any::<bool>(),
    ) {
        let plan = if is_open { open(seed) } else { closed_plan(100, 1) };
        let mut all: Vec<u64> = Vec::new();
        for (agent, thread) in (0..agents).flat_map(|a| (0..threads).map(move |t| (a, t))) {
            let mut indices = share((agent, agents), (thread, threads)).indices(&plan);
            while indices.next < 500 {
                all.push(indices.next);
                indices.advance();
            }
        }
        all.sort_unstable();
        prop_assert!(all.into_iter().eq(0..500));
    }

    #[test]
    fn passing_equals_repeated_advancing(seed in any::<u64>(), agents in 1u32..5, n in 0u64..50) {
        let mut passing = share((0, agents), (0, 2)).indices(&open(seed));
        let mut advancing = passing.clone();
        passing.pass(n);
        (0..n).for_each(|_| advancing.advance());
        prop_assert_eq!(passing.next, advancing.next);
    }
}
