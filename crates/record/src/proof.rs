//! What was changed after a run was measured, to see whether throughput moves as its cause predicts (docs/decisions/0022).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::Interval;

/// A part of the setup that is changed for a while.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Twice as many connections.
    TwiceConnections,
    /// A server of the same kind beside it, with a knob set to twice its value.
    TwiceKnob,
    /// The load process is stopped for 1 ms of each 5 ms.
    SlowedClient,
    /// The server's processes are.
    SlowedServer,
    /// Those of the store behind it are.
    SlowedStore,
}

impl Change {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Change::TwiceConnections => "connections × 2",
            Change::TwiceKnob => "a server whose knob is twice as high",
            Change::SlowedClient => "client stopped for a fifth of the time",
            Change::SlowedServer => "server stopped for a fifth of the time",
            Change::SlowedStore => "store stopped for a fifth of the time",
        }
    }
}

/// Windows with and without one change, one beside the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Windows {
    /// What was changed.
    pub change: Change,
    /// Which knob, and from which value to which; null for changes of something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knob: Option<String>,
    /// Connections in the windows without it. Where fewer requests are under way than bridge a stop, these are more than in the run, for
    /// a side that is not stopped would have nothing to do either.
    pub connections: u32,
    /// Ok answers per second in each window without any change, in the order they were taken.
    pub base_per_s: Vec<f64>,
    /// The same in the windows with it, each taken within seconds of the base of the same number.
    pub changed_per_s: Vec<f64>,
}

/// What one change came to, beside what the cause predicts of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tested {
    /// What was changed.
    pub change: Change,
    /// Which knob, and from which value to which; null for changes of something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knob: Option<String>,
    /// Lowest and highest ratio of throughput (with the change over without) that the cause allows; null where it predicts none.
    pub predicted: Option<(f64, f64)>,
    /// The ratio that was measured; null where a window gave no figure.
    pub ratio: Option<f64>,
    /// Its interval.
    pub interval: Option<Interval>,
    /// Whether the two agree; null where the cause predicts nothing or the interval holds both.
    pub agrees: Option<bool>,
}
