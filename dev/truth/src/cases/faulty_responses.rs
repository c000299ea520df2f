//! T5: faulty responses. Each response must be counted under its outcome.

use super::measured::CaseMeasurement;
use super::{CaseEnvironment, CaseResult};
use crate::log::RequestEntry;
use crate::scenario::{FaultShare, ResponseFault, Scenario, Service, ServiceChange};

const RATE: u64 = 1_000;
const SECONDS: u64 = 6;

/// Deadline in microseconds. A later response is ok but does not count towards goodput.
const DEADLINE_US: u64 = 100_000;

/// Duration of slow responses, in microseconds.
const SLOW_US: u64 = 2 * DEADLINE_US;

const REJECTED: ResponseFault = ResponseFault::Status { code: 503 };

const DRIP: ResponseFault = ResponseFault::Drip {
    pieces: 2,
    gap_us: SLOW_US,
};

const FAULTS: [(f64, ResponseFault); 9] = [
    (0.30, REJECTED),
    (0.05, ResponseFault::WrongBody),
    (0.05, ResponseFault::TruncatedBody),
    (0.01, ResponseFault::NoResponse),
    (0.02, ResponseFault::Garbage),
    (0.02, ResponseFault::ResetBefore),
    (0.02, ResponseFault::ResetWithin),
    (0.02, ResponseFault::CloseBefore),
    (0.05, DRIP),
];

pub fn run(environment: &CaseEnvironment) -> CaseResult {
    use ResponseFault as Fault;
    let scenario = Scenario {
        faults: FAULTS
            .map(|(share, fault)| FaultShare { share, fault })
            .to_vec(),
        // Requests in the last 100 ms always miss the deadline, so a delay of a few milliseconds
        // does not change goodput.
        change: Some(ServiceChange {
            at_ms: SECONDS * 1_000 - 100,
            service: Service::Fixed {
                delay_us: 3 * DEADLINE_US,
            },
        }),
        // The body is a single word because flags are separated by spaces.
        body: "right-answer!".to_owned(),
        ..Scenario::default()
    };
    let flags = format!(
        "--rate {RATE} -d {SECONDS}s --timeout 1s --deadline {DEADLINE_US}us --expect body=right-answer!"
    );
    let mut measured = environment.measure(scenario, &flags)?;
    measured.check_bytes();
    let (log, requests) = (&measured.log, &measured.run.requests);
    let count = |fault| log.count(Some(fault));
    let ok = log.count(None) + count(DRIP);
    let malformed = [Fault::TruncatedBody, Fault::ResetWithin, Fault::Garbage];
    let malformed: u64 = malformed.map(count).iter().sum();
    // The server may close an idle connection while a request is being sent. floodmark then resends
    // the request on a fresh connection and counts a reconnect.
    let closed = count(Fault::ResetBefore) + count(Fault::CloseBefore);
    let reset = requests.reset + requests.reconnects;
    let (wrong, timed_out) = (count(Fault::WrongBody), count(Fault::NoResponse));
    let intended = RATE * SECONDS;
    let findings = &mut measured.findings;
    findings.exactly("requests.intended", intended, requests.intended);
    findings.exactly("requests.sent", intended, requests.sent);
    findings.exactly("requests.ok", ok, requests.ok);
    findings.exactly("requests.rejected", count(REJECTED), requests.rejected);
    findings.exactly("requests.wrong", wrong, requests.wrong);
    findings.exactly("requests.malformed", malformed, requests.malformed);
    findings.exactly("requests.timed_out", timed_out, requests.timed_out);
    findings.exactly("requests.reset + reconnects", closed, reset);
    findings.exactly("in_flight_at_end", 0, requests.in_flight_at_end);
    goodput(&mut measured);
    censored(&mut measured);
    Ok(measured.findings)
}

/// Checks that goodput counts only the normal responses within the deadline.
fn goodput(measured: &mut CaseMeasurement) {
    let run = &measured.run;
    let requests = measured.log.requests.iter();
    let normal = requests.filter(|r| r.fault.is_none());
    let times = normal.filter_map(RequestEntry::service_ns);
    let good = times.filter(|ns| *ns < DEADLINE_US * 1_000).count() as u64;
    let window_s = run.window.to_s - run.window.from_s;
    let counted = (run.goodput_per_s.unwrap_or(0.0) * window_s).round() as u64;
    // The count is not exact, because a disturbance of the host can delay a response.
    measured.findings.holds(
        "goodput_per_s × window is the number of responses within the deadline",
        counted == good,
        format!("{counted} of {good}"),
    );
}

/// Checks that the timeout of a missing response is recorded as a lower bound for its time.
fn censored(measured: &mut CaseMeasurement) {
    let (run, findings) = (&measured.run, &mut measured.findings);
    let (requests, times) = (&run.requests, &run.response_time_us);
    let failed = requests.rejected + requests.wrong + requests.malformed + requests.reset;
    let measured_times = requests.ok + requests.timed_out;
    let service_times = run.service_time_us.count;
    findings.exactly("response_time_us.count", measured_times, times.count);
    findings.exactly(
        "response_time_us.censored",
        requests.timed_out,
        times.censored,
    );
    findings.exactly("service_time_us.count", requests.ok, service_times);
    findings.exactly("error_time_us.count", failed, run.error_time_us.count);
    // About 1.8 % of the requests time out, so the 99th percentile is unknown. The 95th percentile
    // is known.
    findings.holds(
        "response_time_us.p99 is unknown",
        times.p99.is_none() && times.max.is_none() && times.mean.is_none(),
        format!("{:?}", times.p99),
    );
    let bounds = (SLOW_US as f64, SLOW_US as f64 * 1.1);
    let what = "response_time_us.p95 is the time of slow responses";
    findings.between(what, bounds, times.p95);
}
