//! T8: arrivals at the server follow the schedule.

use floodmark_record::run::Saturation;

use super::environment::CaseMeasurement;
use super::overhead::Awake;
use super::reference::Sorted;
use super::{CaseEnvironment, CaseResult};
use crate::scenario::{Scenario, Service};

/// Significance level of the test. The corresponding limit is A² = 6.0. Lancet (ATC'19) accepts A²
/// up to 7.7, which is twice the critical value at the 1 % level.
const SIGNIFICANCE_LEVEL: f64 = 0.001;

/// T8/poisson: the gaps are exponentially distributed, according to the Anderson–Darling test with
/// a known rate.
pub fn poisson(environment: &CaseEnvironment<'_>) -> CaseResult {
    /// Requests per second. A thread wakes up about 10 µs late, so a client that sleeps between
    /// requests cannot reproduce gaps shorter than 10 µs. At this rate, 10 µs is 0.2 % of the mean
    /// gap.
    const RATE: f64 = 200.0;
    const SECONDS: u64 = 12;
    let _awake = Awake::keep();
    let flags = format!("--rate {RATE} --arrivals poisson -d {SECONDS}s");
    let mut measured = environment.measure(Scenario::default(), &flags)?;
    let arrivals = measured.log.totals.requests;
    measured.check_all_counts(arrivals);
    let findings = &mut measured.findings;
    // The variance of a Poisson count equals its mean. The bounds are four standard deviations from
    // the mean.
    let mean = RATE * SECONDS as f64;
    findings.near("arrivals", mean, Some(arrivals as f64), 4.0 * mean.sqrt());
    let pairs = measured.log.requests.windows(2);
    let gaps = pairs.map(|pair| (pair[1].arrival_ns - pair[0].arrival_ns) as f64);
    let gaps: Vec<f64> = gaps.collect();
    let a2 = statistic(&gaps, 1e9 / RATE);
    let p = p_value(a2);
    findings.holds(
        "gaps at the server are exponentially distributed (Anderson–Darling)",
        p >= SIGNIFICANCE_LEVEL,
        format!("A² {a2:.2}, p {p:.4}"),
    );
    let lateness = &measured.run.lateness_us;
    let [p50, p99] = [lateness.p50, lateness.p99].map(|us| us.unwrap_or(0.0));
    findings.note(format!("lateness p50 {p50:.0} µs, p99 {p99:.0} µs"));
    Ok(measured.findings)
}

/// Returns the statistic A² for `samples` and the exponential distribution with this mean. This is
/// case 0, with all parameters known (Stephens: EDF statistics for goodness of fit and some
/// comparisons, JASA 69, 1974).
fn statistic(samples: &[f64], mean: f64) -> f64 {
    let mut shares: Vec<f64> = samples.iter().map(|x| 1.0 - (-x / mean).exp()).collect();
    shares.sort_by(f64::total_cmp);
    let n = shares.len();
    // Two requests that are read together have a gap of 0, and the logarithm of 0 is undefined.
    let bounded = |u: f64| u.clamp(1e-9, 1.0 - 1e-12);
    let sum: f64 = (0..n)
        .map(|i| {
            let (low, high) = (bounded(shares[i]), bounded(shares[n - 1 - i]));
            (2 * i + 1) as f64 * (low.ln() + (1.0 - high).ln())
        })
        .sum();
    -(n as f64) - sum / n as f64
}

/// Coefficients of the approximation below and above A² = 2.
#[rustfmt::skip]
const SMALL: [f64; 6] = [2.00012, 0.247_105, -0.064_982_1, 0.034_796_2, -0.011_672, 0.001_686_91];

const LARGE: [f64; 6] = [1.0776, -2.30695, 0.43424, -8.2433e-2, 8.056e-3, -3.146e-4];

/// Returns the probability that exponentially distributed samples have a larger A² than `a2`.
///
/// The approximation of the limiting distribution is by Marsaglia and Marsaglia (Evaluating the
/// Anderson–Darling distribution, J. Stat. Software 9, 2004).
fn p_value(a2: f64) -> f64 {
    let polynomial =
        |coefficients: &[f64]| coefficients.iter().rev().fold(0.0, |sum, c| sum * a2 + c);
    let below = if a2 < 2.0 {
        let factor = polynomial(&SMALL);
        (-1.233_714_1 / a2).exp() / a2.sqrt() * factor
    } else {
        let inner = polynomial(&LARGE);
        (-inner.exp()).exp()
    };
    1.0 - below
}

/// Final rate of the ramp, in requests per second.
const MAX_RATE: f64 = 1_000.0;
/// Duration of the ramp, and total duration of the steps, in seconds.
const SECONDS: u64 = 10;

/// Rates of the steps, in requests per second. Each step takes a third of [`SECONDS`], so the rate
/// does not change on the boundary of a second.
const STEPS: [f64; 3] = [200.0, 1_000.0, 500.0];

/// Service time during the steps, in microseconds.
const DELAY_US: u64 = 2_000;

/// Maximum p99 of the arrivals' lateness, in microseconds: ten times a thread's wake-up time on an
/// idle host.
const MAX_LATENESS_US: f64 = 1_000.0;

/// T8/ramp: arrivals follow the integral of the rate.
pub fn ramp(environment: &CaseEnvironment<'_>) -> CaseResult {
    let _awake = Awake::keep();
    let flags = format!("--ramp 0-{MAX_RATE} -d {SECONDS}s");
    let mut measured = environment.measure(Scenario::default(), &flags)?;
    let length = SECONDS as f64;
    let n = (MAX_RATE * length / 2.0) as u64;
    measured.check_all_ok(n);
    // The number of arrivals by t is the area under the ramp: k = MAX_RATE · t² / (2 · length).
    let due = |k: u64| (2.0 * length * k as f64 / MAX_RATE).sqrt();
    on_time(&mut measured, &(0..n).map(due).collect::<Vec<_>>());
    let saturation = &measured.run.saturation;
    measured.findings.holds(
        "the server is not reported as saturated",
        matches!(saturation, Some(Saturation::KeptUp { .. })),
        format!("{saturation:?}"),
    );
    Ok(measured.findings)
}

/// T8/steps: the record contains correct figures for each step.
pub fn steps(environment: &CaseEnvironment<'_>) -> CaseResult {
    let _awake = Awake::keep();
    let scenario = Service::Fixed { delay_us: DELAY_US }.into();
    let rates = STEPS.map(|rate| rate.to_string()).join(",");
    let flags = format!("--steps {rates} -d {SECONDS}s");
    let mut measured = environment.measure(scenario, &flags)?;
    let each = SECONDS as f64 / STEPS.len() as f64;
    let mut due = Vec::new();
    // Number of arrivals before the step. A fraction of an arrival carries over into the step.
    let mut before = 0.0f64;
    for (i, rate) in STEPS.iter().enumerate() {
        let after = before + rate * each;
        let numbers = (before - 1e-9).ceil() as u64..(after - 1e-9).ceil() as u64;
        due.extend(numbers.map(|k| i as f64 * each + (k as f64 - before) / rate));
        before = after;
    }
    measured.check_all_ok(due.len() as u64);
    on_time(&mut measured, &due);
    let (steps, findings) = (&measured.run.steps, &mut measured.findings);
    findings.equal("steps in the record", STEPS.len(), steps.len());
    for (step, rate) in steps.iter().zip(STEPS) {
        // The counts may differ by the number of requests in flight at the ends of the step. This
        // difference is at most the maximum rate times the service time, plus one per end for
        // rounding.
        let ends = MAX_RATE * DELAY_US as f64 / 1e6 + 2.0;
        let what = format!("step of {rate}/s: throughput_per_s");
        findings.near(&what, rate, Some(step.throughput_per_s), ends / each);
        let truth = DELAY_US as f64;
        let what = format!("step of {rate}/s: response_time_us.p50");
        findings.between(
            &what,
            (truth, truth + MAX_LATENESS_US),
            step.response_time_us.p50,
        );
    }
    Ok(measured.findings)
}

/// Compares arrivals with their due times, in seconds. The server does not know when the schedule
/// started, so the function assumes the latest start for which no arrival is early.
fn on_time(measured: &mut CaseMeasurement, due: &[f64]) {
    let requests = measured.log.requests.iter();
    let mut arrivals: Vec<u64> = requests.map(|r| r.readable_ns).collect();
    arrivals.sort_unstable();
    let base = arrivals.first().copied().unwrap_or(0);
    let pairs = arrivals.iter().zip(due);
    let after: Vec<f64> = pairs
        .map(|(at, due)| (at - base) as f64 / 1e3 - due * 1e6)
        .collect();
    let start = after.iter().copied().fold(f64::INFINITY, f64::min);
    let late = Sorted::new(after.iter().map(|at| at - start).collect());
    let findings = &mut measured.findings;
    let [p50, p99, maximum] = [0.5, 0.99, 1.0].map(|q| late.quantile(q));
    findings.between(
        "lateness of arrivals, µs: p99",
        (0.0, MAX_LATENESS_US),
        Some(p99),
    );
    findings.note(format!(
        "lateness of arrivals: p50 {p50:.0} µs, maximum {maximum:.0} µs"
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{exponential_ns, uniform};

    fn samples(f: impl Fn(u64) -> f64) -> Vec<f64> {
        (0..5_000).map(f).collect()
    }

    #[test]
    fn matches_published_p_values() {
        // The upper tail points of A² are from Stephens 1974, table 1, case 0.
        for (a2, p) in [(1.933, 0.10), (2.492, 0.05), (3.857, 0.01)] {
            assert!((p_value(a2) - p).abs() < 0.001, "{a2}: {}", p_value(a2));
        }
    }

    #[test]
    fn rejects_exponential_gaps_at_the_nominal_level() {
        let rejected = (0..400u64)
            .filter(|seed| {
                let gaps = samples(|i| exponential_ns(*seed, i, 1e6) as f64);
                p_value(statistic(&gaps, 1e6)) < 0.05
            })
            .count();
        // Expected: 20, with a standard deviation of 4.4.
        assert!((6..=36).contains(&rejected), "{rejected} of 400");
    }

    #[test]
    fn rejects_other_gaps() {
        let constant = samples(|_| 1e6);
        let even = samples(|i| 2e6 * uniform(5, i));
        let slow = samples(|i| exponential_ns(5, i, 1.1e6) as f64);
        let late = samples(|i| exponential_ns(5, i, 0.9e6) as f64 + 1e5);
        for gaps in [constant, even, slow, late] {
            assert!(p_value(statistic(&gaps, 1e6)) < 1e-6);
        }
    }
}
