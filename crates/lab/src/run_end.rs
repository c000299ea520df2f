//! One-line descriptions of why a run ended.

use floodmark_record::WorkerEnd;
use floodmark_record::client::ClientRan;
use floodmark_record::events::EndReason;
use floodmark_record::units::show_ns;

/// Returns why an external client's run failed or is incomplete.
pub fn client_failure(ran: &ClientRan) -> Option<String> {
    let interrupted = || format!("{} was interrupted before it printed its figures", ran.name);
    ran.failure
        .clone()
        .or_else(|| ran.interrupted.then(interrupted))
}

/// Returns why a worker's run is incomplete, if it is.
pub fn interruption(end: &WorkerEnd) -> Option<String> {
    let handshake_failure = end.tls.as_ref().and_then(|tls| tls.failure.as_deref());
    match (end.reason, handshake_failure) {
        // A worker never reports `ClientFailed`.
        (EndReason::Completed | EndReason::ClientFailed, _) => None,
        (EndReason::NotHttp, _) => Some("the server does not speak HTTP/1.1".to_owned()),
        (EndReason::Interrupted, _) => Some(format!(
            "interrupted after {}",
            show_ns(end.ended_ns as f64)
        )),
        (EndReason::ServerGone, Some(why)) if end.connects == 0 => {
            Some(format!("no TLS handshake succeeded: {why}"))
        }
        (EndReason::ServerGone, _) => {
            let mut errors = end.errors.keys().map(String::as_str);
            let error = errors.find(|name| name.starts_with("connect") || *name == "unreachable");
            let error = error.unwrap_or("connect_failed").replace('_', " ");
            Some(match end.last_response_ns.filter(|since| *since > 0) {
                _ if end.counts.ok + end.connects == 0 => {
                    format!("the server is unreachable ({error})")
                }
                None => format!("the server never responded ({error})"),
                Some(since) => format!(
                    "the server stopped responding {} into the run ({error})",
                    show_ns(since as f64)
                ),
            })
        }
    }
}
