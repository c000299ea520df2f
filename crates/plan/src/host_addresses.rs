//! `--resolve`: fixed addresses for a host, used instead of resolving its name.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The expected form of the flag, for error messages.
const FORM: &str = "write HOST:ADDR or HOST:PORT:ADDR, such as app.local:127.0.0.1, app.local:8080:[::1] or \
                    app.local:10.0.0.1,10.0.0.2";

/// Addresses for a host, on one port or on all ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostAddresses {
    host: String,
    port: Option<u16>,
    addresses: Vec<IpAddr>,
    /// The text as given.
    text: String,
}

impl FromStr for HostAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |why: String| format!("{why}; {FORM}");
        let (host, rest) = text
            .split_once(':')
            .filter(|(host, _)| !host.is_empty())
            .ok_or_else(|| invalid("the host is missing".to_owned()))?;
        let addresses =
            |list: &str| -> Result<Vec<IpAddr>, String> { list.split(',').map(address).collect() };
        // Without brackets, the start of an IPv6 address could be read as a port.
        let (port, addresses) = match rest.split_once(':') {
            Some((port, list)) if !port.starts_with('[') && !port.contains(['.', ',']) => {
                let number = match port.parse() {
                    Ok(number) if number > 0 => number,
                    _ => {
                        let hint = "an IPv6 address needs brackets";
                        return Err(invalid(format!(
                            "\"{port}\" is not a port from 1 to 65535 ({hint})"
                        )));
                    }
                };
                (Some(number), addresses(list).map_err(invalid)?)
            }
            _ => (None, addresses(rest).map_err(invalid)?),
        };
        Ok(HostAddresses {
            host: host.to_owned(),
            port,
            addresses,
            text: text.to_owned(),
        })
    }
}

impl HostAddresses {
    /// Formats the addresses in the syntax of the flag.
    fn list(&self) -> String {
        let each: Vec<String> = self
            .addresses
            .iter()
            .map(|address| match address {
                IpAddr::V4(v4) => v4.to_string(),
                IpAddr::V6(v6) => format!("[{v6}]"),
            })
            .collect();
        each.join(",")
    }
}

fn address(text: &str) -> Result<IpAddr, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let parsed = match bare {
        Some(v6) => v6.parse().map(IpAddr::V6).ok(),
        None => text.parse().map(IpAddr::V4).ok(),
    };
    parsed.ok_or_else(|| format!("\"{text}\" is not an IP address (write IPv6 in brackets)"))
}

/// Returns the addresses given for a host and port, in order, or `None` if no addresses were given.
///
/// # Errors
/// The user gave addresses for a host or port that differs from the URL's.
pub(crate) fn given(
    all: &[HostAddresses],
    host: &str,
    port: u16,
) -> Result<Option<Vec<SocketAddr>>, String> {
    let mut addresses = Vec::new();
    for one in all {
        let same_host = one.host.eq_ignore_ascii_case(host);
        if !same_host || one.port.is_some_and(|given| given != port) {
            // The flag does not support an IPv6 address as the host.
            let fix = if host.contains(':') {
                "remove the flag".to_owned()
            } else {
                format!("write {host}:{}, or remove the flag", one.list())
            };
            return Err(format!(
                "--resolve {} does not match the URL's {host}:{port}; {fix}",
                one.text
            ));
        }
        addresses.extend(one.addresses.iter().map(|ip| SocketAddr::new(*ip, port)));
    }
    Ok((!all.is_empty()).then_some(addresses))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[&str], host: &str, port: u16) -> Result<String, String> {
        let all: Result<Vec<HostAddresses>, String> = all.iter().map(|text| text.parse()).collect();
        given(&all?, host, port).map(|addresses| match addresses {
            None => "none".to_owned(),
            Some(addresses) => addresses
                .iter()
                .map(SocketAddr::to_string)
                .collect::<Vec<_>>()
                .join(" "),
        })
    }

    #[test]
    fn parses_ports_and_lists() {
        for (all, expected) in [
            (&["a:127.0.0.1"][..], "127.0.0.1:80"),
            (&["A:80:127.0.0.1"], "127.0.0.1:80"),
            (&["a:[::1]"], "[::1]:80"),
            (&["a:80:[1::2]"], "[1::2]:80"),
            (&["a:[::1],127.0.0.1"], "[::1]:80 127.0.0.1:80"),
            (&["a:127.0.0.1,[::1]"], "127.0.0.1:80 [::1]:80"),
            (&["a:10.0.0.1", "a:80:10.0.0.2"], "10.0.0.1:80 10.0.0.2:80"),
            (&[], "none"),
        ] {
            assert_eq!(of(all, "a", 80).as_deref(), Ok(expected), "{all:?}");
        }
    }

    #[test]
    fn refuses_invalid_text() {
        for (text, word) in [
            ("a", "host is missing"),
            (":127.0.0.1", "host is missing"),
            ("a:", "\"\""),
            ("a:b", "\"b\""),
            ("a:80:", "\"\""),
            ("a:80:b", "\"b\""),
            ("a:0:127.0.0.1", "\"0\" is not a port"),
            ("a:65536:127.0.0.1", "\"65536\" is not a port"),
            ("a:::1", "brackets"),
            ("a:fe80::1", "brackets"),
            ("a:80:1::2", "brackets"),
            ("a:[127.0.0.1]", "[127.0.0.1]"),
            ("a:127.0.0.1,", "\"\""),
            ("a:127.0.0.1:80", "HOST:PORT:ADDR"),
        ] {
            let message = text.parse::<HostAddresses>().unwrap_err();
            assert!(
                message.contains(word) && message.contains(FORM),
                "{text}: {message}"
            );
        }
    }

    #[test]
    fn refuses_another_host_or_port() {
        for (text, fix) in [
            ("b:127.0.0.1", "write a:127.0.0.1,"),
            ("a:81:127.0.0.1", "write a:127.0.0.1,"),
            ("b:[::1],10.0.0.1", "write a:[::1],10.0.0.1,"),
        ] {
            let message = of(&[text], "a", 80).unwrap_err();
            for word in [text, "a:80", fix] {
                assert!(message.contains(word), "{word}: {message}");
            }
        }
        let message = of(&["b:[::2]"], "::1", 80).unwrap_err();
        assert!(message.ends_with("; remove the flag"), "{message}");
    }
}
