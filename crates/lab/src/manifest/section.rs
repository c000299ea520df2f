//! One table of a manifest, held against the keys it may have; after that its values can be taken without a doubt.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fields::{self, Field, Kind};
use crate::source::{FileError, Source, Value, did_you_mean, nearest};

/// A table whose keys and values are what they may be.
#[derive(Clone)]
pub struct Section<'a> {
    source: Source<'a>,
    table: &'a DeTable<'a>,
    whole: Range<usize>,
}

impl<'a> Section<'a> {
    /// A file's outermost table.
    pub fn file(
        source: Source<'a>,
        document: &'a Spanned<DeTable<'a>>,
        fields: &'static [Field],
    ) -> Result<Self, FileError> {
        Self::new(source, document.get_ref(), 0..0, "", fields)
    }

    fn new(
        source: Source<'a>,
        table: &'a DeTable<'a>,
        whole: Range<usize>,
        name: &str,
        fields: &'static [Field],
    ) -> Result<Self, FileError> {
        let within = match name {
            "" => String::new(),
            name => format!(" in [{name}]"),
        };
        for (key, value) in table {
            let word = key.get_ref().as_ref();
            let Some(field) = fields.iter().find(|field| field.name == word) else {
                let mend = did_you_mean(word, fields.iter().map(|field| field.name));
                let what = format!("unknown key \"{word}\"{within}; {mend}");
                return Err(source.error(&key.span(), what));
            };
            if !field.kind.holds(value.get_ref()) {
                return Err(source.error(&value.span(), mismatch(field, value.get_ref())));
            }
        }
        let absent = |field: &&Field| field.needed && !table.contains_key(field.name);
        if let Some(field) = fields.iter().find(absent) {
            let what = format!(
                "{} is missing{within}; expected {}",
                field.name,
                field.kind.expected(field.name)
            );
            return Err(source.error(&whole, what));
        }
        Ok(Section {
            source,
            table,
            whole,
        })
    }

    /// `file:line` of a key, or of the table where it has none such.
    pub fn place(&self, key: &str) -> String {
        self.source.place(&self.span(key))
    }

    fn span(&self, key: &str) -> Range<usize> {
        self.table
            .get(key)
            .map_or_else(|| self.whole.clone(), Spanned::span)
    }

    pub fn error(&self, key: &str, what: impl Into<String>) -> FileError {
        self.source.error(&self.span(key), what)
    }

    /// Sees that `name` is that of the folder that the file lies in.
    pub fn named_as(&self, folder: &Path) -> Result<(), FileError> {
        let name = self.text("name").unwrap_or_default();
        let folder = folder.file_name().unwrap_or_default().to_string_lossy();
        match name == folder {
            true => Ok(()),
            false => Err(self.error(
                "name",
                format!("name: \"{name}\" must be the folder's name, \"{folder}\", by which experiments find it"),
            )),
        }
    }

    fn value(&self, key: &str) -> Option<&'a DeValue<'a>> {
        self.table.get(key).map(Spanned::get_ref)
    }

    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.value(key)?.as_str()
    }

    pub fn duration(&self, key: &str) -> Option<Duration> {
        fields::duration(self.value(key)?)
    }

    pub fn count(&self, key: &str) -> Option<u64> {
        fields::count(self.value(key)?)
    }

    pub fn number(&self, key: &str) -> Option<f64> {
        fields::number(self.value(key)?)
    }

    /// A value of any kind that is no list or table, as text.
    pub fn scalar(&self, key: &str) -> Option<String> {
        let value = self.value(key)?;
        fields::scalar(value).or_else(|| Some(fields::number(value)?.to_string()))
    }

    /// A list of values as texts.
    pub fn list(&self, key: &str) -> Vec<String> {
        let values = self.value(key).and_then(DeValue::as_array);
        values
            .into_iter()
            .flat_map(|all| all.iter())
            .filter_map(|one| fields::scalar(one.get_ref()))
            .collect()
    }

    /// A table of values: each key with its place and its value as text.
    pub fn scalars(&self, key: &str) -> BTreeMap<String, (String, String)> {
        let values = self.value(key).and_then(DeValue::as_table);
        values
            .into_iter()
            .flat_map(|all| all.iter())
            .filter_map(|(name, value)| {
                let place = self.source.place(&name.span());
                let value = fields::scalar(value.get_ref())?;
                Some((name.get_ref().to_string(), (place, value)))
            })
            .collect()
    }

    /// A table of lists: each key with its place and its values as texts, in the order they are written.
    pub fn lists(&self, key: &str) -> Vec<(String, String, Vec<String>)> {
        let values = self.value(key).and_then(DeValue::as_table);
        let mut lists: Vec<_> = values
            .into_iter()
            .flat_map(|all| all.iter())
            .map(|(name, list)| {
                let values = list
                    .get_ref()
                    .as_array()
                    .into_iter()
                    .flat_map(|all| all.iter());
                let values = values.filter_map(|one| fields::scalar(one.get_ref()));
                let place = self.source.place(&name.span());
                let name_of = name.get_ref().to_string();
                (name.span().start, (name_of, place, values.collect()))
            })
            .collect();
        lists.sort_by_key(|(at, _)| *at);
        lists.into_iter().map(|(_, list)| list).collect()
    }

    /// Keys that are there, in the order of `fields`.
    pub fn present(&self, fields: &'static [Field]) -> impl Iterator<Item = &'static Field> {
        fields.iter().filter(|field| self.has(field.name))
    }

    /// `[key]`.
    pub fn table(
        &self,
        key: &'static str,
        fields: &'static [Field],
    ) -> Result<Option<Self>, FileError> {
        self.table
            .get(key)
            .map(|value| self.within(value, key, fields))
            .transpose()
    }

    /// Each `[[key]]`.
    pub fn tables(
        &self,
        key: &'static str,
        fields: &'static [Field],
    ) -> Result<Vec<Self>, FileError> {
        let values = self.value(key).and_then(DeValue::as_array);
        values
            .into_iter()
            .flat_map(|all| all.iter())
            .map(|value| self.within(value, key, fields))
            .collect()
    }

    /// Each table within `[key]`, with its name.
    pub fn named(
        &self,
        key: &'static str,
        fields: &'static [Field],
    ) -> Result<Vec<(String, Self)>, FileError> {
        let values = self.value(key).and_then(DeValue::as_table);
        values
            .into_iter()
            .flat_map(|all| all.iter())
            .map(|(name, value)| {
                let name = name.get_ref().to_string();
                Ok((name.clone(), self.within(value, &name, fields)?))
            })
            .collect()
    }

    fn within(
        &self,
        value: &'a Value<'a>,
        name: &str,
        fields: &'static [Field],
    ) -> Result<Self, FileError> {
        let Some(table) = value.get_ref().as_table() else {
            let what = format!("{name}: expected {}", Kind::Table(fields).expected(name));
            return Err(self.source.error(&value.span(), what));
        };
        Self::new(self.source, table, value.span(), name, fields)
    }
}

/// What to say of a value that is not what its key takes.
fn mismatch(field: &Field, value: &DeValue<'_>) -> String {
    let (name, expected) = (field.name, field.kind.expected(field.name));
    let Some(text) = value.as_str() else {
        return format!("{name}: expected {expected}");
    };
    let slip_of = |words: &[&'static str]| nearest(text, words.iter().copied());
    let mend = match &field.kind {
        Kind::OneOf(words) => Some(did_you_mean(text, words.iter().copied())),
        Kind::Flag => slip_of(&["true", "false"])
            .map(|word| format!("did you mean {name} = {word}, without quotes?")),
        Kind::Warmup => slip_of(&["auto"]).map(|word| format!("did you mean \"{word}\"?")),
        _ => None,
    };
    match mend {
        Some(mend) => format!("{name}: unknown value \"{text}\"; {mend}"),
        None => format!("{name}: expected {expected}, not \"{text}\""),
    }
}
