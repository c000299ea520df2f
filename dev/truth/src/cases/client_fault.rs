//! T7: client faults. The client must report each fault.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use floodmark_host::Child;
use floodmark_record::reason::joined;
use floodmark_record::run::Status;

use super::environment::CaseMeasurement;
use super::reference;
use super::{CaseEnvironment, CaseError, CaseResult};
use crate::log::Log;
use crate::scenario::Scenario;
use crate::server::TruthServer;
use crate::sys;

/// Stops the load process, which delays intended requests. The delay must be recorded as lateness,
/// not as service time.
pub fn stopped(environment: &CaseEnvironment<'_>) -> CaseResult {
    const RATE: u64 = 1_000;
    const SECONDS: u64 = 5;
    const STOP: Duration = Duration::from_millis(500);
    let server = TruthServer::start(Scenario::default())?;
    let flags = format!("--rate {RATE} -d {SECONDS}s");
    let client = environment.start(server.address(), &flags, None)?;
    std::thread::sleep(Duration::from_secs(2));
    let no_worker = CaseError::run("floodmark's child process `worker`");
    let workers = client.workers();
    if workers.is_empty() {
        return Err(no_worker(std::io::ErrorKind::NotFound.into()));
    }
    let stopped_us = sys::pause(&workers, STOP).map_err(no_worker)?;
    let mut measured = CaseMeasurement::new(client.finish()?, server.stop()?);
    measured.check_all_counts(RATE * SECONDS);
    let (run, log, findings) = (&measured.run, &measured.log, &mut measured.findings);
    // Overdue requests are sent at once. K = rate · S requests are late. Their lateness decreases
    // from S to 0.
    let delayed = RATE as f64 * stopped_us / 1e6;
    let formula = stopped_us * (1.0 - 0.01 * (RATE * SECONDS) as f64 / delayed);
    let p99 = run.lateness_us.p99;
    findings.near("lateness_us.p99", formula, p99, formula * 0.05);
    let truth = reference::response(log, RATE as f64).quantile(0.99);
    let p99 = run.response_time_us.p99;
    findings.near("response_time_us.p99", truth, p99, truth * 0.03);
    let gap_us = Some(longest_gap_us(log));
    let what = "longest gap at the server, µs";
    findings.near(what, stopped_us, gap_us, 20_000.0);
    let p50 = run.service_time_us.p50;
    let what = "service_time_us.p50, unaffected by the stop";
    findings.between(what, (0.0, 1_000.0), p50);
    let blocked_us = run.blocked_us.p99.unwrap_or(0.0);
    findings.note(format!("blocked p99 {blocked_us:.0} µs"));
    check_invalid(&mut measured);
    Ok(measured.findings)
}

fn longest_gap_us(log: &Log) -> f64 {
    let pairs = log.requests.windows(2);
    let gaps = pairs.map(|pair| pair[1].arrival_ns - pair[0].arrival_ns);
    gaps.max().unwrap_or(0) as f64 / 1e3
}

/// Checks that the record and the exit code report an invalid run.
fn check_invalid(measured: &mut CaseMeasurement) {
    let (validity, findings) = (&measured.run.validity, &mut measured.findings);
    findings.equal("validity.status", Status::Invalid, validity.status);
    let mut reasons = validity.reasons.iter();
    let named = reasons.any(|reason| reason.to_string().contains("the client"));
    let what = "validity.reasons mention the client";
    findings.holds(what, named, joined(&validity.reasons));
    findings.equal("exit code", Some(4), measured.exit);
}

/// Runs the load process on the same CPU as a process that takes 90 % of the CPU time. The weight
/// of nice 10 is 110, and the weight of nice 0 is 1024 (`sched_prio_to_weight` in the kernel).
pub fn starved(environment: &CaseEnvironment<'_>) -> CaseResult {
    const RATE: u64 = 20_000;
    const SECONDS: u64 = 3;
    const CPU: usize = 1;
    let server = TruthServer::start(Scenario::default())?;
    let _competitor = start_competitor(environment, CPU)?;
    let flags = format!("--rate {RATE} -d {SECONDS}s -t 1");
    let client = environment.start(server.address(), &flags, Some((CPU, 10)))?;
    client.confine_workers_only()?;
    let mut measured = CaseMeasurement::new(client.finish()?, server.stop()?);
    let offered = rates(&measured, RATE as f64);
    // This case withholds CPU time on purpose.
    measured.findings.disturbance = None;
    let (run, findings) = (&measured.run, &mut measured.findings);
    findings.exactly("requests.intended", RATE * SECONDS, run.requests.intended);
    let load_threads = run.client.threads.iter().filter(|t| t.drives_load);
    let threads = load_threads.clone().count() as f64;
    let waited: Option<f64> = load_threads.map(|t| t.run_delay_s).sum();
    let waited = waited.map(|s| s / threads);
    let bounds = (SECONDS as f64 * 0.3, SECONDS as f64 * 1.1);
    findings.between("mean run delay of the load threads, s", bounds, waited);
    let p99 = run.response_time_us.p99;
    findings.note(format!("{offered}; response time p99 {p99:?} µs"));
    check_invalid(&mut measured);
    Ok(measured.findings)
}

/// Starts a process that keeps one CPU busy: a polling server without clients.
fn start_competitor(environment: &CaseEnvironment<'_>, cpu: usize) -> Result<Child, CaseError> {
    let mut command = Command::new(&environment.truth);
    command
        .args(["serve", r#"{"busy_poll":true}"#])
        .stdout(Stdio::null());
    // SAFETY: between fork and exec, `confine` makes two system calls and does not allocate.
    unsafe { command.pre_exec(move || sys::confine(cpu, 0)) };
    Ok(Child::start(command)?)
}

/// Offers more than the client's maximum rate. The achieved rate must then be lower than the
/// offered rate, and the run must be invalid.
pub fn overload(environment: &CaseEnvironment<'_>) -> CaseResult {
    const SECONDS: u64 = 2;
    let maximum = environment.measure(Scenario::default(), "-c 50 -d 1s")?;
    let rate = maximum.run.throughput_per_s.unwrap_or(0.0).round() * 10.0;
    let flags = format!("--rate {rate} -d {SECONDS}s -c 100");
    let mut measured = environment.measure(Scenario::default(), &flags)?;
    measured.findings.disturbance = None;
    measured.check_bytes();
    let note = rates(&measured, rate);
    let (run, findings) = (&measured.run, &mut measured.findings);
    let intended = (rate * SECONDS as f64).round() as u64;
    findings.exactly("requests.intended", intended, run.requests.intended);
    // More than half of the requests must remain unsent.
    let bounds = (intended as f64 / 2.0, intended as f64);
    findings.between("requests.unsent", bounds, Some(run.requests.unsent as f64));
    let (what, bounds) = ("throughput_per_s is the achieved rate", (1.0, rate * 0.5));
    findings.between(what, bounds, run.throughput_per_s);
    let validity = &run.validity;
    findings.holds(
        "validity.status is not valid",
        validity.status != Status::Valid,
        format!("{:?}: {}", validity.status, joined(&validity.reasons)),
    );
    findings.note(note);
    findings.note(format!("validity.notes: {}", validity.notes.join(" | ")));
    Ok(measured.findings)
}

fn rates(measured: &CaseMeasurement, offered: f64) -> String {
    let achieved = measured.run.throughput_per_s.unwrap_or(0.0);
    format!("offered {offered:.0}/s, achieved {achieved:.0}/s")
}
