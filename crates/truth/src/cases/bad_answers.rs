//! T5: answers that are not what was asked for, each counted as what it is.

use floodmark_record::Run;

use super::environment::Environment;
use super::report::Trial;
use super::{Failure, disturbance};
use crate::log::{Kind, Log, RequestEntry};
use crate::scenario::{Change, Fault, Scenario, Service, Share};
use crate::server::Server;

const RATE: u64 = 1_000;
const SECONDS: u64 = 6;

/// An answer after that is ok and not good.
const DEADLINE_US: u64 = 100_000;

/// Slow answers take this long.
const SLOW_US: u64 = 2 * DEADLINE_US;

pub fn run(environment: &Environment) -> Result<Trial, Failure> {
    let faults = [
        (0.30, Fault::Status { code: 503 }),
        (0.05, Fault::WrongBody),
        (0.05, Fault::TruncatedBody),
        (0.01, Fault::NoAnswer),
        (0.02, Fault::Garbage),
        (0.02, Fault::ResetBefore),
        (0.02, Fault::ResetWithin),
        (0.02, Fault::CloseBefore),
        (
            0.05,
            Fault::Drip {
                pieces: 2,
                gap_us: SLOW_US,
            },
        ),
    ];
    let server = Server::start(Scenario {
        faults: faults.map(|(share, fault)| Share { share, fault }).to_vec(),
        // From shortly before the end on, every answer is too late to be good: whether an answer still comes
        // within the window must not hang on a millisecond.
        change: Some(Change {
            at_ms: SECONDS * 1_000 - 100,
            service: Service::Fixed {
                delay_us: 3 * DEADLINE_US,
            },
        }),
        // One word, since flags are parted by blanks.
        body: "right-answer!".to_owned(),
        ..Scenario::default()
    })?;
    let flags = format!(
        "--rate {RATE} -d {SECONDS}s --timeout 1s --deadline {DEADLINE_US}us --expect body=right-answer!"
    );
    let loaded = environment.load(server.address(), &flags, SECONDS)?;
    let log = server.stop()?;
    let run = &loaded.run;
    let requests = &run.requests;

    let mut trial = Trial::default();
    trial.exactly("requests.intended", RATE * SECONDS, requests.intended);
    trial.exactly("requests.sent", RATE * SECONDS, requests.sent);
    loaded.agree(&log, &mut trial);
    loaded.agree_on_bytes(&log, &mut trial);
    let count = |kinds: &[Kind]| kinds.iter().map(|kind| log.count(*kind)).sum::<u64>();
    let cut = [Kind::TruncatedBody, Kind::ResetWithin, Kind::Garbage];
    // A connection that ends before the first byte, where it was used before, may be the server's way to end
    // an idle one: floodmark then sends once more and says so. Either way each of them is counted.
    let ended = [Kind::ResetBefore, Kind::CloseBefore];
    for (name, expected, got) in [
        (
            "requests.ok",
            count(&[Kind::Answer, Kind::Drip]),
            requests.ok,
        ),
        (
            "requests.rejected",
            count(&[Kind::Status]),
            requests.rejected,
        ),
        ("requests.wrong", count(&[Kind::WrongBody]), requests.wrong),
        ("requests.malformed", count(&cut), requests.malformed),
        (
            "requests.timed_out",
            count(&[Kind::NoAnswer]),
            requests.timed_out,
        ),
        (
            "requests.reset + reconnects",
            count(&ended),
            requests.reset + requests.reconnects,
        ),
        ("in_flight_at_end", 0, requests.in_flight_at_end),
    ] {
        trial.exactly(name, expected, got);
    }
    goodput(run, &log, &mut trial);
    censored(run, &mut trial);
    trial.disturbance = disturbance::found(run, &log);
    Ok(trial)
}

/// Goodput holds every plain answer that left within the deadline and nothing else.
fn goodput(run: &Run, log: &Log, trial: &mut Trial) {
    let plain = log.requests.iter().filter(|r| r.kind == Kind::Answer);
    let times = plain.filter_map(RequestEntry::service_ns);
    let good = times.filter(|ns| *ns < DEADLINE_US * 1_000).count() as u64;
    let window_s = run.window.to_s - run.window.from_s;
    let answers = run.goodput_per_s.map_or(0.0, |rate| rate * window_s);
    // A count, but of times: an answer that a busy machine holds up is not good.
    let answers = answers.round() as u64;
    trial.holds(
        "goodput times window is the count of answers in time",
        answers == good,
        format!("{answers} of {good}"),
    );
}

/// Answers that never came are in the response time at the timeout, known only from below.
fn censored(run: &Run, trial: &mut Trial) {
    let (requests, times) = (&run.requests, &run.response_time_us);
    trial.exactly(
        "response_time_us.count",
        requests.ok + requests.timed_out,
        times.count,
    );
    trial.exactly(
        "response_time_us.censored",
        requests.timed_out,
        times.censored,
    );
    trial.exactly(
        "service_time_us.count",
        requests.ok,
        run.service_time_us.count,
    );
    // About 1.8 % of the answers timed out: the 99th percentile lies among them, the 95th does not.
    trial.holds(
        "response_time_us.p99 is not known",
        times.p99.is_none() && times.max.is_none() && times.mean.is_none(),
        format!("{:?}", times.p99),
    );
    let slow_us = SLOW_US as f64;
    trial.between(
        "response_time_us.p95 is that of the slow answers",
        (slow_us, slow_us * 1.1),
        times.p95,
    );
    let failed = requests.rejected + requests.wrong + requests.malformed + requests.reset;
    trial.exactly("error_time_us.count", failed, run.error_time_us.count);
}
