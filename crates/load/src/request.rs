//! Prepares a plan's requests for sending. Constant requests become bytes, and varying requests
//! become templates.

mod http2;

use std::borrow::Cow;
use std::sync::Arc;

use floodmark_record::feed::{Feed, FeedColumn};
use floodmark_record::operation::key_of;
use floodmark_record::plan::{Check, CloseFirst, Http, Http2, MixRequest, Plan, Target};
use floodmark_wire::{RequestError, RequestSpec, request_head};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::feed::FeedTable;
use crate::mix::below;

pub use http2::{Http2Requests, StartedBody, http2_requests};

/// Maximum length in bytes of a request with templates.
/// Each connection may keep one rendered request in memory.
pub const LONGEST_VARYING: usize = 64 * 1024;

/// A request in two forms: one that keeps the connection open, and one for the last request on a
/// connection.
#[derive(Debug)]
pub enum EncodedRequest {
    /// The same bytes for every request. All load threads share them, and so do the two forms if
    /// they are equal.
    Fixed([Arc<Vec<u8>>; 2]),
    /// Rendered anew for every request.
    Varying(Arc<Varying>),
}

/// A request with placeholders.
#[derive(Debug)]
pub struct Varying {
    heads: [EncodedHead; 2],
    body: RequestTemplate,
    longest: usize,
}

/// A request head in two parts. Unless the second part is empty, the body's length is between the
/// two parts.
#[derive(Debug)]
struct EncodedHead {
    before: RequestTemplate,
    after: RequestTemplate,
}

/// The reason why one of a plan's requests cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct RequestFault {
    /// Index of the request in the mix; 0 without a mix.
    pub index: usize,
    /// The invalid part.
    pub place: RequestPart,
    /// The error.
    #[source]
    pub fault: InvalidRequest,
}

/// A part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPart {
    /// The method.
    Method,
    /// Path and query.
    Path,
    /// Header names and values.
    Headers,
    /// The body.
    Body,
}

/// The reason why a request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// The request is not legal HTTP.
    #[error(transparent)]
    EncodedRequest(#[from] RequestError),
    /// A template is invalid.
    #[error(transparent)]
    RequestTemplate(#[from] TemplateError),
    /// A path with templates contains a brace that is not part of a template.
    #[error(
        "path {0:?} contains a brace that is not part of a template; write {{seq}}, {{rand:1-1000}}, {{uuid}} or the name of a column of a [[feed]], or encode the brace as %7B or %7D"
    )]
    Brace(String),
    /// A `Connection` header has templates. It decides whether a connection is kept.
    #[error(
        "header \"Connection\" does not support templates; remove the header, and use --fresh to close each connection after one response"
    )]
    VaryingConnection,
    /// The plan comes from a record, which contains only the hash of the body.
    #[error("the record does not contain the body; measure again with the original file")]
    MissingBody,
    /// The plan comes from a record, which does not contain the credentials in the URL.
    #[error(
        "the record does not contain the URL's user and password; measure again with the original URL"
    )]
    MissingCredentials,
    /// The plan comes from a record, which does not contain the values of data files.
    #[error("the record does not contain the values of {0}; measure again with the original file")]
    MissingValues(String),
    /// The request has templates and is too long.
    #[error(
        "the request can become {0} bytes long, but the limit with templates is {LONGEST_VARYING}; shorten it or set templates = false"
    )]
    TooLong(usize),
}

/// A request before it is encoded.
struct RequestText<'a> {
    target: &'a Target,
    /// Whether the last request on a connection has a `Connection: close` header.
    closes_last: bool,
    /// The check's number of keys; `None` without a check.
    keys: Option<u64>,
    feeds: &'a [NamedTable<'a>],
    of: &'a MixRequest,
}

/// The columns and the values of a feed.
#[derive(Debug)]
struct NamedTable<'a> {
    columns: &'a [FeedColumn],
    values: Arc<FeedTable>,
}

/// The placeholders in a text, in addition to `{seq}`, `{rand:a-b}` and `{uuid}`.
#[derive(Debug, Clone, Copy, Default)]
pub struct TemplateNames<'a> {
    /// The check's number of keys (`{key}`); `None` without a check.
    keys: Option<u64>,
    feeds: &'a [NamedTable<'a>],
    /// Whether the text is a path, in which values are percent-encoded.
    is_path: bool,
}

/// All of a plan's requests, in the order of the mix, for the plan's version of HTTP.
#[derive(Debug)]
pub enum PlanRequests {
    /// Requests for HTTP/1.1.
    Http1(Vec<EncodedRequest>),
    /// Requests for HTTP/2, and its settings.
    Http2(Http2, Arc<Http2Requests>),
}

impl PlanRequests {
    /// Prepares a plan's requests.
    ///
    /// # Errors
    /// Returns the reason why the first invalid request cannot be sent.
    pub fn of(plan: &Plan) -> Result<Self, RequestFault> {
        Ok(match plan.http {
            Http::V1 => PlanRequests::Http1(requests(plan)?),
            Http::V2(settings) => PlanRequests::Http2(settings, Arc::new(http2_requests(plan)?)),
        })
    }

    /// Returns the requests for HTTP/1.1; none with HTTP/2.
    pub(crate) fn http1(&self) -> &[EncodedRequest] {
        match self {
            PlanRequests::Http1(requests) => requests,
            PlanRequests::Http2(..) => &[],
        }
    }

    /// Returns the maximum number of bytes that are sent together. HTTP/2 sends any number of
    /// requests together.
    #[must_use]
    pub fn longest(&self) -> usize {
        match self {
            PlanRequests::Http1(requests) => longest(requests),
            PlanRequests::Http2(..) => usize::MAX,
        }
    }
}

/// Prepares all of a plan's requests for HTTP/1.1, in the order of the mix.
///
/// # Errors
/// Returns the reason why the first invalid request cannot be sent.
pub fn requests(plan: &Plan) -> Result<Vec<EncodedRequest>, RequestFault> {
    encode_all(plan, |text| text.http1())
}

/// Encodes each of a plan's requests.
fn encode_all<T>(
    plan: &Plan,
    encode: impl Fn(&RequestText<'_>) -> Result<T, (RequestPart, InvalidRequest)>,
) -> Result<Vec<T>, RequestFault> {
    let api = plan.check.as_ref().and_then(Check::api);
    let feeds = plan.mix.iter().flat_map(|mix| &mix.feeds);
    let table = |feed: &'_ Feed| {
        let values = FeedTable::of(feed).ok_or_else(|| RequestFault {
            index: 0,
            place: RequestPart::Body,
            fault: InvalidRequest::MissingValues(feed.file.clone()),
        })?;
        Ok(Arc::new(values))
    };
    let tables = feeds.clone().map(table).collect::<Result<Vec<_>, _>>()?;
    let named = feeds.zip(tables).map(|(feed, values)| NamedTable {
        columns: &feed.columns,
        values,
    });
    let feeds: Vec<NamedTable<'_>> = named.collect();
    let encode_one = |(index, of)| {
        let text = RequestText {
            target: &plan.target,
            closes_last: plan.close_first == CloseFirst::Server,
            keys: api.map(|api| api.keys),
            feeds: &feeds,
            of,
        };
        encode(&text).map_err(|fault| at_index(index, fault))
    };
    of_plan(plan).iter().enumerate().map(encode_one).collect()
}

/// Prepares one request of a check. `keys` is the check's number of keys.
///
/// # Errors
/// The request cannot be sent. The index of the fault is always 0.
pub fn check_request(
    of: &MixRequest,
    target: &Target,
    keys: u64,
) -> Result<EncodedRequest, RequestFault> {
    let text = RequestText {
        target,
        closes_last: false,
        keys: Some(keys),
        feeds: &[],
        of,
    };
    text.http1().map_err(|fault| at_index(0, fault))
}

fn at_index(index: usize, (place, fault): (RequestPart, InvalidRequest)) -> RequestFault {
    RequestFault {
        index,
        place,
        fault,
    }
}

/// Returns the length of the longest request in bytes.
#[must_use]
pub fn longest(requests: &[EncodedRequest]) -> usize {
    requests
        .iter()
        .map(EncodedRequest::longest)
        .max()
        .unwrap_or(0)
}

/// Returns the requests in a plan's mix. Without a mix, returns the plan's only request.
pub(crate) fn of_plan(plan: &Plan) -> Cow<'_, [MixRequest]> {
    match &plan.mix {
        Some(mix) => Cow::Borrowed(&mix.requests),
        None => Cow::Owned(vec![MixRequest {
            name: String::new(),
            weight: 1,
            path: plan.target.path.clone(),
            request: plan.request.clone(),
            expect: plan.expect.clone(),
            templates: false,
        }]),
    }
}

impl RequestText<'_> {
    fn body(&self) -> Result<&[u8], (RequestPart, InvalidRequest)> {
        let body = self.of.request.body.bytes();
        body.ok_or((RequestPart::Body, InvalidRequest::MissingBody))
    }

    fn http1(&self) -> Result<EncodedRequest, (RequestPart, InvalidRequest)> {
        let bytes = self.body()?;
        if !self.of.templates {
            let [kept, last] = self.closes().map(|close| {
                let [before, after] = self.head(close, bytes, Some(bytes.len()))?;
                Ok([before, after].concat())
            });
            return Ok(EncodedRequest::fixed([kept?, last?], bytes));
        }
        let body = self.template(bytes, RequestPart::Body)?;
        let path = self.template(self.of.path.as_bytes(), RequestPart::Path)?;
        self.check_braces(&path)?;
        let [kept, last] = self.closes().map(|close| {
            let length = (!body.varies()).then(|| body.longest());
            let [before, after] = self.head(close, bytes, length)?;
            // Values in the path are encoded, and values in headers are not.
            let path_end = self.of.request.method.len() + 1 + self.of.path.len();
            let (to_path, headers) = before.split_at(path_end);
            let mut before = self.template(to_path, RequestPart::Path)?;
            let headers = self.template(headers, RequestPart::Headers)?;
            before.parts.extend(headers.parts);
            Ok(EncodedHead {
                before,
                after: self.template(&after, RequestPart::Headers)?,
            })
        });
        let heads = [kept?, last?];
        let longest = heads.iter().map(EncodedHead::longest).max().unwrap_or(0) + body.longest();
        let request = Varying {
            heads,
            body,
            longest,
        };
        if !request.varies() {
            let whole = [false, true].map(|last| {
                let mut bytes = Vec::with_capacity(longest);
                request.render((0, 0), last, &mut Vec::new(), &mut bytes);
                bytes
            });
            return Ok(EncodedRequest::fixed(whole, b""));
        }
        if longest > LONGEST_VARYING {
            return Err((RequestPart::Body, InvalidRequest::TooLong(longest)));
        }
        Ok(EncodedRequest::Varying(Arc::new(request)))
    }

    /// Checks that all braces in the path belong to templates.
    fn check_braces(&self, path: &RequestTemplate) -> Result<(), (RequestPart, InvalidRequest)> {
        if path.holds(b'{') || path.holds(b'}') {
            let fault = InvalidRequest::Brace(self.of.path.clone());
            return Err((RequestPart::Path, fault));
        }
        Ok(())
    }

    /// Returns whether the connection closes after each of the two forms of a request.
    fn closes(&self) -> [bool; 2] {
        [false, self.closes_last]
    }

    /// Builds the head of a request, in two parts. Without a `length`, the body's length is between
    /// the parts.
    fn head(
        &self,
        close: bool,
        body: &[u8],
        length: Option<usize>,
    ) -> Result<[Vec<u8>; 2], (RequestPart, InvalidRequest)> {
        let head = |spec: &RequestSpec<'_>| request_head(spec, length);
        let (mut parts, has_extra_slash) = self.checked(close, body, head)?;
        if has_extra_slash {
            parts[0].remove(self.of.request.method.len() + 1);
        }
        Ok(parts)
    }

    /// Builds a request head with `build`, which checks the text before its templates are rendered.
    /// Rendered values are valid where templates are allowed: a feed has been checked for its uses
    /// in paths and headers.
    ///
    /// Also returns whether the path has an extra slash, because a value provides its first slash.
    fn checked<T>(
        &self,
        close: bool,
        body: &[u8],
        build: impl Fn(&RequestSpec<'_>) -> Result<T, RequestError>,
    ) -> Result<(T, bool), (RequestPart, InvalidRequest)> {
        let headers = self.target.authorize(&self.of.request.headers);
        let headers = headers.ok_or((RequestPart::Headers, InvalidRequest::MissingCredentials))?;
        for (name, value) in headers.iter() {
            let is_connection = self.of.templates && name.eq_ignore_ascii_case("Connection");
            if is_connection
                && self
                    .template(value.as_bytes(), RequestPart::Headers)?
                    .varies()
            {
                return Err((RequestPart::Headers, InvalidRequest::VaryingConnection));
            }
        }
        // Values at the start of a path have the leading slash.
        let starts_with_value = self.of.templates && self.of.path.starts_with("{raw:");
        let path = if starts_with_value {
            Cow::Owned(format!("/{}", self.of.path))
        } else {
            Cow::Borrowed(&self.of.path)
        };
        let spec = RequestSpec {
            method: &self.of.request.method,
            path: &path,
            authority: &self.target.authority,
            headers: &headers,
            body,
            close,
        };
        let head = build(&spec).map_err(|error| (place(&error), error.into()))?;
        Ok((head, starts_with_value))
    }

    fn template(
        &self,
        text: &[u8],
        place: RequestPart,
    ) -> Result<RequestTemplate, (RequestPart, InvalidRequest)> {
        let names = TemplateNames {
            keys: self.keys,
            feeds: self.feeds,
            is_path: place == RequestPart::Path,
        };
        RequestTemplate::parse(text, &names).map_err(|error| (place, error.into()))
    }
}

/// Returns the part of a request that an error refers to.
fn place(error: &RequestError) -> RequestPart {
    match error {
        RequestError::MethodNotAToken(_) | RequestError::Connect => RequestPart::Method,
        RequestError::IllegalPath(_)
        | RequestError::PathWithoutSlash(_)
        | RequestError::EmptyAuthority
        | RequestError::IllegalAuthority(_) => RequestPart::Path,
        RequestError::HeaderNameNotAToken(_)
        | RequestError::IllegalHeaderValue(_)
        | RequestError::Repeated(_)
        | RequestError::ContentLength { .. }
        | RequestError::LengthOfVarying
        | RequestError::TransferEncoding
        | RequestError::NotInHttp2(_)
        | RequestError::Connection { .. } => RequestPart::Headers,
    }
}

impl EncodedHead {
    fn longest(&self) -> usize {
        const LONGEST_LENGTH: usize = 20;
        self.before.longest() + LONGEST_LENGTH + self.after.longest()
    }
}

impl EncodedRequest {
    /// Builds a request from the start of each of its two forms and the rest, which is the same in
    /// both.
    fn fixed([kept, last]: [Vec<u8>; 2], rest: &[u8]) -> Self {
        let whole = |start: &[u8]| Arc::new([start, rest].concat());
        let first = whole(&kept);
        let second = if kept == last {
            Arc::clone(&first)
        } else {
            whole(&last)
        };
        EncodedRequest::Fixed([first, second])
    }

    /// Returns the maximum length of the request in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        match self {
            EncodedRequest::Fixed([kept, last]) => kept.len().max(last.len()),
            EncodedRequest::Varying(varying) => varying.longest,
        }
    }

    /// Returns the bytes of request `number`, in the form that keeps the connection open. Random
    /// values depend only on the number.
    #[must_use]
    pub fn bytes(&self, number: u64) -> Vec<u8> {
        match self {
            EncodedRequest::Fixed([kept, _]) => kept.to_vec(),
            EncodedRequest::Varying(varying) => {
                let mut out = Vec::new();
                varying.render((0, number), false, &mut Vec::new(), &mut out);
                out
            }
        }
    }
}

impl Varying {
    fn varies(&self) -> bool {
        let head = |head: &EncodedHead| head.before.varies() || head.after.varies();
        self.body.varies() || self.heads.iter().any(head)
    }

    /// Appends the request with this number. `last` selects the form for the last request on a
    /// connection.
    /// Both forms contain the same values, which depend only on `seed` and `number`. The body is
    /// rendered into `scratch` first, because the head contains its length.
    /// The call does not allocate memory if both buffers have room for [`EncodedRequest::longest`]
    /// bytes.
    pub fn render(
        &self,
        (seed, number): (u64, u64),
        last: bool,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) {
        let mut random = randomness(seed, number);
        let request = (seed, number);
        scratch.clear();
        self.body.render(request, &mut random, scratch);
        let EncodedHead { before, after } = &self.heads[usize::from(last)];
        before.render(request, &mut random, out);
        if !after.is_empty() {
            push_decimal(scratch.len() as u64, out);
            after.render(request, &mut random, out);
        }
        out.extend_from_slice(scratch);
    }
}

/// Maximum number of decimal digits in a 64-bit number.
const LONGEST_NUMBER: usize = 20;

/// Number of characters in a UUID.
const UUID_LENGTH: usize = 36;

/// Placeholder for a key.
const KEY: &[u8] = b"{key}";

/// Text in which `{seq}`, `{rand:a-b}` and `{uuid}` are replaced with new values in each request.
/// In the requests of a check, `{key}` is replaced as well.
///
/// All other braces are literal. Braces in a JSON body need no escaping, because valid JSON cannot
/// contain `{seq}` outside strings. To send a literal `{seq}`, write `{{seq}}`. The other
/// placeholders follow the same rule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestTemplate {
    parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(Vec<u8>),
    Marker(Marker),
    /// A value from this column of a feed.
    Value(Arc<FeedTable>, usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    /// The request's number.
    Seq,
    /// An integer in an inclusive range.
    Rand { low: u64, high: u64 },
    /// A random UUID (version 4, RFC 9562).
    Uuid,
    /// The request's key.
    Key { keys: u64 },
}

/// A `{rand:…}` is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid template \"{0}\"; write two integers, the smaller first, such as {{rand:1-1000}}, or set templates = false to send the text unchanged"
)]
pub struct TemplateError(String);

impl RequestTemplate {
    /// Parses text with placeholders. With `keys`, `{key}` is a placeholder for a number from 1 to
    /// `keys`.
    ///
    /// # Errors
    /// Fails if a `{rand:…}` does not contain two integers, the smaller number first.
    pub fn parse(text: &[u8], names: &TemplateNames<'_>) -> Result<Self, TemplateError> {
        let placeholder = |text: &[u8]| match names.at_start(text) {
            Some(found) => Ok(Some(found)),
            None => {
                let marker = marker(text)?;
                Ok(marker.map(|(marker, length)| (TemplatePart::Marker(marker), length)))
            }
        };
        let mut template = RequestTemplate::default();
        let mut rest = text;
        while let Some(at) = rest.iter().position(|b| *b == b'{') {
            template.push_text(&rest[..at]);
            rest = &rest[at..];
            let length = if let Some((part, length)) = placeholder(rest)? {
                template.parts.push(part);
                length
            } else if let Some((_, length)) = placeholder(&rest[1..])?
                && rest.get(1 + length) == Some(&b'}')
            {
                template.push_text(&rest[1..=length]);
                length + 2
            } else {
                template.push_text(&rest[..1]);
                1
            };
            rest = &rest[length..];
        }
        template.push_text(rest);
        Ok(template)
    }

    fn push_text(&mut self, text: &[u8]) {
        match self.parts.last_mut() {
            _ if text.is_empty() => {}
            Some(TemplatePart::Text(before)) => before.extend_from_slice(text),
            _ => self.parts.push(TemplatePart::Text(text.to_vec())),
        }
    }

    /// Returns text without placeholders.
    fn literal(text: &[u8]) -> Self {
        let mut template = RequestTemplate::default();
        template.push_text(text);
        template
    }

    /// Returns the text if it has no placeholders.
    #[must_use]
    pub fn as_literal(&self) -> Option<&[u8]> {
        match &self.parts[..] {
            [] => Some(&[]),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Returns whether the text contains placeholders.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.parts
            .iter()
            .any(|part| !matches!(part, TemplatePart::Text(_)))
    }

    /// Returns whether the text contains `{seq}`.
    #[must_use]
    pub fn has_seq(&self) -> bool {
        self.parts.contains(&TemplatePart::Marker(Marker::Seq))
    }

    /// Returns whether the text contains the placeholder `{key}`.
    #[must_use]
    pub fn has_key(&self) -> bool {
        let is_key = |part: &TemplatePart| matches!(part, TemplatePart::Marker(Marker::Key { .. }));
        self.parts.iter().any(is_key)
    }

    /// Returns whether the template is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns whether the literal text contains `byte`.
    #[must_use]
    pub fn holds(&self, byte: u8) -> bool {
        let in_text =
            |part: &TemplatePart| matches!(part, TemplatePart::Text(text) if text.contains(&byte));
        self.parts.iter().any(in_text)
    }

    /// Returns the maximum length of the rendered text in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        let longest = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.len(),
            TemplatePart::Value(values, column) => values.longest(*column),
            TemplatePart::Marker(Marker::Uuid) => UUID_LENGTH,
            TemplatePart::Marker(Marker::Seq | Marker::Rand { .. } | Marker::Key { .. }) => {
                LONGEST_NUMBER
            }
        };
        self.parts.iter().map(longest).sum()
    }

    /// Appends the text of request `number`, rendered with the load's seed.
    /// Does not allocate if `out` has room for [`RequestTemplate::longest`].
    pub fn render(&self, (seed, number): (u64, u64), random: &mut impl Rng, out: &mut Vec<u8>) {
        for part in &self.parts {
            match part {
                TemplatePart::Text(text) => out.extend_from_slice(text),
                TemplatePart::Value(values, column) => {
                    out.extend_from_slice(values.value(seed, number, *column));
                }
                TemplatePart::Marker(Marker::Seq) => push_decimal(number, out),
                TemplatePart::Marker(Marker::Rand { low, high }) => {
                    // The number of values in the full 64-bit range overflows, but 64 random bits
                    // are already uniformly distributed over this range.
                    let value = match (high - low).checked_add(1) {
                        Some(n) => low + below(random, n),
                        None => random.next_u64(),
                    };
                    push_decimal(value, out);
                }
                TemplatePart::Marker(Marker::Uuid) => push_uuid(random, out),
                TemplatePart::Marker(Marker::Key { keys }) => {
                    push_decimal(key_of(number, *keys), out);
                }
            }
        }
    }
}

impl TemplateNames<'_> {
    /// Returns the placeholders of a check with this number of keys.
    #[must_use]
    pub fn of_check(keys: u64) -> Self {
        TemplateNames {
            keys: Some(keys),
            ..TemplateNames::default()
        }
    }

    /// Returns the placeholder at the start of `text`, if any, and its length.
    fn at_start(&self, text: &[u8]) -> Option<(TemplatePart, usize)> {
        if let Some(keys) = self.keys.filter(|_| text.starts_with(KEY)) {
            return Some((TemplatePart::Marker(Marker::Key { keys }), KEY.len()));
        }
        if self.feeds.is_empty() {
            return None;
        }
        let name = text.strip_prefix(b"{")?;
        let name = &name[..name.iter().position(|byte| *byte == b'}')?];
        let length = name.len() + 2;
        let (name, is_raw) = match name.strip_prefix(b"raw:") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let is_it = |column: &FeedColumn| {
            column.name.as_bytes() == name && column.is_encoded == (self.is_path && !is_raw)
        };
        self.feeds.iter().find_map(|feed| {
            let column = feed.columns.iter().position(is_it)?;
            Some((
                TemplatePart::Value(Arc::clone(&feed.values), column),
                length,
            ))
        })
    }
}

/// Returns the first text that looks like a template but is not one: a name in braces, such as
/// `{token}`, that is not the name of a column of `feeds`. Skips text in double braces, such as
/// `{{token}}`.
#[must_use]
pub fn literal_template<'a>(text: &'a [u8], feeds: &[Feed]) -> Option<&'a str> {
    let columns = || feeds.iter().flat_map(|feed| &feed.columns);
    let is_column = |template: &[u8]| {
        let name = &template[1..template.len() - 1];
        let name = name.strip_prefix(b"raw:").unwrap_or(name);
        columns().any(|column| column.name.as_bytes() == name)
    };
    let mut at = 0;
    while let Some(start) = text[at..].iter().position(|byte| *byte == b'{') {
        let rest = &text[at + start..];
        let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-:".contains(byte);
        let length = 1 + rest[1..].iter().take_while(|byte| is_name(byte)).count();
        let is_whole =
            length > 1 && rest[1].is_ascii_alphabetic() && rest.get(length) == Some(&b'}');
        let is_escaped = (at + start)
            .checked_sub(1)
            .is_some_and(|before| text[before] == b'{');
        let template = &rest[..=length.min(rest.len() - 1)];
        let is_known = template == KEY || !matches!(marker(template), Ok(None));
        if is_whole && !is_escaped && !is_known && !is_column(template) {
            return std::str::from_utf8(template).ok();
        }
        at += start + 1;
    }
    None
}

/// Creates the source of random values for request `number`.
/// The seed and the number determine the initial state, so every thread that sends this request
/// sends the same bytes.
fn randomness(seed: u64, number: u64) -> Xoshiro256PlusPlus {
    // The factor is odd, so different numbers map to different states. `seed_from_u64` mixes these
    // states (SplitMix64).
    let of_seed = seed.rotate_left(32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    Xoshiro256PlusPlus::seed_from_u64(
        of_seed.wrapping_add(number.wrapping_mul(0x2545_f491_4f6c_dd1d)),
    )
}

/// Parses the placeholder at the start of `text`, if any. Returns the placeholder and its length.
fn marker(text: &[u8]) -> Result<Option<(Marker, usize)>, TemplateError> {
    for (name, marker) in [("{seq}", Marker::Seq), ("{uuid}", Marker::Uuid)] {
        if text.starts_with(name.as_bytes()) {
            return Ok(Some((marker, name.len())));
        }
    }
    const RAND: &[u8] = b"{rand:";
    if !text.starts_with(RAND) {
        return Ok(None);
    }
    let end = text.iter().position(|b| matches!(b, b'}' | b'\n' | b'\r'));
    let end = end.unwrap_or(text.len());
    let whole = &text[..text.len().min(end + 1)];
    let error =
        || TemplateError(String::from_utf8_lossy(&whole[..whole.len().min(60)]).into_owned());
    let range = std::str::from_utf8(&text[RAND.len()..end]).map_err(|_| error())?;
    let (low, high) = range.split_once('-').ok_or_else(error)?;
    let bound = |digits: &str| -> Option<u64> {
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse().ok().filter(|_| plain)
    };
    match (bound(low), bound(high)) {
        (Some(low), Some(high)) if low <= high && whole.ends_with(b"}") => {
            Ok(Some((Marker::Rand { low, high }, whole.len())))
        }
        _ => Err(error()),
    }
}

/// Appends a number in decimal.
pub fn push_decimal(mut number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; LONGEST_NUMBER];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends a random UUID (version 4, RFC 9562, section 5.4).
fn push_uuid(random: &mut impl Rng, out: &mut Vec<u8>) {
    let bits = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | 0x4 << 76 | 0x2 << 62;
    let mut text = [b'-'; UUID_LENGTH];
    let places = (0..UUID_LENGTH).filter(|place| !matches!(place, 8 | 13 | 18 | 23));
    for (place, digit) in places.zip((0..32).rev()) {
        text[place] = b"0123456789abcdef"[(bits >> (4 * digit)) as usize & 0xf];
    }
    out.extend_from_slice(&text);
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "template_tests.rs"]
mod template_tests;
