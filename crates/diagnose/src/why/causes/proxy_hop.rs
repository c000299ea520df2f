//! The server is a proxy that opens an upstream connection for each request.

use floodmark_record::units::show_rate;

use super::*;
use crate::why::facts::CpuUse;

pub(super) static SPEC: CauseSpec = CauseSpec::new(Cause::ProxyHop, Place::Server, detect);

/// Range of the number of upstream connections per response that indicates one connection for each
/// request.
const ONE_PER_RESPONSE: std::ops::Range<f64> = 0.9..1.1;

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let opened = facts.opened_by_others()?;
    let per_response = opened / facts.responses_per_s.max(f64::MIN_POSITIVE);
    let addresses: Vec<String> = facts
        .upstreams
        .iter()
        .map(|u| u.address.to_string())
        .collect();
    let addresses = addresses.join(", ");
    // Upstream connections that last less than a millisecond are rarely sampled, so their addresses
    // are unknown. They cannot be distinguished from the connections of an external client.
    let one_each = ONE_PER_RESPONSE.contains(&per_response) && facts.run.client.name.is_none();
    if addresses.is_empty() && !one_each {
        return None;
    }
    let figure = format!(
        "processes other than the client opened {} connections/s, {per_response:.2} per response \
         (ActiveOpens)",
        show_rate(opened)
    );
    // Connections are opened in kernel mode, so a server that runs mainly in user mode has another
    // limit.
    let in_user = facts.server.as_ref().map_or(0.0, CpuUse::in_user);
    if per_response < MOST || facts.has_spare_cpu() || in_user >= SATURATED {
        return ruled_out(figure);
    }
    let source = match &*addresses {
        "" => "the upstream is unknown, because its connections were too short-lived to be sampled"
            .to_owned(),
        addresses => format!("the server has connections to {addresses} (sock_diag)"),
    };
    Candidate::consumer(
        StepKind::Connecting,
        format!(
            "the server opens a new upstream connection for {} of the requests, which costs CPU",
            percent(per_response.min(1.0))
        ),
        [figure, source],
        "keep upstream connections (nginx: keepalive in the upstream block)",
    )
    .found()
}
