//! The flags of `floodmark capacity`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use floodmark_diagnose::conditions::{CapacityCondition, Objective};
use floodmark_lab::capacity::check_budget;
use floodmark_plan::PlanSpec;
use floodmark_plan::spec::Warmup;
use floodmark_plan::values::{count_from_one, positive_duration};
use floodmark_record::units::Rate;

use crate::load::shared::{SharedArgs, SpacingFlag};

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

    /// Spacing between requests
    #[arg(long, value_enum, value_name = "HOW", default_value_t = SpacingFlag::Poisson, help_heading = "Load")]
    pub arrivals: SpacingFlag,

    /// Flags that `load` has too.
    #[command(flatten)]
    pub shared: SharedArgs,

    /// Exit with 1 if this condition holds, such as 'capacity < 5000/s' or 'low < 5000/s'; repeatable
    /// [default: none]
    #[arg(long, value_name = "CONDITION", help_heading = "Judgment")]
    pub fail_if: Vec<CapacityCondition>,

    /// Resume the interrupted search in this result folder; its trials are not repeated [default:
    /// none]
    #[arg(
        long,
        value_name = "FOLDER",
        conflicts_with = "out",
        help_heading = "Output"
    )]
    pub resume: Option<PathBuf>,
}

fn budget(text: &str) -> Result<Duration, String> {
    positive_duration(text).and_then(check_budget)
}

impl CapacityArgs {
    /// Converts the flags to the settings of the closed-model load.
    pub fn closed_spec(&self) -> PlanSpec {
        let mut spec = self.shared.spec();
        spec.load.connections = self.connections;
        spec.load.duration = Some(Duration::from_secs(1));
        spec.load.warmup = Some(Warmup::Before(self.warmup.unwrap_or_default()));
        spec
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
