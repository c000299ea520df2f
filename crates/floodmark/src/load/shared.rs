//! The flags that `load` and `capacity` share.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args};
use floodmark_host::{ProcessPlacement, Stop};
use floodmark_lab::{Attempts, Directory, Monitoring, RemoteObserver};
use floodmark_observe::{MonitorTargets, Root};
use floodmark_plan::grpc::MethodName;
use floodmark_plan::http::{MAX_STREAMS, MAX_TABLE, MAX_WINDOW, MIN_WINDOW};
use floodmark_plan::spec::{BackendChoice, BodySource, HttpVersion};
use floodmark_plan::values::{
    count_from_one, count_within, positive_duration, seed, size_within, sources,
};
use floodmark_plan::{HostAddresses, LoadSpec, Origin, PlanSpec, Planned};
use floodmark_record::events::RunId;
use floodmark_record::plan::{
    Address, CloseFirst, Expect, Plan, Retry, Sources, Spacing, parse_header,
};
use floodmark_workers::{AgentsLauncher, AgentsPlace, AgentsSetting, ObserverLink, ObserverPlace};

use crate::exit::Ending;
use crate::session::OutputArgs;

/// Flags of every command that loads a URL.
#[derive(Debug, Clone, Args)]
pub struct SharedArgs {
    /// Number of load threads [default: half the CPUs, at least 1]
    #[arg(short, long, value_name = "N", value_parser = count_from_one, help_heading = "Load")]
    pub threads: Option<u64>,

    /// Seed for --arrivals poisson and for the order and random values in --mix; increases by 1
    /// with each measurement
    #[arg(long, value_name = "N", default_value = "1", value_parser = seed, help_heading = "Load")]
    pub seed: u64,

    /// I/O backend of the load threads
    #[arg(long, value_parser = backend(), default_value = "auto", help_heading = "Load")]
    pub backend: BackendChoice,

    /// Connections.
    #[command(flatten, next_help_heading = "Connections")]
    pub connection: ConnectionArgs,

    /// HTTPS.
    #[command(flatten, next_help_heading = "HTTPS")]
    pub https: HttpsArgs,

    /// Request.
    #[command(flatten, next_help_heading = "Request")]
    pub request: RequestArgs,

    /// Monitoring.
    #[command(flatten, next_help_heading = "Monitoring")]
    pub monitoring: MonitoringArgs,

    /// Condition that a response must meet to count as ok: status=200, body=TEXT (the whole body
    /// equals TEXT), json=VALUE (the body equals this JSON), json:$.a[0].b=VALUE (the body has this
    /// JSON value or text there; `absent`: no value), contains:TEXT, regex:PATTERN, or grpc-status=NOT_FOUND
    /// (a name or number); repeatable; a response must meet one condition of each kind and path, and
    /// all with contains or regex [default: status 2xx or 3xx; with --grpc, grpc-status=0]
    #[arg(long, value_name = "WHAT", help_heading = "Judgment")]
    pub expect: Vec<Expect>,

    /// Maximum response time, with a unit, for an ok response to count as goodput [default:
    /// --timeout]
    #[arg(long, value_name = "TIME", value_parser = positive_duration, help_heading = "Judgment")]
    pub deadline: Option<Duration>,

    /// Result.
    #[command(flatten, next_help_heading = "Output")]
    pub output: OutputArgs,

    /// Safety.
    #[command(flatten, next_help_heading = "Safety")]
    pub safety: SafetyArgs,

    /// Agents.
    #[command(flatten, next_help_heading = "Agents")]
    pub agents: AgentsArgs,
}

impl SharedArgs {
    /// Checks the flags that can be checked without a plan. If requested, returns the manifest to
    /// print instead of sending a load.
    ///
    /// # Errors
    /// A file is not writable, a process does not exist, or two flags contradict each other.
    pub fn check(&self) -> Result<Option<String>, Ending> {
        self.output.files.check_writable()?;
        check_server_pid(self.monitoring.server_pid)?;
        self.agents.check().map_err(Ending::usage)?;
        Ok(self.agents.printed_manifest())
    }

    /// Converts the flags to plan settings.
    pub fn spec(&self) -> PlanSpec {
        let connection = &self.connection;
        PlanSpec {
            origin: Origin::CommandLine,
            load: LoadSpec {
                threads: self.threads,
                http: connection.http,
                streams: connection.streams,
                h2_window: connection.h2_window,
                h2_table: connection.h2_table,
                fresh: Some(connection.fresh),
                requests_per_connection: connection.requests_per_connection,
                close_first: connection.close_first,
                retry: Some(connection.retry),
                sources: connection.sources,
                timeout: Some(connection.timeout),
                deadline: self.deadline,
                seed: Some(self.seed),
                grpc: self.request.grpc.clone(),
                proto: self.request.proto.clone(),
                proto_path: self.request.proto_path.clone(),
                body: self.request.body_source(),
                insecure: Some(self.https.insecure),
                cacert: self.https.cacert.clone(),
                cert: self.https.cert.clone(),
                key: self.https.key.clone(),
                sni: self.https.sni.clone(),
                no_resumption: Some(self.https.no_resumption),
                expect: self.expect.clone(),
                ..LoadSpec::default()
            },
            backend: self.backend,
            resolve: connection.resolve.clone(),
            unix_socket: connection.unix_socket.clone(),
            method: self.request.method.clone(),
            headers: self.request.headers.clone(),
            mix: self.request.mix.clone(),
            public: self.safety.public,
            anyway: self.safety.anyway,
            agents: self.agents.place.as_ref().map(|place| place.count),
            ..PlanSpec::default()
        }
    }

    /// Starts the observer, prepares `count` attempts, and calls `measure`, which runs them and
    /// records them in the directory. `with` is the observer that --with specifies.
    ///
    /// # Errors
    /// The observer cannot be started.
    pub fn with_attempts<T>(
        &self,
        planned: &Planned,
        count: u32,
        with: Option<&RemoteObserver>,
        directory: &mut Directory,
        stop: &Stop,
        measure: impl FnOnce(Attempts<'_>, &mut Directory) -> T,
    ) -> Result<T, Ending> {
        let plan = &planned.plan;
        // Dropping the link ends the observer.
        let (_link, observer) = self.monitoring.start(plan, directory.path(), stop)?.unzip();
        let side = ProcessPlacement::default();
        let agents = self.agents.setting(self.safety.anyway, &side);
        let attempts = Attempts {
            client: None,
            agents: agents.as_ref(),
            expected: &[],
            planned,
            attempts: count,
            run: first_run(planned),
            side: &side,
            place: None,
            proxy: None,
            monitoring: self.monitoring.monitoring(with.or(observer.as_ref())),
            log: None,
            exits: None,
            stop,
            abort_if: &[],
            request_log: None,
            rates: None,
        };
        Ok(measure(attempts, directory))
    }
}

/// Returns the name of the first run of a load.
pub fn first_run(planned: &Planned) -> RunId {
    RunId {
        system: planned.plan.target.authority.clone(),
        workload: workload(planned),
        trial: None,
        setting: BTreeMap::new(),
        process: 1,
        attempt: 1,
    }
}

/// Returns the name of the workload in the record: the mix file, or the path of the URL.
pub fn workload(planned: &Planned) -> String {
    let plan = &planned.plan;
    plan.mix
        .as_ref()
        .map_or(&plan.target.path, |mix| &mix.file)
        .clone()
}

/// Returns a parser for the spacing of requests (--arrivals).
pub fn spacing() -> impl TypedValueParser<Value = Spacing> {
    words([
        ("constant", Spacing::Constant, "Equal intervals"),
        (
            "poisson",
            Spacing::Poisson,
            "Exponentially distributed intervals with the same mean",
        ),
    ])
}

fn backend() -> impl TypedValueParser<Value = BackendChoice> {
    words([
        (
            "auto",
            BackendChoice::Auto,
            "io_uring if the kernel allows it, else epoll",
        ),
        (
            "uring",
            BackendChoice::Uring,
            "io_uring; fail if the kernel does not allow it",
        ),
        ("epoll", BackendChoice::Epoll, "epoll"),
    ])
}

fn http() -> impl TypedValueParser<Value = HttpVersion> {
    words([
        (HttpVersion::V1.name(), HttpVersion::V1, "HTTP/1.1"),
        (
            HttpVersion::V2.name(),
            HttpVersion::V2,
            "HTTP/2; fail if the server does not support it",
        ),
        (
            HttpVersion::Auto.name(),
            HttpVersion::Auto,
            "The version that an https:// server chooses before the load; HTTP/1.1 with http://",
        ),
    ])
}

fn close_first() -> impl TypedValueParser<Value = CloseFirst> {
    words([
        (
            "server",
            CloseFirst::Server,
            "The server, after `Connection: close`",
        ),
        (
            "client",
            CloseFirst::Client,
            "floodmark, after the response",
        ),
        ("reset", CloseFirst::Reset, "floodmark, with RST"),
    ])
}

fn retry() -> impl TypedValueParser<Value = Retry> {
    words([
        (
            "never",
            Retry::Never,
            "No requests; they count as `reset`, or as `rejected` if an HTTP/2 server refuses them",
        ),
        (
            "idempotent",
            Retry::Idempotent,
            "GET, HEAD, OPTIONS, TRACE, PUT, DELETE, and unsent or refused requests; others count as \
             `reset`",
        ),
    ])
}

/// Returns a parser for a fixed set of words. Each row contains a word, its value and its help.
pub fn words<T: Copy + Send + Sync + 'static, const N: usize>(
    rows: [(&'static str, T, &'static str); N],
) -> impl TypedValueParser<Value = T> {
    let values = rows.map(|(word, _, help)| PossibleValue::new(word).help(help));
    PossibleValuesParser::new(values).try_map(move |word| {
        let row = rows.iter().find(|(other, ..)| *other == word);
        row.map(|(_, value, _)| *value).ok_or("unknown value")
    })
}

/// Flags for connections.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// HTTP version; with 2, http:// uses prior knowledge and https:// uses ALPN [default: 1.1; with
    /// --grpc, 2]
    #[arg(long, value_name = "VERSION", value_parser = http())]
    pub http: Option<HttpVersion>,

    /// HTTP/2: maximum number of requests in flight on each connection, at most 1,000; no effect if
    /// --http auto chooses HTTP/1.1 [default: 1]
    #[arg(long, value_name = "N", value_parser = |text: &str| count_within(text, 1..=MAX_STREAMS))]
    pub streams: Option<u64>,

    /// HTTP/2: flow-control window of each stream for responses, from 4KiB to 64MiB; the window of
    /// a connection is 16 times as large [default: 1MiB]
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| size_within(text, MIN_WINDOW..=MAX_WINDOW))]
    pub h2_window: Option<u64>,

    /// HTTP/2: maximum size of the table that the server may use to compress headers, from 0 to
    /// 64KiB [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = |text: &str| size_within(text, 0..=MAX_TABLE))]
    pub h2_table: Option<u64>,

    /// Open a fresh connection for each request [default: reuse connections]
    #[arg(long, conflicts_with = "requests_per_connection")]
    pub fresh: bool,

    /// Close each connection after N requests [default: no limit]
    #[arg(long, value_name = "N", value_parser = count_from_one)]
    pub requests_per_connection: Option<u64>,

    /// Peer that closes connections first and enters TIME_WAIT; `reset` avoids TIME_WAIT [default:
    /// server; with --http 2, client]
    #[arg(long, value_name = "WHO", value_parser = close_first())]
    pub close_first: Option<CloseFirst>,

    /// Requests to send again if the server closes a kept connection before it responds (once), or
    /// refuses a stream (HTTP/2; at most 3 times)
    #[arg(long, value_name = "WHICH", value_parser = retry(), default_value = "idempotent")]
    pub retry: Retry,

    /// Source addresses to spread connections over, such as 127.0.0.2-127.0.0.200 [default: chosen
    /// by the kernel]
    #[arg(long, value_name = "A-B", value_parser = sources)]
    pub sources: Option<Sources>,

    /// Addresses to use instead of resolving the URL's host: comma-separated, IPv6 in brackets;
    /// repeatable. Connections use the addresses in turn [default: resolve the host]
    #[arg(long, value_name = "HOST[:PORT]:ADDR")]
    pub resolve: Vec<HostAddresses>,

    /// Connect to this unix socket; the URL still sets the Host header and the path [default: TCP]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["resolve", "sources"])]
    pub unix_socket: Option<String>,

    /// Maximum time to wait for a connection or a response, with a unit: 5s, 300ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive_duration)]
    pub timeout: Duration,
}

/// Flags for HTTPS.
#[derive(Debug, Clone, Args)]
pub struct HttpsArgs {
    /// Accept any certificate [default: verify the certificate for the URL's host or --sni]
    #[arg(long, conflicts_with = "cacert")]
    pub insecure: bool,

    /// PEM file of the certificate authorities to trust [default: the system's]
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    /// PEM file of the client's certificate, which the server may require, followed by the
    /// certificates of its issuers [default: none]
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// PEM file of the private key for --cert; must not be encrypted [default: the key in the
    /// --cert file]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// Server name to send in the TLS handshake (SNI) and to verify the certificate for [default:
    /// the URL's host]
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,

    /// Do a full TLS handshake for each connection [default: resume sessions if the server allows
    /// it]
    #[arg(long)]
    pub no_resumption: bool,
}

/// Flags for safety.
#[derive(Debug, Clone, Args)]
pub struct SafetyArgs {
    /// Allow load on addresses outside loopback, link-local and private ranges
    #[arg(long)]
    pub public: bool,

    /// Run even with too few ports, a low open-file limit, a duration above 7 days or, in `load`,
    /// after an unexpected response to the request before the load [default: refuse]
    #[arg(long)]
    pub anyway: bool,
}

/// Flags for the request.
#[derive(Debug, Clone, Args)]
#[command(group = ArgGroup::new("described").args(["grpc", "mix"]))]
pub struct RequestArgs {
    /// HTTP method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD")]
    pub method: Option<String>,

    /// Request header, such as 'Accept: text/html'; repeatable [default: Host, User-Agent and
    /// Accept: */*]
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header)]
    pub headers: Vec<(String, String)>,

    /// Request body as text [default: none]
    #[arg(short, long, value_name = "TEXT", conflicts_with = "body_file")]
    pub body: Option<String>,

    /// File with the request body, at most 64 MiB; `-` for stdin [default: none]
    #[arg(long, value_name = "FILE")]
    pub body_file: Option<PathBuf>,

    /// Call this unary gRPC method, such as helloworld.Greeter/SayHello, with the body as JSON (`{}`
    /// without one); uses HTTP/2 [default: none]
    #[arg(long, value_name = "METHOD", conflicts_with = "method")]
    pub grpc: Option<MethodName>,

    /// File that describes the gRPC methods: a .proto file, or a descriptor set of protoc [default:
    /// ask the server (reflection)]
    #[arg(long, value_name = "FILE", requires = "described")]
    pub proto: Option<PathBuf>,

    /// Directory of .proto files that --proto imports; repeatable [default: the directory of --proto]
    #[arg(long, value_name = "DIR", requires = "described")]
    pub proto_path: Vec<PathBuf>,

    /// TOML file with several requests to send in turn; see docs/examples/mix.toml. -H, --expect and
    /// --proto set defaults for these requests [default: none]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "body", "body_file", "grpc"])]
    pub mix: Option<PathBuf>,
}

impl RequestArgs {
    /// Returns where the request body comes from, if there is one.
    pub fn body_source(&self) -> Option<BodySource> {
        match (&self.body, &self.body_file) {
            (Some(text), _) => Some(BodySource::Text(text.clone())),
            (None, Some(path)) => Some(BodySource::File(path.clone())),
            (None, None) => None,
        }
    }
}

/// File in the result directory for the output of the observer that --observe starts.
const OBSERVER_FILE: &str = "observer.jsonl";

/// Flags that choose what is monitored.
#[derive(Debug, Clone, Args)]
pub struct MonitoringArgs {
    /// Process to monitor as the server, with its children [default: the local process that listens
    /// on the URL's port]
    #[arg(long, value_name = "PID", value_parser = crate::process_id)]
    pub server_pid: Option<u32>,

    /// Disable monitoring of client, server and host
    #[arg(long, conflicts_with = "server_pid")]
    pub no_watch: bool,

    /// File written by floodmark observe, which monitors the server on the server's own host during
    /// the run [default: none; monitor a local server]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server_pid", "no_watch", "unix_socket"])]
    pub with: Option<PathBuf>,

    /// Run floodmark observe on the server's own host during the run: ssh:HOST,
    /// kubernetes:pod/NAME, or command:TEMPLATE with {port} [default: none; monitor a local server]
    #[arg(long, value_name = "WHERE", conflicts_with_all = ["with", "server_pid", "no_watch", "unix_socket"])]
    pub observe: Option<ObserverPlace>,
}

impl MonitoringArgs {
    /// Opens the --with file and checks that it matches the target.
    pub fn open_file(&self, plan: &Plan) -> Result<Option<RemoteObserver>, Ending> {
        let Some(path) = &self.with else {
            return Ok(None);
        };
        let opened = RemoteObserver::open(path, port("--with", plan)?);
        opened
            .map(Some)
            .map_err(|e| Ending::usage(format!("--with {e}")))
    }

    /// Starts the observer that --observe specifies. It writes to a file in the result directory.
    /// If the observer cannot be used, removes the directory, which contains nothing else yet.
    pub fn start(
        &self,
        plan: &Plan,
        directory: &Path,
        stop: &Stop,
    ) -> Result<Option<(ObserverLink, RemoteObserver)>, Ending> {
        let Some(place) = &self.observe else {
            return Ok(None);
        };
        let start = || {
            let port = port("--observe", plan)?;
            let file = directory.join(OBSERVER_FILE);
            let failed = |why: &dyn Display| {
                if stop.is_set() {
                    Ending::before_result("the load, while --observe was starting")
                } else {
                    Ending::server(format!("--observe {place}: {why}"))
                }
            };
            let link = ObserverLink::start(place, port, &file, stop).map_err(|why| failed(&why))?;
            let opened = RemoteObserver::open(&file, port).map_err(|error| failed(&error))?;
            Ok((link, opened))
        };
        start().map(Some).inspect_err(|_| {
            // The message about the observer matters more than a directory that cannot be removed.
            let _ = std::fs::remove_dir_all(directory);
        })
    }

    /// Returns what to monitor. `remote` is the observer that --with or --observe specifies, if
    /// any.
    pub fn monitoring<'a>(&self, remote: Option<&'a RemoteObserver>) -> Monitoring<'a> {
        match remote {
            Some(remote) => Monitoring::Remote(remote),
            None if self.no_watch => Monitoring::Off,
            None => Monitoring::Local(MonitorTargets {
                server_pid: self.server_pid,
                ..MonitorTargets::default()
            }),
        }
    }
}

/// Checks that the process given with --server-pid exists.
pub fn check_server_pid(server_pid: Option<u32>) -> Result<(), Ending> {
    match server_pid {
        Some(pid) if floodmark_observe::process::cpu_s(&Root::host(), pid).is_err() => {
            Err(Ending::usage(format!(
                "--server-pid {pid}: no such process; check the ID, or omit the flag to find a local server by its port"
            )))
        }
        _ => Ok(()),
    }
}

/// Returns the server's port. Fails if the target is a unix socket, which `flag` does not support.
fn port(flag: &str, plan: &Plan) -> Result<u16, Ending> {
    match plan.target.address {
        Address::Ip(address) => Ok(address.port()),
        Address::Unix(_) => Err(Ending::usage(format!(
            "{flag}: a server on a unix socket is local and is monitored without {flag}; omit {flag}"
        ))),
    }
}

/// Flags for agents.
#[derive(Debug, Clone, Args)]
pub struct AgentsArgs {
    /// Divide the load among agents: local:2, ssh:host1,host2, slurm:4, kubernetes:4, or
    /// command:4:TEMPLATE with {index} and {count}. Connections, requests and rates apply to
    /// the whole load; -t applies to each agent [default: one process on this host]
    #[arg(long = "agents", value_name = "WHERE")]
    pub place: Option<AgentsPlace>,

    /// Continue as long as at least N agents are left [default: all; the load ends when one fails]
    #[arg(long = "agents-min", value_name = "N", value_parser = count_from_one, requires = "place")]
    pub min: Option<u64>,

    /// Copy this program to the cache directory of ssh hosts that lack it [default: run the
    /// floodmark on their PATH]
    #[arg(long, requires = "place")]
    pub copy: bool,

    /// Print the manifest of the agents' Kubernetes Job and exit; --agents kubernetes:4:FILE.yaml
    /// uses an edited one
    #[arg(long, requires = "place")]
    pub dry_run: bool,
}

impl AgentsArgs {
    /// Checks that the flags do not contradict each other.
    ///
    /// # Errors
    /// A flag contradicts another.
    pub fn check(&self) -> Result<(), String> {
        let Some(place) = &self.place else {
            return Ok(());
        };
        match self.min {
            Some(min) if min > place.count.into() => Err(format!(
                "--agents-min {min}: --agents has only {}; use a smaller number",
                place.count
            )),
            _ if self.copy && !matches!(place.launcher, AgentsLauncher::Ssh(_)) => Err(
                "--copy: only hosts that are reached through ssh need a copy; omit --copy"
                    .to_owned(),
            ),
            _ if self.dry_run && place.manifest().is_none() => {
                Err("--dry-run: requires --agents kubernetes:N or kubernetes:N:IMAGE".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// If requested, returns the manifest to print instead of sending a load.
    pub fn printed_manifest(&self) -> Option<String> {
        let place = self.place.as_ref().filter(|_| self.dry_run)?;
        place.manifest()
    }

    /// Returns where and how to start the agents; `None` if one process on this host sends the
    /// load. `side` is the placement of agents on this host, and `anyway` the value of `--anyway`.
    pub fn setting<'a>(
        &self,
        anyway: bool,
        side: &'a ProcessPlacement,
    ) -> Option<AgentsSetting<'a>> {
        let place = self.place.clone()?;
        let min = self.min.and_then(|min| u32::try_from(min).ok());
        Some(AgentsSetting {
            min_agents: min.unwrap_or(place.count),
            place,
            copy: self.copy,
            anyway,
            side,
        })
    }
}
