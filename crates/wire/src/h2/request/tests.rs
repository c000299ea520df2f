//! Tests for encoded request heads.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::h2::hpack::{Decoder, HpackError};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn headers(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    lines
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn fields(
    method: &str,
    path: &str,
    lines: &[(&str, &str)],
    length: Option<usize>,
) -> Result<Vec<RequestField>, RequestError> {
    let spec = RequestSpec {
        method,
        path,
        authority: "localhost:8080",
        headers: &headers(lines),
        body: b"",
        close: true,
    };
    request_fields(&spec, Scheme::Https, length)
}

fn field(name: &str, value: &str) -> RequestField {
    RequestField::constant(name, value)
}

/// Decodes heads that are sent on one connection. Varying values are `value 0`, `value 1`, …
fn decode(
    decoder: &mut Decoder,
    heads: &[(&RequestHead, Form)],
) -> Result<Vec<Vec<(String, String)>>, HpackError> {
    let mut decoded = Vec::new();
    for (head, form) in heads {
        let mut block = Vec::new();
        let value = |i, out: &mut Vec<u8>| out.extend_from_slice(format!("value {i}").as_bytes());
        head.write(*form, value, &mut block);
        let mut fields = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        decoder.decode(&block, |name, value| fields.push((text(name), text(value))))?;
        decoded.push(fields);
    }
    Ok(decoded)
}

fn expected(fields: &[RequestField]) -> Vec<(String, String)> {
    let mut varying = 0..;
    let mut value = |value: &FieldValue| match value {
        FieldValue::Constant(value) => value.clone(),
        FieldValue::Varying => format!("value {}", varying.next().unwrap()),
    };
    fields
        .iter()
        .map(|field| (field.name.clone(), value(&field.value)))
        .collect()
}

#[test]
fn fields_are_those_of_http1_in_order() {
    let agent = format!("floodmark/{VERSION}");
    assert_eq!(
        fields("GET", "/a?b=c", &[], Some(0)).unwrap(),
        [
            field(":method", "GET"),
            field(":scheme", "https"),
            field(":authority", "localhost:8080"),
            field(":path", "/a?b=c"),
            field("user-agent", &agent),
            field("accept", "*/*"),
        ]
    );
    let lines = [
        ("Accept", " text/plain\t"),
        ("X-Two", "2"),
        ("HOST", " example.org"),
        ("TE", "trailers"),
    ];
    assert_eq!(
        fields("POST", "/", &lines, Some(5)).unwrap()[2..],
        [
            field(":authority", "example.org"),
            field(":path", "/"),
            field("user-agent", &agent),
            field("accept", "text/plain"),
            field("x-two", "2"),
            field("te", "trailers"),
            field("content-length", "5"),
        ]
    );
    let varying = fields("PUT", "/", &[], None).unwrap().pop().unwrap();
    assert_eq!(varying.value, FieldValue::Varying);
}

#[test]
fn rejects_headers_of_http1() {
    for name in [
        "Connection",
        "keep-alive",
        "Proxy-Connection",
        "UPGRADE",
        "Transfer-Encoding",
        "te",
    ] {
        let result = fields("GET", "/", &[(name, "x")], Some(0));
        assert_eq!(result, Err(RequestError::NotInHttp2(name.to_owned())));
    }
    let result = fields("GET", "no slash", &[], Some(0));
    assert!(matches!(result, Err(RequestError::IllegalPath(_))));
    let result = fields("CONNECT", "/", &[], Some(0));
    assert_eq!(result, Err(RequestError::Connect));
    let result = fields("GET", "/", &[(":path", "/x")], Some(0));
    let error = RequestError::HeaderNameNotAToken(":path".to_owned());
    assert_eq!(result, Err(error));
    let hosts = [("Host", "a"), ("host", "b")];
    let result = fields("GET", "/", &hosts, Some(0));
    assert_eq!(result, Err(RequestError::Repeated("host".to_owned())));
}

/// A server joins the fields (RFC 9113 section 8.2.3).
#[test]
fn cookies_remain_separate() {
    let cookies = [("Cookie", "a=1"), ("cookie", "b=2")];
    assert_eq!(
        fields("GET", "/", &cookies, Some(0)).unwrap()[6..],
        [field("cookie", "a=1"), field("cookie", "b=2")]
    );
}

#[test]
fn checks_the_host_that_becomes_the_authority() {
    let host = |value| fields("GET", "/", &[("host", value)], Some(0));
    assert_eq!(host(" \t"), Err(RequestError::EmptyAuthority));
    for illegal in ["a b", "user@a", "a\u{a0}"] {
        let error = RequestError::IllegalAuthority(illegal.to_owned());
        assert_eq!(host(illegal), Err(error));
    }
    let spec = RequestSpec {
        method: "GET",
        path: "/",
        authority: "user@a",
        headers: &headers(&[("Host", "b:80")]),
        body: b"",
        close: false,
    };
    let fields = request_fields(&spec, Scheme::Http, Some(0)).unwrap();
    assert_eq!(fields[2], field(":authority", "b:80"));
}

/// Hand-encoded bytes of the three forms.
#[test]
fn forms_differ_in_their_use_of_the_tables() {
    let request = [
        field(":method", "GET"),
        field(":authority", "a"),
        field("x", "y"),
        RequestField {
            name: "z".to_owned(),
            value: FieldValue::Varying,
        },
    ];
    let heads = RequestHeads::new(&[request.to_vec()]);
    assert_eq!(heads.table_bytes, 11 + 32 + 2 + 32);
    for (form, expected) in [
        (
            Form::First,
            &b"\x82\x41\x01a\x40\x01x\x01y\0\x01z\x02ab"[..],
        ),
        (Form::Later, b"\x82\xbf\xbe\0\x01z\x02ab"),
        (Form::Static, b"\x82\x01\x01a\0\x01x\x01y\0\x01z\x02ab"),
    ] {
        let mut out = Vec::new();
        let value = |_, out: &mut Vec<u8>| out.extend_from_slice(b"ab");
        heads.heads[0].write(form, value, &mut out);
        assert_eq!(out, expected, "{form:?}");
    }
}

#[test]
fn long_varying_values_have_long_lengths() {
    let varying = RequestField {
        name: "cookie".to_owned(),
        value: FieldValue::Varying,
    };
    let heads = RequestHeads::new(&[vec![varying]]);
    for length in [0, 126, 127, 128, 10_000] {
        let mut out = Vec::new();
        let value = "v".repeat(length);
        heads.heads[0].write(
            Form::First,
            |_, out| out.extend_from_slice(value.as_bytes()),
            &mut out,
        );
        let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES, 1 << 16);
        let mut lengths = Vec::new();
        let result = decoder.decode(&out, |name, value| {
            assert_eq!(name, b"cookie");
            lengths.push(value.len());
        });
        assert_eq!((result, lengths), (Ok(()), vec![length]));
    }
}

/// White space around a value would make the request malformed (RFC 9113 section 8.2.1).
#[test]
fn white_space_around_varying_values_is_removed() {
    let varying = RequestField {
        name: "cookie".to_owned(),
        value: FieldValue::Varying,
    };
    let heads = RequestHeads::new(&[vec![varying.clone(), varying]]);
    for (value, expected) in [("\t a b ", "a b"), (" ", ""), ("", ""), ("a", "a")] {
        let mut block = Vec::new();
        let append = |_, out: &mut Vec<u8>| out.extend_from_slice(value.as_bytes());
        heads.heads[0].write(Form::Static, append, &mut block);
        let mut decoder = Decoder::new(DEFAULT_TABLE_BYTES, 1 << 16);
        let mut values = Vec::new();
        let result = decoder.decode(&block, |_, value| values.push(value.to_vec()));
        assert_eq!(
            (result, values),
            (Ok(()), vec![expected.as_bytes().to_vec(); 2])
        );
    }
}

#[test]
fn fields_beyond_the_default_table_are_not_shared() {
    let long = "x".repeat(4000);
    let request = vec![field("a", &long), field("b", &long), field("c", "d")];
    let heads = RequestHeads::new(&[request]);
    let sizes = [1 + 4000 + 32, 2 + 32];
    assert_eq!(heads.table_bytes, sizes.iter().sum::<usize>());
}

#[test]
fn knows_the_method_head() {
    let requests = ["GET", "HEAD"].map(|method| fields(method, "/", &[], Some(0)).unwrap());
    let heads = RequestHeads::new(&requests).heads;
    assert!(!heads[0].is_head_request && heads[1].is_head_request);
}

fn any_request() -> impl Strategy<Value = Vec<RequestField>> {
    let value = prop_oneof![
        6 => "[a-c]{0,2}".prop_map(FieldValue::Constant),
        1 => Just(FieldValue::Varying),
    ];
    let name = prop_oneof![
        Just("a"),
        Just("b"),
        Just("accept"),
        Just(":path"),
        Just(":method")
    ];
    let field = (name, value).prop_map(|(name, value)| RequestField {
        name: name.to_owned(),
        value,
    });
    vec(field, 0..8)
}

proptest! {
    /// The server decodes the fields of each request, in any order of requests.
    #[test]
    fn decodes_what_it_encodes(
        requests in vec(any_request(), 1..4),
        common in any_request(),
        order in vec(any::<prop::sample::Index>(), 1..10),
    ) {
        let requests: Vec<_> = requests.into_iter().map(|request| [common.clone(), request].concat()).collect();
        let heads = RequestHeads::new(&requests);
        let order: Vec<_> = order.iter().map(|index| index.index(requests.len())).collect();
        let wanted: Vec<_> = order.iter().map(|&i| expected(&requests[i])).collect();
        // With the smallest table that holds the shared fields.
        let table_bytes = heads.table_bytes.max(1);
        let mut size_update = Vec::new();
        integer::encode(table_bytes, 5, 0x20, &mut size_update);
        let forms = std::iter::once(Form::First).chain(std::iter::repeat(Form::Later));
        let sent: Vec<_> = order.iter().map(|&i| &heads.heads[i]).zip(forms).collect();
        let mut decoder = Decoder::new(table_bytes as u32, 1 << 16);
        decoder.decode(&size_update, |_, _| ()).unwrap();
        prop_assert_eq!(decode(&mut decoder, &sent), Ok(wanted.clone()));
        // Without a dynamic table.
        let sent: Vec<_> = order.iter().map(|&i| (&heads.heads[i], Form::Static)).collect();
        let mut decoder = Decoder::new(0, 1 << 16);
        decoder.decode(&[0x20], |_, _| ()).unwrap();
        prop_assert_eq!(decode(&mut decoder, &sent), Ok(wanted));
    }
}
