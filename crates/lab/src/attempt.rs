//! Attempts at one plan, one after the other on the same server, each kept as it is taken.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use floodmark_host::{Side, Stop};
use floodmark_observe::{Root, WatchedStore, environment, process};
use floodmark_record::client::ClientRan;
use floodmark_record::events::RunId;
use floodmark_record::place::Place;
use floodmark_record::plan::{Plan, WorkerInput};
use floodmark_record::run::{Observation, ToolInfo};
use floodmark_record::tls::TrustAnchor;
use floodmark_record::watch::Observed;
use floodmark_record::{Event, Record, SCHEMA_VERSION};

use crate::alive::Alive;
use crate::beside::Beside;
use crate::elsewhere::Elsewhere;
use crate::fold::{FoldError, fold};
use crate::folder::{Folder, FolderError};
use crate::server_log::ServerLog;
use crate::worker::{self, WorkerFailure};

/// Somebody who wants to see events as they happen, such as the live view.
pub trait Listener {
    /// An event has happened.
    fn on(&mut self, event: &Event);
}

impl<F: FnMut(&Event)> Listener for F {
    fn on(&mut self, event: &Event) {
        self(event);
    }
}

/// What drives a run in place of floodmark's own load process.
pub trait Driver {
    /// What it is called.
    fn name(&self) -> &str;

    /// Drives one run into a result folder, or until it is told to stop; says its process when it has started.
    fn drive(
        &self,
        plan: &Plan,
        run: &RunId,
        folder: &Path,
        stop: &Stop,
        started: &mut dyn FnMut(u32),
    ) -> Driven;
}

/// A run that was driven by something else.
#[derive(Debug)]
pub struct Driven {
    /// How it ran.
    pub ran: ClientRan,
    /// What was read beside it.
    pub observations: Vec<Observation>,
    /// What could not be read, one line each.
    pub missing: Vec<String>,
}

/// Why attempts gave no record.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The result folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The worker.
    #[error("{failure}; what was taken is in {}", folder.display())]
    Worker {
        /// What happened.
        #[source]
        failure: WorkerFailure,
        /// Where the result is.
        folder: PathBuf,
        /// What was taken before.
        record: Box<Record>,
    },
    /// Folding.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

/// Writes the first event of a result: who takes it, and where.
///
/// # Errors
/// A folder that cannot be written.
pub fn open(folder: &mut Folder, tool: ToolInfo) -> Result<(), FolderError> {
    folder.append(&Event::Opened {
        schema: SCHEMA_VERSION,
        tool,
        environment: environment::environment(&Root::host()),
    })
}

/// The wall clock, milliseconds since 1970.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_millis() as u64
}

/// Folds what is in a folder into its record; `failure` is the worker's, if it failed.
///
/// # Errors
/// That failure, a folder that cannot be read or written.
pub fn finish(folder: &mut Folder, failure: Option<WorkerFailure>) -> Result<Record, LabError> {
    folder.sync()?;
    let record = fold(folder.path())?;
    folder.write_record(&record)?;
    match failure {
        Some(failure) => Err(LabError::Worker {
            failure,
            folder: folder.path().to_owned(),
            record: Box::new(record),
        }),
        None => Ok(record),
    }
}

/// The file within the result folder that keeps an attempt's answers.
fn answers_name(run: &RunId) -> String {
    match &run.trial {
        Some(trial) => format!("answers-{trial}-{}-{}.bin", run.process, run.attempt),
        None => format!("answers-{}.bin", run.attempt),
    }
}

/// What is read beside an attempt.
#[derive(Debug, Clone)]
pub enum Watching<'a> {
    /// Nothing.
    Off,
    /// The machine, the load process, the server and the store behind it.
    On {
        /// The server's process, where it is not to be found by the address it listens on.
        server_pid: Option<u32>,
        /// The store, where there is one.
        store: Option<WatchedStore>,
    },
    /// The machine and the load process; the server is observed on its own machine.
    Elsewhere(&'a Elsewhere),
}

/// CPU that a process has used, in user mode and in the kernel, seconds; none where it is gone.
fn cpu_s(pid: u32) -> Option<f64> {
    let used = process::read(&Root::host(), pid).ok()?;
    Some(used.user_s + used.system_s)
}

/// What the delay proxy had used of the CPUs at a moment.
struct ProxyCpu {
    pid: u32,
    at: Instant,
    cpu_s: f64,
}

impl ProxyCpu {
    fn of(pid: u32) -> Option<Self> {
        Some(ProxyCpu {
            pid,
            at: Instant::now(),
            cpu_s: cpu_s(pid)?,
        })
    }

    /// What it has used since then, as one value; none where it is gone.
    fn used(self) -> Option<Observation> {
        Some(Observation {
            subject: "delay proxy".to_owned(),
            metric: "cpu".to_owned(),
            unit: "CPU-seconds".to_owned(),
            source: "/proc/PID/stat".to_owned(),
            start_ms: 0,
            step_ms: self.at.elapsed().as_millis() as u64,
            values: vec![cpu_s(self.pid)? - self.cpu_s],
        })
    }
}

/// Attempts at one plan.
pub struct Attempts<'a> {
    /// The plan; the seed of each attempt is the plan's plus its number.
    pub plan: &'a Plan,
    /// The certificate authorities to trust, where the plan has TLS and verifies.
    pub anchors: &'a [TrustAnchor],
    /// How many.
    pub attempts: u32,
    /// Names of server and workload, and which process of the server it is; the attempt's number is set here.
    pub of: RunId,
    /// What floodmark had to settle for; kept with each run.
    pub notices: &'a [String],
    /// Where the load process runs.
    pub side: &'a Side,
    /// Where client and server are, where that was asked for; kept with each run.
    pub place: Option<&'a Place>,
    /// The proxy between them, where there is one: what it takes of the CPUs is kept with each run.
    pub proxy: Option<u32>,
    /// What is read beside them.
    pub watching: Watching<'a>,
    /// Whether what is loaded still runs, where that is known. An attempt in which it ends is cut short, and the last.
    pub alive: Option<&'a Alive>,
    /// The server's log, where lines of it are counted.
    pub log: Option<&'a RefCell<ServerLog>>,
    /// Ends them.
    pub stop: &'a Stop,
    /// What drives them, where floodmark does not.
    pub driver: Option<&'a dyn Driver>,
}

impl Attempts<'_> {
    /// Makes the attempts, keeps their events in `folder` and folds them into its record.
    ///
    /// An attempt that is interrupted, or whose server goes away, is the last one.
    ///
    /// # Errors
    /// A folder that cannot be written, a worker that fails. What was taken before stays in the folder.
    pub fn run(
        &self,
        tool: ToolInfo,
        folder: &mut Folder,
        listener: &mut dyn Listener,
    ) -> Result<Record, LabError> {
        open(folder, tool)?;
        let failure = self.measure(folder, listener)?;
        finish(folder, failure)
    }

    /// Makes the attempts and keeps their events in `folder`, which was opened before; the worker's failure, if it failed.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn measure(
        &self,
        folder: &mut Folder,
        listener: &mut dyn Listener,
    ) -> Result<Option<WorkerFailure>, FolderError> {
        let mut failure = None;
        let mut first_number = 1;
        for attempt in 1..=self.attempts {
            let begin = Instant::now();
            let (id, cut_short) =
                self.attempt(attempt, &mut first_number, folder, listener, &mut failure)?;
            let gone = self.alive.and_then(|alive| alive.ended(begin));
            let cut_short = gone.or(cut_short);
            let over = cut_short.is_some() || self.stop.is_set();
            if let Some(log) = self.log {
                let (logged, trouble) = log.borrow_mut().take();
                folder.append(&Event::Logged(logged))?;
                if let Some(what) = trouble {
                    let missing = vec![what];
                    folder.append(&Event::Missing { missing })?;
                }
            }
            folder.append(&Event::RunEnded { run: id, cut_short })?;
            folder.sync()?;
            if over {
                break;
            }
        }
        Ok(failure)
    }

    fn attempt(
        &self,
        attempt: u32,
        first_number: &mut u64,
        folder: &mut Folder,
        listener: &mut dyn Listener,
        failure: &mut Option<WorkerFailure>,
    ) -> Result<(RunId, Option<String>), FolderError> {
        let id = RunId {
            attempt,
            ..self.of.clone()
        };
        let mut plan = self.plan.clone();
        plan.seed = plan.seed.wrapping_add(u64::from(attempt) - 1);
        let unix_ms = unix_ms();
        let answers_file = plan.check.map(|_| folder.path().join(answers_name(&id)));
        let began = Event::RunBegan {
            run: id.clone(),
            plan: plan.clone(),
            unix_ms,
        };
        folder.append(&began)?;
        listener.on(&began);
        if let Some(place) = self.place {
            folder.append(&Event::Placed(place.clone()))?;
        }
        if let Some(driver) = self.driver {
            // Said before it starts, for a run that is cut off should be known by what drove it.
            let by = driver.name().to_owned();
            folder.append(&Event::Driven { by })?;
        }
        let proxy = self.proxy.and_then(ProxyCpu::of);
        let mut beside = Beside::start(&self.watching, self.side, &plan);
        if let Some(driver) = self.driver {
            let mut started = |pid| beside.driven(pid);
            let driven = driver.drive(&plan, &id, folder.path(), self.stop, &mut started);
            let cut_short = crate::tally::why_no_run(&driven.ran);
            let ran = Event::ClientRan(driven.ran);
            folder.append(&ran)?;
            listener.on(&ran);
            let (mut observed, missing) = beside.stop();
            observed.observations.extend(driven.observations);
            observed.observations.extend(proxy.and_then(ProxyCpu::used));
            self.keep(folder, observed, driven.missing.into_iter().chain(missing))?;
            return Ok((id, cut_short));
        }
        let input = WorkerInput {
            plan,
            start_unix_ns: None,
            first_number: *first_number,
            answers_file,
            anchors: self.anchors.to_vec(),
        };
        let mut unwritten = None;
        let mut cut_short = None;
        let ran = worker::run(
            &worker::this_program(),
            self.side,
            &input,
            self.stop,
            |event| {
                if let Event::End(end) = &event {
                    *first_number = end.next_number;
                    cut_short = crate::tally::why_cut_short(end);
                }
                let before = beside.on(&event).into_iter().flatten();
                for event in before.chain([event]) {
                    if unwritten.is_none() {
                        unwritten = folder.append(&event).err();
                    }
                    listener.on(&event);
                }
            },
        );
        let (mut observed, missing) = beside.stop();
        observed.observations.extend(proxy.and_then(ProxyCpu::used));
        if let Some(error) = unwritten {
            return Err(error);
        }
        self.keep(folder, observed, missing)?;
        if let Err(error) = ran {
            cut_short = Some(error.to_string());
            *failure = Some(error);
        }
        Ok((id, cut_short))
    }

    /// Keeps what was read beside a run, and what could not be.
    fn keep(
        &self,
        folder: &mut Folder,
        observed: Observed,
        missing: impl IntoIterator<Item = String>,
    ) -> Result<(), FolderError> {
        folder.append(&Event::Observed(observed))?;
        let missing: Vec<String> = self.notices.iter().cloned().chain(missing).collect();
        if !missing.is_empty() {
            folder.append(&Event::Missing { missing })?;
        }
        Ok(())
    }
}
