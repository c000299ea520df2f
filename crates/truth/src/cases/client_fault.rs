//! T7: the client is at fault, and has to say so.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use floodmark_record::run::Status;

use super::environment::{Confined, Environment, Running};
use super::loaded::Loaded;
use super::reference;
use super::report::Trial;
use super::{Failure, disturbance};
use crate::log::Log;
use crate::scenario::Scenario;
use crate::server::Server;
use crate::sys;

/// A load process that is stopped delays what was intended meanwhile; none of that is the server's.
pub fn stopped(environment: &Environment) -> Result<Trial, Failure> {
    const RATE: u64 = 1_000;
    const SECONDS: u64 = 5;
    const STOP: Duration = Duration::from_millis(500);
    let server = Server::start(Scenario::default())?;
    let flags = format!("--rate {RATE} -d {SECONDS}s");
    let running = environment.start(server.address(), &flags, SECONDS, None)?;
    std::thread::sleep(Duration::from_secs(2));
    let begin = Instant::now();
    let worker = stop_worker(&running)?;
    std::thread::sleep(STOP);
    sys::signal(worker, libc::SIGCONT).map_err(worker_gone)?;
    let stopped_us = begin.elapsed().as_secs_f64() * 1e6;
    let loaded = running.finish()?;
    let log = server.stop()?;
    let run = &loaded.run;

    let mut trial = Trial::default();
    loaded.all_ok(RATE * SECONDS, &mut trial);
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    // Everything owed is sent at once: K = rate · S requests are late, from S down to nothing.
    let delayed = RATE as f64 * stopped_us / 1e6;
    let formula = stopped_us * (1.0 - 0.01 * (RATE * SECONDS) as f64 / delayed);
    trial.near(
        "lateness_us.p99",
        formula,
        run.lateness_us.p99,
        formula * 0.05,
    );
    let truth = reference::response(&log, RATE as f64).quantile(0.99);
    trial.near(
        "response_time_us.p99",
        truth,
        run.response_time_us.p99,
        truth * 0.03,
    );
    let gap_us = longest_gap_us(&log);
    trial.near(
        "longest silence at the server, µs",
        stopped_us,
        Some(gap_us),
        20_000.0,
    );
    trial.between(
        "service_time_us.p50 is free of it",
        (0.0, 1_000.0),
        run.service_time_us.p50,
    );
    invalid(&loaded, &mut trial);
    trial.note(format!(
        "blocked p99 {:.0} µs",
        run.blocked_us.p99.unwrap_or(0.0)
    ));
    trial.disturbance = disturbance::found(run, &log);
    Ok(trial)
}

fn stop_worker(running: &Running) -> Result<u32, Failure> {
    let none = || worker_gone(std::io::ErrorKind::NotFound.into());
    let worker = running.worker().ok_or_else(none)?;
    sys::signal(worker, libc::SIGSTOP).map_err(worker_gone)?;
    Ok(worker)
}

fn worker_gone(error: std::io::Error) -> Failure {
    Failure::Run {
        what: "the child \"worker\" of floodmark".to_owned(),
        error,
    }
}

fn longest_gap_us(log: &Log) -> f64 {
    let gaps = log
        .requests
        .windows(2)
        .map(|two| two[1].arrival_ns - two[0].arrival_ns);
    gaps.max().unwrap_or(0) as f64 / 1e3
}

/// The record says that its figures mean nothing, in words and in its exit code.
fn invalid(loaded: &Loaded, trial: &mut Trial) {
    let validity = &loaded.run.validity;
    trial.holds(
        "validity.status is invalid",
        validity.status == Status::Invalid,
        format!("{:?}", validity.status),
    );
    trial.holds(
        "validity.reasons name floodmark",
        validity
            .reasons
            .iter()
            .any(|reason| reason.contains("floodmark")),
        validity.reasons.join(" | "),
    );
    trial.holds(
        "exit code 4",
        loaded.exit == Some(4),
        format!("{:?}", loaded.exit),
    );
}

/// A load process on a CPU that another one takes nine tenths of: nice 10 against nice 0 is a weight of 110
/// against 1024 (`sched_prio_to_weight` of the kernel).
pub fn starved(environment: &Environment) -> Result<Trial, Failure> {
    const RATE: u64 = 20_000;
    const SECONDS: u64 = 3;
    const CPU: usize = 1;
    let server = Server::start(Scenario::default())?;
    let _competitor = Competitor::start(environment, CPU)?;
    let flags = format!("--rate {RATE} -d {SECONDS}s -t 1");
    let confined = Some(Confined { cpu: CPU, nice: 10 });
    let running = environment.start(server.address(), &flags, SECONDS, confined)?;
    let loaded = running.finish()?;
    let log = server.stop()?;

    let mut trial = Trial::default();
    trial.exactly(
        "requests.intended",
        RATE * SECONDS,
        loaded.run.requests.intended,
    );
    loaded.agree(&log, &mut trial);
    invalid(&loaded, &mut trial);
    let waited = loaded.run.client.threads.iter().filter(|t| t.drives_load);
    let waited: Option<f64> = waited.map(|t| t.run_delay_s).sum();
    trial.between(
        "the load thread's wait for a CPU, s",
        (SECONDS as f64 * 0.3, SECONDS as f64 * 1.1),
        waited,
    );
    trial.note(rates(&loaded, RATE as f64));
    trial.note(format!(
        "response time p99 {:?} µs",
        loaded.run.response_time_us.p99
    ));
    Ok(trial)
}

/// Something that never sleeps on one CPU: a server that polls, without clients.
struct Competitor {
    child: std::process::Child,
}

impl Competitor {
    fn start(environment: &Environment, cpu: usize) -> Result<Competitor, Failure> {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new(&environment.truth);
        command.args(["serve", r#"{"busy_poll":true}"#]);
        command.stdout(std::process::Stdio::null());
        // SAFETY: between fork and exec, `confine` makes two system calls and does not allocate.
        unsafe { command.pre_exec(move || sys::confine(cpu, 0)) };
        let child = command.spawn().map_err(|error| Failure::Run {
            what: environment.truth.display().to_string(),
            error,
        })?;
        Ok(Competitor { child })
    }
}

impl Drop for Competitor {
    fn drop(&mut self) {
        // Both fail only on a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// More than the client can do: what was offered is not what was achieved, and it does not look valid.
pub fn overload(environment: &Environment) -> Result<Trial, Failure> {
    const SECONDS: u64 = 2;
    let server = Server::start(Scenario::default())?;
    let able = environment.load(server.address(), "-c 50 -d 1s", 1)?;
    server.stop()?;
    let rate = able.run.throughput_per_s.unwrap_or(0.0).round() * 10.0;

    let server = Server::start(Scenario::default())?;
    let loaded = overloaded(environment, server.address(), rate, SECONDS)?;
    let log = server.stop()?;
    let run = &loaded.run;
    let mut trial = Trial::default();
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    let intended = (rate * SECONDS as f64).round() as u64;
    trial.exactly("requests.intended", intended, run.requests.intended);
    trial.holds(
        "requests.unsent says what was not sent",
        run.requests.unsent * 2 > intended,
        run.requests.unsent.to_string(),
    );
    trial.between(
        "throughput_per_s is what was achieved",
        (1.0, rate * 0.5),
        run.throughput_per_s,
    );
    trial.holds(
        "validity.status is not valid",
        run.validity.status != Status::Valid,
        format!(
            "{:?}: {}",
            run.validity.status,
            run.validity.reasons.join(" | ")
        ),
    );
    trial.note(rates(&loaded, rate));
    trial.note(format!(
        "notes of validity: {}",
        run.validity.notes.join(" | ")
    ));
    Ok(trial)
}

fn overloaded(
    environment: &Environment,
    to: SocketAddr,
    rate: f64,
    seconds: u64,
) -> Result<Loaded, Failure> {
    environment.load(to, &format!("--rate {rate} -d {seconds}s -c 100"), seconds)
}

fn rates(loaded: &Loaded, offered: f64) -> String {
    let achieved = loaded.run.throughput_per_s.unwrap_or(0.0);
    format!("offered {offered:.0}/s, achieved {achieved:.0}/s")
}
