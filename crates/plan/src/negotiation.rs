//! The version of HTTP that a server chooses before the load.

use std::time::Duration;

use floodmark_load::tls::{Tls, chooses_http2};
use floodmark_record::plan::Address;
use floodmark_record::tls::{TlsCredentials, TlsPlan};

/// The version of HTTP for a load that leaves the choice to the server.
#[derive(Debug)]
pub struct Negotiated {
    /// Whether the version is HTTP/2. Otherwise it is HTTP/1.1.
    pub is_http2: bool,
    /// The version and the reason for it, in one line.
    pub remark: &'static str,
}

/// Asks a server which version of HTTP it chooses in a TLS handshake. Without TLS, or if the
/// handshake fails, the version is HTTP/1.1. If handshakes keep failing, the load reports the
/// reason.
pub fn negotiate(
    tls: Option<(&TlsPlan, &TlsCredentials)>,
    address: &Address,
    timeout: Duration,
) -> Negotiated {
    let chosen = tls.map(|(plan, credentials)| {
        let tls = Tls::new(plan, credentials).ok()?;
        chooses_http2(&tls, address, timeout).ok()
    });
    let (is_http2, remark) = match chosen {
        None => (false, "HTTP/1.1 is used, because the URL is http://"),
        Some(Some(true)) => (true, "the server chose HTTP/2"),
        Some(Some(false)) => (false, "the server chose HTTP/1.1"),
        Some(None) => (
            false,
            "HTTP/1.1 is used, because the TLS handshake before the load failed; repeat, or use --http 2",
        ),
    };
    Negotiated { is_http2, remark }
}
