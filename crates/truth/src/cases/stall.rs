//! T2: the server does nothing for a while; response times count from the intended time all the same.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use floodmark_record::Run;

use super::environment::Environment;
use super::reference;
use super::report::Trial;
use super::{Failure, disturbance};
use crate::log::Log;
use crate::scenario::{Scenario, Stall};
use crate::server::Server;
use crate::sys;

/// The percentiles may differ this much from the server's log.
const TOLERANCE: f64 = 0.03;

/// The 99th percentile may differ this much from the formula.
const FORMULA_TOLERANCE: f64 = 0.05;

pub fn short(environment: &Environment) -> Result<Trial, Failure> {
    stalled(
        environment,
        Stall {
            first_ms: 500,
            every_ms: 1_000,
            length_ms: 100,
        },
    )
}

pub fn long(environment: &Environment) -> Result<Trial, Failure> {
    stalled(
        environment,
        Stall {
            first_ms: 2_000,
            every_ms: 4_000,
            length_ms: 1_000,
        },
    )
}

fn stalled(environment: &Environment, stall: Stall) -> Result<Trial, Failure> {
    const RATE: u64 = 1_000;
    const SECONDS: u64 = 12;
    let server = Server::start(Scenario {
        stall: Some(stall),
        ..Scenario::default()
    })?;
    let flags = format!("--rate {RATE} -d {SECONDS}s");
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;

    let mut trial = Trial::default();
    loaded.all_ok(RATE * SECONDS, &mut trial);
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    percentiles(&loaded.run, &log, RATE as f64, &mut trial);
    trial.disturbance = disturbance::found(&loaded.run, &log);
    Ok(trial)
}

fn percentiles(run: &Run, log: &Log, rate: f64, trial: &mut Trial) {
    let truth = reference::response(log, rate);
    let times = &run.response_time_us;
    for (name, q, got) in [
        ("response_time_us.p95", 0.95, times.p95),
        ("response_time_us.p99", 0.99, times.p99),
        ("response_time_us.p99_9", 0.999, times.p99_9),
    ] {
        let truth = truth.quantile(q);
        trial.near(name, truth, got, truth * TOLERANCE);
    }
    let shown = |us: Option<f64>| us.map_or("nothing".to_owned(), |us| format!("{us:.0} µs"));
    trial.note(format!(
        "lateness p99 {}, service time p99 {}",
        shown(run.lateness_us.p99),
        shown(run.service_time_us.p99)
    ));
}

/// The server as a process of its own, killed when it is dropped.
struct Process {
    child: Child,
    address: SocketAddr,
    log: tempfile::NamedTempFile,
}

impl Process {
    fn start(environment: &Environment) -> Result<Process, Failure> {
        let failed = |error| Failure::Run {
            what: environment.truth.display().to_string(),
            error,
        };
        let log = tempfile::NamedTempFile::new().map_err(failed)?;
        let mut child = Command::new(&environment.truth)
            .args(["serve", "--log"])
            .arg(log.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output)
                .read_line(&mut line)
                .map_err(failed)?;
        }
        let address = line.trim().rsplit(' ').next().and_then(|a| a.parse().ok());
        let address = address.ok_or_else(|| {
            failed(std::io::Error::other(format!(
                "it printed {line:?} and no address"
            )))
        })?;
        Ok(Process {
            child,
            address,
            log,
        })
    }

    fn signal(&self, signal: i32) -> Result<(), Failure> {
        sys::signal(self.child.id(), signal).map_err(|error| Failure::Run {
            what: "the truth server".to_owned(),
            error,
        })
    }

    fn stop(mut self) -> Result<Log, Failure> {
        self.signal(libc::SIGTERM)?;
        let failed = |error| Failure::Run {
            what: "the truth server".to_owned(),
            error,
        };
        self.child.wait().map_err(failed)?;
        let text = std::fs::read(self.log.path()).map_err(failed)?;
        serde_json::from_slice(&text).map_err(|e| failed(e.into()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only on a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// wrk2's README: 2,000/s for 30 s, of which its histogram kept 39,500, the server stopped for 1.4 s.
/// floodmark sends what it owes at once, so K = rate · S requests are delayed.
pub fn stopped(environment: &Environment) -> Result<Trial, Failure> {
    const RATE: u64 = 2_000;
    const REQUESTS: u64 = 39_500;
    const STOP: Duration = Duration::from_millis(1_400);
    let server = Process::start(environment)?;
    let flags = format!("--rate {RATE} -n {REQUESTS}");
    let running = environment.start(server.address, &flags, REQUESTS / RATE, None)?;
    std::thread::sleep(Duration::from_secs(8));
    let begin = Instant::now();
    server.signal(libc::SIGSTOP)?;
    std::thread::sleep(STOP);
    server.signal(libc::SIGCONT)?;
    let stopped_us = begin.elapsed().as_secs_f64() * 1e6;
    let loaded = running.finish()?;
    let log = server.stop()?;

    let mut trial = Trial::default();
    loaded.all_ok(REQUESTS, &mut trial);
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    percentiles(&loaded.run, &log, RATE as f64, &mut trial);
    let delayed = RATE as f64 * stopped_us / 1e6;
    let formula = stopped_us * (1.0 - 0.01 * REQUESTS as f64 / delayed);
    trial.near(
        "response_time_us.p99 against S·(1 − (1 − q)·M/K)",
        formula,
        loaded.run.response_time_us.p99,
        formula * FORMULA_TOLERANCE,
    );
    trial.disturbance = disturbance::found(&loaded.run, &log);
    Ok(trial)
}
