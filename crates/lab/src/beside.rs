//! What is read beside an attempt, and when.

use std::time::Instant;

use floodmark_host::Side;
use floodmark_observe::sampler::{EVERY, Sampled};
use floodmark_observe::{Sampler, UsedCpu, Watch};
use floodmark_record::Event;
use floodmark_record::events::Phase;
use floodmark_record::plan::Plan;
use floodmark_record::watch::{Observed, ServerUsed};

use crate::attempt::Watching;
use crate::elsewhere::Elsewhere;

/// What was used since a reading before, which is replaced.
fn used_since(told: &mut Option<UsedCpu>, now: Option<UsedCpu>) -> Option<ServerUsed> {
    let now = now?;
    let before = told.replace(now)?;
    let over_s = now.at.saturating_duration_since(before.at).as_secs_f64();
    // A side that has ended is read no more.
    (over_s > 0.0).then(|| ServerUsed {
        over_s,
        user_s: now.user.saturating_sub(before.user).as_secs_f64(),
        system_s: now.system.saturating_sub(before.system).as_secs_f64(),
    })
}

/// The watching of one attempt.
pub struct Beside<'a> {
    /// Or why there is none.
    sampler: Result<Sampler, String>,
    /// What the server had used when it was last told, and the store behind it.
    server: Option<UsedCpu>,
    store: Option<UsedCpu>,
    /// What observes the server, where that is done on its own machine.
    elsewhere: Option<&'a Elsewhere>,
}

impl<'a> Beside<'a> {
    /// Begins to watch, on a thread that is in the network of the load process's side.
    pub fn start(watching: &Watching<'a>, side: &Side, plan: &Plan) -> Self {
        let start = |watch: Watch| {
            let watch = Watch {
                addresses: plan.target.addresses().collect(),
                ..watch
            };
            side.within(|| Sampler::start_at(Instant::now(), EVERY, watch))
                .map_err(|error| error.to_string())
        };
        let (sampler, elsewhere) = match watching {
            Watching::Off => (Err("--no-watch".to_owned()), None),
            Watching::On { server_pid, store } => {
                let sampler = start(Watch {
                    server_pid: *server_pid,
                    store: store.clone(),
                    ..Watch::default()
                });
                (sampler, None)
            }
            Watching::Elsewhere(there) => {
                let sampler = start(Watch {
                    elsewhere: true,
                    ..Watch::default()
                });
                (sampler, Some(*there))
            }
        };
        Self {
            sampler,
            server: None,
            store: None,
            elsewhere,
        }
    }

    /// Takes in what the worker says; what is to be said before it.
    pub fn on(&mut self, event: &Event) -> [Option<Event>; 2] {
        let (server, store) = self.used(event);
        [server.map(Event::ServerUsed), store.map(Event::StoreUsed)]
    }

    /// What server and store used since a second before, where the event is one of a second.
    fn used(&mut self, event: &Event) -> (Option<ServerUsed>, Option<ServerUsed>) {
        let Ok(sampler) = &self.sampler else {
            return (None, None);
        };
        match event {
            Event::Ready(ready) => sampler.client(ready.pid),
            Event::Began { phase } => {
                if *phase == Phase::Measure {
                    sampler.measuring();
                }
                self.server = sampler.server_cpu();
                self.store = sampler.store_cpu();
            }
            Event::Second(_) => {
                let server = used_since(&mut self.server, sampler.server_cpu());
                return (server, used_since(&mut self.store, sampler.store_cpu()));
            }
            _ => {}
        }
        (None, None)
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
