//! A server of a trial: started on a port, waited for, asked whether it answers as it should, and stopped.

use std::ops::{Deref, DerefMut};
use std::process::ExitStatus;

use floodmark_host::Stop;

use super::launch::{Launch, Launched, Places};
use super::{Ended, Hosts, probe};
use crate::manifest::{Asked, Filler, Trial};

/// A running server. Dropping it kills what it started.
#[derive(Debug)]
pub struct Running(Launched);

impl Deref for Running {
    type Target = Launched;

    fn deref(&self) -> &Launched {
        &self.0
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Launched {
        &mut self.0
    }
}

impl Running {
    /// Starts the server of a trial on its side and port, or on a free one, and waits until it is ready.
    pub fn start(
        trial: &Trial,
        hosts: &Hosts,
        filler: Filler,
        places: Places<'_>,
        stop: &Stop,
    ) -> Result<Self, Ended> {
        let launch = Launch {
            name: &trial.name,
            start: trial.server.start(),
            folder: trial.server.folder(),
            side: &hosts.server,
            host: hosts.address,
            port: trial.server.port(),
            filler,
        };
        let path = &trial.ready;
        let ready = |address| match probe::ask(&hosts.client, address, Asked::get(path)) {
            Ok(answered) if (200..400).contains(&answered.status) => Ok(()),
            Ok(answered) => Err(format!("GET {path} is answered {}", answered.status)),
            Err(why) => Err(why),
        };
        launch.run(places, &ready, stop).map(Running)
    }

    /// How it ended, where it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.ended()
    }

    /// Ends it, sooner once `stop` is set; a line where that took force.
    pub fn stop(self, stop: &Stop) -> Option<String> {
        self.0.stop("the server", stop)
    }

    /// What is wrong with its answer to the trial's request, in words.
    pub fn fault(&mut self, trial: &Trial, hosts: &Hosts) -> Option<String> {
        let asked = trial.asked();
        let answered = match probe::ask(&hosts.client, self.address(), asked) {
            Ok(answered) => answered,
            Err(why) => return Some(format!("{asked}: {why}{}", self.said())),
        };
        match trial.workload {
            Some(workload) => workload.fault(answered.status, &answered.body),
            None if (200..400).contains(&answered.status) => None,
            None => Some(format!("{asked} is answered {}", answered.status)),
        }
    }
}
