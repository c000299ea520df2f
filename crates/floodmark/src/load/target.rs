//! From a URL to the addresses that connections go to.

use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::SocketAddr as UnixAddr;
use std::path::Path;
use std::time::Instant;

use floodmark_record::plan::{Address, Target};
use http::Uri;

use super::args::LoadArgs;
use super::resolve;
use crate::exit::Ending;

/// Where a URL leads.
pub struct Resolved {
    /// What is requested, and at which addresses.
    pub target: Target,
    /// The host that an HTTPS server has to prove; none for plain HTTP.
    pub https_host: Option<String>,
}

/// Reads a URL and finds the addresses of its host, once, with the time that took.
pub fn resolve(url: &str, args: &LoadArgs) -> Result<Resolved, Ending> {
    let parts = Parts::parse(url)?;
    let target = |address, further, resolve_us| Resolved {
        target: Target {
            url: url.to_owned(),
            address,
            further_addresses: further,
            resolve_us,
            authority: parts.authority.clone(),
            path: parts.path.clone(),
        },
        https_host: parts.secure.then(|| parts.host.clone()),
    };
    if let Some(path) = &args.unix_socket {
        return Ok(target(unix_socket(path)?, Vec::new(), None));
    }
    let begin = Instant::now();
    let (mut addresses, resolve_us) = if let Some(given) =
        resolve::given(&args.resolve, &parts.host, parts.port).map_err(Ending::usage)?
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
    keep_first_of_each(&mut addresses);
    if addresses.is_empty() {
        return Err(unknown_host(&parts.host, "it has no address"));
    }
    let address = addresses.remove(0).into();
    Ok(target(address, addresses, resolve_us))
}

/// A resolver may name an address once for each of its lines.
fn keep_first_of_each(addresses: &mut Vec<SocketAddr>) {
    let mut kept: Vec<SocketAddr> = Vec::new();
    addresses.retain(|address| {
        let new = !kept.contains(address);
        kept.extend(new.then_some(*address));
        new
    });
}

/// The address of a unix socket, which must be there: a look at the file, no connection.
fn unix_socket(path: &str) -> Result<Address, Ending> {
    let named = |why: String| format!("--unix-socket {path}: {why}");
    // The kernel's own bound, and no byte 0.
    UnixAddr::from_pathname(path).map_err(|error| Ending::usage(named(error.to_string())))?;
    match fs::metadata(path) {
        Ok(meta) if meta.file_type().is_socket() => Ok(Address::Unix(Path::new(path).to_owned())),
        Ok(_) => Err(Ending::usage(named("it is no socket; name one".to_owned()))),
        Err(error) => Err(Ending::server(named(format!(
            "{error}; start the server, or check the path"
        )))),
    }
}

fn unknown_host(host: &str, why: &str) -> Ending {
    let why = why.trim_start_matches("failed to lookup address information: ");
    Ending::server(format!(
        "the host \"{host}\" cannot be resolved ({why}); check its spelling or give its IP address"
    ))
}

struct Parts {
    secure: bool,
    host: String,
    port: u16,
    authority: String,
    path: String,
}

impl Parts {
    fn parse(url: &str) -> Result<Self, Ending> {
        let wrong = |why: &str| {
            Ending::usage(format!(
                "the URL \"{url}\": {why}; write it like http://127.0.0.1:8080/path"
            ))
        };
        let without_fragment = url.split('#').next().unwrap_or(url);
        let uri: Uri = without_fragment
            .parse()
            .map_err(|e: http::uri::InvalidUri| wrong(&e.to_string()))?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => return Err(wrong(&format!("the scheme {other} is not HTTP"))),
            None => return Err(wrong("the scheme is missing")),
        };
        let authority = uri
            .authority()
            .ok_or_else(|| wrong("the host is missing"))?;
        if authority.as_str().contains('@') {
            return Err(wrong(
                "user and password are not supported, send an Authorization header (-H)",
            ));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        let given = authority.as_str().len() > authority.host().len();
        let port = match (authority.port_u16(), given) {
            (Some(0), _) => return Err(wrong("port 0 cannot be connected to")),
            (Some(port), _) => port,
            (None, false) if secure => 443,
            (None, false) => 80,
            (None, true) => return Err(wrong("the port is no number from 1 to 65535")),
        };
        Ok(Parts {
            secure,
            host: host.to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |p| p.as_str()).to_owned(),
        })
    }
}

/// Whether load may go to an address without `--public`: loopback, link-local, private (RFC 1918), unique local (RFC 4193).
pub fn is_near(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<(String, u16, String, String), String> {
        Parts::parse(url)
            .map(|p| (p.host, p.port, p.authority, p.path))
            .map_err(|e| e.message)
    }

    #[test]
    fn urls_as_people_write_them() {
        let ok = |url: &str| parse(url).unwrap();
        assert_eq!(
            ok("http://localhost"),
            ("localhost".into(), 80, "localhost".into(), "/".into())
        );
        assert_eq!(ok("http://127.0.0.1:8080/a?b=c#d").3, "/a?b=c");
        assert_eq!(ok("http://[::1]:81/").0, "::1");
        assert_eq!(ok("http://[::1]:81/").2, "[::1]:81");
        assert_eq!(ok("https://localhost").1, 443);
        let secure = |url| Parts::parse(url).map(|parts| parts.secure).ok();
        assert_eq!(secure("https://[::1]:81/"), Some(true));
        assert_eq!(secure("http://localhost/"), Some(false));
    }

    #[test]
    fn wrong_urls_say_what_is_wrong() {
        for (url, word) in [
            ("localhost:8080", "scheme"),
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
    fn near_addresses() {
        for near in [
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
            assert!(is_near(near.parse().unwrap()), "{near}");
        }
        for far in [
            "8.8.8.8",
            "172.32.0.1",
            "100.64.0.1",
            "0.0.0.0",
            "2001:db8::1",
            "::ffff:8.8.8.8",
            "224.0.0.1",
        ] {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
    }
}
