//! Proof by perturbation: short windows with and without a change, one beside the other, on the server that a run was measured on
//! (docs/decisions/0022-proof.md).

use std::path::Path;

use floodmark_host::slow::Slowed;
use floodmark_host::{Side, Stop};
use floodmark_observe::{Root, family};
use floodmark_record::Event;
use floodmark_record::events::RunId;
use floodmark_record::plan::{FiguresOf, Plan, WorkerInput};
use floodmark_record::proof::{Change, Windows};
use floodmark_record::run::Run;
use floodmark_record::tls::TrustAnchor;

use crate::folder::{Folder, FolderError};
use crate::worker;

/// Shortest and longest window, whole seconds, for that is how a worker counts: some hundred answers of a server that gives few, and short
/// enough that a minute or two hold all of them.
const WINDOW_S: (f64, f64) = (1.0, 4.0);

/// The same of the load before each window, which belongs to the same stretch of sending: connections are opened, and what the stretch
/// before left in the server is worked off. With a pause in between, answers to what was sent before it would be in no window.
const SETTLE_S: (f64, f64) = (1.0, 4.0);

/// Where answers take long, a window is as long as so many mean service times: with twice the connections they take twice as long, and
/// three of them are a figure. What is under way is worked off in half of that, also after twice the connections.
const ANSWERS: f64 = 6.0;

/// Load on a server that was started beside the other one, before its first window, seconds, where that had no longer warm-up.
const WARM_S: f64 = 3.0;

/// How often all changes are made, each time there and back: two windows of each.
const ROUNDS: usize = 3;

/// Number (`{seq}`) of the first request, above all that measuring can have used.
const FIRST_NUMBER: u64 = 1 << 40;

/// What it takes to change parts of a setup that runs.
#[derive(Debug)]
pub struct Proving<'a> {
    /// The program that runs, which slows processes.
    pub floodmark: &'a Path,
    /// What was measured.
    pub plan: &'a Plan,
    /// The certificate authorities to trust.
    pub anchors: &'a [TrustAnchor],
    /// Where the load process runs.
    pub side: &'a Side,
    /// The server, where it may be slowed.
    pub server: Option<u32>,
    /// The store, where it may be slowed.
    pub store: Option<u32>,
    /// A server with a knob set to twice its value, where there is one.
    pub beside: Option<Beside<'a>>,
    /// Ends it.
    pub stop: &'a Stop,
}

/// A server of the same kind with one knob changed.
#[derive(Debug)]
pub struct Beside<'a> {
    /// Which knob, and from which value to which.
    pub knob: String,
    /// What is sent to it.
    pub plan: &'a Plan,
}

/// What came of trying to prove a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proved {
    /// Changes were made, and what came of them is kept.
    Changed,
    /// No change that can be made here tells the cause from others.
    NothingToChange,
    /// A change could not be made or measured; in words.
    Failed(String),
}

/// How long what is under way has to last, seconds: some stops, so that the side that is not stopped has something to do meanwhile.
const BRIDGED_S: f64 = 0.004;

/// Most connections that are made for that, as a multiple of the run's.
const DEEPEST: u32 = 16;

/// Connections with which what is under way bridges a stop.
fn deep(run: &Run) -> u32 {
    let connections = run.plan.connections;
    let needed = run.throughput_per_s.unwrap_or(0.0) * BRIDGED_S;
    let most = connections.saturating_mul(DEEPEST);
    (needed.ceil() as u32).clamp(connections, most.max(connections))
}

/// The name of a run.
fn id(run: &Run) -> RunId {
    RunId {
        system: run.system.clone(),
        workload: run.workload.clone(),
        trial: run.trial.clone(),
        setting: run.setting.clone(),
        process: run.process,
        attempt: run.attempt,
    }
}

impl Proving<'_> {
    /// Makes those changes that tell the cause of a run from others, and keeps in its folder what came of them.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn prove(&self, run: &Run, folder: &mut Folder) -> Result<Proved, FolderError> {
        let mut changes = floodmark_diagnose::why::proof::changes(run);
        changes.retain(|change| match change {
            Change::SlowedServer => self.server.is_some(),
            Change::SlowedStore => self.store.is_some(),
            Change::TwiceKnob => self.beside.is_some(),
            Change::TwiceConnections | Change::SlowedClient => true,
        });
        if changes.is_empty() {
            return Ok(Proved::NothingToChange);
        }
        if self.beside.is_some() {
            changes.push(Change::TwiceKnob);
        }
        let (windows, proved) = match self.windows(run, &changes) {
            Ok(windows) => (windows, Proved::Changed),
            Err(what) => (Vec::new(), Proved::Failed(what)),
        };
        let missing = match &proved {
            Proved::Failed(what) => vec![format!("the verdict is not proven: {what}")],
            _ => Vec::new(),
        };
        folder.append(&Event::Proved {
            run: id(run),
            windows,
            missing,
        })?;
        folder.sync()?;
        Ok(proved)
    }

    /// Makes each change in short windows, base first and last: A B C C B A in each round, so that what drifts meets all alike. What
    /// could not be measured comes in words, in place of windows.
    fn windows(&self, run: &Run, changes: &[Change]) -> Result<Vec<Windows>, String> {
        let connections = run.plan.connections;
        let deep = deep(run);
        let mut taken: Vec<Windows> = changes
            .iter()
            .map(|change| Windows {
                change: *change,
                knob: match (change, &self.beside) {
                    (Change::TwiceKnob, Some(beside)) => Some(beside.knob.clone()),
                    _ => None,
                },
                connections: match change {
                    Change::TwiceConnections | Change::TwiceKnob => connections,
                    _ => deep,
                },
                base_per_s: Vec::new(),
                changed_per_s: Vec::new(),
            })
            .collect();
        let mut conditions: Vec<(Option<Change>, u32)> = Vec::new();
        for windows in &taken {
            if !conditions.contains(&(None, windows.connections)) {
                conditions.push((None, windows.connections));
            }
            conditions.push((Some(windows.change), windows.connections));
        }
        let mean_s = run.service_time_us.mean.map_or(0.0, |us| us / 1e6);
        let whole = |s: f64, (least, most): (f64, f64)| s.ceil().clamp(least, most);
        let length_s = whole(mean_s * ANSWERS, WINDOW_S);
        let settle_s = whole(mean_s * ANSWERS / 2.0, SETTLE_S);
        let mut next_number = FIRST_NUMBER;
        if self.beside.is_some() {
            // It was started just now: as warm as the other one it has to be.
            let warm_s = self.plan.warmup_s.max(WARM_S).ceil();
            let knob = Some(Change::TwiceKnob);
            self.window(knob, connections, (warm_s, length_s), &mut next_number)?;
        }
        for _ in 0..ROUNDS {
            for (change, connections) in conditions.iter().chain(conditions.iter().rev()) {
                let per_s = self.window(
                    *change,
                    *connections,
                    (settle_s, length_s),
                    &mut next_number,
                )?;
                for windows in &mut taken {
                    match change {
                        None if windows.connections == *connections => {
                            windows.base_per_s.push(per_s);
                        }
                        Some(change) if windows.change == *change => {
                            windows.changed_per_s.push(per_s);
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(taken)
    }

    /// Ok answers per second of one window: all that came in it, whenever they were asked for.
    fn window(
        &self,
        change: Option<Change>,
        connections: u32,
        (settle_s, length_s): (f64, f64),
        next_number: &mut u64,
    ) -> Result<f64, String> {
        let of = match (change, &self.beside) {
            (Some(Change::TwiceKnob), Some(beside)) => beside.plan,
            _ => self.plan,
        };
        let mut plan = Plan {
            duration_s: Some(settle_s + length_s),
            requests: None,
            warmup_s: 0.0,
            figures_of: FiguresOf::Whole,
            // What comes after the window is in no figure, and of a server that leaves some unanswered it would be the whole timeout.
            drain: false,
            check: None,
            connections,
            ..of.clone()
        };
        if change == Some(Change::TwiceConnections) {
            plan.connections = plan.connections.saturating_mul(2);
        }
        let slowed = match change {
            Some(Change::SlowedServer) => self.server,
            Some(Change::SlowedStore) => self.store,
            _ => None,
        };
        let slow = |pids: &[u32]| {
            Slowed::start(self.floodmark, pids)
                .map_err(|error| format!("what was to be slowed cannot be: {error}"))
        };
        let slowed = slowed
            .map(|pid| slow(&family(&Root::host(), pid)))
            .transpose()?;
        let input = WorkerInput {
            plan,
            start_unix_ns: None,
            first_number: *next_number,
            answers_file: None,
            anchors: self.anchors.to_vec(),
        };
        let settle_ns = (settle_s * 1e9) as u64;
        let (mut ok, mut window_ns) = (0, None);
        let mut client = None;
        let program = worker::this_program();
        worker::run(
            &program,
            self.side,
            &input,
            self.stop,
            |event| match event {
                Event::Ready(ready) if change == Some(Change::SlowedClient) => {
                    client = Some(slow(&[ready.pid]));
                }
                Event::Second(row) if row.from_ns >= settle_ns => ok += row.ok_in_window,
                Event::End(end) => {
                    *next_number = end.next_number.max(*next_number);
                    window_ns = end.window_ns.checked_sub(settle_ns);
                }
                _ => {}
            },
        )
        .map_err(|error| error.to_string())?;
        for slowed in [slowed, client.transpose()?].into_iter().flatten() {
            slowed
                .end()
                .map_err(|error| format!("what was to be slowed was not: {error}"))?;
        }
        if self.stop.is_set() {
            return Err("it was interrupted".to_owned());
        }
        if ok == 0 {
            return Err("no answer came in a window; is the server still there?".to_owned());
        }
        match window_ns {
            Some(ns) if ns > 0 => Ok(ok as f64 / (ns as f64 / 1e9)),
            _ => Err("a window had no length".to_owned()),
        }
    }
}
