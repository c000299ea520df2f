//! Runs an external client: waits for it, parses its output and measures its CPU time.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use floodmark_host::{Child, ProcessPlacement, Stop};
use floodmark_plan::LoadSpec;
use floodmark_record::Observation;
use floodmark_record::client::{ClientRan, Counter, ExternalRun, PrintedFigures};
use floodmark_record::events::RunId;
use floodmark_record::plan::Plan;
use floodmark_record::units::show_duration;

use super::child::{self, WaitEnd};
use super::counter::{self, CounterSamples};
use crate::log_tail::quote_failure;
use crate::manifest::{Client, Filler, ask};

/// Time that an interrupted client has to exit before it is killed.
const GRACE: Duration = Duration::from_secs(2);

/// Maximum length of the parsed output, in bytes.
const OUTPUT_LIMIT: u64 = 16 << 20;

/// Maximum length of a version string, in characters.
const VERSION_LIMIT: usize = 60;

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
    /// Folder for the leases of running programs.
    pub leases: &'a Path,
}

/// Result of an external client's run.
#[derive(Debug)]
pub struct Driven {
    /// The event that describes the run.
    pub ran: ClientRan,
    /// Series sampled during the run.
    pub observations: Vec<Observation>,
    /// One-line messages about missing measurements.
    pub missing: Vec<String>,
}

impl ExternalClient<'_> {
    /// Runs the client until it exits or `stop` is set, and writes its log to `folder`. Calls
    /// `started` with the process id of the client.
    pub fn drive(
        &self,
        plan: &Plan,
        run: &RunId,
        folder: &Path,
        stop: &Stop,
        started: &dyn Fn(u32),
    ) -> Driven {
        let trial = run.trial.as_deref().unwrap_or(&run.system);
        let log = format!("client-{trial}-{}-{}.log", run.process, run.attempt);
        let path = folder.join(&log);
        let mut driven = Driven {
            ran: ClientRan {
                name: self.client.package.name.clone(),
                user_s: None,
                system_s: None,
                peak_rss_bytes: None,
                tool: ExternalRun {
                    version: version(self.client),
                    log,
                    ..ExternalRun::default()
                },
                failure: None,
                interrupted: false,
            },
            observations: Vec::new(),
            missing: Vec::new(),
        };
        if let Err(what) = self.run(plan, &path, stop, started, &mut driven) {
            driven.ran.failure = Some(format!("{} {what}", driven.ran.name));
        }
        driven
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
        let before = self.counter.map(|path| self.read_counter(path)).transpose();
        let before = before
            .map_err(|what| format!("was not started: cannot read the server's counter: {what}"))?;
        let folder = &self.client.package.folder;
        let start = child::start(self.side, &words, folder, log, self.leases);
        let (mut child, lease) = start.map_err(|what| format!("does not start: {what}"))?;
        started(child.pid());
        let begin = Instant::now();
        let (end, samples) = self.wait(&mut child, stop);
        driven.ran.tool.wall_s = begin.elapsed().as_secs_f64();
        drop(lease);
        if let Some(used) = child.used() {
            driven.ran.user_s = Some(used.user_s);
            driven.ran.system_s = Some(used.system_s);
            driven.ran.peak_rss_bytes = Some(used.peak_rss_bytes);
        }
        if let (Some(before), Some(path)) = (before, self.counter) {
            match self.read_counter(path) {
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

    fn read_counter(&self, path: &str) -> Result<u64, String> {
        counter::read(self.side, self.address, path)
    }

    /// Samples the server's counter until the client exits. Returns `None` after an interruption.
    fn wait(
        &self,
        child: &mut Child,
        stop: &Stop,
    ) -> (Result<Option<ExitStatus>, String>, CounterSamples) {
        std::thread::scope(|scope| {
            let (running, ended) = sync_channel::<()>(0);
            let samples = self.counter.map(|path| {
                scope.spawn(move || CounterSamples::take(self.side, self.address, path, &ended))
            });
            let within = self.client.within(self.load);
            let end = match child::wait(child, within, GRACE, stop) {
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
        .current_dir(&client.package.folder);
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
