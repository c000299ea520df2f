//! Proof by perturbation: what each kind of cause predicts of each change, and what a verdict is worth after it was tried
//! (docs/decisions/0022-proof.md).

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::plan::Model;
use floodmark_record::proof::{Change, Tested, Windows};
use floodmark_record::run::{Environment, Interval, Run};
use floodmark_record::verdict::{Confidence, Verdict};
use floodmark_stats::Estimate;
use floodmark_stats::interval::CONFIDENCE;

use super::facts::Facts;
use super::rules;

/// From this ratio on throughput stayed, whatever stopping costs a part that is not full (tried: 0.95).
const STAYED: f64 = 0.875;

/// Up to this ratio it fell: a part that is full loses a fifth, or less where many threads take a while to stop (tried: 0.92, with 64 of
/// them on two CPUs). What is between the two tells nothing.
const FALLEN: f64 = 0.95;

/// A part that is full loses a fifth and what stops and goes cost besides: 0.71 was the most that was seen.
const FELL: f64 = 0.6;

/// Noise of a window beside another one.
const ABOVE: f64 = 1.12;

/// Time of a request that meets no other from which a stop of 1 ms in 5 costs one that waits little: what it waits for goes on meanwhile,
/// and that it is seen 0.1 ms later on average is a twentieth of it.
const LONG_US: f64 = 2_000.0;

/// Causes that predict the same of every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The client's CPU.
    Client,
    /// The server's CPU, whatever takes it.
    Server,
    /// The store's.
    Store,
    /// CPUs that both want.
    Shared,
    /// Too little that is asked for.
    Asked,
    /// A pool whose threads or connections all wait.
    Pool,
    /// Something else in the server or behind it that waits.
    Waiting,
}

impl Kind {
    const ALL: [Kind; 7] = [
        Kind::Client,
        Kind::Server,
        Kind::Store,
        Kind::Shared,
        Kind::Asked,
        Kind::Pool,
        Kind::Waiting,
    ];

    /// That of a cause; none of those that no change here tells.
    fn of(cause: Cause) -> Option<Self> {
        match cause {
            Cause::ClientCpu => Some(Kind::Client),
            Cause::ServerCpu
            | Cause::ServerCpuOneThread
            | Cause::Gc
            | Cause::Jit
            | Cause::TlsHandshake
            | Cause::KeepaliveLimit => Some(Kind::Server),
            Cause::StoreCpu => Some(Kind::Store),
            Cause::SharedCpu => Some(Kind::Shared),
            Cause::Concurrency | Cause::DelayedAck => Some(Kind::Asked),
            Cause::WorkerPool | Cause::ConnectionPool => Some(Kind::Pool),
            Cause::Serialised
            | Cause::RateLimiter
            | Cause::StoreLock
            | Cause::SyncLogging
            | Cause::MaxConnections => Some(Kind::Waiting),
            _ => None,
        }
    }

    /// Lowest and highest ratio of throughput that it allows between windows with and without a change; none where these are not as the
    /// run was.
    fn predicts(self, windows: &Windows, run: &Run) -> Option<(f64, f64)> {
        let change = windows.change;
        if self == Kind::Asked && windows.connections != run.plan.connections {
            return None;
        }
        let stays = (STAYED, ABOVE);
        let falls = (FELL, FALLEN);
        let short = run.least_service_time_us.is_none_or(|us| us < LONG_US);
        let waits = if short { (FELL, ABOVE) } else { stays };
        Some(match (change, self) {
            // The knob is that of the pool which is said to be full.
            (Change::TwiceConnections, Kind::Asked) | (Change::TwiceKnob, Kind::Pool) => (1.4, 2.3),
            (Change::TwiceConnections | Change::TwiceKnob, _) => (0.8, 1.2),
            (Change::SlowedClient, Kind::Client)
            | (Change::SlowedServer, Kind::Server)
            | (Change::SlowedStore, Kind::Store) => falls,
            // What one side leaves the other may take.
            (Change::SlowedClient | Change::SlowedServer, Kind::Shared) => (FELL, 0.96),
            (_, Kind::Asked | Kind::Pool | Kind::Waiting) => waits,
            _ => stays,
        })
    }
}

impl Kind {
    /// Whether the figure was seen to move as this kind says when its own part was changed: the whole interval lies on that side.
    fn has_moved(self, tested: &[Tested]) -> bool {
        let interval = |change: Change| {
            let tested = tested.iter().find(|tested| tested.change == change);
            tested.and_then(|tested| tested.interval.as_ref())
        };
        let fell = |change: Change| interval(change).is_some_and(|i| i.high < 1.0);
        let agrees = |change: Change| {
            let tested = tested.iter().find(|tested| tested.change == change);
            tested.is_some_and(|tested| tested.agrees == Some(true))
        };
        match self {
            Kind::Client => fell(Change::SlowedClient),
            Kind::Server => fell(Change::SlowedServer),
            Kind::Store => fell(Change::SlowedStore),
            Kind::Shared => fell(Change::SlowedClient) && fell(Change::SlowedServer),
            Kind::Asked => agrees(Change::TwiceConnections),
            Kind::Pool => agrees(Change::TwiceKnob),
            Kind::Waiting => false,
        }
    }
}

/// Whether counters have ruled a kind of cause out: each cause of it, but for those of a store that is not there.
fn is_ruled_out(kind: Kind, run: &Run, verdict: &Verdict) -> bool {
    let of_store = |cause: Cause| matches!(cause, Cause::StoreCpu | Cause::StoreLock);
    let ruled_out = |cause: Cause| {
        let named = format!("{cause}: ");
        verdict
            .ruled_out
            .iter()
            .any(|line| line.starts_with(&named))
    };
    let mut causes = Cause::ALL.iter().copied();
    causes.all(|cause| {
        Kind::of(cause) != Some(kind)
            || ruled_out(cause)
            || (of_store(cause) && run.store.is_none())
    })
}

/// The changes that tell a run's cause from others; none where no change that is made does. Throughput of the open model is what is
/// offered, so that it tells nothing.
#[must_use]
pub fn changes(run: &Run) -> Vec<Change> {
    let cause = run.verdict.as_ref().map(|verdict| verdict.cause);
    let provable = cause.is_some_and(|cause| Kind::of(cause).is_some() || cause == Cause::Unknown);
    if !provable || run.plan.model != Model::Closed || run.client.name.is_some() {
        return Vec::new();
    }
    let mut changes = vec![Change::TwiceConnections, Change::SlowedClient];
    if run.server.is_some() {
        changes.push(Change::SlowedServer);
    }
    if run.store.is_some() {
        changes.push(Change::SlowedStore);
    }
    changes
}

/// A knob of the server that could be set to twice its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Knob {
    /// Its name.
    pub name: String,
    /// Its value.
    pub from: u32,
    /// Twice that.
    pub to: u32,
}

/// The knob of the pool that is said to limit a run: of those that are set to as many as are worked on at once the one that is called for
/// threads or connections.
#[must_use]
pub fn knob(
    run: &Run,
    environment: &Environment,
    settings: &BTreeMap<String, String>,
) -> Option<Knob> {
    let called = match run.verdict.as_ref()?.cause {
        Cause::WorkerPool => "thread",
        Cause::ConnectionPool => "connection",
        _ => return None,
    };
    let at_once = Facts::of(run, environment)?.at_once?;
    let (name, value) = rules::knob(settings, at_once, called)?;
    let from: u32 = value.parse().ok()?;
    Some(Knob {
        name: name.to_owned(),
        from,
        to: from.checked_mul(2)?,
    })
}

/// The ratio of each pair of neighbours, its mean and its interval by Student's t on their logarithms.
fn ratio(windows: &Windows) -> Option<(f64, Interval)> {
    let pairs = windows.base_per_s.iter().zip(&windows.changed_per_s);
    let logs: Vec<f64> = pairs.map(|(base, changed)| (changed / base).ln()).collect();
    let method = format!(
        "Student's t on the logarithms of {} pairs of neighbouring windows",
        logs.len()
    );
    let estimate = Estimate::of_independent(&logs, method)?;
    let of_logs = estimate.interval(CONFIDENCE);
    let interval = Interval {
        low: of_logs.low.exp(),
        high: of_logs.high.exp(),
        ..of_logs
    };
    Some((estimate.value.exp(), interval))
}

/// Whether an interval lies beyond what is predicted.
fn contradicts(interval: &Interval, (low, high): (f64, f64)) -> bool {
    interval.high < low || interval.low > high
}

/// Judges a verdict by what was tried on its run: proven where no change contradicts it and each other kind of cause is contradicted by
/// one; no longer likely where one contradicts it.
pub(super) fn judge(run: &Run, verdict: Verdict) -> Verdict {
    if run.perturbed.is_empty() {
        return verdict;
    }
    let own = Kind::of(verdict.cause);
    let measured: Vec<(&Windows, Option<(f64, Interval)>)> = run
        .perturbed
        .iter()
        .map(|windows| (windows, ratio(windows)))
        .collect();
    let contradicted = |kind: Kind| {
        measured.iter().any(|(windows, measured)| {
            let both = measured.as_ref().zip(kind.predicts(windows, run));
            both.is_some_and(|((_, interval), predicted)| contradicts(interval, predicted))
        })
    };
    let tested: Vec<Tested> = measured
        .iter()
        .map(|(windows, measured)| {
            let predicted = own.and_then(|kind| kind.predicts(windows, run));
            let interval = measured.as_ref().map(|(_, interval)| interval.clone());
            let both = predicted.zip(interval.as_ref());
            let agrees = both.and_then(|((low, high), i)| {
                let within = low <= i.low && i.high <= high;
                let beyond = contradicts(i, (low, high));
                (within || beyond).then_some(within)
            });
            Tested {
                change: windows.change,
                knob: windows.knob.clone(),
                predicted,
                ratio: measured.as_ref().map(|(ratio, _)| *ratio),
                interval,
                agrees,
            }
        })
        .collect();
    let verdict = Verdict { tested, ..verdict };
    let Some(own) = own else {
        return verdict;
    };
    if contradicted(own) {
        return Verdict {
            confidence: Confidence::Unknown,
            summary: format!(
                "{}; but throughput did not move as that predicts when a part was changed",
                verdict.summary
            ),
            ..verdict
        };
    }
    let mut others = Kind::ALL.into_iter();
    let alone =
        others.all(|kind| kind == own || contradicted(kind) || is_ruled_out(kind, run, &verdict));
    // Changes tell kinds of causes; which of one kind it is, counters have to. Which pool it is its knob says.
    let told = own.has_moved(&verdict.tested) && (own == Kind::Pool || verdict.also.is_empty());
    if alone && told {
        return Verdict {
            confidence: Confidence::Proven,
            ..verdict
        };
    }
    verdict
}

#[cfg(test)]
#[path = "proof_tests.rs"]
mod tests;
