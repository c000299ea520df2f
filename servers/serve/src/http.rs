//! The parts of HTTP that the workloads share: the `Host` header (RFC 9112, section 3.2), request
//! bodies and responses.

use std::net::Ipv6Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri, Version};

const INVALID_HOST: &str = "invalid Host header; send a host, or a host and a port";

/// Returns why the `Host` header of a request is invalid, or `None` if it is valid. In HTTP/2, the
/// authority of `uri` replaces the header (RFC 9113, section 8.3.1).
pub(crate) fn host_fault(version: Version, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
    let authority = || uri.authority().filter(|_| version == Version::HTTP_2);
    let mut values = headers.get_all(HOST).iter();
    match (values.next(), values.next()) {
        (None, _) if version < Version::HTTP_11 => None,
        (None, _) => match authority() {
            Some(value) if is_host(value.as_str().as_bytes()) => None,
            Some(_) => Some(INVALID_HOST),
            None => Some("no Host header; send one"),
        },
        (Some(value), None) if is_host(value.as_bytes()) => None,
        (Some(_), None) => Some(INVALID_HOST),
        (Some(_), Some(_)) => Some("several Host headers; send one"),
    }
}

/// Returns whether a value matches `uri-host [ ":" port ]` (RFC 9110, section 7.2). The host may be
/// empty. `IPvFuture` does not match, because no such address exists.
fn is_host(value: &[u8]) -> bool {
    let (is_host, rest) = if let [b'[', rest @ ..] = value {
        let end = rest.iter().position(|byte| *byte == b']');
        let Some(end) = end else { return false };
        (is_ipv6(&rest[..end]), &rest[end + 1..])
    } else {
        let end = value.iter().position(|byte| *byte == b':');
        let (name, rest) = value.split_at(end.unwrap_or(value.len()));
        (is_name(name), rest)
    };
    let is_port = match rest {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_host && is_port
}

fn is_ipv6(text: &[u8]) -> bool {
    str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// Returns whether `text` matches `reg-name`, which includes IPv4 addresses (RFC 3986, section
/// 3.2.2).
fn is_name(mut text: &[u8]) -> bool {
    loop {
        text = match text {
            [] => return true,
            [b'%', high, low, rest @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest
            }
            [byte, rest @ ..]
                if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(byte) =>
            {
                rest
            }
            _ => return false,
        };
    }
}

/// A reason why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// The body is longer than the limit.
    TooLong,
    /// The body of an HTTP/2 request is not complete in time.
    TooSlow,
    /// The body is malformed or incomplete.
    Malformed,
}

/// Reads the body of a request. Rejects a body longer than `limit` bytes.
pub(crate) async fn read_body(
    request: &mut Request<Incoming>,
    limit: u64,
) -> Result<Bytes, BodyFault> {
    if request.body().size_hint().lower() > limit {
        return Err(BodyFault::TooLong);
    }
    let mut left = limit;
    // Most bodies consist of one frame, which need not be copied.
    let mut first = Bytes::new();
    let mut whole = Vec::new();
    while let Some(frame) = request.body_mut().frame().await {
        let frame = frame.map_err(|_| BodyFault::Malformed)?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let rest = left.checked_sub(data.len() as u64);
        left = rest.ok_or(BodyFault::TooLong)?;
        if first.is_empty() {
            first = data;
        } else {
            if whole.is_empty() {
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(if whole.is_empty() {
        first
    } else {
        whole.into()
    })
}

/// A response whose length is known.
pub(crate) type HttpResponse = Response<Full<Bytes>>;

/// Returns a response with status 200.
pub(crate) fn ok(content_type: &'static str, body: Bytes) -> HttpResponse {
    let mut response = Response::new(Full::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns an error response with a one-line JSON body.
pub(crate) fn refusal(
    status: StatusCode,
    reason: &str,
    header: Option<(HeaderName, &'static str)>,
) -> HttpResponse {
    let reason = serde_json::Value::from(reason);
    let body = format!("{{\"error\": {reason}}}");
    let mut response = ok("application/json", Bytes::from(body));
    *response.status_mut() = status;
    if let Some((name, value)) = header {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(HOST, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn requires_one_host() {
        let fault =
            |version, values: &[&str]| host_fault(version, &Uri::default(), &headers(values));
        assert_eq!(fault(Version::HTTP_11, &["x"]), None);
        assert_eq!(fault(Version::HTTP_10, &[]), None);
        // The authority replaces the header only in HTTP/2.
        let of = |version, uri: &'static str| {
            host_fault(version, &Uri::from_static(uri), &HeaderMap::new())
        };
        assert_eq!(of(Version::HTTP_2, "http://x:80/"), None);
        assert_eq!(of(Version::HTTP_2, "http://u@x/"), Some(INVALID_HOST));
        for (version, uri) in [(Version::HTTP_11, "http://x/"), (Version::HTTP_2, "/")] {
            assert!(of(version, uri).unwrap().starts_with("no Host"), "{uri}");
        }
        for (version, values, expected) in [
            (Version::HTTP_11, &[][..], "no Host"),
            (Version::HTTP_11, &["x", "x"], "several Host"),
            (Version::HTTP_10, &["x", "y"], "several Host"),
            (Version::HTTP_10, &["x y"], "invalid Host"),
        ] {
            let reason = fault(version, values).unwrap();
            assert!(reason.starts_with(expected), "{values:?}: {reason}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_host() {
        for valid in [
            "",
            "x",
            "x:",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:80",
            "a_b",
            "%C3%A4.de",
        ] {
            assert!(is_host(valid.as_bytes()), "{valid:?}");
        }
        for invalid in [
            "x y", "x/", "u@x", "x:80:80", "x:8a", "::1", "[::1", "[x]", "[::1]80", "%4",
            "x,\u{e4}",
        ] {
            assert!(!is_host(invalid.as_bytes()), "{invalid:?}");
        }
    }

    proptest! {
        #[test]
        fn accepts_the_grammar(
            value in r"([A-Za-z0-9\-._~!$&'()*+,;=]|%[0-9A-Fa-f]{2}){0,20}(:[0-9]{0,6})?",
        ) {
            prop_assert!(is_host(value.as_bytes()));
        }

        #[test]
        fn refuses_any_delimiter(
            start in "[a-z]{0,5}", byte in r#"[ "/?#@\\<>^`{|}\]]"#, end in "[a-z]{0,5}",
        ) {
            let value = format!("{start}{byte}{end}");
            prop_assert!(!is_host(value.as_bytes()));
        }
    }
}
