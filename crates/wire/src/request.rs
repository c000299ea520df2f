//! Request bytes, encoded once and sent many times.

use crate::head::decimal;

/// The parts of a request.
#[derive(Debug, Clone, Copy)]
pub struct RequestSpec<'a> {
    /// Method, such as `GET`: any token except `CONNECT`.
    pub method: &'a str,
    /// Path and query, starting with a slash. For `OPTIONS`, `*` is also allowed.
    pub path: &'a str,
    /// Host, and the port unless the port is the scheme's default.
    pub authority: &'a str,
    /// The user's headers, sent in this order.
    pub headers: &'a [(String, String)],
    /// Body, possibly empty.
    pub body: &'a [u8],
    /// Whether the connection closes after the response.
    pub close: bool,
}

/// Reason why a [`RequestSpec`] cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The method is not a token.
    #[error(
        "method {0:?} contains an invalid character; use only letters, digits and !#$%&'*+-.^_`|~"
    )]
    MethodNotAToken(String),
    /// The method is `CONNECT`, after which the connection no longer carries HTTP.
    #[error("method CONNECT opens a tunnel, which cannot be measured; use another method")]
    Connect,
    /// The path contains a space, a control character or a non-ASCII character.
    #[error(
        "path {0:?} contains a space, a control character or a non-ASCII character; percent-encode this character (a space is %20)"
    )]
    IllegalPath(String),
    /// The path does not start with a slash.
    #[error("path {0:?} does not start with \"/\" (\"*\" is for OPTIONS only)")]
    PathWithoutSlash(String),
    /// The host is empty.
    #[error("the host is empty")]
    EmptyAuthority,
    /// The host contains a space, a control character, a non-ASCII character or user information.
    #[error("host {0:?} contains a space, a control character, a non-ASCII character or \"@\"")]
    IllegalAuthority(String),
    /// A header's name is not a token.
    #[error(
        "header name {0:?} contains an invalid character; use only letters, digits and !#$%&'*+-.^_`|~"
    )]
    HeaderNameNotAToken(String),
    /// A header's value contains CR, LF or NUL.
    #[error("the value of header {0:?} contains a CR, LF or NUL")]
    IllegalHeaderValue(String),
    /// A header that may appear only once appears twice.
    #[error("header {0:?} is given twice")]
    Repeated(String),
    /// A `Content-Length` header differs from the length of the body.
    #[error(
        "header \"Content-Length: {given}\" does not match the body length of {actual} bytes; remove the header"
    )]
    ContentLength {
        /// The user's value.
        given: String,
        /// Length of the body in bytes.
        actual: usize,
    },
    /// A `Content-Length` header is given, but the length of the body varies between requests.
    #[error(
        "header \"Content-Length\" is not supported for a body with templates, because the length varies; remove the header"
    )]
    LengthOfVarying,
    /// A `Transfer-Encoding` header is given. Bodies are always sent with their length.
    #[error(
        "header \"Transfer-Encoding\" is not supported, because the body is sent with its Content-Length; remove the header"
    )]
    TransferEncoding,
    /// A header belongs to HTTP/1.1 connections, but the request is for HTTP/2 (RFC 9113 section
    /// 8.2.2).
    #[error("header {0:?} is not allowed in HTTP/2; remove the header")]
    NotInHttp2(String),
    /// A `Connection` header conflicts with [`RequestSpec::close`].
    #[error(
        "header \"Connection: {given}\" conflicts with {}",
        if *close { "connections that close after each response; remove the header" }
        else { "kept connections; remove the header, and use --fresh to close each connection after one response" }
    )]
    Connection {
        /// The user's value.
        given: String,
        /// The value of [`RequestSpec::close`].
        close: bool,
    },
}

/// Encodes a request.
///
/// Adds `Host`, `User-Agent` and `Accept: */*` unless they are given, and `Connection: close` if
/// requested.
///
/// Adds `Content-Length` if there is a body, or if the method defines a meaning for a body (RFC
/// 9110 section 8.6).
///
/// # Errors
/// The request would be invalid, or a header conflicts with the rest of the request.
pub fn request_bytes(spec: &RequestSpec<'_>) -> Result<Vec<u8>, RequestError> {
    let mut bytes = lines(spec, Some(spec.body.len()))?.concat().into_bytes();
    bytes.extend_from_slice(spec.body);
    Ok(bytes)
}

/// Encodes the head of a request whose body has `length` bytes.
///
/// Without a `length`, the body is generated per request, and its decimal length goes between the
/// two parts of the head. Otherwise the second part is empty. The content of `spec.body` is
/// ignored; only whether the body is empty matters.
///
/// # Errors
/// Returns the errors of [`request_bytes`]. Without a `length`, also returns an error if the user's
/// headers contain `Content-Length`.
pub fn request_head(
    spec: &RequestSpec<'_>,
    length: Option<usize>,
) -> Result<[Vec<u8>; 2], RequestError> {
    let lines = lines(spec, length)?;
    let open_length = lines.iter().position(|line| line == LENGTH);
    let cut = open_length.map_or(lines.len(), |at| at + 1);
    Ok([&lines[..cut], &lines[cut..]].map(|part| part.concat().into_bytes()))
}

/// The part of a `Content-Length` line before the value.
const LENGTH: &str = "Content-Length: ";

pub(crate) const USER_AGENT: &str = concat!("floodmark/", env!("CARGO_PKG_VERSION"));

/// Returns the lines of the head with their line endings, including the empty line. Without a
/// `length`, the `Content-Length` line ends before its value.
fn lines(spec: &RequestSpec<'_>, length: Option<usize>) -> Result<Vec<String>, RequestError> {
    check_line(spec)?;
    check_headers(spec, length)?;
    let is_given = |name| is_given(spec.headers, name);

    let defaults = [
        ("Host", spec.authority),
        ("User-Agent", USER_AGENT),
        ("Accept", "*/*"),
    ];
    let defaults = defaults.into_iter().filter(|(name, _)| !is_given(name));
    let given = spec.headers.iter().map(|(name, value)| (&**name, &**value));
    let mut lines = vec![format!("{} {} HTTP/1.1\r\n", spec.method, spec.path)];
    let line = |(name, value)| format!("{name}: {value}\r\n");
    lines.extend(defaults.chain(given).map(line));
    if adds_length(spec) {
        match length {
            Some(length) => lines.push(format!("{LENGTH}{length}\r\n")),
            None => lines.extend([LENGTH.to_owned(), "\r\n".to_owned()]),
        }
    }
    let closes = |(name, value): &(String, String)| {
        name.eq_ignore_ascii_case("connection") && has_option(value, "close")
    };
    if spec.close && !spec.headers.iter().any(closes) {
        lines.push("Connection: close\r\n".to_owned());
    }
    lines.push("\r\n".to_owned());
    Ok(lines)
}

/// Returns whether a `Content-Length` header must be added to the user's headers.
pub(crate) fn adds_length(spec: &RequestSpec<'_>) -> bool {
    let has_length = !spec.body.is_empty() || matches!(spec.method, "POST" | "PUT" | "PATCH");
    has_length && !is_given(spec.headers, "content-length")
}

/// Returns whether `Host` or `:authority` may contain these bytes: visible ASCII characters except
/// `@`, because HTTP/2 forbids user information (RFC 9113, section 8.3.1).
#[must_use]
pub fn is_authority(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| b.is_ascii_graphic() && *b != b'@')
}

pub(crate) fn check_line(spec: &RequestSpec<'_>) -> Result<(), RequestError> {
    let is_graphic = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
    Err(if !is_token(spec.method) {
        RequestError::MethodNotAToken(spec.method.to_owned())
    } else if spec.method == "CONNECT" {
        RequestError::Connect
    } else if !is_graphic(spec.path) {
        RequestError::IllegalPath(spec.path.to_owned())
    } else if !spec.path.starts_with('/') && (spec.method, spec.path) != ("OPTIONS", "*") {
        RequestError::PathWithoutSlash(spec.path.to_owned())
    } else if spec.authority.is_empty() {
        RequestError::EmptyAuthority
    } else if !is_authority(spec.authority.as_bytes()) {
        RequestError::IllegalAuthority(spec.authority.to_owned())
    } else {
        return Ok(());
    })
}

pub(crate) fn check_headers(
    spec: &RequestSpec<'_>,
    length: Option<usize>,
) -> Result<(), RequestError> {
    for (i, (name, value)) in spec.headers.iter().enumerate() {
        if !is_token(name) {
            return Err(RequestError::HeaderNameNotAToken(name.clone()));
        }
        if value.contains(['\r', '\n', '\0']) {
            return Err(RequestError::IllegalHeaderValue(name.clone()));
        }
        match name.to_ascii_lowercase().as_str() {
            "host" | "content-length" if is_given(&spec.headers[..i], name) => {
                return Err(RequestError::Repeated(name.clone()));
            }
            "content-length" => {
                let actual = length.ok_or(RequestError::LengthOfVarying)?;
                if decimal(value.trim().as_bytes()) != Some(actual as u64) {
                    return Err(RequestError::ContentLength {
                        given: value.clone(),
                        actual,
                    });
                }
            }
            "transfer-encoding" => return Err(RequestError::TransferEncoding),
            "connection" if has_option(value, if spec.close { "keep-alive" } else { "close" }) => {
                return Err(RequestError::Connection {
                    given: value.clone(),
                    close: spec.close,
                });
            }
            _ => {}
        }
    }
    Ok(())
}

pub(crate) fn is_given(headers: &[(String, String)], name: &str) -> bool {
    headers
        .iter()
        .any(|(given, _)| given.eq_ignore_ascii_case(name))
}

/// Returns whether a `Connection` header contains an option.
fn has_option(value: &str, option: &str) -> bool {
    value
        .split(',')
        .any(|one| one.trim().eq_ignore_ascii_case(option))
}

/// Checks for a `token` (RFC 9110 section 5.6.2).
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests;
