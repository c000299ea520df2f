//! Another load generator drives a run: started, waited for, its output kept and read, what it used counted.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use floodmark_host::{Child, Lease, Side, Stop};
use floodmark_record::client::{ClientRan, Counter, Said, Tool};
use floodmark_record::events::RunId;
use floodmark_record::plan::Plan;
use floodmark_record::units::show_duration;

use super::counter::{self, Readings};
use super::launch::{last_line, no_lease};
use crate::attempt::{Driven, Driver};
use crate::manifest::{Client, Filler, Load, ask};

/// How often a request to stop is looked for.
const GLANCE: Duration = Duration::from_millis(20);

/// How long one that is ended early may take for it.
const GRACE: Duration = Duration::from_secs(2);

/// Largest output that is read, bytes.
const LARGEST: u64 = 16 << 20;

/// Longest version that is kept, characters.
const LONGEST_VERSION: usize = 60;

/// A load generator in front of a server that runs.
pub struct Other<'a> {
    /// The load generator.
    pub client: &'a Client,
    /// What it is to send.
    pub load: &'a Load,
    /// Where the server listens.
    pub address: SocketAddr,
    /// Path that answers with a number that goes up by one each time, where there is one.
    pub counter: Option<&'a str>,
    /// Where it runs.
    pub side: &'a Side,
    /// Where what runs is noted.
    pub leases: &'a Path,
}

/// How a child ended.
struct Ended {
    status: Option<ExitStatus>,
    wall_s: f64,
    failure: Option<String>,
    interrupted: bool,
}

impl Driver for Other<'_> {
    fn name(&self) -> &str {
        &self.client.name
    }

    fn drive(
        &self,
        plan: &Plan,
        run: &RunId,
        folder: &Path,
        stop: &Stop,
        started: &mut dyn FnMut(u32),
    ) -> Driven {
        let log = log_name(run);
        let mut driven = Driven {
            ran: ClientRan {
                name: self.client.name.clone(),
                user_s: None,
                system_s: None,
                peak_rss_bytes: None,
                tool: Tool {
                    version: version(self.client),
                    log: log.clone(),
                    ..Tool::default()
                },
                failure: None,
                interrupted: false,
            },
            observations: Vec::new(),
            missing: Vec::new(),
        };
        if let Err(what) = self.run(plan, &folder.join(log), stop, started, &mut driven) {
            let name = &self.client.name;
            driven.ran.failure = Some(format!("{name} {what}"));
        }
        driven
    }
}

impl Other<'_> {
    /// Runs it; why its run is none, as the rest of a sentence that its name begins.
    fn run(
        &self,
        plan: &Plan,
        log: &Path,
        stop: &Stop,
        started: &mut dyn FnMut(u32),
        driven: &mut Driven,
    ) -> Result<(), String> {
        let words = self.client.command(self.load)?;
        let filler = self.filler(plan);
        let words: Vec<String> = words.iter().map(|word| filler.fill(word)).collect();
        driven.ran.tool.command.clone_from(&words);
        let before = self.read_counter()?;
        let (mut child, lease) = self.start(&words, log)?;
        started(child.pid());
        let (ended, seen) = match self.counter {
            Some(path) => self.counted(&mut child, path, stop),
            None => (self.wait(&mut child, stop), Readings::default()),
        };
        drop(lease);
        let ran = &mut driven.ran;
        if let Some(used) = child.used() {
            ran.user_s = Some(used.user_s);
            ran.system_s = Some(used.system_s);
            ran.peak_rss_bytes = Some(used.peak_rss_bytes);
        }
        ran.tool.wall_s = ended.wall_s;
        ran.interrupted = ended.interrupted;
        if let (Some(before), Some(path)) = (before, self.counter) {
            match counter::read(self.side, self.address, path) {
                Ok(after) => {
                    ran.tool.counter = Some(Counter {
                        before,
                        after,
                        readings: seen.made,
                    });
                }
                Err(what) => driven
                    .missing
                    .push(format!("the server's counter after the run: {what}")),
            }
            driven.observations.extend(seen.observation(before, path));
        }
        if let Some(failure) = ended.failure {
            return Err(failure);
        }
        if ended.interrupted {
            return Ok(());
        }
        let fault =
            |what: String| format!("{what}{}; its log is {}", last_line(log), log.display());
        if let Some(status) = ended.status.filter(|s| !self.client.succeeds(s.code())) {
            return Err(fault(format!("failed ({status})")));
        }
        ran.tool.said = said(self.client, log).map_err(fault)?;
        Ok(())
    }

    /// Starts it on its side, noted among what runs.
    fn start(&self, words: &[String], log: &Path) -> Result<(Child, Lease), String> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&self.client.folder);
        let failed = |what: String| format!("does not start: {what}");
        let child = self.side.start_logged(command, log);
        let child = child.map_err(|error| failed(error.to_string()))?;
        let lease = Lease::take(self.leases, &child)
            .map_err(|error| failed(no_lease(self.leases, &error)))?;
        Ok((child, lease))
    }

    /// What placeholders stand for.
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
        filler.set("seconds", plan.duration_s.unwrap_or_default().to_string());
        filler.set("requests", plan.requests.unwrap_or_default().to_string());
        if let Some(rate) = plan.rate_per_s {
            let each = rate / f64::from(plan.connections.max(1));
            filler.set("rate-each", each.to_string());
        }
        filler
    }

    /// The number that the server hands out, where it has such.
    fn read_counter(&self) -> Result<Option<u64>, String> {
        self.counter
            .map(|path| counter::read(self.side, self.address, path))
            .transpose()
            .map_err(|what| format!("was not started: the server's counter cannot be read: {what}"))
    }

    /// Waits for the end, with the server's counter read once a second by a thread beside it.
    fn counted(&self, child: &mut Child, path: &str, stop: &Stop) -> (Ended, Readings) {
        std::thread::scope(|scope| {
            let (over, told) = channel::<()>();
            let reader = scope.spawn(move || Readings::take(self.side, self.address, path, &told));
            let ended = self.wait(child, stop);
            drop(over);
            // It holds no lock and catches its errors; one that panicked has read nothing.
            (ended, reader.join().unwrap_or_default())
        })
    }

    fn wait(&self, child: &mut Child, stop: &Stop) -> Ended {
        let begin = Instant::now();
        let within = self.client.within(self.load);
        let mut ended = Ended {
            status: None,
            wall_s: 0.0,
            failure: None,
            interrupted: false,
        };
        loop {
            match child.wait(GLANCE) {
                Ok(Some(status)) => ended.status = Some(status),
                Ok(None) if stop.is_set() => {
                    ended.interrupted = true;
                    // Whatever it says now, it was told to end.
                    let _ = child.stop(GRACE);
                }
                Ok(None) if begin.elapsed() > within => {
                    let _ = child.stop(GRACE);
                    ended.failure = Some(format!(
                        "did not end within {} and was ended",
                        show_duration(within)
                    ));
                }
                Ok(None) => continue,
                Err(error) => ended.failure = Some(format!("was lost: {error}")),
            }
            ended.wall_s = begin.elapsed().as_secs_f64();
            return ended;
        }
    }
}

/// The file within the result folder that keeps a client's output.
fn log_name(run: &RunId) -> String {
    let trial = run.trial.as_deref().unwrap_or(&run.system);
    format!("client-{trial}-{}-{}.log", run.process, run.attempt)
}

/// The first line of what it says of its version that has a number in it.
fn version(client: &Client) -> Option<String> {
    let words = client.version.as_ref()?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).current_dir(&client.folder);
    // Some end with an error where nothing but their version is asked for.
    let (_, said) = ask(command)?;
    let line = said
        .lines()
        .map(str::trim)
        .find(|line| line.contains(|c: char| c.is_ascii_digit()))?;
    Some(line.chars().take(LONGEST_VERSION).collect())
}

/// Reads its figures from its output.
fn said(client: &Client, log: &Path) -> Result<Said, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(log)?.take(LARGEST).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| format!("said nothing that can be read: {error}"))?;
    client.figures.read(&String::from_utf8_lossy(&bytes))
}
