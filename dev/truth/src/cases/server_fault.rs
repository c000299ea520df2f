//! T2, T5, T6: faults of the server, such as stalls, faulty responses and closed connections.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use floodmark_host::Child;

use super::environment::CaseMeasurement;
use super::sound_server::tolerance_us;
use super::{CaseEnvironment, CaseError, CaseResult, reference};
use crate::log::{Log, RequestEntry};
use crate::scenario::{
    CloseAfter, FaultShare, ResponseFault, Scenario, Service, ServiceChange, Stall,
};
use crate::sys;

/// Maximum time that the truth server may take to write its log and exit.
const GRACE: Duration = Duration::from_secs(60);

/// T2: the server stalls. Response times must be measured from the intended time.
pub fn stall(environment: &CaseEnvironment<'_>, stall: Stall) -> CaseResult {
    const RATE: u64 = 1_000;
    const SECONDS: u64 = 12;
    let scenario = Scenario {
        stall: Some(stall),
        ..Scenario::default()
    };
    let flags = format!("--rate {RATE} -d {SECONDS}s");
    let mut measured = environment.measure(scenario, &flags)?;
    check_stalls(&mut measured, RATE * SECONDS, RATE as f64);
    Ok(measured.findings)
}

/// Checks the counts and percentiles of a run with stalls.
pub fn check_stalls(measured: &mut CaseMeasurement, intended: u64, rate: f64) {
    /// Tolerance for percentiles, relative to the server's log.
    const TOLERANCE: f64 = 0.03;
    measured.check_all_counts(intended);
    let truth = reference::response(&measured.log, rate);
    let (run, findings) = (&measured.run, &mut measured.findings);
    let times = &run.response_time_us;
    for (name, q, got) in [
        ("response_time_us.p95", 0.95, times.p95),
        ("response_time_us.p99", 0.99, times.p99),
        ("response_time_us.p99_9", 0.999, times.p99_9),
    ] {
        let truth = truth.quantile(q);
        findings.near(name, truth, got, truth * TOLERANCE);
    }
    let show = |us: Option<f64>| us.map_or("not measured".to_owned(), |us| format!("{us:.0} µs"));
    findings.note(format!(
        "lateness p99 {}, service time p99 {}",
        show(run.lateness_us.p99),
        show(run.service_time_us.p99)
    ));
}

/// The truth server in a separate process.
struct ServerProcess {
    child: Child,
    address: SocketAddr,
    log: tempfile::NamedTempFile,
}

impl ServerProcess {
    fn start(environment: &CaseEnvironment<'_>) -> io::Result<ServerProcess> {
        let log = tempfile::NamedTempFile::new()?;
        let mut command = Command::new(&environment.truth);
        command.args(["serve", "--append"]).arg(log.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = Child::start(command).map_err(io::Error::other)?;
        let mut line = String::new();
        if let Some(output) = child.stdout() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let address = line.trim().rsplit(' ').next().and_then(|a| a.parse().ok());
        let missing = || io::Error::other(format!("no address in {line:?}"));
        let address = address.ok_or_else(missing)?;
        Ok(ServerProcess {
            child,
            address,
            log,
        })
    }

    fn stop(mut self) -> io::Result<Log> {
        self.child.stop(GRACE).map_err(io::Error::other)?;
        let text = std::fs::read(self.log.path())?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// T2: repeats the example in wrk2's README. The example's load is 2,000/s for 30 s, and its
/// histogram contains M = 39,500 requests; this case sends M requests. The server is stopped for a
/// time S of 1.4 s. floodmark sends overdue requests at once, so at least K = rate · S of the M
/// requests are delayed. Quantile q of the response time is S·(1 − (1 − q)·M/K), plus at most the
/// time that the server takes to answer the overdue requests.
pub fn stopped(environment: &CaseEnvironment<'_>) -> CaseResult {
    const RATE: u64 = 2_000;
    const REQUESTS: u64 = 39_500;
    const STOP: Duration = Duration::from_millis(1_400);
    /// Tolerance for the 99th percentile, relative to the bounds of the formula.
    const FORMULA_TOLERANCE: f64 = 0.02;
    let failed = CaseError::run("the truth server");
    let server = ServerProcess::start(environment).map_err(&failed)?;
    let flags = format!("--rate {RATE} -n {REQUESTS}");
    let client = environment.start(server.address, &flags, None)?;
    std::thread::sleep(Duration::from_secs(8));
    let stopped_us = sys::pause(&[server.child.pid()], STOP).map_err(&failed)?;
    let mut measured = CaseMeasurement::new(client.finish()?, server.stop().map_err(failed)?);
    check_stalls(&mut measured, REQUESTS, RATE as f64);
    let pause = reference::longest_pause(&measured.log, RATE as f64)
        .ok_or_else(|| CaseError::run("the truth server")(io::Error::other("no requests")))?;
    let formula = |stop_us: f64| stop_us - 0.01 * REQUESTS as f64 / RATE as f64 * 1e6;
    let low = formula(stopped_us.min(pause.length_us)) * (1.0 - FORMULA_TOLERANCE);
    let high =
        (formula(stopped_us.max(pause.length_us)) + pause.drain_us) * (1.0 + FORMULA_TOLERANCE);
    let what = "response_time_us.p99, compared with S·(1 − (1 − q)·M/K)";
    let p99 = measured.run.response_time_us.p99;
    measured.findings.between(what, (low, high), p99);
    let (length, drain) = (pause.length_us / 1e3, pause.drain_us / 1e3);
    measured.findings.note(format!(
        "no request arrived for {length:.0} ms; the server then took {drain:.0} ms to answer the overdue requests"
    ));
    Ok(measured.findings)
}

/// Deadline of T5 in microseconds. A later response is ok but does not count towards goodput.
const DEADLINE_US: u64 = 100_000;

/// Duration of slow responses, in microseconds.
const SLOW_US: u64 = 2 * DEADLINE_US;

const REJECTED: ResponseFault = ResponseFault::Status { code: 503 };

const SLOW: ResponseFault = ResponseFault::Drip {
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
    (0.05, SLOW),
];

/// T5: faulty responses. Each response must be counted under its outcome.
pub fn faulty_responses(environment: &CaseEnvironment<'_>) -> CaseResult {
    use ResponseFault as Fault;
    const RATE: u64 = 1_000;
    const SECONDS: u64 = 6;
    let scenario = Scenario {
        faults: FAULTS
            .map(|(share, fault)| FaultShare { share, fault })
            .to_vec(),
        // Requests in the last 100 ms always miss the deadline, so a delay of a few milliseconds at
        // the end of the run does not change goodput.
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
    let ok = log.count(None) + count(SLOW);
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

/// Checks that, for a missing response, the timeout is recorded as a lower bound for the response
/// time.
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

/// T6: makes the server close each connection after a fixed number of requests. If `announced` is
/// set, the last response on a connection has `Connection: close`.
pub fn closing(environment: &CaseEnvironment<'_>, announced: bool) -> CaseResult {
    const REQUESTS_PER_CONNECTION: u64 = 7;
    const CONNECTIONS: u64 = 100;
    let scenario = Scenario {
        close_after: Some(CloseAfter {
            requests: REQUESTS_PER_CONNECTION,
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
    // A request on a connection that the server has just closed does not reach the server.
    let lost = reconnects * (totals.bytes_in / requests);
    findings.exactly("bytes sent", totals.bytes_in + lost, run.bytes.sent);
    Ok(measured.findings)
}

/// T6: makes the server send each response with a long delay between the first and last byte. The
/// first byte may belong to an interim response.
pub fn slow(environment: &CaseEnvironment<'_>, fault: ResponseFault) -> CaseResult {
    const RATE: u64 = 200;
    const SECONDS: u64 = 3;
    // Time to the first byte.
    let delay_us = 10_000;
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
