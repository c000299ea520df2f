//! Resolves a URL to the addresses to connect to.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;
use std::time::Instant;

use floodmark_record::plan::{Address, Target};
use http::Uri;

use crate::host_addresses;
use crate::spec::PlanSpec;

/// Error from resolving a URL. The one-line message has the form `place: problem; fix`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The URL or a setting is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The server's host name does not resolve, or the server's unix socket does not exist.
    #[error("{0}")]
    Unreachable(String),
}

/// A URL and the addresses of its host.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The URL and its addresses.
    pub target: Target,
    /// The host name that the server's certificate must match; `None` for plain HTTP.
    pub https_host: Option<String>,
}

/// Parses a URL and resolves its host once. A URL without a scheme is plain HTTP.
///
/// # Errors
/// The URL or a setting is invalid, or the host does not resolve.
pub fn resolve(url: &str, spec: &PlanSpec) -> Result<Resolved, ResolveError> {
    let url = if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    };
    let parts = UrlParts::parse(&url)?;
    let target = |address, further, resolve_us| Resolved {
        target: Target {
            url: url.clone(),
            address,
            further_addresses: further,
            resolve_us,
            authority: parts.authority.clone(),
            path: parts.path.clone(),
        },
        https_host: parts.secure.then(|| parts.host.clone()),
    };
    if let Some(path) = &spec.unix_socket {
        return Ok(target(unix_socket(path)?, Vec::new(), None));
    }
    let begin = Instant::now();
    let (mut addresses, resolve_us) = if let Some(given) =
        host_addresses::given(&spec.resolve, &parts.host, parts.port)
            .map_err(ResolveError::Invalid)?
    {
        (given, None)
    } else if let Ok(ip) = parts.host.parse::<IpAddr>() {
        (vec![SocketAddr::new(ip, parts.port)], None)
    } else {
        let found = (parts.host.as_str(), parts.port)
            .to_socket_addrs()
            .map_err(|error| unknown_host(&parts.host, &error.to_string()))?;
        (found.collect(), Some(begin.elapsed().as_micros() as u64))
    };
    // Some resolvers return duplicates.
    let mut kept = HashSet::new();
    addresses.retain(|address| kept.insert(*address));
    if addresses.is_empty() {
        return Err(unknown_host(&parts.host, "it has no address"));
    }
    let address = addresses.remove(0).into();
    Ok(target(address, addresses, resolve_us))
}

/// Returns the address of an existing unix socket.
fn unix_socket(path: &str) -> Result<Address, ResolveError> {
    let named = |why: String| format!("--unix-socket {path}: {why}");
    // `from_pathname` checks the kernel's maximum length and rejects NUL bytes.
    UnixAddr::from_pathname(path)
        .map_err(|error| ResolveError::Invalid(named(error.to_string())))?;
    match fs::metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => Ok(Address::Unix(Path::new(path).to_owned())),
        Ok(_) => Err(ResolveError::Invalid(named(
            "not a socket; use the path of the server's socket".to_owned(),
        ))),
        Err(error) => Err(ResolveError::Unreachable(named(format!(
            "{error}; start the server, or check the path"
        )))),
    }
}

fn unknown_host(host: &str, why: &str) -> ResolveError {
    let why = why.trim_start_matches("failed to lookup address information: ");
    ResolveError::Unreachable(format!(
        "the host \"{host}\" cannot be resolved ({why}); check its spelling or give its IP address"
    ))
}

struct UrlParts {
    secure: bool,
    host: String,
    port: u16,
    authority: String,
    path: String,
}

impl UrlParts {
    fn parse(url: &str) -> Result<Self, ResolveError> {
        let invalid = |why: &str| {
            ResolveError::Invalid(format!(
                "the URL \"{url}\": {why}; use a URL such as http://127.0.0.1:8080/path"
            ))
        };
        let without_fragment = url.split('#').next().unwrap_or(url);
        let uri: Uri = without_fragment
            .parse()
            .map_err(|e: http::uri::InvalidUri| invalid(&e.to_string()))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(invalid(&format!("unsupported scheme {other}"))),
            None => return Err(invalid("the scheme is missing")),
        };
        let authority = uri
            .authority()
            .ok_or_else(|| invalid("the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(invalid(
                "a user and password are not supported (use -H to send an Authorization header)",
            ));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        if host.is_empty() {
            return Err(invalid("the host is missing"));
        }
        let given = authority.as_str().len() > authority.host().len();
        let port = match (authority.port_u16(), given) {
            (Some(0), _) => return Err(invalid("port 0 is not valid")),
            (Some(port), _) => port,
            (None, false) if secure => 443,
            (None, false) => 80,
            (None, true) => return Err(invalid("the port is not a number from 1 to 65535")),
        };
        Ok(UrlParts {
            secure,
            host: host.to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |p| p.as_str()).to_owned(),
        })
    }
}

/// Returns whether an address may be loaded without `--public`. Such addresses are loopback,
/// link-local, private (RFC 1918) or unique local (RFC 4193).
#[must_use]
pub fn is_private(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<(String, u16, String, String), String> {
        UrlParts::parse(url)
            .map(|p| (p.host, p.port, p.authority, p.path))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn parses_urls() {
        let ok = |url: &str| parse(url).unwrap();
        assert_eq!(
            ok("http://localhost"),
            ("localhost".into(), 80, "localhost".into(), "/".into())
        );
        assert_eq!(ok("http://127.0.0.1:8080/a?b=c#d").3, "/a?b=c");
        assert_eq!(ok("http://[::1]:81/").0, "::1");
        assert_eq!(ok("http://[::1]:81/").2, "[::1]:81");
        assert_eq!(ok("https://localhost").1, 443);
        let secure = |url| UrlParts::parse(url).map(|parts| parts.secure).ok();
        assert_eq!(secure("https://[::1]:81/"), Some(true));
        assert_eq!(secure("http://localhost/"), Some(false));
    }

    #[test]
    fn refuses_invalid_urls() {
        for (url, word) in [
            ("localhost:8080", "http://"),
            ("127.0.0.1:8080/", "http://"),
            ("ftp://x/", "ftp"),
            ("http://", "http://"),
            ("http:///x", "http://"),
            ("http://x:0/", "port"),
            ("http://x:99999/", "port"),
            ("http://x:y/", "http://"),
            ("http://a b/", "http://"),
            ("http://u:p@x/", "Authorization"),
            ("", "http://"),
        ] {
            let text = parse(url).unwrap_err();
            assert!(text.contains(word), "{url}: {text}");
        }
    }

    #[test]
    fn distinguishes_private_from_public_addresses() {
        for private in [
            "127.0.0.1",
            "127.200.0.1",
            "::1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.0.1",
            "169.254.1.1",
            "fd00::1",
            "fe80::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for public in [
            "8.8.8.8",
            "172.32.0.1",
            "100.64.0.1",
            "0.0.0.0",
            "2001:db8::1",
            "::ffff:8.8.8.8",
            "224.0.0.1",
        ] {
            assert!(!is_private(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn assumes_plain_http_without_a_scheme() {
        let resolved = resolve("127.0.0.1:8080/up", &PlanSpec::default()).unwrap();
        assert_eq!(resolved.target.url, "http://127.0.0.1:8080/up");
        assert!(resolved.https_host.is_none());
    }
}
