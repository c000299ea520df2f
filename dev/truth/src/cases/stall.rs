//! T2: the server stalls. Response times must be counted from the intended time.

use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use floodmark_host::Child;

use super::measured::CaseMeasurement;
use super::reference;
use super::{CaseEnvironment, CaseError, CaseResult};
use crate::log::Log;
use crate::scenario::{Scenario, Stall};
use crate::sys;

/// Tolerance for percentiles, relative to the server's log.
const TOLERANCE: f64 = 0.03;

/// Tolerance for the 99th percentile, relative to the bounds of the formula.
const FORMULA_TOLERANCE: f64 = 0.02;

/// Maximum time that the truth server takes to write its log and exit.
const GRACE: Duration = Duration::from_secs(60);

pub fn run(environment: &CaseEnvironment, stall: Stall) -> CaseResult {
    const RATE: u64 = 1_000;
    const SECONDS: u64 = 12;
    let scenario = Scenario {
        stall: Some(stall),
        ..Scenario::default()
    };
    let flags = format!("--rate {RATE} -d {SECONDS}s");
    let mut measured = environment.measure(scenario, &flags)?;
    check(&mut measured, RATE * SECONDS, RATE as f64);
    Ok(measured.findings)
}

/// Checks the counts and percentiles of a run.
fn check(measured: &mut CaseMeasurement, intended: u64, rate: f64) {
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
    fn start(environment: &CaseEnvironment) -> io::Result<ServerProcess> {
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

/// Repeats the example in wrk2's README. The load is 2,000/s for 30 s, with M = 39,500 requests in
/// the histogram. The server is stopped for S = 1.4 s. floodmark sends overdue requests at once, so
/// at least K = rate · S of the M requests are delayed. Quantile q of the response time is
/// S·(1 − (1 − q)·M/K), plus at most the time that the server takes to answer the overdue requests.
pub fn stopped(environment: &CaseEnvironment) -> CaseResult {
    const RATE: u64 = 2_000;
    const REQUESTS: u64 = 39_500;
    const STOP: Duration = Duration::from_millis(1_400);
    let failed = CaseError::run("the truth server");
    let server = ServerProcess::start(environment).map_err(&failed)?;
    let flags = format!("--rate {RATE} -n {REQUESTS}");
    let client = environment.start(server.address, &flags, None)?;
    std::thread::sleep(Duration::from_secs(8));
    let stopped_us = sys::pause(&[server.child.pid()], STOP).map_err(&failed)?;
    let mut measured = CaseMeasurement::new(client.finish()?, server.stop().map_err(failed)?);
    check(&mut measured, REQUESTS, RATE as f64);
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
        "no arrival for {length:.0} ms; the overdue requests took {drain:.0} ms"
    ));
    Ok(measured.findings)
}
