//! The flags that ask for the same load again: more of it, less of it, or for longer.

use floodmark_record::plan::{Arrivals, Model, Plan};
use floodmark_record::profile::{Profile, Step};

/// Above this many steps a line would be too long to read.
const MOST_STEPS: usize = 6;

/// How long a rate is to be kept at least so that its figures say something, seconds.
const LONG_ENOUGH_S: f64 = 10.0;

/// What to type for `factor` times the load of an open plan; fewer or more connections of a closed one.
pub(crate) fn scaled(plan: &Plan, factor: f64) -> String {
    match (&plan.profile, plan.model, plan.rate_per_s) {
        (Some(Profile::Ramp(ramp)), ..) => format!(
            "--ramp {}-{}",
            rate_or_none(ramp.from_per_s * factor, rate),
            rate_or_none(ramp.to_per_s * factor, rate)
        ),
        (Some(Profile::Steps(steps)), ..) if steps.len() > MOST_STEPS => {
            format!("--steps at {factor} times these rates")
        }
        (Some(Profile::Steps(steps)), ..) => list(steps, 1.0, |per_s| rate(per_s * factor)),
        (Some(Profile::Replay(replay)), ..) => {
            format!("--replay-speed {}x", rate(replay.speed * factor))
        }
        (None, Model::Open, Some(per_s)) if plan.arrivals != Some(Arrivals::Replay) => {
            format!("--rate {}", rate(per_s * factor))
        }
        (None, ..) => format!(
            "-c {}",
            ((f64::from(plan.connections) * factor) as u64).max(1)
        ),
    }
}

/// What to type so that a plan lasts long enough; none for one whose length is not to be chosen.
pub(crate) fn longer(plan: &Plan) -> Option<String> {
    match &plan.profile {
        Some(Profile::Replay(_)) => None,
        Some(Profile::Steps(steps)) => {
            let shortest = steps.iter().map(|s| s.duration_s).fold(f64::MAX, f64::min);
            Some(if steps.len() > MOST_STEPS {
                format!("--steps of {LONG_ENOUGH_S} s or more")
            } else {
                list(steps, (LONG_ENOUGH_S / shortest).max(1.0), exact)
            })
        }
        Some(Profile::Ramp(_)) | None if plan.arrivals == Some(Arrivals::Burst) => None,
        Some(Profile::Ramp(_)) | None => Some(format!("-d {LONG_ENOUGH_S}s")),
    }
}

/// The flag to lower for less load, in words: `a lower --rate`.
pub(crate) fn lower(plan: &Plan) -> &'static str {
    match &plan.profile {
        Some(Profile::Ramp(_)) => "a lower --ramp",
        Some(Profile::Steps(_)) => "lower --steps",
        Some(Profile::Replay(_)) => "a lower --replay-speed",
        None => "a lower --rate",
    }
}

/// Each step with its time, which can be typed whichever way the steps were given; `show` makes text of a rate.
fn list(steps: &[Step], stretch: f64, show: impl Fn(f64) -> String) -> String {
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

/// A rate as `show` shows it; 0 where nothing is sent.
fn rate_or_none(per_s: f64, show: impl Fn(f64) -> String) -> String {
    if per_s > 0.0 {
        show(per_s)
    } else {
        "0".to_owned()
    }
}

/// A rate that was typed, to the thousandth that typing it again is read to.
fn exact(per_s: f64) -> String {
    ((per_s * 1e3).round() / 1e3).to_string()
}

/// A rate as it can be typed, two digits: `14000`, `0.35`.
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

    #[test]
    fn rates_can_be_typed_back() {
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
    fn the_same_steps_for_longer_have_the_same_rates() {
        for per_s in [1234.0, 99_999.0, 1_234_567.0, 0.125, 33.333] {
            assert_eq!(
                floodmark_record::units::parse_rate(&exact(per_s)),
                Ok(per_s)
            );
        }
        let step = |rate_per_s| Step {
            rate_per_s,
            duration_s: 5.0,
        };
        let plan = Plan {
            profile: Some(Profile::Steps(vec![step(1234.0), step(0.0)])),
            ..crate::testing::open()
        };
        assert_eq!(longer(&plan).as_deref(), Some("--steps 1234:10s,0:10s"));
        assert_eq!(scaled(&plan, 0.5), "--steps 620:5s,0:5s");
    }
}
