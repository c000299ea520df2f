//! Nagle's algorithm at one end waits for an acknowledgement that the other end delays.

use floodmark_record::metric::NetworkFigure;

use super::*;
use crate::why::thresholds::DELAYED_ACK_US;

pub(super) static SPEC: CauseSpec = CauseSpec {
    class: Some(CauseClass::Demand),
    ..CauseSpec::new(Cause::DelayedAck, Place::Network, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let times = &facts.run.service_time_us;
    let (p50, p90) = (times.p50?, times.p90?);
    let (median, p90) = (show_ns(p50 * 1e3), show_ns(p90 * 1e3));
    if p50 < DELAYED_ACK_US.start {
        return ruled_out(format!("median service time: {median}, below 40 ms"));
    }
    // Exclude the time to the first byte. A 40 ms pause in the server would delay the first byte
    // too, but a delayed ACK would not.
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
    // Without the delay, requests that mostly wait for something else would hardly be faster.
    let is_minor = times
        .mean
        .is_some_and(|mean| DELAYED_ACK_US.start < MOST * mean);
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
        EvidenceRank::Counted.unless_minor(is_minor),
        "the second part of each response waits 40 ms for the acknowledgement of the first (Nagle's algorithm and delayed ACK)",
        [
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
