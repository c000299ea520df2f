//! Places where requests wait: threads, upstream connections and the store, as means over the
//! window.

use floodmark_record::Metric;
use floodmark_record::metric::{PostgresqlFigure, Role, ThreadGroupFigure, UpstreamFigure};

use super::WindowSamples;

/// Threads of the server whose names differ only in a trailing number.
#[derive(Debug)]
pub struct ThreadGroupFacts {
    pub name: String,
    pub threads: f64,
    /// Number of threads that are at least a fifth as active as the busiest thread.
    pub at_work: f64,
    /// Voluntary context switches per second.
    pub waits_per_s: f64,
    pub on_cpu: f64,
    /// Mean number of threads that wait in each kernel function, in descending order.
    pub waits_in: Vec<(String, f64)>,
}

impl ThreadGroupFacts {
    /// Returns the number of threads that wait in the given kernel functions.
    #[must_use]
    pub fn waiting_in(&self, holds: impl Fn(&str) -> bool) -> f64 {
        let of = self.waits_in.iter().filter(|(name, _)| holds(name));
        of.fold(0.0, |sum, (_, threads)| sum + threads)
    }
}

/// Connections from the server to one address.
#[derive(Debug)]
pub struct UpstreamFacts {
    pub address: String,
    pub established: f64,
    /// Number of connections that are waiting for a response. `None` if most responses arrive
    /// within one clock tick.
    pub waiting: Option<f64>,
    /// Number of connections that are waiting for a response or received one within a clock tick of
    /// the request.
    pub perhaps_waiting: f64,
}

/// Mean number of PostgreSQL sessions in each state.
#[derive(Debug)]
pub struct DatabaseSessions {
    pub active: f64,
    pub waiting_for_locks: f64,
    /// Sessions in a transaction that wait for their client.
    pub idle_in_transaction: f64,
    /// Sessions whose commit waits for the write-ahead log.
    pub committing: f64,
}

/// Wait events of sessions that write or sync the write-ahead log (PostgreSQL manual, "Wait Event"
/// tables).
const COMMITTING: [&str; 4] = [
    "IO:WALSync",
    "IO:WALWrite",
    "LWLock:WALWrite",
    "IPC:SyncRep",
];

/// Returns the thread groups of the server.
pub(super) fn thread_groups(samples: &WindowSamples<'_>) -> Vec<ThreadGroupFacts> {
    let group_facts = |group: &String| {
        let of = |figure| Metric::ThreadGroup(Role::Server, group.clone(), figure);
        let level = |metric| samples.level(metric).unwrap_or(0.0);
        let rate = |figure| samples.mean(of(figure)).unwrap_or(0.0);
        let functions = samples.metrics().filter_map(|metric| match metric {
            Metric::ThreadsWaitingIn {
                role: Role::Server,
                group: of,
                function,
            } if of == group => Some((function.clone(), level(metric.clone()))),
            _ => None,
        });
        let mut waits_in: Vec<(String, f64)> = functions.collect();
        waits_in.sort_by(|a, b| b.1.total_cmp(&a.1));
        ThreadGroupFacts {
            name: group.clone(),
            threads: level(of(ThreadGroupFigure::Threads)),
            at_work: level(of(ThreadGroupFigure::Working)),
            waits_per_s: rate(ThreadGroupFigure::Waits),
            on_cpu: rate(ThreadGroupFigure::OnCpu),
            waits_in,
        }
    };
    let groups = samples.metrics().filter_map(|metric| match metric {
        Metric::ThreadGroup(Role::Server, group, ThreadGroupFigure::Threads) => Some(group),
        _ => None,
    });
    groups.map(group_facts).collect()
}

/// Returns the connections that the server opened, grouped by address.
pub(super) fn upstreams(samples: &WindowSamples<'_>) -> Vec<UpstreamFacts> {
    let upstream_facts = |metric: &Metric| {
        let Metric::Upstream(address, UpstreamFigure::Established) = metric else {
            return None;
        };
        let level = |figure| {
            samples
                .level(Metric::Upstream(*address, figure))
                .unwrap_or(0.0)
        };
        let established = level(UpstreamFigure::Established);
        let waiting = level(UpstreamFigure::Waiting);
        let perhaps = level(UpstreamFigure::PerhapsWaiting);
        let known = established - perhaps;
        (established > 0.0).then(|| UpstreamFacts {
            address: address.to_string(),
            established,
            perhaps_waiting: waiting + perhaps,
            waiting: (known >= established / 2.0 && known > 0.0)
                .then(|| waiting * established / known),
        })
    };
    samples.metrics().filter_map(upstream_facts).collect()
}

/// Returns the PostgreSQL sessions, or `None` if they were not sampled.
pub(super) fn sessions(samples: &WindowSamples<'_>) -> Option<DatabaseSessions> {
    let level = |figure| samples.level(Metric::Postgresql(figure));
    let committing = COMMITTING
        .iter()
        .filter_map(|event| samples.level(Metric::PostgresqlWait((*event).to_owned())));
    Some(DatabaseSessions {
        active: level(PostgresqlFigure::Active)?,
        waiting_for_locks: level(PostgresqlFigure::WaitingForLocks).unwrap_or(0.0),
        idle_in_transaction: level(PostgresqlFigure::IdleInTransaction).unwrap_or(0.0),
        // Start the sum at 0, because an empty sum of floats is -0.
        committing: committing.fold(0.0, |sum, sessions| sum + sessions),
    })
}
