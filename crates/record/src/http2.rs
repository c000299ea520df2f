//! Settings of HTTP/2 servers, and counts of GOAWAY frames and unprocessed requests.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Use of HTTP/2, summed across all load threads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Http2Use {
    /// Latest SETTINGS of the server; those with the lowest limit on streams, if they differ
    /// between load threads. Null if none arrived.
    pub settings: Option<ServerSettings>,
    /// Number of GOAWAY frames before and during the measurement.
    pub go_aways: u64,
    /// Number of these frames with an error code other than `NO_ERROR`, by the code's name in RFC
    /// 9113; `unknown` for codes without a name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub go_away_errors: BTreeMap<String, u64>,
    /// Maximum number of requests in flight at once on one connection, before and during the
    /// measurement; 0 in records from older versions.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub used_streams: u32,
    /// Number of requests before and during the measurement that the server refused or did not
    /// process. They are sent again, except with `--retry never` or after 3 repetitions.
    pub unprocessed: u64,
}

/// A server's SETTINGS (RFC 9113, section 6.5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerSettings {
    /// Maximum number of open streams on a connection; null if there is no limit.
    pub max_streams: Option<u32>,
    /// Initial flow-control window of a stream for request bodies, in bytes.
    pub window_bytes: u32,
    /// Maximum size of the table that compresses request headers, in bytes.
    pub table_bytes: u32,
    /// Maximum payload of a frame, in bytes.
    pub frame_bytes: u32,
}

impl Http2Use {
    /// Adds the use of another thread.
    pub fn merge(&mut self, other: &Http2Use) {
        let limit = |of: &ServerSettings| of.max_streams.unwrap_or(u32::MAX);
        let settings = self.settings.into_iter().chain(other.settings);
        self.settings = settings.min_by_key(limit);
        self.go_aways += other.go_aways;
        for (code, n) in &other.go_away_errors {
            *self.go_away_errors.entry(code.clone()).or_default() += n;
        }
        self.used_streams = self.used_streams.max(other.used_streams);
        self.unprocessed += other.unprocessed;
    }
}

fn is_unknown(streams: &u32) -> bool {
    *streams == 0
}
