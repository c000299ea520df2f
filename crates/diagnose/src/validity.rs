//! Judges whether a run's figures describe the server (`valid`, `bound` or `invalid`). If the
//! figures do not describe the server, the result contains reasons and fixes.
//!
//! Only the client's behavior counts. A server that rejects requests or responds slowly does not
//! invalidate a run, because the run measures that behavior. A server that stops responding does:
//! the figures then average over the time before and after the stop.

mod agents;

use floodmark_record::cause::Cause;
use floodmark_record::events::{EndReason, ThreadUsage};
use floodmark_record::host::OTHER_CPUS;
use floodmark_record::metric::HostFigure;
use floodmark_record::reason::{
    CLIENT_ERRORS, Disturbance, FailureKind, LateReason, Reason, ThreadFix, ThreadUse,
    UnsentReason, Worded,
};
use floodmark_record::run::{Run, Status, Validity};
use floodmark_record::verdict::Verdict;
use floodmark_record::{Metric, Observation};

use crate::why::causes::ALL;
use crate::why::is_limit;

pub use agents::agent_validity;
pub(crate) use agents::fix as agent_fix;

/// Closed model: minimum busy share of a saturated load thread. Even a saturated thread waits
/// briefly between requests, and the share is computed from two clocks that differ slightly.
pub(crate) const SATURATED_SHARE: f64 = 0.95;

/// Open model: maximum lateness, in µs, that timers and the scheduler can cause on any host.
pub(crate) const LATENESS_US: f64 = 1_000.0;

/// Open model: maximum negligible lateness, as a share of the p99 response time.
pub(crate) const LATENESS_SHARE: f64 = 0.10;

/// Open model: minimum CPU share of the load threads at which additional threads probably reduce
/// lateness.
const BUSY_SHARE: f64 = 0.5;

/// Maximum share of intended requests that the client may fail to send.
pub(crate) const UNSENT_SHARE: f64 = 0.01;

/// Minimum duration of a stall, in seconds. Shorter interruptions are part of normal scheduling.
pub(crate) const STALL_S: f64 = 0.1;

/// Minimum length, in seconds, of a run in which saturation is judged. Shorter runs can only show
/// causes that follow from the outcomes of requests.
pub(crate) const MIN_LENGTH_S: f64 = 0.1;

/// A run and the facts needed to judge the run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged<'a> {
    pub(crate) run: &'a Run,
    /// Number of CPUs that the client may use.
    cpus: u32,
    /// IDs of the causes that the experiment expects.
    expected: &'a [String],
}

impl Judged<'_> {
    /// Returns the number of requests affected by an error.
    pub(crate) fn affected(&self, error: &str) -> u64 {
        let mut errors = self.run.request_errors();
        errors
            .find_map(|(name, n)| (name == error).then_some(n))
            .unwrap_or(0)
    }

    /// Returns whether the experiment expects the cause of an error.
    pub(crate) fn is_expected(&self, error: &str) -> bool {
        let mut causes = ALL.iter();
        let cause = causes.find(|spec| spec.client_error == Some(error));
        cause.is_some_and(|of| self.expected.iter().any(|id| id == of.cause.name()))
    }

    /// Returns the number of requests affected by an error, or 0 if the error is expected.
    fn unexpected(&self, error: &str) -> u64 {
        if self.is_expected(error) {
            0
        } else {
            self.affected(error)
        }
    }

    /// Returns the client's longest stall in seconds, or `None` if that stall is short or unknown.
    /// A note reports unknown stalls.
    fn stall_s(&self) -> Option<f64> {
        let longest_s = self.run.longest_stall_ns? as f64 / 1e9;
        (longest_s >= STALL_S).then_some(longest_s)
    }

    /// Returns the number of requests that the server or the network path prevented the client from
    /// sending.
    fn stopped_by_server(&self) -> u64 {
        let by_client = CLIENT_ERRORS.map(|(name, ..)| self.affected(name));
        let failed = self.run.requests.connect_failed;
        failed.saturating_sub(by_client.iter().sum())
    }

    /// Returns the load threads if they are saturated.
    fn saturated_threads(&self) -> Option<ClientThreads> {
        let is_long = self.run.sending_s >= MIN_LENGTH_S;
        let threads = ClientThreads::of(&self.run.client.threads);
        threads.filter(|threads| is_long && threads.busy() >= SATURATED_SHARE)
    }
}

/// Judges a run. `cpus` is the number of CPUs that the client may use. `expected` contains the IDs
/// of the causes that the experiment expects.
///
/// If agents sent the load, the result combines their validity with the server's behavior.
#[must_use]
pub fn validity(run: &Run, cpus: u32, expected: &[String]) -> Validity {
    if let Some(name) = &run.client.name {
        return of_external_client(name, run);
    }
    let judged = &Judged {
        run,
        cpus,
        expected,
    };
    let client = if run.agents.is_empty() {
        ClientFaults::of(judged)
    } else {
        agents::faults(run)
    };
    let mut notes = agents::notes(run);
    notes.extend(crate::notes::notes(judged));
    let server = || {
        nothing_ok(run)
            .or_else(|| stopped_responding(run))
            .or_else(|| nothing_in_time(run))
    };
    let judged = client.judge(server, notes);
    match unsteady(run).filter(|_| judged.status != Status::Invalid) {
        Some(reason) => Validity {
            status: Status::Unsteady,
            unsteady_bound: judged.is_lower_bound(),
            reasons: [worded(vec![reason]), judged.reasons].concat(),
            ..judged
        },
        None => judged,
    }
}

fn worded(reasons: Vec<Reason>) -> Vec<Worded> {
    reasons.into_iter().map(Worded::Fact).collect()
}

/// Returns why the client did not send an open-model load as planned, or `None` if it did. `cpus`
/// is the number of CPUs that the client may use. The result does not depend on whether the server
/// kept up.
///
/// If `can_be_late` is set, late requests are not a fault. Set it if the response times, which
/// include the lateness, are short enough for the caller's purpose.
#[must_use]
pub fn client_fault(run: &Run, cpus: u32, can_be_late: bool) -> Option<Reason> {
    let judged = &Judged {
        run,
        cpus,
        expected: &[],
    };
    let faults = if !run.agents.is_empty() {
        agents::faults(run).invalid
    } else if can_be_late {
        not_sent(judged)
    } else {
        ClientFaults::of(judged).invalid
    };
    faults.into_iter().next()
}

/// Returns reasons why requests were not sent at all.
fn not_sent(judged: &Judged<'_>) -> Vec<Reason> {
    let mut faults = Vec::from_iter(cut_short(judged.run));
    faults.extend(unsent(judged));
    faults.extend(not_held(judged));
    faults
}

/// Reasons why the client did not send the load as planned.
#[derive(Debug, Default)]
struct ClientFaults {
    /// Reasons why the figures are meaningless.
    invalid: Vec<Reason>,
    /// Reasons why the throughput is a lower bound, even if the server fails.
    bound: Vec<Reason>,
    /// Reasons why the throughput is a lower bound, if the server responds.
    saturated: Vec<Reason>,
}

impl ClientFaults {
    fn of(judged: &Judged<'_>) -> Self {
        let run = judged.run;
        let mut invalid = not_sent(judged);
        if run.plan.is_open() {
            invalid.extend(late(judged));
            if invalid.is_empty() {
                invalid.extend(rate_too_high(judged));
            }
        } else {
            invalid.extend(stalled(judged));
        }
        ClientFaults {
            invalid,
            saturated: Vec::from_iter(saturated(judged)),
            ..ClientFaults::default()
        }
    }

    /// Returns the validity of the load. `server` returns the reason, if any, why the server's
    /// behavior invalidates a load that was sent as planned.
    fn judge(self, server: impl FnOnce() -> Option<Reason>, notes: Vec<String>) -> Validity {
        let mut invalid = self.invalid;
        if invalid.is_empty() {
            invalid.extend(server());
        }
        let (status, reasons) = if !invalid.is_empty() {
            (Status::Invalid, [invalid, self.bound].concat())
        } else if self.bound.is_empty() && self.saturated.is_empty() {
            (Status::Valid, Vec::new())
        } else {
            (Status::Bound, [self.bound, self.saturated].concat())
        };
        Validity {
            status,
            reasons: worded(reasons),
            unsteady_bound: false,
            notes,
        }
    }
}

/// Reports that floodmark or its worker died. The last requests and the stalls are unknown.
fn cut_short(run: &Run) -> Option<Reason> {
    let sent_s = run.sending_s;
    let died = run.longest_stall_ns.is_none();
    died.then_some(Reason::CutShort { sent_s })
}

/// Reports that no response was ok, and what the server sent instead.
fn nothing_ok(run: &Run) -> Option<Reason> {
    let counts = &run.requests;
    let error = |(error, n): (&str, u64)| (FailureKind::Error(error.to_owned()), n);
    let statuses = counts.by_status().map(|(status, n)| (status.into(), n));
    let mostly = statuses
        .chain(run.request_errors().map(error))
        .max_by_key(|(_, n)| *n);
    (counts.ok == 0).then_some(Reason::NothingOk { mostly })
}

/// Half-width of the throughput interval, as a share of the throughput, above which a run is
/// `unsteady`.
const MAX_VARIATION: f64 = 0.1;

/// Minimum length of server stalls, as a share of the window, that explains an unsteady throughput.
const MIN_SILENT_SHARE: f64 = 0.05;

/// Returns the half-width of the throughput interval, as a share of the throughput, if it is so
/// large that predictions based on the throughput are meaningless.
#[must_use]
pub fn wide_interval(run: &Run) -> Option<f64> {
    let (per_s, interval) = (run.throughput_per_s?, run.throughput_interval.as_ref()?);
    let half_width = (interval.high - interval.low) / 2.0 / per_s;
    (half_width > MAX_VARIATION).then_some(half_width)
}

/// Reports an unsteady throughput and its likely cause. Causes on the client and its host are
/// checked first, because they can also look like a server stall.
fn unsteady(run: &Run) -> Option<Reason> {
    let half_width = wide_interval(run)?;
    let stall_s = run.longest_stall_ns.map(|ns| ns as f64 / 1e9);
    let is_steal = |of: &&Observation| matches!(of.metric, Metric::Host(_, HostFigure::Steal));
    let steal = run.observations.iter().filter(is_steal);
    let steal_cpus = steal.map(|of| mean(&of.values)).fold(0.0, f64::max);
    let other_cpus: f64 = run.other_processes.iter().map(|of| of.cpus).sum();
    let silent_s = run.silence.as_ref().map(|silence| silence.total_s);
    let window_s = run.window.to_s - run.window.from_s;
    let disturbance = if let Some(stall_s) = stall_s.filter(|s| *s >= STALL_S) {
        Disturbance::ClientStall { stall_s }
    } else if steal_cpus >= OTHER_CPUS {
        Disturbance::Steal { cpus: steal_cpus }
    } else if other_cpus >= OTHER_CPUS {
        Disturbance::OtherPrograms { cpus: other_cpus }
    } else if let Some(stall_s) = silent_s.filter(|s| *s >= MIN_SILENT_SHARE * window_s) {
        Disturbance::ServerStall { stall_s }
    } else {
        Disturbance::Server
    };
    Some(Reason::Unsteady {
        half_width,
        disturbance,
    })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Reports that all ok responses arrived after the sending window.
fn nothing_in_time(run: &Run) -> Option<Reason> {
    let sending_s = run.sending_s;
    let unlimited = || run.plan.duration_s().is_some();
    let limit = run.plan.request_limit();
    let is_limited_by_time = limit.is_none_or(|n| unlimited() && run.requests.intended < n);
    (is_limited_by_time && run.throughput_per_s == Some(0.0))
        .then_some(Reason::NothingInTime { sending_s })
}

/// Reports that the server stopped responding.
fn stopped_responding(run: &Run) -> Option<Reason> {
    let since_s = run.server_gone_since_s?;
    let ended_s = (run.ended.reason == EndReason::ServerGone).then_some(run.sending_s);
    (since_s > 0.0).then(|| Reason::StoppedResponding {
        since_s,
        silence_s: (run.sending_s - since_s).max(0.0),
        ended_s,
    })
}

/// Returns whether a run is invalid only because no response was ok.
#[must_use]
pub fn is_only_not_ok(run: &Run) -> bool {
    let [reason] = &run.validity.reasons[..] else {
        return false;
    };
    matches!(reason.fact(), Some(Reason::NothingOk { .. }))
}

/// Judges a run of an external client.
///
/// External clients are run to show their limits, so saturation neither bounds nor invalidates
/// their figures. A run without figures is invalid.
fn of_external_client(name: &str, run: &Run) -> Validity {
    let note = format!(
        "throughput and times were reported by {name}; its CPU time covers the whole process, \
         including start and end"
    );
    let detail = run.ended.detail.clone();
    let notes = Vec::from_iter(detail.is_none().then_some(note));
    let failed = detail.map(|detail| Reason::ClientFailed { detail });
    let faults = ClientFaults {
        invalid: Vec::from_iter(failed),
        ..ClientFaults::default()
    };
    faults.judge(|| nothing_ok(run), notes)
}

/// Returns the verdict if it names a limit other than the client's CPU.
pub(crate) fn other_limit(run: &Run) -> Option<&Verdict> {
    let verdict = run.verdict.as_ref()?;
    (verdict.cause != Cause::ClientCpu && is_limit(verdict.cause)).then_some(verdict)
}

/// Closed model: reports saturated client threads.
fn saturated(judged: &Judged<'_>) -> Option<Reason> {
    let run = judged.run;
    // The experiment may expect that the threads spend most of their time searching for free local
    // ports.
    let failed = run.errors.get("ports_exhausted");
    let searched_for_ports =
        judged.is_expected("ports_exhausted") && failed.is_some_and(|n| *n > run.requests.sent);
    if run.plan.is_open() || searched_for_ports {
        return None;
    }
    let threads = judged.saturated_threads()?;
    let used = threads.used;
    Some(match other_limit(run) {
        Some(verdict) => Reason::NoSpareCpu {
            threads: Some(used),
            cause: verdict.cause,
            next: verdict.next.clone(),
        },
        None => Reason::ClientSaturated {
            threads: used,
            fix: threads.fix(judged.cpus),
        },
    })
}

/// Open model: reports requests that saturated threads did not send.
fn rate_too_high(judged: &Judged<'_>) -> Option<Reason> {
    let counts = &judged.run.requests;
    let sent = counts.sent + judged.stopped_by_server();
    let unsent = counts.intended.saturating_sub(sent);
    let threads = judged.saturated_threads()?;
    (unsent as f64 > UNSENT_SHARE * counts.intended as f64).then(|| Reason::Unsent {
        unsent,
        intended: counts.intended,
        why: UnsentReason::Saturated {
            threads: threads.used,
            fix: threads.fix(judged.cpus),
        },
    })
}

/// Open model: reports that requests were sent too late for meaningful response times.
fn late(judged: &Judged<'_>) -> Option<Reason> {
    let run = judged.run;
    let late_us = run.lateness_us.p99?;
    // A percentile that falls among timed-out requests is unknown, but it is at least the timeout.
    let response = &run.response_time_us;
    let (response_us, is_lower_bound) = match (response.p99, response.censored) {
        (Some(us), _) => (us, false),
        (None, 0) => return None,
        (None, _) => (run.plan.timeout.as_secs_f64() * 1e6, true),
    };
    if late_us <= LATENESS_US || late_us <= LATENESS_SHARE * response_us {
        return None;
    }
    let threads = ClientThreads::of(&run.client.threads);
    let busy = threads
        .as_ref()
        .filter(|threads| threads.used.on_cpu >= BUSY_SHARE);
    let more_threads = busy.and_then(|threads| threads.more(judged.cpus));
    let why = match (judged.stall_s(), &threads) {
        (Some(stall_s), _) => LateReason::Stalled { stall_s },
        (None, Some(threads)) => LateReason::Threads(threads.used),
        (None, None) => LateReason::Unknown,
    };
    Some(Reason::Late {
        late_s: late_us / 1e6,
        response_s: response_us / 1e6,
        is_lower_bound,
        why,
        more_threads,
    })
}

/// Both models: reports requests that the client failed to send.
fn unsent(judged: &Judged<'_>) -> Vec<Reason> {
    let counts = &judged.run.requests;
    let unsent = counts.intended.saturating_sub(counts.sent);
    let names = CLIENT_ERRORS.iter().map(|(name, ..)| name);
    let ours: u64 = names.map(|name| judged.unexpected(name)).sum();
    // If no connect failure explains an unsent request, the request was due during a stall.
    let stall_s = judged.stall_s().unwrap_or(0.0);
    // The plan's rate is the total of all agents, so this agent's rate follows from its counts.
    let per_s = if judged.run.plan.is_open() && judged.run.sending_s > 0.0 {
        counts.intended as f64 / judged.run.sending_s
    } else {
        0.0
    };
    let due = (per_s * stall_s) as u64;
    let stalled = due.min(unsent.saturating_sub(ours + judged.stopped_by_server()));
    let lost = ours.min(unsent) + stalled;
    if lost as f64 <= UNSENT_SHARE * counts.intended as f64 {
        return Vec::new();
    }
    let errors = CLIENT_ERRORS.iter().filter_map(|(error, ..)| {
        let affected = judged.unexpected(error);
        let name = (*error).to_owned();
        (affected > 0).then_some(UnsentReason::Error { name, affected })
    });
    let stall = (stalled > 0).then_some(UnsentReason::Stall { stall_s });
    let reason = |why| Reason::Unsent {
        unsent,
        intended: counts.intended,
        why,
    };
    errors.chain(stall).map(reason).collect()
}

/// Closed model: reports requests lost in a client stall. Without a schedule, the lost share of the
/// requests equals the stall's share of the time.
fn stalled(judged: &Judged<'_>) -> Option<Reason> {
    let sending_s = judged.run.sending_s;
    let stall_s = judged.stall_s().filter(|s| *s > UNSENT_SHARE * sending_s)?;
    Some(Reason::Stalled { stall_s, sending_s })
}

/// Reports connections that the client failed to hold, if the failures invalidate the run.
fn not_held(judged: &Judged<'_>) -> Option<Reason> {
    let reasons = &judged.run.connections.held.as_ref()?.reasons;
    let names = CLIENT_ERRORS.iter().map(|(name, ..)| *name);
    let failures =
        names.filter_map(|name| Some((name.to_owned(), *reasons.get(name).filter(|n| **n > 0)?)));
    let (errors, failed): (Vec<String>, Vec<u64>) = failures.unzip();
    let failed: u64 = failed.iter().sum();
    let connections = judged.run.plan.connections;
    (failed as f64 > UNSENT_SHARE * f64::from(connections)).then_some(Reason::NotHeld {
        failed,
        connections,
        errors,
    })
}

/// The load threads.
pub(crate) struct ClientThreads {
    pub(crate) used: ThreadUse,
}

impl ClientThreads {
    /// Computes the share of the time that the load threads were running and the share that they
    /// were runnable, both averaged across the threads. Returns `None` if there are no load
    /// threads.
    pub(crate) fn of(threads: &[ThreadUsage]) -> Option<Self> {
        let load = || threads.iter().filter(|t| t.drives_load && t.wall_s > 0.0);
        let n = load().count();
        let mean = |sum: f64| sum / n as f64;
        let share = |seconds: f64, thread: &ThreadUsage| (seconds / thread.wall_s).min(1.0);
        let on_cpu: f64 = load().map(|t| share(t.user_s + t.system_s, t)).sum();
        let runnable: Option<f64> = load().map(|t| Some(share(t.run_delay_s?, t))).sum();
        (n > 0).then(|| ClientThreads {
            used: ThreadUse {
                threads: n,
                on_cpu: mean(on_cpu),
                runnable: runnable.map(mean),
            },
        })
    }

    /// Returns the share of the time that the threads were running or runnable. An unknown runnable
    /// share counts as 0.
    pub(crate) fn busy(&self) -> f64 {
        (self.used.on_cpu + self.used.runnable.unwrap_or(0.0)).min(1.0)
    }

    /// Returns a larger number of threads to try, or `None` if more threads would not help.
    pub(crate) fn more(&self, cpus: u32) -> Option<usize> {
        let cpus = cpus as usize;
        let n = self.used.threads;
        (n < cpus && !self.used.is_starved()).then(|| (n * 2).min(cpus))
    }

    /// Returns the fix for saturated threads.
    pub(crate) fn fix(&self, cpus: u32) -> ThreadFix {
        if let Some(more) = self.more(cpus) {
            ThreadFix::MoreThreads(more)
        } else if self.used.is_starved() {
            ThreadFix::OwnCpus
        } else {
            ThreadFix::OtherHost
        }
    }
}

#[cfg(test)]
mod tests;
