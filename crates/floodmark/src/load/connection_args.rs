//! Flags for connections, HTTPS and safety.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use floodmark_plan::HostAddresses;
use floodmark_plan::values::{count_from_one, positive_duration, sources};
use floodmark_record::plan::{CloseFirst, Sources};

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
