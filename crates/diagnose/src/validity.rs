//! Judges whether a run's figures describe the server (`valid`, `bound` or `invalid`). If the
//! figures do not describe the server, the result contains reasons and fixes.
//!
//! Only the client's behavior counts. A server that rejects requests or responds slowly does not
//! invalidate a run, because the run measures that behavior. A server that stops responding does:
//! the figures then average over the time before and after the stop.

mod agents;
mod grouped;
mod threads;

use floodmark_record::cause::Cause;
use floodmark_record::events::EndReason;
use floodmark_record::run::{Run, Status, Validity};
use floodmark_record::units::show_count;
use floodmark_record::verdict::Verdict;

use crate::held;
use crate::stopped;
use crate::text::{plural_if_any, show_s};
use crate::tls;

pub use agents::agent_validity;
pub(crate) use agents::fix as agent_fix;
pub(crate) use threads::ClientThreads;

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

/// An error caused by the client or its host: the name in `errors`, the problem (where `{}` stands
/// for the affected items), the noun for these items, and the fix.
type ClientError = (&'static str, &'static str, &'static str, &'static str);

pub(crate) const CLIENT_ERRORS: [ClientError; 4] = [
    (
        "ports_exhausted",
        "no local port was left for {}",
        "connection",
        "add source addresses (--sources 127.0.0.2-127.0.0.20 on loopback), keep connections, or \
         reduce the load; a closed connection holds its port for up to 60 s",
    ),
    (
        "fds_exhausted",
        "the client had no file descriptor for {}",
        "connection",
        "raise the limit on open files (ulimit -n 65536) or use fewer connections (-c)",
    ),
    (
        "no_memory_for_socket",
        "the kernel had no memory for {}",
        "socket",
        "use fewer connections (-c) or free memory",
    ),
    (
        "connect_not_permitted",
        "a firewall or security rule blocked {}",
        "connection",
        "check the firewall and security rules of this host",
    ),
];

/// Client errors that an experiment may expect, and the ID of each error's cause.
const EXPECTABLE: [(&str, &str); 2] = [
    ("ports_exhausted", "ephemeral-ports"),
    ("fds_exhausted", "client-fds"),
];

/// Names in `errors` for server or network failures that prevent sending.
const SERVER_ERRORS: [&str; 5] = [
    "connect_refused",
    "connect_timed_out",
    "connect_reset",
    "unreachable",
    "connect_failed",
];

/// Fix for a server that stopped responding.
pub const FIX_STOPPED: &str = "check the server's log, restart the server and repeat";

/// Fix for a client stall.
const FIX_STALL: &str = "stop other programs on this host (see floodmark doctor) and repeat";

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
        let cause = EXPECTABLE.iter().find(|(name, _)| *name == error);
        cause.is_some_and(|(_, cause)| self.expected.iter().any(|id| id == cause))
    }

    /// Returns the number of requests affected by an error, or 0 if the error is expected.
    fn unexpected(&self, error: &str) -> u64 {
        match self.is_expected(error) {
            true => 0,
            false => self.affected(error),
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
        let is_ours = |name: &&str| SERVER_ERRORS.contains(name) || name.starts_with(tls::PREFIX);
        let errors = self.run.errors.keys().map(String::as_str).filter(is_ours);
        let requests: u64 = errors.map(|name| self.affected(name)).sum();
        // Some TLS failures occur after a request was sent.
        requests.min(self.run.requests.connect_failed)
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
    let client = match run.agents.is_empty() {
        true => ClientFaults::of(judged),
        false => agents::faults(run),
    };
    let server = || nothing_ok(run).or_else(|| stopped_responding(run));
    let (status, reasons) = client.judge(server);
    let mut notes = agents::notes(run);
    notes.extend(crate::notes::notes(judged));
    Validity {
        status,
        reasons,
        notes,
    }
}

/// Returns why the client did not send an open-model load as planned, or `None` if it did. `cpus` is
/// the number of CPUs that the client may use. Whether the server met the load does not matter.
///
/// With `can_be_late`, late requests are not a fault. Set it if the response times are short enough
/// for the caller's purpose, because they include the lateness.
#[must_use]
pub fn client_fault(run: &Run, cpus: u32, can_be_late: bool) -> Option<String> {
    let judged = &Judged {
        run,
        cpus,
        expected: &[],
    };
    let faults = match run.agents.is_empty() {
        true if can_be_late => not_sent(judged),
        true => ClientFaults::of(judged).invalid,
        false => agents::faults(run).invalid,
    };
    faults.into_iter().next()
}

/// Returns reasons why requests were not sent at all.
fn not_sent(judged: &Judged<'_>) -> Vec<String> {
    let mut faults = Vec::from_iter(cut_short(judged.run));
    faults.extend(unsent(judged));
    faults.extend(held::not_held(judged));
    faults
}

/// Reasons why the client did not send the load as planned.
#[derive(Debug, Default)]
struct ClientFaults {
    /// Reasons why the figures are meaningless.
    invalid: Vec<String>,
    /// Reasons why the throughput is a lower bound, even if the server fails.
    bound: Vec<String>,
    /// Reasons why the throughput is a lower bound, if the server responds.
    saturated: Vec<String>,
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

    /// Returns the status and its reasons. `server` returns the reason why the server's behavior
    /// invalidates a load that was sent as planned.
    fn judge(self, server: impl FnOnce() -> Option<String>) -> (Status, Vec<String>) {
        let mut invalid = self.invalid;
        if invalid.is_empty() {
            invalid.extend(server());
        }
        if !invalid.is_empty() {
            return (Status::Invalid, [invalid, self.bound].concat());
        }
        let bound = [self.bound, self.saturated].concat();
        match bound.is_empty() {
            true => (Status::Valid, bound),
            false => (Status::Bound, bound),
        }
    }
}

/// Reports that floodmark or its worker died. The last requests and the stalls are unknown.
fn cut_short(run: &Run) -> Option<String> {
    let sent = show_s(run.sending_s);
    let died = run.longest_stall_ns.is_none();
    died.then(|| format!("cut short after {sent}: floodmark or its worker died; repeat the run"))
}

/// Reports that no response was ok, and what the server sent instead.
fn nothing_ok(run: &Run) -> Option<String> {
    let counts = &run.requests;
    let status = |(status, n): (&u16, &u64)| (format!("status {status}"), *n);
    let error = |(error, n): (&str, u64)| (error.replace('_', " "), n);
    let statuses = counts.statuses.iter().map(status);
    let most_frequent = statuses
        .chain(run.request_errors().map(error))
        .max_by_key(|(_, n)| *n);
    (counts.ok == 0).then(|| match most_frequent {
        Some((what, n)) => format!("no response was ok (mostly {what}: {})", show_count(n)),
        None => "no response was ok".to_owned(),
    })
}

/// Reports that the server stopped responding.
fn stopped_responding(run: &Run) -> Option<String> {
    let silence_s = run.sending_s - run.server_gone_since_s?;
    let early_end = match run.ended.reason {
        EndReason::ServerGone => {
            let sent = show_s(run.sending_s);
            format!("; no connection could be opened, so the run ended after {sent}")
        }
        _ => String::new(),
    };
    Some(format!(
        "{}; the figures include the {} without responses{early_end}; {FIX_STOPPED}",
        stopped::show_since(run)?,
        show_s(silence_s.max(0.0))
    ))
}

/// Returns whether a run is invalid only because no response was ok.
#[must_use]
pub fn is_only_not_ok(run: &Run) -> bool {
    nothing_ok(run).is_some_and(|reason| run.validity.reasons == [reason])
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
    let reasons = Vec::from_iter(detail.or_else(|| nothing_ok(run)));
    let status = match reasons.is_empty() {
        true => Status::Valid,
        false => Status::Invalid,
    };
    Validity {
        status,
        reasons,
        notes,
    }
}

/// Returns the verdict if it names a limit other than the client's CPU.
pub(crate) fn other_limit(run: &Run) -> Option<&Verdict> {
    let verdict = run.verdict.as_ref()?;
    let others = [
        Cause::ClientCpu,
        Cause::None,
        Cause::OfferedRate,
        Cause::Unknown,
    ];
    (!others.contains(&verdict.cause)).then_some(verdict)
}

/// Closed model: reports saturated client threads.
fn saturated(judged: &Judged<'_>) -> Option<String> {
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
    let use_of_cpu = threads.show_cpu_use();
    Some(match other_limit(run) {
        Some(verdict) => format!(
            "the client had no spare CPU time ({use_of_cpu}), so latencies include waiting in the \
             client; first remove the limit that the verdict names ({}): {}",
            verdict.cause, verdict.next
        ),
        None => format!(
            "the client was the limit ({use_of_cpu}); the server may be faster, and latencies include \
             waiting in the client; {}",
            threads.fix(judged.cpus)
        ),
    })
}

/// Open model: reports requests that saturated threads did not send.
fn rate_too_high(judged: &Judged<'_>) -> Option<String> {
    let counts = &judged.run.requests;
    let sent = counts.sent + judged.stopped_by_server();
    let unsent = counts.intended.saturating_sub(sent);
    let threads = judged.saturated_threads()?;
    (unsent as f64 > UNSENT_SHARE * counts.intended as f64).then(|| {
        format!(
            "{}: the client was the limit ({}); {}, or use a lower rate",
            show_unsent(unsent, counts.intended),
            threads.show_cpu_use(),
            threads.fix(judged.cpus)
        )
    })
}

fn show_unsent(unsent: u64, intended: u64) -> String {
    format!(
        "{} of {} requests ({:.1} %) were never sent",
        show_count(unsent),
        show_count(intended),
        100.0 * unsent as f64 / intended as f64
    )
}

/// Open model: reports that requests were sent too late for meaningful response times.
fn late(judged: &Judged<'_>) -> Option<String> {
    let run = judged.run;
    let late_us = run.lateness_us.p99?;
    // A percentile that falls among timed-out requests is unknown, but it is at least the timeout.
    let response = &run.response_time_us;
    let (response_us, at_least) = match (response.p99, response.censored) {
        (Some(us), _) => (us, ""),
        (None, 0) => return None,
        (None, _) => (run.plan.timeout.as_secs_f64() * 1e6, "> "),
    };
    if late_us <= LATENESS_US || late_us <= LATENESS_SHARE * response_us {
        return None;
    }
    let threads = ClientThreads::of(&run.client.threads);
    let busy = threads
        .as_ref()
        .filter(|threads| threads.on_cpu >= BUSY_SHARE);
    let more = busy.and_then(|threads| threads.more(judged.cpus));
    let why = match (judged.stall_s(), &threads) {
        (Some(stall_s), _) => format!("stalled for {}", show_s(stall_s)),
        (None, Some(threads)) => threads.show_cpu_use(),
        (None, None) => "CPU use unknown".to_owned(),
    };
    let fix = match (judged.stall_s(), &threads, more) {
        (Some(_), ..) => FIX_STALL,
        (None, Some(threads), _) if threads.is_starved() => {
            "give the client its own CPUs (taskset -c) or another host, or use a lower rate"
        }
        (.., Some(more)) => &format!("use -t {more} or a lower rate"),
        _ => "use a lower rate or another host",
    };
    Some(format!(
        "the client ({why}) sent requests late: p99 lateness {} is more than a tenth of the \
         response time (p99 {at_least}{}); response times include this delay; {fix}",
        show_s(late_us / 1e6),
        show_s(response_us / 1e6)
    ))
}

/// Both models: reports requests that the client failed to send.
fn unsent(judged: &Judged<'_>) -> Vec<String> {
    let counts = &judged.run.requests;
    let unsent = counts.intended.saturating_sub(counts.sent);
    let names = CLIENT_ERRORS.iter().map(|(name, ..)| name);
    let ours: u64 = names.map(|name| judged.unexpected(name)).sum();
    // If no connect failure explains an unsent request, the request was due during a stall.
    let stall_s = judged.stall_s().unwrap_or(0.0);
    // The plan's rate is the total of all agents, so this agent's rate follows from its counts.
    let per_s = match judged.run.plan.is_open() && judged.run.sending_s > 0.0 {
        true => counts.intended as f64 / judged.run.sending_s,
        false => 0.0,
    };
    let due = (per_s * stall_s) as u64;
    let stalled = due.min(unsent.saturating_sub(ours + judged.stopped_by_server()));
    let lost = ours.min(unsent) + stalled;
    if lost as f64 <= UNSENT_SHARE * counts.intended as f64 {
        return Vec::new();
    }
    let errors = CLIENT_ERRORS
        .iter()
        .filter_map(|(error, problem, noun, fix)| {
            let items = plural_if_any(judged.unexpected(error), noun)?;
            Some(format!("{}; {fix}", problem.replace("{}", &items)))
        });
    let stall = (stalled > 0).then(|| {
        let stall = show_s(stall_s);
        format!("the client stalled for {stall}; the server is not the cause; {FIX_STALL}")
    });
    let share = show_unsent(unsent, counts.intended);
    let reasons = errors.chain(stall);
    reasons.map(|reason| format!("{share}: {reason}")).collect()
}

/// Closed model: reports requests lost in a client stall. Without a schedule, the lost share of the
/// requests equals the stall's share of the time.
fn stalled(judged: &Judged<'_>) -> Option<String> {
    let sending_s = judged.run.sending_s;
    let stall_s = judged.stall_s().filter(|s| *s > UNSENT_SHARE * sending_s)?;
    Some(format!(
        "the client stalled for {} of {}: throughput is too low, and the largest latencies were caused \
         by the client; {FIX_STALL}",
        show_s(stall_s),
        show_s(sending_s)
    ))
}

#[cfg(test)]
mod tests;
