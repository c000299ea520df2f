//! The flags that say when requests are sent: as a rate, a rate that changes, a burst or a file.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use floodmark_load::replay;
use floodmark_record::plan::{Arrivals, DEFAULT_DURATION_S};
use floodmark_record::profile::{Profile, Ramp, Step};
use floodmark_record::units::{parse_duration, parse_rate};

use super::args::{LoadArgs, Spacing, Warmup};
use crate::exit::Ending;

/// Most steps of one run.
const MOST_STEPS: usize = 1000;

/// The most that times in whole nanoseconds can tell apart.
const HIGHEST_RATE: f64 = 1e9;

/// Flags of rates that change, and of replays.
#[derive(Debug, Clone, Args)]
pub struct ChangingArgs {
    /// Open model: a rate that goes from A to B per second in a straight line over --duration: 0-1000, 5k-500 [default: none]
    #[arg(long, value_name = "A-B", value_parser = ramp, conflicts_with = "requests", help_heading = "Load")]
    pub ramp: Option<(f64, f64)>,

    /// Open model: rates per second one after the other, each for an equal part of --duration: 1000,2000,5k; or each for a
    /// time of its own, with a unit: 1000:10s,0:5s,5k:30s [default: none]
    #[arg(long, value_name = "LIST", value_parser = Steps::parse, conflicts_with = "requests", help_heading = "Load")]
    pub steps: Option<Steps>,

    /// Open model: requests at the times in a file, the first at once: one a line, as seconds (1763741296.123), as
    /// 2026-11-21T16:08:16.123Z or in a line of an access log ([21/Nov/2026:16:08:16 +0000]); at most 10 million [default: none]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["requests", "duration", "arrivals"], help_heading = "Load")]
    pub replay: Option<PathBuf>,

    /// How many times faster than in its file a replay is: 2x, 0.5x [default: 1x]
    #[arg(long, value_name = "FACTOR", value_parser = speed, requires = "replay", help_heading = "Load")]
    pub replay_speed: Option<f64>,

    /// What plain numbers in the file of --replay count
    #[arg(long, value_enum, value_name = "UNIT", default_value_t = ReplayUnit::S, requires = "replay", help_heading = "Load")]
    pub replay_unit: ReplayUnit,
}

/// Rates, with the times they are kept for where each has its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Steps {
    /// Each for an equal part of the run.
    Equal(Vec<f64>),
    /// Each for its own time.
    Timed(Vec<(f64, Duration)>),
}

/// What a plain number counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReplayUnit {
    /// Seconds
    S,
    /// Milliseconds
    Ms,
    /// Microseconds
    Us,
    /// Nanoseconds
    Ns,
}

impl From<ReplayUnit> for replay::Unit {
    fn from(unit: ReplayUnit) -> Self {
        match unit {
            ReplayUnit::S => replay::Unit::Seconds,
            ReplayUnit::Ms => replay::Unit::Milliseconds,
            ReplayUnit::Us => replay::Unit::Microseconds,
            ReplayUnit::Ns => replay::Unit::Nanoseconds,
        }
    }
}

impl ChangingArgs {
    /// Whether they say how long the run is.
    pub fn have_length(&self) -> bool {
        self.replay.is_some() || matches!(self.steps, Some(Steps::Timed(_)))
    }
}

/// When requests are sent.
#[derive(Default)]
pub struct Schedule {
    /// None in the closed model.
    pub arrivals: Option<Arrivals>,
    /// Requests per second, where the rate changes its mean.
    pub rate_per_s: Option<f64>,
    /// How the rate changes.
    pub profile: Option<Profile>,
    /// Length of the sending window, where time ends the run.
    pub duration_s: Option<f64>,
    /// Number of requests, where it ends the run.
    pub requests: Option<u64>,
    /// What the user should know of it.
    pub remark: Option<String>,
}

impl Schedule {
    /// What the flags come to; a file is read.
    pub fn of(args: &LoadArgs) -> Result<Self, Ending> {
        let schedule = if let Some(path) = &args.changing.replay {
            let speed = args.changing.replay_speed.unwrap_or(1.0);
            let recording = replay::read(path, args.changing.replay_unit.into(), speed)
                .map_err(|error| Ending::usage(format!("--replay {error}")))?;
            let n = recording.replay.timetable.times().len() as u64;
            Schedule {
                arrivals: Some(Arrivals::Replay),
                rate_per_s: Some(n as f64 / recording.replay.window_s),
                profile: Some(Profile::Replay(recording.replay)),
                requests: Some(n),
                remark: recording.remark,
                ..Schedule::default()
            }
        } else if let (Some(n), Some(within)) = (args.burst, args.within) {
            Schedule {
                arrivals: Some(Arrivals::Burst),
                rate_per_s: Some(n as f64 / within.as_secs_f64()),
                requests: Some(n),
                ..Schedule::default()
            }
        } else {
            Schedule::of_rates(args)?
        };
        schedule.refuse_what_cannot_be(args)?;
        Ok(schedule)
    }

    fn of_rates(args: &LoadArgs) -> Result<Self, Ending> {
        let profile = profile(args)?;
        let duration_s = match (&profile, args.duration, args.requests) {
            (Some(profile), ..) => Some(profile.window_s()),
            (None, Some(duration), _) => Some(duration.as_secs_f64()),
            (None, None, None) => Some(DEFAULT_DURATION_S),
            (None, None, Some(_)) => None,
        };
        let rate_per_s = match &profile {
            Some(profile) => profile
                .expected_by(profile.window_s())
                .map(|n| n / profile.window_s()),
            None => args.rate,
        };
        Ok(Schedule {
            arrivals: rate_per_s.map(|_| match args.arrivals {
                Spacing::Constant => Arrivals::Constant,
                Spacing::Poisson => Arrivals::Poisson,
            }),
            rate_per_s,
            profile,
            duration_s,
            requests: args.requests,
            remark: None,
        })
    }

    fn refuse_what_cannot_be(&self, args: &LoadArgs) -> Result<(), Ending> {
        let highest = match &self.profile {
            Some(Profile::Replay(_)) | None => self.rate_per_s,
            Some(profile) => Some(profile.peak_per_s()),
        };
        if highest.is_some_and(|rate| rate > HIGHEST_RATE) {
            return Err(Ending::usage(format!(
                "{}: more than a request per nanosecond cannot be scheduled",
                flag(args)
            )));
        }
        let warmed_up = matches!(args.warmup, Warmup::Before(duration) if !duration.is_zero());
        match &self.profile {
            Some(profile) if warmed_up && profile.first_per_s().is_none_or(|rate| rate <= 0.0) => {
                Err(Ending::usage(format!(
                    "--warmup sends at the rate with which the measurement begins, and {} has none there; load the server by a \
                     run before",
                    flag(args)
                )))
            }
            _ => Ok(()),
        }
    }
}

/// The flag that gives the schedule.
fn flag(args: &LoadArgs) -> &'static str {
    let ChangingArgs {
        ramp,
        steps,
        replay,
        ..
    } = &args.changing;
    match (ramp, steps, replay, args.burst) {
        (Some(_), ..) => "--ramp",
        (_, Some(_), ..) => "--steps",
        (_, _, Some(_), _) => "--replay",
        (.., Some(_)) => "--burst",
        _ => "--rate",
    }
}

/// The ramp or steps that were asked for.
fn profile(args: &LoadArgs) -> Result<Option<Profile>, Ending> {
    let duration_s = args
        .duration
        .map_or(DEFAULT_DURATION_S, |duration| duration.as_secs_f64());
    let step = |rate_per_s: f64, duration_s: f64| Step {
        rate_per_s,
        duration_s,
    };
    Ok(match (args.changing.ramp, &args.changing.steps) {
        (Some((from_per_s, to_per_s)), _) => Some(Profile::Ramp(Ramp {
            from_per_s,
            to_per_s,
            duration_s,
        })),
        (None, Some(Steps::Timed(_))) if args.duration.is_some() => {
            return Err(Ending::usage(
                "--duration parts itself among --steps without times; here each has its own, so leave --duration out",
            ));
        }
        (None, Some(Steps::Timed(steps))) => Some(Profile::Steps(
            steps
                .iter()
                .map(|(rate, time)| step(*rate, time.as_secs_f64()))
                .collect(),
        )),
        (None, Some(Steps::Equal(rates))) => {
            let each_s = duration_s / rates.len() as f64;
            Some(Profile::Steps(
                rates.iter().map(|rate| step(*rate, each_s)).collect(),
            ))
        }
        (None, None) => None,
    })
}

/// A rate, or 0.
fn rate_or_none(text: &str) -> Result<f64, String> {
    let text = text.trim();
    if text.parse() == Ok(0.0) && !text.starts_with('-') {
        return Ok(0.0);
    }
    parse_rate(text).map_err(|error| error.to_string())
}

fn ramp(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text.split_once('-').ok_or_else(|| {
        format!("\"{text}\" is no ramp; write 100-5000, the first rate and the last")
    })?;
    let (from, to) = (rate_or_none(from)?, rate_or_none(to)?);
    if from.max(to) > 0.0 {
        Ok((from, to))
    } else {
        Err("from nothing to nothing is no load".to_owned())
    }
}

impl Steps {
    fn parse(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').collect();
        if parts.len() > MOST_STEPS {
            return Err(format!("{} steps are more than {MOST_STEPS}", parts.len()));
        }
        let timed = parts.iter().filter(|part| part.contains(':')).count();
        let (steps, rates): (Steps, Vec<f64>) = if timed == 0 {
            let rates: Vec<f64> = parts
                .iter()
                .map(|part| rate_or_none(part))
                .collect::<Result<_, _>>()?;
            (Steps::Equal(rates.clone()), rates)
        } else if timed == parts.len() {
            let steps: Vec<(f64, Duration)> = parts
                .iter()
                .map(|part| timed_step(part))
                .collect::<Result<_, _>>()?;
            let rates = steps.iter().map(|(rate, _)| *rate).collect();
            (Steps::Timed(steps), rates)
        } else {
            return Err(
                "either each step has its time (1000:10s,2000:5s) or none has (1000,2000)"
                    .to_owned(),
            );
        };
        if rates.iter().all(|rate| *rate <= 0.0) {
            return Err("steps of nothing but 0 are no load".to_owned());
        }
        Ok(steps)
    }
}

fn timed_step(text: &str) -> Result<(f64, Duration), String> {
    let (rate, time) = text.split_once(':').unwrap_or((text, ""));
    let time = parse_duration(time).map_err(|error| error.to_string())?;
    if time.is_zero() {
        return Err(format!("\"{text}\": a step must be longer than nothing"));
    }
    Ok((rate_or_none(rate)?, time))
}

fn speed(text: &str) -> Result<f64, String> {
    text.strip_suffix(['x', 'X'])
        .unwrap_or(text)
        .parse()
        .ok()
        .filter(|speed: &f64| (1e-6..=1e6).contains(speed))
        .ok_or_else(|| format!("\"{text}\" is no speed; write 2x for twice as fast, 0.5x for half"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ramps() {
        assert_eq!(ramp("0-1000"), Ok((0.0, 1000.0)));
        assert_eq!(ramp("5k-500"), Ok((5000.0, 500.0)));
        for bad in [
            "", "5", "-5", "5-", "0-0", "1--5", "1-2-3", "a-b", "1e3-5", "inf-1",
        ] {
            assert!(ramp(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn steps() {
        assert_eq!(
            Steps::parse("1000,2k, 0"),
            Ok(Steps::Equal(vec![1000.0, 2000.0, 0.0]))
        );
        let seconds = Duration::from_secs;
        assert_eq!(
            Steps::parse("1000:10s,5k:1m"),
            Ok(Steps::Timed(vec![
                (1000.0, seconds(10)),
                (5000.0, seconds(60))
            ]))
        );
        for (bad, word) in [
            ("", "rate"),
            ("5,", "rate"),
            ("0,0", "no load"),
            ("5,6:1s", "each step has its time"),
            ("5:6", "unit"),
            ("5:0s", "longer than nothing"),
            ("-5", "rate"),
            ("5;6", "rate"),
        ] {
            let said = Steps::parse(bad).unwrap_err();
            assert!(said.contains(word), "{bad}: {said}");
        }
        assert!(
            Steps::parse(&"1,".repeat(1000))
                .unwrap_err()
                .contains("1001 steps")
        );
    }

    #[test]
    fn speeds() {
        assert_eq!((speed("2x"), speed("0.5")), (Ok(2.0), Ok(0.5)));
        for bad in ["", "x", "0x", "-1x", "fast", "NaN", "inf", "1e9x"] {
            assert!(speed(bad).is_err(), "{bad}");
        }
    }
}
