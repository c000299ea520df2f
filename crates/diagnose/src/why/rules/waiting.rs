//! Requests that wait although no resource is saturated: delayed ACKs, blocking writes, a full
//! link.

use floodmark_record::metric::{NetworkFigure, Role, SocketFigure};
use floodmark_record::units::{show_bytes, show_ns};

use super::{HALF, per_s, show_us, working};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, ruled_out};
use crate::why::facts::RunFacts;

/// Range of the median service time with delayed ACKs, in µs. Linux delays an ACK by at least 40 ms
/// (`TCP_DELACK_MIN`, HZ/25).
const DELAYED_ACK_US: std::ops::Range<f64> = 39_000.0..48_000.0;

/// Detects responses whose second part waits until the client has acknowledged the first.
pub(super) fn delayed_ack(facts: &RunFacts<'_>) -> Option<Finding> {
    let times = &facts.run.service_time_us;
    let (p50, p90) = (times.p50?, times.p90?);
    let (median, p90) = (show_ns(p50 * 1e3), show_ns(p90 * 1e3));
    if !DELAYED_ACK_US.contains(&p50) {
        return ruled_out(format!("median service time: {median}, not 40 ms"));
    }
    // After a 40 ms pause in the server, the first byte is also late.
    let first_byte = facts.run.first_byte_us.p50;
    if first_byte.is_none_or(|us| us >= p50 / 4.0) {
        return ruled_out("the first byte arrived as late as the last");
    }
    let delayed = facts
        .samples
        .network(Role::Client, NetworkFigure::DelayedAcks);
    if let Some(delayed) = delayed.filter(|n| *n < HALF * facts.responses_per_s) {
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
            format!("first byte: p50 {}", show_us(first_byte)),
            counter,
        ],
        "set TCP_NODELAY in the server, or write headers and body in one call",
    )
    .with_limit(facts.in_flight.map(|in_flight| in_flight / 0.04))
    .found()
}

/// Kernel functions in which a thread waits while writing to a pipe, terminal or disk.
const WRITING: [&str; 8] = [
    "pipe_write",
    "anon_pipe_write",
    "n_tty_write",
    "jbd2_log_wait_commit",
    "folio_wait_bit_common",
    "wait_on_page_bit",
    "xfs_log_force",
    "submit_bio_wait",
];

/// Detects server threads that are blocked while writing.
pub(super) fn logging(facts: &RunFacts<'_>) -> Option<Finding> {
    let is_write = |function: &str| WRITING.iter().any(|name| function.starts_with(name));
    let groups = facts.thread_groups.iter();
    let writing = groups
        .map(|group| group.waiting_in(is_write))
        .reduce(|a, b| a + b)?;
    let figure = format!("{writing:.2} server threads were writing on average (wchan)");
    if writing < HALF {
        return ruled_out(figure);
    }
    let mut functions = facts.thread_groups.iter().flat_map(|group| &group.waits_in);
    let function = functions.find(|(name, _)| is_write(name));
    Candidate::new(
        EvidenceRank::Located,
        format!(
            "requests wait for the server's writes: {writing:.1} threads wait in {} on average",
            function.map_or("a write", |(name, _)| name.as_str())
        ),
        vec![figure],
        "log less, log from a separate thread, or flush less often",
    )
    .found()
}

/// Payload of a TCP segment on Ethernet, in bytes. The client's kernel may delay the ACK of a
/// response that fits into one segment, so unacknowledged bytes of such a response do not indicate
/// a full link.
const SEGMENT: f64 = 1_448.0;

/// Maximum response size, in bytes, that the rule considers. Socket buffers limit the data that a
/// connection has in transit. The value is an estimate, not a kernel constant.
const MAX_IN_TRANSIT: f64 = 512.0 * 1024.0;

/// Detects a saturated link: responses have left the server but have not reached the client.
pub(super) fn link(facts: &RunFacts<'_>) -> Option<Finding> {
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
        || in_transit < HALF * maximum
        || unread > in_transit * HALF
        || !working::has_spare_cpu(facts)
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
    .with_limit(Some(facts.ok_per_s))
    .found()
}
