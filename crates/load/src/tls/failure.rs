//! What goes wrong in TLS: a name for the record, and words for a human.

use std::io;

use rustls::{AlertDescription, CertificateError, Error, PeerMisbehaved};

use super::record::HEADER;

/// How webpki names a server that shows a certificate authority's certificate as its own, as `openssl req -x509` makes them.
const CA_AS_SERVER: &str = "CaUsedAsEndEntity";

/// A failure of TLS, carried as the source of an [`io::Error`].
#[derive(Debug, Clone, thiserror::Error)]
#[error("{detail}")]
pub struct Failure {
    /// Its name in the record's `errors`.
    pub name: &'static str,
    /// What happened.
    pub detail: String,
    /// Whether bytes came that are no valid answer, so that the request counts as malformed and not as reset.
    pub garbled: bool,
}

impl Failure {
    /// The connection ended within the handshake.
    #[must_use]
    pub fn cut(detail: String) -> Self {
        Self::named("tls_closed_in_handshake", detail)
    }

    /// The connection ended without close_notify, so nobody knows whether all was said (RFC 8446, section 6.1).
    #[must_use]
    pub fn truncated() -> Self {
        let detail = "the server closed the connection without close_notify";
        Self::named("tls_closed_without_notify", detail)
    }

    /// A record that does not open: it was changed on the way, or sealed with other keys.
    #[must_use]
    pub fn bad_record() -> Self {
        Self::named("tls_bad_record", "a record does not open").garbled()
    }

    pub(super) fn record_too_long(length: usize) -> Self {
        let detail = format!("a record of {length} bytes is longer than TLS allows");
        Self::named("tls_record_too_long", detail).garbled()
    }

    pub(super) fn unexpected(what: &str) -> Self {
        Self::named("tls_unexpected_message", what).garbled()
    }

    pub(super) fn protocol(what: &str) -> Self {
        Self::named("tls_protocol_violation", what).garbled()
    }

    /// Bytes that are no record.
    pub(super) fn not_tls(begin: [u8; HEADER]) -> Self {
        if begin == *b"HTTP/" {
            let detail = "the server answers in plain HTTP, without TLS";
            Self::named("tls_answered_in_plain_http", detail).garbled()
        } else {
            Self::named("tls_not_spoken", "what answers does not speak TLS").garbled()
        }
    }

    /// An alert that ended the connection.
    pub(super) fn alert(number: u8) -> Self {
        Self::from(Error::AlertReceived(AlertDescription::from(number)))
    }

    fn named(name: &'static str, detail: impl Into<String>) -> Self {
        Failure {
            name,
            detail: detail.into(),
            garbled: false,
        }
    }

    fn garbled(mut self) -> Self {
        self.garbled = true;
        self
    }

    /// The failure that an error of a backend carries.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        io::Error::other(failure)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let name = match &error {
            Error::InvalidCertificate(why) => certificate(why),
            Error::AlertReceived(why) => alert(*why),
            Error::NoApplicationProtocol
            | Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol) => {
                "tls_alpn_refused"
            }
            Error::PeerIncompatible(_) => "tls_nothing_in_common",
            Error::DecryptError => "tls_bad_record",
            Error::PeerSentOversizedRecord => "tls_record_too_long",
            Error::NoCertificatesPresented => "tls_no_certificate",
            _ => "tls_protocol_violation",
        };
        let detail = match &error {
            Error::InvalidCertificate(why) => words(why),
            _ => error.to_string(),
        };
        Failure {
            name,
            detail,
            // An alert is a valid record, by which the server ends the connection; all else is of bytes that are not.
            garbled: !matches!(error, Error::AlertReceived(_)),
        }
    }
}

/// What is wrong with a certificate, for somebody who does not know the library.
fn words(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => {
            "the certificate is signed by nobody who is trusted".to_owned()
        }
        CertificateError::BadSignature => {
            "the certificate is signed by another than the trusted authority of that name"
                .to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / 86_400;
            format!("the certificate expired {days} days ago")
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let expected = expected.to_str();
            let presented: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            match presented.join(", ") {
                names if names.is_empty() => {
                    format!("the certificate names no host (subjectAltName), so not {expected}")
                }
                names => format!("the certificate is for {names} and not for {expected}"),
            }
        }
        CertificateError::Other(other) if other.to_string() == CA_AS_SERVER => {
            "the certificate is an authority's own and none for a server".to_owned()
        }
        other => other.to_string(),
    }
}

/// `DnsName("localhost")` without its wrapping.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_matches(['"', ')'])
}

fn certificate(error: &CertificateError) -> &'static str {
    match error {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => "tls_unknown_issuer",
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "tls_certificate_expired"
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "tls_certificate_not_valid_yet"
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "tls_wrong_name"
        }
        CertificateError::Other(other) if other.to_string() == CA_AS_SERVER => {
            "tls_certificate_is_an_authority"
        }
        _ => "tls_certificate_invalid",
    }
}

/// The alerts that say something of their own about a load (RFC 8446, section 6.2).
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

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    #[test]
    fn what_rustls_cannot_read_is_garbled_as_what_we_cannot() {
        let found = Failure::from(Error::InvalidMessage(InvalidMessage::MessageTooShort));
        let ours = Failure::protocol("cut short");
        assert_eq!((found.name, found.garbled), (ours.name, ours.garbled));
        assert!(Failure::from(Error::DecryptError).garbled);
        assert!(!Failure::alert(80).garbled);
    }
}
