//! Bodies of requests. A record contains short bodies in full, and only the length and hash of long
//! ones.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::display::Base64Display;
use base64::{Engine, engine::general_purpose::STANDARD};
use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Maximum length, in bytes, of a body that a record contains in full.
pub const MAX_RECORDED: usize = 64 * 1024;

/// The body of a request. Clones share the bytes.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(from = "BodyForm", into = "BodyForm")]
pub struct RequestBody {
    /// The bytes, unless the body comes from a record that does not contain them.
    bytes: Option<Arc<Vec<u8>>>,
    /// Length and hash of a body that is longer than [`MAX_RECORDED`].
    digest: Option<BodyDigest>,
}

/// Length and hash of a long body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BodyDigest {
    /// Length in bytes.
    pub length: u64,
    /// SHA-256 hash in hexadecimal digits.
    pub sha256: String,
}

impl BodyDigest {
    fn of(bytes: &[u8]) -> Self {
        BodyDigest {
            length: bytes.len() as u64,
            sha256: Sha256::digest(bytes)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        }
    }
}

/// A body as the record contains it.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum BodyForm {
    /// The body in base64; empty if there is no body.
    Whole(Base64Bytes),
    /// Length and hash of a body of more than 64 KiB.
    Digest(BodyDigest),
}

/// Bytes in base64.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Base64Bytes(
    #[serde(with = "base64_bytes")]
    #[schemars(with = "String")]
    Arc<Vec<u8>>,
);

/// Converts bytes to and from base64 text, for serde's `with` attribute.
pub(crate) mod base64_bytes {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(bytes, &STANDARD))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, B: From<Vec<u8>>>(
        deserializer: D,
    ) -> Result<B, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map(B::from).map_err(Error::custom)
    }
}

/// Long bodies by their hash. A plan's JSON contains only their hashes, so they are passed on
/// separately.
pub(crate) type LongBodies = BTreeMap<String, Base64Bytes>;

impl RequestBody {
    /// Returns a body that records contain only as length and hash, even if it is short.
    #[must_use]
    pub fn unrecorded(bytes: Vec<u8>) -> Self {
        RequestBody {
            digest: Some(BodyDigest::of(&bytes)),
            bytes: Some(Arc::new(bytes)),
        }
    }

    /// Returns the bytes, or `None` if the body comes from a record that contains only its hash.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_deref().map(Vec::as_slice)
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match (&self.digest, &self.bytes) {
            (Some(digest), _) => digest.length,
            (None, Some(bytes)) => bytes.len() as u64,
            (None, None) => 0,
        }
    }

    /// Returns whether the request has no body.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the length and hash of a long body, or `None` for a short one.
    #[must_use]
    pub fn digest(&self) -> Option<&BodyDigest> {
        self.digest.as_ref()
    }

    /// Drops the bytes of a long body.
    pub(crate) fn forget(&mut self) {
        if self.digest.is_some() {
            self.bytes = None;
        }
    }

    /// Adds a long body to `bodies`.
    pub(crate) fn save(&self, bodies: &mut LongBodies) {
        if let (Some(digest), Some(bytes)) = (&self.digest, &self.bytes) {
            let bytes = Base64Bytes(Arc::clone(bytes));
            bodies.insert(digest.sha256.clone(), bytes);
        }
    }

    /// Takes the bytes of a long body from `bodies`.
    pub(crate) fn restore(&mut self, bodies: &LongBodies) {
        if let Some(bytes) = self.digest.as_ref().and_then(|d| bodies.get(&d.sha256)) {
            self.bytes = Some(Arc::clone(&bytes.0));
        }
    }
}

impl Default for RequestBody {
    fn default() -> Self {
        Vec::new().into()
    }
}

impl From<Vec<u8>> for RequestBody {
    fn from(bytes: Vec<u8>) -> Self {
        Arc::new(bytes).into()
    }
}

impl From<Arc<Vec<u8>>> for RequestBody {
    fn from(bytes: Arc<Vec<u8>>) -> Self {
        let digest = (bytes.len() > MAX_RECORDED).then(|| BodyDigest::of(&bytes));
        RequestBody {
            bytes: Some(bytes),
            digest,
        }
    }
}

impl From<BodyForm> for RequestBody {
    fn from(form: BodyForm) -> Self {
        match form {
            BodyForm::Whole(bytes) => bytes.0.into(),
            BodyForm::Digest(digest) => RequestBody {
                bytes: None,
                digest: Some(digest),
            },
        }
    }
}

impl From<RequestBody> for BodyForm {
    fn from(body: RequestBody) -> Self {
        match body.digest {
            Some(digest) => BodyForm::Digest(digest),
            None => BodyForm::Whole(Base64Bytes(body.bytes.unwrap_or_default())),
        }
    }
}

/// Long bodies are equal if their hashes are.
impl PartialEq for RequestBody {
    fn eq(&self, other: &Self) -> bool {
        match (&self.digest, &other.digest) {
            (None, None) => self.bytes == other.bytes,
            (own, other) => own == other,
        }
    }
}

impl Eq for RequestBody {}

impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.digest, self.bytes()) {
            (Some(digest), _) => digest.fmt(f),
            (None, bytes) => String::from_utf8_lossy(bytes.unwrap_or_default()).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_contains_only_the_hash_of_a_long_body() {
        let short = RequestBody::from(b"x".repeat(MAX_RECORDED));
        let json = serde_json::to_value(&short).unwrap();
        let read: RequestBody = serde_json::from_value(json).unwrap();
        assert_eq!(read.bytes(), short.bytes());

        let long = RequestBody::from(b"abc".repeat(MAX_RECORDED));
        let json = serde_json::to_value(&long).unwrap();
        assert_eq!(json["length"], 3 * MAX_RECORDED);
        let read: RequestBody = serde_json::from_value(json).unwrap();
        assert_eq!((read.bytes(), read.len()), (None, long.len()));
        assert_eq!(read, long);
        assert_ne!(read, RequestBody::from(b"abd".repeat(MAX_RECORDED)));
    }

    #[test]
    fn hashes_with_sha_256() {
        let long = RequestBody::from(vec![0; 100_000]);
        // Command: head -c 100000 /dev/zero | sha256sum
        let expected = "9192c25b734fcbadbe32dadc28089c60db0e39f90cc20ce2e5733f57261acc0c";
        assert_eq!(long.digest().unwrap().sha256, expected);
        assert_eq!(RequestBody::from(b"short".to_vec()).digest(), None);
    }
}
