//! Computes the local ports and open files that a plan needs, before any request is sent.
//!
//! If the client closes a connection first, the local port stays in TIME_WAIT (RFC 9293, section
//! 3.6). On Linux this state lasts for 60 s, unless `tcp_tw_reuse` lets a new connection use the
//! port earlier.

use floodmark_record::plan::{
    Backend, CloseFirst, ConnectionUse, Plan, Schedule, Sources, expected_by,
};
use floodmark_record::units::{show_count, show_rate};

use crate::schedule::arrivals_before;
use crate::thread::HELD_BACK_COALESCING;

/// Duration of TIME_WAIT on Linux in seconds (`TCP_TIMEWAIT_LEN`), which is not configurable.
pub const TIME_WAIT_S: f64 = 60.0;

/// Number of file descriptors that a worker needs in addition to its connections, such as standard
/// streams, epoll and files.
pub const OTHER_FDS: u64 = 64;

/// The place where a load process keeps its sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketLocation {
    /// The descriptor table of the process.
    Files,
    /// Socket tables in io_uring, one per thread. Sockets in these tables are not open files.
    /// However, the limit on open files also limits the size of each table.
    Tables,
}

/// A process's limit on open files, before and after the process raised the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimit {
    /// The limit before it was raised.
    pub before: u64,
    /// The limit after it was raised.
    pub now: u64,
}

/// The resources of this host. `None` means that a limit is unknown and is not applied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Offer {
    /// Number of local ports for each pair of a source address and a target address.
    pub ports: Option<u64>,
    /// The hard limit on open files for the worker.
    pub fds: Option<u64>,
    /// Location of the worker's sockets.
    pub sockets: SocketLocation,
    /// Time in seconds for which a port is unavailable after the client has closed a connection
    /// first.
    pub time_wait_s: Option<f64>,
}

/// Returns the time in seconds for which TIME_WAIT blocks a client's port.
/// `tw_reuse` is the value of `tcp_tw_reuse`: 0 (never), 1 (always) or 2 (on loopback only).
/// `reuse_delay_s` is the time after which a port can be reused.
#[must_use]
pub fn time_wait_s(tw_reuse: u64, reuse_delay_s: f64, loopback: bool) -> f64 {
    match (tw_reuse, loopback) {
        (1, _) | (2, true) => reuse_delay_s.min(TIME_WAIT_S),
        _ => TIME_WAIT_S,
    }
}

/// Returns the total number of ports. Each pair of a source address and a target address can use
/// every local port.
/// Returns `None` if the number is unknown, or if connections need no ports (unix sockets).
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

/// Returns the maximum number of concurrent connections, which depends on the local ports and the
/// limit on open files. Returns `None` if both are unknown.
#[must_use]
pub fn most_connections(plan: &Plan, offer: &Offer) -> Option<u64> {
    let sockets = offer.fds.map(|fds| most_sockets(plan, offer.sockets, fds));
    ports_in_all(plan, offer).into_iter().chain(sockets).min()
}

fn most_sockets(plan: &Plan, sockets: SocketLocation, fds: u64) -> u64 {
    let (closes, rings) = held_back(plan);
    match sockets {
        SocketLocation::Files => {
            let left = fds.saturating_sub(OTHER_FDS + rings);
            left - closes.min(left.div_ceil(2))
        }
        SocketLocation::Tables => fds.saturating_mul(plan.threads.max(1).into()),
    }
}

/// Returns the maximum number of closes that a plan's threads delay while they open the next
/// connections, and the number of open files for the backend's rings (one per thread).
fn held_back(plan: &Plan) -> (u64, u64) {
    let threads = u64::from(plan.threads.max(1));
    match plan.backend {
        Backend::Epoll => (0, 0),
        Backend::Uring => (HELD_BACK_COALESCING as u64 * threads, threads),
    }
}

/// Returns the limit on open files that a plan needs.
#[must_use]
pub fn files_needed(plan: &Plan, sockets: SocketLocation) -> u64 {
    let connections = u64::from(plan.connections);
    let (closes, rings) = held_back(plan);
    let others = OTHER_FDS + rings;
    match sockets {
        // The number of delayed closes cannot exceed the number of connections.
        SocketLocation::Files => connections + connections.min(closes) + others,
        SocketLocation::Tables => connections.div_ceil(plan.threads.max(1).into()).max(others),
    }
}

/// Explains why a plan's connections cannot all have a socket at the same time.
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
        SocketLocation::Files => format!(
            "{asked} connections need {} open files, but the limit is {allowed}; raise it (ulimit -n {}) or use -c {most}",
            show_count(files_needed(plan, offer.sockets)),
            files_needed(plan, offer.sockets),
        ),
        SocketLocation::Tables => {
            let each = u64::from(plan.connections.div_ceil(plan.threads.max(1)));
            format!(
                "{asked} connections need {} sockets per load thread, but the limit on open files ({allowed}) also limits the \
                 thread's io_uring table; use -t {}, raise the limit (ulimit -n {each}) or use -c {most}",
                show_count(each),
                connections.div_ceil(fds.max(1)),
            )
        }
    })
}

/// Returns the sustainable rate of new connections per second if the client enters TIME_WAIT.
#[must_use]
pub fn connections_per_s(plan: &Plan, offer: &Offer) -> Option<f64> {
    let client_holds =
        plan.connection_use != ConnectionUse::Kept && plan.close_first == CloseFirst::Client;
    client_holds
        .then(|| Some(ports_in_all(plan, offer)? as f64 / offer.time_wait_s?))
        .flatten()
}

/// Explains why a plan cannot run on this host, including the calculation and a fix.
/// Returns `None` if the plan can run, or if the relevant limits are unknown.
#[must_use]
pub fn shortage(plan: &Plan, offer: &Offer) -> Option<String> {
    let connections = u64::from(plan.connections);
    // Unless connections are held, the open model opens only the connections it needs.
    let all_at_once = !plan.is_open() || plan.hold();
    if let Some(shortage) = too_few_files(plan, offer).filter(|_| all_at_once) {
        return Some(shortage);
    }
    let ports = ports_in_all(plan, offer)?;
    if all_at_once && connections > ports {
        return Some(format!(
            "{} connections need one local port each, but only {} are available; add source addresses (--sources) or use -c {}",
            show_count(connections),
            show_count(ports),
            ports.max(1)
        ));
    }
    let (per_s, time_wait_s) = (connections_per_s(plan, offer)?, offer.time_wait_s?);
    let uses = match plan.connection_use {
        ConnectionUse::PerConnection(n) => n.max(1) as f64,
        _ => 1.0,
    };
    let schedule = plan.schedule()?;
    let rate = schedule.peak_per_s() / uses;
    let held = most_arrivals_within(schedule, time_wait_s) / uses;
    (held > ports as f64).then(|| {
        format!(
            "{} new connections per second, closed by the client, hold {} local ports in TIME_WAIT for {} s each, but only {} are available, \
             enough for {}/s; add source addresses (--sources), let the server close (--close-first server), or reuse connections",
            show_rate(rate),
            show_count(arrivals_before(held)),
            show_rate(time_wait_s),
            show_count(ports),
            show_rate(per_s)
        )
    })
}

/// Returns the maximum number of arrivals expected within any interval of `seconds`.
/// For a replay, the result is an upper bound computed from the busiest second.
fn most_arrivals_within(schedule: &Schedule, seconds: f64) -> f64 {
    if let Schedule::Replay { replay, requests } = schedule {
        return (*requests as f64).min(replay.peak_per_s as f64 * seconds.ceil());
    }
    let segments = schedule.segments();
    let by = |at_s: f64| expected_by(&segments, at_s).unwrap_or(0.0);
    // Rates change linearly, so the busiest interval starts or ends at a segment's boundary.
    let ends = segments.iter().flat_map(|segment| {
        let (from, to) = (segment.from_s, segment.from_s + segment.length_s);
        [from, to - seconds, from - seconds, to]
    });
    ends.map(|from_s| by(from_s + seconds) - by(from_s))
        .fold(0.0, f64::max)
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
