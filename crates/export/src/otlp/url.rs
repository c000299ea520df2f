//! URL of an OpenTelemetry collector.

use std::fmt;
use std::str::FromStr;

use hyper::Uri;

/// Path of a collector's metrics, if the URL has none.
const DEFAULT_PATH: &str = "/v1/metrics";
/// Port of http:// URLs without a port.
const DEFAULT_PORT: u16 = 80;

/// A valid URL of an OpenTelemetry collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpUrl {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Value of the `Host` header.
    pub(crate) authority: String,
    /// Path and query.
    pub(crate) path: String,
}

/// A URL that metrics cannot be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OtlpUrlError {
    /// Not a URL with a host.
    #[error("not a URL with a host; use for example http://127.0.0.1:4318")]
    Invalid,
    /// The URL has no scheme, or its scheme is neither http nor https.
    #[error("the URL must start with http://; use for example http://127.0.0.1:4318")]
    Scheme,
    /// The URL requires TLS.
    #[error("https:// is not supported; use a collector at http:// that forwards to this URL")]
    Https,
    /// The URL contains a user name.
    #[error("user names and passwords are not supported; remove the part before @")]
    Credentials,
}

impl FromStr for OtlpUrl {
    type Err = OtlpUrlError;

    fn from_str(text: &str) -> Result<Self, OtlpUrlError> {
        let (scheme, _) = text.split_once("://").ok_or(OtlpUrlError::Scheme)?;
        match &*scheme.to_ascii_lowercase() {
            "http" => {}
            "https" => return Err(OtlpUrlError::Https),
            _ => return Err(OtlpUrlError::Scheme),
        }
        let uri: Uri = text.parse().map_err(|_| OtlpUrlError::Invalid)?;
        let authority = uri.authority().ok_or(OtlpUrlError::Invalid)?;
        if authority.as_str().contains('@') {
            return Err(OtlpUrlError::Credentials);
        }
        let host = authority.host().trim_matches(['[', ']']);
        // `Uri` accepts an invalid port, and then returns no port.
        let has_port = authority.as_str().len() > authority.host().len();
        let port = authority.port_u16().filter(|&port| port > 0);
        if host.is_empty() || (has_port && port.is_none()) {
            return Err(OtlpUrlError::Invalid);
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(OtlpUrl {
            host: host.to_owned(),
            port: port.unwrap_or(DEFAULT_PORT),
            authority: authority.to_string(),
            path: match path {
                "/" => DEFAULT_PATH.to_owned(),
                path => path.to_owned(),
            },
        })
    }
}

impl fmt::Display for OtlpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_the_default_path_and_port() {
        for (text, full, host, port) in [
            (
                "http://127.0.0.1:4318",
                "http://127.0.0.1:4318/v1/metrics",
                "127.0.0.1",
                4318,
            ),
            (
                "http://localhost/",
                "http://localhost/v1/metrics",
                "localhost",
                80,
            ),
            (
                "HTTP://[::1]:4318/otlp?x=1",
                "http://[::1]:4318/otlp?x=1",
                "::1",
                4318,
            ),
        ] {
            let url: OtlpUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), full);
            assert_eq!((&*url.host, url.port), (host, port), "{text}");
        }
    }

    #[test]
    fn rejects_urls_that_cannot_be_used() {
        for (text, expected) in [
            ("", OtlpUrlError::Scheme),
            ("127.0.0.1:4318", OtlpUrlError::Scheme),
            ("grpc://127.0.0.1:4317", OtlpUrlError::Scheme),
            ("https://collector:4318", OtlpUrlError::Https),
            ("http://", OtlpUrlError::Invalid),
            ("http://:4318", OtlpUrlError::Invalid),
            ("http://a:b", OtlpUrlError::Invalid),
            ("http://a:0", OtlpUrlError::Invalid),
            ("http://a:99999", OtlpUrlError::Invalid),
            ("http://a b", OtlpUrlError::Invalid),
            ("http://me:secret@127.0.0.1:4318", OtlpUrlError::Credentials),
        ] {
            assert_eq!(text.parse::<OtlpUrl>(), Err(expected), "{text}");
        }
    }
}
