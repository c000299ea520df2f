//! TLS in a plan and in its results.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::origin::Origin;

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

/// Prefix of the names of TLS failures in a record's `errors`.
pub const FAILURE_PREFIX: &str = "tls_";

/// Name of the failure that the server does not choose HTTP/2 (ALPN).
pub const HTTP2_NOT_CHOSEN: &str = "tls_http2_not_chosen";

/// Returns the fix for a TLS failure, given its name in a record's `errors`. `origin` determines the
/// names of settings.
#[must_use]
pub fn failure_fix(name: &str, origin: Origin) -> String {
    let is_url = origin == Origin::CommandLine;
    let accept_any = format!("{} to accept any certificate", origin.enable("insecure"));
    let (cacert, cert) = (
        origin.example("cacert", "FILE"),
        origin.example("cert", "FILE"),
    );
    let http = |version| origin.example("http", version);
    let sni = origin.example("sni", "NAME");
    match name {
        "tls_unknown_issuer" => {
            format!("use {cacert} with the server's certificate authority, or {accept_any}")
        }
        "tls_certificate_is_an_authority" => {
            format!("use {cacert} with this certificate, or {accept_any}")
        }
        "tls_wrong_name" if is_url => {
            format!("use a host name from the certificate in the URL, or {accept_any}")
        }
        "tls_wrong_name" => {
            format!("set {sni} to a host name from the certificate, or use {accept_any}")
        }
        "tls_certificate_expired" | "tls_certificate_not_valid_yet" => format!(
            "renew the server's certificate (and check the clock of this host), or use {accept_any}"
        ),
        "tls_certificate_invalid" | "tls_no_certificate" => {
            format!("fix the server's certificate, or use {accept_any}")
        }
        "tls_answered_in_plain_http" if is_url => {
            "use http:// in the URL, or the server's HTTPS port".to_owned()
        }
        "tls_answered_in_plain_http" => {
            let scheme = origin.example("scheme", "http");
            format!("use {scheme}, or enable TLS in the server")
        }
        "tls_not_spoken" => "check the port".to_owned(),
        "tls_alpn_refused" => format!(
            "use {}, or enable the protocol \"http/1.1\" (ALPN) in the server",
            http("2")
        ),
        HTTP2_NOT_CHOSEN => format!(
            "use {}, or enable the protocol \"h2\" (ALPN) in the server",
            http("1.1")
        ),
        "tls_nothing_in_common"
        | "tls_alert_handshake_failure"
        | "tls_alert_protocol_version"
        | "tls_alert_insufficient_security" => {
            "enable TLS 1.2 or 1.3 with AES-GCM or ChaCha20-Poly1305 in the server; floodmark supports no other versions or ciphers".to_owned()
        }
        "tls_alert_unrecognized_name" if is_url => {
            "in the URL, use a host name that the server knows".to_owned()
        }
        "tls_alert_unrecognized_name" => {
            format!("set {sni} to a host name that the server knows")
        }
        "tls_alert_certificate_required" => format!(
            "use {cert} with a client certificate that the server accepts, and {} with its key",
            origin.example("key", "FILE")
        ),
        "tls_alert_unknown_ca" => format!(
            "add the authority to the server's trusted client authorities, or append the issuers' certificates to the {} file",
            origin.name("cert")
        ),
        "tls_alert_certificate_expired" => format!(
            "renew the client's certificate ({}), and check the clock of the server's host",
            origin.name("cert")
        ),
        "tls_alert_certificate_revoked" | "tls_alert_bad_certificate" => format!(
            "use {cert} with a client certificate that the server accepts; its log states the reason"
        ),
        "tls_handshake_timed_out" => format!(
            "check that the port serves TLS, or use a longer {}",
            origin.name("timeout")
        ),
        _ => "check the server's log and the port".to_owned(),
    }
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
