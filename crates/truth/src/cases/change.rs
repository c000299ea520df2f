//! T9: a server that becomes faster while it is measured.

use floodmark_record::run::SteadyClass;

use super::environment::Environment;
use super::report::Trial;
use super::{Failure, disturbance};
use crate::scenario::{Change, Scenario, Service};
use crate::server::Server;

/// When it becomes faster, of how long, seconds.
const CHANGE_S: u64 = 12;
const SECONDS: u64 = 20;

/// How far off the change may be found, seconds.
const TOLERANCE_S: f64 = 2.0;

pub fn run(environment: &Environment) -> Result<Trial, Failure> {
    let server = Server::start(Scenario {
        service: Service::Fixed { delay_us: 8_000 },
        change: Some(Change {
            at_ms: CHANGE_S * 1_000,
            service: Service::Fixed { delay_us: 4_000 },
        }),
        ..Scenario::default()
    })?;
    let flags = format!("-c 4 -d {SECONDS}s --warmup auto");
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;
    let run = &loaded.run;

    let mut trial = Trial::default();
    loaded.all_ok(run.requests.intended, &mut trial);
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    let change = CHANGE_S as f64;
    let nearest = run
        .steady
        .changes_s
        .iter()
        .copied()
        .min_by(|a, b| (a - change).abs().total_cmp(&(b - change).abs()));
    trial.near(
        "steady.changes_s, the nearest",
        change,
        nearest,
        TOLERANCE_S,
    );
    let changes = run.steady.changes_s.len();
    // Found by statistics in the rows, where a disturbance of the machine may be a change too.
    trial.holds("one change", changes == 1, changes.to_string());
    trial.holds(
        "steady.class is warming",
        run.steady.class == SteadyClass::Warming,
        format!("{:?}", run.steady.class),
    );
    trial.near(
        "window.from_s",
        change,
        Some(run.window.from_s),
        TOLERANCE_S,
    );
    // Four connections, 4 ms each, and the way there and back.
    trial.between(
        "throughput_per_s is that of the faster part",
        (850.0, 1_000.0),
        run.throughput_per_s,
    );
    trial.disturbance = disturbance::found(run, &log);
    Ok(trial)
}
