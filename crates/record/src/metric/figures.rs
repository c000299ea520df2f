//! The figures for each subject. Each figure has a name in a record, a unit and a kind.

crate::names::named! {
    /// Relation between a value in a series and its step.
    MetricKind {
        /// Increase of a counter within the step.
        Counter = "increase",
        /// Mean rate or share over the step.
        Mean = "mean",
        /// Level at the end of the step.
        Level = "level",
    }
}

/// Defines enums of figures. Each line has the form `Variant = "name in a record", "unit", kind`.
/// The name is spelled as in the figure's source. The doc comment describes the figure in reports.
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
            /// Returns the name used in records, the unit and the kind.
            pub(super) const fn entry(self) -> (&'static str, &'static str, MetricKind) {
                match self { $( Self::$figure => ($name, $unit, MetricKind::$kind), )* }
            }

            /// Returns a description without a final period: the first sentence of the doc comment.
            pub(super) fn description(self) -> &'static str {
                let text = match self { $( Self::$figure => $doc, )* };
                let text = text.trim();
                text.strip_suffix('.').unwrap_or(text)
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

    /// Figures for all disks together, from `/proc/diskstats`.
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

    /// CPU time in user mode by kind of code, estimated from samples (perf_event_open(2)).
    CodeFigure {
        /// All code.
        All = "all code", "s", Counter;
        /// Libraries and functions for cryptography, such as TLS.
        Cryptography = "cryptography", "s", Counter;
        /// Libraries and functions for compression.
        Compression = "compression", "s", Counter;
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
        /// Rolled back transactions.
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
    /// The names are those of Cassandra's views.
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
