//! The HTTP version that a server chooses before the load.

use std::fmt::{self, Display};
use std::time::Duration;

use floodmark_load::tls::{Tls, chooses_http2};
use floodmark_record::plan::Target;
use floodmark_record::tls::{TlsCredentials, TlsPlan};

/// The HTTP version for a load that leaves the choice to the server, and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Negotiated {
    /// HTTP/1.1, because the URL is http://.
    PlainHttp,
    /// The server chose HTTP/1.1.
    Http1,
    /// The server chose HTTP/2.
    Http2,
    /// HTTP/1.1, because no TLS handshake completed. Contains the error at the last address.
    Failed(String),
}

impl Display for Negotiated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Negotiated::PlainHttp => f.write_str("HTTP/1.1 is used, because the URL is http://"),
            Negotiated::Http1 => f.write_str("the server chose HTTP/1.1"),
            Negotiated::Http2 => f.write_str("the server chose HTTP/2"),
            Negotiated::Failed(why) => write!(
                f,
                "HTTP/1.1 is used, because the TLS handshake before the load failed ({why}); repeat, or use --http 2"
            ),
        }
    }
}

/// Asks a server which HTTP version it chooses in a TLS handshake. Tries the target's addresses in
/// turn until a handshake completes. If handshakes keep failing, the load reports the reason.
pub fn negotiate(
    tls: Option<(&TlsPlan, &TlsCredentials)>,
    target: &Target,
    timeout: Duration,
) -> Negotiated {
    let Some((plan, credentials)) = tls else {
        return Negotiated::PlainHttp;
    };
    let tls = match Tls::new(plan, credentials) {
        Ok(tls) => tls,
        Err(error) => return Negotiated::Failed(error.to_string()),
    };
    let mut last = String::new();
    for address in target.addresses() {
        match chooses_http2(&tls, &address, timeout) {
            Ok(true) => return Negotiated::Http2,
            Ok(false) => return Negotiated::Http1,
            Err(why) => last = why,
        }
    }
    Negotiated::Failed(last)
}
