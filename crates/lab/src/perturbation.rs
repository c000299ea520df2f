//! Proves a cause by perturbation: loads a run's server in short windows, with and without a change
//! (docs/decisions/0022-proof.md).

use std::path::Path;
use std::time::Duration;

use floodmark_host::slow::Slowed;
use floodmark_host::{ProcessPlacement, Stop};
use floodmark_observe::{Root, family};
use floodmark_record::Event;
use floodmark_record::events::RunId;
use floodmark_record::plan::{FiguresOf, Http, Model, Plan};
use floodmark_record::run::Run;
use floodmark_record::tls::TlsCredentials;
use floodmark_record::units::plural;
use floodmark_record::verdict::{Perturbation, Windows};
use floodmark_record::worker_input::WorkerInput;

use crate::directory::Directory;
use floodmark_workers as workers;

/// Minimum and maximum length of a window, in seconds. Lengths are whole seconds, because the
/// worker reports counts per second. Even a slow server sends several hundred responses in a
/// window, and all windows together take at most two minutes.
const WINDOW_S: (f64, f64) = (1.0, 4.0);

/// Minimum and maximum duration of the load before a window, in seconds. During this time,
/// connections open and the server finishes earlier requests. If the load paused instead, no window
/// would include the responses to earlier requests.
const LEAD_S: (f64, f64) = (1.0, 4.0);

/// Minimum length of a window, in mean service times. If a perturbation doubles the connections,
/// the service time doubles. The window is then three service times long, which is still enough.
const SERVICE_TIMES: f64 = 6.0;

/// Minimum warm-up of a second server, in seconds.
const WARMUP_S: f64 = 3.0;

/// Number of rounds. Each round measures every perturbation twice.
const ROUNDS: usize = 3;

/// Number (`{seq}`) of the first request. It is larger than all numbers in the run.
const FIRST_NUMBER: u64 = 1 << 40;

/// Time, in seconds, for which the requests in flight must keep a process busy while another
/// process is paused.
const BRIDGED_S: f64 = 0.004;

/// Maximum number of connections that bridge pauses, as a multiple of the run's connections.
const BRIDGE_LIMIT: u32 = 16;

/// A perturbation test of a measured run.
#[derive(Debug)]
pub struct PerturbationTest<'a> {
    /// Path of floodmark's executable. Its `slow` command slows processes.
    pub floodmark: &'a Path,
    /// The plan of the run.
    pub plan: &'a Plan,
    /// Certificates to trust and to send.
    pub credentials: &'a TlsCredentials,
    /// Where the client runs.
    pub side: &'a ProcessPlacement,
    /// PID of the server, if the server may be slowed.
    pub server: Option<u32>,
    /// PID of the store, if the store may be slowed.
    pub store: Option<u32>,
    /// A second server with a doubled setting. The string describes the setting and both values;
    /// the plan defines the server's load.
    pub doubled: Option<(&'a str, &'a Plan)>,
    /// Stop flag that ends the test early.
    pub stop: &'a Stop,
}

/// Result of a perturbation test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofOutcome {
    /// All windows are recorded.
    Measured,
    /// No applicable perturbation can separate the cause from others.
    NothingToChange,
    /// A perturbation or its measurement failed.
    Failed(String),
}

/// Returns the number of connections needed to bridge a pause.
fn bridging_connections(run: &Run) -> u32 {
    let connections = run.plan.connections;
    let in_flight = run.throughput_per_s.unwrap_or(0.0) * BRIDGED_S;
    let needed = (in_flight.ceil() as u32).div_ceil(run.streams());
    let limit = connections.saturating_mul(BRIDGE_LIMIT);
    needed.clamp(connections, limit.max(connections))
}

/// Changes the load of a plan, if the perturbation changes the load. `in_flight` is the maximum
/// number of requests in flight in the run.
fn change_load(plan: &mut Plan, change: Perturbation, in_flight: u64) {
    match (change, plan.http) {
        (Perturbation::TwiceConnections, _) => {
            plan.connections = plan.connections.saturating_mul(2);
        }
        (Perturbation::OneStream, _) => {
            plan.connections = u32::try_from(in_flight).unwrap_or(u32::MAX);
            plan.http = plan.http.with_one_stream();
        }
        (Perturbation::LargerWindow, Http::V2(settings)) => {
            plan.http = Http::V2(settings.with_larger_window());
        }
        _ => {}
    }
}

fn run_id(run: &Run) -> RunId {
    RunId {
        system: run.system.clone(),
        workload: run.workload.clone(),
        trial: run.trial.clone(),
        setting: run.setting.clone(),
        process: run.process,
        attempt: run.attempt,
    }
}

impl PerturbationTest<'_> {
    /// Applies the perturbations that separate a run's cause from other causes, and records the
    /// measured windows. `announce` receives the number of changes and the expected duration before
    /// the first window, and the progress after each round.
    pub fn run(
        &self,
        run: &Run,
        directory: &mut Directory,
        announce: &mut dyn FnMut(&str),
    ) -> ProofOutcome {
        let mut changes = floodmark_diagnose::why::proof::changes(run);
        changes.retain(|change| match change {
            Perturbation::SlowedServer => self.server.is_some(),
            Perturbation::SlowedStore => self.store.is_some(),
            Perturbation::TwiceKnob => self.doubled.is_some(),
            Perturbation::TwiceConnections
            | Perturbation::OneStream
            | Perturbation::LargerWindow
            | Perturbation::SlowedClient => true,
        });
        if changes.is_empty() {
            return ProofOutcome::NothingToChange;
        }
        if self.doubled.is_some() {
            changes.push(Perturbation::TwiceKnob);
        }
        let measured = self.measure(run, &changes, announce);
        let missing = measured.as_ref().err();
        directory.append(&Event::Proved {
            run: run_id(run),
            missing: missing
                .map(|what| format!("the verdict is not proven: {what}"))
                .into_iter()
                .collect(),
            windows: measured.as_ref().cloned().unwrap_or_default(),
        });
        match measured {
            Ok(_) => ProofOutcome::Measured,
            Err(what) => ProofOutcome::Failed(what),
        }
    }

    /// Measures the perturbations in short windows. Each round has the order A B C C B A, so that
    /// drift affects all perturbations alike. A is the baseline without a change.
    fn measure(
        &self,
        run: &Run,
        changes: &[Perturbation],
        announce: &mut dyn FnMut(&str),
    ) -> Result<Vec<Windows>, String> {
        let bridging = bridging_connections(run);
        let windows_of = |change: &Perturbation| Windows {
            change: *change,
            knob: match change {
                Perturbation::TwiceKnob => self.doubled.map(|(setting, _)| setting.to_owned()),
                _ => None,
            },
            connections: match change {
                Perturbation::SlowedClient
                | Perturbation::SlowedServer
                | Perturbation::SlowedStore => bridging,
                _ => run.plan.connections,
            },
            base_per_s: Vec::new(),
            changed_per_s: Vec::new(),
        };
        let mut all: Vec<Windows> = changes.iter().map(windows_of).collect();
        let mut conditions: Vec<(Option<Perturbation>, u32)> = Vec::new();
        for windows in &all {
            if !conditions.contains(&(None, windows.connections)) {
                conditions.push((None, windows.connections));
            }
            conditions.push((Some(windows.change), windows.connections));
        }
        let mean_s = run.service_time_us.mean.map_or(0.0, |us| us / 1e6);
        let whole = |s: f64, (min, max): (f64, f64)| s.ceil().clamp(min, max);
        let lead_s = whole(mean_s * SERVICE_TIMES / 2.0, LEAD_S);
        let length_s = whole(mean_s * SERVICE_TIMES, WINDOW_S);
        let warmup_s = self.doubled.map_or(0.0, |_| {
            self.plan.warmup.as_secs_f64().max(WARMUP_S).ceil() + length_s
        });
        let windows = 2 * ROUNDS * conditions.len();
        announce(&format!(
            "testing {} in {windows} windows, about {:.0} s",
            plural(changes.len() as u64, "change"),
            warmup_s + windows as f64 * (lead_s + length_s)
        ));
        let mut next_number = FIRST_NUMBER;
        if self.doubled.is_some() {
            let change = (Some(Perturbation::TwiceKnob), run.plan.connections);
            self.measure_window(run, change, warmup_s - length_s, length_s, &mut next_number)?;
        }
        for round in 1..=ROUNDS {
            for &condition in conditions.iter().chain(conditions.iter().rev()) {
                let (change, connections) = condition;
                let per_s =
                    self.measure_window(run, condition, lead_s, length_s, &mut next_number)?;
                for windows in &mut all {
                    if change == Some(windows.change) {
                        windows.changed_per_s.push(per_s);
                    } else if change.is_none() && windows.connections == connections {
                        windows.base_per_s.push(per_s);
                    }
                }
            }
            if round < ROUNDS {
                announce(&format!("round {round} of {ROUNDS} done"));
            }
        }
        Ok(all)
    }

    /// Measures one window with the given perturbation and number of connections. Returns the ok
    /// responses per second. The window starts after `lead_s` of load.
    fn measure_window(
        &self,
        run: &Run,
        (change, connections): (Option<Perturbation>, u32),
        lead_s: f64,
        length_s: f64,
        next_number: &mut u64,
    ) -> Result<f64, String> {
        let plan = match (change, self.doubled) {
            (Some(Perturbation::TwiceKnob), Some((_, plan))) => plan,
            _ => self.plan,
        };
        let mut plan = Plan {
            model: Model::closed(lead_s + length_s),
            warmup: Duration::ZERO,
            figures_of: FiguresOf::Whole,
            // Later responses are outside the window, and waiting for missing responses would take
            // a whole timeout.
            drain: false,
            check: None,
            connections,
            ..plan.clone()
        };
        if let Some(change) = change {
            change_load(&mut plan, change, run.max_in_flight());
        }
        let slow = |pids: &[u32]| {
            Slowed::start(self.floodmark, pids)
                .map_err(|error| format!("cannot slow down a process: {error}"))
        };
        let slowed = match change {
            Some(Perturbation::SlowedServer) => self.server,
            Some(Perturbation::SlowedStore) => self.store,
            _ => None,
        };
        let slowed = slowed.map(|pid| slow(&family(&Root::host(), pid)));
        let mut slowed = slowed.transpose()?.map(Ok);
        let input = WorkerInput::new(plan, *next_number, self.credentials.clone());
        let lead_ns = (lead_s * 1e9) as u64;
        let (mut ok, mut window_ns) = (0, None);
        let on_event = |event| match event {
            Event::Ready(ready) if change == Some(Perturbation::SlowedClient) => {
                slowed = Some(slow(&[ready.pid]));
            }
            Event::Second(row) if row.from_ns >= lead_ns => ok += row.ok_in_window,
            Event::End(end) => {
                *next_number = end.next_number.max(*next_number);
                window_ns = end.window_ns.checked_sub(lead_ns);
            }
            _ => {}
        };
        workers::run(self.side, &input, self.stop, on_event).map_err(|error| error.to_string())?;
        if let Some(slowed) = slowed {
            slowed?
                .end()
                .map_err(|error| format!("a process was not slowed down: {error}"))?;
        }
        if self.stop.is_set() {
            return Err("interrupted".to_owned());
        }
        if ok == 0 {
            return Err("a window has no responses; check that the server is running".to_owned());
        }
        match window_ns {
            Some(ns) if ns > 0 => Ok(ok as f64 / (ns as f64 / 1e9)),
            _ => Err("a window has no length".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use floodmark_record::plan::{Http2, Target};

    use super::*;

    #[test]
    fn each_change_of_the_load_keeps_the_rest() {
        let plan = Plan {
            connections: 10,
            http: Http::V2(Http2 {
                streams: 32,
                ..Http2::default()
            }),
            ..Plan::of(Target::from(SocketAddr::from(([127, 0, 0, 1], 80))))
        };
        let changed = |change| {
            let mut changed = plan.clone();
            // The server allows only 4 streams.
            change_load(&mut changed, change, 40);
            let Http::V2(settings) = changed.http else {
                panic!("the HTTP version changed");
            };
            (changed.connections, settings.streams, settings.window_bytes)
        };
        assert_eq!(changed(Perturbation::TwiceConnections), (20, 32, 1 << 20));
        assert_eq!(changed(Perturbation::OneStream), (40, 1, 1 << 20));
        assert_eq!(changed(Perturbation::LargerWindow), (10, 32, 8 << 20));
        assert_eq!(changed(Perturbation::SlowedClient), (10, 32, 1 << 20));
    }
}
