//! Metrics that samplers observe, each with a subject, a name, a unit and a kind.
//!
//! A record stores a metric as three strings.
//! Only [`Metric::parse`] and the adjacent methods convert between a metric and its strings.

mod figures;

use std::borrow::Cow;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use figures::{
    CassandraFigure, CgroupFigure, CodeFigure, DiskFigure, HostFigure, JvmFigure, ListenerFigure,
    MetricKind, NetworkFigure, PoolFigure, PostgresqlFigure, ProcessFigure, SocketFigure,
    TableFigure, TableOperation, TcpInfoFigure, ThreadGroupFigure, UpstreamFigure,
};

crate::names::named! {
    /// A role in a measurement.
    Role {
        /// The load process.
        Client = "client",
        /// The server under test.
        Server = "server",
        /// The database behind the server.
        Store = "store",
    }
}

/// A metric that a sampler observes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(from = "StoredMetric", into = "StoredMetric")]
pub enum Metric {
    /// The client's host, or the server's host if the server runs on another host.
    Host(Option<Role>, HostFigure),
    /// The network namespace of floodmark or of a role.
    Network(Option<Role>, NetworkFigure),
    /// The control group of floodmark or of a role.
    Cgroup(Option<Role>, CgroupFigure),
    /// The disks of the client's host, or of the server's host if the server runs on another host.
    Disk(Option<Role>, DiskFigure),
    /// A process tree.
    Process(Role, ProcessFigure),
    /// A thread group of a process tree.
    ThreadGroup(Role, String, ThreadGroupFigure),
    /// Threads of a group that wait in a kernel function.
    ThreadsWaitingIn {
        /// Role of the process tree.
        role: Role,
        /// Name of the thread group.
        group: String,
        /// Kernel function.
        function: String,
    },
    /// Number of threads of a group that wait for an object: the mean since the previous value.
    ThreadsBlocked {
        /// Role of the process tree.
        role: Role,
        /// Name of the thread group.
        group: String,
        /// Object for which the threads wait.
        object: WaitObject,
    },
    /// Code that a process tree executes in user mode.
    Code(Role, CodeFigure),
    /// A HotSpot JVM.
    Jvm(Role, JvmFigure),
    /// One end of the connections to the target.
    Sockets(Role, SocketFigure),
    /// A few established connections to the target.
    TcpInfo(TcpInfoFigure),
    /// The target's listening sockets.
    Listener(ListenerFigure),
    /// Connections that the server opened to an address.
    Upstream(SocketAddr, UpstreamFigure),
    /// A PostgreSQL server.
    Postgresql(PostgresqlFigure),
    /// PostgreSQL sessions that wait for an event. The string is `TYPE:EVENT`.
    PostgresqlWait(String),
    /// A Cassandra node.
    Cassandra(CassandraFigure),
    /// A thread pool of a Cassandra node.
    CassandraPool(String, PoolFigure),
    /// Operations on a Cassandra table. The string is `KEYSPACE.TABLE`; `None` stands for all other
    /// tables.
    CassandraTable(TableOperation, Option<String>, TableFigure),
    /// CPU time of floodmark's delay proxy.
    DelayProxyCpu,
    /// A metric that this version does not know, kept as it appears in the record.
    Other {
        /// Subject.
        subject: String,
        /// Name.
        name: String,
        /// Unit of the values.
        unit: String,
    },
}

/// Formats a subject for display: abbreviations are spelled as in text, and the first letter is
/// uppercase.
fn readable(subject: &str) -> String {
    let words = subject.split(' ').map(|word| match word {
        "jvm" => "JVM",
        "cgroup" => "control group",
        "tcp_info" => "TCP",
        "postgresql" => "PostgreSQL",
        word => word,
    });
    let text = words.collect::<Vec<_>>().join(" ");
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

/// Returns a text with a lowercase first letter, unless it starts with an abbreviation.
fn lowercase_first(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

const OF_OTHER_TABLES: &str = "of other tables";

const OF_SLOWEST_OTHER_TABLE: &str = "of the slowest other table";

impl Metric {
    /// Returns the subject in a record.
    #[must_use]
    pub fn subject(&self) -> Cow<'_, str> {
        let scoped = |scope: &Option<Role>, of: &'static str| match scope {
            None => Cow::Borrowed(of),
            Some(role) => format!("{role} {of}").into(),
        };
        match self {
            Self::Host(scope, _) => scoped(scope, "host"),
            Self::Network(scope, _) => scoped(scope, "network"),
            Self::Cgroup(scope, _) => scoped(scope, "cgroup"),
            Self::Disk(scope, _) => scoped(scope, "disk"),
            Self::Process(role, _) => role.name().into(),
            Self::ThreadGroup(role, ..)
            | Self::ThreadsWaitingIn { role, .. }
            | Self::ThreadsBlocked { role, .. } => scoped(&Some(*role), "threads"),
            Self::Code(role, _) => scoped(&Some(*role), "code"),
            Self::Jvm(Role::Server, _) => "jvm".into(),
            Self::Jvm(role, _) => scoped(&Some(*role), "jvm"),
            Self::Sockets(role, _) => scoped(&Some(*role), "sockets"),
            Self::TcpInfo(_) => "tcp_info".into(),
            Self::Listener(_) => "listener".into(),
            Self::Upstream(..) => "server upstreams".into(),
            Self::Postgresql(_) | Self::PostgresqlWait(_) => "postgresql".into(),
            Self::Cassandra(_) | Self::CassandraPool(..) | Self::CassandraTable(..) => {
                "cassandra".into()
            }
            Self::DelayProxyCpu => "delay proxy".into(),
            Self::Other { subject, .. } => subject.into(),
        }
    }

    /// Returns the name in a record.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            Self::ThreadGroup(_, group, figure) => format!("{group} {}", figure.name()).into(),
            Self::ThreadsWaitingIn {
                group, function, ..
            } => format!("{group} in {function}").into(),
            Self::ThreadsBlocked { group, object, .. } => {
                format!("{group} on {}", object.name()).into()
            }
            Self::Upstream(address, figure) => format!("{address} {}", figure.name()).into(),
            Self::PostgresqlWait(event) => format!("waiting {event}").into(),
            Self::CassandraPool(pool, figure) => format!("{pool} {}", figure.name()).into(),
            Self::CassandraTable(operation, table, figure) => {
                let table = match (table, figure) {
                    (Some(table), _) => table,
                    (None, TableFigure::Count) => OF_OTHER_TABLES,
                    (None, _) => OF_SLOWEST_OTHER_TABLE,
                };
                format!("{operation} {} {table}", figure.name()).into()
            }
            _ => self.figure().0.into(),
        }
    }

    /// Returns a title for readers, such as `Server: resident memory`.
    #[must_use]
    pub fn title(&self) -> String {
        let (subject, name) = (readable(&self.subject()), self.name());
        let described = |text: &str| format!("{subject}: {}", lowercase_first(text));
        let named = |name: &str, text: &str| format!("{subject} {name}: {}", lowercase_first(text));
        match self {
            Self::Host(_, figure) => described(figure.description()),
            Self::Network(_, figure) => described(figure.description()),
            Self::Cgroup(_, figure) => described(figure.description()),
            Self::Disk(_, figure) => described(figure.description()),
            Self::Process(_, figure) => described(figure.description()),
            Self::ThreadGroup(_, group, figure) => named(group, figure.description()),
            Self::ThreadsWaitingIn {
                group, function, ..
            } => {
                format!("{subject} {group}: threads that wait in {function}")
            }
            Self::ThreadsBlocked { group, object, .. } => {
                format!("{subject} {group}: threads that wait for {}", object.name())
            }
            Self::Code(_, figure) => described(figure.description()),
            Self::Jvm(_, figure) => described(figure.description()),
            Self::Sockets(_, figure) => described(figure.description()),
            Self::TcpInfo(figure) => described(figure.description()),
            Self::Listener(figure) => described(figure.description()),
            Self::Upstream(address, figure) => {
                format!(
                    "Connections to {address}: {}",
                    lowercase_first(figure.description())
                )
            }
            Self::Postgresql(figure) => described(figure.description()),
            Self::PostgresqlWait(event) => format!("{subject}: sessions that wait for {event}"),
            Self::Cassandra(figure) => described(figure.description()),
            Self::CassandraPool(pool, figure) => named(pool, figure.description()),
            Self::CassandraTable(operation, table, figure) => {
                let table = table.as_deref().unwrap_or("other tables");
                let text = lowercase_first(figure.description());
                format!("{subject}: {operation} of {table}: {text}")
            }
            Self::DelayProxyCpu | Self::Other { .. } => {
                format!("{subject}: {name}")
            }
        }
    }

    /// Returns the unit of the values.
    #[must_use]
    pub fn unit(&self) -> &str {
        self.figure().1
    }

    /// Returns the kind of the metric. The kind of an unknown metric is [`MetricKind::Level`].
    #[must_use]
    pub fn kind(&self) -> MetricKind {
        self.figure().2
    }

    /// Returns the name, unit and kind of the figure.
    fn figure(&self) -> (&str, &str, MetricKind) {
        match self {
            Self::Host(_, figure) => figure.entry(),
            Self::Network(_, figure) => figure.entry(),
            Self::Cgroup(_, figure) => figure.entry(),
            Self::Disk(_, figure) => figure.entry(),
            Self::Process(_, figure) => figure.entry(),
            Self::ThreadGroup(_, _, figure) => figure.entry(),
            Self::ThreadsWaitingIn { .. } => ThreadGroupFigure::Threads.entry(),
            Self::ThreadsBlocked { .. } => ("", "threads", MetricKind::Level),
            Self::Code(_, figure) => figure.entry(),
            Self::Jvm(_, figure) => figure.entry(),
            Self::Sockets(_, figure) => figure.entry(),
            Self::TcpInfo(figure) => figure.entry(),
            Self::Listener(figure) => figure.entry(),
            Self::Upstream(_, figure) => figure.entry(),
            Self::Postgresql(figure) => figure.entry(),
            Self::PostgresqlWait(_) => PostgresqlFigure::Active.entry(),
            Self::Cassandra(figure) => figure.entry(),
            Self::CassandraPool(_, figure) => figure.entry(),
            Self::CassandraTable(_, _, figure) => figure.entry(),
            Self::DelayProxyCpu => ("cpu", "CPU-seconds", MetricKind::Counter),
            Self::Other { name, unit, .. } => (name, unit, MetricKind::Level),
        }
    }

    /// Returns the metric with this subject and name, or [`Metric::Other`] if the metric is
    /// unknown.
    #[must_use]
    pub fn parse(subject: String, name: String, unit: String) -> Self {
        // Accept a metric only if writing it back gives the same strings.
        let same = |metric: &Self| metric.subject() == *subject && metric.name() == *name;
        match parse_known(&subject, &name).filter(same) {
            Some(metric) => metric,
            None => Self::Other {
                subject,
                name,
                unit,
            },
        }
    }

    /// Returns the metric with the server's host as its subject, for a client on another host.
    #[must_use]
    pub fn on_server_host(mut self) -> Self {
        if let Self::Host(scope, _) | Self::Network(scope, _) | Self::Disk(scope, _) = &mut self {
            scope.get_or_insert(Role::Server);
        }
        self
    }

    /// Returns the metric with placeholders for names that are known only during sampling.
    ///
    /// Metrics with the same pattern differ only in their thread group, kernel function, wait
    /// object, address, wait event, thread pool or table.
    #[must_use]
    pub fn pattern(&self) -> Self {
        let any = String::new;
        let any_address = SocketAddr::from(([0, 0, 0, 0], 0));
        match self {
            Self::ThreadGroup(role, _, figure) => Self::ThreadGroup(*role, any(), *figure),
            Self::ThreadsWaitingIn { role, .. } => Self::ThreadsWaitingIn {
                role: *role,
                group: any(),
                function: any(),
            },
            Self::ThreadsBlocked { role, .. } => Self::ThreadsBlocked {
                role: *role,
                group: any(),
                object: WaitObject::Kind(WaitKind::Other),
            },
            Self::Upstream(_, figure) => Self::Upstream(any_address, *figure),
            Self::PostgresqlWait(_) => Self::PostgresqlWait(any()),
            Self::CassandraPool(_, figure) => Self::CassandraPool(any(), *figure),
            Self::CassandraTable(operation, _, figure) => {
                Self::CassandraTable(*operation, None, *figure)
            }
            metric => metric.clone(),
        }
    }
}

fn parse_known(subject: &str, name: &str) -> Option<Metric> {
    if let Some(role) = Role::from_name(subject) {
        return ProcessFigure::from_name(name).map(|figure| Metric::Process(role, figure));
    }
    let scoped = subject
        .split_once(' ')
        .and_then(|(first, rest)| Some((Some(Role::from_name(first)?), rest)));
    let (role, of) = scoped.unwrap_or((None, subject));
    Some(match (of, role) {
        ("host", _) => Metric::Host(role, HostFigure::from_name(name)?),
        ("network", _) => Metric::Network(role, NetworkFigure::from_name(name)?),
        ("cgroup", _) => Metric::Cgroup(role, CgroupFigure::from_name(name)?),
        ("disk", _) => Metric::Disk(role, DiskFigure::from_name(name)?),
        ("threads", Some(role)) => parse_thread_group(role, name)?,
        ("code", Some(role)) => Metric::Code(role, CodeFigure::from_name(name)?),
        ("jvm", _) => Metric::Jvm(role.unwrap_or(Role::Server), JvmFigure::from_name(name)?),
        ("sockets", Some(role)) => Metric::Sockets(role, SocketFigure::from_name(name)?),
        ("tcp_info", None) => Metric::TcpInfo(TcpInfoFigure::from_name(name)?),
        ("listener", None) => Metric::Listener(ListenerFigure::from_name(name)?),
        ("upstreams", Some(Role::Server)) => {
            let (address, figure) = name.split_once(' ')?;
            Metric::Upstream(address.parse().ok()?, UpstreamFigure::from_name(figure)?)
        }
        ("postgresql", None) => match PostgresqlFigure::from_name(name) {
            Some(figure) => Metric::Postgresql(figure),
            None => Metric::PostgresqlWait(
                name.strip_prefix("waiting ")
                    .filter(|event| event.contains(':'))?
                    .to_owned(),
            ),
        },
        ("cassandra", None) => parse_cassandra(name)?,
        ("delay proxy", None) => Metric::DelayProxyCpu,
        _ => return None,
    })
}

/// Splits a metric's name into the name of a thread group and a figure.
/// The name of the thread group may contain any character.
fn parse_thread_group(role: Role, name: &str) -> Option<Metric> {
    let with_figure = |figure: ThreadGroupFigure| {
        let group = name.strip_suffix(figure.name())?.strip_suffix(' ')?;
        Some(Metric::ThreadGroup(role, group.to_owned(), figure))
    };
    let blocked = |(at, on): (usize, &str)| {
        Some(Metric::ThreadsBlocked {
            role,
            group: name[..at].to_owned(),
            object: WaitObject::from_name(&name[at + on.len()..])?,
        })
    };
    let waiting_in = |(group, function): (&str, &str)| Metric::ThreadsWaitingIn {
        role,
        group: group.to_owned(),
        function: function.to_owned(),
    };
    (ThreadGroupFigure::ALL.into_iter().find_map(with_figure))
        .or_else(|| name.match_indices(" on ").find_map(blocked))
        .or_else(|| name.rsplit_once(" in ").map(waiting_in))
}

fn parse_cassandra(name: &str) -> Option<Metric> {
    if let Some(figure) = CassandraFigure::from_name(name) {
        return Some(Metric::Cassandra(figure));
    }
    let (first, rest) = name.split_once(' ')?;
    if let Some(operation) = TableOperation::from_name(first) {
        let (figure, table) = rest.split_once(' ')?;
        let table = match table {
            OF_OTHER_TABLES | OF_SLOWEST_OTHER_TABLE => None,
            table => Some(table.to_owned()),
        };
        let figure = TableFigure::from_name(figure)?;
        return Some(Metric::CassandraTable(operation, table, figure));
    }
    let (pool, figure) = name.rsplit_once(' ')?;
    let figure = PoolFigure::from_name(figure)?;
    Some(Metric::CassandraPool(pool.to_owned(), figure))
}

/// A metric as stored in a record.
#[derive(Serialize, Deserialize, JsonSchema)]
struct StoredMetric {
    /// Subject of the metric, as in a record's observations.
    subject: String,
    /// Name of the metric, spelled as in its source.
    metric: String,
    /// Unit of the values.
    unit: String,
}

impl From<StoredMetric> for Metric {
    fn from(stored: StoredMetric) -> Self {
        Self::parse(stored.subject, stored.metric, stored.unit)
    }
}

impl From<Metric> for StoredMetric {
    fn from(metric: Metric) -> Self {
        Self {
            subject: metric.subject().into_owned(),
            metric: metric.name().into_owned(),
            unit: metric.unit().to_owned(),
        }
    }
}

/// A series that was sampled during the load.
///
/// A series that takes too much CPU or space is downsampled: its step doubles, and each pair of
/// values is merged. Counters are added, and other values are averaged.
/// A second observation then keeps the peaks at the original resolution.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "StoredObservation", into = "StoredObservation")]
pub struct Observation {
    /// Sampled metric.
    pub metric: Metric,
    /// Whether each value is the largest sample within its step.
    /// Peaks of counters are rates per second.
    pub is_peak: bool,
    /// Source of the samples.
    pub source: String,
    /// Start of the first step, in milliseconds since the start of the attempt.
    pub start_ms: u64,
    /// Length of a step in milliseconds.
    pub step_ms: u64,
    /// One value per step.
    pub values: Vec<f64>,
}

/// Suffix of the metric's name in an observation that contains peaks.
const PEAK: &str = ".max";

/// A series of samples taken during the load.
///
/// A series that takes too much CPU or memory is sampled less often or downsampled: its step
/// doubles, and each pair of values is merged (sum for counters, otherwise mean).
/// A second series with the suffix `.max` then keeps the maxima at the original resolution.
/// The maxima of counters are rates (`count/s`).
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Observation")]
struct StoredObservation {
    /// Subject of the metric.
    ///
    /// - `host`, `network`, `cgroup`, `disk`: the client's host.
    /// - `server host`, `server network`, `server cgroup`, `server disk`: the server's host, if
    ///   different.
    /// - `server`, `client`, `store`: process trees.
    /// - `server sockets`, `client sockets`: the two ends of connections to the target on this
    ///   host.
    /// - `listener`: the target's listening sockets.
    /// - `jvm`, `store jvm`: the JVM of the server or the store.
    /// - `server threads`, `store threads`: threads, grouped by name without a trailing number. The
    ///   metric `GROUP on OBJECT` is the mean number of threads that wait for an object.
    /// - `server upstreams`: connections that the server opened, grouped by address.
    /// - `postgresql`, `cassandra`: the store's own statistics.
    subject: String,
    /// Name of the metric, as in its source.
    metric: String,
    /// Unit of the values.
    unit: String,
    /// Source of the values.
    source: String,
    /// Time of the first value, in milliseconds since the start of the attempt.
    start_ms: u64,
    /// Interval between values in milliseconds.
    step_ms: u64,
    /// Values in chronological order. The value of a counter is the increase within the step.
    values: Vec<f64>,
}

impl From<StoredObservation> for Observation {
    fn from(mut stored: StoredObservation) -> Self {
        let is_peak = stored.metric.ends_with(PEAK);
        if is_peak {
            stored.metric.truncate(stored.metric.len() - PEAK.len());
        }
        Self {
            metric: Metric::parse(stored.subject, stored.metric, stored.unit),
            is_peak,
            source: stored.source,
            start_ms: stored.start_ms,
            step_ms: stored.step_ms,
            values: stored.values,
        }
    }
}

impl From<Observation> for StoredObservation {
    fn from(observation: Observation) -> Self {
        let suffix = if observation.is_peak { PEAK } else { "" };
        Self {
            subject: observation.metric.subject().into_owned(),
            metric: format!("{}{suffix}", observation.metric.name()),
            unit: observation.unit(),
            source: observation.source,
            start_ms: observation.start_ms,
            step_ms: observation.step_ms,
            values: observation.values,
        }
    }
}

impl Observation {
    /// Returns the unit of the values.
    #[must_use]
    pub fn unit(&self) -> String {
        let unit = self.metric.unit();
        match self.metric.kind() {
            MetricKind::Counter if self.is_peak => format!("{unit}/s"),
            _ => unit.to_owned(),
        }
    }
}

crate::names::named! {
    /// Kind of object that a blocked thread waits for.
    WaitKind {
        /// A lock or condition for which no other thread waits. HotSpot and Go, for example, park
        /// each thread on a separate lock.
        OwnLock = "own lock",
        /// A lock or condition, with a timeout.
        TimedLock = "timed lock",
        /// A lock on a file.
        FileLock = "file lock",
        /// Events of several file descriptors, as in an event loop.
        Events = "events",
        /// A new connection.
        Accept = "accept",
        /// Data from a client.
        ClientRead = "client read",
        /// Space in a client's send buffer.
        ClientWrite = "client write",
        /// Data in a pipe, or in a socket pair.
        PipeRead = "pipe read",
        /// Space in a pipe or in a socket pair.
        PipeWrite = "pipe write",
        /// A timer.
        Timer = "timer",
        /// The exit of a child process.
        Child = "child",
        /// A signal.
        Signal = "signal",
        /// A page of memory, which the kernel may have to read from disk.
        PageFault = "page fault",
        /// An object that was not identified, or that exceeds the maximum number of objects.
        Other = "other",
    }
}

/// Object that a blocked thread waits for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WaitObject {
    /// An object known only by its kind.
    Kind(WaitKind),
    /// A lock or condition for which several threads wait, identified by its address.
    Lock(u64),
    /// A response on a connection to this address.
    Connection(SocketAddr),
    /// A response on a connection to this Unix socket.
    UnixSocket(String),
    /// The disk or device of a file.
    File(String),
    /// The disk or device of a file that the process opened for appending, such as a log.
    AppendedFile(String),
    /// An unknown object, identified only by the number of the blocking system call.
    SystemCall(u32),
}

impl WaitObject {
    /// Returns the name in a record.
    #[must_use]
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            Self::Kind(kind) => kind.name().into(),
            Self::Lock(address) => format!("lock 0x{address:x}").into(),
            Self::Connection(to) => format!("connection {to}").into(),
            Self::UnixSocket(path) => format!("unix {path}").into(),
            Self::File(path) => format!("file {path}").into(),
            Self::AppendedFile(path) => format!("appended file {path}").into(),
            Self::SystemCall(number) => format!("system call {number}").into(),
        }
    }

    /// Returns the object with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(kind) = WaitKind::from_name(name) {
            return Some(Self::Kind(kind));
        }
        let (kind, of) = name.split_once(' ')?;
        Some(match kind {
            "lock" => Self::Lock(u64::from_str_radix(of.strip_prefix("0x")?, 16).ok()?),
            "connection" => Self::Connection(of.parse().ok()?),
            "unix" => Self::UnixSocket(of.to_owned()),
            "file" => Self::File(of.to_owned()),
            "appended" => Self::AppendedFile(of.strip_prefix("file ")?.to_owned()),
            "system" => Self::SystemCall(of.strip_prefix("call ")?.parse().ok()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
