//! Runs an external client: waits for it, parses its output, measures its CPU time, and samples the
//! server's own counter of responses.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use floodmark_host::{Child, ProcessPlacement, Stop};
use floodmark_plan::LoadSpec;
use floodmark_record::client::{ClientRan, Counter, PrintedFigures};
use floodmark_record::events::RunId;
use floodmark_record::metric::{ProcessFigure, Role};
use floodmark_record::origin::Origin;
use floodmark_record::plan::Plan;
use floodmark_record::units::show_duration;
use floodmark_record::{Metric, Observation};

use super::program::{self, WaitEnd};
use crate::manifest::{Client, Filler, WorkloadRequest, ask};
use crate::probe::{self, ProbeTarget};
use crate::server_log::quote_failure;

/// Time that an interrupted client has to exit before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// Maximum length of the parsed output, in bytes.
const OUTPUT_LIMIT: u64 = 16 << 20;

/// Maximum length of a version string, in characters.
const VERSION_LIMIT: usize = 60;

/// Interval between samples of a counter.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum delay of a sample. With a longer delay, the sample would include too many responses from
/// the next second.
const DELAY_LIMIT: Duration = Duration::from_millis(250);

/// An external client that loads a running server.
pub struct ExternalClient<'a> {
    /// The client's manifest.
    pub client: &'a Client,
    /// The load to send.
    pub load: &'a LoadSpec,
    /// Address of the server.
    pub address: SocketAddr,
    /// Path of the server's counter, if the server has one.
    pub counter: Option<&'a str>,
    /// Where the client runs.
    pub side: &'a ProcessPlacement,
    /// Directory for the leases of running programs.
    pub leases: &'a Path,
}

/// Result of an external client's run.
#[derive(Debug, Default)]
pub struct Driven {
    /// The event that describes the run.
    pub ran: ClientRan,
    /// Series sampled during the run.
    pub observations: Vec<Observation>,
    /// One-line messages about missing measurements.
    pub missing: Vec<String>,
}

impl ExternalClient<'_> {
    /// Runs the client until it exits or `stop` is set, and writes its log to `directory`. Calls
    /// `started` with the PID of the client.
    pub fn drive(
        &self,
        plan: &Plan,
        run: &RunId,
        directory: &Path,
        stop: &Stop,
        started: &dyn Fn(u32),
    ) -> Driven {
        let trial = run.trial.as_deref().unwrap_or(&run.system);
        let log = format!("client-{trial}-{}-{}.log", run.process, run.attempt);
        let path = directory.join(&log);
        let mut driven = Driven::default();
        driven.ran.name.clone_from(&self.client.package.name);
        driven.ran.tool.version = version(self.client);
        driven.ran.tool.log = log;
        if let Err(what) = self.run(plan, &path, stop, started, &mut driven) {
            driven.ran.failure = Some(format!("{} {what}", driven.ran.name));
        }
        driven
    }

    /// Returns the server, for requests in the plan's HTTP version.
    fn server(&self, plan: &Plan) -> ProbeTarget<'_> {
        ProbeTarget {
            from: self.side,
            address: self.address,
            http: plan.http.into(),
            tls: None,
            origin: Origin::File,
        }
    }

    /// Runs the client. The error message continues a sentence that starts with the client's name.
    fn run(
        &self,
        plan: &Plan,
        log: &Path,
        stop: &Stop,
        started: &dyn Fn(u32),
        driven: &mut Driven,
    ) -> Result<(), String> {
        let words = self.client.command(self.load)?;
        let filler = self.filler(plan);
        let words = filler.fill_words(words);
        driven.ran.tool.command.clone_from(&words);
        let before = self
            .counter
            .map(|path| read_counter(self.server(plan), path))
            .transpose();
        let before = before
            .map_err(|what| format!("was not started: cannot read the server's counter: {what}"))?;
        let directory = &self.client.package.directory;
        let command = program::command(self.side, &words, directory);
        let child = program::leased(Child::start_logged(command, log), self.leases);
        let (mut child, lease) = child.map_err(|what| format!("does not start: {what}"))?;
        started(child.pid());
        let begin = Instant::now();
        let (end, samples) = self.wait(plan, &mut child, stop);
        driven.ran.tool.wall_s = begin.elapsed().as_secs_f64();
        drop(lease);
        if let Some(used) = child.used() {
            driven.ran.user_s = Some(used.user_s);
            driven.ran.system_s = Some(used.system_s);
            driven.ran.peak_rss_bytes = Some(used.peak_rss_bytes);
        }
        if let (Some(before), Some(path)) = (before, self.counter) {
            match read_counter(self.server(plan), path) {
                Ok(after) => {
                    driven.ran.tool.counter = Some(Counter {
                        before,
                        after,
                        readings: samples.count,
                    });
                }
                Err(what) => driven.missing.push(format!(
                    "the server's counter cannot be read after the run: {what}"
                )),
            }
            driven
                .observations
                .extend(samples.observation(before, path));
        }
        let Some(status) = end? else {
            driven.ran.interrupted = true;
            return Ok(());
        };
        let failed =
            |what: String| format!("{what}{}; see {}", quote_failure(log, 0), log.display());
        if !self.client.succeeds(status.code()) {
            return Err(failed(format!("failed ({status})")));
        }
        driven.ran.tool.said = parse_output(self.client, log).map_err(failed)?;
        Ok(())
    }

    /// Returns the values of the command's placeholders.
    fn filler(&self, plan: &Plan) -> Filler {
        let mut filler = Filler::default();
        filler.set("url", &plan.target.url);
        if let Some(address) = plan.target.address.ip() {
            filler.set("host", address.ip().to_string());
            filler.set("port", address.port().to_string());
        }
        filler.set("path", &plan.target.path);
        filler.set("connections", plan.connections.to_string());
        filler.set("threads", plan.threads.to_string());
        filler.set("seconds", plan.duration_s().unwrap_or_default().to_string());
        filler.set(
            "requests",
            plan.request_limit().unwrap_or_default().to_string(),
        );
        if let Some(rate) = plan.rate_per_s() {
            let each = rate / f64::from(plan.connections.max(1));
            filler.set("rate-each", each.to_string());
        }
        filler
    }

    /// Samples the server's counter until the client exits. Returns `None` after an interruption.
    fn wait(
        &self,
        plan: &Plan,
        child: &mut Child,
        stop: &Stop,
    ) -> (Result<Option<ExitStatus>, String>, CounterSamples) {
        std::thread::scope(|scope| {
            let (running, ended) = sync_channel::<()>(0);
            let samples = self.counter.map(|path| {
                scope.spawn(move || CounterSamples::take(self.server(plan), path, &ended))
            });
            let within = self.client.within(self.load);
            let end = match program::wait(child, within, GRACE, stop) {
                Ok(WaitEnd::Exited(status)) => Ok(Some(status)),
                Ok(WaitEnd::Interrupted) => Ok(None),
                Ok(WaitEnd::TimedOut) => {
                    let within = show_duration(within);
                    Err(format!("did not exit within {within} and was stopped"))
                }
                Err(error) => Err(format!("has an unknown exit status: {error}")),
            };
            drop(running);
            let samples = samples.and_then(|samples| samples.join().ok());
            (end, samples.unwrap_or_default())
        })
    }
}

/// Runs the client's version command and returns the first output line that contains a digit.
fn version(client: &Client) -> Option<String> {
    let words = client.manifest.version.as_ref()?;
    let mut command = Command::new(&words[0]);
    command
        .args(&words[1..])
        .current_dir(&client.package.directory);
    let (_, output) = ask(command)?;
    let mut lines = output.lines().map(str::trim);
    let line = lines.find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    Some(line.chars().take(VERSION_LIMIT).collect())
}

/// Parses the figures in a client's output.
fn parse_output(client: &Client, log: &Path) -> Result<PrintedFigures, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(log)?
            .take(OUTPUT_LIMIT)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| format!("wrote output that cannot be read: {error}"))?;
    client
        .manifest
        .figures
        .read(&String::from_utf8_lossy(&bytes))
}

/// Reads a server's own counter with a GET request that is sent from the client's host. The counter
/// grows by one with each response.
///
/// # Errors
/// No response arrives, or its body is not a number.
fn read_counter(server: ProbeTarget<'_>, path: &str) -> Result<u64, String> {
    let response = probe::request(server, WorkloadRequest::get(path))
        .map_err(|what| format!("GET {path}: {what}"))?;
    let text = String::from_utf8_lossy(&response.body);
    text.trim().parse().map_err(|_| {
        let status = response.status;
        format!("GET {path} returned status {status} and a body that is not a number")
    })
}

/// Samples of the counter, one per second. Each sample sends a request, which also increments the
/// counter.
#[derive(Debug, Default)]
struct CounterSamples {
    numbers: Vec<u64>,
    /// Number of successful samples, including the last one if it was late.
    count: u64,
}

impl CounterSamples {
    /// Takes one sample per second until `ended` closes, or until a sample fails or is late.
    fn take(server: ProbeTarget<'_>, path: &str, ended: &Receiver<()>) -> Self {
        let begin = Instant::now();
        let mut samples = CounterSamples::default();
        for second in 1.. {
            let due = begin + INTERVAL * second;
            let wait = due.saturating_duration_since(Instant::now());
            if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            let Ok(number) = read_counter(server, path) else {
                break;
            };
            samples.count += 1;
            if due.elapsed() > DELAY_LIMIT {
                break;
            }
            samples.numbers.push(number);
        }
        samples
    }

    /// Returns the number of responses in each second, excluding the responses to the samples' own
    /// requests. `before` is the counter's value before the first second. Returns `None` if there
    /// are no samples.
    fn observation(&self, before: u64, path: &str) -> Option<Observation> {
        let earlier = std::iter::once(&before).chain(&self.numbers);
        let values = self.numbers.iter().zip(earlier);
        let values: Vec<f64> = values
            .map(|(now, before)| now.saturating_sub(before + 1) as f64)
            .collect();
        (!values.is_empty()).then(|| Observation {
            metric: Metric::Process(Role::Server, ProcessFigure::Responses),
            is_peak: false,
            source: format!("the server's counter, read with GET {path} every second"),
            start_ms: 0,
            step_ms: INTERVAL.as_millis() as u64,
            values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_its_own_requests() {
        let samples = CounterSamples {
            numbers: vec![111, 162],
            count: 2,
        };
        let observation = samples.observation(10, "/dispatcher").unwrap();
        assert_eq!(observation.values, [100.0, 50.0]);
        assert_eq!(CounterSamples::default().observation(10, "/"), None);
    }
}
