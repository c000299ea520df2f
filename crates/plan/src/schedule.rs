//! Determines when requests are sent: in the closed model, at a constant or changing rate, as a
//! burst, or as a replay of a file.

use std::time::Duration;

use floodmark_load::replay;
use floodmark_record::plan::{DEFAULT_DURATION, Length, Model, Ramp, RateStep, Schedule};
use floodmark_record::units::Rate;

use crate::spec::{LoadSpec, Origin, PlanSpec, RateSteps};

/// Maximum rate, per second: one request per nanosecond, the resolution of intended times.
const MAX_RATE: f64 = 1e9;

/// Maximum length of a run without `--anyway`, in seconds.
const MAX_LENGTH_S: f64 = 7.0 * 24.0 * 3600.0;

/// Returns the load model for the settings, and an optional remark to print before the run. For a
/// replay, reads the file.
pub fn of(spec: &PlanSpec) -> Result<(Model, Option<String>), String> {
    let load = &spec.load;
    let duration = load.duration.unwrap_or(DEFAULT_DURATION);
    let spacing = load.arrivals.unwrap_or_default();
    let mut remark = None;
    let schedule = if let Some(file) = &spec.replay {
        let recording = replay::read(&file.path, file.unit, file.speed)
            .map_err(|e| format!("{} {e}", spec.name("replay")))?;
        remark = recording.remark;
        Some(Schedule::Replay {
            requests: recording.replay.timetable.times().len() as u64,
            replay: recording.replay,
        })
    } else if let (Some(requests), Some(within)) = (load.burst, load.within) {
        Rate::new(requests as f64 / within.as_secs_f64())
            .map(|rate| Schedule::Burst { requests, rate })
    } else if let Some((from_per_s, to_per_s)) = spec.ramp {
        let duration_s = duration.as_secs_f64();
        let ramp = Ramp {
            from_per_s,
            to_per_s,
            duration_s,
        };
        Some(Schedule::Ramp { ramp, spacing })
    } else if let Some(steps) = &spec.steps {
        let steps = rate_steps(spec, steps, duration)?;
        Some(Schedule::Steps { steps, spacing })
    } else {
        load.rate.map(|rate| Schedule::Constant {
            rate,
            spacing,
            length: length(load),
        })
    };
    let model = match schedule {
        Some(schedule) => {
            check_schedule(spec, &schedule)?;
            let hold = spec.hold;
            Model::Open { schedule, hold }
        }
        None => Model::Closed {
            length: length(load),
        },
    };
    check_length(spec, &model)?;
    Ok((model, remark))
}

fn length(load: &LoadSpec) -> Length {
    match (load.duration, load.requests) {
        (Some(duration), Some(requests)) => Length::Earlier { duration, requests },
        (None, Some(requests)) => Length::Requests(requests),
        (duration, None) => Length::Duration(duration.unwrap_or(DEFAULT_DURATION)),
    }
}

fn check_length(spec: &PlanSpec, model: &Model) -> Result<(), String> {
    let (key, length_s) = match (spec.load.within, model) {
        (Some(within), _) => ("within", Some(within.as_secs_f64())),
        (None, Model::Closed { length }) => ("duration", length.duration_s()),
        (None, Model::Open { schedule, .. }) => match schedule {
            Schedule::Constant { length, .. } => ("duration", length.duration_s()),
            Schedule::Ramp { .. } | Schedule::Steps { .. } => {
                ("duration", Some(schedule.window_s()))
            }
            Schedule::Burst { .. } | Schedule::Replay { .. } => return Ok(()),
        },
    };
    if length_s.is_none_or(|length_s| length_s <= MAX_LENGTH_S) || spec.anyway {
        return Ok(());
    }
    Err(format!(
        "{}: longer than 7 days; check the unit{}",
        spec.name(key),
        match spec.origin {
            Origin::CommandLine => ", or add --anyway",
            Origin::File => "",
        }
    ))
}

fn check_schedule(spec: &PlanSpec, schedule: &Schedule) -> Result<(), String> {
    let highest = match schedule {
        Schedule::Replay { .. } => schedule.rate_per_s(),
        _ => schedule.peak_per_s(),
    };
    if highest > MAX_RATE {
        return Err(format!(
            "{}: more than one request per nanosecond; use a lower rate",
            setting(spec)
        ));
    }
    let warms_up = !spec.load.warmup_length().is_zero();
    if warms_up && schedule.first_per_s().is_none_or(|rate| rate <= 0.0) {
        return Err(format!(
            "{} needs an initial rate above 0, which {} does not have; warm up the server in a separate run",
            spec.name("warmup"),
            setting(spec)
        ));
    }
    Ok(())
}
/// Returns the name of the setting that determines the schedule.
fn setting(spec: &PlanSpec) -> String {
    let key = match (&spec.ramp, &spec.steps, &spec.replay, spec.load.burst) {
        (Some(_), ..) => "ramp",
        (_, Some(_), ..) => "steps",
        (_, _, Some(_), _) => "replay",
        (.., Some(_)) => "burst",
        _ => "rate",
    };
    spec.name(key)
}

/// Returns the steps, each with its duration.
fn rate_steps(
    spec: &PlanSpec,
    steps: &RateSteps,
    duration: Duration,
) -> Result<Vec<RateStep>, String> {
    let step = |rate_per_s: f64, duration_s: f64| RateStep {
        rate_per_s,
        duration_s,
    };
    match steps {
        RateSteps::Timed(_) if spec.load.duration.is_some() => Err(format!(
            "{} conflicts with {} that have their own durations",
            spec.name("duration"),
            spec.name("steps")
        )),
        RateSteps::Timed(steps) => Ok(steps
            .iter()
            .map(|(rate, time)| step(*rate, time.as_secs_f64()))
            .collect()),
        RateSteps::Equal(rates) => {
            let each_s = duration.as_secs_f64() / rates.len() as f64;
            Ok(rates.iter().map(|rate| step(*rate, each_s)).collect())
        }
    }
}
