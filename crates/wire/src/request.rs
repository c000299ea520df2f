//! The bytes of a request, made once and sent many times.

use crate::fields::decimal;

/// What a request is made of.
#[derive(Debug, Clone, Copy)]
pub struct RequestSpec<'a> {
    /// Method, such as `GET`; any token but `CONNECT`.
    pub method: &'a str,
    /// Path and query, from the slash on; `*` for `OPTIONS`.
    pub path: &'a str,
    /// Host, and port if it is not the scheme's own.
    pub authority: &'a str,
    /// Headers of the user, sent in this order.
    pub headers: &'a [(String, String)],
    /// Body; may be empty.
    pub body: &'a [u8],
    /// Whether the connection is to be closed after the answer.
    pub close: bool,
}

/// Why no request can be made of a [`RequestSpec`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The method is not a token.
    #[error("method {0:?} is not one word of letters, digits and !#$%&'*+-.^_`|~")]
    MethodNotAToken(String),
    /// The method is `CONNECT`, after which the connection no longer speaks HTTP.
    #[error("method CONNECT opens a tunnel, which cannot be measured; use another method")]
    Connect,
    /// The path holds a space, a control character or a non-ASCII one.
    #[error(
        "path {0:?} holds a space, a control or a non-ASCII character; write it percent-encoded, like %20"
    )]
    IllegalPath(String),
    /// The path does not begin with a slash.
    #[error("path {0:?} does not begin with \"/\" (\"*\" is for OPTIONS only)")]
    PathWithoutSlash(String),
    /// There is no host.
    #[error("the host is empty")]
    EmptyAuthority,
    /// The host holds a space, a control character or a non-ASCII one.
    #[error("host {0:?} holds a space, a control or a non-ASCII character")]
    IllegalAuthority(String),
    /// A header's name is not a token.
    #[error("header name {0:?} is not one word of letters, digits and !#$%&'*+-.^_`|~")]
    HeaderNameNotAToken(String),
    /// A header's value holds CR, LF or NUL.
    #[error("the value of header {0:?} holds a CR, LF or NUL")]
    IllegalHeaderValue(String),
    /// A header that may stand only once is there twice.
    #[error("header {0:?} is given twice")]
    Repeated(String),
    /// A `Content-Length` that disagrees with the body.
    #[error(
        "header \"Content-Length: {given}\" disagrees with the body of {actual} bytes; leave it out"
    )]
    ContentLength {
        /// What the user gave.
        given: String,
        /// Bytes of the body.
        actual: usize,
    },
    /// A `Content-Length` for a body whose length differs from request to request.
    #[error(
        "header \"Content-Length\" cannot be given for a body with templates, whose length varies; leave it out"
    )]
    LengthOfVarying,
    /// A `Transfer-Encoding`: bodies are always sent with their length.
    #[error(
        "header \"Transfer-Encoding\" cannot be given; the body is sent with its Content-Length"
    )]
    TransferEncoding,
    /// A `Connection` header that contradicts what is asked of the connection.
    #[error(
        "header \"Connection: {given}\" contradicts a connection that is {}; leave it out",
        if *close { "closed after each answer" } else { "kept" }
    )]
    Connection {
        /// What the user gave.
        given: String,
        /// What [`RequestSpec::close`] asks for.
        close: bool,
    },
}

/// Which headers the user gave.
#[derive(Default)]
struct Given {
    host: bool,
    user_agent: bool,
    accept: bool,
    content_length: bool,
    connection_close: bool,
}

/// Writes a request as it goes over the wire.
///
/// `Host`, `User-Agent` and `Accept: */*` are added unless given; `Content-Length` where there is a body or the method
/// gives one a meaning (RFC 9110 section 8.6); `Connection: close` where asked for.
///
/// # Errors
/// Whatever would make an illegal request, or one that says something else than what is sent.
pub fn request_bytes(spec: &RequestSpec<'_>) -> Result<Vec<u8>, RequestError> {
    let mut bytes = lines(spec, Some(spec.body.len()))?.concat().into_bytes();
    bytes.extend_from_slice(spec.body);
    Ok(bytes)
}

/// A request's head, in the two parts between which the decimal length of its body belongs: for a body that is made anew for
/// each request. Of the spec's body it counts only whether there is one.
///
/// # Errors
/// As [`request_bytes`], and a `Content-Length` of the user.
pub fn head_around_length(spec: &RequestSpec<'_>) -> Result<[Vec<u8>; 2], RequestError> {
    let lines = lines(spec, None)?;
    let length = lines.iter().position(|line| line == LENGTH);
    let cut = length.map_or(lines.len(), |at| at + 1);
    Ok([&lines[..cut], &lines[cut..]].map(|part| part.concat().into_bytes()))
}

/// What stands before the length of a body.
const LENGTH: &str = "Content-Length: ";

/// The lines of the head with their ends, the empty one included; the one with a `length` that is not known ends before it.
fn lines(spec: &RequestSpec<'_>, length: Option<usize>) -> Result<Vec<String>, RequestError> {
    check_line(spec)?;
    let given = check_headers(spec, length)?;

    let mut lines = vec![format!("{} {} HTTP/1.1\r\n", spec.method, spec.path)];
    if !given.host {
        lines.push(format!("Host: {}\r\n", spec.authority));
    }
    if !given.user_agent {
        lines.push(concat!("User-Agent: floodmark/", env!("CARGO_PKG_VERSION"), "\r\n").to_owned());
    }
    if !given.accept {
        lines.push("Accept: */*\r\n".to_owned());
    }
    lines.extend(
        spec.headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n")),
    );
    let has_length = !spec.body.is_empty() || matches!(spec.method, "POST" | "PUT" | "PATCH");
    if has_length && !given.content_length {
        match length {
            Some(length) => lines.push(format!("{LENGTH}{length}\r\n")),
            None => lines.extend([LENGTH.to_owned(), "\r\n".to_owned()]),
        }
    }
    if spec.close && !given.connection_close {
        lines.push("Connection: close\r\n".to_owned());
    }
    lines.push("\r\n".to_owned());
    Ok(lines)
}

fn check_line(spec: &RequestSpec<'_>) -> Result<(), RequestError> {
    if !is_token(spec.method) {
        return Err(RequestError::MethodNotAToken(spec.method.to_owned()));
    }
    if spec.method == "CONNECT" {
        return Err(RequestError::Connect);
    }
    if !spec.path.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(RequestError::IllegalPath(spec.path.to_owned()));
    }
    if !spec.path.starts_with('/') && (spec.method, spec.path) != ("OPTIONS", "*") {
        return Err(RequestError::PathWithoutSlash(spec.path.to_owned()));
    }
    if spec.authority.is_empty() {
        return Err(RequestError::EmptyAuthority);
    }
    if !spec.authority.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(RequestError::IllegalAuthority(spec.authority.to_owned()));
    }
    Ok(())
}

fn check_headers(spec: &RequestSpec<'_>, length: Option<usize>) -> Result<Given, RequestError> {
    let mut given = Given::default();
    for (name, value) in spec.headers {
        if !is_token(name) {
            return Err(RequestError::HeaderNameNotAToken(name.clone()));
        }
        if value.contains(['\r', '\n', '\0']) {
            return Err(RequestError::IllegalHeaderValue(name.clone()));
        }
        match name.to_ascii_lowercase().as_str() {
            "host" => once(&mut given.host, name)?,
            "user-agent" => given.user_agent = true,
            "accept" => given.accept = true,
            "content-length" => {
                once(&mut given.content_length, name)?;
                let actual = length.ok_or(RequestError::LengthOfVarying)?;
                if decimal(value.trim().as_bytes()) != Some(actual as u64) {
                    return Err(RequestError::ContentLength {
                        given: value.clone(),
                        actual,
                    });
                }
            }
            "transfer-encoding" => return Err(RequestError::TransferEncoding),
            "connection" => given.connection_close |= check_connection(value, spec.close)?,
            _ => {}
        }
    }
    Ok(given)
}

/// Whether the options hold `close`; an error if they contradict what is asked for.
fn check_connection(value: &str, close: bool) -> Result<bool, RequestError> {
    let has = |option: &str| {
        value
            .split(',')
            .any(|o| o.trim().eq_ignore_ascii_case(option))
    };
    if has(if close { "keep-alive" } else { "close" }) {
        return Err(RequestError::Connection {
            given: value.to_owned(),
            close,
        });
    }
    Ok(has("close"))
}

fn once(seen: &mut bool, name: &str) -> Result<(), RequestError> {
    if std::mem::replace(seen, true) {
        return Err(RequestError::Repeated(name.to_owned()));
    }
    Ok(())
}

/// `token` of RFC 9110 section 5.6.2.
fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests;
