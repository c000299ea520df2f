//! The link is saturated: responses have left the server but have not reached the client.

use floodmark_record::metric::SocketFigure;
use floodmark_record::units::show_bytes;

use super::*;
use crate::why::thresholds::MAX_IN_TRANSIT;

pub(super) static SPEC: CauseSpec = CauseSpec {
    // Small windows also keep the number of bytes in transit constant.
    explained_by: &[Cause::FlowControlWindow],
    explanation: |facts, candidate| {
        let is_window = flow_control_window::SPEC.is_detected(facts);
        is_window.then(|| Effect::RuledOut(candidate.evidence[0].clone()))
    },
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::Bandwidth, Place::Network, detect)
};

/// Payload of a TCP segment on Ethernet, in bytes. The client's kernel may delay the ACK of a
/// response that fits into one segment, so unacknowledged bytes of such a response do not indicate
/// a saturated link.
const SEGMENT: f64 = 1_448.0;

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
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
        [figure],
        "make responses smaller (compress them), or use a faster link",
    )
    .at([(StepKind::Link, Actor::Network)])
    .with_limit(Some(facts.ok_per_s))
    .found()
}
