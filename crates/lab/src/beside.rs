//! What is read beside an attempt, and when.

use std::time::Instant;

use floodmark_host::Side;
use floodmark_observe::sampler::{EVERY, Sampled};
use floodmark_observe::{Sampler, ServerCpu, Watch};
use floodmark_record::Event;
use floodmark_record::events::Phase;
use floodmark_record::plan::Plan;
use floodmark_record::watch::{Observed, ServerUsed};

use crate::attempt::Watching;
use crate::elsewhere::Elsewhere;

/// The watching of one attempt.
pub struct Beside<'a> {
    /// Or why there is none.
    sampler: Result<Sampler, String>,
    /// What the server had used when it was last told.
    told: Option<ServerCpu>,
    /// What observes the server, where that is done on its own machine.
    elsewhere: Option<&'a Elsewhere>,
}

impl<'a> Beside<'a> {
    /// Begins to watch, on a thread that is in the network of the load process's side.
    pub fn start(watching: Watching<'a>, side: &Side, plan: &Plan) -> Self {
        let (server_pid, elsewhere) = match watching {
            Watching::Off => (None, None),
            Watching::On { server_pid } => (server_pid, None),
            Watching::Elsewhere(elsewhere) => (None, Some(elsewhere)),
        };
        let watch = Watch {
            addresses: plan.target.addresses().collect(),
            server_pid,
            elsewhere: elsewhere.is_some(),
        };
        let sampler = match watching {
            Watching::Off => Err("--no-watch".to_owned()),
            Watching::On { .. } | Watching::Elsewhere(_) => side
                .within(|| Sampler::start_at(Instant::now(), EVERY, watch))
                .map_err(|error| error.to_string()),
        };
        Self {
            sampler,
            told: None,
            elsewhere,
        }
    }

    /// Takes in what the worker says; what is to be said before it.
    pub fn on(&mut self, event: &Event) -> Option<Event> {
        let sampler = self.sampler.as_ref().ok()?;
        match event {
            Event::Ready(ready) => sampler.client(ready.pid),
            Event::Began { phase } => {
                if *phase == Phase::Measure {
                    sampler.measuring();
                }
                self.told = sampler.server_cpu();
            }
            Event::Second(_) => {
                let now = sampler.server_cpu()?;
                let before = self.told.replace(now)?;
                let over_s = now.at.saturating_duration_since(before.at).as_secs_f64();
                // A server that has ended is read no more.
                return (over_s > 0.0).then(|| {
                    Event::ServerUsed(ServerUsed {
                        over_s,
                        user_s: now.user.saturating_sub(before.user).as_secs_f64(),
                        system_s: now.system.saturating_sub(before.system).as_secs_f64(),
                    })
                });
            }
            _ => {}
        }
        None
    }

    /// Another load generator has started, and drives the load from now on.
    pub fn driven(&self, pid: u32) {
        if let Ok(sampler) = &self.sampler {
            sampler.client(pid);
            sampler.measuring();
        }
    }

    /// Stops watching.
    pub fn stop(self) -> Sampled {
        match self.sampler {
            Ok(sampler) => {
                let (mut observed, mut missing) = sampler.stop();
                if let Some(elsewhere) = self.elsewhere {
                    missing.extend(elsewhere.take(&mut observed));
                }
                (observed, missing)
            }
            Err(why) => (
                Observed::default(),
                vec![format!("server, client, machine: not watched ({why})")],
            ),
        }
    }
}
