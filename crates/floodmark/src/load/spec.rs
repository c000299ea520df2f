//! Converts the flags of `floodmark load` to plan settings.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use floodmark_load::replay::TimestampUnit;
use floodmark_plan::spec::{BackendChoice, BodySource, RateSteps, ReplaySpec};
use floodmark_plan::target::ResolveError;
use floodmark_plan::{LoadSpec, PlanSpec, values};
use floodmark_record::plan::{CloseFirst, Spacing};

use super::args::{BackendFlag, Closer, LoadArgs, SpacingFlag};
use floodmark_workers::AgentsPlace;

use crate::exit::Ending;

/// Flags for changing rates and for replays.
#[derive(Debug, Clone, Args)]
pub struct ChangingArgs {
    /// Open model: change the rate linearly from A to B requests per second over --duration:
    /// 0-1000, 5k-500 [default: none]
    #[arg(long, value_name = "A-B", value_parser = values::ramp, conflicts_with = "requests", help_heading = "Load")]
    pub ramp: Option<(f64, f64)>,

    /// Open model: send at each of these rates (requests/s) in turn: 1000,2000,5k for equal parts of
    /// --duration, or 1000:10s,0:5s,5k:30s for the given durations [default: none]
    #[arg(long, value_name = "LIST", value_parser = values::steps, conflicts_with = "requests", help_heading = "Load")]
    pub steps: Option<RateSteps>,

    /// Open model: send requests at the timestamps in a file, relative to the first timestamp; one
    /// per line, such as 1763741296.123, 2026-11-21T16:08:16.123Z or an access log line with
    /// [21/Nov/2026:16:08:16 +0000]; at most 10 million timestamps [default: none]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["requests", "duration", "arrivals"], help_heading = "Load")]
    pub replay: Option<PathBuf>,

    /// Replay speed relative to the timestamps in the file: 2x, 0.5x [default: 1x]
    #[arg(long, value_name = "FACTOR", value_parser = values::speed, requires = "replay", help_heading = "Load")]
    pub replay_speed: Option<f64>,

    /// Unit of plain numbers in the --replay file
    #[arg(long, value_enum, value_name = "UNIT", default_value_t = ReplayUnit::S, requires = "replay", help_heading = "Load")]
    pub replay_unit: ReplayUnit,
}

/// Unit of plain numbers in a replay file.
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

impl ChangingArgs {
    /// Returns whether one of these flags determines the duration of the run.
    pub fn have_length(&self) -> bool {
        self.replay.is_some() || matches!(self.steps, Some(RateSteps::Timed(_)))
    }
}

impl LoadArgs {
    /// Converts the flags to plan settings.
    pub fn spec(&self) -> PlanSpec {
        let changing = &self.changing;
        let has_rate = self.rate.is_some() || changing.ramp.is_some() || changing.steps.is_some();
        let spacing = match self.arrivals {
            SpacingFlag::Constant => Spacing::Constant,
            SpacingFlag::Poisson => Spacing::Poisson,
        };
        PlanSpec {
            origin: floodmark_plan::Origin::CommandLine,
            load: LoadSpec {
                connections: self.connections,
                threads: self.threads,
                duration: self.duration,
                requests: self.requests,
                rate: self.rate,
                burst: self.burst,
                within: self.within,
                arrivals: has_rate.then_some(spacing),
                fresh: Some(self.fresh),
                requests_per_connection: self.requests_per_connection,
                close_first: Some(match self.close_first {
                    Closer::Server => CloseFirst::Server,
                    Closer::Client => CloseFirst::Client,
                    Closer::Reset => CloseFirst::Reset,
                }),
                sources: self.sources,
                warmup: Some(self.warmup),
                attempts: Some(self.attempts.into()),
                timeout: Some(self.timeout),
                deadline: self.deadline,
                seed: Some(self.seed),
                check: self.check.clone(),
            },
            ramp: changing.ramp,
            steps: changing.steps.clone(),
            replay: changing.replay.clone().map(|path| ReplaySpec {
                path,
                speed: changing.replay_speed.unwrap_or(1.0),
                unit: match changing.replay_unit {
                    ReplayUnit::S => TimestampUnit::Seconds,
                    ReplayUnit::Ms => TimestampUnit::Milliseconds,
                    ReplayUnit::Us => TimestampUnit::Microseconds,
                    ReplayUnit::Ns => TimestampUnit::Nanoseconds,
                },
            }),
            hold: self.hold,
            backend: match self.backend {
                BackendFlag::Auto => BackendChoice::Auto,
                BackendFlag::Uring => BackendChoice::Uring,
                BackendFlag::Epoll => BackendChoice::Epoll,
            },
            resolve: self.resolve.clone(),
            unix_socket: self.unix_socket.clone(),
            no_drain: self.no_drain,
            insecure: self.insecure,
            cacert: self.cacert.clone(),
            no_resumption: self.no_resumption,
            method: self.method.clone(),
            headers: self.headers.clone(),
            body: match (&self.body, &self.body_file) {
                (Some(text), _) => Some(BodySource::Text(text.clone())),
                (None, Some(path)) => Some(BodySource::File(path.clone())),
                (None, None) => None,
            },
            mix: self.mix.clone(),
            expect: self.expect.clone(),
            public: self.public,
            anyway: self.anyway,
            agents: self.agents.place.as_ref().map(AgentsPlace::count),
        }
    }
}

impl From<ResolveError> for Ending {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::Invalid(message) => Ending::usage(message),
            ResolveError::Unreachable(message) => Ending::server(message),
        }
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
