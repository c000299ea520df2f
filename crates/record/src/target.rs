//! Target of a run: a URL and its addresses.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of addresses to print. A host name may have dozens of addresses.
const SHOWN: usize = 4;

/// An address to connect to, such as `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/app.sock`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// TCP.
    Ip(SocketAddr),
    /// Path of a unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Returns the IP address and port; `None` for a unix socket.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Address::Unix(path.into())),
            _ => text.parse().map(Address::Ip).map_err(|_| {
                format!(
                    "\"{text}\" is not an address; write 127.0.0.1:8080, [::1]:8080 or unix:/path"
                )
            }),
        }
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.to_string()
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Address::Ip(address)
    }
}

/// Target of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// URL as given.
    pub url: String,
    /// First address, as `IP:PORT` or `unix:PATH`.
    /// The host name is resolved once, before the run.
    #[schemars(with = "String")]
    pub address: Address,
    /// Further addresses of the host name.
    /// Connections use all addresses that accept connections, in turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub further_addresses: Vec<SocketAddr>,
    /// Time to resolve the host name in microseconds; null if no name was resolved.
    pub resolve_us: Option<u64>,
    /// Host and port, as in the `Host` header.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl Target {
    /// Returns all addresses, at least one.
    pub fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        let further = self.further_addresses.iter().copied().map(Address::Ip);
        std::iter::once(self.address.clone()).chain(further)
    }

    /// Returns all TCP addresses.
    pub fn ip_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.addresses().filter_map(|address| address.ip())
    }

    /// Formats the addresses, such as `[::1]:80, 127.0.0.1:80`.
    #[must_use]
    pub fn show_addresses(&self) -> String {
        let shown: Vec<String> = self.addresses().take(SHOWN).map(String::from).collect();
        let more = (1 + self.further_addresses.len()).saturating_sub(SHOWN);
        match more {
            0 => shown.join(", "),
            n => format!("{} and {n} more", shown.join(", ")),
        }
    }
}

impl From<SocketAddr> for Target {
    /// Returns a target at this address, with the path `/`.
    fn from(address: SocketAddr) -> Self {
        Target {
            url: format!("http://{address}/"),
            address: address.into(),
            further_addresses: Vec::new(),
            resolve_us: None,
            authority: address.to_string(),
            path: "/".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_formats_addresses() {
        for text in [
            "127.0.0.1:80",
            "[::1]:8080",
            "unix:/run/a b.sock",
            "unix:here",
        ] {
            let address = Address::try_from(text.to_owned()).unwrap();
            assert_eq!(address.to_string(), text);
            let json = serde_json::to_string(&address).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Address>(&json).unwrap(), address);
            assert_eq!(text.starts_with("unix:"), address.ip().is_none());
        }
        for text in ["", "unix:", "127.0.0.1", "::1:80:x", "localhost:80"] {
            let error = Address::try_from(text.to_owned()).unwrap_err();
            assert!(error.contains("unix:/path"), "{error}");
        }
    }

    #[test]
    fn reads_a_target_of_an_older_record() {
        let json = r#"{"url": "http://127.0.0.1:80/", "address": "127.0.0.1:80", "resolve_us": null,
            "authority": "127.0.0.1:80", "path": "/"}"#;
        let target: Target = serde_json::from_str(json).unwrap();
        assert_eq!(target.show_addresses(), "127.0.0.1:80");
        assert!(!serde_json::to_string(&target).unwrap().contains("further"));
    }

    #[test]
    fn shows_only_the_first_of_many_addresses() {
        let mut target = Target::from(SocketAddr::from(([10, 0, 0, 1], 80)));
        target.further_addresses = (2..=4)
            .map(|i| SocketAddr::from(([10, 0, 0, i], 80)))
            .collect();
        assert!(target.show_addresses().ends_with(", 10.0.0.4:80"));
        target
            .further_addresses
            .push(SocketAddr::from(([10, 0, 0, 5], 80)));
        assert!(target.show_addresses().ends_with("10.0.0.4:80 and 1 more"));
        assert_eq!(
            (target.addresses().count(), target.ip_addresses().count()),
            (5, 5)
        );
        target.further_addresses.clear();
        target.address = Address::Unix("/s".into());
        assert_eq!(
            (target.addresses().count(), target.ip_addresses().count()),
            (1, 0)
        );
    }
}
