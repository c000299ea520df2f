//! The rules for verdicts. Each rule detects one cause, or several causes that depend on each
//! other.

mod activity;
mod client;
mod connections;
mod responses;
mod server;
mod server_runtime;
mod service;
mod store;
mod upstreams;
mod waiting;

pub(super) use service::setting_near;

use floodmark_record::cause::Cause;
use floodmark_record::units::show_ns;

use super::candidate::{Finding, Findings};
use super::facts::{BusiestThread, CpuUse, RunFacts, used};
use crate::text::{per_s, percent};

/// Minimum busy share of a saturated thread or CPU ([`crate::validity::SATURATED_SHARE`]).
const SATURATED: f64 = crate::validity::SATURATED_SHARE;

/// Minimum used share at which a resource is near its limit. Two limits within a tenth of each
/// other are named together.
pub(super) const NEAR_LIMIT: f64 = 0.9;

/// Minimum idle share of the CPUs at which a runnable thread can find an idle CPU.
const IDLE: f64 = 0.25;

/// A consumer that uses at least this share of a resource is the main consumer. A place with at
/// least this share of the requests holds most of the requests.
pub(super) const HALF: f64 = 0.5;

/// Minimum ratio of run delay to CPU time at which a process competes for CPUs.
pub(super) const CONTENDED: f64 = 0.2;

/// Minimum share of the time for which all threads are paused. Throughput falls by the same share,
/// which exceeds the variation between runs.
const PAUSED: f64 = 0.1;

/// Minimum share of the CPU time per request at which a cost is named. Smaller shares are within
/// the variation between runs.
const COST: f64 = 0.1;

enum Rule {
    /// Detects one cause. Returns `None` if the cause does not apply to the run.
    One(Cause, fn(&RunFacts<'_>) -> Option<Finding>),
    /// Detects several causes that depend on each other.
    Several(fn(&RunFacts<'_>, &mut Findings)),
}

/// All rules. The order determines how ruled-out causes are listed.
const RULES: &[Rule] = &[
    Rule::Several(responses::offered_rate_met),
    Rule::One(Cause::RateLimiter, responses::rate_limiter),
    Rule::One(Cause::Errors, responses::errors),
    Rule::One(Cause::ClientCpu, client::cpu),
    Rule::One(Cause::ClientStall, client::stall),
    Rule::One(Cause::EphemeralPorts, client::ports),
    Rule::One(Cause::ClientFds, client::files),
    Rule::One(Cause::ListenBacklog, connections::backlog),
    Rule::One(Cause::KeepaliveLimit, connections::keepalive),
    Rule::One(Cause::CpuQuota, server::quota),
    Rule::One(Cause::Steal, server::steal),
    Rule::One(Cause::OtherProcesses, server::other_processes),
    Rule::One(Cause::SharedCpu, server::shared_cpus),
    Rule::One(Cause::ServerCpuOneThread, server::one_thread),
    Rule::One(Cause::ServerCpu, server::cpu),
    Rule::One(Cause::Jit, server_runtime::jit),
    Rule::One(Cause::Gc, server_runtime::gc),
    Rule::One(Cause::TlsHandshake, server_runtime::tls),
    Rule::One(Cause::StoreCpu, store::cpu),
    Rule::One(Cause::StoreLock, store::locks),
    Rule::One(Cause::StoreCommit, store::commits),
    Rule::One(Cause::Serialised, store::single_request),
    Rule::Several(connections::not_accepted),
    Rule::One(Cause::ProxyHop, connections::proxy),
    Rule::One(Cause::DelayedAck, waiting::delayed_ack),
    Rule::One(Cause::Bandwidth, waiting::link),
    Rule::Several(service::limits),
];

/// Applies all rules to the facts about a run.
pub(super) fn apply(facts: &RunFacts<'_>) -> Findings {
    let mut findings = Findings::default();
    for rule in RULES {
        match rule {
            Rule::One(cause, rule) => findings.add(*cause, rule(facts)),
            Rule::Several(rule) => rule(facts, &mut findings),
        }
    }
    findings
}

/// Returns the number of CPUs available to a process: the CPUs that the process may use, minus
/// `participants` (CPUs used by other participants) and the CPUs taken by the hypervisor. If the
/// participants lack CPU time, the function also subtracts the CPUs that other programs use.
///
/// Clocks differ, so the CPU use of others can appear to exceed the number of CPUs.
fn available_cpus(
    facts: &RunFacts<'_>,
    process: &CpuUse,
    own_cpus: bool,
    participants: f64,
) -> f64 {
    const MINIMUM: f64 = 0.05;
    let programs = facts
        .other_programs()
        .filter(|_| !own_cpus && facts.lacks_cpu());
    let others = participants + programs.unwrap_or(0.0) + facts.stolen();
    (process.allowed - others).max(MINIMUM)
}

/// Returns the number of CPUs available to the server.
fn server_available_cpus(facts: &RunFacts<'_>, server: &CpuUse) -> f64 {
    let own_cpus = facts.server_has_own_cpus;
    let client = if own_cpus {
        0.0
    } else {
        facts.client_on_server_cpus()
    };
    available_cpus(facts, server, own_cpus, client + used(&facts.store))
}

/// Returns the server's busiest thread if it is saturated: nearly always running or runnable, or
/// running or runnable at least half the time and never idle.
fn saturated_thread<'a>(facts: &'a RunFacts<'_>) -> Option<&'a BusiestThread> {
    let never_idle = facts.thread_groups.iter().any(|group| {
        let is_one = service::ONE.contains(&group.workers());
        is_one && group.never_waits() && group.on_cpu + group.runnable >= HALF
    });
    let busiest = facts.busiest_thread();
    busiest.filter(|thread| never_idle || thread.busy() >= NEAR_LIMIT)
}

/// Returns whether the server could use more CPU time and its busiest thread is not saturated.
fn has_spare_cpu(facts: &RunFacts<'_>) -> bool {
    let is_spare = |(spare, cpus): (f64, f64)| spare >= IDLE * cpus;
    facts.spare_cpus().is_some_and(is_spare) && saturated_thread(facts).is_none()
}

/// Describes the idle CPUs and the server's busiest thread. Returns `None` if the number of idle
/// CPUs is unknown.
fn show_spare_cpu(facts: &RunFacts<'_>) -> Option<String> {
    let (idle, _) = facts.idle_cpus()?;
    let busiest = facts.busiest_thread().map(|thread| {
        let on_cpu = percent(thread.on_cpu);
        format!("; busiest server thread: {on_cpu} of its time on a CPU")
    });
    Some(format!(
        "{idle:.2} CPUs idle{}",
        busiest.unwrap_or_default()
    ))
}

fn show_available(role: &str, used: f64, available: f64) -> String {
    format!("{role}: {used:.2} of {available:.2} available CPUs used (/proc/PID/stat)")
}

fn show_idle((idle, cpus): (f64, f64)) -> String {
    format!("{idle:.2} of {cpus:.0} CPUs idle (/proc/stat)")
}

fn show_us(us: Option<f64>) -> String {
    us.map_or_else(|| "unknown".to_owned(), |us| show_ns(us * 1e3))
}
