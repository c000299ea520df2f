//! Command-line flags that repeat a load at a different rate or for a longer time.

use floodmark_record::plan::{Plan, RateStep, Schedule};

/// Maximum number of steps in a suggested `--steps` flag, so that the flag fits on one line.
const MOST_STEPS: usize = 6;

/// Minimum duration in seconds at which the figures of a run or step are meaningful.
const LONG_ENOUGH_S: f64 = 10.0;

/// Returns the flag that multiplies the load by `factor`. The flag scales the rates in the open
/// model and the connections in the closed model.
pub(crate) fn scaled(plan: &Plan, factor: f64) -> String {
    match plan.schedule() {
        Some(Schedule::Ramp { ramp, .. }) => format!(
            "--ramp {}-{}",
            rate_or_none(ramp.from_per_s * factor, rate),
            rate_or_none(ramp.to_per_s * factor, rate)
        ),
        Some(Schedule::Steps { steps, .. }) if steps.len() > MOST_STEPS => {
            format!("--steps with rates multiplied by {factor}")
        }
        Some(Schedule::Steps { steps, .. }) => list(steps, 1.0, |per_s| rate(per_s * factor)),
        Some(Schedule::Replay { replay, .. }) => {
            format!("--replay-speed {}x", rate(replay.speed * factor))
        }
        Some(Schedule::Constant { rate: per_s, .. } | Schedule::Burst { rate: per_s, .. }) => {
            format!("--rate {}", rate(per_s.per_s() * factor))
        }
        None => format!(
            "-c {}",
            ((f64::from(plan.connections) * factor) as u64).max(1)
        ),
    }
}

/// Returns the flag that halves the load, or `None` if the load sends one request at a time.
pub(crate) fn halved(plan: &Plan) -> Option<String> {
    if plan.is_open() || plan.connections > 1 {
        return Some(scaled(plan, 0.5));
    }
    let streams = plan.http.streams();
    (streams > 1).then(|| format!("--streams {}", streams / 2))
}

/// Returns the flag for a sufficiently long run, or `None` if the load determines the length.
pub(crate) fn longer(plan: &Plan) -> Option<String> {
    match plan.schedule() {
        Some(Schedule::Replay { .. } | Schedule::Burst { .. }) => None,
        Some(Schedule::Steps { steps, .. }) => {
            let shortest = steps.iter().map(|s| s.duration_s).fold(f64::MAX, f64::min);
            Some(if steps.len() > MOST_STEPS {
                format!("--steps with at least {LONG_ENOUGH_S} s per step")
            } else {
                list(steps, (LONG_ENOUGH_S / shortest).max(1.0), exact)
            })
        }
        Some(Schedule::Ramp { .. } | Schedule::Constant { .. }) | None => {
            Some(format!("-d {LONG_ENOUGH_S}s"))
        }
    }
}

/// Returns `--steps` with all durations multiplied by `stretch`. `show` formats a rate.
fn list(steps: &[RateStep], stretch: f64, show: impl Fn(f64) -> String) -> String {
    let each: Vec<String> = steps
        .iter()
        .map(|step| {
            let milliseconds = (step.duration_s * stretch * 1e3).round();
            let per_s = rate_or_none(step.rate_per_s, &show);
            format!("{per_s}:{}s", milliseconds / 1e3)
        })
        .collect();
    format!("--steps {}", each.join(","))
}

/// Formats a rate with `show`. A rate of 0 (a pause) becomes "0".
fn rate_or_none(per_s: f64, show: impl Fn(f64) -> String) -> String {
    if per_s > 0.0 {
        show(per_s)
    } else {
        "0".to_owned()
    }
}

/// Formats a rate with up to three decimal places, the precision of the `--steps` flag.
fn exact(per_s: f64) -> String {
    ((per_s * 1e3).round() / 1e3).to_string()
}

/// Formats a rate for a flag, with two significant digits: `14000`, `0.35`.
pub(crate) fn rate(rate: f64) -> String {
    if rate <= 0.0 || !rate.is_finite() {
        return "1".to_owned();
    }
    let unit = 10f64.powf(rate.log10().floor() - 1.0);
    let rounded = (rate / unit).round() * unit;
    if rounded >= 10.0 {
        format!("{rounded:.0}")
    } else {
        let text = format!("{rounded:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::plan::Spacing;
    use floodmark_record::units::Rate;

    #[test]
    fn formatted_rates_parse_again() {
        for (per_s, text) in [
            (14_321.0, "14000"),
            (999_999.0, "1000000"),
            (0.347, "0.35"),
            (3.07, "3.1"),
            (10.4, "10"),
            (0.0, "1"),
        ] {
            assert_eq!(rate(per_s), text);
            assert!(floodmark_record::units::parse_rate(&rate(per_s)).is_ok());
        }
    }

    #[test]
    fn longer_steps_keep_their_rates() {
        for per_s in [1234.0, 99_999.0, 1_234_567.0, 0.125, 33.333] {
            assert_eq!(
                floodmark_record::units::parse_rate(&exact(per_s)).map(Rate::per_s),
                Ok(per_s)
            );
        }
        let step = |rate_per_s| RateStep {
            rate_per_s,
            duration_s: 5.0,
        };
        let plan = crate::testing::scheduled(Schedule::Steps {
            steps: vec![step(1234.0), step(0.0)],
            spacing: Spacing::Constant,
        });
        assert_eq!(longer(&plan).as_deref(), Some("--steps 1234:10s,0:10s"));
        assert_eq!(scaled(&plan, 0.5), "--steps 620:5s,0:5s");
    }
}
