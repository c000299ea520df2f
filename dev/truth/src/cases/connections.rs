//! T6: connections closed by the server, bodies in pieces, interim responses.

use super::delay::tolerance_us;
use super::reference;
use super::{CaseEnvironment, CaseResult};
use crate::scenario::{CloseAfter, FaultShare, ResponseFault, Scenario, Service};

const REQUESTS_PER_CONNECTION: u64 = 7;

/// Number of connections that a run needs.
const CONNECTIONS: u64 = 100;

/// Makes the server close each connection after a number of requests. If `announced` is set, the
/// last response on a connection has `Connection: close`.
pub fn closing(environment: &CaseEnvironment, announced: bool) -> CaseResult {
    let requests = REQUESTS_PER_CONNECTION;
    let scenario = Scenario {
        close_after: Some(CloseAfter {
            requests,
            announced,
        }),
        ..Scenario::default()
    };
    let requests = REQUESTS_PER_CONNECTION * CONNECTIONS;
    let mut measured = environment.measure(scenario, &format!("-c 1 -n {requests}"))?;
    measured.check_all_ok(requests);
    let (run, totals) = (&measured.run, &measured.log.totals);
    let findings = &mut measured.findings;
    findings.exactly("requests at the server", requests, totals.requests);
    findings.exactly("connections accepted", CONNECTIONS, totals.accepted);
    findings.exactly("connections.opened", CONNECTIONS, run.connections.opened);
    findings.exactly("bytes received", totals.bytes_out, run.bytes.received);
    let reconnects = run.requests.reconnects;
    if announced {
        findings.exactly("reconnects", 0, reconnects);
    } else {
        findings.note(format!("{reconnects} reconnects"));
    }
    // A request on a connection that was just closed does not reach the server.
    let lost = reconnects * (totals.bytes_in / requests);
    findings.exactly("bytes sent", totals.bytes_in + lost, run.bytes.sent);
    Ok(measured.findings)
}

/// Time to the first byte, in microseconds.
const FIRST_BYTE_US: u64 = 10_000;

/// Makes the server send each response with a long delay between the first and last byte. The
/// first byte may belong to an interim response.
pub fn slow(environment: &CaseEnvironment, fault: ResponseFault) -> CaseResult {
    const RATE: u64 = 200;
    const SECONDS: u64 = 3;
    let delay_us = FIRST_BYTE_US;
    let scenario = Scenario {
        faults: vec![FaultShare { share: 1.0, fault }],
        ..Service::Fixed { delay_us }.into()
    };
    let flags = format!("--rate {RATE} -d {SECONDS}s");
    let (mut measured, overhead) =
        environment.measure_times(reference::service, scenario, &flags)?;
    measured.check_all_counts(RATE * SECONDS);
    let (run, log) = (&measured.run, &measured.log);
    let (first_byte, service) = (reference::first_byte(log), reference::service(log));
    for (name, truth, got) in [
        ("first_byte_us.p50", first_byte, run.first_byte_us.p50),
        ("service_time_us.p50", service, run.service_time_us.p50),
    ] {
        let truth = truth.quantile(0.5);
        let bounds = overhead.around(truth, tolerance_us(truth));
        measured.findings.between(name, bounds, got);
    }
    Ok(measured.findings)
}
