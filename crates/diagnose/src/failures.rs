//! Explanations and fixes for requests that got no valid response.

use std::borrow::Cow;
use std::fmt::{self, Display};

use floodmark_record::events::EndReason;
use floodmark_record::plan::Http;
use floodmark_record::reason::{GO_AWAY, NOT_READ, STREAM_REFUSED, STREAM_RESET};
use floodmark_record::run::Run;
use floodmark_record::tls::{FAILURE_PREFIX, failure_fix};
use floodmark_wire::ReadError;
use floodmark_wire::grpc::GrpcFault;
use floodmark_wire::h2::hpack::HpackError;
use floodmark_wire::h2::{ConnectionError, ErrorCode, Malformed};

use crate::tls;

/// A problem with a server's responses, and its fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseFault {
    /// The problem.
    pub problem: String,
    /// The fix.
    pub fix: Cow<'static, str>,
}

impl Display for ResponseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

/// Fix for an invalid response.
const FIX_RESPONSE: &str = "correct the server's response";

/// Fix for a response that exceeds a limit of floodmark.
const FIX_LIMIT: &str = "keep the response within this limit";

/// Explains one outcome of a run's requests.
type Explanation = fn(&Run) -> Option<ResponseFault>;

/// Explains the most frequent reason why requests got no valid response. Returns `None` if the
/// errors do not show the reason.
#[must_use]
pub fn response_fault(run: &Run) -> Option<ResponseFault> {
    if run.ended.reason == EndReason::NotHttp {
        // The requests may still be waiting for a connection on which the server speaks HTTP.
        return malformed(run);
    }
    let counts = &run.requests;
    let outcomes: [(u64, Explanation); 4] = [
        (counts.malformed, malformed),
        (counts.reset, reset),
        (counts.timed_out, timed_out),
        (refusals(run), refused),
    ];
    let (_, explain) = outcomes.into_iter().max_by_key(|(n, _)| *n)?;
    explain(run)
}

fn malformed(run: &Run) -> Option<ResponseFault> {
    match run.plan.http {
        Http::V1 => malformed_http1(run),
        Http::V2(_) => malformed_http2(run),
    }
}

fn malformed_http1(run: &Run) -> Option<ResponseFault> {
    let errors = run.request_errors();
    let errors = errors.filter_map(|(name, n)| Some((ReadError::named(name)?, n)));
    // The following errors are also counted for complete responses and timeouts, so they do not
    // explain malformed responses.
    let other = |error| {
        use ReadError::{DataAfterClose, UnknownLength, Unsolicited};
        matches!(error, DataAfterClose | UnknownLength | Unsolicited)
    };
    let errors = errors.filter(|(error, _)| !other(*error));
    let (error, _) = errors.max_by_key(|(_, n)| *n)?;
    Some(of_error(error))
}

fn malformed_http2(run: &Run) -> Option<ResponseFault> {
    let explained = |name| {
        let fault = |problem, fix: &'static str| ResponseFault {
            problem,
            fix: fix.into(),
        };
        ConnectionError::named(name)
            .map(|error| fault(error.to_string(), fix_connection(error)))
            .or_else(|| Some(fault(Malformed::named(name)?.to_string(), FIX_RESPONSE)))
            .or_else(|| {
                let error = GrpcFault::named(name)?;
                Some(fault(error.to_string(), fix_call(error)))
            })
    };
    let errors = run.request_errors();
    let errors = errors.filter_map(|(name, n)| Some((explained(name)?, n)));
    if let Some((fault, _)) = errors.max_by_key(|(_, n)| *n) {
        return Some(fault);
    }
    let (name, _) = run.request_errors().max_by_key(|(_, n)| *n)?;
    (!name.starts_with(FAILURE_PREFIX)).then(|| ResponseFault {
        problem: "the server closed connections during a response".to_owned(),
        fix: "check the server's log".into(),
    })
}

fn reset(run: &Run) -> Option<ResponseFault> {
    let (name, _) = run.request_errors().max_by_key(|(_, n)| *n)?;
    if name.starts_with(FAILURE_PREFIX) {
        return Some(ResponseFault {
            problem: tls::problem(run, name),
            fix: failure_fix(name, tls::origin(run)).into(),
        });
    }
    if let Some(fault) = reset_streams(run) {
        return Some(fault);
    }
    if name == NOT_READ {
        return Some(ResponseFault {
            problem: "the server stopped reading from connections".to_owned(),
            fix: "check the server's log, and whether its threads are blocked".into(),
        });
    }
    let is_plain = run.plan.tls.is_none() && run.requests.statuses.is_empty();
    is_plain.then(|| ResponseFault {
        problem: "the server closed connections without a response".to_owned(),
        fix: match run.plan.http {
            Http::V1 => "check the server's log; if the port serves TLS, use https:// in the URL",
            Http::V2(_) => {
                "check the server's log; if the port serves TLS, use https:// in the URL, and if it \
                 serves only HTTP/1.1, use --http 1.1"
            }
        }
        .into(),
    })
}

/// Explains why the server reset streams (HTTP/2), if this is the most frequent error.
pub(crate) fn reset_streams(run: &Run) -> Option<ResponseFault> {
    let (name, _) = run.request_errors().max_by_key(|(_, n)| *n)?;
    let code = name.strip_prefix(STREAM_RESET)?;
    let code = ErrorCode::named(&code.trim_start_matches('_').to_ascii_uppercase());
    let reason = code.and_then(ErrorCode::name);
    Some(ResponseFault {
        problem: match reason {
            Some(reason) => format!("the server reset streams with {reason}"),
            None => "the server reset streams".to_owned(),
        },
        fix: match code {
            Some(ErrorCode::HTTP_1_1_REQUIRED) => "use --http 1.1",
            Some(ErrorCode::ENHANCE_YOUR_CALM) => "reduce the load, or raise the server's limits",
            Some(ErrorCode::PROTOCOL_ERROR) => "check the request's headers and the server's log",
            _ => "check the server's log",
        }
        .into(),
    })
}

/// Returns the number of requests that the server did not process and that were not sent again
/// (HTTP/2).
fn refusals(run: &Run) -> u64 {
    let of = |name| run.errors.get(name).copied().unwrap_or(0);
    // Requests that could not be sent again have other outcomes, but the same errors.
    (of(GO_AWAY) + of(STREAM_REFUSED)).min(run.requests.rejected)
}

/// Explains rejected requests, if the server refused most of their streams (HTTP/2).
pub(crate) fn refused(run: &Run) -> Option<ResponseFault> {
    let counts = &run.requests;
    let refusals = refusals(run);
    if refusals == 0 || 2 * refusals < counts.rejected + counts.wrong {
        return None;
    }
    let of = |name| run.errors.get(name).copied().unwrap_or(0);
    let (problem, fix) = if of(STREAM_REFUSED) >= of(GO_AWAY) {
        (
            "the server refused streams (REFUSED_STREAM)",
            "use fewer --streams or connections, or raise the server's limit on streams",
        )
    } else {
        (
            "the server closed connections (GOAWAY) before it processed the requests",
            "remove --retry never if it is set, or raise the server's limit on requests per connection",
        )
    };
    Some(ResponseFault {
        problem: problem.to_owned(),
        fix: fix.into(),
    })
}

/// Explains timeouts, if most of the requests that timed out had received a part of a response.
fn timed_out(run: &Run) -> Option<ResponseFault> {
    let error = ReadError::UnknownLength;
    let affected = run.errors.get(error.name())?;
    (2 * affected >= run.requests.timed_out).then(|| of_error(error))
}

fn of_error(error: ReadError) -> ResponseFault {
    ResponseFault {
        problem: error.to_string(),
        fix: fix(error).into(),
    }
}

fn fix(error: ReadError) -> &'static str {
    match error {
        ReadError::NotHttp => "find out what listens on this port, or use another port",
        ReadError::Tls => "use https:// in the URL",
        ReadError::Http2 => "use --http 2, or enable HTTP/1.1 in the server",
        ReadError::UnknownLength => {
            "make the server send Content-Length, use chunked encoding, or close the connection after the response"
        }
        ReadError::ConflictingContentLength | ReadError::LengthAndTransferEncoding => {
            "make the server send only one of them"
        }
        ReadError::TooManyHeaders
        | ReadError::HeadTooLarge
        | ReadError::ChunkExtensionsTooLarge
        | ReadError::TrailersTooLarge => FIX_LIMIT,
        ReadError::TruncatedHead | ReadError::TruncatedBody | ReadError::TruncatedChunks => {
            "check the server's log"
        }
        _ => FIX_RESPONSE,
    }
}

/// Returns the fix for a malformed response to a gRPC call.
fn fix_call(error: GrpcFault) -> &'static str {
    match error {
        GrpcFault::NoStatus | GrpcFault::InvalidFlag => {
            "check that the port serves gRPC, and that no proxy removes trailers"
        }
        GrpcFault::SecondMessage => "call a unary method, or correct the server's response",
        _ => FIX_RESPONSE,
    }
}

/// Names the statuses of the requests that the server rejected. If there are none, names the
/// statuses that a server can use to reject them.
pub(crate) fn rejection_statuses(run: &Run) -> String {
    let statuses = run.requests.by_status().map(|(status, _)| status);
    let rejections = statuses.filter(|status| status.is_rejection());
    let mut names: Vec<String> = rejections.map(|status| status.to_string()).collect();
    names.sort();
    match names.as_slice() {
        [] if run.requests.grpc_statuses.is_empty() => "429 or 503".to_owned(),
        [] => "RESOURCE_EXHAUSTED or UNAVAILABLE".to_owned(),
        names => names.join(" or "),
    }
}

/// Returns the fix for a connection on which the server violated HTTP/2.
fn fix_connection(error: ConnectionError) -> &'static str {
    match error {
        ConnectionError::Http1 => {
            "use --http 1.1, or enable HTTP/2 in the server; if the port serves TLS, use https://"
        }
        ConnectionError::NoSettings => {
            "use --http 1.1, or find out what listens on this port; if it serves TLS, use https://"
        }
        ConnectionError::TooManyContinuations
        | ConnectionError::BlockTooLarge
        | ConnectionError::Hpack(HpackError::ListTooLarge) => FIX_LIMIT,
        _ => FIX_RESPONSE,
    }
}

#[cfg(test)]
mod tests {
    use floodmark_record::plan::Http2;

    use super::*;
    use crate::next::tests::run;
    use crate::testing::closed;

    /// Returns a run in which all requests failed with an error.
    fn failing(name: &str, outcome: fn(&mut floodmark_record::Counts) -> &mut u64) -> Run {
        let mut run = run(closed());
        run.requests.ok = 0;
        run.requests.statuses.clear();
        *outcome(&mut run.requests) = 10_000;
        run.errors.insert(name.to_owned(), 10_000);
        run
    }

    #[test]
    fn explains_failures_of_http2() {
        type Counter = fn(&mut floodmark_record::Counts) -> &mut u64;
        let malformed: Counter = |counts| &mut counts.malformed;
        let reset: Counter = |counts| &mut counts.reset;
        let rejected: Counter = |counts| &mut counts.rejected;
        for (name, outcome, words) in [
            (
                "http1",
                malformed,
                "speaks HTTP/1.1, but the connection uses HTTP/2; use --http 1.1",
            ),
            ("no_settings", malformed, "not SETTINGS; use --http 1.1"),
            (
                "block_too_large",
                malformed,
                "floodmark accepts; keep the response",
            ),
            (
                "list_too_large",
                malformed,
                "(RFC 9113 section 10.5.1); keep the response",
            ),
            (
                "invalid_index",
                malformed,
                "(RFC 7541 section 2.3.3); correct",
            ),
            ("body_length", malformed, "differs from content-length"),
            (
                "grpc_no_status",
                malformed,
                "no grpc-status in its trailers; check that the port serves gRPC",
            ),
            (
                "grpc_second_message",
                malformed,
                "or there is a second message; call a unary method",
            ),
            (
                "connection_reset",
                malformed,
                "during a response; check the server's log",
            ),
            (
                "stream_reset_internal_error",
                reset,
                "with INTERNAL_ERROR; check the server's log",
            ),
            (
                "stream_reset_http_1_1_required",
                reset,
                "HTTP_1_1_REQUIRED; use --http 1.1",
            ),
            ("stream_reset", reset, "the server reset streams; check"),
            (
                "not_read_by_server",
                reset,
                "stopped reading from connections; check",
            ),
            (
                "closed_before_answer",
                reset,
                "if it serves only HTTP/1.1, use --http 1.1",
            ),
            (
                "stream_refused",
                rejected,
                "(REFUSED_STREAM); use fewer --streams",
            ),
            (
                "go_away",
                rejected,
                "(GOAWAY) before it processed the requests; remove --retry never",
            ),
        ] {
            let mut run = failing(name, outcome);
            run.plan.http = Http::V2(Http2::default());
            let text = response_fault(&run).unwrap().to_string();
            assert!(text.contains(words), "{text}");
        }
        // All requests are still waiting for a connection.
        let mut waiting = failing("http1", |counts| &mut counts.in_flight_at_end);
        waiting.plan.http = Http::V2(Http2::default());
        waiting.ended.reason = EndReason::NotHttp;
        let text = response_fault(&waiting).unwrap().to_string();
        assert!(text.contains("use --http 1.1"), "{text}");
        // The server answered the other rejected requests with 429 or 503.
        let mut few = failing("stream_refused", rejected);
        few.errors.insert("stream_refused".to_owned(), 4_999);
        assert_eq!(refused(&few), None);
    }

    #[test]
    fn explains_the_most_frequent_outcome() {
        let fault = |run: &Run| response_fault(run).map(|fault| fault.to_string());
        for (name, words) in [
            (
                "tls",
                "speaks TLS, but the request was plain HTTP; use https://",
            ),
            (
                "head_too_large",
                "longer than 65536 bytes, the maximum that floodmark accepts; keep",
            ),
            (
                "length_and_transfer_encoding",
                "(RFC 9112 section 6.3); make the server send only one",
            ),
        ] {
            let text = fault(&failing(name, |counts| &mut counts.malformed)).unwrap();
            assert!(text.contains(words), "{text}");
        }
        let unknown_length = failing("unknown_length", |counts| &mut counts.timed_out);
        assert!(
            fault(&unknown_length)
                .unwrap()
                .contains("neither Content-Length nor chunked")
        );
        let closed = failing("closed_before_answer", |counts| &mut counts.reset);
        assert!(fault(&closed).unwrap().contains("https://"));
        // A server that responded to other requests speaks plain HTTP.
        let mut some_ok = closed;
        some_ok.requests.statuses.insert(200, 1);
        assert_eq!(fault(&some_ok), None);
        let certificate = failing("tls_alert_certificate_required", |counts| &mut counts.reset);
        assert!(fault(&certificate).unwrap().contains("use --cert FILE"));
        let mut silent = failing("x", |counts| &mut counts.timed_out);
        silent.errors.clear();
        assert_eq!(fault(&silent), None);
        assert_eq!(fault(&run(crate::testing::closed())), None);
    }
}
