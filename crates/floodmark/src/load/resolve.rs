//! `--resolve`: addresses given in place of what the resolver would say.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// How it is written.
const FORM: &str = "write HOST:ADDR or HOST:PORT:ADDR, such as app.local:127.0.0.1, app.local:8080:[::1] or \
                    app.local:10.0.0.1,10.0.0.2";

/// Addresses of a host, for one of its ports or for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolve {
    host: String,
    port: Option<u16>,
    addresses: Vec<IpAddr>,
    /// As it was given.
    text: String,
}

impl FromStr for Resolve {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = |why: String| format!("{why}; {FORM}");
        let (host, rest) = text
            .split_once(':')
            .filter(|(host, _)| !host.is_empty())
            .ok_or_else(|| wrong("the host is missing".to_owned()))?;
        let addresses =
            |list: &str| -> Result<Vec<IpAddr>, String> { list.split(',').map(address).collect() };
        // An IPv6 address without brackets could as well begin with a port.
        let (port, addresses) = match rest.split_once(':') {
            Some((port, list)) if !port.starts_with('[') && !port.contains(['.', ',']) => {
                let number = match port.parse() {
                    Ok(number) if number > 0 => number,
                    _ => {
                        let hint = "an IPv6 address needs brackets";
                        return Err(wrong(format!(
                            "\"{port}\" is no port from 1 to 65535 ({hint})"
                        )));
                    }
                };
                (Some(number), addresses(list).map_err(wrong)?)
            }
            _ => (None, addresses(rest).map_err(wrong)?),
        };
        Ok(Resolve {
            host: host.to_owned(),
            port,
            addresses,
            text: text.to_owned(),
        })
    }
}

impl Resolve {
    /// The addresses as they are written.
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
    parsed.ok_or_else(|| format!("\"{text}\" is no IP address (IPv6 in brackets)"))
}

/// The addresses given for a host and port, in order; none where none are. Each that is given must be of use: what is for another
/// host or port is a slip of the pen, since there is only this one.
pub fn given(all: &[Resolve], host: &str, port: u16) -> Result<Option<Vec<SocketAddr>>, String> {
    let mut addresses = Vec::new();
    for one in all {
        let same_host = one.host.eq_ignore_ascii_case(host);
        if !same_host || one.port.is_some_and(|given| given != port) {
            // An IPv6 address in the URL is no host that could be written here.
            let mend = match host.contains(':') {
                true => "leave it out".to_owned(),
                false => format!("write {host}:{}, or leave it out", one.list()),
            };
            return Err(format!(
                "--resolve {} is not for {host}:{port}, which the URL names; {mend}",
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
        let all: Result<Vec<Resolve>, String> = all.iter().map(|text| text.parse()).collect();
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
    fn with_and_without_port_and_for_several_addresses() {
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
    fn what_is_wrong_is_named() {
        for (text, word) in [
            ("a", "host is missing"),
            (":127.0.0.1", "host is missing"),
            ("a:", "\"\""),
            ("a:b", "\"b\""),
            ("a:80:", "\"\""),
            ("a:80:b", "\"b\""),
            ("a:0:127.0.0.1", "\"0\" is no port"),
            ("a:65536:127.0.0.1", "\"65536\" is no port"),
            ("a:::1", "brackets"),
            ("a:fe80::1", "brackets"),
            ("a:80:1::2", "brackets"),
            ("a:[127.0.0.1]", "[127.0.0.1]"),
            ("a:127.0.0.1,", "\"\""),
            ("a:127.0.0.1:80", "HOST:PORT:ADDR"),
        ] {
            let said = text.parse::<Resolve>().unwrap_err();
            assert!(said.contains(word) && said.contains(FORM), "{text}: {said}");
        }
    }

    #[test]
    fn what_is_for_another_host_or_port_is_no_use() {
        for (text, mend) in [
            ("b:127.0.0.1", "write a:127.0.0.1,"),
            ("a:81:127.0.0.1", "write a:127.0.0.1,"),
            ("b:[::1],10.0.0.1", "write a:[::1],10.0.0.1,"),
        ] {
            let said = of(&[text], "a", 80).unwrap_err();
            for word in [text, "a:80", mend] {
                assert!(said.contains(word), "{word}: {said}");
            }
        }
        let said = of(&["b:[::2]"], "::1", 80).unwrap_err();
        assert!(said.ends_with("; leave it out"), "{said}");
    }
}
