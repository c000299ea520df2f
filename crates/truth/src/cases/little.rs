//! T4: in a closed loop, the number of connections is throughput times response time (Little's law).

use super::environment::Environment;
use super::report::Trial;
use super::{Failure, disturbance};
use crate::scenario::{Scenario, Service};
use crate::server::Server;

/// |N − X·R| / N may be this much.
const TOLERANCE: f64 = 0.02;

/// Length of each run, seconds.
const SECONDS: u64 = 4;

pub fn one_without_delay(environment: &Environment) -> Result<Trial, Failure> {
    closed(environment, 1, Service::Fixed { delay_us: 0 })
}

pub fn one(environment: &Environment) -> Result<Trial, Failure> {
    closed(environment, 1, Service::Fixed { delay_us: 1_000 })
}

pub fn twenty(environment: &Environment) -> Result<Trial, Failure> {
    closed(environment, 20, Service::Exponential { mean_us: 500.0 })
}

fn closed(environment: &Environment, n: u64, service: Service) -> Result<Trial, Failure> {
    let server = Server::start(Scenario {
        service,
        ..Scenario::default()
    })?;
    let flags = format!("-c {n} -d {SECONDS}s");
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;
    let run = &loaded.run;

    let mut trial = Trial::default();
    loaded.all_ok(run.requests.intended, &mut trial);
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    let product = run.throughput_per_s.zip(run.response_time_us.mean);
    let n = n as f64;
    // In thousandths, since findings show one digit.
    trial.near(
        "X·R in thousandths of a connection",
        n * 1e3,
        product.map(|(x, us)| x * us / 1e3),
        n * 1e3 * TOLERANCE,
    );
    trial.disturbance = disturbance::found(run, &log);
    Ok(trial)
}
