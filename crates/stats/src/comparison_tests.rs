use proptest::prelude::*;

use super::*;
use crate::testing::Normal;

/// Figures of both systems, [ratio, low, high, degrees of freedom], and the repetitions needed.
type Example<'a> = (&'a [f64], &'a [f64], [f64; 4], Option<u32>);

/// Expected values, computed with Python's mpmath at 30 digits.
/// The t quantile was found by bisection of mpmath's incomplete beta function. The number of
/// repetitions was found by trying n = 2, 3, ….
const EXAMPLES: [Example<'_>; 5] = [
    (
        &[100.0, 102.0, 98.0, 101.0, 99.0],
        &[95.0, 96.0, 94.0, 95.5, 94.5],
        [1.052_555_461, 1.032_219_727, 1.073_291_828, 6.057_804_198],
        None,
    ),
    // From a published comparison: three attempts per server, treated as processes.
    (
        &[41_535.0, 41_469.0, 34_494.0],
        &[42_438.0, 41_586.0, 37_005.0],
        [0.968_960_984, 0.778_560_517, 1.205_924_738, 3.559_191_036],
        Some(469),
    ),
    (
        &[1000.0, 1010.0],
        &[990.0, 1005.0, 1002.0, 998.0],
        [1.006_261_385, 0.979_867_510, 1.033_366_210, 1.924_316_704],
        Some(18),
    ),
    (
        &[10.2, 10.4, 9.9, 10.1, 10.0, 10.3],
        &[10.1, 9.8, 10.3, 10.0, 10.2, 9.9],
        [1.009_953_109, 0.986_166_363, 1.034_313_602, 9.999_019_098],
        Some(121),
    ),
    (
        &[2.17, 2.16, 2.2],
        &[2.41, 2.10, 2.3],
        [0.960_411_454, 0.810_542_438, 1.137_991_199, 2.074_291_651],
        Some(140),
    ),
];

#[test]
fn agrees_with_computed_examples() {
    for (a, b, [value, low, high, degrees], needed) in EXAMPLES {
        let ratio = Ratio::of(a, b).unwrap();
        let interval = ratio.interval().unwrap();
        let near = |got: f64, wanted: f64| assert!((got / wanted - 1.0).abs() < 1e-8, "{got}");
        near(ratio.value(), value);
        near(interval.low, low);
        near(interval.high, high);
        let words = format!("{} and {} server processes", a.len(), b.len());
        assert!(interval.method.contains(&words), "{}", interval.method);
        let (of_a, of_b) = ratio.variances().unwrap();
        near(welch(of_a, a.len(), of_b, b.len()).1, degrees);
        assert_eq!(ratio.repetitions_needed(), needed);
    }
}

#[test]
fn agrees_with_a_printed_example() {
    // Example from ClickHouse's manual, welchTTest(0.95). The manual gives the interval for a
    // difference. Here, this is a difference of logarithms.
    let side = |logs: [f64; 3]| logs.map(f64::exp);
    let ratio = Ratio::of(&side([20.3, 22.1, 21.9]), &side([18.9, 20.3, 19.0])).unwrap();
    let interval = ratio.interval().unwrap();
    assert!((interval.low.ln() + 0.026_294_346_671_63).abs() < 1e-9);
    assert!((interval.high.ln() - 4.092_961_013_338_3).abs() < 1e-9);
}

#[test]
fn concludes_from_the_interval() {
    let around = |level: f64, spread: f64| [-1.0, -0.5, 0.0, 0.5, 1.0].map(|x| level + spread * x);
    let conclude = |a: &[f64], b: &[f64]| Ratio::of(a, b).unwrap().conclusion();
    let base = around(100.0, 1.0);
    assert_eq!(conclude(&around(110.0, 1.0), &base), Conclusion::Different);
    assert_eq!(conclude(&around(90.0, 1.0), &base), Conclusion::Different);
    assert_eq!(conclude(&base, &base), Conclusion::Equivalent);
    // The interval excludes 1, but the difference is too small to matter.
    assert_eq!(
        conclude(&around(100.5, 0.1), &around(100.0, 0.1)),
        Conclusion::Equivalent
    );
    assert_eq!(
        conclude(&around(101.0, 10.0), &base),
        Conclusion::Undecided,
        "too wide"
    );
    // The interval excludes 1 and overlaps the band, so the systems are different.
    assert_eq!(conclude(&around(102.5, 1.0), &base), Conclusion::Different);
}

#[test]
fn one_process_has_no_interval() {
    for (a, b) in [(&[100.0][..], &[50.0][..]), (&[100.0], &[50.0, 51.0])] {
        let ratio = Ratio::of(a, b).unwrap();
        assert!(ratio.value() > 1.9);
        assert_eq!(ratio.interval(), None);
        assert_eq!(ratio.conclusion(), Conclusion::Undecided);
        assert_eq!(ratio.repetitions_needed(), None);
    }
}

#[test]
fn empty_or_zero_figures_have_no_ratio() {
    let some = &[1.0, 2.0][..];
    for bad in [
        &[][..],
        &[1.0, 0.0],
        &[1.0, -1.0],
        &[f64::NAN],
        &[f64::INFINITY],
    ] {
        assert_eq!(Ratio::of(bad, some), None);
        assert_eq!(Ratio::of(some, bad), None);
    }
}

#[test]
fn equal_figures_have_an_interval_of_width_0() {
    let same = Ratio::of(&[7.0; 3], &[7.0; 3]).unwrap();
    let interval = same.interval().unwrap();
    assert_eq!((interval.low, interval.high), (1.0, 1.0));
    assert_eq!(same.conclusion(), Conclusion::Equivalent);
    assert_eq!(welch(0.0, 3, 0.0, 3), (0.0, 4.0));
    let far = Ratio::of(&[7.0; 3], &[8.0; 3]).unwrap();
    assert_eq!(far.conclusion(), Conclusion::Different);
}

#[test]
fn repetitions_are_bounded() {
    let wild = [1.0, 1e9, 1e3];
    let ratio = Ratio::of(&wild, &wild).unwrap();
    assert_eq!(ratio.repetitions_needed(), Some(MOST_REPETITIONS));
}

proptest! {
    #[test]
    fn exchanging_the_systems_inverts_the_ratio(
        a in prop::collection::vec(1e-3..1e6_f64, 1..8),
        b in prop::collection::vec(1e-3..1e6_f64, 1..8),
    ) {
        let (there, back) = (Ratio::of(&a, &b).unwrap(), Ratio::of(&b, &a).unwrap());
        prop_assert!((there.value() * back.value() - 1.0).abs() < 1e-9);
        let ends = |r: &Ratio| r.interval().map(|i| (i.low.ln(), i.high.ln()));
        if let (Some((low, high)), Some((back_low, back_high))) = (ends(&there), ends(&back)) {
            let scale = 1.0 + low.abs().max(high.abs());
            prop_assert!((low + back_high).abs() < 1e-9 * scale, "{low} {back_high}");
            prop_assert!((high + back_low).abs() < 1e-9 * scale, "{high} {back_low}");
            prop_assert!(low <= there.value().ln() && there.value().ln() <= high);
        }
    }

    #[test]
    fn the_unit_does_not_matter(
        a in prop::collection::vec(1.0..1e6_f64, 2..8),
        b in prop::collection::vec(1.0..1e6_f64, 2..8),
        unit in 1e-6..1e6_f64,
    ) {
        let scaled = |side: &[f64]| -> Vec<f64> { side.iter().map(|v| v * unit).collect() };
        let (plain, other) = (Ratio::of(&a, &b).unwrap(), Ratio::of(&scaled(&a), &scaled(&b)).unwrap());
        let (plain, other) = (plain.interval().unwrap(), other.interval().unwrap());
        prop_assert!((plain.low.ln() - other.low.ln()).abs() < 1e-6 * (1.0 + plain.low.ln().abs()));
        prop_assert!((plain.high.ln() - other.high.ln()).abs() < 1e-6 * (1.0 + plain.high.ln().abs()));
    }
}

/// Distribution of one system's figures over its processes.
type Processes = fn(&mut Normal, usize) -> f64;

const NORMAL: Processes = |normal, _| 100.0 + 3.0 * normal.next();
const LOG_NORMAL: Processes = |normal, _| 100.0 * (0.1 * normal.next()).exp();
const ONE_OUTLIER: Processes = |normal, process| {
    let level = if process == 0 { 80.0 } else { 100.0 };
    level + 2.0 * normal.next()
};
/// Number of comparisons simulated to estimate a share.
const SIMULATIONS: usize = 4_000;

/// Compares a system with itself.
/// Returns the share of intervals that contain 1, and the share of conclusions that are
/// `different`.
fn against_itself(a: Processes, b: Processes, processes: usize) -> (f64, f64) {
    let mut normal = Normal::new(4);
    let (mut held, mut different) = (0, 0);
    for _ in 0..SIMULATIONS {
        let mut side =
            |of: Processes| -> Vec<f64> { (0..processes).map(|i| of(&mut normal, i)).collect() };
        let ratio = Ratio::of(&side(a), &side(b)).unwrap();
        let interval = ratio.interval().unwrap();
        held += usize::from(interval.low <= 1.0 && 1.0 <= interval.high);
        different += usize::from(ratio.conclusion() == Conclusion::Different);
    }
    let share = |n: usize| n as f64 / SIMULATIONS as f64;
    (share(held), share(different))
}

/// Returns the 99 % bound on the deviation from the share `p` in [`SIMULATIONS`] trials.
fn binomial(p: f64) -> f64 {
    2.576 * (p * (1.0 - p) / SIMULATIONS as f64).sqrt()
}

#[test]
fn a_system_is_not_different_from_itself() {
    for (name, processes_of) in [("normal", NORMAL), ("log-normal", LOG_NORMAL)] {
        for processes in [5, 10] {
            let (held, different) = against_itself(processes_of, processes_of, processes);
            // With five processes, Welch's t is conservative: coverage is about 0.6 % too high.
            assert!(held >= 0.95 - binomial(0.95), "{name} {processes}: {held}");
            assert!(
                held <= 0.957 + binomial(0.957),
                "{name} {processes}: {held}"
            );
            assert!(
                different <= 0.05 + binomial(0.05),
                "{name} {processes}: {different}"
            );
        }
    }
}

#[test]
fn outlier_of_one_system_makes_no_difference() {
    for processes in [5, 10] {
        let (held, different) = against_itself(ONE_OUTLIER, NORMAL, processes);
        assert!(held >= 0.95 - binomial(0.95), "{processes}: {held}");
        assert!(
            different <= 0.05 + binomial(0.05),
            "{processes}: {different}"
        );
    }
}

#[test]
fn correlated_rounds_only_widen_the_interval() {
    let mut normal = Normal::new(9);
    let different = (0..SIMULATIONS)
        .filter(|_| {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for _ in 0..5 {
                let round = 0.02 * normal.next();
                a.push((round + 0.02 * normal.next()).exp());
                b.push((round + 0.02 * normal.next()).exp());
            }
            Ratio::of(&a, &b).unwrap().conclusion() == Conclusion::Different
        })
        .count();
    let share = different as f64 / SIMULATIONS as f64;
    assert!(share <= 0.05 + binomial(0.05), "{share}");
}

#[test]
fn variance_limit_has_its_stated_coverage() {
    // With equal variances, Satterthwaite's degrees of freedom are correct only on average, so the
    // limit is conservative. If one system has no variance, the degrees of freedom are exact.
    for (other, most) in [(0.0, VARIANCE_LIMIT), (1.0, 0.9)] {
        let mut normal = Normal::new(6);
        let above = (0..SIMULATIONS)
            .filter(|_| {
                let mut variance = |scale: f64| {
                    let side: Vec<f64> = (0..5).map(|_| (scale * normal.next()).exp()).collect();
                    Spread::of(&side).unwrap().variance.unwrap()
                };
                let (a, b) = (variance(1.0), variance(other));
                (a + b) * variance_factor(a, 5, b, 5) >= 1.0 + other * other
            })
            .count();
        let share = above as f64 / SIMULATIONS as f64;
        assert!(
            share >= VARIANCE_LIMIT - binomial(VARIANCE_LIMIT),
            "{share}"
        );
        assert!(share <= most + binomial(most), "{share}");
    }
}

proptest! {
    #[test]
    fn more_variance_needs_more_repetitions(
        a in prop::collection::vec(-1.0..1.0_f64, 3..8),
        b in prop::collection::vec(-1.0..1.0_f64, 3..8),
        spread in 0.01..0.1_f64,
        wider in 1.0..3.0_f64,
    ) {
        // Spread the values around their mean, so that the ratio stays 0.95.
        let side = |level: f64, of: &[f64], spread: f64| -> Vec<f64> {
            let middle = mean(of);
            of.iter().map(|x| level * (spread * (x - middle)).exp()).collect()
        };
        let asked = |spread: f64| {
            let ratio = Ratio::of(&side(0.95, &a, spread), &side(1.0, &b, spread)).unwrap();
            (ratio.conclusion() == Conclusion::Undecided, ratio.repetitions_needed())
        };
        let ((undecided, few), (_, many)) = (asked(spread), asked(spread * wider));
        prop_assert_eq!(undecided, few.is_some());
        if undecided {
            prop_assert!(many >= few, "{many:?} {few:?}");
            prop_assert!(few.is_some_and(|n| (2..=MOST_REPETITIONS).contains(&n)));
        }
    }
}

/// Results of simulated comparisons that are repeated if they are undecided.
struct Remeasured {
    asked: usize,
    /// Share of all comparisons that find the slowdown, at once or after the repetition.
    found: f64,
    /// Share of the repeated comparisons that find the slowdown.
    found_anew: f64,
}

/// Simulates comparisons with a slowdown of 5 % and `processes` processes per system.
/// Undecided comparisons are repeated with the suggested number of processes.
fn find_5_percent(vary: fn(&mut Normal) -> f64, processes: u32, times: usize) -> Remeasured {
    let mut normal = Normal::new(5);
    let mut measure = |processes: u32| {
        let mut side = |level: f64| -> Vec<f64> {
            (0..processes)
                .map(|_| level * vary(&mut normal).exp())
                .collect()
        };
        Ratio::of(&side(0.95), &side(1.0)).unwrap()
    };
    let (mut at_once, mut anew, mut asked) = (0, 0, Vec::new());
    for _ in 0..times {
        let first = measure(processes);
        let Some(n) = first.repetitions_needed() else {
            at_once += usize::from(first.conclusion() == Conclusion::Different);
            continue;
        };
        asked.push(n);
        anew += usize::from(measure(n).conclusion() == Conclusion::Different);
    }
    asked.sort_unstable();
    let at = |share: f64| asked.get((share * asked.len() as f64) as usize);
    println!(
        "{processes} processes per system: slowdown found in {at_once} first comparisons and in {anew} of {} repeated comparisons; suggested number of processes: median {:?}, p90 {:?}",
        asked.len(),
        at(0.5),
        at(0.9)
    );
    Remeasured {
        asked: asked.len(),
        found: (at_once + anew) as f64 / times as f64,
        found_anew: anew as f64 / asked.len().max(1) as f64,
    }
}

#[test]
fn suggested_repetitions_find_a_slow_down_of_5_percent() {
    // The cases are the rows of the table in docs/decisions/0010-comparisons.md (4,000 simulations
    // each).
    type Case = (&'static str, fn(&mut Normal) -> f64, u32);
    let cases: [Case; 8] = [
        ("1 %", |normal| 0.01 * normal.next(), 5),
        ("2 %", |normal| 0.02 * normal.next(), 5),
        ("3 %", |normal| 0.03 * normal.next(), 5),
        ("5 %", |normal| 0.05 * normal.next(), 5),
        ("8 %", |normal| 0.08 * normal.next(), 5),
        ("3 %, three processes", |normal| 0.03 * normal.next(), 3),
        ("5 %, three processes", |normal| 0.05 * normal.next(), 3),
        (
            "3 %; a tenth of the processes are slower by another 8 %",
            |normal| 0.03 * normal.next() - if normal.uniform() < 0.1 { 0.08 } else { 0.0 },
            5,
        ),
    ];
    let times = 500;
    for (name, vary, processes) in cases {
        println!("{name}");
        let got = find_5_percent(vary, processes, times);
        assert!(got.found >= POWER, "{name}: {}", got.found);
        // Few comparisons are repeated if processes hardly differ.
        let anew = got.asked < times / 10 || got.found_anew >= POWER - 0.03;
        assert!(anew, "{name}: {}", got.found_anew);
        assert_eq!(got.asked == 0, name == "1 %", "{name}: {}", got.asked);
    }
}
