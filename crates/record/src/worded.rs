//! Facts that a record stores together with a sentence for its readers.

use std::fmt::{self, Display};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A fact that has a description.
pub trait Fact: Clone + PartialEq + Display + Serialize + DeserializeOwned {
    /// Reads the fact from its description in a record of schema version 1. Returns `None` if no
    /// code needs the fact.
    #[must_use]
    fn from_text(_text: &str) -> Option<Self> {
        None
    }
}

/// A fact, or the text of a fact that is unknown.
///
/// In JSON, an object with the fact and its text. No code reads this text, which is for people and
/// `jq`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "StoredWorded<T>", into = "StoredWorded<T>", bound = "T: Fact")]
pub enum Worded<T: Fact> {
    /// The fact.
    Fact(T),
    /// The text of a fact that is unknown, as in records of schema version 1.
    Text(String),
}

impl<T: Fact> Worded<T> {
    /// Returns the fact, if known.
    pub fn fact(&self) -> Option<&T> {
        match self {
            Self::Fact(fact) => Some(fact),
            Self::Text(_) => None,
        }
    }
}

impl<T: Fact> Display for Worded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fact(fact) => fact.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl<T: Fact> From<T> for Worded<T> {
    fn from(fact: T) -> Self {
        Self::Fact(fact)
    }
}

impl<T: Fact> From<&str> for Worded<T> {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// The JSON forms of [`Worded`].
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum StoredWorded<T> {
    Typed {
        /// The fact.
        fact: T,
        /// The fact in words.
        text: String,
    },
    /// The fact in words, as in schema version 1.
    Text(String),
}

impl<T: Fact> From<StoredWorded<T>> for Worded<T> {
    fn from(stored: StoredWorded<T>) -> Self {
        match stored {
            StoredWorded::Typed { fact, .. } => Self::Fact(fact),
            StoredWorded::Text(text) => T::from_text(&text).map_or(Self::Text(text), Self::Fact),
        }
    }
}

impl<T: Fact> From<Worded<T>> for StoredWorded<T> {
    fn from(worded: Worded<T>) -> Self {
        let text = worded.to_string();
        match worded {
            Worded::Fact(fact) => Self::Typed { fact, text },
            Worded::Text(_) => Self::Text(text),
        }
    }
}

/// Joins sentences with semicolons.
#[must_use]
pub fn joined<T: Fact>(sentences: &[Worded<T>]) -> String {
    let texts: Vec<String> = sentences.iter().map(Worded::to_string).collect();
    texts.join("; ")
}
