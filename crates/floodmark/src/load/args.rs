//! The flags of `floodmark load`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use floodmark_record::mix::parse_header;
use floodmark_record::plan::{CloseFirst, Expect, Sources};
use floodmark_record::units::{parse_count, parse_duration, parse_rate};
use floodmark_report::Condition;

use super::resolve::Resolve;
use super::schedule::ChangingArgs;

/// Load one URL and say what the figure means.
///
/// Without --rate the model is closed: each connection sends its next request when it has its answer. With --rate, --ramp,
/// --steps, --burst or --replay it is open: requests are sent at scheduled times whatever the server does, and response time
/// counts from the time a request should have been sent. Rates, counts and connections are totals, never per thread.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = crate::exit::HELP,
    group = ArgGroup::new("rates").args(["rate", "ramp", "steps"]),
    group = ArgGroup::new("schedules").args(["rate", "ramp", "steps", "burst", "replay"])
)]
pub struct LoadArgs {
    /// What to load, such as http://127.0.0.1:8080/ or https://localhost:8443/
    #[arg(required_unless_present = "demo", conflicts_with = "demo")]
    pub url: Option<String>,

    /// Start floodmark's own hello server and load it for 5s with kept and for 5s with fresh connections: no URL needed
    #[arg(long, conflicts_with_all = [
        "fresh", "requests_per_connection", "close_first", "hold", "sources", "resolve", "unix_socket", "json", "html", "csv", "hdr", "out",
    ])]
    pub demo: bool,

    /// Connections in all; in the open model the most at once [default: 50; in the open model as many as ports and open files
    /// allow]
    #[arg(short, long, value_name = "N", value_parser = count_from_one, help_heading = "Load")]
    pub connections: Option<u64>,

    /// Load threads [default: half the CPUs, at least 1]
    #[arg(short, long, value_name = "N", value_parser = count_from_one, help_heading = "Load")]
    pub threads: Option<u64>,

    /// How long to send, with a unit: 10s, 500ms, 5m [default: 10s]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration, conflicts_with_all = ["requests", "burst"], help_heading = "Load")]
    pub duration: Option<Duration>,

    /// How many requests to send in all, exactly: 100000, 100k, 2M [default: as many as --duration allows]
    #[arg(short = 'n', long, value_name = "N", value_parser = count_from_one, conflicts_with = "burst", help_heading = "Load")]
    pub requests: Option<u64>,

    /// Open model: requests per second in all: 500, 2.5k, 1M [default: none, the model is closed]
    #[arg(short, long, value_name = "PER_S", value_parser = parse_rate, help_heading = "Load")]
    pub rate: Option<f64>,

    /// Open model: how the requests of --rate, --ramp and --steps are spaced
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Spacing::Constant, requires = "rates", help_heading = "Load")]
    pub arrivals: Spacing,

    /// Open model: N requests at equal spacing over the time of --within, with no cap on connections [default: none]
    #[arg(long, value_name = "N", value_parser = count_from_one, requires = "within", conflicts_with_all = ["arrivals", "connections"], help_heading = "Load")]
    pub burst: Option<u64>,

    /// The time over which --burst is spread, with a unit: 500ms, 10s [no default: --burst needs it]
    #[arg(long, value_name = "TIME", value_parser = positive_duration, requires = "burst", help_heading = "Load")]
    pub within: Option<Duration>,

    /// Rates that change, and replays.
    #[command(flatten)]
    pub changing: ChangingArgs,

    /// Real load before the measurement, kept apart from it, for a time with a unit: 5s. With 0s there is none, and figures
    /// are of the whole run; with auto there is none, and figures are of the steady part where there is one
    #[arg(long, value_name = "auto|TIME", default_value = "auto", value_parser = Warmup::parse, help_heading = "Load")]
    pub warmup: Warmup,

    /// Measurements one after the other on the same server, at most 10k
    #[arg(long, value_name = "N", default_value = "1", value_parser = attempts, help_heading = "Load")]
    pub attempts: u32,

    /// Seed of the arrivals of --arrivals poisson, and of the order and the random values of --mix; each attempt adds one
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,

    /// How sockets are driven
    #[arg(long, value_enum, default_value_t = Backend::Auto, help_heading = "Load")]
    pub backend: Backend,

    /// A fresh connection for each request [default: connections are kept]
    #[arg(
        long,
        conflicts_with = "requests_per_connection",
        help_heading = "Connections"
    )]
    pub fresh: bool,

    /// Close each connection after N requests [default: no limit]
    #[arg(long, value_name = "N", value_parser = count_from_one, help_heading = "Connections")]
    pub requests_per_connection: Option<u64>,

    /// Who closes a used connection and so holds its TIME_WAIT; reset (RST) leaves none
    #[arg(long, value_enum, value_name = "WHO", default_value_t = Closer::Server, help_heading = "Connections")]
    pub close_first: Closer,

    /// Open all of --connections before the clock starts and keep them open, each used in its turn; one that the server closes is
    /// opened again [default: with --rate as many are opened as it takes]
    #[arg(long, requires = "connections", conflicts_with_all = ["fresh", "requests_per_connection", "burst"], help_heading = "Connections")]
    pub hold: bool,

    /// Source addresses to spread connections over, such as 127.0.0.2-127.0.0.200 [default: the kernel chooses one]
    #[arg(long, value_name = "A-B", value_parser = sources, help_heading = "Connections")]
    pub sources: Option<Sources>,

    /// Addresses of the URL's host in place of what the resolver says, IPv6 in brackets, several with commas; repeatable.
    /// Connections go in turn to all that accept them [default: those that the resolver finds]
    #[arg(long, value_name = "HOST[:PORT]:ADDR", help_heading = "Connections")]
    pub resolve: Vec<Resolve>,

    /// Connect to a unix socket; the URL still gives the Host header and the path [default: TCP]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["resolve", "sources"], help_heading = "Connections")]
    pub unix_socket: Option<String>,

    /// Longest wait for an answer, and for a connection, with a unit: 5s, 300ms
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive_duration, help_heading = "Connections")]
    pub timeout: Duration,

    /// End without awaiting answers that are still out [default: they are awaited up to --timeout]
    #[arg(long, help_heading = "Connections")]
    pub no_drain: bool,

    /// Take any certificate of an HTTPS server [default: it must be valid, for the URL's host, and signed by somebody trusted]
    #[arg(long, conflicts_with = "cacert", help_heading = "HTTPS")]
    pub insecure: bool,

    /// PEM file with the certificate authorities to trust, instead of the system's [default: the system's]
    #[arg(long, value_name = "FILE", help_heading = "HTTPS")]
    pub cacert: Option<PathBuf>,

    /// A full handshake for each connection [default: sessions are resumed where the server allows it]
    #[arg(long, help_heading = "HTTPS")]
    pub no_resumption: bool,

    /// HTTP method [default: GET, with a body POST]
    #[arg(short = 'X', long, value_name = "METHOD", help_heading = "Request")]
    pub method: Option<String>,

    /// A header, such as 'Accept: text/html'; repeatable [default: Host, User-Agent and Accept: */*]
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = parse_header, help_heading = "Request")]
    pub headers: Vec<(String, String)>,

    /// Body of each request, as text [default: none]
    #[arg(
        short,
        long,
        value_name = "TEXT",
        conflicts_with = "body_file",
        help_heading = "Request"
    )]
    pub body: Option<String>,

    /// File with the body of each request, at most 64 MiB [default: none]
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub body_file: Option<PathBuf>,

    /// File with several requests to send in turn, in TOML: [[request]] tables with name and path, and as wanted weight, method,
    /// headers, body or body-file, expect; {seq}, {rand:1-1000} and {uuid} in them are filled in anew each time. -H and --expect are
    /// then for all that do not say otherwise themselves; docs/examples/mix.toml explains all of it [default: none]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "body", "body_file", "check", "demo"], help_heading = "Request")]
    pub mix: Option<PathBuf>,

    /// The server's process, to watch its CPU, memory and threads, those of its children included [default: the one that listens
    /// on the URL's port, where that is on this machine]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "demo", help_heading = "Watching")]
    pub server_pid: Option<u32>,

    /// Read nothing beside the load: neither server nor client nor machine; what watching costs is then in the difference
    #[arg(long, conflicts_with_all = ["server_pid", "demo"], help_heading = "Watching")]
    pub no_watch: bool,

    /// File of floodmark observe, which runs on the server's machine meanwhile: what it reads there stands beside what is read here,
    /// with the clocks aligned [default: none; a server on this machine is watched from here]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["server_pid", "no_watch", "unix_socket", "demo"], help_heading = "Watching")]
    pub with: Option<PathBuf>,

    /// What an answer must be to count as ok: status=200, body=TEXT or json=VALUE; repeatable: several of a kind
    /// are alternatives, different kinds must all hold [default: status 2xx or 3xx]
    #[arg(long, value_name = "WHAT", help_heading = "Judging")]
    pub expect: Vec<Expect>,

    /// What the answers together must be. sequence: each is a number, handed out once, without a gap, in order. scoring: the body is
    /// {"score": N}, and each answer says how many scores there are by now (numberOfTrials, a sequence), their sum (totalScore) and
    /// their mean (averageScore) [default: none]
    #[arg(long, value_enum, value_name = "CHECK", help_heading = "Judging")]
    pub check: Option<CheckArg>,

    /// An ok answer counts as goodput when it comes within this time, with a unit, of the moment when its request should have
    /// been sent [default: as --timeout]
    #[arg(long, value_name = "TIME", value_parser = positive_duration, help_heading = "Judging")]
    pub deadline: Option<Duration>,

    /// Exit with 1 when this holds, such as 'p99 > 50ms' or 'errors > 0.1%', or of one request of a mix 'search: p99 > 50ms';
    /// repeatable [default: none]
    #[arg(long, value_name = "CONDITION", value_parser = condition, help_heading = "Judging")]
    pub fail_if: Vec<Condition>,

    /// Exit with 4 also when floodmark was the limit (bound) [default: exit with 0 and say so]
    #[arg(long, help_heading = "Judging")]
    pub strict: bool,

    /// Write the record as JSON; - for stdout, and nothing else there [default: none]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,

    /// Write a page to look at, whole in itself: tables, curves, environment [default: none]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,

    /// Write the figures of each second as CSV [default: none]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,

    /// Write the distribution of response times in HdrHistogram's percentile format [default: none]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub hdr: Option<PathBuf>,

    /// Folder to keep the result in, which holds none yet [default: a new one in the temporary folder, where the latest 20 are
    /// kept]
    #[arg(long, value_name = "FOLDER", help_heading = "Output")]
    pub out: Option<PathBuf>,

    /// Print neither progress nor summary
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,

    /// Allow load on an address outside loopback, link-local and private ranges
    #[arg(long, help_heading = "Safety")]
    pub public: bool,

    /// Run although local ports or open files cannot suffice [default: refuse, with the arithmetic]
    #[arg(long, help_heading = "Safety")]
    pub anyway: bool,
}

/// How arrivals are spaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Spacing {
    /// Equal distances
    Constant,
    /// Exponential distances with the same mean
    Poisson,
}

/// Who closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Closer {
    /// The server, asked to by `Connection: close`
    Server,
    /// floodmark, after the answer
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

/// How sockets are driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// io_uring where this kernel allows it, else epoll
    Auto,
    /// io_uring, or refuse to run
    Uring,
    /// epoll and plain calls
    Epoll,
}

/// Which check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckArg {
    /// Numbers from one counter
    Sequence,
    /// Scores, counted and added up
    Scoring,
}

/// What is done about warming up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Warmup {
    /// Figures are of the steady part.
    Auto,
    /// Figures are of all of the measurement, which comes after this much real load.
    Before(Duration),
}

impl Warmup {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Warmup::Auto);
        }
        parse_duration(text)
            .map(Warmup::Before)
            .map_err(|e| format!("{e}; or auto"))
    }
}

pub fn count_from_one(text: &str) -> Result<u64, String> {
    match parse_count(text) {
        Ok(0) => Err("must be at least 1".to_owned()),
        Ok(n) => Ok(n),
        Err(e) => Err(e.to_string()),
    }
}

pub fn attempts(text: &str) -> Result<u32, String> {
    match count_from_one(text)? {
        n if n > 10_000 => Err("at most 10000".to_owned()),
        n => Ok(n as u32),
    }
}

pub fn positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(Duration::ZERO) => Err("must be longer than nothing".to_owned()),
        Ok(duration) => Ok(duration),
        Err(e) => Err(e.to_string()),
    }
}

fn sources(text: &str) -> Result<Sources, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let address = |part: &str| {
        part.trim()
            .parse()
            .map_err(|_| format!("\"{part}\" is no IP address; write 127.0.0.2-127.0.0.200"))
    };
    let sources = Sources {
        first: address(first)?,
        last: address(last)?,
    };
    match sources.count() {
        0 => Err(format!(
            "\"{text}\" is no range: its ends must be of one family, the first not above the last"
        )),
        n if n > 1 << 20 => Err(format!("\"{text}\" holds more than a million addresses")),
        _ => Ok(sources),
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    text.parse()
        .map_err(|e: floodmark_report::threshold::ConditionError| e.to_string())
}
