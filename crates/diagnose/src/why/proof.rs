//! Proof by perturbation: predicts the effects for each class of causes, and derives the confidence
//! from the measured effects (docs/decisions/0022-proof.md).

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::host::Environment;
use floodmark_record::interval::Interval;
use floodmark_record::plan::Http;
use floodmark_record::run::Run;
use floodmark_record::tuning::KnobKind;
use floodmark_record::verdict::{Confidence, Gain, Perturbation, Tested, Verdict, Windows};
use floodmark_stats::estimate::geometric;

use super::causes::{self, CauseSpec};
use super::confidence;
use super::facts::RunFacts;
use super::graph;
use crate::tuning::full_pool;

/// Minimum throughput ratio if the paused process is not saturated (0.95 was measured).
const UNCHANGED: f64 = 0.875;

/// Maximum throughput ratio if the paused process is saturated. The process loses a fifth of its
/// throughput, or less if many threads stop with a delay (0.92 was measured with 64 threads on two
/// CPUs). Ratios between [`UNCHANGED`] and this limit are inconclusive.
const REDUCED_HIGH: f64 = 0.95;

/// Minimum throughput ratio if the paused process is saturated. The process loses a fifth of its
/// throughput, plus the cost of pausing (0.71 was measured).
const REDUCED_LOW: f64 = 0.6;

/// Maximum throughput ratio between adjacent windows that noise alone can cause.
const NOISE: f64 = 1.12;

/// Minimum throughput ratio if requests move from streams to separate connections, which costs CPU
/// time. Each system call then handles at most one request.
const UNSHARED: f64 = 0.1;

/// Range of throughput ratios if a window that limits the throughput becomes 8 times as large.
/// Another limit may apply before the ratio is 8.
const LARGER_WINDOW: (f64, f64) = (1.3, 9.0);

/// Maximum number of connections of a perturbation. More would take too long to open, and may
/// exceed the server's limit on connections.
const MAX_CONNECTIONS: u64 = 1_000;

/// Minimum service time without queueing, in µs, at which pausing a waiting process for 1 ms in
/// every 5 ms hardly slows the process. The awaited work continues during a pause. The process
/// notices the end of that work 0.1 ms late on average, which is a twentieth of this service time.
const LONG_SERVICE_US: f64 = 2_000.0;

/// A class of causes with the same predicted effect for every perturbation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CauseClass {
    ClientCpu,
    /// The server's CPU, regardless of what uses the CPU.
    ServerCpu,
    StoreCpu,
    SharedCpu,
    /// The number of concurrent requests is too low.
    Demand,
    /// The load has too few connections for the server's threads.
    OneConnection,
    /// A flow-control window is too small.
    Window,
    /// A pool of threads or connections is exhausted.
    Pool,
    /// The server or a service behind it waits.
    Waiting,
}

impl CauseClass {
    /// Returns the range of throughput ratios (with ÷ without the perturbation) that the class
    /// predicts. `gain` is the throughput that the verdict predicts without the limit. Returns
    /// `None` if the windows and the run used different numbers of connections.
    fn predicts(self, windows: &Windows, run: &Run, gain: Option<&Gain>) -> Option<(f64, f64)> {
        let depends_on_connections = [CauseClass::Demand, CauseClass::OneConnection];
        if depends_on_connections.contains(&self) && windows.connections != run.plan.connections {
            return None;
        }
        let unchanged = (UNCHANGED, NOISE);
        let short_service = run
            .least_service_time_us
            .is_none_or(|us| us < LONG_SERVICE_US);
        Some(match (windows.change, self) {
            // The doubled setting is assumed to belong to the suspected pool.
            (Perturbation::TwiceKnob, CauseClass::Pool) => return doubled(run, gain),
            (Perturbation::TwiceConnections, CauseClass::Demand) => {
                // Removing the stream limit may not double the number of requests in flight.
                let twice = 2 * run.max_in_flight();
                return doubled(run, gain.filter(|gain| u64::from(gain.requests) >= twice));
            }
            // The server may assign additional connections to the same thread. A window limits each
            // stream, or all streams of a connection.
            (Perturbation::TwiceConnections | Perturbation::OneStream, CauseClass::Window)
            | (Perturbation::TwiceConnections, CauseClass::OneConnection) => return None,
            // Another limit may apply before each request has its own thread.
            (Perturbation::OneStream, CauseClass::OneConnection) => {
                (NOISE, run.max_in_flight() as f64)
            }
            (Perturbation::OneStream, _) => (UNSHARED, 1.2),
            (Perturbation::LargerWindow, CauseClass::Window) => LARGER_WINDOW,
            (Perturbation::LargerWindow, _) => (0.8, 1.2),
            (Perturbation::TwiceConnections | Perturbation::TwiceKnob, _) => (0.8, 1.2),
            (Perturbation::SlowedClient, CauseClass::ClientCpu)
            | (Perturbation::SlowedServer, CauseClass::ServerCpu | CauseClass::OneConnection)
            | (Perturbation::SlowedStore, CauseClass::StoreCpu) => (REDUCED_LOW, REDUCED_HIGH),
            // The other process can use the CPU time of the paused process.
            (Perturbation::SlowedClient | Perturbation::SlowedServer, CauseClass::SharedCpu) => {
                (REDUCED_LOW, 0.96)
            }
            (
                _,
                CauseClass::Demand | CauseClass::Window | CauseClass::Pool | CauseClass::Waiting,
            ) if short_service => (REDUCED_LOW, NOISE),
            _ => unchanged,
        })
    }

    /// Returns whether perturbing this class's resource changed throughput by the predicted amount.
    /// A reduction counts only if the whole interval is below 1.
    fn is_confirmed(self, tested: &[Tested]) -> bool {
        let find = |change| tested.iter().find(|tested| tested.change == change);
        let reduced = |change| {
            let interval = find(change).and_then(|tested| tested.interval.as_ref());
            interval.is_some_and(|interval| interval.high < 1.0)
        };
        let agrees = |change| find(change).is_some_and(|tested| tested.agrees == Some(true));
        match self {
            CauseClass::ClientCpu => reduced(Perturbation::SlowedClient),
            CauseClass::ServerCpu => reduced(Perturbation::SlowedServer),
            CauseClass::StoreCpu => reduced(Perturbation::SlowedStore),
            CauseClass::SharedCpu => {
                reduced(Perturbation::SlowedClient) && reduced(Perturbation::SlowedServer)
            }
            CauseClass::Demand => agrees(Perturbation::TwiceConnections),
            CauseClass::OneConnection => agrees(Perturbation::OneStream),
            CauseClass::Window => agrees(Perturbation::LargerWindow),
            CauseClass::Pool => agrees(Perturbation::TwiceKnob),
            CauseClass::Waiting => false,
        }
    }
}

/// Returns the perturbations that can distinguish a run's cause from other causes.
///
/// The list is empty if no perturbation can distinguish the causes. In the open model, the list is
/// always empty, because throughput equals the offered rate.
#[must_use]
pub fn changes(run: &Run) -> Vec<Perturbation> {
    let cause = run.verdict.as_ref().map(|verdict| verdict.cause);
    let provable = |cause| causes::spec(cause).class.is_some() || cause == Cause::Unknown;
    if !cause.is_some_and(provable) || run.plan.is_open() || run.client.name.is_some() {
        return Vec::new();
    }
    let mut changes = vec![Perturbation::TwiceConnections, Perturbation::SlowedClient];
    if run.streams() > 1 && run.max_in_flight() <= MAX_CONNECTIONS {
        changes.push(Perturbation::OneStream);
    }
    changes.extend(uses_window(run).then_some(Perturbation::LargerWindow));
    changes.extend(run.server.as_ref().map(|_| Perturbation::SlowedServer));
    changes.extend(run.store.as_ref().map(|_| Perturbation::SlowedStore));
    changes
}

/// Returns whether a larger flow-control window for responses can have an effect: responses use the
/// window up, and no request body waits for the server's window (HTTP/2).
fn uses_window(run: &Run) -> bool {
    let Http::V2(settings) = run.plan.http else {
        return false;
    };
    let size = run.bytes.received / run.requests.ok.max(1);
    let of_connection = settings.connection_window_bytes() / run.streams();
    size > settings.window_bytes.min(of_connection).into()
        && run.window_us.is_empty()
        && settings.with_larger_window() != settings
}

/// A server setting that can be doubled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoubledSetting {
    /// The name of the setting.
    pub name: String,
    /// The current value.
    pub from: u32,
    /// The doubled value.
    pub to: u32,
}

/// Returns the setting for the size of the pool that a run's verdict names. The setting's value
/// must be close to the number of concurrent requests.
#[must_use]
pub fn pool_setting(
    run: &Run,
    environment: &Environment,
    settings: &BTreeMap<String, String>,
) -> Option<DoubledSetting> {
    let verdict = run.verdict.as_ref()?;
    let spec = causes::spec(verdict.cause);
    if spec.class != Some(CauseClass::Pool) {
        return None;
    }
    let kind = match full_pool(verdict)?.kind {
        KnobKind::Connections => "connection",
        _ => "thread",
    };
    let concurrency = RunFacts::of(run, environment)?.concurrency?;
    let (name, value) = graph::setting_near(settings, concurrency, kind)?;
    let from: u32 = value.parse().ok()?;
    Some(DoubledSetting {
        name: name.to_owned(),
        from,
        to: from.checked_mul(2)?,
    })
}

/// Returns the mean throughput ratio between adjacent windows, and the interval of the ratio
/// (Student's t on logarithms).
fn ratio(windows: &Windows) -> Option<(f64, Interval)> {
    let pairs = windows.base_per_s.iter().zip(&windows.changed_per_s);
    let ratios: Vec<f64> = pairs.map(|(base, changed)| changed / base).collect();
    let method = format!(
        "Student's t on the log ratios of {} pairs of adjacent windows",
        ratios.len()
    );
    geometric(&ratios, method)
}

/// Returns the range of throughput ratios if the limit is doubled: about 2, or less if the
/// throughput without the limit is less than twice the throughput of the run. Returns `None` if
/// noise can cause such a ratio.
fn doubled(run: &Run, gain: Option<&Gain>) -> Option<(f64, f64)> {
    let Some((gain, throughput_per_s)) = gain.zip(run.throughput_per_s) else {
        return Some((1.4, 2.3));
    };
    let twice = 2.0 * throughput_per_s;
    let share = (twice / f64::midpoint(gain.low_per_s, gain.high_per_s)).min(1.0);
    let [low, high] =
        [gain.low_per_s, gain.high_per_s].map(|per_s| per_s * share / throughput_per_s);
    (low > NOISE).then_some((low, high))
}

/// Returns whether an interval is entirely outside the predicted range.
fn contradicts(interval: &Interval, (low, high): (f64, f64)) -> bool {
    interval.high < low || interval.low > high
}

/// Returns the first perturbation that contradicts a class of causes, with the measured interval
/// and the predicted range. `gain` is the throughput that is predicted without the limit.
fn contradiction(
    run: &Run,
    class: CauseClass,
    gain: Option<&Gain>,
) -> Option<(Perturbation, Interval, (f64, f64))> {
    run.perturbed.iter().find_map(|windows| {
        let (_, interval) = ratio(windows)?;
        let predicted = class.predicts(windows, run, gain)?;
        contradicts(&interval, predicted).then_some((windows.change, interval, predicted))
    })
}

/// Returns the measurement that rules out a cause, if a perturbation contradicts it. `gain` is the
/// throughput that is predicted without the cause.
pub(super) fn contradicting_figure(run: &Run, cause: Cause, gain: Option<&Gain>) -> Option<String> {
    let class = causes::spec(cause).class?;
    let (change, measured, (low, high)) = contradiction(run, class, gain)?;
    Some(format!(
        "{}: throughput × {:.2} to {:.2}, but this cause predicts × {low:.2} to {high:.2}",
        change.words(),
        measured.low,
        measured.high
    ))
}

/// Adds the perturbations to a verdict and updates the verdict's confidence.
///
/// The cause is proven if every other class of causes is contradicted or ruled out. No perturbation
/// contradicts the cause itself, because [`contradicting_figure`] rules out such causes.
pub(super) fn judge(run: &Run, mut verdict: Verdict) -> Verdict {
    let class = causes::spec(verdict.cause).class;
    let gain = verdict.gain.as_ref();
    let tested = run.perturbed.iter().map(|windows| {
        let predicted = class.and_then(|class| class.predicts(windows, run, gain));
        let (ratio, interval) = ratio(windows).unzip();
        let both = predicted.zip(interval.as_ref());
        let agrees = both.and_then(|((low, high), interval)| {
            let within = low <= interval.low && interval.high <= high;
            let outside = contradicts(interval, (low, high));
            (within || outside).then_some(within)
        });
        Tested {
            change: windows.change,
            knob: windows.knob.clone(),
            predicted,
            ratio,
            interval,
            agrees,
        }
    });
    verdict.tested = tested.collect();
    let Some(class) = class.filter(|_| !run.perturbed.is_empty()) else {
        return verdict;
    };
    let is_excluded = |spec: &CauseSpec| {
        let mut ruled_out = verdict.ruled_out.iter();
        ruled_out.any(|ruled_out| ruled_out.cause == spec.cause) || !spec.is_possible(run)
    };
    let is_contradicted = |class| contradiction(run, class, verdict.gain.as_ref()).is_some();
    let only_class = causes::ALL.iter().all(|spec| match spec.class {
        Some(other) if other != class => is_contradicted(other) || is_excluded(spec),
        _ => true,
    });
    // Perturbations distinguish classes. Counters must distinguish the causes within a class. A
    // doubled setting identifies the setting's pool.
    let only_cause = class == CauseClass::Pool || verdict.also.is_empty();
    if class.is_confirmed(&verdict.tested) {
        if only_class && only_cause {
            verdict.confidence = Confidence::Proven;
            verdict.probability = Some(confidence::PROVEN);
        } else if let Some(probability) = verdict.probability {
            let probability = confidence::confirmed(probability);
            verdict.confidence = Confidence::of(probability);
            verdict.probability = Some(probability);
        }
    }
    verdict
}

#[cfg(test)]
#[path = "proof_tests.rs"]
mod tests;
