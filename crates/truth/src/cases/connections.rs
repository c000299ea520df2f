//! T6: connections that the server ends, bodies that drip, interim answers.

use super::awake::Awake;
use super::delay::tolerance_us;
use super::environment::Environment;
use super::loaded::Loaded;
use super::reference::{self, Sorted};
use super::report::Trial;
use super::way::Way;
use super::{Failure, disturbance};
use crate::log::Log;
use crate::scenario::{CloseAfter, Fault, Scenario, Service, Share};
use crate::server::Server;

/// Requests on each connection.
const EACH: u64 = 7;

/// Connections that are needed.
const CONNECTIONS: u64 = 100;

pub fn announced(environment: &Environment) -> Result<Trial, Failure> {
    closing(environment, true)
}

pub fn silent(environment: &Environment) -> Result<Trial, Failure> {
    closing(environment, false)
}

fn closing(environment: &Environment, announced: bool) -> Result<Trial, Failure> {
    let server = Server::start(Scenario {
        close_after: Some(CloseAfter {
            requests: EACH,
            announced,
        }),
        ..Scenario::default()
    })?;
    let requests = EACH * CONNECTIONS;
    let loaded = environment.load(server.address(), &format!("-c 1 -n {requests}"), 2)?;
    let log = server.stop()?;
    let run = &loaded.run;

    let mut trial = Trial::default();
    loaded.all_ok(requests, &mut trial);
    trial.exactly("requests at the server", requests, log.totals.requests);
    trial.exactly("connections accepted", CONNECTIONS, log.totals.accepted);
    trial.exactly("connections.opened", CONNECTIONS, run.connections.opened);
    trial.exactly("bytes received", log.totals.bytes_out, run.bytes.received);
    if announced {
        trial.exactly("reconnects", 0, run.requests.reconnects);
        trial.exactly("bytes sent", log.totals.bytes_in, run.bytes.sent);
    } else {
        // What was sent on a connection that had just been closed never reached the server.
        let size = log.totals.bytes_in / requests;
        let lost = run.requests.reconnects * size;
        trial.exactly("bytes sent", log.totals.bytes_in + lost, run.bytes.sent);
        trial.note(format!("{} reconnects", run.requests.reconnects));
    }
    trial.disturbance = disturbance::found(run, &log);
    Ok(trial)
}

pub fn drip(environment: &Environment) -> Result<Trial, Failure> {
    slow(
        environment,
        Fault::Drip {
            pieces: 5,
            gap_us: 20_000,
        },
    )
}

pub fn continued(environment: &Environment) -> Result<Trial, Failure> {
    slow(environment, Fault::Continue { gap_us: 20_000 })
}

/// How long the first byte takes, microseconds.
const FIRST_BYTE_US: u64 = 10_000;

fn slow(environment: &Environment, fault: Fault) -> Result<Trial, Failure> {
    const RATE: u64 = 200;
    const SECONDS: u64 = 3;
    let _awake = Awake::keep();
    let way = Way::before(reference::service)?;
    let server = Server::start(Scenario {
        service: Service::Fixed {
            delay_us: FIRST_BYTE_US,
        },
        faults: vec![Share { share: 1.0, fault }],
        ..Scenario::default()
    })?;
    let flags = format!("--rate {RATE} -d {SECONDS}s");
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;

    let mut trial = Trial::default();
    loaded.all_ok(RATE * SECONDS, &mut trial);
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    let way = way.and_after()?;
    first_and_last(&loaded, &log, way, &mut trial);
    trial.disturbance = disturbance::found(&loaded.run, &log).or_else(|| way.disturbance());
    Ok(trial)
}

/// The first byte of an answer is that of the interim one, where there is one. Beyond what the log says a plain client would take `way`.
fn first_and_last(loaded: &Loaded, log: &Log, way: Way, trial: &mut Trial) {
    let mut median = |name: &str, truth: &Sorted, got: Option<f64>| {
        let truth = truth.quantile(0.5);
        trial.between(name, way.around(truth, tolerance_us(truth)), got);
    };
    let run = &loaded.run;
    median(
        "first_byte_us.p50",
        &reference::first_byte(log),
        run.first_byte_us.p50,
    );
    median(
        "service_time_us.p50",
        &reference::service(log),
        run.service_time_us.p50,
    );
}
