//! Causes that a verdict can name.

crate::names::named! {
    // Variants are ordered by place: first the client, then the server, then the network.
    /// The cause that limited a run.
    Cause {
        /// The load generator is CPU-bound.
        ClientCpu = "client-cpu",
        /// Client and server compete for the same CPUs.
        SharedCpu = "shared-cpu",
        /// Programs outside the experiment take CPU time that the client or the server needs.
        OtherProcesses = "other-processes",
        /// Too few requests are in flight to saturate any resource.
        Concurrency = "concurrency",
        /// The load generator stalled.
        ClientStall = "client-stall",
        /// The client ran out of local ports, usually because of connections in TIME_WAIT.
        EphemeralPorts = "ephemeral-ports",
        /// The load generator reached its open-file limit.
        ClientFds = "client-fds",
        /// The server's accept queue overflows.
        ListenBacklog = "listen-backlog",
        /// Open model: the load opens more connections than it needs, which overloads the server.
        ConnectionStorm = "connection-storm",
        /// The server reached its open-file limit.
        ServerFds = "server-fds",
        /// The server allows fewer streams on each HTTP/2 connection than the load needs.
        StreamLimit = "stream-limit",
        /// HTTP/2 flow-control windows are too small for the round-trip time.
        FlowControlWindow = "flow-control-window",
        /// The load uses fewer HTTP/2 connections than the server has threads to process them.
        OneConnection = "one-connection",
        /// The server reached its limit for concurrent connections.
        MaxConnections = "max-connections",
        /// The server closes each connection after a certain number of requests, and new
        /// connections are expensive.
        KeepaliveLimit = "keepalive-limit",
        /// The server sent no response for a while, and then resumed.
        ServerStall = "server-stall",
        /// All worker threads of the server are waiting, or all of its permits are in use.
        WorkerPool = "worker-pool",
        /// One thread of the server is saturated while CPUs are idle.
        ServerCpuOneThread = "server-cpu-one-thread",
        /// The server processes requests one at a time, because of a lock, an actor or a single
        /// writer.
        Serialised = "serialised",
        /// Requests wait for a free connection from the server to its store or upstream.
        ConnectionPool = "connection-pool",
        /// The server is CPU-bound.
        ServerCpu = "server-cpu",
        /// Garbage collection slows the server down.
        Gc = "gc",
        /// The server's runtime is still compiling code.
        Jit = "jit",
        /// TLS handshakes use up the CPU.
        TlsHandshake = "tls-handshake",
        /// Compressing responses uses up the server's CPU.
        Compression = "compression",
        /// Requests wait for the server to write its log.
        SyncLogging = "sync-logging",
        /// The store is CPU-bound.
        StoreCpu = "store-cpu",
        /// Requests wait for locks in the store.
        StoreLock = "store-lock",
        /// Requests wait for the store's commits to reach the disk.
        StoreCommit = "store-commit",
        /// The CPU quota of the control group throttles the server.
        CpuQuota = "cpu-quota",
        /// The hypervisor gives CPU time to other guests.
        Steal = "steal",
        /// Requests wait for the server to read or write files other than its log.
        Disk = "disk",
        /// The link is saturated.
        Bandwidth = "bandwidth",
        /// Nagle's algorithm at one end waits for an acknowledgement that the other end delays.
        DelayedAck = "delayed-ack",
        /// The server limits the request rate.
        RateLimiter = "rate-limiter",
        /// Many requests failed.
        Errors = "errors",
        /// The server is a proxy that opens an upstream connection for each request.
        ProxyHop = "proxy-hop",
        /// No limit: the offered rate was met.
        None = "none",
        /// The throughput of an external client equals the offered rate, so the server's capacity
        /// is unknown.
        OfferedRate = "offered-rate",
        /// Not enough evidence to name a cause.
        Unknown = "unknown",
    }
}
