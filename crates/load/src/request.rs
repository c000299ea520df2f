//! A plan's requests, ready to be sent: bytes made once where nothing varies, else templates.

use std::sync::Arc;

use floodmark_record::plan::{CloseFirst, Expect, Plan, RequestPlan};
use floodmark_wire::{RequestError, RequestSpec, head_around_length, request_bytes};

use crate::template::{Template, TemplateError, push_decimal, randomness};

/// Longest request with templates. Each connection may hold one, and it is made anew each time.
pub const LONGEST_VARYING: usize = 64 * 1024;

/// A request in both of its forms: as sent on a connection that stays, and as the last one on its connection.
#[derive(Debug)]
pub enum Request {
    /// Always the same bytes.
    Fixed([Vec<u8>; 2]),
    /// Filled in each time.
    Varying(Arc<Varying>),
}

/// A request with places to fill in.
#[derive(Debug)]
pub struct Varying {
    heads: [Head; 2],
    body: Template,
    longest: usize,
}

/// A head, with the length of the body between its two parts where the second is not empty.
#[derive(Debug)]
struct Head {
    before: Template,
    after: Template,
}

/// Why a request of a plan cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct RequestFault {
    /// Which request of the mix; 0 where there is none.
    pub index: usize,
    /// Where in it.
    pub place: Place,
    /// What is wrong.
    #[source]
    pub fault: Fault,
}

/// A part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The method.
    Method,
    /// Path and query.
    Path,
    /// Names and values of headers.
    Headers,
    /// The body.
    Body,
}

/// What is wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is no legal request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A template that is none.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A brace in a path with templates.
    #[error(
        "path {0:?} holds a brace that is no template; write {{seq}}, {{rand:1-1000}} or {{uuid}}, or the brace as %7B or %7D"
    )]
    Brace(String),
    /// Too long for what is made anew each time.
    #[error(
        "a request with templates can have {0} bytes, but at most {LONGEST_VARYING} are filled in; shorten it, or set templates = false"
    )]
    TooLong(usize),
}

/// A request of a plan, as its text stands there.
struct Source<'a> {
    plan: &'a Plan,
    path: &'a str,
    request: &'a RequestPlan,
    templates: bool,
}

/// All requests of a plan, in the order of its mix.
///
/// # Errors
/// The first that cannot be sent.
pub fn requests(plan: &Plan) -> Result<Vec<Request>, RequestFault> {
    let sources: Vec<Source<'_>> = match &plan.mix {
        None => vec![Source {
            plan,
            path: &plan.target.path,
            request: &plan.request,
            templates: false,
        }],
        Some(mix) => mix
            .requests
            .iter()
            .map(|of| Source {
                plan,
                path: &of.path,
                request: &of.request,
                templates: of.templates,
            })
            .collect(),
    };
    let made = sources.iter().enumerate().map(|(index, source)| {
        source.request().map_err(|(place, fault)| RequestFault {
            index,
            place,
            fault,
        })
    });
    made.collect()
}

/// Most bytes that one of these requests can have.
#[must_use]
pub fn longest(requests: &[Request]) -> usize {
    requests.iter().map(Request::longest).max().unwrap_or(0)
}

/// What answers to each of a plan's requests have to be, and whether they are to HEAD and so have no body.
pub fn expectations(plan: &Plan) -> impl Iterator<Item = (&[Expect], bool)> {
    let alone = plan
        .mix
        .is_none()
        .then_some((plan.expect.as_slice(), &plan.request));
    let mixed = plan.mix.iter().flat_map(|mix| &mix.requests);
    alone
        .into_iter()
        .chain(mixed.map(|of| (of.expect.as_slice(), &of.request)))
        .map(|(expect, request)| (expect, request.method == "HEAD"))
}

impl Source<'_> {
    fn request(&self) -> Result<Request, (Place, Fault)> {
        let body = self.template(&self.request.body, Place::Body)?;
        let path = self.template(self.path.as_bytes(), Place::Path)?;
        if self.templates && (path.holds(b'{') || path.holds(b'}')) {
            return Err((Place::Path, Fault::Brace(self.path.to_owned())));
        }
        let [kept, last] = [false, self.plan.close_first == CloseFirst::Server]
            .map(|close| self.head(close, &body));
        let heads = [kept?, last?];
        let longest = heads.iter().map(Head::longest).max().unwrap_or(0) + body.longest();
        let request = Varying {
            heads,
            body,
            longest,
        };
        if !request.varies() {
            return Ok(Request::Fixed([false, true].map(|last| {
                let mut bytes = Vec::with_capacity(longest);
                request.render((0, 0), last, &mut Vec::new(), &mut bytes);
                bytes
            })));
        }
        if longest > LONGEST_VARYING {
            return Err((Place::Body, Fault::TooLong(longest)));
        }
        Ok(Request::Varying(Arc::new(request)))
    }

    /// The request's head, whose text was made legal before its templates are filled in: what they become is legal anywhere.
    fn head(&self, close: bool, body: &Template) -> Result<Head, (Place, Fault)> {
        let mut fixed = Vec::new();
        if !body.varies() {
            body.render(0, &mut randomness(0, 0), &mut fixed);
        }
        let spec = RequestSpec {
            method: &self.request.method,
            path: self.path,
            authority: &self.plan.target.authority,
            headers: &self.request.headers,
            body: if body.varies() {
                &self.request.body
            } else {
                &fixed
            },
            close,
        };
        let parts = if body.varies() {
            head_around_length(&spec)
        } else {
            request_bytes(&spec).map(|mut whole| {
                whole.truncate(whole.len() - fixed.len());
                [whole, Vec::new()]
            })
        };
        let [before, after] = parts.map_err(|error| (place(&error), error.into()))?;
        Ok(Head {
            before: self.template(&before, Place::Headers)?,
            after: self.template(&after, Place::Headers)?,
        })
    }

    fn template(&self, text: &[u8], place: Place) -> Result<Template, (Place, Fault)> {
        if self.templates {
            Template::parse(text).map_err(|error| (place, error.into()))
        } else {
            Ok(Template::fixed(text))
        }
    }
}

/// Which part of a request an error is about.
fn place(error: &RequestError) -> Place {
    match error {
        RequestError::MethodNotAToken(_) | RequestError::Connect => Place::Method,
        RequestError::IllegalPath(_)
        | RequestError::PathWithoutSlash(_)
        | RequestError::EmptyAuthority
        | RequestError::IllegalAuthority(_) => Place::Path,
        RequestError::HeaderNameNotAToken(_)
        | RequestError::IllegalHeaderValue(_)
        | RequestError::Repeated(_)
        | RequestError::ContentLength { .. }
        | RequestError::LengthOfVarying
        | RequestError::TransferEncoding
        | RequestError::Connection { .. } => Place::Headers,
    }
}

impl Head {
    fn longest(&self) -> usize {
        const LONGEST_LENGTH: usize = 20;
        self.before.longest() + LONGEST_LENGTH + self.after.longest()
    }
}

impl Request {
    /// Most bytes that it can have.
    #[must_use]
    pub fn longest(&self) -> usize {
        match self {
            Request::Fixed([kept, last]) => kept.len().max(last.len()),
            Request::Varying(varying) => varying.longest,
        }
    }
}

impl Varying {
    fn varies(&self) -> bool {
        let head = |head: &Head| head.before.varies() || head.after.varies();
        self.body.varies() || self.heads.iter().any(head)
    }

    /// Appends request `number` of a seed, as the `last` of its connection or as one on a connection that stays; both
    /// hold the same values. `scratch` is used for the body, whose length has to be known before it is written. Nothing is allocated
    /// where both have room for [`Request::longest`].
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
        let Head { before, after } = &self.heads[usize::from(last)];
        before.render(number, &mut random, out);
        if !after.is_empty() {
            push_decimal(scratch.len() as u64, out);
            after.render(number, &mut random, out);
        }
        out.extend_from_slice(scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{closed_plan, with_mix};
    use floodmark_record::mix::MixRequest;
    use proptest::prelude::*;

    fn plan_of(change: impl FnOnce(&mut MixRequest)) -> Plan {
        let mut plan = with_mix(closed_plan(1, 1), &[1]);
        change(&mut plan.mix.as_mut().unwrap().requests[0]);
        plan
    }

    fn only(change: impl FnOnce(&mut MixRequest)) -> Result<Request, RequestFault> {
        requests(&plan_of(change)).map(|mut all| all.remove(0))
    }

    fn rendered(request: &Request, number: u64, last: bool) -> String {
        let Request::Varying(varying) = request else {
            panic!("{request:?}");
        };
        let (mut scratch, mut out) = (
            Vec::with_capacity(request.longest()),
            Vec::with_capacity(request.longest()),
        );
        let room = (scratch.capacity(), out.capacity());
        varying.render((1, number), last, &mut scratch, &mut out);
        assert_eq!((scratch.capacity(), out.capacity()), room);
        String::from_utf8(out).unwrap()
    }

    fn body(request: &mut MixRequest, text: &str) {
        request.request.method = "POST".to_owned();
        request.request.body = text.as_bytes().to_vec();
    }

    #[test]
    fn the_length_of_a_body_is_that_of_what_it_became() {
        let request = only(|r| body(r, r#"{"id":{seq}}"#)).unwrap();
        for (number, expected) in [(1, "8"), (1234, "11")] {
            for last in [false, true] {
                let text = rendered(&request, number, last);
                assert!(
                    text.contains(&format!("\r\nContent-Length: {expected}\r\n")),
                    "{text}"
                );
                assert!(
                    text.ends_with(&format!("\r\n\r\n{{\"id\":{number}}}")),
                    "{text}"
                );
                assert_eq!(text.contains("Connection: close"), last);
            }
        }
    }

    #[test]
    fn both_forms_hold_the_same_values() {
        let request = only(|r| r.path = "/{uuid}/{rand:1-1000000}".to_owned()).unwrap();
        let path = |last| {
            rendered(&request, 7, last)
                .lines()
                .next()
                .unwrap()
                .to_owned()
        };
        assert_eq!(path(false), path(true));
        assert_ne!(rendered(&request, 7, true), rendered(&request, 8, true));
    }

    #[test]
    fn what_does_not_vary_is_made_once() {
        for (text, templates, sent) in [
            (r#"{"a":{}}"#, true, r#"{"a":{}}"#),
            ("{{seq}}", true, "{seq}"),
            ("{seq} {rand:oops}", false, "{seq} {rand:oops}"),
        ] {
            let request = only(|r| {
                r.templates = templates;
                body(r, text);
            });
            let Ok(Request::Fixed([kept, last])) = request else {
                panic!("{request:?}");
            };
            for bytes in [&kept, &last] {
                let whole = String::from_utf8_lossy(bytes);
                assert!(whole.ends_with(&format!("\r\n\r\n{sent}")), "{whole}");
                assert!(whole.contains(&format!("Content-Length: {}\r\n", sent.len())));
            }
            assert!(last.len() > kept.len());
        }
    }

    #[test]
    fn faults_say_where_they_are() {
        type Change = fn(&mut MixRequest);
        let cases: [(Change, Place, &str); 7] = [
            (|r| r.path = "/{name}".to_owned(), Place::Path, "%7B"),
            (|r| r.path = "/{rand:5}".to_owned(), Place::Path, "{rand:5}"),
            (|r| r.path = "/a b".to_owned(), Place::Path, "%20"),
            (
                |r| r.request.method = "G T".to_owned(),
                Place::Method,
                "method",
            ),
            (
                |r| r.request.headers = vec![("A".to_owned(), "{rand:2-1}".to_owned())],
                Place::Headers,
                "{rand:2-1}",
            ),
            (
                |r| {
                    body(r, "{seq}");
                    r.request.headers = vec![("Content-Length".to_owned(), "5".to_owned())];
                },
                Place::Headers,
                "leave it out",
            ),
            (
                |r| body(r, &"{uuid}".repeat(2000)),
                Place::Body,
                "at most 65536",
            ),
        ];
        for (change, place, words) in cases {
            let fault = only(change).unwrap_err();
            assert_eq!(fault.place, place, "{fault}");
            assert!(fault.to_string().contains(words), "{fault}");
        }
    }

    #[test]
    fn a_plain_request_has_no_templates() {
        let mut plan = closed_plan(1, 1);
        plan.target.path = "/{seq}".to_owned();
        plan.request.body = b"{seq}{rand:}".to_vec();
        let requests = requests(&plan).unwrap();
        let Request::Fixed([kept, _]) = &requests[0] else {
            panic!("{requests:?}");
        };
        assert!(kept.starts_with(b"GET /{seq} HTTP/1.1\r\n") && kept.ends_with(b"{seq}{rand:}"));
    }

    proptest! {
        #[test]
        fn rendered_requests_fit_their_length(number in any::<u64>(), text in "[a-z{}]{0,9}", last in any::<bool>()) {
            let request = only(|r| {
                r.path = "/{rand:0-99999}".to_owned();
                r.request.headers = vec![("X-Id".to_owned(), "{uuid}".to_owned())];
                body(r, &format!("{text} {{seq}}{text}{{rand:1-5000}}"));
            }).unwrap();
            let whole = rendered(&request, number, last);
            let (head, body) = whole.split_once("\r\n\r\n").unwrap();
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
            prop_assert_eq!(length.parse::<usize>().unwrap(), body.len());
            prop_assert!(body.contains(&number.to_string()));
        }
    }
}
