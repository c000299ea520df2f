//! `floodmark serve`: a native server.

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use floodmark_host::{Stop, open_files};
use floodmark_record::units::{parse_count, parse_duration, show_count};
use floodmark_serve::{Limits, ServeError, Settings, StateError, Workload};

use crate::exit::{Ending, HELP};
use crate::out;

/// How often a request to stop is looked for.
const GLANCE: Duration = Duration::from_millis(50);

/// Serve a workload natively: the ceiling to compare other servers with.
///
/// Prints `listening on http://ADDRESS` when ready; ends on Ctrl-C or SIGTERM, finishing what is in flight.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ServeArgs {
    /// hello (GET /), json (GET /json) or dispatcher (GET /dispatcher)
    pub workload: Workload,

    /// Address and port; port 0 is chosen by the kernel and printed
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,

    /// Let other processes of the same user listen on the same port, each with connections of its own: more connections than one
    /// process may have open files. Not for dispatcher, whose numbers are one process's [default: refuse a port that is taken]
    #[arg(long)]
    pub share_port: bool,

    /// Threads that serve [default: half the CPUs, at least 1]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,

    /// dispatcher: file that keeps what was handed out, so that no number is handed out twice even after a
    /// crash [default: none, numbers begin at 1 with each start]
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,

    /// dispatcher with --state: numbers reserved at a time; as many may be skipped after a crash
    #[arg(long, value_name = "N", default_value = "1048576", value_parser = reserve, requires = "state")]
    pub reserve: NonZeroU64,

    /// Most connections at once; more are answered 503 [default: as open files allow]
    #[arg(long, value_name = "N")]
    pub max_connections: Option<NonZeroUsize>,

    /// An idle connection is closed after this time, with a unit
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub idle: Duration,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned()
    })
}

fn reserve(text: &str) -> Result<NonZeroU64, String> {
    let n = parse_count(text).map_err(|e| e.to_string())?;
    NonZeroU64::new(n).ok_or_else(|| "must be at least 1".to_owned())
}

/// Whether the call was wrong, the server did not start, or floodmark failed.
fn fault(error: ServeError) -> Ending {
    match error {
        ServeError::State(StateError::Locked(_)) => Ending::server(error),
        ServeError::NoState(_)
        | ServeError::SharedState(_)
        | ServeError::Connections { .. }
        | ServeError::State(_) => Ending::usage(error),
        ServeError::Listen { .. } | ServeError::Thread(_) => Ending::server(error),
        ServeError::Panicked => Ending::failed(error),
    }
}

/// Runs the command.
pub fn run(args: &ServeArgs) -> Result<(), Ending> {
    let stop = Stop::on_signals()
        .map_err(|e| Ending::failed(format!("signals cannot be handled: {e}")))?;
    let settings = Settings {
        workload: args.workload,
        listen: args.listen,
        share_port: args.share_port,
        threads: args.threads,
        state: args.state.clone(),
        limits: Limits {
            connections: args.max_connections,
            idle: args.idle,
            reserve: args.reserve,
            ..Limits::default()
        },
    };
    let shutdown = async move {
        while !stop.is_set() {
            tokio::time::sleep(GLANCE).await;
        }
    };
    let before = open_files().ok();
    let ready = |address| {
        out::print(&format!("listening on http://{address}\n"));
        if let (Some(before), Ok(now)) = (before, open_files())
            && now.soft > before.soft
        {
            out::note(&format!(
                "the limit on open files was raised from {} to {}\n",
                show_count(before.soft),
                show_count(now.soft)
            ));
        }
    };
    let summary = floodmark_serve::serve(settings, shutdown, ready).map_err(fault)?;
    out::note(&format!(
        "answered {} requests on {} connections\n",
        show_count(summary.answered),
        show_count(summary.accepted)
    ));
    Ok(())
}
