//! What `floodmark observe` writes on the server's machine, and what is kept of it beside a load on another.
//!
//! The file is JSON Lines: one [`Line::Opened`], then a [`Line::Second`] about each second, before it a [`Line::Group`] for each group
//! of series that it is the first to have values of, and at an orderly end one [`Line::Ended`]. It can be read while it grows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::{Environment, ToolInfo};
use crate::watch::{OtherThreads, ServerThread};

/// The version of the file's format; raised when a field changes its meaning or goes away.
pub const FILE_VERSION: u32 = 1;

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The first one.
    Opened(Opened),
    /// What the values of a group are of.
    Group(Group),
    /// What was read since the last of these.
    Second(Second),
    /// The last one, where the observing did not end by force.
    Ended {
        /// Why it ended.
        why: String,
    },
}

/// What is observed, and by whom.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Opened {
    /// The format's version.
    pub schema: u32,
    /// Which floodmark, and how it was called.
    pub tool: ToolInfo,
    /// The server's machine.
    pub environment: Environment,
    /// The port that the server listens on.
    pub port: u16,
    /// Name of the server's first process, cut to 15 bytes by the kernel.
    pub name: String,
    /// Its first processes.
    pub pids: Vec<u32>,
    /// How the clocks stood when the series began.
    pub clocks: Clocks,
}

/// How the clocks of a machine stood at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clocks {
    /// The series' clock, milliseconds from their start.
    pub at_ms: f64,
    /// Which start of the machine its monotonic clock counts from (`/proc/sys/kernel/random/boot_id`); null where the kernel does not
    /// tell.
    pub boot_id: Option<String>,
    /// `CLOCK_MONOTONIC`, ns.
    pub monotonic_ns: u64,
    /// The wall clock (`CLOCK_REALTIME`), ns since 1970.
    pub unix_ns: u64,
    /// Whether the kernel takes its wall clock for synchronised (`adjtimex`: neither `TIME_ERROR` nor `STA_UNSYNC`).
    pub synchronised: bool,
    /// By how much the kernel says that its wall clock may be wrong, microseconds (`maxerror` of `adjtimex`); null where it does not
    /// say.
    pub max_error_us: Option<u64>,
}

/// Series that are read together, at the same moments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// Its number.
    pub group: u32,
    /// Where it is read.
    pub source: String,
    /// Its series.
    pub series: Vec<Series>,
}

/// What the values of a series are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Series {
    /// Of what, as in the observations of a record.
    pub subject: String,
    /// Name of the counter.
    pub metric: String,
    /// Unit of the values.
    pub unit: String,
    /// What a value is of its step.
    pub kind: Kind,
}

/// What a value is of the step it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What a counter grew by.
    Increase,
    /// A rate or share over the step.
    Mean,
    /// A level at the end of the step.
    Level,
}

/// What was read since the last line of its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Begin, milliseconds on the series' clock: the end of the line before.
    pub from_ms: u64,
    /// End: all steps that were over by then are in this line or in those before.
    pub to_ms: u64,
    /// How the clocks stood at its end.
    pub clocks: Clocks,
    /// New values.
    pub groups: Vec<Values>,
    /// The threads of the server that used most CPU in it, at most 64.
    pub threads: Vec<ServerThread>,
    /// All others together; null where there are none.
    pub other_threads: Option<OtherThreads>,
    /// CPU of the thread that reads, seconds since the series began.
    pub watcher_cpu_s: f64,
    /// What could not be read, and had not been said before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

/// New values of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Values {
    /// Which group.
    pub group: u32,
    /// Begin of the first step, milliseconds on the series' clock.
    pub start_ms: u64,
    /// Length of each step, milliseconds; it may be another one than in the line before.
    pub step_ms: u64,
    /// The values of each series, in the order of the group; all of the same number.
    pub values: Vec<Vec<f64>>,
}

/// What was observed on the server's machine, beside a load on another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Elsewhere {
    /// The server's machine.
    pub environment: Environment,
    /// How its clock was put together with the load's.
    pub aligned: Aligned,
    /// From when on it was observed, milliseconds on the clock of the observations.
    pub from_ms: u64,
    /// Until when.
    pub to_ms: u64,
    /// CPU that observing took there meanwhile, seconds; in no figure of client or server.
    pub watcher_cpu_s: f64,
}

/// How two machines' clocks were put together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Aligned {
    /// By what.
    pub method: Method,
    /// What is added to a time on the observer's clock of series to have it on that of the load, milliseconds.
    pub offset_ms: f64,
    /// By how much that may be wrong either way, milliseconds.
    pub error_ms: f64,
    /// Pearson's correlation of both sides' CPU, where the load told; null where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<f64>,
    /// What spoke against it; null where nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub but: Option<String>,
}

/// What tells how two clocks stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// It is the same clock: both ran on one machine.
    SameClock,
    /// Both wall clocks are synchronised, by their kernels' word.
    WallClocks,
    /// The load itself, which shows in the CPU of both sides.
    Load,
}

/// The JSON Schema of a [`Line`], as it is kept in `docs/observer.schema.json`.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(Line).to_value()
}
