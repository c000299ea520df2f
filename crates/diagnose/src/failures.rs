//! Explanations and fixes for requests that got no valid response.

use std::fmt::{self, Display};

use floodmark_record::run::Run;
use floodmark_wire::ReadError;

use crate::tls;

/// A problem with a server's responses, and its fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseFault {
    /// The problem.
    pub problem: String,
    /// The fix.
    pub fix: &'static str,
}

impl Display for ResponseFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem, self.fix)
    }
}

/// Explains one outcome of a run's requests.
type Explanation = fn(&Run) -> Option<ResponseFault>;

/// Explains the most frequent reason why requests got no valid response. Returns `None` if the
/// errors do not show the reason.
#[must_use]
pub fn response_fault(run: &Run) -> Option<ResponseFault> {
    let counts = &run.requests;
    let outcomes: [(u64, Explanation); 3] = [
        (counts.malformed, malformed),
        (counts.reset, reset),
        (counts.timed_out, timed_out),
    ];
    let (_, explain) = outcomes.into_iter().max_by_key(|(n, _)| *n)?;
    explain(run)
}

fn malformed(run: &Run) -> Option<ResponseFault> {
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

fn reset(run: &Run) -> Option<ResponseFault> {
    let (name, _) = run.request_errors().max_by_key(|(_, n)| *n)?;
    if name.starts_with(tls::PREFIX) {
        return Some(ResponseFault {
            problem: tls::problem(run, name),
            fix: tls::fix(name),
        });
    }
    let is_plain = run.plan.tls.is_none() && run.requests.statuses.is_empty();
    is_plain.then(|| ResponseFault {
        problem: "the server closed connections without a response".to_owned(),
        fix: "check the server's log; if the port serves TLS, use https:// in the URL",
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
        fix: fix(error),
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
        | ReadError::TrailersTooLarge => "keep the response within this limit",
        ReadError::TruncatedHead | ReadError::TruncatedBody | ReadError::TruncatedChunks => {
            "check the server's log"
        }
        _ => "correct the server's response",
    }
}

#[cfg(test)]
mod tests {
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
        assert!(
            fault(&certificate)
                .unwrap()
                .contains("accept clients without a certificate")
        );
        let mut silent = failing("x", |counts| &mut counts.timed_out);
        silent.errors.clear();
        assert_eq!(fault(&silent), None);
        assert_eq!(fault(&run(crate::testing::closed())), None);
    }
}
