//! What a plan needs of local ports and open files, worked out before anything is sent.
//!
//! A connection that the client closes first keeps its local port in TIME_WAIT (RFC 9293, section 3.6) for 60 s on Linux, or
//! until `tcp_tw_reuse` lets a new connection have it.

use floodmark_record::Profile;
use floodmark_record::plan::{Backend, CloseFirst, ConnectionUse, Model, Plan, Sources};
use floodmark_record::units::{show_count, show_rate};

use crate::course::arrivals_before;
use crate::thread::HELD_BACK_COALESCING;

/// Linux holds TIME_WAIT this long (`TCP_TIMEWAIT_LEN`), seconds; it cannot be set.
pub const TIME_WAIT_S: f64 = 60.0;

/// File descriptors a worker needs beside its connections: standard streams, epoll, files.
pub const OTHER_FDS: u64 = 64;

/// Where the sockets of a load process live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sockets {
    /// Among its open files.
    Files,
    /// In tables of io_uring, one for each thread. They are no open files, but a table has at most as many entries as a process may have
    /// open files.
    Tables,
}

/// A process's limit on open files, and what it was before it was raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimit {
    /// Before.
    pub before: u64,
    /// Now.
    pub now: u64,
}

/// What the machine offers; none for what could not be read, which then stops nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// Local ports of each source address towards each address of the target.
    pub ports: Option<u64>,
    /// Open files that the worker may have: its hard limit.
    pub fds: Option<u64>,
    /// Where its sockets live.
    pub sockets: Sockets,
    /// How long a port that the client closed first stays taken, seconds.
    pub time_wait_s: Option<f64>,
}

/// How long TIME_WAIT keeps a client's port, by `tcp_tw_reuse` (0 never reused, 1 always, 2 on loopback) and its delay.
#[must_use]
pub fn time_wait_s(tw_reuse: u64, reuse_delay_s: f64, loopback: bool) -> f64 {
    match (tw_reuse, loopback) {
        (1, _) | (2, true) => reuse_delay_s.min(TIME_WAIT_S),
        _ => TIME_WAIT_S,
    }
}

/// Ports over all source addresses and all addresses of the target: a port is taken only towards one address. None where a
/// connection needs no port, as on a unix socket, or how many there are is not known.
#[must_use]
pub fn ports_in_all(plan: &Plan, offer: &Offer) -> Option<u64> {
    let targets = plan.target.ip_addresses().count() as u128;
    if targets == 0 {
        return None;
    }
    let pairs = plan
        .sources
        .as_ref()
        .map_or(1, Sources::count)
        .saturating_mul(targets);
    let ports = u128::from(offer.ports?).saturating_mul(pairs);
    Some(u64::try_from(ports).unwrap_or(u64::MAX))
}

/// The most connections that ports and open files allow at once, as far as is known.
#[must_use]
pub fn most_connections(plan: &Plan, offer: &Offer) -> Option<u64> {
    let sockets = offer.fds.map(|fds| most_sockets(plan, offer.sockets, fds));
    ports_in_all(plan, offer).into_iter().chain(sockets).min()
}

fn most_sockets(plan: &Plan, sockets: Sockets, fds: u64) -> u64 {
    let (closes, rings) = held_back(plan);
    match sockets {
        Sockets::Files => {
            let left = fds.saturating_sub(OTHER_FDS + rings);
            left - closes.min(left.div_ceil(2))
        }
        Sockets::Tables => fds.saturating_mul(plan.threads.max(1).into()),
    }
}

/// Closes that the threads of a plan hold back at most while they open the next connections, and open files they have for holding
/// back: an io_uring each.
fn held_back(plan: &Plan) -> (u64, u64) {
    let threads = u64::from(plan.threads.max(1));
    match plan.backend {
        Backend::Epoll => (0, 0),
        Backend::Uring => (HELD_BACK_COALESCING as u64 * threads, threads),
    }
}

/// The limit on open files that a plan needs.
#[must_use]
pub fn files_needed(plan: &Plan, sockets: Sockets) -> u64 {
    let connections = u64::from(plan.connections);
    let (closes, rings) = held_back(plan);
    let others = OTHER_FDS + rings;
    match sockets {
        // No more can be closing than there are.
        Sockets::Files => connections + connections.min(closes) + others,
        Sockets::Tables => connections.div_ceil(plan.threads.max(1).into()).max(others),
    }
}

/// Why all connections of a plan cannot have a socket at once.
fn too_few_files(plan: &Plan, offer: &Offer) -> Option<String> {
    let connections = u64::from(plan.connections);
    let fds = offer.fds?;
    let most = most_sockets(plan, offer.sockets, fds);
    if connections <= most {
        return None;
    }
    let (asked, allowed) = (show_count(connections), show_count(fds));
    let most = most.max(1);
    Some(match offer.sockets {
        Sockets::Files => format!(
            "{asked} connections need {} open files, this process may have {allowed}; raise the limit (ulimit -n {}) or use -c {most}",
            show_count(files_needed(plan, offer.sockets)),
            files_needed(plan, offer.sockets),
        ),
        Sockets::Tables => {
            let threads = plan.threads.max(1);
            let each = u64::from(plan.connections.div_ceil(threads));
            format!(
                "{asked} connections need {} sockets for {}, whose {} as many as this process may have open files, {allowed}; \
                 use -t {}, raise the limit (ulimit -n {each}) or use -c {most}",
                show_count(each),
                match threads {
                    1 => "the load thread".to_owned(),
                    n => format!("each of {n} load threads"),
                },
                match threads {
                    1 => "table (io_uring) holds",
                    _ => "tables (io_uring) hold",
                },
                connections.div_ceil(fds.max(1)),
            )
        }
    })
}

/// New connections per second that the ports allow for ever, where the client holds the TIME_WAIT.
#[must_use]
pub fn connections_per_s(plan: &Plan, offer: &Offer) -> Option<f64> {
    let client_holds =
        plan.connection_use != ConnectionUse::Kept && plan.close_first == CloseFirst::Client;
    client_holds
        .then(|| Some(ports_in_all(plan, offer)? as f64 / offer.time_wait_s?))
        .flatten()
}

/// Why a plan cannot be carried out on this machine, with the arithmetic and the mend; none where it can as far as is known.
#[must_use]
pub fn shortage(plan: &Plan, offer: &Offer) -> Option<String> {
    let connections = u64::from(plan.connections);
    // Of the open model's connections there are as many as it takes, but all of those that are held.
    let all_at_once = plan.model == Model::Closed || plan.hold;
    if let Some(shortage) = too_few_files(plan, offer).filter(|_| all_at_once) {
        return Some(shortage);
    }
    let ports = ports_in_all(plan, offer)?;
    if all_at_once && connections > ports {
        return Some(format!(
            "{} connections need as many local ports, there are {}; add source addresses (--sources) or use -c {}",
            show_count(connections),
            show_count(ports),
            ports.max(1)
        ));
    }
    let (per_s, time_wait_s) = (connections_per_s(plan, offer)?, offer.time_wait_s?);
    let uses = match plan.connection_use {
        ConnectionUse::PerConnection => plan.requests_per_connection.unwrap_or(1).max(1) as f64,
        _ => 1.0,
    };
    let rate = highest_rate_per_s(plan)? / uses;
    let held = most_arrivals_within(plan, time_wait_s)? / uses;
    (held > ports as f64).then(|| {
        format!(
            "{}/s new connections closed by the client hold {} local ports in TIME_WAIT ({} s each); there are {}, enough for {}/s. \
             Add source addresses (--sources), let the server close (--close-first server), or keep connections",
            show_rate(rate),
            show_count(arrivals_before(held)),
            show_rate(time_wait_s),
            show_count(ports),
            show_rate(per_s)
        )
    })
}

/// The highest rate of arrivals, per second; none in the closed model.
fn highest_rate_per_s(plan: &Plan) -> Option<f64> {
    plan.profile
        .as_ref()
        .map(Profile::peak_per_s)
        .or(plan.rate_per_s)
}

/// The most arrivals expected within any stretch of `seconds`; none in the closed model. Of a replay an upper bound, by its
/// fullest second.
fn most_arrivals_within(plan: &Plan, seconds: f64) -> Option<f64> {
    let Some(profile) = &plan.profile else {
        let rate = plan.rate_per_s?;
        let wanted_s = plan
            .duration_s
            .unwrap_or_else(|| plan.requests.unwrap_or(0) as f64 / rate);
        return Some(rate * wanted_s.min(seconds));
    };
    let by = |at_s: f64| profile.expected_by(at_s);
    if let Profile::Replay(replay) = profile {
        let n = plan.requests.unwrap_or(0) as f64;
        return Some(n.min(replay.peak_per_s as f64 * seconds.ceil()));
    }
    // Rates change in straight lines, so the fullest stretch begins or ends where one of them does.
    let ends = profile.stretches().into_iter().flat_map(|stretch| {
        let (from, to) = (stretch.from_s, stretch.from_s + stretch.length_s);
        [from, to - seconds, from - seconds, to]
    });
    ends.filter_map(|from_s| Some(by(from_s + seconds)? - by(from_s)?))
        .reduce(f64::max)
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
