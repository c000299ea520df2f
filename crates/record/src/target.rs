//! Where the requests of a run go: a URL, and the addresses behind it.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Addresses that are named where several are shown; a name may have dozens.
const SHOWN: usize = 4;

/// Where connections go; as text `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/app.sock`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Address {
    /// TCP.
    Ip(SocketAddr),
    /// A unix socket, by its path.
    Unix(PathBuf),
}

impl Address {
    /// Address and port; none of a unix socket.
    #[must_use]
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            Address::Ip(address) => Some(*address),
            Address::Unix(_) => None,
        }
    }

    /// The path of a unix socket.
    #[must_use]
    pub fn unix(&self) -> Option<&Path> {
        match self {
            Address::Ip(_) => None,
            Address::Unix(path) => Some(path),
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

/// Text that names no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no address; write 127.0.0.1:8080, [::1]:8080 or unix:/path")]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("unix:") {
            Some(path) if !path.is_empty() => Ok(Address::Unix(path.into())),
            _ => text
                .parse()
                .map(Address::Ip)
                .map_err(|_| AddressError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
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

/// Where the requests go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// The URL as given.
    pub url: String,
    /// Where connections go, as `IP:PORT` or `unix:PATH`; the first of several. A name is resolved once, before the run.
    #[schemars(with = "String")]
    pub address: Address,
    /// Further addresses of the host; connections go in turn to all that accept them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub further_addresses: Vec<SocketAddr>,
    /// How long resolving the name took, in microseconds; null where nothing was resolved.
    pub resolve_us: Option<u64>,
    /// Host and port as they stand in the `Host` header.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl Target {
    /// All addresses, at least one.
    pub fn addresses(&self) -> impl Iterator<Item = Address> + '_ {
        let further = self.further_addresses.iter().copied().map(Address::Ip);
        std::iter::once(self.address.clone()).chain(further)
    }

    /// All addresses that are reached by TCP.
    pub fn ip_addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let further = self.further_addresses.iter().copied();
        self.address.ip().into_iter().chain(further)
    }

    /// The addresses in words: `[::1]:80, 127.0.0.1:80`.
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
    /// The root of the server at an address.
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
    fn addresses_are_what_their_text_says() {
        for text in [
            "127.0.0.1:80",
            "[::1]:8080",
            "unix:/run/a b.sock",
            "unix:here",
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            let json = serde_json::to_string(&address).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<Address>(&json).unwrap(), address);
            assert_eq!(address.unix().is_some(), address.ip().is_none());
        }
        for text in ["", "unix:", "127.0.0.1", "::1:80:x", "localhost:80"] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("unix:/path"), "{error}");
        }
    }

    #[test]
    fn a_target_of_an_older_record_has_one_address() {
        let json = r#"{"url": "http://127.0.0.1:80/", "address": "127.0.0.1:80", "resolve_us": null,
            "authority": "127.0.0.1:80", "path": "/"}"#;
        let target: Target = serde_json::from_str(json).unwrap();
        assert_eq!(target.show_addresses(), "127.0.0.1:80");
        assert!(!serde_json::to_string(&target).unwrap().contains("further"));
    }

    #[test]
    fn many_addresses_are_shown_in_part() {
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
