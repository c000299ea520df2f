//! Prepares a plan's requests for sending. Constant requests become bytes, and varying requests
//! become templates.

use std::borrow::Cow;
use std::sync::Arc;

use floodmark_record::plan::{Check, CloseFirst, MixRequest, Plan};
use floodmark_wire::{RequestError, RequestSpec, request_head};

use crate::template::{RequestTemplate, TemplateError, push_decimal, randomness};

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
        "path {0:?} contains a brace that is not part of a template; write {{seq}}, {{rand:1-1000}} or {{uuid}}, or encode the brace as %7B or %7D"
    )]
    Brace(String),
    /// The plan comes from a record, which contains only the hash of the body.
    #[error("the record does not contain the body; measure again with the original file")]
    MissingBody,
    /// The request has templates and is too long.
    #[error(
        "the request can become {0} bytes long, but the limit with templates is {LONGEST_VARYING}; shorten it or set templates = false"
    )]
    TooLong(usize),
}

/// A request before it is encoded.
struct RequestText<'a> {
    authority: &'a str,
    /// Whether the last request on a connection has a `Connection: close` header.
    closes_last: bool,
    /// The check's number of keys; `None` without a check.
    keys: Option<u64>,
    of: &'a MixRequest,
}

/// Prepares all of a plan's requests, in the order of the mix.
///
/// # Errors
/// Returns the reason why the first invalid request cannot be sent.
pub fn requests(plan: &Plan) -> Result<Vec<EncodedRequest>, RequestFault> {
    let api = plan.check.as_ref().and_then(Check::api);
    let encode = |(index, of)| {
        let text = RequestText {
            authority: &plan.target.authority,
            closes_last: plan.close_first == CloseFirst::Server,
            keys: api.map(|api| api.keys),
            of,
        };
        text.encode(index)
    };
    of_plan(plan).iter().enumerate().map(encode).collect()
}

/// Prepares one request of a check. `authority` is the value of the `Host` header, and `keys` is
/// the check's number of keys.
///
/// # Errors
/// The request cannot be sent. The index of the fault is always 0.
pub fn check_request(
    of: &MixRequest,
    authority: &str,
    keys: u64,
) -> Result<EncodedRequest, RequestFault> {
    let text = RequestText {
        authority,
        closes_last: false,
        keys: Some(keys),
        of,
    };
    text.encode(0)
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
    fn encode(&self, index: usize) -> Result<EncodedRequest, RequestFault> {
        self.request().map_err(|(place, fault)| RequestFault {
            index,
            place,
            fault,
        })
    }

    fn request(&self) -> Result<EncodedRequest, (RequestPart, InvalidRequest)> {
        let body = self.of.request.body.bytes();
        let bytes = body.ok_or((RequestPart::Body, InvalidRequest::MissingBody))?;
        if !self.of.templates {
            let [kept, last] = self.closes().map(|close| {
                let [before, after] = self.head(close, bytes, Some(bytes.len()))?;
                Ok([before, after].concat())
            });
            return Ok(EncodedRequest::fixed([kept?, last?], bytes));
        }
        let body = self.template(bytes, RequestPart::Body)?;
        let path = self.template(self.of.path.as_bytes(), RequestPart::Path)?;
        if path.holds(b'{') || path.holds(b'}') {
            return Err((
                RequestPart::Path,
                InvalidRequest::Brace(self.of.path.clone()),
            ));
        }
        let [kept, last] = self.closes().map(|close| {
            let length = (!body.varies()).then(|| body.longest());
            let [before, after] = self.head(close, bytes, length)?;
            Ok(EncodedHead {
                before: self.template(&before, RequestPart::Headers)?,
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

    /// Returns whether the connection closes after each of the two forms of a request.
    fn closes(&self) -> [bool; 2] {
        [false, self.closes_last]
    }

    /// Builds the head of a request, in two parts. Without a `length`, the body's length is between
    /// the parts.
    /// The text is checked before its templates are rendered, because rendered values are valid in
    /// every position.
    fn head(
        &self,
        close: bool,
        body: &[u8],
        length: Option<usize>,
    ) -> Result<[Vec<u8>; 2], (RequestPart, InvalidRequest)> {
        let spec = RequestSpec {
            method: &self.of.request.method,
            path: &self.of.path,
            authority: self.authority,
            headers: &self.of.request.headers,
            body,
            close,
        };
        request_head(&spec, length).map_err(|error| (place(&error), error.into()))
    }

    fn template(
        &self,
        text: &[u8],
        place: RequestPart,
    ) -> Result<RequestTemplate, (RequestPart, InvalidRequest)> {
        RequestTemplate::parse(text, self.keys).map_err(|error| (place, error.into()))
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
        scratch.clear();
        self.body.render(number, &mut random, scratch);
        let EncodedHead { before, after } = &self.heads[usize::from(last)];
        before.render(number, &mut random, out);
        if !after.is_empty() {
            push_decimal(scratch.len() as u64, out);
            after.render(number, &mut random, out);
        }
        out.extend_from_slice(scratch);
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
