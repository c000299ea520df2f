//! T10: how much the client can do at all on this machine, with the server beside it.

use super::Failure;
use super::environment::Environment;
use super::report::Trial;
use crate::scenario::Scenario;
use crate::server::Server;

const SECONDS: u64 = 5;

/// The ceiling is a note: it depends on the machine. Counts and bytes agree even so.
pub fn run(environment: &Environment) -> Result<Trial, Failure> {
    let server = Server::start(Scenario::default())?;
    let flags = format!("-c 50 -d {SECONDS}s");
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;
    let run = &loaded.run;

    let mut trial = Trial::default();
    loaded.all_ok(run.requests.intended, &mut trial);
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    trial.note(format!(
        "{:.0} requests per second on {} threads; above {:.0}/s on this machine a figure may be the client's; {:.1} µs client CPU per request; {:?}",
        run.throughput_per_s.unwrap_or(0.0),
        run.plan.threads,
        run.throughput_per_s.unwrap_or(0.0) * 0.7,
        run.client.cpu_us_per_request.unwrap_or(0.0),
        run.validity.status,
    ));
    Ok(trial)
}
