//! Resolves a URL to the addresses to connect to.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;
use std::time::Instant;

use floodmark_record::credentials::Credentials;
use floodmark_record::plan::{Address, Target};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

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
    let parts = UrlParts::parse(url)?;
    let begin = Instant::now();
    let ((address, further_addresses), is_resolved) = match &spec.unix_socket {
        Some(path) => ((unix_socket(path)?, Vec::new()), false),
        None => parts.addresses(spec)?,
    };
    Ok(Resolved {
        target: Target {
            url: parts.url,
            credentials: parts.credentials,
            address,
            further_addresses,
            resolve_us: is_resolved.then(|| begin.elapsed().as_micros() as u64),
            authority: parts.authority,
            path: parts.path,
        },
        https_host: parts.secure.then_some(parts.host),
    })
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

/// Characters that are percent-encoded in a path or query, besides all non-ASCII characters: the
/// path percent-encode set of the URL standard.
const ENCODED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// The parts of a URL.
///
/// The path is kept as given, except that characters that are not valid in a request are
/// percent-encoded. The `url` crate would also resolve `..` and replace backslashes.
struct UrlParts {
    secure: bool,
    /// The URL without credentials and fragment.
    url: String,
    credentials: Option<Credentials>,
    /// Host name or IP address, without brackets and zone.
    host: String,
    /// Zone of an IPv6 address: the network interface (RFC 4007).
    zone: Option<String>,
    port: u16,
    /// Value of the `Host` header, which never contains a zone (RFC 6874).
    authority: String,
    path: String,
}

impl UrlParts {
    fn parse(given: &str) -> Result<Self, ResolveError> {
        let given = given.trim();
        Self::read(given).map_err(|why| {
            ResolveError::Invalid(format!(
                "the URL \"{}\": {why}; use a URL such as http://127.0.0.1:8080/path",
                redacted(given, usize::MAX)
            ))
        })
    }

    fn read(given: &str) -> Result<Self, String> {
        if let Some(control) = given.chars().find(|c| c.is_control()) {
            return Err(format!("it contains the control character {control:?}"));
        }
        let (scheme, rest) = split_scheme(given);
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            other => return Err(format!("unsupported scheme {other}")),
        };
        let (authority, path) = rest.split_at(authority_length(rest));
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, _)) if user.contains(' ') => {
                return Err("the user or password contains a space; write %20 instead".to_owned());
            }
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, zone, port) = match place.strip_prefix('[') {
            Some(bracketed) => ipv6(bracketed)?,
            None => named(place)?,
        };
        let port_number = match port {
            None if secure => 443,
            None => 80,
            Some("0") => return Err("port 0 is not valid".to_owned()),
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|_| digits.bytes().all(|b| b.is_ascii_digit()))
                .ok_or("the port is not a number from 1 to 65535")?,
        };
        let path = path.split('#').next().unwrap_or_default();
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = format!("{slash}{}", utf8_percent_encode(path, ENCODED));
        let is_ipv6 = place.starts_with('[');
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        let authority = |zone: &str| {
            if is_ipv6 {
                format!("[{host}{zone}]{port}")
            } else {
                format!("{host}{port}")
            }
        };
        let with_zone = authority(&zone.map_or_else(String::new, |zone| format!("%25{zone}")));
        Ok(UrlParts {
            secure,
            url: format!("{}://{with_zone}{path}", scheme.to_ascii_lowercase()),
            credentials: user.map(credentials),
            host: host.to_owned(),
            zone: zone.map(str::to_owned),
            port: port_number,
            authority: authority(""),
            path,
        })
    }

    /// Returns the first and the further addresses of the host, and whether they were resolved.
    fn addresses(
        &self,
        spec: &PlanSpec,
    ) -> Result<((Address, Vec<SocketAddr>), bool), ResolveError> {
        let given = host_addresses::given(&spec.resolve, &self.host, self.port)
            .map_err(ResolveError::Invalid)?;
        let ip = self.host.parse().ok().filter(|_| self.zone.is_none());
        let (addresses, is_resolved) = match (given, ip) {
            (Some(given), _) => (given, false),
            (None, Some(ip)) => (vec![SocketAddr::new(ip, self.port)], false),
            (None, None) => {
                let zone = self.zone.iter().flat_map(|zone| ["%", zone]);
                let host: String = std::iter::once(&*self.host).chain(zone).collect();
                let found = (&*host, self.port)
                    .to_socket_addrs()
                    .map_err(|error| unknown_host(&host, &error.to_string()))?;
                (found.collect(), true)
            }
        };
        // Some resolvers return duplicates.
        let mut kept = HashSet::new();
        let addresses = addresses.into_iter().map(reachable);
        let mut addresses = addresses.filter(|address| kept.insert(*address));
        let Some(first) = addresses.next() else {
            return Err(unknown_host(&self.host, "it has no address"));
        };
        Ok(((first.into(), addresses.collect()), is_resolved))
    }
}

/// Splits a URL into its scheme and the rest. The default scheme is `http`.
fn split_scheme(url: &str) -> (&str, &str) {
    let is_plain = |scheme: &str| {
        scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    url.split_once("://")
        .filter(|(scheme, _)| is_plain(scheme))
        .unwrap_or(("http", url))
}

/// Returns the length of the authority at the start of `rest`, the part of a URL after the scheme.
fn authority_length(rest: &str) -> usize {
    rest.find(['/', '?', '#']).unwrap_or(rest.len())
}

/// A host, its zone and the port, as given.
type Place<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

/// Parses an IPv6 address, an optional zone (`%25eth0` or `%eth0`) and an optional port, after the
/// opening bracket.
fn ipv6(bracketed: &str) -> Result<Place<'_>, String> {
    let (inside, port) = bracketed
        .split_once(']')
        .ok_or("the closing bracket of the IPv6 address is missing")?;
    let zoned = inside.split_once("%25").or_else(|| inside.split_once('%'));
    let (host, zone) = zoned.map_or((inside, None), |(host, zone)| (host, Some(zone)));
    if host.parse::<Ipv6Addr>().is_err() {
        return Err(format!("\"{host}\" is not an IPv6 address"));
    }
    match port.strip_prefix(':') {
        None if !port.is_empty() => Err(format!("\"{port}\" after the host is not a port")),
        port => Ok((host, zone, port)),
    }
}

/// Parses a host name or IPv4 address and an optional port.
fn named(place: &str) -> Result<Place<'_>, String> {
    let (host, port) = match place.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err("an IPv6 address needs brackets, such as [::1]:8080".to_owned());
        }
        Some((host, port)) => (host, Some(port)),
        None => (place, None),
    };
    let is_valid = |c: &char| c.is_ascii_alphanumeric() || "-._~".contains(*c);
    match host.chars().find(|c| !is_valid(c)) {
        _ if host.is_empty() => Err("the host is missing".to_owned()),
        Some(c) if c.is_ascii() => Err(format!("the host contains {c:?}")),
        Some(c) => Err(format!(
            "the host contains {c:?}, which DNS does not allow (write the name in its ASCII form, xn--…)"
        )),
        None => Ok((host, None, port)),
    }
}

/// Returns the credentials in the part of a URL before the `@`.
fn credentials(user: &str) -> Credentials {
    let (user, password) = user.split_once(':').unwrap_or((user, ""));
    let decoded = |text| percent_decode_str(text).collect::<Vec<u8>>();
    Credentials::new(&decoded(user), &decoded(password))
}

/// Replaces the credentials in a URL with an ellipsis. They end at the last `@` among the first
/// `length` bytes after the scheme.
fn redacted(url: &str, length: usize) -> String {
    let (_, rest) = split_scheme(url);
    match rest[..length.min(rest.len())].rfind('@') {
        Some(at) => format!("{}…{}", &url[..url.len() - rest.len()], &rest[at..]),
        None => url.to_owned(),
    }
}

/// Returns a command-line argument for the record, without the credentials if it is a URL.
#[must_use]
pub fn without_credentials(argument: &str) -> String {
    let has_credentials = |parts: UrlParts| parts.credentials.is_some();
    // Without a colon, the argument may be an e-mail address.
    let may_be_url = argument.contains(':') && !argument.starts_with('-');
    if may_be_url && UrlParts::parse(argument).is_ok_and(has_credentials) {
        redacted(argument, authority_length(split_scheme(argument).1))
    } else {
        argument.to_owned()
    }
}

/// Replaces an unspecified address, which servers often print as their own, with the loopback
/// address. Linux does the same when it connects.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        _ => return address,
    };
    SocketAddr::new(ip, address.port())
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
    use std::net::SocketAddrV6;

    fn parsed(url: &str) -> UrlParts {
        UrlParts::parse(url).unwrap()
    }

    fn error(url: &str) -> String {
        let parts = UrlParts::parse(url);
        parts
            .err()
            .map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn parses_urls() {
        for (url, host, port, authority, path) in [
            ("http://localhost", "localhost", 80, "localhost", "/"),
            ("HTTP://a:8080/a?b=c#d", "a", 8080, "a:8080", "/a?b=c"),
            ("http://a:80/../b//", "a", 80, "a:80", "/../b//"),
            ("http://[::1]:81/", "::1", 81, "[::1]:81", "/"),
            ("http://[::1]", "::1", 80, "[::1]", "/"),
            ("https://localhost", "localhost", 443, "localhost", "/"),
            // The scheme is optional, and the query may contain a URL.
            (
                "a:8080/x?to=http://y/",
                "a",
                8080,
                "a:8080",
                "/x?to=http://y/",
            ),
            ("a?to=http://y/", "a", 80, "a", "/?to=http://y/"),
            ("http://a:8080?x=1", "a", 8080, "a:8080", "/?x=1"),
            ("http://a#b/c", "a", 80, "a", "/"),
            (" http://a/ ", "a", 80, "a", "/"),
            // Characters that are not valid in a request are encoded.
            (
                "http://a/a b/ü?q=<\"{x}\"",
                "a",
                80,
                "a",
                "/a%20b/%C3%BC?q=%3C%22%7Bx%7D%22",
            ),
            ("http://a/%7E%zz?a[b]=c|d", "a", 80, "a", "/%7E%zz?a[b]=c|d"),
        ] {
            let parts = parsed(url);
            assert_eq!(
                (&*parts.host, parts.port, &*parts.authority, &*parts.path),
                (host, port, authority, path),
                "{url}"
            );
            let scheme = if parts.secure { "https" } else { "http" };
            assert_eq!(parts.url, format!("{scheme}://{authority}{path}"));
            assert_eq!(parsed(&parts.url).path, path);
        }
        assert!(parsed("https://[::1]:81/").secure);
    }

    #[test]
    fn a_zone_is_not_part_of_the_host_header() {
        for url in ["http://[fe80::1%25eth0]:81/a", "http://[fe80::1%eth0]:81/a"] {
            let parts = parsed(url);
            assert_eq!(parts.authority, "[fe80::1]:81");
            assert_eq!(parts.url, "http://[fe80::1%25eth0]:81/a");
            assert_eq!(parts.zone.as_deref(), Some("eth0"));
        }
        // On Linux, `lo` is interface 1.
        let resolved = resolve("http://[::1%251]:81/", &PlanSpec::default()).unwrap();
        let address = SocketAddrV6::new(Ipv6Addr::LOCALHOST, 81, 0, 1);
        assert_eq!(resolved.target.address, SocketAddr::V6(address).into());
    }

    #[test]
    fn takes_credentials_out_of_a_url() {
        // Command: printf me:p@ss:w | base64
        for (url, authorization) in [
            ("http://me:p%40ss:w@a:81/b@c", "Basic bWU6cEBzczp3"),
            ("me:p%40ss:w@a:81/b@c", "Basic bWU6cEBzczp3"),
            ("http://me:p@ss:w@a:81/b@c", "Basic bWU6cEBzczp3"),
            ("http://me@a:81/b@c", "Basic bWU6"),
        ] {
            let parts = parsed(url);
            assert_eq!(parts.url, "http://a:81/b@c");
            let credentials = parts.credentials.unwrap();
            assert_eq!(credentials.authorization(), Some(authorization), "{url}");
            let shown = without_credentials(url);
            assert!(shown.ends_with("…@a:81/b@c"), "{shown}");
        }
        assert!(parsed("http://a:81/b@c").credentials.is_none());
        for argument in [
            "me@example.org",
            "{\"to\":\"me@a\"}",
            "From: me@a",
            "--agents=ssh:me@a",
            "http://a/b@c",
        ] {
            assert_eq!(without_credentials(argument), argument);
        }
        // An unencoded `/` in a password.
        for url in ["http://me:s3cret@x:y/", "http://me:s3/cret@x:y/"] {
            let message = error(url);
            assert!(message.contains("\"http://…@x:y/\""), "{message}");
        }
    }

    #[test]
    fn refuses_invalid_urls() {
        for (url, word) in [
            ("ftp://x/", "unsupported scheme ftp"),
            ("http://", "the host is missing"),
            ("http:///x", "the host is missing"),
            ("http://:80/", "the host is missing"),
            ("", "the host is missing"),
            ("http://x:0/", "port 0"),
            ("http://x:99999/", "the port is not a number"),
            ("http://x:y/", "the port is not a number"),
            ("http://x:+80/", "the port is not a number"),
            ("http://x:/", "the port is not a number"),
            ("http://a b/", "the host contains ' '"),
            ("http://$HOST/", "the host contains '$'"),
            ("http://bücher.example/", "the host contains 'ü'"),
            ("http://::1/", "brackets"),
            ("http://[::1/", "closing bracket"),
            ("http://[x]/", "\"x\" is not an IPv6 address"),
            ("http://[::1]81/", "\"81\" after the host"),
            ("http://x/a\nb", "control character '\\n'"),
        ] {
            let text = error(url);
            assert!(text.contains(word), "{url}: {text}");
            assert!(
                text.contains("such as http://127.0.0.1:8080/path"),
                "{text}"
            );
        }
    }

    #[test]
    fn connects_to_loopback_instead_of_the_unspecified_address() {
        for (url, address) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("http://[::]:8080/", "[::1]:8080"),
        ] {
            let target = resolve(url, &PlanSpec::default()).unwrap().target;
            assert_eq!(target.address.to_string(), address);
            assert!(
                target
                    .ip_addresses()
                    .all(|address| is_private(address.ip()))
            );
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
