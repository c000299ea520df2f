//! HTTPS: what is asked of a connection's protection, and what it came to.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How connections are protected.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TlsPlan {
    /// The name or address that the server has to prove: the URL's host. A name is sent as SNI, an address is not.
    pub server_name: String,
    /// What its certificate is held against.
    pub trust: Trust,
    /// Whether a handshake may resume an earlier session of its load thread.
    pub resumption: bool,
}

/// What a server's certificate is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// The certificate authorities that the commanding machine trusts.
    System,
    /// Those of a file that was given (`--cacert`).
    File,
    /// Nothing: it is not verified (`--insecure`). That the server holds the certificate's key still is.
    Nothing,
}

/// A certificate authority to trust, in DER. It travels beside the plan, so that no record holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrustAnchor(#[serde(with = "crate::plan::base64_bytes")] pub Vec<u8>);

/// What TLS took and gave, over all load threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsUse {
    /// Handshakes that succeeded, in the measurement and before it.
    pub handshakes: u64,
    /// How many of them resumed an earlier session.
    pub resumed: u64,
    /// Protocol and cipher suite of those handshakes, with how often each was agreed on.
    pub negotiated: BTreeMap<String, u64>,
    /// CPU that handshakes took in the measurement, failed ones included, seconds: `CLOCK_THREAD_CPUTIME_ID` of the load
    /// thread before and after each step of a handshake. Socket calls, and session tickets that come later, are not in it.
    pub handshake_cpu_s: f64,
    /// Bytes of TLS records handed to the kernel in the measurement, handshakes included.
    pub wire_bytes_sent: u64,
    /// Bytes of TLS records received in the measurement, handshakes included.
    pub wire_bytes_received: u64,
    /// The first handshake that failed, in words.
    pub failure: Option<String>,
}

impl TlsUse {
    /// The same with costs and bytes since an earlier reading only.
    #[must_use]
    pub fn since(mut self, earlier: Option<&TlsUse>) -> Self {
        if let Some(earlier) = earlier {
            self.handshake_cpu_s -= earlier.handshake_cpu_s;
            self.wire_bytes_sent -= earlier.wire_bytes_sent;
            self.wire_bytes_received -= earlier.wire_bytes_received;
        }
        self
    }

    /// The sum of two threads' parts.
    #[must_use]
    pub fn merged(mut self, other: TlsUse) -> Self {
        self.handshakes += other.handshakes;
        self.resumed += other.resumed;
        for (name, n) in other.negotiated {
            *self.negotiated.entry(name).or_default() += n;
        }
        self.handshake_cpu_s += other.handshake_cpu_s;
        self.wire_bytes_sent += other.wire_bytes_sent;
        self.wire_bytes_received += other.wire_bytes_received;
        self.failure = self.failure.or(other.failure);
        self
    }
}

/// TLS in a run's record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsRun {
    /// What it took and gave.
    #[serde(flatten)]
    pub used: TlsUse,
    /// `handshake_cpu_s` as a share of the load process's CPU in the measurement; null where that is 0.
    pub handshake_cpu_share: Option<f64>,
}
