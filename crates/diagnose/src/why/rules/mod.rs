//! The rules for verdicts. Each rule detects one cause, or several causes that depend on each
//! other. The rules in this module detect causes that the time of threads cannot show.

mod client;
mod connections;
mod network;
mod quota;
mod responses;

use floodmark_record::cause::Cause;

pub(super) use connections::opened_by_others;
pub(super) use responses::{stalled, stopped};

use super::candidate::{Finding, Findings};
use super::facts::RunFacts;
use super::graph::{cpu, runtime, service, store};

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
    Rule::One(Cause::CpuQuota, quota::quota),
    Rule::One(Cause::Steal, quota::steal),
    Rule::One(Cause::OtherProcesses, cpu::other_processes),
    Rule::One(Cause::SharedCpu, cpu::shared_cpus),
    Rule::One(Cause::ServerCpuOneThread, cpu::one_thread),
    Rule::One(Cause::ServerCpu, cpu::cpu),
    Rule::One(Cause::Jit, runtime::jit),
    Rule::One(Cause::Gc, runtime::gc),
    Rule::One(Cause::TlsHandshake, runtime::tls),
    Rule::One(Cause::StoreCpu, store::cpu),
    Rule::One(Cause::StoreLock, store::locks),
    Rule::One(Cause::StoreCommit, store::commits),
    Rule::One(Cause::Serialised, store::single_request),
    Rule::Several(connections::not_accepted),
    Rule::One(Cause::ProxyHop, connections::proxy),
    Rule::One(Cause::DelayedAck, network::delayed_ack),
    Rule::One(Cause::Bandwidth, network::link),
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
