//! TLS in a plan and in its results.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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
    /// SHA-256 fingerprint of the client certificate (`--cert`), in lower-case hexadecimal. Absent
    /// if the client has no certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_sha256: Option<String>,
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

/// Certificates and the private key for the connections of a load.
/// They are sent separately from the plan, so that no record contains them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsCredentials {
    /// Trusted certificate authorities.
    pub anchors: Vec<TrustAnchor>,
    /// The client's certificate, if it has one.
    pub identity: Option<ClientIdentity>,
}

/// A client certificate with its private key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientIdentity {
    /// The client's certificate, followed by those of its issuers. Not empty.
    pub chain: Vec<ClientCertificate>,
    /// Private key of the first certificate.
    pub key: PrivateKey,
}

impl ClientIdentity {
    /// Returns the SHA-256 fingerprint of the client's certificate in lower-case hexadecimal, or
    /// `None` if the chain is empty.
    #[must_use]
    pub fn sha256(&self) -> Option<String> {
        self.chain.first().map(ClientCertificate::sha256)
    }
}

/// A DER-encoded certificate that the client sends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientCertificate(#[serde(with = "crate::body::base64_bytes")] pub Vec<u8>);

impl ClientCertificate {
    /// Returns the SHA-256 fingerprint in lower-case hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> String {
        let digest = Sha256::digest(&self.0);
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// An unencrypted, DER-encoded private key (PKCS#8, PKCS#1 or SEC1). Debug output omits the key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PrivateKey(#[serde(with = "crate::body::base64_bytes")] pub Vec<u8>);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey")
    }
}

/// A trusted certificate authority in DER.
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
    /// Number of handshakes in which the server requested a client certificate, including failed
    /// handshakes. Absent if it is 0.
    #[serde(default, skip_serializing_if = "crate::times::is_zero")]
    pub certificate_requests: u64,
    /// Number of handshakes in which the client sent its certificate, including failed handshakes.
    /// Absent if it is 0.
    #[serde(default, skip_serializing_if = "crate::times::is_zero")]
    pub certificates_sent: u64,
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
        self.certificate_requests += other.certificate_requests;
        self.certificates_sent += other.certificates_sent;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_omits_the_private_key() {
        let identity = ClientIdentity {
            chain: vec![ClientCertificate(b"abc".to_vec())],
            key: PrivateKey(vec![211, 211]),
        };
        let text = format!("{identity:?}");
        assert!(
            text.contains("key: PrivateKey }") && !text.contains("211"),
            "{text}"
        );
        let json = serde_json::to_string(&identity).unwrap();
        assert_eq!(
            serde_json::from_str::<ClientIdentity>(&json).unwrap(),
            identity
        );
        // Command: printf abc | sha256sum
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(identity.chain[0].sha256(), expected);
    }
}
