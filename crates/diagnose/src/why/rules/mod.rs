//! The rules: each looks at the facts for one cause, and says that it is it, that it is not and why, or that it cannot tell.

mod answers;
mod client;
mod connections;
mod server;
mod store;
mod waiting;
mod working;

pub(super) use working::knob;

use super::candidate::Findings;
use super::facts::{Facts, Side};

/// From this share on a thread or a CPU is full: what is missing is what a loaded thread still spends waiting in between
/// ([`crate::validity::FULL_SHARE`]).
const FULL: f64 = crate::validity::FULL_SHARE;

/// From this share on a resource is near its limit: two limits within a tenth of each other are both named.
const NEARLY: f64 = 0.9;

/// Where this share of the CPUs is idle, a thread that is ready to run finds one.
const IDLE: f64 = 0.25;

/// A mechanism is named before the resource when it makes up this share of it, and a place is where requests wait when so many of them
/// are there.
const HALF: f64 = 0.5;

/// Both sides wait for CPUs this long for each second that they have one: the rule of the catalogue for CPUs that are shared.
const SHARED: f64 = 0.2;

/// A stop of all threads for this share of the time lowers throughput by as much, which is more than runs differ by.
const STOPPED: f64 = 0.1;

/// All of them, in no order of importance.
const RULES: &[fn(&Facts<'_>, &mut Findings)] = &[
    answers::met,
    answers::rate_limiter,
    answers::errors,
    client::cpu,
    client::stall,
    client::ports,
    client::files,
    connections::backlog,
    connections::keepalive,
    server::quota,
    server::steal,
    server::shared,
    server::cpu,
    server::jit,
    server::gc,
    server::tls,
    store::cpu,
    store::locks,
    store::commits,
    store::one_call,
    connections::not_let_in,
    connections::proxy,
    waiting::delayed_ack,
    waiting::logging,
    waiting::link,
    working::at_once,
];

/// What all rules find.
pub(super) fn apply(facts: &Facts<'_>) -> Findings {
    let mut findings = Findings::default();
    for rule in RULES {
        rule(facts, &mut findings);
    }
    findings
}

/// CPUs that a side could have of its machine, which was busy so much: what others do not take of those that it may use. `beside` is what
/// is known to take them, which is all there is where they were set apart for both, or where nothing tells of the whole machine.
fn could_have(busy: Option<f64>, side: &Side, set_apart: bool, beside: f64) -> f64 {
    /// Others are read by another clock, so that they may seem to leave nothing.
    const LEAST: f64 = 0.05;
    let others = match busy {
        Some(busy) if !set_apart => (busy - side.used).max(0.0),
        _ => beside,
    };
    (side.may_use - others).max(LEAST)
}

/// The same of the server.
fn server_could_have(facts: &Facts<'_>, server: &Side) -> f64 {
    let apart = facts.has_cpus_of_its_own();
    let client = if apart { 0.0 } else { facts.client_beside() };
    let beside = client + facts.store.as_ref().map_or(0.0, |store| store.used);
    could_have(facts.server_host_busy, server, apart, beside)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn per_s(rate: f64) -> String {
    format!("{}/s", floodmark_record::units::show_rate(rate))
}
