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

/// A mechanism is named before the resource when it makes up this share of it, and a place is where requests wait when so many of them
/// are there.
const HALF: f64 = 0.5;

/// Both sides wait for CPUs this long for each second that they have one: the rule of the catalogue for CPUs that are shared.
const SHARED: f64 = 0.2;

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

/// CPUs that a side could have of its machine, which was busy so much: what others do not take of those that it may use, where they are not
/// its own. `other` is what the other side takes, where nothing tells of the whole machine.
fn could_have(busy: Option<f64>, side: &Side, own: bool, other: f64) -> f64 {
    /// Others are read by another clock, so that they may seem to leave nothing.
    const LEAST: f64 = 0.05;
    let others = match busy {
        _ if own => 0.0,
        Some(busy) => (busy - side.used).max(0.0),
        None => other,
    };
    (side.may_use - others).max(LEAST)
}

/// The same of the server.
fn server_could_have(facts: &Facts<'_>, server: &Side) -> f64 {
    let place = facts.run.place.as_ref();
    let own = place.is_some_and(|place| place.server.cpus.is_some());
    could_have(facts.server_host_busy, server, own, facts.client_beside())
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn per_s(rate: f64) -> String {
    format!("{}/s", floodmark_record::units::show_rate(rate))
}
