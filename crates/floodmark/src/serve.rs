//! `floodmark serve`: runs one of floodmark's own servers.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args};
use floodmark_host::open_files;
use floodmark_plan::values::{count_from_one, count_within};
use floodmark_plan::{MAX_THREADS, certificate};
use floodmark_record::units::{parse_duration, show_count};
use floodmark_serve::{
    JournalError, JournalSetting, Limits, NativeWorkload, ServeError, Settings, StateError,
    StoreSetting,
};

use crate::exit::{Ending, HELP, stop_on_signals};

use crate::out;

/// Interval between checks for a stop signal.
const STOP_INTERVAL: Duration = Duration::from_millis(50);

/// Run a native server as an upper bound for comparison with other servers.
///
/// Serves HTTP/1.1, and HTTP/2 to clients with prior knowledge. With --cert, serves https, and ALPN
/// selects HTTP/2 or HTTP/1.1.
///
/// Prints `listening on http://ADDRESS` (or `https://`) when ready. After Ctrl-C or SIGTERM,
/// completes the requests in flight and exits.
#[derive(Debug, Args)]
#[command(after_help = HELP, group(ArgGroup::new("queue").args(["journal", "store"]).multiple(true)))]
pub struct ServeArgs {
    /// Workload: hello (GET /), json (GET /json), dispatcher (GET /dispatcher), scoring (POST
    /// /scoring) or bars (GET and POST /bars)
    #[arg(hide_possible_values = true, value_parser = workload())]
    pub workload: NativeWorkload,

    /// Address and port to listen on; with port 0, a free port is selected and printed
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,

    /// Share the port with this user's other processes (SO_REUSEPORT), to exceed the connection
    /// limit of one process; only for hello and json [default: refuse a port that is in use]
    #[arg(long)]
    pub share_port: bool,

    /// Number of server threads [default: half the CPUs, at least 1]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,

    /// PEM file of the server's certificate, followed by the certificates of its issuers; enables
    /// https [default: http]
    #[arg(long, value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// PEM file of the private key for --cert; must not be encrypted [default: the key in the
    /// --cert file]
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,

    /// dispatcher: file that stores which numbers were handed out, so that no number is repeated
    /// after a crash [default: none; start at 1]
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,

    /// dispatcher with --state: how many numbers to reserve at a time; a crash can skip up to 1.5
    /// times that many
    #[arg(long, value_name = "N", default_value = "1048576", value_parser = count_from_one, requires = "state")]
    pub reserve: u64,

    /// scoring: where to store the scores; none, memory (like file, but without a disk), file:PATH
    /// (a directory) or cassandra:HOST[:PORT][/KEYSPACE] (port 9042, keyspace floodmark); file and
    /// cassandra store each score before its response is sent
    #[arg(long, value_name = "JOURNAL", default_value = "none", value_parser = journal)]
    pub journal: JournalSetting,

    /// bars: where to store the bars; embedded:PATH (a database file), or
    /// postgresql://USER:PASSWORD@HOST:PORT/DATABASE or postgresql:KEY=VALUE ... (the table bar of
    /// a PostgreSQL database); each bar is stored before its response is sent [default: none;
    /// required for bars]
    // Parsed later, because clap's error messages would quote the password in an invalid value.
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,

    /// Maximum number of connections; further connections wait until one ends [default: set by the
    /// limit on open files]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub max_connections: Option<NonZeroUsize>,

    /// Maximum number of open streams on an HTTP/2 connection
    #[arg(long, value_name = "N", default_value_t = Limits::default().streams, value_parser = streams)]
    pub max_streams: NonZeroU32,

    /// With --journal or --store: maximum queueing delay of a POST request, with a unit. While the
    /// oldest queued request has waited longer than this, new ones get a 503. With --store, queued
    /// requests that exceed this limit also get a 503, as do requests that the store does not
    /// complete within 5 s
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration, requires = "queue")]
    pub max_wait: Duration,

    /// Time after which an idle connection is closed, with a unit
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub idle: Duration,
}

fn workload() -> impl TypedValueParser<Value = NativeWorkload> {
    PossibleValuesParser::new(NativeWorkload::NAMES).try_map(|name| name.parse())
}

fn journal(text: &str) -> Result<JournalSetting, String> {
    text.parse().map_err(str::to_owned)
}

fn store(text: &str) -> Result<StoreSetting, Ending> {
    let store = text.parse();
    store.map_err(|error: String| Ending::usage(format!("--store: {error}")))
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned()
    })
}

fn positive(text: &str) -> Result<NonZeroUsize, String> {
    let n = count_from_one(text)?;
    let n = usize::try_from(n).ok().and_then(NonZeroUsize::new);
    n.ok_or_else(|| "is too large".to_owned())
}

fn streams(text: &str) -> Result<NonZeroU32, String> {
    let n = count_from_one(text)?;
    let n = u32::try_from(n).ok().and_then(NonZeroU32::new);
    n.ok_or_else(|| "is too large".to_owned())
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    count_within(text, 1..=MAX_THREADS)?;
    positive(text)
}

/// Maps a server error to an exit status.
fn ending(error: ServeError) -> Ending {
    match error {
        ServeError::JournalFailed(ref cause) if matches!(**cause, JournalError::Panicked) => {
            Ending::internal(error)
        }
        ServeError::State(StateError::Locked(_))
        | ServeError::Journal(
            JournalError::InUse(_)
            | JournalError::Thread(_)
            | JournalError::Cassandra { .. }
            | JournalError::NoAgreement(_)
            | JournalError::Superseded(_),
        )
        | ServeError::StateFailed(_)
        | ServeError::JournalFailed(_)
        | ServeError::StoreFailed { .. }
        | ServeError::Listen { .. }
        | ServeError::Thread(_) => Ending::server(error),
        #[cfg(feature = "postgresql")]
        ServeError::Postgresql(_) => Ending::server(error),
        ServeError::NoState(_)
        | ServeError::SharedState(_)
        | ServeError::Connections { .. }
        | ServeError::NoJournal(_)
        | ServeError::NoStore(_)
        | ServeError::StoreRequired
        | ServeError::NotBars { .. }
        | ServeError::Journal(_)
        | ServeError::State(_) => Ending::usage(error),
        ServeError::Panicked => Ending::internal(error),
    }
}

/// Runs the command.
pub fn run(args: &ServeArgs) -> Result<(), Ending> {
    let stop = stop_on_signals()?;
    let tls = certificate::server(args.cert.as_deref(), args.key.as_deref());
    let tls = tls.map_err(Ending::usage)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let settings = Settings {
        workload: args.workload,
        listen: args.listen,
        share_port: args.share_port,
        threads: args.threads,
        tls,
        state: args.state.clone(),
        journal: args.journal.clone(),
        store: args.store.as_deref().map(store).transpose()?,
        limits: Limits {
            connections: args.max_connections,
            streams: args.max_streams,
            idle: args.idle,
            max_wait: args.max_wait,
            reserve: NonZeroU64::new(args.reserve).unwrap_or(NonZeroU64::MIN),
            ..Limits::default()
        },
        on_failure: |error| out::complain(error),
    };
    let stopped = stop.clone();
    let shutdown = async move {
        while !stopped.is_set() {
            tokio::time::sleep(STOP_INTERVAL).await;
        }
    };
    let before = open_files();
    let mut printed = Ok(());
    let ready = |address| {
        printed = out::print(&format!("listening on {scheme}://{address}\n"));
        if printed.is_err() {
            stop.set();
        }
        let now = open_files();
        if now.soft > before.soft {
            out::note(&format!(
                "raised the limit on open files from {} to {}\n",
                show_count(before.soft),
                show_count(now.soft)
            ));
        }
    };
    let summary = floodmark_serve::serve(settings, shutdown, ready).map_err(ending)?;
    out::note(&format!(
        "answered {} requests on {} connections\n",
        show_count(summary.answered),
        show_count(summary.accepted)
    ));
    printed
}
