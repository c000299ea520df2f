//! Where no resource is full and requests wait for something.

use floodmark_record::cause::Cause;
use floodmark_record::units::{show_bytes, show_ns};

use super::{HALF, per_s, working};
use crate::why::candidate::{Candidate, Findings, Shown};
use crate::why::facts::Facts;

/// Linux acknowledges 40 ms late at the least (`TCP_DELACK_MIN`, HZ/25); what is sent takes its part of a millisecond besides.
const LATE_US: std::ops::Range<f64> = 39_000.0..48_000.0;

/// Responses that wait for an acknowledgement.
pub(super) fn delayed_ack(facts: &Facts<'_>, findings: &mut Findings) {
    let times = &facts.run.service_time_us;
    let (Some(p50), Some(p90)) = (times.p50, times.p90) else {
        return;
    };
    if !LATE_US.contains(&p50) {
        return findings.not(
            Cause::DelayedAck,
            format!(
                "the median service time is {}, not 40 ms",
                show_ns(p50 * 1e3)
            ),
        );
    }
    // A pause of 40 ms in the server looks the same but for the second half of the answer: its head comes at once.
    let head = facts.run.first_byte_us.p50;
    let early = head.is_some_and(|head| head < p50 / 4.0);
    if !early {
        return findings.not(
            Cause::DelayedAck,
            "the first byte came as late as the last, so that nothing was held back in between",
        );
    }
    let late = facts.network.delayed_acks_per_s;
    if let Some(late) = late.filter(|late| *late < HALF * facts.answered_per_s) {
        return findings.not(
            Cause::DelayedAck,
            format!(
                "only {} acknowledgements were late (DelayedACKs)",
                per_s(late)
            ),
        );
    }
    let counted = late.map_or_else(
        || {
            "DelayedACKs were not read: a pause of 40 ms between head and body looks the same"
                .to_owned()
        },
        |late| {
            format!(
                "{} late acknowledgements beside {} answers (DelayedACKs)",
                per_s(late),
                per_s(facts.answered_per_s)
            )
        },
    );
    findings.found(Candidate {
        cause: Cause::DelayedAck,
        shown: Shown::Counted,
        used: 1.0,
        limit_per_s: facts.under_way.map(|n| n / 0.04),
        summary: "the server writes an answer in two pieces and holds the second back until the first is acknowledged, which the client's \
                  kernel delays by 40 ms (Nagle's algorithm and delayed ACK)"
            .to_owned(),
        evidence: vec![
            format!("service time: p50 {}, p90 {}", show_ns(p50 * 1e3), show_ns(p90 * 1e3)),
            format!("first byte after {} (p50)", head.map_or_else(|| "an unknown time".to_owned(), |us| show_ns(us * 1e3))),
            counted,
        ],
        next: "set TCP_NODELAY in the server, or write head and body at once".to_owned(),
        takes: None,
    });
}

/// Functions of the kernel in which a thread waits for what it wrote: a pipe or terminal that nobody reads fast enough, a disk.
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

/// Threads that wait for what they write.
pub(super) fn logging(facts: &Facts<'_>, findings: &mut Findings) {
    if facts.kinds.is_empty() {
        return;
    }
    let writes = |function: &str| WRITING.iter().any(|name| function.starts_with(name));
    let each = facts.kinds.iter().map(|kind| kind.waiting_in(writes));
    let writing = each.fold(0.0, |sum, threads| sum + threads);
    let said = format!("{writing:.2} of the server's threads were found writing (wchan)");
    if writing < HALF {
        return findings.not(Cause::SyncLogging, said);
    }
    let function = facts
        .kinds
        .iter()
        .flat_map(|kind| &kind.waits_in)
        .find(|(name, _)| writes(name));
    findings.found(Candidate {
        cause: Cause::SyncLogging,
        shown: Shown::Placed,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "requests wait for the server to write: {writing:.1} of its threads were waiting in {} on average",
            function.map_or("a write", |(name, _)| name.as_str())
        ),
        evidence: vec![said],
        next: "let a thread of its own write the log, write less of it, and leave off the flush after each line".to_owned(),
        takes: None,
    });
}

/// What one segment of Ethernet carries, bytes. An answer that is smaller came as a whole, and is not acknowledged since the client's kernel
/// waits for something to send along (delayed ACK).
const SEGMENT: f64 = 1_448.0;

/// A link that is full: answers that have left the server and have not come to the client.
pub(super) fn link(facts: &Facts<'_>, findings: &mut Findings) {
    let (Some(under_way), Some(on_the_way)) = (facts.under_way, facts.network.unacknowledged)
    else {
        return;
    };
    let run = facts.run;
    let answer = run.bytes.received as f64 / run.requests.ok.max(1) as f64;
    let unread = facts.network.unread_by_client.unwrap_or(0.0);
    let said = format!(
        "{} of answers sent and not acknowledged, {} not read by the client, on average (sock_diag)",
        show_bytes(on_the_way as u64),
        show_bytes(unread as u64)
    );
    // A large answer is never on the way as a whole, for a connection holds no more than its buffers: one above half a megabyte counts as
    // that much. A choice, not a figure of the kernel's.
    let most = answer.min(512.0 * 1024.0) * under_way;
    let small = answer < SEGMENT;
    if small || on_the_way < HALF * most || unread > on_the_way * HALF || !working::has_time(facts)
    {
        return findings.not(Cause::Bandwidth, said);
    }
    let bytes_per_s = answer * facts.ok_per_s;
    findings.found(Candidate {
        cause: Cause::Bandwidth,
        shown: Shown::Placed,
        used: 1.0,
        limit_per_s: Some(facts.ok_per_s),
        summary: format!(
            "the link is full: {} a second come through, {} for each answer, and what the server has sent waits on the way",
            show_bytes(bytes_per_s as u64),
            show_bytes(answer as u64)
        ),
        evidence: vec![said],
        next: "make answers smaller (compress them), or use a faster link".to_owned(),
        takes: None,
    });
}
