//! Bytes that are encoded as base64 in JSON. Neither reading nor writing copies the text.

use std::fmt;
use std::marker::PhantomData;

use base64::display::Base64Display;
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Base64Display::new(bytes, &STANDARD))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>, B: From<Vec<u8>>>(
    deserializer: D,
) -> Result<B, D::Error> {
    deserializer.deserialize_str(Decoder(PhantomData))
}

struct Decoder<B>(PhantomData<B>);

impl<B: From<Vec<u8>>> Visitor<'_> for Decoder<B> {
    type Value = B;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("base64")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<B, E> {
        STANDARD.decode(text).map(B::from).map_err(E::custom)
    }
}
