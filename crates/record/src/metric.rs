//! Metrics that samplers observe, each with a subject, a name, a unit and a kind.
//!
//! A record stores a metric as three strings.
//! Only [`Metric::parse`], [`Metric::subject`], [`Metric::name`] and [`Metric::unit`] convert
//! between a metric and its strings.

use std::borrow::Cow;
use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// The client's host (`None`), or the server's host if the server runs on another host.
    Host(Option<Role>, HostFigure),
    /// The network namespace of floodmark (`None`) or of a role.
    Network(Option<Role>, NetworkFigure),
    /// The control group of floodmark (`None`) or of a role.
    Cgroup(Option<Role>, CgroupFigure),
    /// The disks of the client's host (`None`), or of the server's host if the server runs on
    /// another host.
    Disk(Option<Role>, DiskFigure),
    /// A process tree.
    Process(Role, ProcessFigure),
    /// A thread group of a process tree.
    ThreadGroup(Role, String, ThreadGroupFigure),
    /// A thread group's threads that are waiting in a kernel function.
    ThreadsWaitingIn {
        /// Role of the process tree.
        role: Role,
        /// Name of the thread group.
        group: String,
        /// Kernel function.
        function: String,
    },
    /// Number of a group's threads that were waiting for an object, averaged over the time since
    /// the previous value.
    ThreadsBlocked {
        /// Role of the process tree.
        role: Role,
        /// Name of the thread group.
        group: String,
        /// Object for which the threads were waiting.
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
    /// PostgreSQL sessions that are waiting for an event. The string is `TYPE:EVENT`.
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

/// Formats a subject for display: spells abbreviations as in prose, and capitalizes the first
/// letter.
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

/// Returns `text` with a lowercase first letter, unless it starts with an abbreviation.
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
            _ => self.figure().name.into(),
        }
    }

    /// Returns a human-readable title, such as `Server: resident memory`.
    #[must_use]
    pub fn title(&self) -> String {
        let subject = readable(&self.subject());
        let description = self.figure().description();
        match self {
            Self::ThreadGroup(_, name, _) | Self::CassandraPool(name, _) => {
                format!("{subject} {name}: {description}")
            }
            Self::ThreadsWaitingIn {
                group, function, ..
            } => format!("{subject} {group}: threads that wait in {function}"),
            Self::ThreadsBlocked { group, object, .. } => {
                format!("{subject} {group}: threads that wait for {}", object.name())
            }
            Self::Upstream(address, _) => format!("Connections to {address}: {description}"),
            Self::PostgresqlWait(event) => format!("{subject}: sessions that wait for {event}"),
            Self::CassandraTable(operation, table, _) => {
                let table = table.as_deref().unwrap_or("other tables");
                format!("{subject}: {operation} of {table}: {description}")
            }
            Self::DelayProxyCpu | Self::Other { .. } => format!("{subject}: {}", self.name()),
            _ => format!("{subject}: {description}"),
        }
    }

    /// Returns the unit of the values.
    #[must_use]
    pub fn unit(&self) -> &str {
        self.figure().unit
    }

    /// Returns the kind of the metric. The kind of an unknown metric is [`MetricKind::Level`].
    #[must_use]
    pub fn kind(&self) -> MetricKind {
        self.figure().kind
    }

    /// Returns the row of the figure.
    fn figure(&self) -> FigureRow<'_> {
        match self {
            Self::Host(_, figure) => figure.row(),
            Self::Network(_, figure) => figure.row(),
            Self::Cgroup(_, figure) => figure.row(),
            Self::Disk(_, figure) => figure.row(),
            Self::Process(_, figure) => figure.row(),
            Self::ThreadGroup(_, _, figure) => figure.row(),
            Self::ThreadsWaitingIn { .. } | Self::ThreadsBlocked { .. } => {
                ThreadGroupFigure::Threads.row()
            }
            Self::Code(_, figure) => figure.row(),
            Self::Jvm(_, figure) => figure.row(),
            Self::Sockets(_, figure) => figure.row(),
            Self::TcpInfo(figure) => figure.row(),
            Self::Listener(figure) => figure.row(),
            Self::Upstream(_, figure) => figure.row(),
            Self::Postgresql(figure) => figure.row(),
            Self::PostgresqlWait(_) => PostgresqlFigure::Active.row(),
            Self::Cassandra(figure) => figure.row(),
            Self::CassandraPool(_, figure) => figure.row(),
            Self::CassandraTable(_, _, figure) => figure.row(),
            Self::DelayProxyCpu => FigureRow {
                name: "cpu",
                unit: "CPU-seconds",
                kind: MetricKind::Counter,
                doc: "",
            },
            Self::Other { name, unit, .. } => FigureRow {
                name,
                unit,
                kind: MetricKind::Level,
                doc: "",
            },
        }
    }

    /// Returns the metric with this subject and name, or [`Metric::Other`] if the metric is
    /// unknown.
    #[must_use]
    pub fn parse(subject: String, name: String, unit: String) -> Self {
        // Accept a metric only if it converts back to the same subject and name.
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

    /// Moves a metric of a host, network or disk from the client's host to the server's host.
    /// Returns other metrics unchanged.
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
        let mut pattern = self.clone();
        match &mut pattern {
            Self::ThreadGroup(_, name, _)
            | Self::PostgresqlWait(name)
            | Self::CassandraPool(name, _) => name.clear(),
            Self::ThreadsWaitingIn {
                group, function, ..
            } => {
                group.clear();
                function.clear();
            }
            Self::ThreadsBlocked { group, object, .. } => {
                group.clear();
                *object = WaitObject::Kind(WaitKind::Other);
            }
            Self::Upstream(address, _) => *address = SocketAddr::from(([0, 0, 0, 0], 0)),
            Self::CassandraTable(_, table, _) => *table = None,
            _ => {}
        }
        pattern
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

/// Parses a metric name that starts with the name of a thread group, which may contain any
/// character.
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

/// A series of samples taken during the load.
///
/// A series that takes too much CPU time or space is downsampled: its step doubles, and each pair
/// of adjacent values is merged. Counter values are added, and other values are averaged. A second
/// observation then contains the peaks: the largest original sample within each step.
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
/// A series that takes too much CPU time or space is sampled less often or downsampled: its step
/// doubles, and each pair of adjacent values is merged (sum for counters, mean otherwise). A second
/// series with the suffix `.max` then contains the maxima: the largest original sample within each
/// step. The maxima of counters are rates (`count/s`).
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Observation")]
struct StoredObservation {
    /// Subject of the metric.
    ///
    /// - `host`, `network`, `cgroup`, `disk`: the client's host.
    /// - `server host`, `server network`, `server cgroup`, `server disk`: the server's host, if
    ///   different.
    /// - `server`, `client`, `store`: process trees.
    /// - `server sockets`, `client sockets`: the server's or the client's end of the connections to
    ///   the target, if that end is on this host.
    /// - `listener`: the target's listening sockets.
    /// - `jvm`, `store jvm`: the JVM of the server or the store.
    /// - `server threads`, `store threads`: threads, grouped by their names without trailing
    ///   numbers. The metric `GROUP on OBJECT` is the mean number of threads in the group that were
    ///   waiting for the object.
    /// - `server upstreams`: connections that the server opened, grouped by address.
    /// - `postgresql`, `cassandra`: the store's own statistics.
    subject: String,
    /// Name of the metric, as in its source.
    metric: String,
    /// Unit of the values.
    unit: String,
    /// Source of the values.
    source: String,
    /// Start of the first step, in milliseconds since the start of the attempt.
    start_ms: u64,
    /// Length of a step in milliseconds. There is one value per step.
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
    /// Kind of object that a blocked thread is waiting for.
    WaitKind {
        /// A lock or condition for which no other thread is waiting. HotSpot and Go, for example,
        /// park each thread on a separate lock.
        OwnLock = "own lock",
        /// A lock or condition for which the thread is waiting with a timeout.
        TimedLock = "timed lock",
        /// A lock on a file.
        FileLock = "file lock",
        /// Events on several file descriptors, as in an event loop.
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
        /// An object that was not identified, or an object without a series of its own because the
        /// maximum number of objects was reached.
        Other = "other",
    }
}

/// Object that a blocked thread is waiting for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WaitObject {
    /// An object known only by its kind.
    Kind(WaitKind),
    /// A lock or condition for which several threads are waiting, identified by its address.
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

crate::names::named! {
    /// How a value in a series describes its step.
    MetricKind {
        /// Increase of a counter within the step.
        Counter = "increase",
        /// Mean rate or share over the step.
        Mean = "mean",
        /// Level at the end of the step.
        Level = "level",
    }
}

/// A row of the table below: the properties of a figure.
struct FigureRow<'a> {
    /// Name in a record.
    name: &'a str,
    unit: &'a str,
    kind: MetricKind,
    /// First line of the doc comment.
    doc: &'a str,
}

impl FigureRow<'_> {
    /// Returns the description for a title: with a lowercase first letter, and without a final
    /// period.
    fn description(&self) -> String {
        let text = self.doc.trim();
        lowercase_first(text.strip_suffix('.').unwrap_or(text))
    }
}

/// Defines enums of figures. Each line has the form `Variant = "name in a record", "unit", kind`.
/// The name is spelled as in the figure's source. In reports, the first line of the doc comment
/// describes the figure.
macro_rules! figures {
    ($(
        $(#[$meta:meta])*
        $figures:ident { $(
            #[doc = $doc:literal] $(#[doc = $more:literal])*
            $figure:ident = $name:literal, $unit:literal, $kind:ident;
        )* }
    )*) => {
        crate::names::named! { $(
            $(#[$meta])*
            $figures { $( #[doc = $doc] $(#[doc = $more])* $figure = $name, )* }
        )* }

        $( impl $figures {
            const fn row(self) -> FigureRow<'static> {
                match self { $( Self::$figure => FigureRow {
                    name: $name,
                    unit: $unit,
                    kind: MetricKind::$kind,
                    doc: $doc,
                }, )* }
            }
        } )*
    };
}

figures! {
    /// Figures for a host, from `/proc/stat` and `/proc/pressure`.
    HostFigure {
        /// Busy CPUs.
        Busy = "busy", "CPUs", Mean;
        /// CPUs that handled interrupts, including deferred work.
        Interrupt = "interrupt", "CPUs", Mean;
        /// CPU time that the hypervisor gave to other guests.
        Steal = "steal", "CPU-seconds", Counter;
        /// Time during which at least one thread waited for a CPU.
        CpuPressure = "pressure_cpu", "s", Counter;
        /// Time during which at least one thread waited for a disk.
        IoPressure = "pressure_io", "s", Counter;
        /// Time during which at least one thread waited for memory.
        MemoryPressure = "pressure_memory", "s", Counter;
    }

    /// TCP counters for a network namespace, from `/proc/net/netstat`, `snmp` and `sockstat`.
    NetworkFigure {
        /// Connections dropped because the accept queue was full.
        ListenOverflows = "ListenOverflows", "count", Counter;
        /// Connection requests dropped by listeners, for any reason.
        ListenDrops = "ListenDrops", "count", Counter;
        /// Connection requests dropped because the SYN queue was full.
        RequestQueueDrops = "TCPReqQFullDrop", "count", Counter;
        /// Connection requests answered with SYN cookies because the SYN queue was full.
        RequestQueueCookies = "TCPReqQFullDoCookies", "count", Counter;
        /// Retransmitted SYN and SYN-ACK segments.
        SynRetransmits = "TCPSynRetrans", "count", Counter;
        /// Retransmission timeouts.
        Timeouts = "TCPTimeouts", "count", Counter;
        /// Connections that left TIME_WAIT after its normal duration.
        TimeWaitEnded = "TW", "count", Counter;
        /// Connections in TIME_WAIT that were reused.
        TimeWaitRecycled = "TWRecycled", "count", Counter;
        /// Connections closed without TIME_WAIT because too many connections were in TIME_WAIT.
        TimeWaitOverflows = "TCPTimeWaitOverflow", "count", Counter;
        /// Delayed acknowledgements sent.
        DelayedAcks = "DelayedACKs", "count", Counter;
        /// Connections opened by this host.
        ActiveOpens = "ActiveOpens", "count", Counter;
        /// Connections accepted by this host.
        PassiveOpens = "PassiveOpens", "count", Counter;
        /// Connection attempts that failed.
        FailedAttempts = "AttemptFails", "count", Counter;
        /// Established connections that were reset.
        Resets = "EstabResets", "count", Counter;
        /// Retransmitted segments.
        Retransmits = "RetransSegs", "count", Counter;
        /// Reset segments sent.
        ResetsSent = "OutRsts", "count", Counter;
        /// Sockets in TIME_WAIT.
        TimeWait = "tw", "sockets", Level;
    }

    /// Throttling of a control group, from `cpu.stat`.
    CgroupFigure {
        /// Periods in which the group exhausted its CPU quota.
        ThrottledPeriods = "nr_throttled", "periods", Counter;
        /// Time during which the group was throttled, summed over CPUs.
        ThrottledTime = "throttled_time", "s", Counter;
    }

    /// Figures summed over all disks, from `/proc/diskstats`.
    DiskFigure {
        /// Bytes read.
        ReadBytes = "read_bytes", "bytes", Counter;
        /// Bytes written.
        WrittenBytes = "written_bytes", "bytes", Counter;
        /// Completed writes.
        Writes = "writes", "count", Counter;
        /// Time during which a disk was busy, summed over disks.
        BusyTime = "io_time", "disk-seconds", Counter;
        /// Flushes of the disks' caches.
        Flushes = "flushes", "count", Counter;
    }

    /// Figures for a process tree, from `/proc/PID` and its threads.
    ProcessFigure {
        /// CPU time in user mode.
        User = "user", "s", Counter;
        /// CPU time in kernel mode.
        System = "system", "s", Counter;
        /// Resident memory.
        Rss = "rss", "bytes", Level;
        /// Threads.
        Threads = "threads", "threads", Level;
        /// Processes.
        Processes = "processes", "processes", Level;
        /// Time on a CPU, summed over threads.
        OnCpu = "on_cpu", "s", Counter;
        /// Time during which threads were runnable but waited for a CPU.
        RunDelay = "run_delay", "s", Counter;
        /// Context switches that occurred because a thread blocked.
        VoluntarySwitches = "voluntary_ctxt_switches", "count", Counter;
        /// Context switches that occurred because a thread was preempted.
        InvoluntarySwitches = "nonvoluntary_ctxt_switches", "count", Counter;
        /// Bytes read from storage.
        ReadBytes = "read_bytes", "bytes", Counter;
        /// Bytes written to storage.
        WriteBytes = "write_bytes", "bytes", Counter;
        /// Open files of the process that is closest to its limit.
        OpenFiles = "open_files", "files", Level;
        /// Open-file limit of the process that is closest to its limit.
        OpenFilesLimit = "open_files_limit", "files", Level;
        /// Responses according to the server's own counter.
        Responses = "answers", "answers", Counter;
    }

    /// Figures for a thread group: threads whose names differ only in a trailing number.
    ThreadGroupFigure {
        /// Threads.
        Threads = "threads", "threads", Level;
        /// Threads with at least a fifth of the busiest thread's CPU time or number of waits.
        Working = "at work", "threads", Level;
        /// Number of times that a thread gave up the CPU to wait.
        Waits = "waits", "count", Counter;
        /// Time on a CPU.
        OnCpu = "on_cpu", "s", Counter;
        /// Time during which threads were runnable but waited for a CPU.
        RunDelay = "run_delay", "s", Counter;
    }

    /// Figures for a HotSpot JVM, from `hsperfdata` and the JVM's threads.
    JvmFigure {
        /// Garbage collections.
        Collections = "gc_count", "count", Counter;
        /// Time spent in garbage collections.
        CollectionTime = "gc_time", "s", Counter;
        /// Safepoints.
        Safepoints = "safepoints", "count", Counter;
        /// Time spent at safepoints.
        SafepointTime = "safepoint_time", "s", Counter;
        /// Live Java threads.
        JavaThreads = "java_threads", "threads", Level;
        /// Loaded classes.
        LoadedClasses = "loaded_classes", "count", Counter;
        /// Compiled methods.
        Compilations = "compilations", "count", Counter;
        /// CPU time of the compiler threads.
        CompilerTime = "compiler_threads", "s", Counter;
        /// CPU time of the garbage collector's threads.
        CollectorTime = "collector_threads", "s", Counter;
    }

    /// CPU time by kind of code, estimated from samples (perf_event_open(2)). All kinds except
    /// `Kernel` and `FileSync` cover only user mode.
    CodeFigure {
        /// All code in user mode.
        All = "all code", "s", Counter;
        /// Libraries and functions for cryptography, such as TLS.
        Cryptography = "cryptography", "s", Counter;
        /// Libraries and functions for compression.
        Compression = "compression", "s", Counter;
        /// Functions of the runtime's garbage collector.
        Collection = "garbage collection", "s", Counter;
        /// All code in kernel mode.
        Kernel = "kernel code", "s", Counter;
        /// Kernel code that writes a file to disk for a system call such as fsync(2).
        FileSync = "file sync", "s", Counter;
    }

    /// Figures for one end of the connections to the target: counts by TCP state, and queue sizes.
    SocketFigure {
        /// Connections in ESTABLISHED.
        Established = "established", "sockets", Level;
        /// Connections in SYN_SENT.
        SynSent = "syn_sent", "sockets", Level;
        /// Connections in SYN_RECV.
        SynReceived = "syn_recv", "sockets", Level;
        /// Connections in FIN_WAIT_1 and FIN_WAIT_2.
        FinWait = "fin_wait", "sockets", Level;
        /// Connections in TIME_WAIT.
        TimeWait = "time_wait", "sockets", Level;
        /// Connections in CLOSE_WAIT.
        CloseWait = "close_wait", "sockets", Level;
        /// Connections in LAST_ACK and CLOSING.
        LastAck = "last_ack", "sockets", Level;
        /// Bytes received but not yet read.
        ReceiveQueue = "receive_queue", "bytes", Level;
        /// Bytes sent but not yet acknowledged.
        SendQueue = "send_queue", "bytes", Level;
    }

    /// Figures from `tcp_info` for a few established connections to the target.
    TcpInfoFigure {
        /// Mean round-trip time.
        RoundTrip = "rtt", "µs", Level;
        /// Retransmitted segments since each connection was opened.
        Retransmits = "total_retrans", "segments", Level;
        /// Unacknowledged segments.
        Unacknowledged = "unacked", "segments", Level;
    }

    /// Figures for the target's listening sockets.
    ListenerFigure {
        /// Connections waiting to be accepted.
        AcceptQueue = "accept_queue", "connections", Level;
        /// Maximum number of connections waiting to be accepted.
        AcceptQueueLimit = "accept_queue_limit", "connections", Level;
    }

    /// Figures for the connections that the server opened to one address.
    UpstreamFigure {
        /// Established connections.
        Established = "established", "connections", Level;
        /// Connections waiting for a response.
        Waiting = "waiting", "connections", Level;
        /// Connections that sent and received within one kernel tick.
        /// These connections may or may not be waiting for a response.
        PerhapsWaiting = "waiting or not", "connections", Level;
    }

    /// Figures for a PostgreSQL server, from `pg_stat_activity` and `pg_stat_database`.
    PostgresqlFigure {
        /// Sessions that execute a statement.
        Active = "active", "sessions", Level;
        /// Sessions without a transaction.
        Idle = "idle", "sessions", Level;
        /// Sessions waiting for their client within a transaction.
        IdleInTransaction = "idle in transaction", "sessions", Level;
        /// Sessions waiting for their client within a failed transaction.
        IdleInFailedTransaction = "idle in transaction (aborted)", "sessions", Level;
        /// Sessions that execute a fast-path function.
        FastPath = "fastpath function call", "sessions", Level;
        /// Sessions whose activity is not tracked.
        Untracked = "disabled", "sessions", Level;
        /// Sessions of other users, whose state is hidden.
        Hidden = "hidden", "sessions", Level;
        /// Sessions waiting for a lock.
        WaitingForLocks = "waiting for locks", "sessions", Level;
        /// Sessions waiting for an event that has no series of its own.
        WaitingForOthers = "waiting for others", "sessions", Level;
        /// Committed transactions.
        Commits = "commits", "count", Counter;
        /// Rolled-back transactions.
        Rollbacks = "rollbacks", "count", Counter;
        /// Rows returned by scans.
        RowsReturned = "tup_returned", "count", Counter;
        /// Rows fetched by index scans.
        RowsFetched = "tup_fetched", "count", Counter;
        /// Rows inserted.
        RowsInserted = "tup_inserted", "count", Counter;
        /// Rows updated.
        RowsUpdated = "tup_updated", "count", Counter;
        /// Rows deleted.
        RowsDeleted = "tup_deleted", "count", Counter;
        /// Blocks read from disk or page cache.
        BlocksRead = "blks_read", "count", Counter;
        /// Blocks found in shared buffers.
        BlocksHit = "blks_hit", "count", Counter;
        /// Bytes written to temporary files.
        TemporaryBytes = "temp_bytes", "count", Counter;
        /// Deadlocks.
        Deadlocks = "deadlocks", "count", Counter;
        /// Bytes written to the write-ahead log.
        WalBytes = "wal_bytes", "bytes", Counter;
    }

    /// Figures for a Cassandra node, from `system_views.cql_metrics` and `clients`.
    CassandraFigure {
        /// Prepared statements executed.
        PreparedStatements = "prepared_statements_executed", "count", Counter;
        /// Unprepared statements executed, excluding floodmark's.
        RegularStatements = "regular_statements_executed", "count", Counter;
        /// Client connections, excluding floodmark's.
        Connections = "connections", "connections", Level;
    }

    /// Tasks of a Cassandra thread pool, from `system_views.thread_pools`.
    PoolFigure {
        /// Tasks being executed.
        Active = "active", "tasks", Level;
        /// Queued tasks.
        Pending = "pending", "tasks", Level;
        /// Tasks blocked because the queue is full.
        Blocked = "blocked", "tasks", Level;
    }

    /// Operations on a Cassandra table, from `system_views.*_latency`.
    TableFigure {
        /// Operations.
        Count = "count", "count", Counter;
        /// Median latency, weighted towards recent minutes.
        P50 = "p50", "ms", Level;
        /// 99th percentile of latency, weighted towards recent minutes.
        P99 = "p99", "ms", Level;
    }
}

crate::names::named! {
    /// Operations on a table, as measured at the coordinator or at the replica.
    /// The names are those of the virtual tables in Cassandra's `system_views` keyspace, without
    /// the suffix `_latency`.
    TableOperation {
        /// Reads, at the coordinator.
        CoordinatorRead = "coordinator_read",
        /// Writes, at the coordinator.
        CoordinatorWrite = "coordinator_write",
        /// Reads, at the replica.
        LocalRead = "local_read",
        /// Writes, at the replica.
        LocalWrite = "local_write",
    }
}

#[cfg(test)]
mod tests;
