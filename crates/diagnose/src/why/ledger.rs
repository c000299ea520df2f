//! Where requests were, and what each resource would allow.

use floodmark_record::verdict::{Ceiling, Ledger, LedgerEntry};

use super::facts::Facts;

/// Where requests were: those of whom a counter tells, the rest unexplained. Little's law: J. D. C. Little, "A Proof for the Queuing
/// Formula L = λW", Operations Research 9 (1961). None where the mean service time is not known.
pub(super) fn of(facts: &Facts<'_>) -> Option<Ledger> {
    let under_way = facts.under_way?;
    let run = facts.run;
    let mut places = Vec::new();
    let mut add = |place: &str, mean: Option<f64>, source: &str| {
        if let Some(mean) = mean {
            places.push(LedgerEntry {
                place: place.to_owned(),
                mean,
                source: source.to_owned(),
            });
        }
    };
    // One request is about as long as all are.
    let each = run.bytes.sent as f64 / run.requests.sent.max(1) as f64;
    let answer = run.bytes.received as f64 / run.requests.ok.max(1) as f64;
    let many = |bytes: Option<f64>, of: f64| bytes.filter(|_| of > 0.0).map(|bytes| bytes / of);
    add(
        "connected and not accepted by the server yet",
        facts.network.accept_queue,
        "listener accept_queue (sock_diag)",
    );
    add(
        "came to the server and not read yet",
        many(facts.network.unread_by_server, each),
        "server sockets receive_queue (sock_diag) over the size of a request",
    );
    if let Some(server) = &facts.server {
        add(
            "in the server, on a CPU",
            Some(server.used),
            "/proc/PID/stat",
        );
        add(
            "in the server, ready for a CPU",
            server.waiting,
            "schedstat run delay",
        );
    }
    for upstream in &facts.upstreams {
        add(
            &format!("in the server, waiting for {}", upstream.address),
            upstream.waiting,
            "sock_diag: sent last, and received before that",
        );
    }
    // Those that wait for the store are there, whatever it does with them.
    let told = facts
        .upstreams
        .iter()
        .any(|upstream| upstream.waiting.is_some());
    if let Some(store) = facts.store.as_ref().filter(|_| !told) {
        add("in the store, on a CPU", Some(store.used), "/proc/PID/stat");
        add(
            "in the store, ready for a CPU",
            store.waiting,
            "schedstat run delay",
        );
    }
    add(
        "answered and not read by the client yet",
        many(facts.network.unread_by_client, answer),
        "client sockets receive_queue (sock_diag) over the size of an answer",
    );
    add(
        "in the client, on a CPU",
        Some(facts.client.used),
        "the load threads' clocks",
    );
    add(
        "in the client, ready for a CPU",
        facts.client.waiting,
        "schedstat run delay",
    );
    let seen: f64 = places.iter().map(|place| place.mean).sum();
    Some(Ledger {
        under_way,
        places,
        unexplained: under_way - seen,
    })
}

/// What each resource would allow if nothing else were in the way, the lowest first.
pub(super) fn ceilings(facts: &Facts<'_>) -> Vec<Ceiling> {
    let mut ceilings = Vec::new();
    let mut add = |resource: String, used: f64, may_use: f64| {
        let demand_us = used / facts.answered_per_s * 1e6;
        if used > 0.0 && may_use > 0.0 && demand_us.is_finite() {
            ceilings.push(Ceiling {
                resource,
                demand: demand_us,
                unit: "µs of CPU".to_owned(),
                limit_per_s: facts.answered_per_s * may_use / used,
                used: used / may_use,
            });
        }
    };
    let threads = f64::from(facts.run.plan.threads).min(facts.client.may_use);
    let client = if facts.client.busiest.is_some() {
        threads
    } else {
        facts.client.may_use
    };
    add("the client's threads".to_owned(), facts.client.used, client);
    if let Some(server) = &facts.server {
        add("the server's CPUs".to_owned(), server.used, server.may_use);
        if let Some(busiest) = &server.busiest {
            add(
                format!("the server's thread {}", busiest.name),
                busiest.on_cpu,
                1.0,
            );
        }
    }
    if let Some(store) = &facts.store {
        add("the store's CPUs".to_owned(), store.used, store.may_use);
    }
    if let Some(busy) = facts.host_busy {
        add("all CPUs of the machine".to_owned(), busy, facts.cpus);
    }
    ceilings.sort_by(|a, b| a.limit_per_s.total_cmp(&b.limit_per_s));
    ceilings
}
