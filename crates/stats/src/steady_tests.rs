//! Tests of [`super`] with scripted series.

use super::*;
use crate::testing::{Normal, ar1};

fn row(second: usize, throughput_per_s: f64, p50_us: Option<f64>) -> SeriesPoint {
    SeriesPoint {
        from_s: second as f64,
        to_s: second as f64 + 1.0,
        throughput_per_s,
        p50_us,
    }
}

/// Returns the series of a closed run with 50 connections. The median follows throughput, with its
/// own noise.
fn closed(levels: impl IntoIterator<Item = f64>, noise: &[f64], seed: u64) -> Vec<SeriesPoint> {
    let mut normal = Normal::new(seed ^ 0xabcd);
    levels
        .into_iter()
        .zip(noise)
        .enumerate()
        .map(|(i, (level, noise))| {
            let throughput = level * (1.0 + noise);
            let p50 = 50e6 / throughput.max(1.0) * (1.0 + 0.02 * normal.next());
            row(i, throughput, (throughput > 0.0).then_some(p50))
        })
        .collect()
}

fn scaled(noise: Vec<f64>, by: f64) -> Vec<f64> {
    noise.into_iter().map(|v| v * by).collect()
}

#[test]
fn flat_series_are_steady_in_95_percent() {
    // Each case has a length in seconds, a noise level and φ, and is tested with 200 series.
    for (n, noise, phi) in [
        (60, 0.02, 0.0),
        (60, 0.10, 0.0),
        (60, 0.05, 0.5),
        (12, 0.02, 0.0),
        (12, 0.10, 0.0),
        (12, 0.05, 0.5),
        (10, 0.02, 0.0),
        (10, 0.10, 0.0),
        (10, 0.10, 0.5),
        (300, 0.05, 0.5),
    ] {
        let wrong = (0..200)
            .filter(|seed| {
                let series = closed(vec![1e4; n], &scaled(ar1(phi, n, *seed), noise), *seed);
                steady(&series).class != SteadyClass::Steady
            })
            .count();
        assert!(
            wrong <= 10,
            "{wrong} of 200 wrong: {n} s, noise {noise}, φ {phi}"
        );
    }
}

#[test]
fn finds_a_speed_up_within_two_seconds() {
    for (gain, noise) in [(1.1, 0.02), (1.2, 0.05), (1.5, 0.10), (2.0, 0.02)] {
        let wrong = (0..100)
            .filter(|seed| {
                let levels = (0..60).map(|s| if s < 37 { 1e4 } else { 1e4 * gain });
                let judged = steady(&closed(levels, &scaled(ar1(0.0, 60, *seed), noise), *seed));
                judged.class != SteadyClass::Warming
                    || judged.from_s.is_none_or(|s| (s - 37.0).abs() > 2.0)
            })
            .count();
        assert!(wrong <= 5, "{wrong} of 100 wrong: ×{gain}, noise {noise}");
    }
}

#[test]
fn open_run_warms_up_in_its_median_only() {
    let mut normal = Normal::new(9);
    let series: Vec<SeriesPoint> = (0..30)
        .map(|s| {
            let p50 = if s < 8 { 900.0 } else { 300.0 };
            row(s, 1000.0, Some(p50 * (1.0 + 0.05 * normal.next())))
        })
        .collect();
    let judged = steady(&series);
    assert_eq!(judged.class, SteadyClass::Warming);
    assert_eq!(judged.from_s, Some(8.0));
}

/// Returns a run with a stall of length `stall` every `period`. An open run catches up afterwards.
fn stalled(
    n: usize,
    period: f64,
    stall: f64,
    phase: f64,
    open: bool,
    noise: f64,
) -> Vec<SeriesPoint> {
    let step = 1e-3;
    let mut backlog = 0.0;
    let mut normal = Normal::new((period * 1e3 + phase * 1e6) as u64);
    (0..n)
        .map(|s| {
            let mut answered = 0.0;
            let mut waits = Vec::new();
            for ms in 0..1000 {
                let t = s as f64 + f64::from(ms) * step + phase;
                let stopped = t.rem_euclid(period) < stall;
                backlog += if open { 1.0 } else { 0.0 };
                if !stopped {
                    // An open run at 1,000/s catches up at 5,000/s. A closed run stays at 1,000/s.
                    let now: f64 = if open { f64::min(backlog, 5.0) } else { 1.0 };
                    backlog -= if open { now } else { 0.0 };
                    answered += now;
                    waits.push(300.0 + backlog * 1e3);
                }
            }
            waits.sort_by(f64::total_cmp);
            let p50 = (!waits.is_empty()).then(|| waits[waits.len() / 2]);
            row(
                s,
                answered * (1.0 + noise * normal.next()),
                p50.map(|us| us * (1.0 + noise * normal.next())),
            )
        })
        .collect()
}

#[test]
fn periodic_stalls_are_steady() {
    let stalls = [(4.0, 1.0), (1.0, 0.1), (1.05, 0.1), (3.0, 0.5), (2.5, 0.3)];
    let mut wrong = Vec::new();
    let mut all = 0;
    for (period, stall) in stalls {
        for phase in 0..20 {
            let phase = f64::from(phase) * period / 20.0;
            for n in [10, 12, 15, 30, 60] {
                for open in [false, true] {
                    for noise in [0.0005, 0.02, 0.1] {
                        let judged = steady(&stalled(n, period, stall, phase, open, noise));
                        all += 1;
                        if judged.class != SteadyClass::Steady {
                            wrong.push((period, phase, n, open, noise, judged));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {all}: {wrong:?}", wrong.len());
}

#[test]
fn part_after_a_long_stall_is_not_a_steady_end() {
    let noise = scaled(ar1(0.0, 60, 4), 0.02);
    let levels = (0..60).map(|s| if (20..26).contains(&s) { 100.0 } else { 1e4 });
    let judged = steady(&closed(levels, &noise, 4));
    assert_eq!(judged.class, SteadyClass::Unsteady, "{judged:?}");
    assert_eq!(judged.changes_s, [20.0, 26.0]);
    assert_eq!(window(&judged, (0.0, 60.0)).from_s, 0.0);
}

#[test]
fn detects_slowing_and_unsteady_runs() {
    let noise = scaled(ar1(0.0, 60, 5), 0.02);
    let slower = (0..60).map(|s| if s < 20 { 1e4 } else { 8e3 });
    let judged = steady(&closed(slower, &noise, 5));
    assert_eq!(
        (judged.class, judged.from_s),
        (SteadyClass::Slowing, Some(20.0))
    );

    let late = (0..60).map(|s| if s < 50 { 1e4 } else { 2e4 });
    let judged = steady(&closed(late, &noise, 5));
    assert_eq!((judged.class, judged.from_s), (SteadyClass::Unsteady, None));
    assert_eq!(judged.changes_s, [50.0]);
}

#[test]
fn steady_drift_is_warming() {
    // First 30 s of an Akka HTTP run, in thousands of responses per second, without a level change.
    let rates = [
        2.2, 6.6, 20.2, 14.5, 13.9, 14.2, 14.6, 13.3, 14.9, 16.3, 17.7, 19.5, 20.1, 22.3, 33.4,
        36.0, 44.9, 45.9, 51.1, 48.7, 51.0, 47.5, 50.4, 49.7, 57.9, 53.0, 50.1, 56.6, 57.5, 56.8,
    ];
    let series = closed(rates.map(|rate| rate * 1e3), &[0.0; 30], 1);
    let judged = steady(&series);
    assert_eq!((judged.class, judged.from_s), (SteadyClass::Warming, None));
    let window = window(&judged, (0.0, 30.0));
    assert_eq!((window.from_s, window.to_s), (0.0, 30.0));
    assert!(window.why.contains("faster throughout"), "{window:?}");
    let mut backwards = rates;
    backwards.reverse();
    let series = closed(backwards.map(|rate| rate * 1e3), &[0.0; 30], 1);
    assert_eq!(steady(&series).class, SteadyClass::Slowing);
}

#[test]
fn slow_first_second_is_a_warm_up() {
    let noise = scaled(ar1(0.0, 10, 6), 0.02);
    let levels = (0..10).map(|s| if s < 1 { 4e3 } else { 1e4 });
    let judged = steady(&closed(levels, &noise, 6));
    assert_eq!(
        (judged.class, judged.from_s),
        (SteadyClass::Warming, Some(1.0))
    );
}

#[test]
fn short_run_is_not_judged() {
    let judged = steady(&closed(vec![1e4; 7], &[0.0; 7], 1));
    assert_eq!(judged, of_class(SteadyClass::Unsteady));
    assert_eq!(steady(&[]), of_class(SteadyClass::Unsteady));
}

#[test]
fn ignores_partial_seconds() {
    let mut series = closed(vec![1e4; 20], &scaled(ar1(0.0, 20, 8), 0.02), 8);
    series.push(SeriesPoint {
        from_s: 20.0,
        to_s: 20.01,
        throughput_per_s: 100.0,
        p50_us: Some(9e6),
    });
    assert_eq!(steady(&series).class, SteadyClass::Steady);
}

#[test]
fn window_states_its_reason() {
    let judged = |class, from_s, changes_s: &[f64]| Steady {
        class,
        from_s,
        changes_s: changes_s.to_vec(),
    };
    let table = [
        (
            judged(SteadyClass::Steady, Some(0.0), &[]),
            0.0,
            "the whole run: steady throughout",
        ),
        (
            judged(SteadyClass::Warming, Some(12.0), &[4.0, 12.0]),
            12.0,
            "steady from 12 s; slower before that",
        ),
        (
            judged(SteadyClass::Slowing, Some(9.0), &[9.0]),
            9.0,
            "steady from 9 s; faster before that",
        ),
        (
            judged(SteadyClass::Unsteady, None, &[]),
            0.0,
            "the whole run: too short to judge whether it was steady",
        ),
        (
            judged(SteadyClass::Unsteady, None, &[3.0, 8.0]),
            0.0,
            "the whole run: never steady; the level first changed at 3 s",
        ),
    ];
    for (steady, from_s, why) in table {
        let window = window(&steady, (0.0, 30.0));
        assert_eq!((window.from_s, window.to_s), (from_s, 30.0));
        assert_eq!(window.why, why);
    }
}
