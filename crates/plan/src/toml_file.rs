//! Reads the user's TOML files strictly. Every error names the file and the line.
//!
//! Serde parses the file. After an error, the JSON Schema of the same type provides the valid names
//! and values for the message.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::input;

/// An error in a file, with the position and the fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}")]
pub struct FileError {
    /// File, and line if known.
    pub place: String,
    /// Problem and fix.
    pub what: String,
}

impl FileError {
    /// Returns an error about a whole file.
    pub fn in_file(path: &Path, what: impl ToString) -> Self {
        FileError {
            place: path.display().to_string(),
            what: what.to_string(),
        }
    }

    /// Returns an error about a line of a file. Lines are numbered from 1.
    pub fn on_line(path: &Path, line: usize, what: impl ToString) -> Self {
        FileError {
            place: format!("{}:{line}", path.display()),
            what: what.to_string(),
        }
    }
}

/// A value with its position in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub struct Located<T>(Spanned<T>);

impl<T> Located<T> {
    /// Returns a value that does not come from a file. Its position is empty.
    pub fn outside_file(value: T) -> Self {
        Located(Spanned::new(0..0, value))
    }

    /// Returns the position as a range of bytes.
    pub fn span(&self) -> Range<usize> {
        self.0.span()
    }

    /// Returns the value without its position.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.get_ref()
    }
}

impl<T: JsonSchema> JsonSchema for Located<T> {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// The text of a TOML file.
#[derive(Debug, Clone)]
pub struct TomlFile {
    path: PathBuf,
    text: String,
}

impl TomlFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The file is missing, too large or not UTF-8.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let bytes = input::read(path).map_err(|what| FileError::in_file(path, what))?;
        match String::from_utf8(bytes) {
            Ok(text) => Ok(TomlFile {
                path: path.to_owned(),
                text,
            }),
            Err(error) => {
                let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let what = "not UTF-8; save the file as UTF-8";
                Err(FileError::on_line(path, line_after(before), what))
            }
        }
    }

    /// Returns the file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the line number of a position, starting at 1.
    #[must_use]
    pub fn line(&self, span: &Range<usize>) -> usize {
        line_after(self.text.as_bytes().get(..span.start).unwrap_or_default())
    }

    /// Returns a position as `file:line`.
    #[must_use]
    pub fn place(&self, span: &Range<usize>) -> String {
        format!("{}:{}", self.path.display(), self.line(span))
    }

    /// Returns an error at a position.
    pub fn error(&self, span: &Range<usize>, what: impl ToString) -> FileError {
        FileError::on_line(&self.path, self.line(span), what)
    }

    /// Returns an error at the start of the file.
    pub fn error_at_start(&self, what: impl ToString) -> FileError {
        self.error(&(0..0), what)
    }

    /// Parses the whole file.
    ///
    /// # Errors
    /// The text is not TOML, a key is unknown or missing, or a value has the wrong type.
    pub fn parse<T: DeserializeOwned + JsonSchema>(&self) -> Result<T, FileError> {
        let document = DeTable::parse(&self.text).map_err(|error| {
            let what = format!("not TOML: {}", error.message().replace('\n', ", "));
            self.error(&error.span().unwrap_or_default(), what)
        })?;
        let read = T::deserialize(toml::Deserializer::from(document.clone()));
        read.map_err(|error| {
            let span = error.span().unwrap_or_default();
            let schema = schema::<T>();
            let found = find(document.get_ref(), &schema, "", &span);
            self.error(&span, explain(error.message(), found.as_ref()))
        })
    }
}

/// Returns the number of the line that starts after the bytes `before`.
fn line_after(before: &[u8]) -> usize {
    1 + before.iter().filter(|b| **b == b'\n').count()
}

/// The key and value at the position of an error.
struct Found<'a> {
    /// The key.
    key: &'a str,
    /// Name of the table that contains the key; empty at the top level.
    table: &'a str,
    /// The schema of that table.
    table_schema: &'a Json,
    /// The schema of the key's value; null for an unknown key.
    schema: &'a Json,
    /// The value.
    value: &'a DeValue<'a>,
}

/// Finds the key or value at a position.
fn find<'a>(
    table: &'a DeTable<'a>,
    table_schema: &'a Json,
    name: &'a str,
    span: &Range<usize>,
) -> Option<Found<'a>> {
    table.iter().find_map(|(key, value)| {
        let key_span = key.span();
        let key = key.get_ref().as_ref();
        let schema = match &table_schema["properties"][key] {
            Json::Null => &table_schema["additionalProperties"],
            schema => schema,
        };
        let nested = match value.get_ref() {
            DeValue::Table(inner) => find(inner, schema, key, span),
            DeValue::Array(all) => all.iter().find_map(|one| match one.get_ref() {
                DeValue::Table(inner) => find(inner, &schema["items"], key, span),
                _ => None,
            }),
            _ => None,
        };
        let is_inside = |outer: Range<usize>| outer.start <= span.start && span.end <= outer.end;
        let here = key_span == *span || is_inside(value.span());
        nested.or_else(|| {
            here.then_some(Found {
                key,
                table: name,
                table_schema,
                schema,
                value: value.get_ref(),
            })
        })
    })
}

/// Rewrites an error message from serde to use the names in the schema.
fn explain(message: &str, found: Option<&Found<'_>>) -> String {
    let quoted = || message.split('`').nth(1).unwrap_or_default();
    if message.starts_with("missing field") {
        // For a missing key, serde reports the position of the whole table.
        let within = found.map_or(String::new(), |found| format!(" in [{}]", found.key));
        return format!("{} is missing{within}", quoted());
    }
    let Some(found) = found else {
        return message.to_owned();
    };
    let key = found.key;
    if message.starts_with("unknown field") {
        let within = match found.table {
            "" => String::new(),
            table => format!(" in [{table}]"),
        };
        let fix = match found.table_schema["properties"].as_object() {
            Some(known) => did_you_mean(quoted(), known.keys().map(String::as_str)),
            None => "remove it".to_owned(),
        };
        return format!("unknown key \"{}\"{within}; {fix}", quoted());
    }
    let text = found.value.as_str();
    let words: Vec<&str> = found.schema["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    let schema_type = found.schema["type"].as_str();
    match text {
        Some(text) if !words.is_empty() => {
            let fix = did_you_mean(text, words.into_iter());
            return format!("{key}: unknown value \"{text}\"; {fix}");
        }
        Some(text) if schema_type == Some("boolean") => {
            if let Some(word) = nearest(text, ["true", "false"].into_iter()) {
                return format!(
                    "{key}: unknown value \"{text}\"; did you mean {key} = {word}, without quotes?"
                );
            }
        }
        _ => {}
    }
    match (schema_type, found.value) {
        (Some("array"), DeValue::Table(_)) if message.starts_with("invalid type") => {
            format!("{key}: expected double brackets: [[{key}]]")
        }
        (Some("object"), DeValue::Array(_)) if message.starts_with("invalid type") => {
            format!("{key}: expected single brackets: [{key}]")
        }
        _ => format!("{key}: {message}"),
    }
}

/// Returns the JSON Schema of a manifest type. The schema contains no references, and no null
/// because TOML has no null.
#[must_use]
pub fn schema<T: JsonSchema>() -> Json {
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(RecursiveTransform(simplify));
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("description");
    schema.to_value()
}

/// Removes null, defaults and formats. Replaces `oneOf` constants with `enum`.
fn simplify(schema: &mut Schema) {
    let Some(object) = schema.as_object_mut() else {
        return;
    };
    object.remove("default");
    object.remove("format");
    if let Some(Json::Array(any)) = object.get_mut("anyOf") {
        any.retain(|one| one["type"] != "null");
        if let [Json::Object(only)] = &any[..] {
            let only = only.clone();
            object.remove("anyOf");
            for (key, value) in only {
                object.entry(key).or_insert(value);
            }
        }
    }
    if let Some(Json::Array(variants)) = object.get("oneOf") {
        let words: Option<Vec<Json>> = variants
            .iter()
            .map(|one| one.get("const").cloned())
            .collect();
        if let Some(words) = words {
            object.remove("oneOf");
            object.insert("enum".to_owned(), Json::Array(words));
        }
    }
    if let Some(Json::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Json::Array(words)) = object.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
}

/// Suggests the entry of `known` that is nearest to `word`, or lists all entries if none is near.
#[must_use]
pub fn did_you_mean<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    match nearest(word, known.clone()) {
        Some(best) => format!("did you mean \"{best}\"?"),
        None => format!("expected {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// Returns the entry of `known` that is most similar to `word`, or the only entry that starts with
/// `word`.
pub fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let spelt = word.to_lowercase().replace('_', "-");
    let best = known
        .clone()
        .map(|k| (strsim::damerau_levenshtein(&spelt, &k.to_lowercase()), k))
        .min();
    match best {
        // Don't suggest a word in which more than a third of the letters differ.
        Some((distance, best)) if distance * 3 <= best.len().max(3) => return Some(best),
        _ => {}
    }
    let mut begun = known.filter(|k| k.to_lowercase().starts_with(&spelt));
    let only = begun.next().filter(|_| spelt.len() >= MIN_PREFIX)?;
    begun.next().is_none().then_some(only)
}

/// Minimum length of a prefix that [`nearest`] completes to a whole word.
const MIN_PREFIX: usize = 3;

/// A table of values with their positions, ordered by key.
pub type LocatedMap<T> = BTreeMap<String, Located<T>>;
