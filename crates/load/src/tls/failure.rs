//! TLS failures. Each failure has a name for the record and a message for the user.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerMisbehaved};

/// webpki's name for the error when a server's certificate is a CA certificate.
/// `openssl req -x509` creates such certificates.
const CA_AS_SERVER: &str = "CaUsedAsEndEntity";

/// A TLS failure, carried as the source of an [`io::Error`].
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail}")]
pub struct TlsFailure {
    /// Name in the record's `errors`.
    pub name: &'static str,
    /// Description of the failure.
    pub detail: String,
    /// Whether invalid bytes arrived. If so, the request counts as `malformed` instead of `reset`.
    pub garbled: bool,
}

impl TlsFailure {
    /// The server closed the connection during the handshake, possibly with an error.
    pub(super) fn closed_in_handshake(error: Option<io::Error>) -> Self {
        let mut detail = "the server closed the connection during the handshake".to_owned();
        if let Some(error) = error {
            detail = format!("{detail} ({error})");
        }
        Self::named("tls_closed_in_handshake", detail)
    }

    /// The connection ended without close_notify, so the response may be truncated (RFC 8446,
    /// section 6.1).
    pub(super) fn truncated() -> Self {
        let detail = "the server closed the connection without close_notify";
        Self::named("tls_closed_without_notify", detail)
    }

    /// Interprets an error from rustls. `received` starts with the bytes that caused the error.
    pub(super) fn from_rustls(error: &Error, received: &[u8]) -> Self {
        if let Error::InvalidCertificate(why) = error {
            let (name, detail) = certificate(why);
            return Self::named(name, detail).garbled();
        }
        let name = match error {
            Error::AlertReceived(why) => alert(*why),
            Error::NoApplicationProtocol
            | Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol) => {
                "tls_alpn_refused"
            }
            Error::PeerIncompatible(_) => "tls_nothing_in_common",
            Error::DecryptError => "tls_bad_record",
            Error::PeerSentOversizedRecord
            | Error::InvalidMessage(InvalidMessage::MessageTooLarge) => "tls_record_too_long",
            Error::NoCertificatesPresented => "tls_no_certificate",
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) if received.starts_with(b"HTTP/") => "tls_answered_in_plain_http",
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => "tls_not_spoken",
            _ => "tls_protocol_violation",
        };
        let detail = match name {
            "tls_answered_in_plain_http" => {
                "the server responds in plain HTTP, without TLS".to_owned()
            }
            "tls_not_spoken" => "the server does not speak TLS".to_owned(),
            _ => error.to_string(),
        };
        let failure = Self::named(name, detail);
        // An alert is a valid record. The server uses it to end the connection.
        // All other errors mean that invalid bytes arrived.
        match error {
            Error::AlertReceived(_) => failure,
            _ => failure.garbled(),
        }
    }

    pub(super) fn named(name: &'static str, detail: impl Into<String>) -> Self {
        TlsFailure {
            name,
            detail: detail.into(),
            garbled: false,
        }
    }

    pub(super) fn garbled(mut self) -> Self {
        self.garbled = true;
        self
    }

    /// Returns the TLS failure that a backend's error contains, if any.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<TlsFailure> for io::Error {
    fn from(failure: TlsFailure) -> Self {
        io::Error::other(failure)
    }
}

/// Returns the error name for a certificate error, and explains the error in words that users
/// understand without knowing rustls.
fn certificate(error: &CertificateError) -> (&'static str, String) {
    match error {
        CertificateError::UnknownIssuer => (
            "tls_unknown_issuer",
            "the certificate is not signed by a trusted authority".to_owned(),
        ),
        CertificateError::BadSignature => (
            "tls_unknown_issuer",
            "the certificate names a trusted authority as its issuer, but its signature is invalid"
                .to_owned(),
        ),
        CertificateError::Expired => ("tls_certificate_expired", error.to_string()),
        CertificateError::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / 86_400;
            let words = format!("the certificate expired {days} days ago");
            ("tls_certificate_expired", words)
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("tls_certificate_not_valid_yet", error.to_string())
        }
        CertificateError::NotValidForName => ("tls_wrong_name", error.to_string()),
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let expected = expected.to_str();
            let presented: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let words = match presented.join(", ") {
                names if names.is_empty() => format!(
                    "the certificate names no host (subjectAltName) and is not valid for {expected}"
                ),
                names => format!("the certificate is valid for {names}, not for {expected}"),
            };
            ("tls_wrong_name", words)
        }
        CertificateError::Other(other) if other.to_string() == CA_AS_SERVER => (
            "tls_certificate_is_an_authority",
            "the certificate belongs to a certificate authority, not to a server".to_owned(),
        ),
        other => ("tls_certificate_invalid", other.to_string()),
    }
}

/// Returns the plain name, such as `localhost` for `DnsName("localhost")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_matches(['"', ')'])
}

/// Returns the error name for an alert. Alerts with a specific meaning for load tests have their
/// own names (RFC 8446, section 6.2).
fn alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::HandshakeFailure => "tls_alert_handshake_failure",
        AlertDescription::ProtocolVersion => "tls_alert_protocol_version",
        AlertDescription::InsufficientSecurity => "tls_alert_insufficient_security",
        AlertDescription::UnrecognisedName => "tls_alert_unrecognized_name",
        AlertDescription::CertificateRequired => "tls_alert_certificate_required",
        AlertDescription::AccessDenied => "tls_alert_access_denied",
        AlertDescription::InternalError => "tls_alert_internal_error",
        AlertDescription::BadRecordMac => "tls_alert_bad_record_mac",
        AlertDescription::DecodeError => "tls_alert_decode_error",
        AlertDescription::DecryptError => "tls_alert_decrypt_error",
        AlertDescription::RecordOverflow => "tls_alert_record_overflow",
        AlertDescription::UnexpectedMessage => "tls_alert_unexpected_message",
        AlertDescription::IllegalParameter => "tls_alert_illegal_parameter",
        AlertDescription::NoApplicationProtocol => "tls_alpn_refused",
        _ => "tls_alert",
    }
}
