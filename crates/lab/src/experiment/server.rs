//! Starts the server of a trial and checks its response.

use super::program::{ProgramPaths, ProgramSpec, RunningProgram, StartOrder};
use super::{ExperimentRunner, StepError, TrialHosts};
use crate::manifest::{Trial, WorkloadRequest};
use crate::probe;

/// Starts the server of a trial and waits until it is ready. `store` is the address of the trial's
/// store, which is already running.
pub fn start(
    runner: &ExperimentRunner<'_>,
    trial: &Trial,
    hosts: &TrialHosts,
    store: Option<&str>,
    paths: ProgramPaths<'_>,
    order: StartOrder,
) -> Result<RunningProgram, StepError> {
    let path = &trial.ready;
    let is_posted = trial.ready == trial.path && trial.request().method != "GET";
    let ready = |address| {
        match probe::status(&hosts.client, address, WorkloadRequest::get(path))? {
            200..400 => Ok(()),
            // The path of a workload that is requested with POST may refuse GET.
            405 if is_posted => Ok(()),
            status => Err(format!(
                "GET {path} returns {status}; if another path shows that the server is ready, set \
                 ready = \"GET /path\""
            )),
        }
    };
    spec(runner, trial, hosts, store).start(paths, order, &ready, runner.stop)
}

/// Returns how to start the server of a trial.
pub fn spec<'a>(
    runner: &ExperimentRunner<'_>,
    trial: &'a Trial,
    hosts: &'a TrialHosts,
    store: Option<&str>,
) -> ProgramSpec<'a> {
    let mut filler = runner.filler(trial, hosts);
    filler.set("store", store.unwrap_or("none"));
    trial.server.fill(&trial.setting, &mut filler);
    ProgramSpec {
        name: &trial.name,
        start: &trial.server.start,
        folder: &trial.server.folder,
        side: &hosts.server,
        host: hosts.address,
        port: trial.port,
        filler,
    }
}

/// Returns the fault in a server's response to the trial's request, if any.
pub fn response_fault(
    server: &mut RunningProgram,
    trial: &Trial,
    hosts: &TrialHosts,
) -> Option<String> {
    let request = trial.request();
    match (
        probe::request(&hosts.client, server.address, request),
        trial.workload,
    ) {
        (Err(why), _) => Some(format!("{request}: {why}{}", server.last_words())),
        (Ok(response), Some(workload)) => workload.fault(response.status, &response.body),
        (Ok(response), None) if (200..400).contains(&response.status) => None,
        (Ok(response), None) => Some(format!("{request} returns {}", response.status)),
    }
}
