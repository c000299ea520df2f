//! Credentials in a URL. A record states only whether the URL had credentials.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// User and password of a URL, sent with every request (Basic authentication, RFC 7617).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Omitted", into = "Omitted")]
pub struct Credentials(
    /// Value of the `Authorization` header; `None` if the credentials come from a record.
    Option<String>,
);

/// Placeholder for credentials in a record.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Omitted {
    /// The URL had credentials, which the record does not contain.
    Omitted,
}

impl Credentials {
    /// Returns the credentials for a user and a password.
    #[must_use]
    pub fn new(user: &[u8], password: &[u8]) -> Self {
        let encoded = STANDARD.encode([user, b":", password].concat());
        Credentials(Some(format!("Basic {encoded}")))
    }

    /// Returns the value of the `Authorization` header, or `None` if the credentials come from a
    /// record.
    #[must_use]
    pub fn authorization(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Takes the header value out, to pass it to a worker separately.
    pub(crate) fn take(&mut self) -> Option<String> {
        self.0.take()
    }

    /// Restores a header value that [`Credentials::take`] returned.
    pub(crate) fn restore(&mut self, authorization: Option<String>) {
        self.0 = authorization;
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

impl From<Omitted> for Credentials {
    fn from(_: Omitted) -> Self {
        Credentials(None)
    }
}

impl From<Credentials> for Omitted {
    fn from(_: Credentials) -> Self {
        Omitted::Omitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_omits_credentials() {
        let credentials = Credentials::new(b"me", b"s3cret");
        // Command: printf me:s3cret | base64
        assert_eq!(credentials.authorization(), Some("Basic bWU6czNjcmV0"));
        let json = serde_json::to_string(&credentials).unwrap();
        assert_eq!(json, "\"omitted\"");
        let read: Credentials = serde_json::from_str(&json).unwrap();
        assert_eq!(read.authorization(), None);
        assert_eq!(format!("{credentials:?}"), "Credentials");
    }
}
