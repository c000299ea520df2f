//! The address of a journal in Cassandra.

use std::fmt;
use std::str::FromStr;

/// Port of Cassandra's native protocol.
const DEFAULT_PORT: u16 = 9042;
const DEFAULT_KEYSPACE: &str = "floodmark";
/// Maximum length of a keyspace name in Cassandra.
const MAX_KEYSPACE: usize = 48;

const SYNTAX: &str =
    "write HOST, HOST:PORT or HOST:PORT/KEYSPACE, with an IPv6 address in brackets";

/// Address of a Cassandra node, and a keyspace: `HOST[:PORT][/KEYSPACE]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CassandraAddress {
    /// Name or IP address, without brackets.
    pub(super) host: String,
    /// Port. Default: 9042.
    pub(super) port: u16,
    /// Keyspace. Default: `floodmark`.
    pub(super) keyspace: String,
}

impl FromStr for CassandraAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (node, keyspace) = text.split_once('/').unwrap_or((text, DEFAULT_KEYSPACE));
        let (host, port) = if let Some(rest) = node.strip_prefix('[') {
            let (host, port) = rest.split_once(']').ok_or(SYNTAX)?;
            if host.parse::<std::net::Ipv6Addr>().is_err() {
                return Err(SYNTAX);
            }
            let port = match port {
                "" => None,
                port => Some(port.strip_prefix(':').ok_or(SYNTAX)?),
            };
            (host, port)
        } else {
            match node.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (node, None),
            }
        };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(SYNTAX);
        }
        let port = port.map_or(Ok(DEFAULT_PORT), |port| match port.parse() {
            Ok(0) | Err(_) => Err("the port is not a number from 1 to 65535"),
            Ok(port) => Ok(port),
        })?;
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let starts_well = keyspace.starts_with(|first: char| first.is_ascii_lowercase());
        if !starts_well || keyspace.len() > MAX_KEYSPACE || !keyspace.bytes().all(is_name) {
            return Err(
                "a keyspace name starts with a letter and has at most 48 lowercase letters, digits and _",
            );
        }
        Ok(CassandraAddress {
            host: host.to_owned(),
            port,
            keyspace: keyspace.to_owned(),
        })
    }
}

impl fmt::Display for CassandraAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CassandraAddress {
            host,
            port,
            keyspace,
        } = self;
        if host.contains(':') {
            write!(f, "cassandra:[{host}]:{port}/{keyspace}")
        } else {
            write!(f, "cassandra:{host}:{port}/{keyspace}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_host_port_and_keyspace() {
        for (text, shown) in [
            ("127.0.0.1", "127.0.0.1:9042/floodmark"),
            ("localhost:19042", "localhost:19042/floodmark"),
            ("[::1]", "[::1]:9042/floodmark"),
            ("[::1]:1/scores_2", "[::1]:1/scores_2"),
            ("node-1.example/a", "node-1.example:9042/a"),
        ] {
            let address: CassandraAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), format!("cassandra:{shown}"));
        }
    }

    #[test]
    fn refuses_other_text() {
        let long = format!("h/{}", "k".repeat(49));
        for text in [
            "",
            ":9042",
            "/k",
            "h:",
            "h:0",
            "h:65536",
            "h:x",
            "::1",
            "[::1",
            "[h]:1",
            "[::1]9042",
            "h/",
            "h/K",
            "h/1k",
            "h/k;",
            "h/k/l",
            "a b",
            "http://h",
            long.as_str(),
        ] {
            assert!(text.parse::<CassandraAddress>().is_err(), "{text}");
        }
    }
}
