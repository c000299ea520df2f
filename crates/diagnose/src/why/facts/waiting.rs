//! What threads, connections to others and the store tell of where requests wait, as means over the window.

use super::Seen;

/// Threads of the server whose names differ only in their number.
#[derive(Debug, Clone, Default)]
pub struct ThreadKind {
    pub name: String,
    pub threads: f64,
    /// Those that did a fair share of what the busiest of them did.
    pub at_work: f64,
    /// Times that they gave the CPU up to wait, per second.
    pub waits_per_s: f64,
    /// CPUs that they used.
    pub on_cpu: f64,
    /// How many were found waiting in each function of the kernel, most first.
    pub waits_in: Vec<(String, f64)>,
}

impl ThreadKind {
    /// Threads that were found waiting in functions of which this holds.
    #[must_use]
    pub fn waiting_in(&self, holds: impl Fn(&str) -> bool) -> f64 {
        let of = self.waits_in.iter().filter(|(name, _)| holds(name));
        of.fold(0.0, |sum, (_, threads)| sum + threads)
    }
}

/// Connections that the server opened itself to one address.
#[derive(Debug, Clone, Default)]
pub struct Upstream {
    pub address: String,
    pub established: f64,
    /// Those that wait for an answer; none where most of them answer within a tick of the kernel.
    pub waiting: Option<f64>,
    /// Those that wait for an answer, or have had one within the tick of the kernel in which they asked.
    pub perhaps_waiting: f64,
}

/// Sessions of PostgreSQL.
#[derive(Debug, Clone, Default)]
pub struct Sessions {
    pub active: f64,
    pub waiting_for_locks: f64,
    /// Those that wait for their client between two statements of a transaction.
    pub idle_in_transaction: f64,
    /// Those whose commit waits for the log to reach the disk, or for another's to.
    pub committing: f64,
}

/// What Cassandra works on.
#[derive(Debug, Clone, Default)]
pub struct Calls {
    /// The most requests of its clients that it was found working on at once, of all readings of the load and its warm-up.
    pub most: f64,
    pub readings: usize,
    /// Statements that it executed per second.
    pub per_s: f64,
}

/// Events of sessions that wait for the write-ahead log (`pg_stat_activity`, "Wait Event" tables of the manual).
const COMMITTING: [&str; 4] = [
    "waiting IO:WALSync",
    "waiting IO:WALWrite",
    "waiting LWLock:WALWrite",
    "waiting IPC:SyncRep",
];

/// The kinds of the server's threads.
pub(super) fn kinds(seen: &Seen<'_>) -> Vec<ThreadKind> {
    const OF: &str = "server threads";
    let all = seen.run.observations.iter().filter(|o| o.subject == OF);
    let metrics: Vec<&str> = all.map(|o| o.metric.as_str()).collect();
    let names = metrics.iter().filter_map(|m| m.strip_suffix(" threads"));
    names
        .map(|name| {
            let level = |what: &str| seen.level(OF, &format!("{name} {what}")).unwrap_or(0.0);
            let rate = |what: &str| seen.rate(OF, &format!("{name} {what}")).unwrap_or(0.0);
            let functions = metrics.iter().filter_map(|metric| {
                let function = metric.strip_prefix(name)?.strip_prefix(" in ")?;
                let largest = function.ends_with(".max");
                (!largest).then(|| (function.to_owned(), seen.level(OF, metric).unwrap_or(0.0)))
            });
            let mut waits_in: Vec<(String, f64)> = functions.collect();
            waits_in.sort_by(|a, b| b.1.total_cmp(&a.1));
            ThreadKind {
                name: name.to_owned(),
                threads: level("threads"),
                at_work: level("at work"),
                waits_per_s: rate("waits"),
                on_cpu: rate("on_cpu"),
                waits_in,
            }
        })
        .collect()
}

/// Where the server's own connections go.
pub(super) fn upstreams(seen: &Seen<'_>) -> Vec<Upstream> {
    const OF: &str = "server upstreams";
    let all = seen.run.observations.iter().filter(|o| o.subject == OF);
    let addresses = all.filter_map(|o| o.metric.strip_suffix(" established"));
    addresses
        .map(|address| {
            let level = |what: &str| seen.level(OF, &format!("{address} {what}")).unwrap_or(0.0);
            let established = level("established");
            let known = established - level("waiting or not");
            Upstream {
                address: address.to_owned(),
                established,
                perhaps_waiting: level("waiting") + level("waiting or not"),
                waiting: (known >= established / 2.0 && known > 0.0)
                    .then(|| level("waiting") * established / known),
            }
        })
        .filter(|upstream| upstream.established > 0.0)
        .collect()
}

/// PostgreSQL's sessions, where it could be asked.
pub(super) fn sessions(seen: &Seen<'_>) -> Option<Sessions> {
    let level = |metric: &str| seen.level("postgresql", metric);
    Some(Sessions {
        active: level("active")?,
        waiting_for_locks: level("waiting for locks").unwrap_or(0.0),
        idle_in_transaction: level("idle in transaction").unwrap_or(0.0),
        committing: COMMITTING
            .iter()
            .filter_map(|event| level(event))
            .fold(0.0, |sum, sessions| sum + sessions),
    })
}

/// What Cassandra works on, where it could be asked.
pub(super) fn calls(seen: &Seen<'_>) -> Option<Calls> {
    const ACTIVE: &str = "Native-Transport-Requests active";
    // Of a series that was thinned out a value is the mean of several readings, and the largest of them stands beside it.
    let active = seen
        .series("cassandra", &format!("{ACTIVE}.max"))
        .or_else(|| seen.series("cassandra", ACTIVE))?;
    Some(Calls {
        most: active.values.iter().copied().fold(0.0, f64::max),
        readings: active.values.len(),
        per_s: seen.rate("cassandra", "prepared_statements_executed")?,
    })
}
