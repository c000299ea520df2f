//! TLS in a plan and in its results.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// TLS settings of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TlsPlan {
    /// Name or address that the certificate must match: the URL's host, or the name given with
    /// `--sni`. A name is sent as SNI.
    pub server_name: String,
    /// Trusted certificate authorities.
    pub trust: Trust,
    /// Whether a handshake may resume an earlier session of the same load thread.
    pub resumption: bool,
}

/// Trusted certificate authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// The authorities that this host trusts.
    System,
    /// The authorities in a file (`--cacert`).
    File,
    /// No authorities (`--insecure`). The certificate is not verified.
    /// The server only proves that it has the certificate's private key.
    Nothing,
}

/// A trusted certificate authority in DER.
/// Authorities are sent separately from the plan, so that no record contains them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrustAnchor(#[serde(with = "crate::body::base64_bytes")] pub Vec<u8>);

/// Use of TLS, summed across all load threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsUse {
    /// Number of successful handshakes before and during the measurement.
    pub handshakes: u64,
    /// Number of successful handshakes that resumed an earlier session.
    pub resumed: u64,
    /// Number of successful handshakes by protocol version and cipher suite.
    pub negotiated: BTreeMap<String, u64>,
    /// CPU time in seconds spent on handshakes during the measurement, including failed handshakes.
    /// `CLOCK_THREAD_CPUTIME_ID` is read before and after each handshake step.
    /// Socket calls and later session tickets are excluded.
    pub handshake_cpu_s: f64,
    /// Bytes of TLS records sent during the measurement, including handshakes.
    pub wire_bytes_sent: u64,
    /// Bytes of TLS records received during the measurement, including handshakes.
    pub wire_bytes_received: u64,
    /// First TLS error; null if there was none.
    pub failure: Option<String>,
}

impl TlsUse {
    /// Subtracts the CPU time and bytes of an earlier reading.
    #[must_use]
    pub fn since(mut self, earlier: Option<&TlsUse>) -> Self {
        if let Some(earlier) = earlier {
            self.handshake_cpu_s -= earlier.handshake_cpu_s;
            self.wire_bytes_sent -= earlier.wire_bytes_sent;
            self.wire_bytes_received -= earlier.wire_bytes_received;
        }
        self
    }

    /// Adds the TLS use of another thread.
    pub fn merge(&mut self, other: &TlsUse) {
        self.handshakes += other.handshakes;
        self.resumed += other.resumed;
        for (name, n) in &other.negotiated {
            *self.negotiated.entry(name.clone()).or_default() += n;
        }
        self.handshake_cpu_s += other.handshake_cpu_s;
        self.wire_bytes_sent += other.wire_bytes_sent;
        self.wire_bytes_received += other.wire_bytes_received;
        self.failure = self.failure.take().or_else(|| other.failure.clone());
    }
}

/// Use of TLS in a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsRun {
    /// Handshakes, sessions and bytes in the run.
    #[serde(flatten)]
    pub used: TlsUse,
    /// `handshake_cpu_s` as a share of the client's CPU time during the measurement.
    /// Null if the client used no CPU time.
    pub handshake_cpu_share: Option<f64>,
}
