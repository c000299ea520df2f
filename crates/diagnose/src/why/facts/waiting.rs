//! Places where requests wait: connections, threads, upstream connections and the store. All
//! figures are means over the window.

use std::net::SocketAddr;

use floodmark_record::Metric;
use floodmark_record::metric::{
    ListenerFigure, NetworkFigure, PostgresqlFigure, ProcessFigure, Role, ThreadGroupFigure,
    UpstreamFigure, WaitKind, WaitObject,
};

use super::{RunFacts, WindowSamples};
use crate::why::thresholds::{LONG_WAIT_S, MOST, NOTICEABLE, RARE, REOPENED, SATURATED};

/// Established connections that the server has not accepted yet.
pub struct AcceptQueue {
    /// Mean number of waiting connections.
    pub waiting: f64,
    /// Whether many connections are waiting, and for longer than ordinary scheduling delays can
    /// explain.
    pub is_long: bool,
    /// Whether the server is at its limit on open files.
    pub is_out_of_files: bool,
    /// Description of the queue.
    pub figure: String,
    /// Description of the server's open files, if known.
    pub files: Option<String>,
}

impl RunFacts<'_> {
    /// Returns the connections that are waiting to be accepted, or `None` if they were not sampled.
    pub fn accept_queue(&self) -> Option<AcceptQueue> {
        let waiting = self.samples.listener(ListenerFigure::AcceptQueue)?;
        let files = |figure| self.samples.level(Metric::Process(Role::Server, figure));
        let files = files(ProcessFigure::OpenFiles).zip(files(ProcessFigure::OpenFilesLimit));
        let run = self.run;
        // If connections are short-lived, some connections are always in the queue.
        let short_lived = self.has_short_connections();
        let many = waiting >= NOTICEABLE * f64::from(run.plan.connections) && waiting >= 1.0;
        Some(AcceptQueue {
            waiting,
            is_long: many && !(short_lived && self.accept_wait_s(waiting) < LONG_WAIT_S),
            is_out_of_files: files.is_some_and(|(open, limit)| open >= SATURATED * limit),
            figure: format!(
                "{waiting:.1} connections waited to be accepted on average (sock_diag)"
            ),
            files: files.map(|(open, limit)| {
                format!(
                    "server: {open:.0} of {limit:.0} files open (/proc/PID/fd, /proc/PID/limits)"
                )
            }),
        })
    }

    /// Returns the mean time that a connection waits to be accepted, in seconds, from the mean
    /// number of waiting connections (Little's law).
    pub fn accept_wait_s(&self, waiting: f64) -> f64 {
        waiting * self.run.sending_s / self.opened().max(1.0)
    }

    /// Returns whether most connections serve only a few requests.
    pub fn has_short_connections(&self) -> bool {
        self.opened() >= REOPENED * self.run.requests.sent as f64
    }

    /// Returns the number of connections that the client opened, excluding those that ended with a
    /// failed request and those that replaced them.
    fn opened(&self) -> f64 {
        let broken = 2 * self.broken_connections();
        self.run.connections.opened.saturating_sub(broken) as f64
    }

    /// Returns the number of connections that ended with a failed request.
    pub fn broken_connections(&self) -> u64 {
        let counts = &self.run.requests;
        counts.reset + counts.timed_out + counts.malformed
    }

    /// Returns the number of connections per second that processes other than the client opened. If
    /// all roles share a network namespace, the client's connections are subtracted.
    pub fn opened_by_others(&self) -> Option<f64> {
        let opens = |role| {
            let metric = Metric::Network(role, NetworkFigure::ActiveOpens);
            self.samples.mean(metric)
        };
        let run = self.run;
        let own = run.connections.opened as f64 / run.sending_s.max(f64::MIN_POSITIVE);
        opens(Some(Role::Server)).or_else(|| Some((opens(None)? - own).max(0.0)))
    }

    /// Returns how often the error `name` occurred in the run.
    pub fn client_errors(&self, name: &str) -> u64 {
        self.run.errors.get(name).copied().unwrap_or(0)
    }

    /// Returns whether failed connections are frequent enough to limit throughput.
    pub fn affects(&self, failed: u64) -> bool {
        failed > 0 && failed as f64 >= RARE * self.run.requests.intended as f64
    }
}

/// Threads of the server whose names differ only in a trailing number. All numbers of threads are
/// means.
pub struct ThreadGroupFacts {
    pub name: String,
    pub threads: f64,
    /// Number of threads that are at least a fifth as active as the busiest thread; all
    /// threads if this is unknown.
    pub at_work: f64,
    /// Voluntary context switches per second.
    pub waits_per_s: f64,
    /// CPUs used.
    pub on_cpu: f64,
    /// CPUs used in system calls that write a file to disk, such as fsync. Part of `on_cpu`.
    /// `None` if unknown.
    pub in_file_sync: Option<f64>,
    pub runnable: f64,
    /// Number of threads that are waiting for each object, in descending order.
    pub blocked: Vec<(WaitObject, f64)>,
}

impl ThreadGroupFacts {
    /// Returns the share of CPU time and run delay in system calls that write files to disk. Assumes
    /// the same share for both. Returns 0 if it is unknown.
    pub fn file_sync_share(&self) -> f64 {
        self.in_file_sync.unwrap_or(0.0) / self.on_cpu.max(f64::MIN_POSITIVE)
    }

    /// Returns the number of active threads that are waiting for a lock. Assumes that all inactive
    /// threads wait for locks.
    pub fn active_locks(&self) -> f64 {
        let locks = self.untimed_locks() + self.blocked_on_kind(WaitKind::TimedLock);
        (locks - self.inactive()).max(0.0)
    }

    /// Returns the number of threads that are waiting for the given objects.
    pub fn blocked_on(&self, is: impl Fn(&WaitObject) -> bool) -> f64 {
        let of = self.blocked.iter().filter(|(object, _)| is(object));
        of.fold(0.0, |sum, (_, threads)| sum + threads)
    }

    /// Returns the number of threads, except the main threads of processes that only supervise
    /// other processes. Such a main thread waits for a signal, or stays inactive while it waits for
    /// data in a pipe.
    pub fn workers(&self) -> f64 {
        let inactive = self.inactive_on(WaitKind::PipeRead);
        self.threads - self.blocked_on_kind(WaitKind::Signal) - inactive
    }

    /// Returns the number of workers, except those that stay inactive while they wait for an event,
    /// such as an administrative thread.
    pub fn pool_threads(&self) -> f64 {
        let supervising = self.threads - self.workers();
        let others = (self.inactive() - supervising).max(0.0);
        self.workers() - others.min(self.blocked_on_kind(WaitKind::Events))
    }

    /// Returns the number of threads that are less than a fifth as active as the busiest thread.
    fn inactive(&self) -> f64 {
        (self.threads - self.at_work).max(0.0)
    }

    /// Returns the number of inactive threads that are waiting for an object of this kind.
    pub fn inactive_on(&self, kind: WaitKind) -> f64 {
        self.inactive().min(self.blocked_on_kind(kind))
    }

    /// Returns the number of inactive threads that are waiting for a lock with a timeout, such as a
    /// thread that supervises processes. Assumes that inactive threads wait for other objects
    /// first.
    pub fn inactive_on_timed_locks(&self) -> f64 {
        let timed = self.blocked_on_kind(WaitKind::TimedLock);
        let others = self.blocked_on(|object| *object != WaitObject::Kind(WaitKind::TimedLock));
        (self.inactive() - others).clamp(0.0, timed)
    }

    /// Returns the number of threads that are waiting, without a timeout, for a lock or a
    /// condition.
    pub fn untimed_locks(&self) -> f64 {
        use WaitKind::{FileLock, OwnLock};
        self.blocked_on(|object| {
            matches!(
                object,
                WaitObject::Kind(OwnLock | FileLock) | WaitObject::Lock(_)
            )
        })
    }

    /// Returns whether the object of any wait is known. A server of another user has no such waits.
    pub fn has_known_waits(&self) -> bool {
        let unknown = WaitObject::Kind(WaitKind::Other);
        self.blocked.iter().any(|(object, _)| *object != unknown)
    }

    /// Returns the number of threads that are waiting for files, and the path of the file that most
    /// of them are waiting for. Returns `None` unless these are at least a tenth of the threads, or
    /// most of the threads that wait for anything and at least a fiftieth of the threads.
    pub fn on_files(&self) -> Option<(f64, &str)> {
        fn known_path(object: &WaitObject) -> Option<&str> {
            path(object).filter(|path| !path.is_empty())
        }
        let all = self.blocked_on(|object| known_path(object).is_some());
        let is_most = all >= MOST * self.blocked_on(|_| true);
        let least = if is_most { RARE } else { NOTICEABLE };
        let is_main = all >= least * self.threads;
        let most = self
            .blocked
            .iter()
            .find_map(|(object, _)| known_path(object));
        most.filter(|_| is_main).map(|path| (all, path))
    }

    /// Returns the number of threads that are waiting for new work: a connection, a request or an
    /// event.
    pub fn idle(&self) -> f64 {
        use WaitKind::{Accept, ClientRead, Events};
        let kinds = [Accept, ClientRead, Events].iter();
        kinds.map(|kind| self.blocked_on_kind(*kind)).sum()
    }

    /// Returns whether the threads rarely wait for new work or for a lock.
    pub fn never_waits(&self) -> bool {
        let locks = self.untimed_locks() + self.blocked_on_kind(WaitKind::TimedLock);
        self.idle() + locks <= (1.0 - SATURATED) * self.workers() && !self.blocked.is_empty()
    }

    /// Returns the number of threads that are waiting for an object of this kind.
    pub fn blocked_on_kind(&self, kind: WaitKind) -> f64 {
        self.blocked_on(|object| *object == WaitObject::Kind(kind))
    }
}

/// Connections from the server to one address.
pub struct UpstreamFacts {
    pub address: SocketAddr,
    pub established: f64,
    /// Number of connections that are waiting for a response. `None` if most responses arrive
    /// within one clock tick.
    pub waiting: Option<f64>,
    /// Number of connections that are waiting for a response or received one within a clock tick of
    /// the request.
    pub perhaps_waiting: f64,
}

/// Mean number of PostgreSQL sessions in each state.
pub struct DatabaseSessions {
    pub active: f64,
    pub waiting_for_locks: f64,
    /// Sessions that are in a transaction and waiting for their client.
    pub idle_in_transaction: f64,
    /// Sessions whose commit is waiting for the write-ahead log.
    pub committing: f64,
}

impl DatabaseSessions {
    /// Returns the minimum number of waiting sessions that limits throughput: half of the sessions
    /// in use, but at least 0.5 on average. Sessions that are idle in a transaction count as in
    /// use.
    fn limiting(&self) -> f64 {
        (MOST * (self.active + self.idle_in_transaction)).max(MOST)
    }

    /// Returns whether the number of sessions waiting for locks is large enough to limit
    /// throughput.
    pub fn many_wait_for_locks(&self) -> bool {
        self.waiting_for_locks >= self.limiting()
    }

    /// Returns whether the number of committing sessions is large enough to limit throughput.
    pub fn many_commit(&self) -> bool {
        self.committing >= self.limiting()
    }

    /// Returns whether most lock holders are committing: on average, at least half a session is
    /// committing, and more sessions are committing than idle in a transaction.
    pub fn lock_holder_commits(&self) -> bool {
        self.committing >= MOST && self.committing > self.idle_in_transaction
    }
}

/// Returns whether a thread group consists of the JVM's compiler threads. The kernel truncates
/// thread names to 15 bytes.
pub fn is_compiler(name: &str) -> bool {
    ["C1 CompilerThre", "C2 CompilerThre"].contains(&name)
}

/// Wait events of sessions that write or sync the write-ahead log (PostgreSQL manual, "Wait Event"
/// tables).
const COMMITTING: [&str; 4] = [
    "IO:WALSync",
    "IO:WALWrite",
    "LWLock:WALWrite",
    "IPC:SyncRep",
];

/// Returns the thread groups of the server. `in_file_sync` is the number of CPUs that the server
/// uses in system calls that write a file to disk.
pub(super) fn thread_groups(
    samples: &WindowSamples<'_>,
    in_file_sync: Option<f64>,
) -> Vec<ThreadGroupFacts> {
    let group_facts = |group: &String| {
        let of = |figure| Metric::ThreadGroup(Role::Server, group.clone(), figure);
        let level = |metric| samples.level(metric).unwrap_or(0.0);
        let rate = |figure| samples.mean(of(figure)).unwrap_or(0.0);
        // If the threads' system calls cannot be read, use the kernel functions in which the
        // threads wait.
        let waits = |in_functions: bool| {
            let waits = samples.metrics().filter_map(|metric| {
                let (of, object) = match metric {
                    Metric::ThreadsBlocked {
                        role: Role::Server,
                        group,
                        object,
                    } if !in_functions => (group, object.clone()),
                    Metric::ThreadsWaitingIn {
                        role: Role::Server,
                        group,
                        function,
                    } if in_functions => (group, object_of(function)),
                    _ => return None,
                };
                (of == group).then(|| (object, level(metric.clone())))
            });
            Vec::from_iter(waits)
        };
        let mut blocked = waits(false);
        if blocked.is_empty() {
            blocked = waits(true);
        }
        blocked.sort_by(|a, b| b.1.total_cmp(&a.1));
        let threads = level(of(ThreadGroupFigure::Threads));
        let at_work = samples.level(of(ThreadGroupFigure::Working));
        ThreadGroupFacts {
            name: group.clone(),
            threads,
            at_work: at_work.unwrap_or(threads),
            waits_per_s: rate(ThreadGroupFigure::Waits),
            on_cpu: rate(ThreadGroupFigure::OnCpu),
            in_file_sync: None,
            runnable: rate(ThreadGroupFigure::RunDelay),
            blocked,
        }
    };
    let groups = samples.metrics().filter_map(|metric| match metric {
        Metric::ThreadGroup(Role::Server, group, ThreadGroupFigure::Threads) => Some(group),
        _ => None,
    });
    let mut groups: Vec<ThreadGroupFacts> = groups.map(group_facts).collect();
    if let Some(cpus) = in_file_sync {
        divide_file_sync(&mut groups, cpus);
    }
    groups
}

/// Divides the CPUs that the server uses in system calls that write a file to disk among its thread
/// groups: in proportion to the number of threads that are blocked on files, and the rest in
/// proportion to the CPU time.
fn divide_file_sync(groups: &mut [ThreadGroupFacts], cpus: f64) {
    let on_files = |group: &ThreadGroupFacts| group.blocked_on(|object| path(object).is_some());
    let all: f64 = groups.iter().map(on_files).sum();
    let parts = groups
        .iter()
        .map(|group| (cpus * on_files(group) / all.max(f64::MIN_POSITIVE)).min(group.on_cpu));
    let parts: Vec<f64> = parts.collect();
    let rest = cpus - parts.iter().sum::<f64>();
    let others: f64 = groups
        .iter()
        .zip(&parts)
        .map(|(group, part)| group.on_cpu - part)
        .sum();
    let share = (rest / others.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
    for (group, part) in groups.iter_mut().zip(parts) {
        group.in_file_sync = Some(part + share * (group.on_cpu - part));
    }
}

/// Returns the path of the file that a thread waits for. The path is empty if it is unknown.
fn path(object: &WaitObject) -> Option<&str> {
    match object {
        WaitObject::File(path) | WaitObject::AppendedFile(path) => Some(path),
        _ => None,
    }
}

/// Returns the object for which a thread waits in a kernel function. Used if the threads' system
/// calls cannot be read; locks, sockets and files then have no identity.
fn object_of(function: &str) -> WaitObject {
    const KINDS: [(WaitKind, &[&str]); 8] = [
        (WaitKind::OwnLock, &["futex"]),
        (
            WaitKind::FileLock,
            &["locks_lock_inode_wait", "fcntl_setlk"],
        ),
        (
            WaitKind::Events,
            &[
                "ep_poll",
                "do_epoll_wait",
                "do_poll",
                "poll_schedule",
                "do_select",
            ],
        ),
        (WaitKind::Timer, &["hrtimer_nanosleep", "do_nanosleep"]),
        (WaitKind::Accept, &["inet_csk_accept"]),
        (
            WaitKind::PipeWrite,
            &["pipe_write", "anon_pipe_write", "n_tty_write"],
        ),
        (WaitKind::PipeRead, &["pipe_read", "anon_pipe_read"]),
        (WaitKind::Child, &["do_wait", "kernel_wait"]),
    ];
    const DISK: [&str; 5] = [
        "jbd2_log_wait_commit",
        "folio_wait_bit_common",
        "wait_on_page_bit",
        "xfs_log_force",
        "submit_bio_wait",
    ];
    let starts = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
    if starts(&DISK) {
        return WaitObject::File(String::new());
    }
    let kind = KINDS.iter().find(|(_, names)| starts(names));
    WaitObject::Kind(kind.map_or(WaitKind::Other, |(kind, _)| *kind))
}

/// Returns the connections that the server opened, grouped by address.
pub(super) fn upstreams(samples: &WindowSamples<'_>) -> Vec<UpstreamFacts> {
    let upstream_facts = |metric: &Metric| {
        let Metric::Upstream(address, UpstreamFigure::Established) = metric else {
            return None;
        };
        let level = |figure| samples.level(Metric::Upstream(*address, figure));
        let level = |figure| level(figure).unwrap_or(0.0);
        let established = level(UpstreamFigure::Established);
        let waiting = level(UpstreamFigure::Waiting);
        let perhaps = level(UpstreamFigure::PerhapsWaiting);
        let known = established - perhaps;
        (established > 0.0).then(|| UpstreamFacts {
            address: *address,
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
