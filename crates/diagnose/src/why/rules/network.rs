//! Requests that wait although no resource is saturated: delayed ACKs and a full link.

use floodmark_record::metric::{NetworkFigure, Role, SocketFigure};
use floodmark_record::path::{Actor, StepKind};
use floodmark_record::units::{show_bytes, show_ns};

use crate::text::{per_s, show_us};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::RunFacts;
use crate::why::thresholds::{DELAYED_ACK_US, MAX_IN_TRANSIT, MOST};

/// Detects responses whose second part waits until the client has acknowledged the first.
pub(in crate::why) fn delayed_ack(facts: &RunFacts<'_>) -> Option<Finding> {
    let times = &facts.run.service_time_us;
    let (p50, p90) = (times.p50?, times.p90?);
    let (median, p90) = (show_ns(p50 * 1e3), show_ns(p90 * 1e3));
    if p50 < DELAYED_ACK_US.start {
        return ruled_out(format!("median service time: {median}, below 40 ms"));
    }
    // After a 40 ms pause in the server, the first byte is also late. The server may take any time
    // before the first byte.
    let first_byte = facts.run.first_byte_us.p50?;
    let rest = p50 - first_byte;
    if !DELAYED_ACK_US.contains(&rest) {
        let rest = show_us(Some(rest.max(0.0)));
        return ruled_out(format!(
            "the median times to the first and last byte differ by {rest}, not 40 ms"
        ));
    }
    let delayed = facts
        .samples
        .network(Role::Client, NetworkFigure::DelayedAcks);
    if let Some(delayed) = delayed.filter(|n| *n < MOST * facts.responses_per_s) {
        let delayed = per_s(delayed);
        return ruled_out(format!("only {delayed} delayed ACKs (DelayedACKs)"));
    }
    let counter = match delayed {
        None => {
            "delayed ACKs: not measured (a pause of 40 ms in the server looks the same)".to_owned()
        }
        Some(delayed) => format!(
            "{} delayed ACKs (DelayedACKs), {} responses",
            per_s(delayed),
            per_s(facts.responses_per_s)
        ),
    };
    Candidate::new(
        EvidenceRank::Counted,
        "the second part of each response waits 40 ms for the acknowledgement of the first (Nagle's algorithm and delayed ACK)",
        vec![
            format!("service time: p50 {median}, p90 {p90}"),
            format!("first byte: p50 {}", show_us(Some(first_byte))),
            counter,
        ],
        "set TCP_NODELAY in the server, or write headers and body in one call",
    )
    .at([(StepKind::DelayedAck, Actor::Server)])
    .with_limit(facts.in_flight.map(|in_flight| in_flight / 0.04))
    .found()
}

/// Payload of a TCP segment on Ethernet, in bytes. The client's kernel may delay the ACK of a
/// response that fits into one segment, so unacknowledged bytes of such a response do not indicate
/// a full link.
const SEGMENT: f64 = 1_448.0;

/// Detects a saturated link: responses have left the server but have not reached the client.
pub(in crate::why) fn link(facts: &RunFacts<'_>) -> Option<Finding> {
    let in_flight = facts.in_flight?;
    let samples = &facts.samples;
    let in_transit = samples.sockets(Role::Server, SocketFigure::SendQueue)?;
    let unread = samples.sockets(Role::Client, SocketFigure::ReceiveQueue);
    let unread = unread.unwrap_or(0.0);
    let run = facts.run;
    let response = run.bytes.received as f64 / run.requests.ok.max(1) as f64;
    let figure = format!(
        "response bytes: {} not acknowledged, {} not read by the client (sock_diag)",
        show_bytes(in_transit as u64),
        show_bytes(unread as u64)
    );
    let maximum = response.min(MAX_IN_TRANSIT) * in_flight;
    if response < SEGMENT
        || in_transit < MOST * maximum
        || unread > in_transit * MOST
        || !facts.has_spare_cpu()
    {
        return ruled_out(figure);
    }
    Candidate::new(
        EvidenceRank::Located,
        format!(
            "the link is saturated: {} per second ({} per response); sent responses wait in transit",
            show_bytes((response * facts.ok_per_s) as u64),
            show_bytes(response as u64)
        ),
        vec![figure],
        "make responses smaller (compress them), or use a faster link",
    )
    .at([(StepKind::Link, Actor::Network)])
    .with_limit(Some(facts.ok_per_s))
    .found()
}
