//! Monitors one attempt with samplers, and detects when a trial's processes exit.

use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use floodmark_host::ProcessPlacement;
use floodmark_observe::process::is_running;
use floodmark_observe::sampler::{EVERY, Sampled};
use floodmark_observe::{HostCpu, MonitorTargets, Root, Sampler, UsedCpu};
use floodmark_record::Event;
use floodmark_record::events::Phase;
use floodmark_record::plan::Plan;
use floodmark_record::watch::{HostUsed, Observed, ServerUsed};

use crate::remote::RemoteObserver;

/// What is monitored during an attempt.
#[derive(Debug, Clone)]
pub enum Monitoring<'a> {
    /// Nothing.
    Off,
    /// The host, the client, the server and its store. A server without a PID is found by its
    /// address.
    Local(MonitorTargets),
    /// The host and the client. A remote observer samples the server on the server's host.
    Remote(&'a RemoteObserver),
}

/// The monitoring of one attempt.
pub struct AttemptMonitor<'a> {
    /// The sampler, or the reason why it did not start.
    sampler: Result<Sampler, String>,
    remote: Option<&'a RemoteObserver>,
    /// CPU time that the server had used at the last event.
    server: Option<UsedCpu>,
    /// CPU time that the store had used at the last event.
    store: Option<UsedCpu>,
    /// CPU time used on the client's host at the last event.
    host: Option<HostCpu>,
    /// PIDs of the client's agents on this host; empty if the client is a single process.
    agents: Vec<u32>,
    /// Whether the client runs on other hosts.
    is_elsewhere: bool,
}

impl<'a> AttemptMonitor<'a> {
    /// Starts monitoring in the client's network.
    pub fn start(monitoring: &Monitoring<'a>, side: &ProcessPlacement, plan: &Plan) -> Self {
        let (targets, remote) = match monitoring {
            Monitoring::Off => (Err("--no-watch"), None),
            Monitoring::Local(targets) => (Ok(targets.clone()), None),
            Monitoring::Remote(remote) => {
                let targets = MonitorTargets {
                    observed_remotely: true,
                    ..MonitorTargets::default()
                };
                (Ok(targets), Some(*remote))
            }
        };
        let sampler = targets.map_err(str::to_owned).and_then(|mut targets| {
            targets.addresses = plan.target.addresses().collect();
            side.within(|| Sampler::start_at(Instant::now(), EVERY, targets))
                .map_err(|error| error.to_string())
        });
        Self {
            sampler,
            remote,
            server: None,
            store: None,
            host: None,
            agents: Vec::new(),
            is_elsewhere: false,
        }
    }

    /// Adds an agent, whose PID on its host is `pid`. Must be called before the client is ready.
    pub fn agent(&mut self, pid: u32) {
        self.agents.push(pid);
    }

    /// Records that the client runs on other hosts, so its processes are not sampled here.
    pub fn client_is_elsewhere(&mut self) {
        self.is_elsewhere = true;
    }

    /// Handles an event from the worker. Returns the events to record before this event.
    pub fn on(&mut self, event: &Event) -> impl Iterator<Item = Event> + use<> {
        let mut used = [None, None, None];
        if let Ok(sampler) = &self.sampler {
            match event {
                Event::Second(_) => {
                    // The host's figures explain the client's figures only if the client runs on
                    // this host.
                    let live = sampler.live();
                    let host = live.host.filter(|_| !self.is_elsewhere);
                    used = [
                        used_since(&mut self.server, live.server).map(Event::ServerUsed),
                        used_since(&mut self.store, live.store).map(Event::StoreUsed),
                        host_used_since(&mut self.host, host).map(Event::HostUsed),
                    ];
                }
                Event::Ready(_) if self.is_elsewhere => {}
                Event::Ready(ready) if self.agents.is_empty() => sampler.clients(&[ready.pid]),
                Event::Ready(_) => sampler.clients(&self.agents),
                Event::Began { phase, .. } => {
                    if *phase == Phase::Measure {
                        sampler.measuring();
                    }
                    let live = sampler.live();
                    (self.server, self.store, self.host) = (live.server, live.store, live.host);
                }
                _ => {}
            }
        }
        used.into_iter().flatten()
    }

    /// Handles the start of an external client. The measurement starts at the same time.
    pub fn on_external_client(&self, pid: u32) {
        if let Ok(sampler) = &self.sampler {
            sampler.clients(&[pid]);
            sampler.measuring();
        }
    }

    /// Stops monitoring. Returns the samples, and a one-line message per missing measurement.
    pub fn stop(self) -> Sampled {
        match self.sampler {
            Ok(sampler) => {
                let (mut observed, mut missing) = sampler.stop();
                if let Some(remote) = self.remote {
                    missing.extend(remote.add_to(&mut observed));
                }
                (observed, missing)
            }
            Err(reason) => (
                Observed::default(),
                vec![format!("server, client, host: not monitored ({reason})")],
            ),
        }
    }
}

/// Returns the CPU time used on the host since the reading in `last`, and stores `now` in `last`.
fn host_used_since(last: &mut Option<HostCpu>, now: Option<HostCpu>) -> Option<HostUsed> {
    let now = now?;
    let before = last.replace(now)?;
    let over_s = now.at.saturating_duration_since(before.at).as_secs_f64();
    (over_s > 0.0).then_some(HostUsed {
        over_s,
        busy_s: now.busy_s - before.busy_s,
        total_s: now.total_s - before.total_s,
    })
}

/// Returns the CPU time used since the reading in `last`, and stores `now` in `last`.
fn used_since(last: &mut Option<UsedCpu>, now: Option<UsedCpu>) -> Option<ServerUsed> {
    let now = now?;
    let before = last.replace(now)?;
    let over_s = now.at.saturating_duration_since(before.at).as_secs_f64();
    // A process that has ended has no new samples.
    (over_s > 0.0).then(|| ServerUsed {
        over_s,
        user_s: now.user.saturating_sub(before.user).as_secs_f64(),
        system_s: now.system.saturating_sub(before.system).as_secs_f64(),
    })
}

/// Interval between two checks, and thus the maximum error of an exit time.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Monitors processes and records when they exit. Dropping the monitor ends the checks.
#[derive(Debug)]
pub struct ExitMonitor {
    /// Name and exit time of each process that has exited.
    exits: Arc<Mutex<Vec<(String, Instant)>>>,
    /// Dropping this sender closes the channel, which ends the thread. Nothing is ever sent.
    _running: SyncSender<()>,
}

impl ExitMonitor {
    /// Starts monitoring processes. Each entry consists of a name for messages and a PID.
    #[must_use]
    pub fn start(mut processes: Vec<(String, u32)>) -> Self {
        let exits: Arc<Mutex<Vec<(String, Instant)>>> = Arc::default();
        let (running, ended) = sync_channel(0);
        let found = Arc::clone(&exits);
        let check = move || {
            while ended.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let has_ended = |(_, pid): &mut (String, u32)| !is_running(&Root::host(), *pid);
                for (name, _) in processes.extract_if(.., has_ended) {
                    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.push((name, Instant::now()));
                }
            }
        };
        // If the thread cannot be started, only the exit times are unknown, because the runner also
        // checks the processes after the load.
        let named = std::thread::Builder::new().name("exits".to_owned());
        let _ = named.spawn(check);
        ExitMonitor {
            exits,
            _running: running,
        }
    }

    /// Describes the processes that have exited, with their exit times relative to `begin`. Returns
    /// `None` if all processes are running.
    #[must_use]
    pub fn describe(&self, begin: Instant) -> Option<String> {
        let exits = self.exits.lock().unwrap_or_else(PoisonError::into_inner);
        let describe = |(name, at): &(String, Instant)| match at.checked_duration_since(begin) {
            Some(after) => format!(
                "{name} exited {:.1} s into the attempt",
                after.as_secs_f64()
            ),
            None => format!("{name} had exited before the attempt"),
        };
        let all: Vec<String> = exits.iter().map(describe).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn reports_a_zombie_as_ended() {
        let begin = Instant::now();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let this = ("the test".to_owned(), std::process::id());
        let monitor = ExitMonitor::start(vec![this, ("the store x".to_owned(), child.id())]);
        assert_eq!(monitor.describe(begin), None);
        child.kill().unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while monitor.describe(begin).is_none() && Instant::now() < deadline {
            std::thread::sleep(POLL_INTERVAL);
        }
        let message = monitor.describe(begin).unwrap();
        let after = message.strip_prefix("the store x exited ").unwrap();
        let after: f64 = after.split(' ').next().unwrap().parse().unwrap();
        assert!(after <= begin.elapsed().as_secs_f64() + 0.1, "{message}");
        let later = monitor.describe(Instant::now()).unwrap();
        assert_eq!(later, "the store x had exited before the attempt");
        child.wait().unwrap();
    }
}
