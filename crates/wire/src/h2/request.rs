//! Request heads, encoded once and sent many times.

use super::hpack::table::{ENTRY_OVERHEAD, STATIC};
use super::hpack::{DEFAULT_TABLE_BYTES, integer};
use super::response::is_connection_field;
use crate::request::{
    RequestError, RequestSpec, USER_AGENT, adds_length, check_headers, check_line, is_given,
};

/// Scheme of a request's URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Plain text.
    Http,
    /// TLS.
    Https,
}

/// A field of a request head: a pseudo-header or a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestField {
    /// Lower-case name.
    pub name: String,
    /// Value.
    pub value: FieldValue,
}

/// Value of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue {
    /// The same value in every request.
    Constant(String),
    /// A value that is generated per request.
    Varying,
}

impl RequestField {
    fn constant(name: &str, value: &str) -> Self {
        RequestField {
            name: name.to_owned(),
            value: FieldValue::Constant(value.to_owned()),
        }
    }

    /// Returns the name and value of a constant field that is not an entry of the static table.
    fn as_insertable(&self) -> Option<(&str, &str)> {
        let FieldValue::Constant(value) = &self.value else {
            return None;
        };
        let entry = (self.name.as_str(), value.as_str());
        (!STATIC.contains(&entry)).then_some(entry)
    }
}

/// Returns the fields of a request whose body has `length` bytes.
///
/// The fields are those of the HTTP/1.1 request ([`request_bytes`](crate::request_bytes)) in the
/// same order. `:authority` replaces `Host`, and the value of [`RequestSpec::close`] is ignored.
/// Without a `length`, the value of `content-length` varies.
///
/// # Errors
/// The request would be invalid, or a header belongs to HTTP/1.1.
pub fn request_fields(
    spec: &RequestSpec<'_>,
    scheme: Scheme,
    length: Option<usize>,
) -> Result<Vec<RequestField>, RequestError> {
    let is_host = |name: &str| name.eq_ignore_ascii_case("host");
    let host = spec.headers.iter().find(|(name, _)| is_host(name));
    let authority = host.map_or(spec.authority, |(_, value)| trim(value));
    check_line(&RequestSpec { authority, ..*spec })?;
    for (name, value) in spec.headers {
        let lower = name.to_ascii_lowercase();
        let is_te = lower == "te" && !trim(value).eq_ignore_ascii_case("trailers");
        if is_te || is_connection_field(lower.as_bytes()) {
            return Err(RequestError::NotInHttp2(name.clone()));
        }
    }
    check_headers(spec, length)?;
    let scheme = match scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let mut fields = vec![
        RequestField::constant(":method", spec.method),
        RequestField::constant(":scheme", scheme),
        RequestField::constant(":authority", authority),
        RequestField::constant(":path", spec.path),
    ];
    for (name, value) in [("user-agent", USER_AGENT), ("accept", "*/*")] {
        if !is_given(spec.headers, name) {
            fields.push(RequestField::constant(name, value));
        }
    }
    let given = spec.headers.iter().filter(|(name, _)| !is_host(name));
    fields.extend(
        given.map(|(name, value)| RequestField::constant(&name.to_ascii_lowercase(), trim(value))),
    );
    if adds_length(spec) {
        let value = length.map(|length| FieldValue::Constant(length.to_string()));
        fields.push(RequestField {
            name: "content-length".to_owned(),
            value: value.unwrap_or(FieldValue::Varying),
        });
    }
    Ok(fields)
}

/// Removes white space around a header's value (RFC 9110 section 5.5).
fn trim(value: &str) -> &str {
    value.trim_matches([' ', '\t'])
}

/// Removes white space around the text from `start` to the end of `out`.
fn trim_from(start: usize, out: &mut Vec<u8>) {
    let is_text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let text = &out[start..];
    let length = text.iter().rposition(is_text).map_or(0, |last| last + 1);
    let before = text[..length].iter().position(is_text).unwrap_or(0);
    out.truncate(start + length);
    out.drain(start..start + before);
}

/// Form of a request head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The first request on a connection inserts the shared fields into the server's dynamic table.
    First,
    /// Later requests refer to the shared fields.
    Later,
    /// The server's dynamic table is too small, so only the static table is used.
    Static,
}

/// The encoded heads of all requests that may be sent on the same connection.
///
/// Constant fields that all requests contain, in the same order, are shared: they are transmitted
/// once per connection (RFC 7541 section 2.3.2) if they fit in a table of the default size.
///
/// Varying values are literals without indexing and without Huffman coding. Therefore the entries of
/// the server's dynamic table never move, and a session needs no encoder.
#[derive(Debug)]
pub struct RequestHeads {
    pub(super) heads: Vec<RequestHead>,
    /// Size of the dynamic table that the shared fields need, in bytes.
    pub(super) table_bytes: usize,
}

#[derive(Debug)]
pub(super) struct RequestHead {
    /// Indexed by [`Form`].
    forms: [Block; 3],
    /// Whether the method is HEAD, so the response has no body.
    pub is_head_request: bool,
}

#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    /// Positions in `bytes` of the varying values.
    gaps: Vec<usize>,
}

impl RequestHeads {
    /// Encodes the heads of requests with these fields.
    #[must_use]
    pub fn new(requests: &[Vec<RequestField>]) -> Self {
        let shared = shared_fields(requests);
        let encode = |fields: &Vec<RequestField>| RequestHead {
            forms: [Form::First, Form::Later, Form::Static]
                .map(|form| block(fields, &shared, form)),
            is_head_request: fields.contains(&RequestField::constant(":method", "HEAD")),
        };
        RequestHeads {
            heads: requests.iter().map(encode).collect(),
            table_bytes: shared.iter().map(entry_size).sum(),
        }
    }
}

/// Returns the size of an entry in the dynamic table, in bytes (RFC 7541 section 4.1).
fn entry_size((name, value): &(&str, &str)) -> usize {
    name.len() + value.len() + ENTRY_OVERHEAD
}

/// Returns the shared fields in the order of the requests.
fn shared_fields(requests: &[Vec<RequestField>]) -> Vec<(&str, &str)> {
    let first = requests.first().map_or(&[][..], Vec::as_slice);
    let mut shared = Vec::new();
    let mut table_left = DEFAULT_TABLE_BYTES as usize;
    // The part of each request after the last shared field.
    let mut rests: Vec<&[RequestField]> = requests.iter().map(Vec::as_slice).collect();
    for field in first {
        let Some(entry) = field.as_insertable() else {
            continue;
        };
        let Some(left) = table_left.checked_sub(entry_size(&entry)) else {
            continue;
        };
        let after = |rest: &&[RequestField]| {
            let at = rest.iter().position(|other| other == field)?;
            Some(at + 1)
        };
        let Some(starts) = rests.iter().map(after).collect::<Option<Vec<_>>>() else {
            continue;
        };
        for (rest, start) in rests.iter_mut().zip(starts) {
            *rest = &rest[start..];
        }
        table_left = left;
        shared.push(entry);
    }
    shared
}

/// Encodes a request whose shared fields have the given order.
fn block(fields: &[RequestField], shared: &[(&str, &str)], form: Form) -> Block {
    let mut block = Block::default();
    let mut shared_left = shared;
    for field in fields {
        let name = &field.name;
        let name_index = STATIC.iter().position(|(entry, _)| entry == name);
        let name_index = name_index.map_or(0, |index| index + 1);
        let out = &mut block.bytes;
        let mut literal = |bits, pattern| {
            integer::encode(name_index, bits, pattern, out);
            if name_index == 0 {
                string(name, out);
            }
        };
        match (&field.value, field.as_insertable()) {
            (FieldValue::Varying, _) => {
                literal(4, 0);
                block.gaps.push(block.bytes.len());
            }
            (FieldValue::Constant(value), None) => {
                let entry = (name.as_str(), value.as_str());
                let index = STATIC.iter().position(|other| *other == entry);
                let index = index.expect("the field is in the static table");
                integer::encode(index + 1, 7, 0x80, out);
            }
            (FieldValue::Constant(value), Some(entry)) => {
                let is_shared = shared_left.first() == Some(&entry);
                shared_left = &shared_left[usize::from(is_shared)..];
                match form {
                    // The newest entry has the lowest index.
                    Form::Later if is_shared => {
                        integer::encode(STATIC.len() + 1 + shared_left.len(), 7, 0x80, out);
                        continue;
                    }
                    Form::First if is_shared => literal(6, 0x40),
                    _ => literal(4, 0),
                }
                string(value, out);
            }
        }
    }
    block
}

/// Appends a string without Huffman coding.
fn string(text: &str, out: &mut Vec<u8>) {
    integer::encode(text.len(), 7, 0, out);
    out.extend_from_slice(text.as_bytes());
}

impl RequestHead {
    /// Appends the field block. `value` appends the varying value with the given number. White space
    /// around the value is removed.
    pub fn write(&self, form: Form, mut value: impl FnMut(usize, &mut Vec<u8>), out: &mut Vec<u8>) {
        let Block { bytes, gaps } = &self.forms[form as usize];
        let mut from = 0;
        for (i, &gap) in gaps.iter().enumerate() {
            out.extend_from_slice(&bytes[from..gap]);
            from = gap;
            let start = out.len();
            value(i, out);
            trim_from(start, out);
            let end = out.len();
            integer::encode(end - start, 7, 0, out);
            // The length goes before the value.
            let length_bytes = out.len() - end;
            out[start..].rotate_right(length_bytes);
        }
        out.extend_from_slice(&bytes[from..]);
    }
}

#[cfg(test)]
mod tests;
