//! The flags that `load` and `capacity` share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use floodmark_host::{ProcessPlacement, Stop};
use floodmark_lab::{Attempts, Folder, RemoteObserver};
use floodmark_plan::spec::{BackendChoice, BodySource};
use floodmark_plan::values::{count_from_one, positive_duration, seed, sources};
use floodmark_plan::{HostAddresses, LoadSpec, Origin, PlanSpec, Planned};
use floodmark_record::events::RunId;
use floodmark_record::plan::{CloseFirst, Expect, Sources, Spacing, parse_header};

use super::agents::AgentsArgs;
use super::monitoring_args::{MonitoringArgs, check_server_pid};
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
    #[arg(long, value_enum, default_value_t = BackendFlag::Auto, help_heading = "Load")]
    pub backend: BackendFlag,

    /// Connections.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// HTTPS.
    #[command(flatten)]
    pub https: HttpsArgs,

    /// Request.
    #[command(flatten)]
    pub request: RequestArgs,

    /// Monitoring.
    #[command(flatten)]
    pub monitoring: MonitoringArgs,

    /// Condition that a response must meet to count as ok: status=200, body=TEXT (the whole body
    /// equals TEXT) or json=VALUE (the body equals this JSON); repeatable; a response must meet one
    /// condition of each kind given [default: status 2xx or 3xx]
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
    #[command(flatten)]
    pub safety: SafetyArgs,

    /// Agents.
    #[command(flatten)]
    pub agents: AgentsArgs,
}

impl SharedArgs {
    /// Checks the flags that need no plan. Returns the manifest to print instead of sending a load,
    /// if requested.
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
                fresh: Some(connection.fresh),
                requests_per_connection: connection.requests_per_connection,
                close_first: Some(connection.close_first.into()),
                sources: connection.sources,
                timeout: Some(connection.timeout),
                deadline: self.deadline,
                seed: Some(self.seed),
                ..LoadSpec::default()
            },
            backend: self.backend.into(),
            resolve: connection.resolve.clone(),
            unix_socket: connection.unix_socket.clone(),
            insecure: self.https.insecure,
            cacert: self.https.cacert.clone(),
            no_resumption: self.https.no_resumption,
            method: self.request.method.clone(),
            headers: self.request.headers.clone(),
            body: self.request.body_source(),
            mix: self.request.mix.clone(),
            expect: self.expect.clone(),
            public: self.safety.public,
            anyway: self.safety.anyway,
            agents: self.agents.place.as_ref().map(|place| place.count),
            ..PlanSpec::default()
        }
    }

    /// Starts the observer and prepares `count` attempts, which `measure` then runs into the folder.
    /// `with` is the observer of --with.
    ///
    /// # Errors
    /// The observer cannot be started.
    pub fn with_attempts<T>(
        &self,
        planned: &Planned,
        count: u32,
        with: Option<&RemoteObserver>,
        folder: &mut Folder,
        stop: &Stop,
        measure: impl FnOnce(Attempts<'_>, &mut Folder) -> T,
    ) -> Result<T, Ending> {
        let plan = &planned.plan;
        // Dropping the link ends the observer.
        let (_link, observer) = self.monitoring.start(plan, folder.path(), stop)?.unzip();
        let side = ProcessPlacement::default();
        let agents = self.agents.setting(self.safety.anyway, &side);
        let attempts = Attempts {
            client: None,
            agents: agents.as_ref(),
            expected: &[],
            planned,
            attempts: count,
            run: RunId {
                system: plan.target.authority.clone(),
                workload: workload(planned),
                trial: None,
                setting: BTreeMap::new(),
                process: 1,
                attempt: 1,
            },
            side: &side,
            place: None,
            proxy: None,
            monitoring: self.monitoring.monitoring(with.or(observer.as_ref())),
            log: None,
            exits: None,
            stop,
        };
        Ok(measure(attempts, folder))
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

/// Spacing of arrivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SpacingFlag {
    /// Equal intervals
    Constant,
    /// Exponentially distributed intervals with the same mean
    Poisson,
}

impl From<SpacingFlag> for Spacing {
    fn from(flag: SpacingFlag) -> Self {
        match flag {
            SpacingFlag::Constant => Spacing::Constant,
            SpacingFlag::Poisson => Spacing::Poisson,
        }
    }
}

/// I/O backend of the load threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendFlag {
    /// io_uring if the kernel allows it, else epoll
    Auto,
    /// io_uring; fail if the kernel does not allow it
    Uring,
    /// epoll
    Epoll,
}

impl From<BackendFlag> for BackendChoice {
    fn from(flag: BackendFlag) -> Self {
        match flag {
            BackendFlag::Auto => BackendChoice::Auto,
            BackendFlag::Uring => BackendChoice::Uring,
            BackendFlag::Epoll => BackendChoice::Epoll,
        }
    }
}

/// Flags for connections.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// Open a fresh connection for each request [default: keep connections]
    #[arg(
        long,
        conflicts_with = "requests_per_connection",
        help_heading = "Connections"
    )]
    pub fresh: bool,

    /// Close each connection after N requests [default: no limit]
    #[arg(long, value_name = "N", value_parser = count_from_one, help_heading = "Connections")]
    pub requests_per_connection: Option<u64>,

    /// Peer that closes connections first and enters TIME_WAIT; `reset` avoids TIME_WAIT
    #[arg(long, value_enum, value_name = "WHO", default_value_t = Closer::Server, help_heading = "Connections")]
    pub close_first: Closer,

    /// Source addresses to spread connections over, such as 127.0.0.2-127.0.0.200 [default: chosen
    /// by the kernel]
    #[arg(long, value_name = "A-B", value_parser = sources, help_heading = "Connections")]
    pub sources: Option<Sources>,

    /// Addresses to use instead of resolving the URL's host: comma-separated, IPv6 in brackets;
    /// repeatable. Connections use the addresses in turn [default: resolve the host]
    #[arg(long, value_name = "HOST[:PORT]:ADDR", help_heading = "Connections")]
    pub resolve: Vec<HostAddresses>,

    /// Connect to this unix socket; the URL still sets the Host header and the path [default: TCP]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["resolve", "sources"], help_heading = "Connections")]
    pub unix_socket: Option<String>,

    /// Maximum time to wait for a connection or a response, with a unit: 5s, 300ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive_duration, help_heading = "Connections")]
    pub timeout: Duration,
}

/// Peer that closes a connection first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Closer {
    /// The server, after `Connection: close`
    Server,
    /// floodmark, after the response
    Client,
    /// floodmark, with RST
    Reset,
}

impl From<Closer> for CloseFirst {
    fn from(closer: Closer) -> Self {
        match closer {
            Closer::Server => CloseFirst::Server,
            Closer::Client => CloseFirst::Client,
            Closer::Reset => CloseFirst::Reset,
        }
    }
}

/// Flags for HTTPS.
#[derive(Debug, Clone, Args)]
pub struct HttpsArgs {
    /// Accept any certificate [default: verify the certificate for the URL's host]
    #[arg(long, conflicts_with = "cacert", help_heading = "HTTPS")]
    pub insecure: bool,

    /// PEM file of the certificate authorities to trust [default: the system's]
    #[arg(long, value_name = "FILE", help_heading = "HTTPS")]
    pub cacert: Option<PathBuf>,

    /// Do a full TLS handshake for each connection [default: resume sessions if the server allows
    /// it]
    #[arg(long, help_heading = "HTTPS")]
    pub no_resumption: bool,
}

/// Flags for safety.
#[derive(Debug, Clone, Args)]
pub struct SafetyArgs {
    /// Allow load on addresses outside loopback, link-local and private ranges
    #[arg(long, help_heading = "Safety")]
    pub public: bool,

    /// Run even with too few ports, a low open-file limit or a duration above 7 days [default:
    /// refuse]
    #[arg(long, help_heading = "Safety")]
    pub anyway: bool,
}

/// Flags for the request.
#[derive(Debug, Clone, Args)]
pub struct RequestArgs {
    /// HTTP method [default: GET, or POST with a body]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    pub method: Option<String>,

    /// Request header, such as 'Accept: text/html'; repeatable [default: Host, User-Agent and
    /// Accept: */*]
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header, help_heading = "Request")]
    pub headers: Vec<(String, String)>,

    /// Request body as text [default: none]
    #[arg(
        short,
        long,
        value_name = "TEXT",
        conflicts_with = "body_file",
        help_heading = "Request"
    )]
    pub body: Option<String>,

    /// File with the request body, at most 64 MiB [default: none]
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub body_file: Option<PathBuf>,

    /// TOML file with several requests to send in turn; see docs/examples/mix.toml. -H and --expect
    /// set defaults for these requests [default: none]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "body", "body_file"], help_heading = "Request")]
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
