//! The locations of requests in flight, and the upper bound that each resource sets.

use floodmark_record::metric::{ListenerFigure, Role, SocketFigure};
use floodmark_record::verdict::{Ceiling, Ledger, LedgerEntry};

use super::facts::RunFacts;

/// Returns the mean number of requests in flight, in total and at each location. Returns `None` if
/// the mean service time is unknown.
///
/// Little's law: J. D. C. Little, "A Proof for the Queuing Formula L = λW", Operations Research 9
/// (1961).
pub(super) fn of(facts: &RunFacts<'_>) -> Option<Ledger> {
    let in_flight = facts.in_flight?;
    let run = facts.run;
    // Assume that responses have similar sizes.
    let response = run.bytes.received as f64 / run.requests.ok.max(1) as f64;
    let received = facts
        .samples
        .sockets(Role::Client, SocketFigure::ReceiveQueue);
    let received = received.filter(|_| response > 0.0);
    let mut places = Vec::new();
    let mut add = |place: &str, mean: Option<f64>, source: &str| {
        places.extend(mean.map(|mean| LedgerEntry {
            place: place.to_owned(),
            mean,
            source: source.to_owned(),
        }));
    };
    let queue = facts.samples.listener(ListenerFigure::AcceptQueue);
    let source = "listener accept_queue (sock_diag)";
    add("in the server's accept queue", queue, source);
    // Requests on connections in the accept queue are unread too.
    let unread = facts.unread();
    let unread = unread.map(|unread| (unread - queue.unwrap_or(0.0)).max(0.0));
    add(
        "received by the server's kernel, not yet read",
        unread,
        "server sockets receive_queue (sock_diag) ÷ mean request size",
    );
    const ON_CPU: &str = "/proc/PID/stat";
    const RUNNABLE: &str = "schedstat run delay";
    if let Some(server) = &facts.server {
        add("in the server, on a CPU", Some(server.used), ON_CPU);
        add("in the server, runnable", server.runnable, RUNNABLE);
    }
    for upstream in &facts.upstreams {
        add(
            &format!("in the server, waiting for {}", upstream.address),
            upstream.waiting,
            "connections whose last send follows their last receive (sock_diag)",
        );
    }
    // Requests that are waiting for the store include those that the store is working on.
    let waits_known = facts.upstreams.iter().any(|one| one.waiting.is_some());
    if let Some(store) = facts.store.as_ref().filter(|_| !waits_known) {
        add("in the store, on a CPU", Some(store.used), ON_CPU);
        add("in the store, runnable", store.runnable, RUNNABLE);
    }
    add(
        "received by the client's kernel, not yet read",
        received.map(|bytes| bytes / response),
        "client sockets receive_queue (sock_diag) ÷ mean response size",
    );
    let client = &facts.client;
    let clocks = "CPU clocks of the client threads";
    add("in the client, on a CPU", Some(client.used), clocks);
    add("in the client, runnable", client.runnable, RUNNABLE);
    let observed: f64 = places.iter().map(|place| place.mean).sum();
    Some(Ledger {
        under_way: in_flight,
        places,
        unexplained: in_flight - observed,
    })
}

/// Returns the upper bound that each resource sets on throughput, lowest first.
pub(super) fn ceilings(facts: &RunFacts<'_>) -> Vec<Ceiling> {
    let mut ceilings = Vec::new();
    let mut add = |resource: &str, used: f64, cpus: f64| {
        let demand_us = used / facts.responses_per_s * 1e6;
        if used > 0.0 && cpus > 0.0 && demand_us.is_finite() {
            ceilings.push(Ceiling {
                resource: resource.to_owned(),
                demand: demand_us,
                unit: "µs of CPU".to_owned(),
                limit_per_s: facts.responses_per_s * cpus / used,
                used: used / cpus,
            });
        }
    };
    let client = &facts.client;
    let threads = match client.busiest {
        Some(_) => facts.client_threads(),
        None => f64::INFINITY,
    };
    add(
        "the client's threads",
        client.used,
        client.allowed.min(threads),
    );
    if let Some(server) = &facts.server {
        add("the server's CPUs", server.used, server.allowed);
    }
    if let Some(thread) = facts.busiest_thread() {
        add(
            &format!("server thread {}", thread.name),
            thread.on_cpu,
            1.0,
        );
    }
    if let Some(store) = &facts.store {
        add("the store's CPUs", store.used, store.allowed);
    }
    let is_server_here = facts.server.is_some() && facts.run.remote.is_none();
    let is_used = facts.client_here.is_some() || is_server_here;
    if let Some(busy) = facts.host_busy.filter(|_| is_used) {
        add("all CPUs of the host", busy, facts.allowed.client_host);
    }
    ceilings.sort_by(|a, b| a.limit_per_s.total_cmp(&b.limit_per_s));
    ceilings
}
