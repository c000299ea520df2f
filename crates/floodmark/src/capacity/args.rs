//! The flags of `floodmark capacity`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use floodmark_diagnose::conditions::{CapacityCondition, Objective};
use floodmark_lab::capacity::SHORTEST_BUDGET;
use floodmark_plan::PlanSpec;
use floodmark_plan::spec::{LoadSpec, Warmup};
use floodmark_plan::values::{count_from_one, positive_duration, seed};
use floodmark_record::plan::{Expect, Rate};
use floodmark_record::units::show_duration;
use floodmark_workers::AgentsPlace;

use crate::export::ExportArgs;
use crate::files::Files;
use crate::load::agents::AgentsArgs;
use crate::load::args::{BackendFlag, SpacingFlag};
use crate::load::connection_args::{ConnectionArgs, HttpsArgs, SafetyArgs};
use crate::load::monitoring_args::MonitoringArgs;
use crate::load::request_args::RequestArgs;

/// Find the highest rate at which a server meets its objectives.
///
/// Sends open-model loads at rates that approach the capacity from both sides. Reports the capacity
/// with a 95 % interval, the trials, the response times at 50 % to 100 % of the capacity, and the
/// objective that fails first above the capacity. The interval covers the variation between trials of one server
/// process, not between processes.
#[derive(Debug, Clone, Args)]
#[command(after_help = crate::exit::HELP)]
pub struct CapacityArgs {
    /// URL to load, such as http://127.0.0.1:8080/; http:// is assumed if the scheme is missing
    pub url: String,

    /// Objective that the server must meet, such as 'p99 < 20ms', 'errors < 0.1%', 'goodput > 99%'
    /// (share of ok responses within --deadline) or, for one request of a mix, 'search: p99 < 50ms';
    /// repeatable
    #[arg(
        long = "slo",
        value_name = "OBJECTIVE",
        required = true,
        help_heading = "Search"
    )]
    pub objectives: Vec<Objective>,

    /// Maximum duration of the search, with a unit, at least 15s; if the time is up, the interval is
    /// wider than ± 2 %
    #[arg(long, value_name = "TIME", value_parser = budget, default_value = "3m", help_heading = "Search")]
    pub budget: Duration,

    /// Duration of the warm-up (closed model) before the search, with a unit: 5s [default: none]
    #[arg(long, value_name = "TIME", value_parser = positive_duration, help_heading = "Search")]
    pub warmup: Option<Duration>,

    /// Maximum number of connections [default: the number of requests in ten time limits, or in 100ms
    /// if that is longer; at least 100; 50 in the closed model]
    #[arg(short, long, value_name = "N", value_parser = count_from_one, help_heading = "Load")]
    pub connections: Option<u64>,

    /// Number of load threads [default: half the CPUs, at least 1]
    #[arg(short, long, value_name = "N", value_parser = count_from_one, help_heading = "Load")]
    pub threads: Option<u64>,

    /// Spacing between requests
    #[arg(long, value_enum, value_name = "HOW", default_value_t = SpacingFlag::Poisson, help_heading = "Load")]
    pub arrivals: SpacingFlag,

    /// Seed for --arrivals poisson and for the order and random values in --mix; increases by 1
    /// with each trial
    #[arg(long, value_name = "N", default_value = "1", value_parser = seed, help_heading = "Load")]
    pub seed: u64,

    /// I/O backend of the load threads
    #[arg(long, value_enum, default_value_t = BackendFlag::Auto, help_heading = "Load")]
    pub backend: BackendFlag,

    /// Connections.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// HTTPS.
    #[command(flatten)]
    pub https: HttpsArgs,

    /// Request.
    #[command(flatten)]
    pub request: RequestArgs,

    /// Monitoring.
    #[command(flatten)]
    pub monitoring: MonitoringArgs,

    /// Condition that a response must meet to count as ok: status=200, body=TEXT (the whole body
    /// equals TEXT) or json=VALUE (the body equals this JSON); repeatable; a response must meet one
    /// condition of each kind given [default: status 2xx or 3xx]
    #[arg(long, value_name = "WHAT", help_heading = "Judgment")]
    pub expect: Vec<Expect>,

    /// Maximum response time, with a unit, for an ok response to count as goodput [default:
    /// --timeout]
    #[arg(long, value_name = "TIME", value_parser = positive_duration, help_heading = "Judgment")]
    pub deadline: Option<Duration>,

    /// Exit with 1 if this condition holds, such as 'capacity < 5000/s' or 'low < 5000/s'; repeatable
    /// [default: none]
    #[arg(long, value_name = "CONDITION", help_heading = "Judgment")]
    pub fail_if: Vec<CapacityCondition>,

    /// Output files.
    #[command(flatten, next_help_heading = "Output")]
    pub files: Files,

    /// Metrics while running.
    #[command(flatten, next_help_heading = "Output")]
    pub export: ExportArgs,

    /// New folder for the result [default: a new folder in the temporary folder; only the latest 20
    /// are kept]
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    pub out: Option<PathBuf>,

    /// Resume the interrupted search in this result folder; its trials are not repeated [default:
    /// none]
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with = "out",
        help_heading = "Output"
    )]
    pub resume: Option<PathBuf>,

    /// Print neither progress nor summary
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,

    /// Safety.
    #[command(flatten)]
    pub safety: SafetyArgs,

    /// Agents.
    #[command(flatten)]
    pub agents: AgentsArgs,
}

fn budget(text: &str) -> Result<Duration, String> {
    let budget = positive_duration(text)?;
    match budget < SHORTEST_BUDGET {
        true => Err(format!(
            "a search needs at least {}",
            show_duration(SHORTEST_BUDGET)
        )),
        false => Ok(budget),
    }
}

impl CapacityArgs {
    /// Converts the flags to the settings of the closed-model load.
    pub fn closed_spec(&self) -> PlanSpec {
        let connection = &self.connection;
        PlanSpec {
            origin: floodmark_plan::Origin::CommandLine,
            load: LoadSpec {
                connections: self.connections,
                threads: self.threads,
                duration: Some(Duration::from_secs(1)),
                fresh: Some(connection.fresh),
                requests_per_connection: connection.requests_per_connection,
                close_first: Some(connection.close_first.into()),
                sources: connection.sources,
                warmup: Some(Warmup::Before(self.warmup.unwrap_or_default())),
                timeout: Some(connection.timeout),
                deadline: self.deadline,
                seed: Some(self.seed),
                ..LoadSpec::default()
            },
            backend: self.backend.into(),
            resolve: connection.resolve.clone(),
            unix_socket: connection.unix_socket.clone(),
            insecure: self.https.insecure,
            cacert: self.https.cacert.clone(),
            no_resumption: self.https.no_resumption,
            method: self.request.method.clone(),
            headers: self.request.headers.clone(),
            body: self.request.body_source(),
            mix: self.request.mix.clone(),
            expect: self.expect.clone(),
            public: self.safety.public,
            anyway: self.safety.anyway,
            agents: self.agents.place.as_ref().map(AgentsPlace::count),
            ..PlanSpec::default()
        }
    }

    /// Converts the flags to the settings of an open-model load at a nominal rate.
    pub fn open_spec(&self) -> PlanSpec {
        let mut spec = self.closed_spec();
        spec.load.rate = Rate::new(1.0);
        spec.load.arrivals = Some(self.arrivals.into());
        spec.load.warmup = Some(Warmup::Before(Duration::ZERO));
        spec
    }
}
