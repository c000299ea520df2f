//! Tests for encoded requests, and for every rejection.

use super::*;
use proptest::prelude::*;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn spec<'a>(method: &'a str, path: &'a str) -> RequestSpec<'a> {
    RequestSpec {
        method,
        path,
        authority: "localhost:8080",
        headers: &[],
        body: b"",
        close: false,
    }
}

fn headers(lines: &[(&str, &str)]) -> Vec<(String, String)> {
    lines
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn text(spec: &RequestSpec<'_>) -> String {
    String::from_utf8(request_bytes(spec).unwrap()).unwrap()
}

fn with_header(name: &str, value: &str, close: bool) -> Result<Vec<u8>, RequestError> {
    request_bytes(&RequestSpec {
        headers: &headers(&[(name, value)]),
        body: b"12345",
        close,
        ..spec("POST", "/")
    })
}

#[test]
fn builds_a_plain_get() {
    assert_eq!(
        text(&spec("GET", "/a?b=c")),
        format!(
            "GET /a?b=c HTTP/1.1\r\nHost: localhost:8080\r\nUser-Agent: floodmark/{VERSION}\r\nAccept: */*\r\n\r\n"
        )
    );
    assert!(text(&spec("OPTIONS", "*")).starts_with("OPTIONS * HTTP/1.1\r\n"));
}

#[test]
fn user_headers_replace_defaults_and_keep_their_order() {
    let headers = headers(&[
        ("accept", "text/plain"),
        ("X-Two", "2"),
        ("HOST", "example.org"),
        ("X-One", "1"),
        ("user-agent", "me"),
        ("content-length", "2"),
        ("connection", "Close"),
    ]);
    let spec = RequestSpec {
        headers: &headers,
        body: b"hi",
        close: true,
        ..spec("PUT", "/")
    };
    assert_eq!(
        text(&spec),
        "PUT / HTTP/1.1\r\naccept: text/plain\r\nX-Two: 2\r\nHOST: example.org\r\nX-One: 1\r\nuser-agent: me\r\ncontent-length: 2\r\nconnection: Close\r\n\r\nhi"
    );
}

#[test]
fn adds_content_length_and_connection_close() {
    for method in ["POST", "PUT", "PATCH"] {
        assert!(text(&spec(method, "/")).ends_with("Content-Length: 0\r\n\r\n"));
    }
    let with_body = RequestSpec {
        body: b"abc",
        close: true,
        ..spec("GET", "/")
    };
    assert!(text(&with_body).ends_with("Content-Length: 3\r\nConnection: close\r\n\r\nabc"));
    let upgrade = with_header("Connection", "x-option", true).unwrap();
    assert!(
        upgrade.ends_with(
            b"Connection: x-option\r\nContent-Length: 5\r\nConnection: close\r\n\r\n12345"
        )
    );
}

#[test]
fn refuses_invalid_request_lines() {
    for method in ["", "G T", "GET\r\n", "GÉT", "G:T"] {
        let error = request_bytes(&spec(method, "/")).unwrap_err();
        assert_eq!(error, RequestError::MethodNotAToken(method.into()));
    }
    assert_eq!(
        request_bytes(&spec("CONNECT", "/")),
        Err(RequestError::Connect)
    );
    for path in ["/a b", "/ä", "/\r\n", "/\x7f", "/\0"] {
        let error = request_bytes(&spec("GET", path)).unwrap_err();
        assert_eq!(error, RequestError::IllegalPath(path.into()));
    }
    for path in ["", "a", "*", "http://h/"] {
        let error = request_bytes(&spec("GET", path)).unwrap_err();
        assert_eq!(error, RequestError::PathWithoutSlash(path.into()));
    }
    let of = |authority| RequestSpec {
        authority,
        ..spec("GET", "/")
    };
    assert_eq!(request_bytes(&of("")), Err(RequestError::EmptyAuthority));
    for host in ["a b", "a\r\nX: y", "hé", "user@a"] {
        let error = request_bytes(&of(host)).unwrap_err();
        assert_eq!(error, RequestError::IllegalAuthority(host.into()));
    }
}

#[test]
fn refuses_invalid_headers() {
    for name in ["", "a b", "a:", "a\r\n", "é"] {
        let error = with_header(name, "v", false).unwrap_err();
        assert_eq!(error, RequestError::HeaderNameNotAToken(name.into()));
    }
    for value in ["a\rb", "a\nb", "a\0b"] {
        let error = with_header("X", value, false).unwrap_err();
        assert_eq!(error, RequestError::IllegalHeaderValue("X".into()));
    }
    let twice = headers(&[("Host", "a"), ("host", "a")]);
    let spec = RequestSpec {
        headers: &twice,
        ..spec("GET", "/")
    };
    assert_eq!(
        request_bytes(&spec),
        Err(RequestError::Repeated("host".into()))
    );
}

#[test]
fn refuses_conflicting_framing_headers() {
    for given in ["4", "05x", "", "+5", "5, 5"] {
        let error = with_header("Content-length", given, false).unwrap_err();
        let given = given.to_owned();
        assert_eq!(error, RequestError::ContentLength { given, actual: 5 });
    }
    assert!(with_header("Content-Length", "5", false).is_ok());
    let error = with_header("transfer-Encoding", "chunked", false).unwrap_err();
    assert_eq!(error, RequestError::TransferEncoding);
}

#[test]
fn refuses_conflicting_connection_headers() {
    for (given, close, fine) in [
        ("close", true, true),
        ("keep-alive", false, true),
        ("te, CLOSE", false, false),
        ("Keep-Alive", true, false),
        ("close, keep-alive", true, false),
    ] {
        let result = with_header("Connection", given, close);
        assert_eq!(result.is_ok(), fine, "{given:?} close={close}");
    }
}

#[test]
fn splits_a_head_at_the_content_length() {
    let post = RequestSpec {
        body: b"anything",
        close: true,
        ..spec("POST", "/")
    };
    let [before, after] = request_head(&post, None).unwrap();
    assert!(before.ends_with(b"\r\nContent-Length: "));
    assert_eq!(after, b"\r\nConnection: close\r\n\r\n");
    let whole = [before, b"8".to_vec(), after, b"anything".to_vec()].concat();
    assert_eq!(whole, request_bytes(&post).unwrap());
    let [before, after] = request_head(&spec("GET", "/"), None).unwrap();
    assert_eq!(before, request_bytes(&spec("GET", "/")).unwrap());
    assert!(after.is_empty());
    let given = headers(&[("Content-Length", "8")]);
    let error = request_head(
        &RequestSpec {
            headers: &given,
            ..post
        },
        None,
    );
    assert_eq!(error, Err(RequestError::LengthOfVarying));
}

proptest! {
    /// An accepted spec yields exactly one legal request with the specified content and body.
    #[test]
    fn accepted_requests_parse(
        method in "[A-Za-z\\PC]{0,5}",
        path in "/?[!-~ ]{0,20}",
        names in proptest::collection::vec("[A-Za-z -]{1,12}", 0..4),
        value in "[ -~\\n]{0,20}",
        body in proptest::collection::vec(any::<u8>(), 0..50),
        close in any::<bool>(),
    ) {
        let headers: Vec<_> = names.into_iter().map(|name| (name, value.clone())).collect();
        let spec = RequestSpec { headers: &headers, body: &body, close, ..spec(&method, &path) };
        if let Ok(bytes) = request_bytes(&spec) {
            let mut parsed_headers = [httparse::EMPTY_HEADER; 16];
            let mut parsed = httparse::Request::new(&mut parsed_headers);
            let head = parsed.parse(&bytes).unwrap().unwrap();
            prop_assert_eq!(parsed.method, Some(method.as_str()));
            prop_assert_eq!(parsed.path, Some(path.as_str()));
            prop_assert_eq!(&bytes[head..], &body[..]);
            for (name, value) in &headers {
                let found = parsed.headers.iter().any(|h| h.name == name && h.value == value.trim().as_bytes());
                prop_assert!(found, "{}", name);
            }
        }
    }
}
