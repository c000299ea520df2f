//! Reads the data files of a mix: CSV (RFC 4180) with the names of the columns in the first line.

use std::path::Path;

use floodmark_record::body::RequestBody;
use floodmark_record::feed::{Feed, FeedColumn, RowChoice};
use floodmark_record::units::plural;
use floodmark_wire::is_authority;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::input;
use crate::toml_file::FileError;

/// Characters that are percent-encoded in a path or query: all except the unreserved ones (RFC 3986,
/// section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Names that a column cannot have, because they are templates.
const TEMPLATES: [&str; 3] = ["seq", "uuid", "key"];

/// Returns whether a placeholder with this name refers to a template rather than a column.
pub(crate) fn is_template(name: &str) -> bool {
    TEMPLATES.contains(&name) || name.starts_with("rand:")
}

/// Where requests use the values of a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ColumnUse {
    /// In a path, percent-encoded.
    pub encoded: bool,
    /// In a path, unchanged (`{raw:name}`).
    pub raw_in_path: bool,
    /// At the start of a path, unchanged.
    pub starts_path: bool,
    /// In a header.
    pub in_header: bool,
    /// In the `Host` header of a request over HTTP/2, which becomes `:authority`.
    pub in_authority: bool,
    /// In such a header whose value consists only of columns.
    pub fills_authority: bool,
    /// In a body.
    pub in_body: bool,
}

impl ColumnUse {
    fn is_unchanged(self) -> bool {
        self.raw_in_path || self.in_header || self.in_body
    }

    /// Returns why requests cannot contain a value, or `None` if they can.
    fn obstacle(self, value: &[u8]) -> Option<&'static str> {
        if self.starts_path && !value.starts_with(b"/") {
            Some("does not start with \"/\", but is used at the start of a path; add the slash")
        } else if self.raw_in_path && !value.iter().all(u8::is_ascii_graphic) {
            Some(
                "contains a character that is invalid in a path; percent-encode it, or use {name} instead of {raw:name}",
            )
        } else if self.in_header && value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n')) {
            Some("contains a line break or a null byte, which a header cannot contain")
        } else if self.in_authority && !is_authority(value)
            || self.fills_authority && value.is_empty()
        {
            Some(
                "is not a valid host, which HTTP/2 requires in the Host header; use HOST or HOST:PORT",
            )
        } else {
            None
        }
    }
}

/// Reads a data file. `find_use` returns how requests use the column with a name.
pub(crate) fn read(
    path: &Path,
    take: RowChoice,
    find_use: impl Fn(&str) -> ColumnUse,
) -> Result<Feed, FileError> {
    let text = input::read(path).map_err(|what| FileError::in_file(path, what))?;
    let mut csv = Csv::new(&text);
    let mut cells = Vec::new();
    let mut next = |cells: &mut Vec<Vec<u8>>| {
        let row = csv.read_row(cells);
        row.map_err(|(line, what)| FileError::on_line(path, line, what))
    };
    let Some(first_line) = next(&mut cells)? else {
        let what = "the file is empty; write the names of the columns in the first line";
        return Err(FileError::in_file(path, what));
    };
    let in_header = |what: String| FileError::on_line(path, first_line, what);
    let mut names: Vec<String> = Vec::new();
    for (name, column) in cells.iter().zip(1..) {
        let name = String::from_utf8(name.clone());
        let name =
            name.map_err(|_| in_header("a column name is not UTF-8; rename it".to_owned()))?;
        if name.trim().is_empty() {
            return Err(in_header(format!(
                "column {column} has no name; name it, or remove the column"
            )));
        }
        if name.contains(|c: char| "{}\"".contains(c) || c.is_control()) {
            return Err(in_header(format!(
                "column {column}: a name cannot contain braces, double quotes or control characters; \
                 rename it"
            )));
        }
        if names.contains(&name) {
            return Err(in_header(format!(
                "column \"{name}\" occurs twice; rename one"
            )));
        }
        if is_template(&name) || name.starts_with("raw:") {
            return Err(in_header(format!(
                "column name \"{name}\" is reserved for a template; rename the column"
            )));
        }
        names.push(name);
    }
    let uses: Vec<ColumnUse> = names.iter().map(|name| find_use(name)).collect();
    let used = || names.iter().zip(&uses).enumerate();
    let column = |name: &str, is_encoded| FeedColumn {
        name: name.to_owned(),
        is_encoded,
    };
    let columns: Vec<FeedColumn> = used()
        .flat_map(|(_, (name, of))| {
            let encoded = of.encoded.then(|| column(name, true));
            let unchanged = of.is_unchanged().then(|| column(name, false));
            encoded.into_iter().chain(unchanged)
        })
        .collect();
    if columns.is_empty() {
        let what = format!(
            "no request uses a column of this file; write one in a path, a header or a body: {{{}}}",
            names.join("}, {")
        );
        return Err(in_header(what));
    }
    let (mut rows, mut values) = (0, Vec::with_capacity(text.len()));
    while let Some(line) = next(&mut cells)? {
        if cells.len() != names.len() {
            let (found, expected) = (plural(cells.len() as u64, "value"), names.len());
            let what = format!(
                "{found} for {expected} columns; add or remove values, or put values that contain \
                 commas in double quotes"
            );
            return Err(FileError::on_line(path, line, what));
        }
        for (index, (name, of)) in used() {
            let value = &cells[index];
            if let Some(why) = of.obstacle(value) {
                let what = format!("the value of \"{name}\" {why}");
                return Err(FileError::on_line(path, line, what));
            }
            if of.encoded {
                let parts = percent_encode(value, RESERVED);
                push(
                    &mut values,
                    &parts.flat_map(str::bytes).collect::<Vec<u8>>(),
                );
            }
            if of.is_unchanged() {
                push(&mut values, value);
            }
        }
        rows += 1;
    }
    if rows == 0 {
        let what = "the file has no rows after the column names; add at least one";
        return Err(FileError::in_file(path, what));
    }
    Ok(Feed {
        file: path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        take,
        rows,
        columns,
        values: RequestBody::unrecorded(values),
    })
}

/// Appends a value in the form of [`Feed::values`].
fn push(values: &mut Vec<u8>, value: &[u8]) {
    // The file has at most 64 MiB, so even a percent-encoded value has at most 192 MiB.
    values.extend_from_slice(&(value.len() as u32).to_le_bytes());
    values.extend_from_slice(value);
}

/// Reads CSV row by row. Empty lines are skipped.
struct Csv<'a> {
    rest: &'a [u8],
    line: usize,
}

impl<'a> Csv<'a> {
    /// Starts at the first line, after a byte order mark, if there is one.
    fn new(text: &'a [u8]) -> Self {
        Csv {
            rest: text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text),
            line: 1,
        }
    }

    /// Reads the next row into `cells`. Returns the number of its first line, or `None` at the end.
    ///
    /// # Errors
    /// A quoted value does not end, or text follows it. The error contains the line number.
    fn read_row(
        &mut self,
        cells: &mut Vec<Vec<u8>>,
    ) -> Result<Option<usize>, (usize, &'static str)> {
        cells.clear();
        while let [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] = self.rest {
            self.rest = rest;
            self.line += 1;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let first_line = self.line;
        loop {
            let value = match self.rest.strip_prefix(b"\"") {
                Some(quoted) => self.read_quoted(quoted)?,
                None => {
                    let end = self
                        .rest
                        .iter()
                        .position(|byte| matches!(byte, b',' | b'\n'));
                    let (value, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
                    self.rest = rest;
                    let is_last = !rest.starts_with(b",");
                    let without_cr = value.strip_suffix(b"\r").filter(|_| is_last);
                    without_cr.unwrap_or(value).to_vec()
                }
            };
            cells.push(value);
            match self.rest {
                [b',', rest @ ..] => self.rest = rest,
                [b'\n', rest @ ..] | [b'\r', b'\n', rest @ ..] => {
                    self.rest = rest;
                    self.line += 1;
                    return Ok(Some(first_line));
                }
                [] | [b'\r'] => {
                    self.rest = &[];
                    return Ok(Some(first_line));
                }
                _ => {
                    let what = "text after a closing quote; write a quote in a value as \"\"";
                    return Err((self.line, what));
                }
            }
        }
    }

    /// Reads a quoted value. `rest` starts after the opening quote.
    fn read_quoted(&mut self, mut rest: &'a [u8]) -> Result<Vec<u8>, (usize, &'static str)> {
        let first_line = self.line;
        let mut value = Vec::new();
        loop {
            let Some(end) = rest.iter().position(|byte| *byte == b'"') else {
                return Err((
                    first_line,
                    "a quoted value has no closing quote; add a double quote",
                ));
            };
            value.extend_from_slice(&rest[..end]);
            self.line += rest[..end].iter().filter(|byte| **byte == b'\n').count();
            rest = &rest[end + 1..];
            match rest.strip_prefix(b"\"") {
                Some(after) => {
                    value.push(b'"');
                    rest = after;
                }
                None => {
                    self.rest = rest;
                    return Ok(value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file with columns `a` and `b`, which are used in bodies. Returns the feed, or the
    /// error without the path of the temporary directory.
    fn read_text(text: &[u8], of: ColumnUse) -> Result<Feed, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f.csv");
        std::fs::write(&path, text).unwrap();
        read(&path, RowChoice::InTurn, |_| of).map_err(|error| {
            let place = error.place.rsplit('/').next().unwrap().to_owned();
            format!("{place}: {}", error.what)
        })
    }

    const BODY: ColumnUse = ColumnUse {
        encoded: false,
        raw_in_path: false,
        starts_path: false,
        in_header: false,
        in_authority: false,
        fills_authority: false,
        in_body: true,
    };

    /// Returns the values of a feed.
    fn values(feed: &Feed) -> Vec<Vec<u8>> {
        let mut rest = feed.values.bytes().unwrap();
        let mut values = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk() {
            let (value, after) = after.split_at(u32::from_le_bytes(*length) as usize);
            values.push(value.to_vec());
            rest = after;
        }
        values
    }

    #[test]
    fn reads_csv() {
        let expected = |all: &[&str]| {
            all.iter()
                .map(|v| v.as_bytes().to_vec())
                .collect::<Vec<_>>()
        };
        for (text, rows) in [
            ("a,b\n1,2\n", &["1", "2"][..]),
            ("\u{feff}a,b\r\n1,2\r\n3,4", &["1", "2", "3", "4"]),
            ("a,b\n\n1,2\n\r\n\n", &["1", "2"]),
            (
                "a,b\n\"x, \"\"y\"\"\nz\",{seq}\r\n,\n",
                &["x, \"y\"\nz", "{seq}", "", ""],
            ),
            ("\"a\",b\n 1 ,\u{e4}\r", &[" 1 ", "\u{e4}"]),
        ] {
            let feed = read_text(text.as_bytes(), BODY).unwrap();
            assert_eq!(values(&feed), expected(rows), "{text:?}");
            assert_eq!(feed.rows, rows.len() as u64 / 2);
        }
        let latin1 = read_text(b"a,b\n\xe4,1\n", BODY).unwrap();
        assert_eq!(values(&latin1)[0], b"\xe4");
    }

    #[test]
    fn names_the_line_of_an_error() {
        for (text, of, error) in [
            ("", BODY, "f.csv: the file is empty"),
            ("\u{feff}\n", BODY, "f.csv: the file is empty"),
            ("a,b\n", BODY, "f.csv: the file has no rows"),
            ("a,a\n1,2", BODY, "f.csv:1: column \"a\" occurs twice"),
            ("a,b,\n1,2,", BODY, "f.csv:1: column 3 has no name; name it"),
            (
                "a,{b}\n1,2",
                BODY,
                "f.csv:1: column 2: a name cannot contain",
            ),
            (
                "a,seq\n1,2",
                BODY,
                "f.csv:1: column name \"seq\" is reserved for a template",
            ),
            ("a,b\n1,2\n\n3", BODY, "f.csv:4: 1 value for 2 columns"),
            ("a,b\n\"1\n2\",3\n4\n", BODY, "f.csv:4: 1 value for"),
            (
                "a,b\n\"1,2\n",
                BODY,
                "f.csv:2: a quoted value has no closing quote",
            ),
            (
                "a,b\n\"1\"2,3\n",
                BODY,
                "f.csv:2: text after a closing quote",
            ),
            (
                "a,b\n1,2\n",
                ColumnUse::default(),
                "f.csv:1: no request uses",
            ),
            (
                "a,b\n1,\"2\n\"",
                ColumnUse {
                    in_header: true,
                    ..BODY
                },
                "f.csv:2: the value of \"b\" contains a line break",
            ),
            (
                "a,b\n1,x y",
                ColumnUse {
                    raw_in_path: true,
                    ..BODY
                },
                "f.csv:2: the value of \"b\" contains a character",
            ),
            (
                "a,b\n1,x y",
                ColumnUse {
                    in_authority: true,
                    ..BODY
                },
                "f.csv:2: the value of \"b\" is not a valid host, which HTTP/2",
            ),
            (
                "a,b\n1,u@x",
                ColumnUse {
                    in_authority: true,
                    ..BODY
                },
                "f.csv:2: the value of \"b\" is not a valid host",
            ),
            (
                "a,b\n1,\n",
                ColumnUse {
                    fills_authority: true,
                    ..BODY
                },
                "f.csv:2: the value of \"b\" is not a valid host",
            ),
            (
                "a,b\n/1,x",
                ColumnUse {
                    starts_path: true,
                    ..BODY
                },
                "f.csv:2: the value of \"b\" does not start with",
            ),
        ] {
            let found = read_text(text.as_bytes(), of).unwrap_err();
            assert!(found.starts_with(error), "{text:?}: {found}");
        }
        let found = read_text(b"\xff,b\n1,2", BODY).unwrap_err();
        assert!(
            found.starts_with("f.csv:1: a column name is not UTF-8"),
            "{found}"
        );
    }

    #[test]
    fn encodes_values_for_paths() {
        let of = ColumnUse {
            encoded: true,
            ..BODY
        };
        let feed = read_text("a,b\na/b c,\u{e4}&~{".as_bytes(), of).unwrap();
        let expected = ["a%2Fb%20c", "a/b c", "%C3%A4%26~%7B", "\u{e4}&~{"];
        let found = values(&feed);
        assert!(
            found
                .iter()
                .eq(expected.iter().map(|value| value.as_bytes())),
            "{found:?}"
        );
    }
}
