//! Where no resource is full and requests wait for something.

use floodmark_record::cause::Cause;
use floodmark_record::units::show_ns;

use super::{NEARLY, client, per_s, percent};
use crate::why::candidate::{Candidate, Findings, Shown};
use crate::why::facts::Facts;

/// Linux acknowledges 40 ms late at the least (`TCP_DELACK_MIN`, HZ/25); what is sent takes its part of a millisecond besides.
const LATE_US: std::ops::Range<f64> = 39_000.0..48_000.0;

/// CPUs that are this idle are waited for by nobody.
const IDLE: f64 = 0.5;

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
    findings.unseen.push(
        "whether anything waited for an acknowledgement (DelayedACKs): a server that pauses for 40 ms between head and body looks the same".to_owned(),
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
        ],
        next: "set TCP_NODELAY in the server, or write head and body at once".to_owned(),
        takes: None,
    });
}

/// Too few requests under way.
pub(super) fn concurrency(facts: &Facts<'_>, findings: &mut Findings) {
    let run = facts.run;
    if !client::is_closed(facts) {
        return;
    }
    let n = f64::from(run.plan.connections);
    let (Some(p50), Some(p99)) = (run.service_time_us.p50, run.service_time_us.p99) else {
        return;
    };
    let busiest = facts.server.as_ref().and_then(|s| s.busiest.as_ref());
    let (Some(busy), Some(idle)) = (busiest.map(|b| b.on_cpu), facts.idle_cpus()) else {
        return;
    };
    if idle < IDLE || busy >= NEARLY {
        return findings.not(
            Cause::Concurrency,
            format!(
                "{idle:.2} CPUs were idle and the server's busiest thread was on one for {}",
                percent(busy)
            ),
        );
    }
    // One request at a time cannot wait for another: what it takes is what the server takes.
    if run.plan.connections > 1 {
        findings.unseen.push(format!(
            "whether {n:.0} requests at once wait for each other in the server: ask with twice as many connections (-c {:.0})",
            n * 2.0
        ));
        return;
    }
    findings.found(Candidate {
        cause: Cause::Concurrency,
        shown: Shown::Waiting,
        used: 1.0,
        limit_per_s: Some(n / (p50 / 1e6)),
        summary: format!(
            "one request is under way at a time and takes {}: no more than {} can come of that, whatever the server could do",
            show_ns(p50 * 1e3),
            per_s(n / (p50 / 1e6))
        ),
        evidence: vec![
            format!("1 connection; service time p50 {}, p99 {}", show_ns(p50 * 1e3), show_ns(p99 * 1e3)),
            format!("{idle:.2} of {:.0} CPUs idle (/proc/stat)", facts.cpus),
        ],
        next: "load it with more connections (-c 50)".to_owned(),
        takes: None,
    });
}
