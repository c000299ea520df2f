//! Mix files: several requests with weights, in TOML, read strictly.
//!
//! ```toml
//! [[request]]
//! name = "search"
//! weight = 3
//! path = "/search?q={rand:1-1000}"
//! ```

use std::ops::Range;
use std::path::{Path, PathBuf};

use floodmark_record::mix::{MOST_REQUESTS, Mix, MixRequest, parse_header};
use floodmark_record::plan::{Expect, RequestPlan};
use floodmark_record::units::show_count;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::input;
use crate::source::{FileError, Source, Value, did_you_mean, read_text};

/// Length of a mix's cycle at most: the sum of its weights once they have no common divisor. Each load thread keeps one byte for
/// each.
pub const LONGEST_CYCLE: u64 = 10_000;

/// Length of a name at most, so that tables keep their shape.
const LONGEST_NAME: usize = 20;

/// What a request may have.
const KEYS: [&str; 9] = [
    "name",
    "weight",
    "method",
    "path",
    "headers",
    "body",
    "body-file",
    "expect",
    "templates",
];

/// What each request of a mix has that does not say otherwise itself.
#[derive(Debug, Clone, Default)]
pub struct Common {
    /// Headers, beside its own; one of the same name is the request's own.
    pub headers: Vec<(String, String)>,
    /// What an answer must be, where the request does not say.
    pub expect: Vec<Expect>,
}

/// A mix that was read, and where its parts stand.
#[derive(Debug)]
pub struct MixFile {
    /// The mix.
    pub mix: Mix,
    path: PathBuf,
    /// For each request its own line, then those of its keys.
    lines: Vec<(usize, Vec<(String, usize)>)>,
}

impl MixFile {
    /// Reads a mix file; files that it names lie beside it.
    ///
    /// # Errors
    /// A file that cannot be read or is no mix, with the line and the mend.
    pub fn read(path: &Path, common: &Common) -> Result<Self, FileError> {
        let text = read_text(path)?;
        let source = Source { path, text: &text };
        source.file(common)
    }

    /// Where a key of a request stands, or the request where it has none such: `mix.toml:12`.
    #[must_use]
    pub fn place(&self, request: usize, key: &str) -> String {
        let line = self.lines.get(request).map(|(own, keys)| {
            let of_key = keys.iter().find(|(name, _)| name == key);
            of_key.map_or(*own, |(_, line)| *line)
        });
        match line {
            Some(line) => format!("{}:{line}", self.path.display()),
            None => self.path.display().to_string(),
        }
    }
}

impl Source<'_> {
    fn file(&self, common: &Common) -> Result<MixFile, FileError> {
        let document = self.document()?;
        let mut tables: &[Value<'_>] = &[];
        for (key, value) in document.get_ref() {
            let all = value.get_ref().as_array();
            match (key.get_ref().as_ref(), all) {
                ("request", Some(all)) => tables = all,
                ("request", None) => {
                    return Err(self.error(&key.span(), "expected [[request]], in double brackets"));
                }
                (other, _) => {
                    let mend = did_you_mean(other, ["request"].into_iter());
                    let what = format!("unknown key \"{other}\" outside of a [[request]]; {mend}");
                    return Err(self.error(&key.span(), what));
                }
            }
        }
        if tables.is_empty() {
            return Err(self.error(
                &(0..0),
                "no request; write [[request]] with a name and a path for each",
            ));
        }
        if let Some(excess) = tables.get(MOST_REQUESTS) {
            let what = format!("more than {MOST_REQUESTS} requests; leave some out");
            return Err(self.error(&excess.span(), what));
        }
        let mut requests: Vec<MixRequest> = Vec::new();
        let mut lines: Vec<(usize, Vec<(String, usize)>)> = Vec::new();
        for table in tables {
            let entry = Entry::of(self, table)?;
            let request = entry.request(common)?;
            if let Some(before) = requests.iter().position(|r| r.name == request.name) {
                let what = format!(
                    "the name \"{}\" is also that of the request in line {}; each has its own",
                    request.name, lines[before].0
                );
                return Err(self.error(&entry.span("name"), what));
            }
            requests.push(request);
            lines.push(entry.lines());
        }
        self.reduce(&mut requests, &tables[0].span())?;
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        Ok(MixFile {
            mix: Mix {
                file: name.into_owned(),
                requests,
            },
            path: self.path.to_owned(),
            lines,
        })
    }

    /// Divides the weights by what all of them can be divided by, so that the cycle is as short as it can be.
    fn reduce(&self, requests: &mut [MixRequest], first: &Range<usize>) -> Result<(), FileError> {
        let divisor = requests
            .iter()
            .map(|r| r.weight)
            .fold(0, greatest_common_divisor);
        requests.iter_mut().for_each(|r| r.weight /= divisor.max(1));
        let length: u64 = requests.iter().map(|r| u64::from(r.weight)).sum();
        if length > LONGEST_CYCLE {
            let what = format!(
                "the weights add up to {} (divided by what is common to them); use rounder ones that add up to at most {}",
                show_count(length),
                show_count(LONGEST_CYCLE)
            );
            return Err(self.error(first, what));
        }
        Ok(())
    }
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// One `[[request]]`.
struct Entry<'a> {
    source: &'a Source<'a>,
    table: &'a DeTable<'a>,
    whole: Range<usize>,
}

impl<'a> Entry<'a> {
    fn of(source: &'a Source<'a>, value: &'a Value<'a>) -> Result<Self, FileError> {
        let Some(table) = value.get_ref().as_table() else {
            return Err(source.error(&value.span(), "expected [[request]], in double brackets"));
        };
        for key in table.keys() {
            let name = key.get_ref().as_ref();
            if !KEYS.contains(&name) {
                let mend = did_you_mean(name, KEYS.into_iter());
                return Err(source.error(&key.span(), format!("unknown key \"{name}\"; {mend}")));
            }
        }
        Ok(Entry {
            source,
            table,
            whole: value.span(),
        })
    }

    fn lines(&self) -> (usize, Vec<(String, usize)>) {
        let of_key = |(key, _): (&Spanned<_>, _)| {
            let key: &Spanned<std::borrow::Cow<'_, str>> = key;
            (key.get_ref().to_string(), self.source.line(&key.span()))
        };
        let own = self.source.line(&self.whole);
        (own, self.table.iter().map(of_key).collect())
    }

    /// Where the value of a key stands, or the request where it has none.
    fn span(&self, key: &str) -> Range<usize> {
        self.table
            .get(key)
            .map_or_else(|| self.whole.clone(), Spanned::span)
    }

    fn error(&self, key: &str, what: impl Into<String>) -> FileError {
        self.source.error(&self.span(key), what)
    }

    /// The value of a key as what `read` reads; `expected` says what that is, with an example.
    fn value<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
    ) -> Result<Option<T>, FileError> {
        let Some(value) = self.table.get(key) else {
            return Ok(None);
        };
        match read(value.get_ref()) {
            Some(value) => Ok(Some(value)),
            None => Err(self.error(key, format!("{key}: expected {expected}"))),
        }
    }

    fn text(&self, key: &str, example: &str) -> Result<Option<&'a str>, FileError> {
        let expected = format!("a text, like {key} = {example}");
        self.value(key, &expected, |value| value.as_str())
    }

    /// A list of texts, each read by `read`.
    fn list<T>(
        &self,
        key: &str,
        example: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Vec<T>>, FileError> {
        let expected = format!("a list of texts, like {key} = [{example}]");
        let Some(values) = self.value(key, &expected, DeValue::as_array)? else {
            return Ok(None);
        };
        let one = |value: &Value<'_>| {
            let text = value.get_ref().as_str();
            let text = text.ok_or_else(|| format!("{key}: expected {expected}"));
            text.and_then(|text| read(text).map_err(|what| format!("{key}: {what}")))
                .map_err(|what| self.source.error(&value.span(), what))
        };
        values.iter().map(one).collect::<Result<_, _>>().map(Some)
    }

    fn request(&self, common: &Common) -> Result<MixRequest, FileError> {
        let name = self.name()?;
        let weight = self.weight()?;
        let Some(path) = self.text("path", "\"/search\"")? else {
            let what = format!("the request \"{name}\" has no path; write path = \"/\"");
            return Err(self.error("path", what));
        };
        let body = self.body()?;
        let method = self.text("method", "\"PUT\"")?;
        let mut headers = self
            .list("headers", "\"Accept: text/html\"", parse_header)?
            .unwrap_or_default();
        let own = headers.len();
        for (name, value) in &common.headers {
            let is_own = |(n, _): &(String, String)| n.eq_ignore_ascii_case(name);
            if !headers[..own].iter().any(is_own) {
                headers.push((name.clone(), value.clone()));
            }
        }
        let expect = self.list("expect", "\"status=200\"", str::parse)?;
        let templates = self.value("templates", "true or false", DeValue::as_bool)?;
        Ok(MixRequest {
            name: name.to_owned(),
            weight,
            path: path.to_owned(),
            request: RequestPlan {
                method: match (method, &body) {
                    (Some(method), _) => method.to_owned(),
                    (None, Some(_)) => "POST".to_owned(),
                    (None, None) => "GET".to_owned(),
                },
                headers,
                body: body.unwrap_or_default(),
            },
            expect: expect.unwrap_or_else(|| common.expect.clone()),
            templates: templates.unwrap_or(true),
        })
    }

    fn name(&self) -> Result<&'a str, FileError> {
        let Some(name) = self.text("name", "\"search\"")? else {
            let what = "a request has no name; write name = \"search\": its figures stand under it";
            return Err(self.error("name", what));
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > LONGEST_NAME || !name.chars().all(plain) {
            let what = format!(
                "name: expected up to {LONGEST_NAME} letters, digits, \"-\", \"_\" or \".\", not \"{name}\""
            );
            return Err(self.error("name", what));
        }
        Ok(name)
    }

    fn weight(&self) -> Result<u32, FileError> {
        let expected = "a whole number from 1 to 1000000, like weight = 3";
        let weight = self.value("weight", expected, |value| {
            let number = value.as_integer()?;
            let weight = u32::from_str_radix(number.as_str(), number.radix()).ok()?;
            (1..=1_000_000).contains(&weight).then_some(weight)
        })?;
        Ok(weight.unwrap_or(1))
    }

    fn body(&self) -> Result<Option<Vec<u8>>, FileError> {
        let text = self.text("body", "\"{}\"")?;
        let file = self.text("body-file", "\"order.json\"")?;
        match (text, file) {
            (Some(_), Some(_)) => {
                Err(self.error("body-file", "there is a body already; keep one of both"))
            }
            (Some(text), None) => Ok(Some(text.as_bytes().to_vec())),
            (None, None) => Ok(None),
            (None, Some(file)) => {
                let folder = self.source.path.parent().unwrap_or(Path::new(""));
                let path = folder.join(file);
                let bytes = input::read(&path).map_err(|what| {
                    self.error("body-file", format!("body-file {}: {what}", path.display()))
                })?;
                Ok(Some(bytes))
            }
        }
    }
}

#[cfg(test)]
#[path = "mix_tests.rs"]
mod tests;
