//! Runs the attempts of one plan against the same server and records their events.

use std::cell::RefCell;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use floodmark_diagnose::conditions::AbortCondition;
use floodmark_host::{ProcessPlacement, Stop};
use floodmark_observe::{Root, environment, process};
use floodmark_plan::{FileError, Planned};
use floodmark_record::events::{Abort, RunId};
use floodmark_record::host::ToolInfo;
use floodmark_record::plan::{Http, Plan};
use floodmark_record::run::{Placement, Run};
use floodmark_record::tls::TlsCredentials;
use floodmark_record::units::Rate;
use floodmark_record::worker_input::{RequestLogInput, WorkerInput};
use floodmark_record::{Event, Record, SCHEMA_VERSION};
use floodmark_record::{Metric, Observation};

use crate::abort::AbortMonitor;
use crate::agents;
use crate::attempt_monitor::{AttemptMonitor, ExitMonitor, Monitoring};
use crate::directory::Directory;
use crate::experiment::ExternalClient;
use crate::fold::{JoinedRun, fold_with};
use crate::readback::SetReader;
use crate::run_events::{client_failure, interruption};
use crate::server_log::ServerLog;
use crate::sizing::sized_plan;
use floodmark_workers::{self as workers, AgentsSetting, WorkerFailure};

/// Callback for each event as it occurs. The live view uses such a callback.
pub type Listener<'a> = dyn FnMut(&Event) + 'a;

/// Writes the first event of a result.
pub fn open(directory: &mut Directory, tool: ToolInfo) {
    directory.append(&Event::Opened {
        schema: SCHEMA_VERSION,
        tool,
        environment: environment::environment(&Root::host()),
    });
}

/// Returns the wall-clock time in milliseconds since 1970.
#[must_use]
pub fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as u64
}

/// Folds the events in a result directory into its record. Returns the record, and a message if the
/// worker failed or the directory cannot be written.
///
/// # Errors
/// The directory cannot be read.
pub fn finish(
    directory: &mut Directory,
    failure: Option<WorkerFailure>,
) -> Result<(Record, Option<String>), FileError> {
    directory.sync();
    let record = fold_with(directory.path(), directory.unsaved())?;
    let unwritten = match directory.failure() {
        Some(failure) => Some(failure.to_string()),
        None => directory.write_record(&record).err().map(|e| e.to_string()),
    };
    let path = directory.path().display();
    let failure = failure.map(|failure| format!("{failure}; partial result: {path}"));
    Ok((record, failure.or(unwritten)))
}

/// Returns the name of a file that contains an attempt's responses or items.
fn file_name(content: &str, run: &RunId) -> String {
    match &run.trial {
        Some(trial) => format!("{content}-{trial}-{}-{}.bin", run.process, run.attempt),
        None => format!("{content}-{}.bin", run.attempt),
    }
}

/// Returns the CPU time that the delay proxy has used since an earlier reading, as a series with a
/// single value. Returns `None` if the proxy has exited.
fn proxy_used(pid: u32, since: Instant, before_s: f64) -> Option<Observation> {
    let cpu_s = process::cpu_s(&Root::host(), pid).ok()?;
    Some(Observation {
        metric: Metric::DelayProxyCpu,
        is_peak: false,
        source: "/proc/PID/stat".to_owned(),
        start_ms: 0,
        step_ms: since.elapsed().as_millis() as u64,
        values: vec![cpu_s - before_s],
    })
}

/// The attempts of one plan and their environment.
#[derive(Clone)]
pub struct Attempts<'a> {
    /// The plan, its certificates and its notices. Each attempt after the first
    /// increases the plan's seed by one.
    pub planned: &'a Planned,
    /// Number of attempts.
    pub attempts: u32,
    /// Name of the first attempt.
    pub run: RunId,
    /// Where the client runs.
    pub side: &'a ProcessPlacement,
    /// Placement of the client and the server, if requested. Each attempt records the placement.
    pub place: Option<&'a Placement>,
    /// PID of the delay proxy, if any. Each attempt records the proxy's CPU time.
    pub proxy: Option<u32>,
    /// What to monitor during the attempts.
    pub monitoring: Monitoring<'a>,
    /// Monitors the server and the store. The attempts end when one of these processes exits.
    pub exits: Option<&'a ExitMonitor>,
    /// The server's log, if its error lines are counted.
    pub log: Option<&'a RefCell<ServerLog>>,
    /// Stop flag that ends the attempts early.
    pub stop: &'a Stop,
    /// Conditions that end an attempt and skip the remaining attempts.
    pub abort_if: &'a [AbortCondition],
    /// Log of individual requests, if any. Agents do not support it.
    pub request_log: Option<RequestLogSetting<'a>>,
    /// Rates that the user sets while the load runs. Ignored by agents and external clients.
    pub rates: Option<&'a Receiver<Rate>>,
    /// The agents that divide the load; `None` if one worker on this host sends it.
    pub agents: Option<&'a AgentsSetting<'a>>,
    /// IDs of the causes that the experiment expects.
    pub expected: &'a [String],
    /// The external client; `None` for floodmark's own worker.
    pub client: Option<&'a ExternalClient<'a>>,
}

/// A log of the individual requests of all attempts.
#[derive(Debug, Clone, Copy)]
pub struct RequestLogSetting<'a> {
    /// File to which the workers append lines.
    pub file: &'a Path,
    /// Share of the requests to log, from 0 to 1.
    pub share: f64,
}

/// Sends a load from the client's host without recording its events. Returns its run, which has not
/// been judged. `first_number` is the next unused request number.
///
/// # Errors
/// The worker failed.
pub(crate) fn send_unrecorded(
    (run, plan): (RunId, Plan),
    credentials: &TlsCredentials,
    side: &ProcessPlacement,
    first_number: &mut u64,
    stop: &Stop,
) -> Result<Run, WorkerFailure> {
    let mut events = JoinedRun::new(run, plan.clone());
    let input = WorkerInput::new(plan, *first_number, credentials.clone());
    workers::run(side, &input, stop, |event| {
        if let Event::End(end) = &event {
            *first_number = end.next_number;
        }
        events.take(&event);
    })?;
    Ok(events.finish())
}

/// How the load of an attempt ended.
#[derive(Default)]
struct LoadEnd {
    /// Why the attempt is incomplete.
    interruption: Option<String>,
    failure: Option<WorkerFailure>,
    observations: Vec<Observation>,
    missing: Vec<String>,
}

impl Attempts<'_> {
    /// Runs the attempts, records their events in `directory`, and folds them into the record.
    /// Returns the record, and a message if the worker failed or the directory cannot be written.
    ///
    /// Skips the remaining attempts if an attempt is interrupted, the server exits, or the
    /// directory cannot be written.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn run(
        &self,
        tool: ToolInfo,
        directory: &mut Directory,
        listener: &mut Listener<'_>,
    ) -> Result<(Record, Option<String>), FileError> {
        open(directory, tool);
        let failure = self.measure(&mut 1, directory, listener);
        finish(directory, failure)
    }

    /// Runs the attempts and records their events in `directory`. Returns the worker's failure, if
    /// any. `first_number` is the next free request number.
    pub(crate) fn measure(
        &self,
        first_number: &mut u64,
        directory: &mut Directory,
        listener: &mut Listener<'_>,
    ) -> Option<WorkerFailure> {
        let plan = sized_plan(self, first_number);
        for attempt in 0..self.attempts {
            let run = RunId {
                attempt: self.run.attempt + attempt,
                ..self.run.clone()
            };
            let begin = Instant::now();
            let end = self.attempt(&run, &plan, first_number, directory, listener);
            let exit = self.exits.and_then(|exits| exits.describe(begin));
            let cut_short = exit.or(end.interruption);
            let last = cut_short.is_some() || self.stop.is_set() || directory.failure().is_some();
            if let Some(log) = self.log {
                let (logged, error) = log.borrow_mut().take();
                directory.append(&Event::Logged(logged));
                append_missing(directory, error);
            }
            directory.append(&Event::RunEnded { run, cut_short });
            directory.sync();
            if last {
                return end.failure;
            }
        }
        None
    }

    fn attempt(
        &self,
        run: &RunId,
        plan: &Plan,
        first_number: &mut u64,
        directory: &mut Directory,
        listener: &mut Listener<'_>,
    ) -> LoadEnd {
        let mut plan = plan.clone();
        plan.seed = plan.seed.wrapping_add(u64::from(run.attempt) - 1);
        let began = Event::RunBegan {
            run: run.clone(),
            plan: plan.clone(),
            unix_ms: unix_ms(),
        };
        directory.append(&began);
        listener(&began);
        if let Some(place) = self.place {
            directory.append(&Event::Placed(place.clone()));
        }
        if let Some(client) = self.client {
            // Record the client's name first, so that even an interrupted attempt has it.
            let by = client.client.package.name.clone();
            directory.append(&Event::Driven { by });
        }
        let begin = Instant::now();
        let proxy = self
            .proxy
            .map(|pid| (pid, process::cpu_s(&Root::host(), pid)));
        let mut sink = LoadSink {
            monitor: AttemptMonitor::start(&self.monitoring, self.side, &plan),
            directory: &mut *directory,
            listener,
            first_number,
            http: plan.http,
            interruption: None,
            abort_monitor: AbortMonitor::new(self.abort_if, &plan),
            abort: None,
            stop: self.stop.child(),
        };
        let mut end = match self.client {
            Some(client) => self.drive(client, &plan, run, &mut sink),
            None => self.load(plan, run, &mut sink),
        };
        let (mut observed, missing) = sink.monitor.stop();
        observed.observations.append(&mut end.observations);
        if let Some((pid, Ok(before_s))) = proxy {
            let used = proxy_used(pid, begin, before_s);
            observed.observations.extend(used);
        }
        directory.append(&Event::Observed(observed));
        let notices = self.planned.notices.iter().cloned();
        let missing = notices.chain(end.missing.drain(..)).chain(missing);
        append_missing(directory, missing);
        end
    }

    /// Sends the load with an external client.
    fn drive(
        &self,
        client: &ExternalClient<'_>,
        plan: &Plan,
        run: &RunId,
        sink: &mut LoadSink<'_, '_>,
    ) -> LoadEnd {
        let started = |pid| sink.monitor.on_external_client(pid);
        let driven = client.drive(plan, run, sink.directory.path(), self.stop, &started);
        let interruption = client_failure(&driven.ran);
        sink.take(Event::ClientRan(driven.ran));
        LoadEnd {
            interruption,
            observations: driven.observations,
            missing: driven.missing,
            ..LoadEnd::default()
        }
    }

    /// Sends the load with floodmark's own worker.
    fn load(&self, plan: Plan, run: &RunId, sink: &mut LoadSink<'_, '_>) -> LoadEnd {
        let stop = self.stop.flag();
        let set = SetReader::of(self.side, &plan, self.planned, &stop);
        let answers = sink.directory.path().join(file_name("answers", run));
        let request_log = self.request_log.map(|log| RequestLogInput {
            file: log.file.to_owned(),
            share: log.share,
            attempt: run.attempt,
        });
        let input = WorkerInput {
            request_log,
            answers_file: plan.check.as_ref().map(|_| answers),
            anyway: self.agents.is_some_and(|agents| agents.anyway),
            ..WorkerInput::new(plan, *sink.first_number, self.planned.credentials.clone())
        };
        let stop = sink.stop.clone();
        let failure = match self.agents {
            None => {
                let take = |event| sink.take(event);
                workers::run_adjustable(self.side, &input, &stop, self.rates, take).err()
            }
            Some(agents) => agents::run_load(agents, (&input, run), self.expected, &stop, sink),
        };
        if let Some(set) = set.filter(|_| failure.is_none()) {
            let sent = *sink.first_number - 1;
            let items = set.write_items(sent, sink.directory.path(), file_name("items", run));
            sink.directory.append(&Event::ReadBack(items));
        }
        let interruption = sink.interruption.take();
        LoadEnd {
            interruption: failure.as_ref().map(ToString::to_string).or(interruption),
            failure,
            ..LoadEnd::default()
        }
    }
}

/// Records the events of a load as they occur.
pub(crate) struct LoadSink<'a, 'm> {
    pub(crate) monitor: AttemptMonitor<'m>,
    pub(crate) directory: &'a mut Directory,
    listener: &'a mut Listener<'a>,
    /// Next free request number.
    first_number: &'a mut u64,
    /// Version of HTTP in the plan.
    http: Http,
    /// Why the load ended early.
    pub(crate) interruption: Option<String>,
    abort_monitor: AbortMonitor<'a>,
    /// The condition that ended the load.
    abort: Option<Abort>,
    /// Ends this load.
    stop: Stop,
}

impl LoadSink<'_, '_> {
    /// Records an event and passes it on to the listener.
    pub(crate) fn take(&mut self, event: Event) {
        if let Event::End(end) = &event {
            *self.first_number = end.next_number;
            self.interruption = interruption(end, self.http, self.abort.as_ref());
        }
        let abort = match &event {
            Event::Second(row) if self.abort.is_none() => self.abort_monitor.take(row),
            _ => None,
        };
        for event in self.monitor.on(&event).chain([event]) {
            self.record(&event);
        }
        if let Some(abort) = abort {
            self.stop.set();
            self.record(&Event::Aborted(abort.clone()));
            self.abort = Some(abort);
        }
    }

    fn record(&mut self, event: &Event) {
        self.directory.append(event);
        (self.listener)(event);
    }
}

/// Records measurements that failed, if any.
fn append_missing(directory: &mut Directory, missing: impl IntoIterator<Item = String>) {
    let missing: Vec<String> = missing.into_iter().collect();
    if !missing.is_empty() {
        directory.append(&Event::Missing { missing });
    }
}
