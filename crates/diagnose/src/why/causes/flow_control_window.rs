//! HTTP/2 flow-control windows are too small for the round-trip time: a stream transfers one
//! window, and then waits for a round trip until the receiver allows more.

use floodmark_record::plan::{Http, Http2};
use floodmark_record::units::{show_bytes, show_exact_bytes, show_size};

use super::*;
use crate::why::thresholds::same;

pub(super) static SPEC: CauseSpec = CauseSpec {
    needs_http2: true,
    class: Some(CauseClass::Window),
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::FlowControlWindow, Place::Network, detect)
};

/// Smallest window of a connection for request bodies, in bytes. A server can only enlarge it (RFC
/// 9113, section 6.9.2), and the record does not say by how much.
const LEAST_CONNECTION_WINDOW: f64 = 65_535.0;

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let Http::V2(settings) = facts.run.plan.http else {
        return None;
    };
    match (uploads(facts), responses(facts, settings)) {
        (Some(Finding::Limit(uploads)), _) => uploads.found(),
        (_, Some(Finding::Limit(responses))) => responses.found(),
        (uploads, responses) => uploads.or(responses),
    }
}

/// Detects request bodies that wait for credit from the server. Returns `None` if none waited.
fn uploads(facts: &RunFacts<'_>) -> Option<Finding> {
    let (run, in_flight) = (facts.run, facts.in_flight?);
    if run.window_us.is_empty() {
        return None;
    }
    let waiting = facts.mean_waiting(&run.window_us);
    let waits = format!(
        "request bodies waiting for credit: {waiting:.1} of {in_flight:.1} requests in flight \
         (window_us)"
    );
    if waiting < MOST * in_flight {
        return ruled_out(waits);
    }
    if !has_idle_capacity(facts) {
        return facts.show_spare_cpu().and_then(ruled_out);
    }
    let window = run.http2.as_ref()?.settings?.window_bytes;
    let Some(round_trip_us) = run.ping_us.p50 else {
        return not_available(
            "round-trip time (ping_us), which shows whether windows are too small",
        );
    };
    let connections = f64::from(run.plan.connections);
    let per_round_trip = run.bytes.sent as f64 / run.sending_s / connections * round_trip_us / 1e6;
    let streams = in_flight / connections * f64::from(window);
    let moved = format!(
        "each connection sends {} per round trip of {} (bytes.sent, ping_us)",
        show_bytes(per_round_trip as u64),
        show_us(Some(round_trip_us)),
    );
    // The bodies in flight delay the PINGs: the link is saturated, or the server reads slowly.
    if is_delayed(run, round_trip_us) {
        return ruled_out(moved);
    }
    // A server that reads slowly also withholds credit, but then a window lasts longer than a round
    // trip.
    if per_round_trip < MOST * streams.min(LEAST_CONNECTION_WINDOW) {
        return ruled_out(format!("{waits}, but {moved}, so the server reads slowly"));
    }
    let window = show_exact_bytes(window.into());
    Candidate::new(
        EvidenceRank::Located,
        format!(
            "the server's flow-control window is too small for the round-trip time: request bodies \
             wait for credit in {} of the time",
            percent((waiting / in_flight).min(1.0))
        ),
        [
            Some(waits),
            Some(moved),
            Some(format!("stream window: {window} (http2.settings)")),
            facts.idle_cpus().map(show_idle),
        ],
        "enlarge the server's windows for request bodies, of streams and of connections (Go: \
         MaxReceiveBufferPerStream and MaxReceiveBufferPerConnection, Node.js: initialWindowSize)",
    )
    .at([(StepKind::Window, Actor::Server)])
    .found()
}

/// Detects responses that wait for credit from the client.
fn responses(facts: &RunFacts<'_>, settings: Http2) -> Option<Finding> {
    let (run, in_flight) = (facts.run, facts.in_flight?);
    let connections = f64::from(run.plan.connections);
    let size = run.bytes.received as f64 / run.requests.ok.max(1) as f64;
    let of_connection = f64::from(settings.connection_window_bytes());
    let streams = (in_flight / connections).max(1.0);
    let window = f64::from(settings.window_bytes).min(of_connection / streams);
    let sizes = format!(
        "mean response size: {}; stream window: {}, connection window: {} (--h2-window)",
        show_bytes(size as u64),
        show_exact_bytes(settings.window_bytes.into()),
        show_exact_bytes(of_connection as u64)
    );
    if size <= window {
        return ruled_out(sizes);
    }
    let Some(round_trip_us) = run.ping_us.p50 else {
        return not_available(
            "round-trip time (ping_us), which shows whether windows are too small",
        );
    };
    let service_us = run.service_time_us.mean?;
    let body_us = service_us - run.first_byte_us.mean?;
    let per_round_trip = size * round_trip_us / body_us;
    let moved = format!(
        "a response transfers {} per round trip of {} (bytes.received, ping_us), and takes {} after \
         its first byte",
        show_bytes(per_round_trip as u64),
        show_us(Some(round_trip_us)),
        show_us(Some(body_us)),
    );
    if body_us < MOST * service_us
        || !same(per_round_trip, window)
        || !has_idle_capacity(facts)
        || is_link_full(facts, round_trip_us)
    {
        return ruled_out(moved);
    }
    let larger = settings.with_larger_window().window_bytes;
    Candidate::new(
        EvidenceRank::Located,
        "the load's flow-control window is too small for the round-trip time: each response waits \
         for credit once per window",
        [Some(moved), Some(sizes), facts.idle_cpus().map(show_idle)],
        format!(
            "enlarge the load's window for responses: --h2-window {}",
            show_size(larger.into())
        ),
    )
    .at([(StepKind::Window, Actor::Client)])
    .with_limit(Some(facts.ok_per_s * window / per_round_trip))
    .found()
}

/// Returns whether client and server have CPU time left. A server without figures counts as idle.
fn has_idle_capacity(facts: &RunFacts<'_>) -> bool {
    let mut threads = facts.client.busiest.iter();
    let is_server_idle = facts.server.is_none() || facts.has_spare_cpu();
    is_server_idle && threads.all(|thread| thread.busy() < SATURATED)
}

/// Returns whether sent responses wait in transit because the link is saturated. Then a round trip
/// takes much longer than a connect, which usually happens before the load.
fn is_link_full(facts: &RunFacts<'_>, round_trip_us: f64) -> bool {
    is_delayed(facts.run, round_trip_us) && bandwidth::SPEC.is_detected(facts)
}

/// Returns whether a round trip takes much longer than the shortest connect. Returns false if no
/// connect was measured.
fn is_delayed(run: &Run, round_trip_us: f64) -> bool {
    run.least_connect_time_us
        .is_some_and(|connect_us| round_trip_us * MOST > connect_us)
}
