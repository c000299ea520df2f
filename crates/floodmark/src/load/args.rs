//! The flags of `floodmark load`, and their conversion to plan settings.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{ArgGroup, Args};
use floodmark_diagnose::conditions::{AbortCondition, RunCondition};
use floodmark_lab::RequestLogSetting;
use floodmark_load::replay::TimestampUnit;
use floodmark_plan::spec::{CheckKind, RateSteps, ReplaySpec, Warmup};
use floodmark_plan::values::{self, attempts, count_from_one, positive_duration, rate, warmup};
use floodmark_plan::{LoadSpec, PlanSpec};
use floodmark_record::figure::FigureUnit;
use floodmark_record::plan::Spacing;
use floodmark_record::units::Rate;

use super::shared::{SharedArgs, spacing, words};
use crate::exit::HELP;

/// Load one URL and report what limited it.
///
/// Closed model (default): each connection waits for a response before it sends its next request.
/// Open model (--rate, --ramp, --steps, --burst, --replay): requests are sent on a schedule, and
/// response times are measured from the scheduled times. Rates, counts and connections are totals,
/// never per thread.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = HELP,
    group = ArgGroup::new("rates").args(["rate", "ramp", "steps"]),
    group = ArgGroup::new("schedules").args(["rate", "ramp", "steps", "burst", "replay"])
)]
pub struct LoadArgs {
    /// URL to load, such as http://127.0.0.1:8080/; http:// is assumed if the scheme is missing
    #[arg(required_unless_present = "demo", conflicts_with = "demo")]
    pub url: Option<String>,

    /// Load floodmark's own hello server for 8s over kept and 8s over fresh connections; no URL
    /// needed
    #[arg(long, conflicts_with_all = [
        "streams", "fresh", "requests_per_connection", "close_first", "retry", "hold", "sources", "resolve", "unix_socket", "grpc", "mix", "server_pid",
        "no_watch", "with", "observe", "place", "json", "html", "csv", "hdr", "request_log", "out",
    ])]
    pub demo: bool,

    /// Total number of connections; in the open model, the maximum number [default: 50; in the open
    /// model, 2 × highest rate × mean service time of a 0.5s load before the run, or × 250ms but
    /// at most 10,000 if such a load is not possible, at least 50, divided by --streams]
    #[arg(short, long, value_name = "N", value_parser = count_from_one, help_heading = "Load")]
    pub connections: Option<u64>,

    /// Duration of the load, with a unit: 10s, 500ms, 5m [default: 10s]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration, conflicts_with = "burst", help_heading = "Load")]
    pub duration: Option<Duration>,

    /// Exact number of requests to send: 100000, 100k, 2M; with --duration, the load ends at
    /// whichever comes first [default: as many as --duration allows]
    #[arg(short = 'n', long, value_name = "N", value_parser = count_from_one, conflicts_with = "burst", help_heading = "Load")]
    pub requests: Option<u64>,

    /// Open model: total requests per second, such as 500, 2.5k or 1M [default: none; closed model]
    #[arg(short, long, value_name = "PER_S", value_parser = rate, help_heading = "Load")]
    pub rate: Option<Rate>,

    /// Open model: spacing between requests, for --rate, --ramp and --steps
    #[arg(long, value_name = "HOW", value_parser = spacing(), default_value = "constant", requires = "rates", help_heading = "Load")]
    pub arrivals: Spacing,

    /// Open model: send N requests at equal intervals over the time set by --within; connections
    /// are not limited [default: none]
    #[arg(long, value_name = "N", value_parser = count_from_one, requires = "within", conflicts_with_all = ["arrivals", "connections"], help_heading = "Load")]
    pub burst: Option<u64>,

    /// Time over which to spread the --burst requests, with a unit: 500ms, 10s; required by --burst
    /// [default: none]
    #[arg(long, value_name = "TIME", value_parser = positive_duration, requires = "burst", help_heading = "Load")]
    pub within: Option<Duration>,

    /// Open model: change the rate linearly from A to B requests per second over --duration, such
    /// as 0-1000 or 5k-500 [default: none]
    #[arg(long, value_name = "A-B", value_parser = values::ramp, conflicts_with = "requests", help_heading = "Load")]
    pub ramp: Option<(f64, f64)>,

    /// Open model: send at each of these rates (requests/s) in turn: 1000,2000,5k for equal parts
    /// of --duration, or 1000:10s,0:5s,5k:30s for the given durations [default: none]
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
    #[arg(long, value_name = "UNIT", value_parser = replay_unit(), default_value = "s", requires = "replay", help_heading = "Load")]
    pub replay_unit: TimestampUnit,

    /// Duration of the load before the measurement, with a unit: 5s. `auto`: no warm-up; figures
    /// cover the steady part of the run. `0s`: no warm-up; figures cover the whole run
    #[arg(long, value_name = "auto|TIME", default_value = "auto", value_parser = warmup, help_heading = "Load")]
    pub warmup: Warmup,

    /// Number of consecutive measurements of the same server, at most 10k
    #[arg(long, value_name = "N", default_value = "1", value_parser = attempts, help_heading = "Load")]
    pub attempts: u32,

    /// Flags that `capacity` has too.
    #[command(flatten)]
    pub shared: SharedArgs,

    /// Open all --connections before the clock starts, keep them open, use them in turn, and reopen
    /// any that the server closes [default: open connections as needed]
    #[arg(long, requires = "connections", conflicts_with_all = ["fresh", "requests_per_connection", "burst"], help_heading = "Connections")]
    pub hold: bool,

    /// End without waiting for requests in flight [default: wait up to --timeout]
    #[arg(long, help_heading = "Connections")]
    pub no_drain: bool,

    /// Check all responses together. `sequence`: responses are consecutive numbers without repeats
    /// or gaps. `scoring`: the request body is {"score": N}, and each response contains
    /// numberOfTrials, totalScore and averageScore of all scores so far. FILE.toml: a check file,
    /// which describes how to write to and read from an API [default: none]
    #[arg(
        long,
        value_name = "sequence|scoring|FILE",
        conflicts_with = "mix",
        help_heading = "Judgment"
    )]
    pub check: Option<CheckKind>,

    /// Exit with 1 if this condition holds, such as 'p99 > 50ms', 'errors > 0.1%' or, for one
    /// request of a mix, 'search: p99 > 50ms'; repeatable [default: none]
    #[arg(long, value_name = "CONDITION", help_heading = "Judgment")]
    pub fail_if: Vec<RunCondition>,

    /// End the load with exit code 1 if this condition holds in every second for the given time,
    /// such as 'errors > 20% for 5s' or 'p99 > 2s for 10s'; repeatable [default: none; `for`
    /// defaults to 5s]
    #[arg(long, value_name = "CONDITION", help_heading = "Judgment")]
    pub abort_if: Vec<AbortCondition>,

    /// Write a CSV line for each request of the measurement: times, outcome, status, bytes and
    /// connection [default: none]
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "place",
        help_heading = "Output"
    )]
    pub request_log: Option<PathBuf>,

    /// Share of requests to log, such as 1%; --seed selects them [default: all]
    #[arg(long, value_name = "SHARE", value_parser = sample, requires = "request_log", help_heading = "Output")]
    pub request_log_sample: Option<f64>,

    /// Also print the request before the load, the evidence, the traffic, and the resource usage of
    /// client and server
    #[arg(short, long, conflicts_with = "quiet", help_heading = "Output")]
    pub verbose: bool,

    /// Also exit with 4 if the client was the bottleneck (validity `bound`) or the 95 % interval of
    /// the throughput is wider than ± 10 % (`unsteady`) [default: exit with 0]
    #[arg(long, help_heading = "Judgment")]
    pub strict: bool,
}

/// Parses the value of `--request-log-sample`.
fn sample(text: &str) -> Result<f64, String> {
    match FigureUnit::Share.parse(text)? {
        share if share > 0.0 => Ok(share),
        _ => Err("the share must be above 0, such as 1%".to_owned()),
    }
}

fn replay_unit() -> impl TypedValueParser<Value = TimestampUnit> {
    words([
        ("s", TimestampUnit::Seconds, "Seconds"),
        ("ms", TimestampUnit::Milliseconds, "Milliseconds"),
        ("us", TimestampUnit::Microseconds, "Microseconds"),
        ("ns", TimestampUnit::Nanoseconds, "Nanoseconds"),
    ])
}

impl LoadArgs {
    /// Returns whether --replay or --steps determines the duration of the run.
    pub fn schedule_has_length(&self) -> bool {
        self.replay.is_some() || matches!(self.steps, Some(RateSteps::Timed(_)))
    }

    /// Returns the log of individual requests, if there is one.
    pub fn request_log(&self) -> Option<RequestLogSetting<'_>> {
        let file = self.request_log.as_deref()?;
        let share = self.request_log_sample.unwrap_or(1.0);
        Some(RequestLogSetting { file, share })
    }

    /// Converts the flags to plan settings.
    pub fn spec(&self) -> PlanSpec {
        let has_rate = self.rate.is_some() || self.ramp.is_some() || self.steps.is_some();
        let shared = self.shared.spec();
        PlanSpec {
            load: LoadSpec {
                connections: self.connections,
                duration: self.duration,
                requests: self.requests,
                rate: self.rate,
                burst: self.burst,
                within: self.within,
                arrivals: has_rate.then_some(self.arrivals),
                warmup: Some(self.warmup),
                attempts: Some(self.attempts.into()),
                check: self.check.clone(),
                ..shared.load
            },
            ramp: self.ramp,
            steps: self.steps.clone(),
            replay: self.replay.clone().map(|path| ReplaySpec {
                path,
                speed: self.replay_speed.unwrap_or(1.0),
                unit: self.replay_unit,
            }),
            hold: self.hold,
            no_drain: self.no_drain,
            ..shared
        }
    }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
