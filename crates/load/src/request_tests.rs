//! Tests of encoded requests.

use super::*;
use crate::testing::{closed_plan, with_mix};
use floodmark_record::credentials::Credentials;
use floodmark_record::plan::MixRequest;
use proptest::prelude::*;

fn plan_of(change: impl FnOnce(&mut MixRequest)) -> Plan {
    let mut plan = with_mix(closed_plan(1, 1), &[1]);
    change(&mut plan.mix.as_mut().unwrap().requests[0]);
    plan
}

fn only(change: impl FnOnce(&mut MixRequest)) -> Result<EncodedRequest, RequestFault> {
    requests(&plan_of(change)).map(|mut all| all.remove(0))
}

fn rendered(request: &EncodedRequest, number: u64, last: bool) -> String {
    let EncodedRequest::Varying(varying) = request else {
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
    request.request.body = text.as_bytes().to_vec().into();
}

#[test]
fn content_length_matches_the_rendered_body() {
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
fn kept_and_last_forms_have_equal_values() {
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
fn renders_fixed_requests_once() {
    for (text, templates, sent) in [
        (r#"{"a":{}}"#, true, r#"{"a":{}}"#),
        ("{{seq}}", true, "{seq}"),
        ("{seq} {rand:oops}", false, "{seq} {rand:oops}"),
    ] {
        let request = only(|r| {
            r.templates = templates;
            body(r, text);
        });
        let Ok(EncodedRequest::Fixed([kept, last])) = request else {
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
fn errors_name_the_part() {
    type Change = fn(&mut MixRequest);
    let cases: [(Change, RequestPart, &str); 7] = [
        (|r| r.path = "/{name}".to_owned(), RequestPart::Path, "%7B"),
        (
            |r| r.path = "/{rand:5}".to_owned(),
            RequestPart::Path,
            "{rand:5}",
        ),
        (|r| r.path = "/a b".to_owned(), RequestPart::Path, "%20"),
        (
            |r| r.request.method = "G T".to_owned(),
            RequestPart::Method,
            "method",
        ),
        (
            |r| r.request.headers = vec![("A".to_owned(), "{rand:2-1}".to_owned())],
            RequestPart::Headers,
            "{rand:2-1}",
        ),
        (
            |r| {
                body(r, "{seq}");
                r.request.headers = vec![("Content-Length".to_owned(), "5".to_owned())];
            },
            RequestPart::Headers,
            "remove the header",
        ),
        (
            |r| body(r, &"{uuid}".repeat(2000)),
            RequestPart::Body,
            "is 65536",
        ),
    ];
    for (change, place, words) in cases {
        let fault = only(change).unwrap_err();
        assert_eq!(fault.place, place, "{fault}");
        assert!(fault.to_string().contains(words), "{fault}");
    }
}

#[test]
fn a_request_of_a_check_has_a_number_and_a_key() {
    let mut plan = plan_of(|r| {
        r.path = "/{key}".to_owned();
        body(r, "{seq}");
    });
    let of = plan.mix.as_mut().unwrap().requests.remove(0);
    let target = Target {
        authority: "host:80".to_owned(),
        credentials: Some(Credentials::new(b"me", b"s3cret")),
        ..plan.target
    };
    let request = check_request(&of, &target, 1).unwrap();
    let text = String::from_utf8(request.bytes(41)).unwrap();
    assert!(
        text.starts_with("POST /1 HTTP/1.1\r\nHost: host:80\r\n"),
        "{text}"
    );
    let authorization = "\r\nAuthorization: Basic bWU6czNjcmV0\r\n";
    assert!(text.contains(authorization), "{text}");
    assert!(text.ends_with("\r\n\r\n41"), "{text}");
}

#[test]
fn a_plain_request_has_no_templates() {
    let mut plan = closed_plan(1, 1);
    plan.target.path = "/{seq}".to_owned();
    plan.request.body = b"{seq}{rand:}".to_vec().into();
    let requests = requests(&plan).unwrap();
    let EncodedRequest::Fixed([kept, _]) = &requests[0] else {
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
