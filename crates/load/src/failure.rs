//! Names for failures below the HTTP level, as used in the record's `errors`.

use std::io;

use floodmark_record::reason::STREAM_RESET;
use floodmark_record::tls::HTTP2_NOT_CHOSEN;
use floodmark_wire::h2::ErrorCode;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerMisbehaved};

pub use floodmark_record::reason::{GO_AWAY, NO_STREAMS, NOT_READ, STREAM_REFUSED};

/// The server closed the connection before the first byte of a response.
pub const CLOSED_EARLY: &str = "closed_before_answer";
/// A TCP handshake exceeded the timeout.
pub const CONNECT_TIMED_OUT: &str = "connect_timed_out";
/// A TLS handshake exceeded the timeout, or was still unfinished after a second when the run ended.
pub const HANDSHAKE_TIMED_OUT: &str = "tls_handshake_timed_out";
/// The server should have closed the connection after a response, but did not do so in time.
pub const NOT_CLOSED: &str = "not_closed_by_server";

/// Returns the name for a stream that the server reset (HTTP/2).
pub fn stream_reset(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NO_ERROR => "stream_reset_no_error",
        ErrorCode::PROTOCOL_ERROR => "stream_reset_protocol_error",
        ErrorCode::INTERNAL_ERROR => "stream_reset_internal_error",
        ErrorCode::FLOW_CONTROL_ERROR => "stream_reset_flow_control_error",
        ErrorCode::STREAM_CLOSED => "stream_reset_stream_closed",
        ErrorCode::CANCEL => "stream_reset_cancel",
        ErrorCode::ENHANCE_YOUR_CALM => "stream_reset_enhance_your_calm",
        ErrorCode::HTTP_1_1_REQUIRED => "stream_reset_http_1_1_required",
        _ => STREAM_RESET,
    }
}

/// The reason why a connect failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectFailure {
    /// Name in the record.
    pub name: &'static str,
    /// Whether the server or the network caused the failure. Otherwise this process lacked
    /// resources.
    pub by_server: bool,
    /// Whether another of the target's addresses may work. This is not the case if this process
    /// lacked file descriptors or memory.
    pub of_address: bool,
}

impl ConnectFailure {
    /// Creates the failure `name`, which the server or the network caused.
    pub fn by_server(name: &'static str) -> Self {
        ConnectFailure {
            name,
            by_server: true,
            of_address: true,
        }
    }
}

/// Classifies a failed connect.
pub fn connect(error: &io::Error) -> ConnectFailure {
    if let Some(failure) = TlsFailure::of(error) {
        return ConnectFailure::by_server(failure.name);
    }
    let (name, by_server) = match error.raw_os_error() {
        Some(libc::EADDRNOTAVAIL | libc::EADDRINUSE) => ("ports_exhausted", false),
        Some(libc::EMFILE | libc::ENFILE) => ("fds_exhausted", false),
        Some(libc::ENOBUFS | libc::ENOMEM) => ("no_memory_for_socket", false),
        Some(libc::EACCES | libc::EPERM) => ("connect_not_permitted", false),
        Some(libc::ECONNREFUSED) => ("connect_refused", true),
        Some(libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE) => ("connect_reset", true),
        Some(libc::ETIMEDOUT) => (CONNECT_TIMED_OUT, true),
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH) => ("unreachable", true),
        _ => ("connect_failed", true),
    };
    let ours = matches!(name, "fds_exhausted" | "no_memory_for_socket");
    ConnectFailure {
        name,
        by_server,
        of_address: !ours,
    }
}

/// Classifies a failure of an established connection. Returns its name in the record, and whether
/// invalid bytes arrived.
pub fn broken(error: &io::Error) -> (&'static str, bool) {
    if let Some(failure) = TlsFailure::of(error) {
        return (failure.name, failure.garbled);
    }
    let name = match error.raw_os_error() {
        Some(libc::ECONNRESET) => "connection_reset",
        Some(libc::EPIPE) => CLOSED_EARLY,
        Some(libc::ETIMEDOUT) => "connection_timed_out",
        _ => "connection_failed",
    };
    (name, false)
}

/// webpki's name for the error when a server's certificate is a CA certificate.
/// `openssl req -x509` creates such certificates.
const CA_AS_SERVER: &str = "CaUsedAsEndEntity";

/// Client certificate exchange observed in the handshakes of a load thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateExchange {
    /// No server requested a certificate.
    NotRequested,
    /// A server requested a certificate, and the client had none that the server supports.
    NotSent,
    /// The client sent its certificate.
    Sent,
}

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
    fn new(name: &'static str, detail: String) -> Self {
        TlsFailure {
            name,
            detail,
            garbled: false,
        }
    }

    /// Returns the failure for a handshake during which the server closed the connection. `error`
    /// is the I/O error, if any.
    pub fn closed_in_handshake(error: Option<io::Error>) -> Self {
        let mut detail = "the server closed the connection during the handshake".to_owned();
        if let Some(error) = error {
            detail = format!("{detail} ({error})");
        }
        Self::new("tls_closed_in_handshake", detail)
    }

    /// Returns the failure for a connection that ended without close_notify. The response may be
    /// truncated (RFC 8446, section 6.1).
    pub fn truncated() -> Self {
        let detail = "the server closed the connection without close_notify";
        Self::new("tls_closed_without_notify", detail.to_owned())
    }

    /// Returns the failure for a server that does not choose HTTP/2, although the client offers no
    /// other protocol.
    pub fn http2_not_chosen() -> Self {
        let detail = "the server does not support HTTP/2 over TLS (ALPN)";
        Self::new(HTTP2_NOT_CHOSEN, detail.to_owned())
    }

    /// Interprets an error from rustls. `received` starts with the bytes that caused the error.
    pub fn from_rustls(
        error: &Error,
        received: &[u8],
        exchange: CertificateExchange,
        offers_http2: bool,
    ) -> Self {
        if offers_http2 && refuses_protocol(error) {
            return Self::http2_not_chosen();
        }
        if let Error::AlertReceived(why) = error
            && let Some(failure) = certificate_alert(*why, exchange)
        {
            return failure;
        }
        let named = |name| (name, error.to_string());
        let (name, detail) = match error {
            Error::InvalidCertificate(why) => certificate(why),
            error if refuses_protocol(error) => named("tls_alpn_refused"),
            Error::AlertReceived(why) => named(alert(*why)),
            Error::PeerIncompatible(_) => named("tls_nothing_in_common"),
            Error::DecryptError => named("tls_bad_record"),
            Error::PeerSentOversizedRecord
            | Error::InvalidMessage(InvalidMessage::MessageTooLarge) => {
                named("tls_record_too_long")
            }
            Error::NoCertificatesPresented => named("tls_no_certificate"),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) if received.starts_with(b"HTTP/") => (
                "tls_answered_in_plain_http",
                "the server responds in plain HTTP, without TLS".to_owned(),
            ),
            Error::InvalidMessage(
                InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
            ) => ("tls_not_spoken", "the server does not speak TLS".to_owned()),
            _ => named("tls_protocol_violation"),
        };
        TlsFailure {
            // An alert is a valid record. The server uses it to end the connection.
            // On an established connection, all other errors mean that invalid bytes arrived.
            garbled: !matches!(error, Error::AlertReceived(_)),
            ..Self::new(name, detail)
        }
    }

    /// Returns the TLS failure that a backend's error contains, if any.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<TlsFailure> for io::Error {
    fn from(failure: TlsFailure) -> Self {
        io::Error::other(failure)
    }
}

/// Returns whether the server accepts none of the offered application protocols (ALPN).
fn refuses_protocol(error: &Error) -> bool {
    matches!(
        error,
        Error::AlertReceived(AlertDescription::NoApplicationProtocol)
            | Error::NoApplicationProtocol
            | Error::PeerMisbehaved(PeerMisbehaved::SelectedUnofferedApplicationProtocol)
    )
}

/// Returns the error name for a certificate error, and an explanation for users who do not know
/// rustls.
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
        error if is_authority(error) => (
            "tls_certificate_is_an_authority",
            "the certificate belongs to a certificate authority, not to a server".to_owned(),
        ),
        other => ("tls_certificate_invalid", other.to_string()),
    }
}

/// Returns whether a server's certificate was rejected because it is a CA certificate. The validity
/// period was checked before.
pub fn is_authority(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Other(other) if other.to_string() == CA_AS_SERVER)
}

/// Returns the plain name, such as `localhost` for `DnsName("localhost")`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').map_or(name, |(_, inner)| inner);
    inner.trim_matches(['"', ')'])
}

/// Returns the failure if the server sent this alert because of the client certificate (RFC 8446,
/// section 6.2).
fn certificate_alert(why: AlertDescription, exchange: CertificateExchange) -> Option<TlsFailure> {
    use AlertDescription as Alert;
    let reason = match (exchange, why) {
        // OpenSSL sends handshake_failure in TLS 1.2, and Go sends bad_certificate.
        (
            CertificateExchange::NotSent,
            Alert::CertificateRequired
            | Alert::HandshakeFailure
            | Alert::BadCertificate
            | Alert::NoCertificate
            | Alert::CertificateUnknown
            | Alert::AccessDenied,
        ) => {
            let detail = "the server requires a client certificate".to_owned();
            return Some(TlsFailure::new("tls_alert_certificate_required", detail));
        }
        (CertificateExchange::Sent, Alert::UnknownCA) => {
            ": it does not trust the authority that signed it"
        }
        (CertificateExchange::Sent, Alert::CertificateExpired) => {
            ": it is expired or not valid yet"
        }
        (CertificateExchange::Sent, Alert::CertificateRevoked) => ": it is revoked",
        (CertificateExchange::Sent, Alert::UnsupportedCertificate) => ": its type is not supported",
        (
            CertificateExchange::Sent,
            Alert::BadCertificate | Alert::CertificateUnknown | Alert::AccessDenied,
        ) => "",
        _ => return None,
    };
    let detail = format!("the server rejects the client certificate{reason}");
    Some(TlsFailure::new(alert(why), detail))
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
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown => "tls_alert_bad_certificate",
        AlertDescription::CertificateRevoked => "tls_alert_certificate_revoked",
        AlertDescription::CertificateExpired => "tls_alert_certificate_expired",
        AlertDescription::UnknownCA => "tls_alert_unknown_ca",
        AlertDescription::AccessDenied => "tls_alert_access_denied",
        AlertDescription::InternalError => "tls_alert_internal_error",
        AlertDescription::BadRecordMac => "tls_alert_bad_record_mac",
        AlertDescription::DecodeError => "tls_alert_decode_error",
        AlertDescription::DecryptError => "tls_alert_decrypt_error",
        AlertDescription::RecordOverflow => "tls_alert_record_overflow",
        AlertDescription::UnexpectedMessage => "tls_alert_unexpected_message",
        AlertDescription::IllegalParameter => "tls_alert_illegal_parameter",
        _ => "tls_alert",
    }
}
