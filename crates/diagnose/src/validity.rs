//! Whether a run's figures can be read as the server's: `valid`, `bound` or `invalid`, in words with the mend.
//!
//! Only what floodmark itself did decides. A server that refuses, dies or answers slowly is what is being
//! measured, and a full core of ours in the open model shows itself as lateness or not at all.

use std::collections::BTreeMap;

use floodmark_record::events::{AddressUse, EndReason, Held, ThreadUse};
use floodmark_record::outcome::Counts;
use floodmark_record::plan::{Model, Plan};
use floodmark_record::run::{Status, Validity};
use floodmark_record::times::Times;
use floodmark_record::units::{show_count, show_ns};

use crate::asking;
use crate::held;
use crate::notes::notes;
use crate::tls;

/// Closed model: from this share of their time on our load threads count as full. The missing twentieth is what a
/// loaded thread still spends waiting in between, and what the two clocks behind the share disagree by.
pub const FULL_SHARE: f64 = 0.95;

/// Open model: lateness below a millisecond is that of timers and the scheduler, on any machine.
pub const LATENESS_US: f64 = 1_000.0;

/// Open model: lateness below a tenth of the response time does not change what the response time says.
pub const LATENESS_SHARE: f64 = 0.10;

/// Open model: from this share of their time on a CPU, more load threads are likely to help against lateness: requests
/// come in bunches, and half of the time is already gone.
const BUSY_SHARE: f64 = 0.5;

/// Share of the intended requests that may stay unsent through our fault: it moves no figure by more than its last
/// printed digit.
pub const UNSENT_SHARE: f64 = 0.01;

/// A standstill of ours below this is ordinary scheduling on a busy machine, however short the run, seconds.
pub const STALL_S: f64 = 0.1;

/// A run shorter than this says nothing of whether a thread was full: starting up is all it did, seconds.
pub const FULL_FROM_S: f64 = 0.1;

/// What is known of a run when its validity is judged; all of it is in the record.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// What was asked.
    pub plan: &'a Plan,
    /// What became of the requests, of the whole run.
    pub counts: &'a Counts,
    /// Named reasons of failures with how often each occurred; the names that are ours are in [`OUR_ERRORS`].
    pub errors: &'a BTreeMap<String, u64>,
    /// Of these the failed connects that no request waited for.
    pub unawaited: &'a BTreeMap<String, u64>,
    /// sent − max(intended, free), in the window.
    pub lateness: &'a Times,
    /// done − intended, in the window.
    pub response: &'a Times,
    /// Ok answers per second in the window.
    pub throughput_per_s: Option<f64>,
    /// Length of the window that throughput and times are of, seconds.
    pub window_s: f64,
    /// Length of the whole sending window, seconds.
    pub sending_s: f64,
    /// Threads of the load process over the sending window.
    pub threads: &'a [ThreadUse],
    /// What became of each address of the target.
    pub addresses: &'a [AddressUse],
    /// CPUs the load process may use.
    pub cpus: u32,
    /// Longest standstill of a load thread that no server explains, ns; none where it is not known.
    pub longest_stall_ns: Option<u64>,
    /// Counters of the host over the run.
    pub host: HostCounters,
    /// What became of held connections, where some were.
    pub held: Option<&'a Held>,
    /// Why the run ended.
    pub ended: EndReason,
    /// When the server went away, seconds from the start.
    pub server_gone_since_s: Option<f64>,
    /// Causes that the experiment expects, by their ids: one of ours among them is what is being measured.
    pub expected: &'a [String],
    /// What floodmark reaches on this machine against a server that costs nothing, requests per second.
    pub ceiling_per_s: Option<f64>,
}

impl Evidence<'_> {
    /// How often a named reason kept a request from being sent, or spoilt one that was.
    pub(crate) fn met_by_requests(&self, name: &str) -> u64 {
        let of = |errors: &BTreeMap<String, u64>| errors.get(name).copied().unwrap_or(0);
        of(self.errors).saturating_sub(of(self.unawaited))
    }

    /// How often a named reason of ours, expected by nobody, kept a request from being sent.
    fn unexpected(&self, name: &str) -> u64 {
        match self.is_expected(name) {
            true => 0,
            false => self.met_by_requests(name),
        }
    }

    /// Whether the experiment expects the cause that a named reason belongs to.
    pub(crate) fn is_expected(&self, name: &str) -> bool {
        let cause = EXPECTABLE.iter().find(|(reason, _)| *reason == name);
        cause.is_some_and(|(_, cause)| self.expected.iter().any(|id| id == cause))
    }

    /// The longest standstill that is known of, ns. Where none is, the notes say so.
    fn stall_ns(&self) -> f64 {
        self.longest_stall_ns.unwrap_or(0) as f64
    }
}

/// Increase of kernel counters over the run, by their names in `/proc/net/netstat`; none where they could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HostCounters {
    /// `ListenOverflows`: connections that met a full accept queue.
    pub listen_overflows: Option<f64>,
    /// `ListenDrops`: connections that a listener dropped for any reason, the overflows among them.
    pub listen_drops: Option<f64>,
    /// `TCPSynRetrans`: connection requests sent again because nobody answered.
    pub syn_retransmits: Option<f64>,
}

/// Names in `errors` that are floodmark's or its machine's fault: no local port, no file descriptor, no memory for a
/// socket, or no permission to connect.
pub const OUR_ERRORS: [&str; 4] = [
    "ports_exhausted",
    "fds_exhausted",
    "no_memory_for_socket",
    "connect_not_permitted",
];

/// Those of them that an experiment may be about, each with the id of its cause.
pub const EXPECTABLE: [(&str, &str); 2] = [
    ("ports_exhausted", "ephemeral-ports"),
    ("fds_exhausted", "client-fds"),
];

/// Names in `errors` by which the server, or the way to it, kept requests from being sent.
pub const SERVER_ERRORS: [&str; 5] = [
    "connect_refused",
    "connect_timed_out",
    "connect_reset",
    "unreachable",
    "connect_failed",
];

/// How often the server, or the way to it, kept a request from being sent; whatever went wrong in a TLS handshake is its too.
fn by_server(evidence: &Evidence<'_>) -> u64 {
    let named: u64 = evidence
        .errors
        .keys()
        .filter(|name| SERVER_ERRORS.contains(&name.as_str()) || name.starts_with(tls::PREFIX))
        .map(|name| evidence.met_by_requests(name))
        .sum();
    // TLS also breaks on connections that stood, after their requests were sent; such a failure explains none that was not.
    named.min(evidence.counts.connect_failed)
}

/// Judges a run.
#[must_use]
pub fn validity(evidence: &Evidence<'_>) -> Validity {
    let mut reasons: Vec<String> = unsent(evidence);
    reasons.extend(held::unheld(evidence));
    if evidence.plan.model == Model::Open {
        reasons.extend(late(evidence));
        if reasons.is_empty() {
            reasons.extend(too_much(evidence));
        }
    }
    if evidence.plan.model == Model::Closed {
        reasons.extend(stalled(evidence));
    }
    let mut status = Status::Invalid;
    if reasons.is_empty() {
        reasons.extend(full(evidence));
        status = if reasons.is_empty() {
            Status::Valid
        } else {
            Status::Bound
        };
    }
    Validity {
        status,
        reasons,
        notes: notes(evidence),
    }
}

/// How the load threads spent their time, as mean shares of it.
pub(crate) struct Threads {
    pub(crate) n: usize,
    /// Running, in user mode or in the kernel.
    pub(crate) on_cpu: f64,
    /// Ready to run, without a CPU; none where that of a thread could not be read.
    pub(crate) waiting: Option<f64>,
}

impl Threads {
    /// The next larger useful number of threads; none where there is no CPU for them, or the threads there are
    /// mostly wait for one already.
    pub(crate) fn more(&self, cpus: u32) -> Option<usize> {
        let cpus = cpus as usize;
        (self.n < cpus && !self.starved()).then(|| (self.n * 2).min(cpus))
    }

    /// Whether they are known to have waited for a CPU more than they had one.
    fn starved(&self) -> bool {
        self.waiting.is_some_and(|waiting| waiting > self.on_cpu)
    }
}

/// None without load threads.
pub(crate) fn load_threads(threads: &[ThreadUse]) -> Option<Threads> {
    let load: Vec<&ThreadUse> = threads
        .iter()
        .filter(|t| t.drives_load && t.wall_s > 0.0)
        .collect();
    if load.is_empty() {
        return None;
    }
    let n = load.len() as f64;
    let on_cpu = load
        .iter()
        .map(|t| ((t.user_s + t.system_s) / t.wall_s).min(1.0));
    let waiting = load
        .iter()
        .map(|t| Some((t.run_delay_s? / t.wall_s).min(1.0)));
    Some(Threads {
        n: load.len(),
        on_cpu: on_cpu.sum::<f64>() / n,
        waiting: waiting.sum::<Option<f64>>().map(|sum| sum / n),
    })
}

/// Closed model: were our threads the limit?
fn full(evidence: &Evidence<'_>) -> Option<String> {
    if evidence.plan.model != Model::Closed || looked_in_vain(evidence) {
        return None;
    }
    let threads = full_threads(evidence)?;
    Some(format!(
        "floodmark was the limit: {}; the server may take more than this, and the latencies include waiting inside \
         floodmark. {}",
        threads.full(),
        threads.mend(evidence)
    ))
}

/// Whether what the threads did was mostly to have the kernel look for a local port where none was left, as the experiment expects. It
/// goes through all of them each time, so that this fills a thread which could send far more.
fn looked_in_vain(evidence: &Evidence<'_>) -> bool {
    let vain = evidence.errors.get("ports_exhausted").copied();
    evidence.is_expected("ports_exhausted") && vain.is_some_and(|n| n > evidence.counts.sent)
}

/// Open model: did requests stay unsent because our threads could not keep up?
fn too_much(evidence: &Evidence<'_>) -> Option<String> {
    let counts = evidence.counts;
    let servers = by_server(evidence);
    let lost = counts.intended.saturating_sub(counts.sent + servers);
    if lost as f64 <= UNSENT_SHARE * counts.intended as f64 {
        return None;
    }
    let threads = full_threads(evidence)?;
    Some(format!(
        "{} of {} requests ({:.1} %) were never sent, and {}: the rate is more than floodmark can send here. {}, or ask for {}",
        show_count(lost),
        show_count(counts.intended),
        100.0 * lost as f64 / counts.intended as f64,
        threads.full(),
        threads.mend(evidence),
        asking::lower(evidence.plan)
    ))
}

/// The load threads, where they were full.
fn full_threads(evidence: &Evidence<'_>) -> Option<Threads> {
    load_threads(evidence.threads)
        .filter(|threads| threads.busy() >= FULL_SHARE && evidence.sending_s >= FULL_FROM_S)
}

impl Threads {
    /// As far as is known: at least the time on a CPU.
    pub(crate) fn busy(&self) -> f64 {
        (self.on_cpu + self.waiting.unwrap_or(0.0)).min(1.0)
    }

    /// How full they were, in words.
    fn full(&self) -> String {
        let whose = match self.n {
            1 => "its one thread was full".to_owned(),
            n => format!("its {n} threads were full"),
        };
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        match self.waiting {
            Some(waiting) => format!(
                "{whose} ({}: {} on a CPU, {} waiting for one)",
                percent(self.busy()),
                percent(self.on_cpu),
                percent(waiting)
            ),
            None => format!(
                "{whose} ({} on a CPU, the wait for one not known)",
                percent(self.on_cpu)
            ),
        }
    }

    /// What to do about it.
    fn mend(&self, evidence: &Evidence<'_>) -> String {
        if let Some(more) = self.more(evidence.cpus) {
            format!("Use -t {more}")
        } else if self.starved() {
            "Client and server share the CPUs, so more threads will not help: give each CPUs of its own (taskset -c) or \
             run floodmark on another machine"
                .to_owned()
        } else {
            format!(
                "It already has a thread for each of the {} it may use: run floodmark on another machine",
                plural(u64::from(evidence.cpus), "CPU", "CPUs")
            )
        }
    }
}

/// Open model: were requests sent too late to say anything about response times?
fn late(evidence: &Evidence<'_>) -> Option<String> {
    let late_us = evidence.lateness.p99?;
    // A percentile among requests that timed out is unknown, but at least the timeout.
    let response_us = match (evidence.response.p99, evidence.response.censored) {
        (Some(us), _) => us,
        (None, 0) => return None,
        (None, _) => evidence.plan.timeout_s * 1e6,
    };
    if late_us <= LATENESS_US || late_us <= LATENESS_SHARE * response_us {
        return None;
    }
    let stall_s = evidence.stall_ns() / 1e9;
    let lower = asking::lower(evidence.plan);
    let (cause, mend) = match load_threads(evidence.threads) {
        _ if stall_s >= STALL_S => (
            format!(
                "; floodmark stood still for {} at a time",
                show_ns(evidence.stall_ns())
            ),
            "Nothing must stop or starve the load process: look for other work on the machine (floodmark doctor)".to_owned(),
        ),
        Some(Threads {
            on_cpu,
            waiting: Some(waiting),
            ..
        }) if waiting > on_cpu => (
            format!(
                "; its threads waited for a CPU {:.0} % of the time",
                waiting * 100.0
            ),
            format!(
                "Give floodmark CPUs of its own (taskset -c) or another machine, or ask for {lower}"
            ),
        ),
        Some(t) if t.on_cpu >= BUSY_SHARE => (
            format!("; its threads were busy {:.0} % of the time", t.on_cpu * 100.0),
            match t.more(evidence.cpus) {
                Some(more) => format!("Use -t {more} or {lower}"),
                None => format!("Use {lower} or another machine"),
            },
        ),
        _ => (
            String::new(),
            format!("Use {lower} or another machine"),
        ),
    };
    Some(format!(
        "floodmark sent late: 1 request in 100 left {} or more after its time, which is more than a tenth of the response \
         time (p99 {}){cause}; the response times are partly floodmark's own. {mend}",
        show_ns(late_us * 1e3),
        match evidence.response.p99 {
            Some(us) => show_ns(us * 1e3),
            None => format!("> {}", show_ns(response_us * 1e3)),
        }
    ))
}

/// Either model: did requests stay unsent through a fault of ours?
fn unsent(evidence: &Evidence<'_>) -> Vec<String> {
    let counts = evidence.counts;
    let short = counts.intended.saturating_sub(counts.sent);
    let named = |name: &str| evidence.unexpected(name);
    let ours: u64 = OUR_ERRORS.iter().map(|n| named(n)).sum();
    let servers = by_server(evidence);
    // Of the requests that no failed connect explains, a standstill of ours accounts for those due while it lasted.
    let stall_s = evidence.stall_ns() / 1e9;
    let due = match evidence.plan.rate_per_s {
        Some(rate) if stall_s >= STALL_S => (rate * stall_s) as u64,
        _ => 0,
    };
    let stalled = due.min(short.saturating_sub(ours + servers));
    let lost = ours.min(short) + stalled;
    if lost as f64 <= UNSENT_SHARE * counts.intended as f64 {
        return Vec::new();
    }
    let share = format!(
        "{} of {} requests ({:.1} %) were never sent",
        show_count(short),
        show_count(counts.intended),
        100.0 * short as f64 / counts.intended as f64
    );
    let mut reasons = Vec::new();
    if named("ports_exhausted") > 0 {
        reasons.push(format!(
            "{share}: this machine had no local port left for {} (each closed connection holds one for up to a minute). \
             Use more source addresses (--sources 127.0.0.2-127.0.0.20 on loopback), kept connections, or {}",
            plural(named("ports_exhausted"), "connection", "connections"),
            asking::lower(evidence.plan)
        ));
    }
    if named("fds_exhausted") > 0 {
        reasons.push(format!(
            "{share}: floodmark may not open more files (the limit was met {}). Raise it (ulimit -n 65536) or use fewer \
             connections (-c)",
            plural(named("fds_exhausted"), "time", "times")
        ));
    }
    if named("no_memory_for_socket") > 0 {
        reasons.push(format!(
            "{share}: the kernel had no memory for {}. Use fewer connections (-c) or free memory",
            plural(named("no_memory_for_socket"), "socket", "sockets")
        ));
    }
    if named("connect_not_permitted") > 0 {
        reasons.push(format!(
            "{share}: this machine does not permit floodmark to connect there ({} refused by a local rule). See its \
             firewall and security rules",
            plural(named("connect_not_permitted"), "attempt", "attempts")
        ));
    }
    if stalled > 0 {
        reasons.push(format!(
            "{share}: floodmark stood still for {} and the server has nothing to do with it. Nothing must stop or starve \
             the load process: look for other work on the machine (floodmark doctor) and measure again",
            show_ns(evidence.stall_ns())
        ));
    }
    reasons
}

/// Closed model: a standstill of ours takes away the requests that would have been sent meanwhile. They are intended by
/// no schedule, so their share is that of the time.
fn stalled(evidence: &Evidence<'_>) -> Option<String> {
    let stall_s = evidence.stall_ns() / 1e9;
    if stall_s < STALL_S || stall_s <= UNSENT_SHARE * evidence.sending_s {
        return None;
    }
    Some(format!(
        "floodmark stood still for {} of {} and the server has nothing to do with it: throughput is too low and the \
         largest latencies are floodmark's. Nothing must stop or starve the load process: look for other work on the machine \
         (floodmark doctor) and measure again",
        show_ns(evidence.stall_ns()),
        show_ns(evidence.sending_s * 1e9)
    ))
}

/// "1 request", "2,000 requests".
pub(crate) fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", show_count(n), if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests;
