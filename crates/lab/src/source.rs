//! TOML files of a user, read so that whatever is wrong with one has its line.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::input;

/// What is wrong with a file, with its place and the mend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct FileError {
    /// File, and line where there is one.
    pub place: String,
    /// What is wrong, and what was expected.
    pub what: String,
}

/// A value and where it stands.
pub(crate) type Value<'a> = Spanned<DeValue<'a>>;

/// Reads a file as text.
pub(crate) fn read_text(path: &Path) -> Result<String, FileError> {
    let bytes = input::read(path).map_err(|what| FileError {
        place: path.display().to_string(),
        what,
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|b| **b == b'\n').count();
        FileError {
            place: format!("{}:{line}", path.display()),
            what: "not UTF-8, in which TOML is written".to_owned(),
        }
    })
}

/// A file's text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl<'a> Source<'a> {
    /// The line that a place is in, from 1.
    pub fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().get(..span.start).unwrap_or_default();
        1 + before.iter().filter(|b| **b == b'\n').count()
    }

    /// `file:line`.
    pub fn place(&self, span: &Range<usize>) -> String {
        format!("{}:{}", self.path.display(), self.line(span))
    }

    pub fn error(&self, span: &Range<usize>, what: impl Into<String>) -> FileError {
        FileError {
            place: self.place(span),
            what: what.into(),
        }
    }

    /// The text as TOML.
    pub fn document(&self) -> Result<Spanned<DeTable<'a>>, FileError> {
        DeTable::parse(self.text).map_err(|error| {
            self.error(
                &error.span().unwrap_or_default(),
                format!("not TOML: {}", error.message().replace('\n', ", ")),
            )
        })
    }
}

/// The nearest of `known` to `word`, as a question, where it can be a slip; else all of them.
#[must_use]
pub fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(word, known.clone()) {
        Some(best) => format!("did you mean \"{best}\"?"),
        None => format!("expected {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// The one of `known` that `word` is a slip of, or the only one that it is the beginning of.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let spelt = word.to_lowercase().replace('_', "-");
    let best = known
        .clone()
        .map(|k| (strsim::damerau_levenshtein(&spelt, &k.to_lowercase()), k))
        .min();
    match best {
        // A third of the letters wrong is still a slip; more is another word.
        Some((distance, best)) if distance * 3 <= best.len().max(3) => return Some(best),
        _ => {}
    }
    let mut begun = known.filter(|k| k.to_lowercase().starts_with(&spelt));
    let only = begun.next().filter(|_| spelt.len() >= SHORTEST_BEGINNING)?;
    begun.next().is_none().then_some(only)
}

/// Fewer letters begin too many words to say which was meant.
const SHORTEST_BEGINNING: usize = 3;
