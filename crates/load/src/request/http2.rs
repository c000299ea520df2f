//! Requests for HTTP/2. Heads are encoded once; varying values and bodies are rendered per request.

use std::sync::Arc;

use floodmark_record::plan::Plan;
use floodmark_wire::RequestSpec;
use floodmark_wire::h2::{
    FieldValue, RequestField, RequestHeads, Scheme, Session, Unavailable, request_fields,
};

use super::{
    InvalidRequest, LONGEST_VARYING, RequestFault, RequestPart, RequestTemplate, RequestText,
    push_decimal, randomness,
};
use crate::mix::Pick;

/// A plan's requests, in the order of the mix.
#[derive(Debug)]
pub struct Http2Requests {
    /// The encoded heads, which every session shares.
    pub heads: Arc<RequestHeads>,
    requests: Vec<Http2Request>,
    /// Determines the varying values.
    seed: u64,
}

#[derive(Debug)]
struct Http2Request {
    /// The varying values of the head, in order.
    values: Vec<HeadValue>,
    body: Http2Body,
}

/// A varying value in a request head.
#[derive(Debug)]
enum HeadValue {
    Template(RequestTemplate),
    /// Length of the body in bytes.
    Length,
}

#[derive(Debug)]
enum Http2Body {
    Fixed(Arc<Vec<u8>>),
    Varying(RequestTemplate),
}

/// The body of a request that was started.
#[derive(Debug)]
pub enum StartedBody<'a> {
    /// The same bytes for every request.
    Fixed(&'a Arc<Vec<u8>>),
    /// Bytes that were rendered for this request.
    Rendered(&'a [u8]),
}

impl StartedBody<'_> {
    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            StartedBody::Fixed(bytes) => bytes,
            StartedBody::Rendered(bytes) => bytes,
        }
    }
}

/// Prepares all of a plan's requests for HTTP/2, in the order of the mix.
///
/// # Errors
/// Returns the reason why the first invalid request cannot be sent.
pub fn http2_requests(plan: &Plan) -> Result<Http2Requests, RequestFault> {
    let scheme = match &plan.tls {
        Some(_) => Scheme::Https,
        None => Scheme::Http,
    };
    let encoded = super::encode_all(plan, |text| text.http2(scheme))?;
    let (fields, requests): (Vec<_>, Vec<_>) = encoded.into_iter().unzip();
    Ok(Http2Requests {
        heads: Arc::new(RequestHeads::new(&fields)),
        requests,
        seed: plan.seed,
    })
}

impl RequestText<'_> {
    /// Returns the fields of the head, and what varies between requests.
    fn http2(
        &self,
        scheme: Scheme,
    ) -> Result<(Vec<RequestField>, Http2Request), (RequestPart, InvalidRequest)> {
        let bytes = self.body()?;
        // The plan replaced the templates of a message, if there are any.
        let body = if self.of.templates && !self.of.request.is_grpc {
            self.template(bytes, RequestPart::Body)?
        } else {
            RequestTemplate::literal(bytes)
        };
        let length = (!body.varies()).then(|| body.longest());
        let fields = |spec: &RequestSpec<'_>| request_fields(spec, scheme, length);
        let (mut fields, has_extra_slash) = self.checked(false, bytes, fields)?;
        let mut values = Vec::new();
        for field in &mut fields {
            let FieldValue::Constant(text) = &field.value else {
                values.push(HeadValue::Length);
                continue;
            };
            if !self.of.templates {
                continue;
            }
            let is_path = field.name == ":path";
            let (text, place) = match is_path {
                true if has_extra_slash => (&text[1..], RequestPart::Path),
                true => (text.as_str(), RequestPart::Path),
                false => (text.as_str(), RequestPart::Headers),
            };
            let template = self.template(text.as_bytes(), place)?;
            if is_path {
                self.check_braces(&template)?;
            }
            field.value = match template.as_literal() {
                Some(text) => FieldValue::Constant(String::from_utf8_lossy(text).into_owned()),
                None => {
                    values.push(HeadValue::Template(template));
                    FieldValue::Varying
                }
            };
        }
        let of_value = |value: &HeadValue| match value {
            HeadValue::Template(template) => template.longest(),
            HeadValue::Length => 0,
        };
        let longest = body.longest() + values.iter().map(of_value).sum::<usize>();
        let varies = !values.is_empty() || body.varies();
        if varies && longest > LONGEST_VARYING {
            return Err((RequestPart::Body, InvalidRequest::TooLong(longest)));
        }
        let body = match body.as_literal() {
            Some(bytes) => Http2Body::Fixed(Arc::new(bytes.to_vec())),
            None => Http2Body::Varying(body),
        };
        Ok((fields, Http2Request { values, body }))
    }
}

impl Http2Requests {
    /// Starts a request: appends its head to the output of the session. Returns the stream and the
    /// body, of which no byte has been sent; the stream has ended if the body is empty. `scratch`
    /// is working memory. The same request always has the same values, also over HTTP/1.1.
    ///
    /// # Errors
    /// The session cannot send another request now.
    pub fn start<'a>(
        &'a self,
        pick: Pick,
        session: &mut Session,
        scratch: &'a mut Vec<u8>,
    ) -> Result<(u32, StartedBody<'a>), Unavailable> {
        let request = &self.requests[pick.group as usize];
        if let (Http2Body::Fixed(bytes), []) = (&request.body, &request.values[..]) {
            let stream = session.request(pick.group as usize, !bytes.is_empty(), |_, _| ())?;
            return Ok((stream, StartedBody::Fixed(bytes)));
        }
        let mut random = randomness(self.seed, pick.number);
        let numbers = (self.seed, pick.number);
        let body = match &request.body {
            Http2Body::Fixed(bytes) => StartedBody::Fixed(bytes),
            Http2Body::Varying(template) => {
                scratch.clear();
                template.render(numbers, &mut random, scratch);
                StartedBody::Rendered(scratch)
            }
        };
        let length = body.bytes().len();
        let value = |index: usize, out: &mut Vec<u8>| match &request.values[index] {
            HeadValue::Length => push_decimal(length as u64, out),
            HeadValue::Template(template) => template.render(numbers, &mut random, out),
        };
        let stream = session.request(pick.group as usize, length > 0, value)?;
        Ok((stream, body))
    }
}
