//! `floodmark observe`: monitors a server on its own host.

use std::fs::File;
use std::io::{self, BufRead, ErrorKind, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use floodmark_host::{Stop, stdin_is_readable};
use floodmark_observe::environment::environment;
use floodmark_observe::listener::{self, NotFound};
use floodmark_observe::{MonitorTargets, Observer, Root};
use floodmark_record::agent_lines::AgentCommand;
use floodmark_record::plan::Address;
use floodmark_record::watch::{OBSERVER_FILE_VERSION, ObserverLine, ObserverOpened};

use crate::exit::{Ending, HELP, stop_on_signals};
use crate::files::is_stdout;
use crate::load::shared::check_server_pid;
use crate::out;
use crate::session::tool;
use floodmark_plan::values::{count_within, positive_duration};

/// Interval between output lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time until the first ping.
const PING_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval between checks of the stop flag while waiting for the first ping.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Monitor a server on its own host while a remote client loads it.
///
/// Samples 20 times a second and writes one line per second until Ctrl-C. To stream these lines,
/// run on the client's host: ssh SERVER floodmark observe --port 8080 --out - > server.jsonl.
/// Meanwhile, load the server from the same host: floodmark load URL --with server.jsonl
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ObserveArgs {
    /// Port of the server [required]
    #[arg(long, value_name = "PORT", value_parser = port)]
    pub port: u16,

    /// Address of the server, if several servers use the port [default: any]
    #[arg(long, value_name = "IP", value_parser = ip_address)]
    pub address: Option<IpAddr>,

    /// Process to monitor, with its children [default: the process that listens on the port]
    #[arg(long, value_name = "PID", value_parser = crate::process_id)]
    pub server_pid: Option<u32>,

    /// New output file, which load --with reads; - for stdout [required]
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    /// Time to monitor, with a unit: 10m [default: until Ctrl-C, SIGTERM or a closed stdout]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration)]
    pub duration: Option<Duration>,

    /// Answer pings on stdin, and end when stdin is closed; requires --out - (load --observe uses
    /// this)
    #[arg(long, hide = true)]
    pub pings: bool,

    /// Print only errors on stderr
    #[arg(short, long)]
    pub quiet: bool,
}

fn port(text: &str) -> Result<u16, String> {
    count_within(text, 1..=u16::MAX.into()).map(|n| n as u16)
}

fn ip_address(text: &str) -> Result<IpAddr, String> {
    let address = text.parse();
    address.map_err(|_| "not an IP address; use an address such as 127.0.0.1 or ::1".to_owned())
}

/// Runs the command.
pub fn run(args: &ObserveArgs) -> Result<(), Ending> {
    let stop = stop_on_signals()?;
    if args.pings {
        await_ping(&stop)?;
    }
    let begin = Instant::now();
    let mut observer = Observer::open(&watch(args)?).map_err(Ending::server)?;
    let (name, pids) = observer.server();
    let mut file = LineFile::create(&args.out)?;
    if !args.quiet {
        out::note(&greeting(args, &name, &pids));
    }
    file.write(&ObserverLine::Opened(Box::new(ObserverOpened {
        schema: OBSERVER_FILE_VERSION,
        tool: tool(),
        environment: environment(&Root::host()),
        port: args.port,
        name,
        pids,
        allowed_cpus: observer.allowed_cpus(),
        clocks: observer.clocks(),
    })))?;
    if args.pings {
        answer_pings(args, &stop)?;
    }
    let mut due = begin + INTERVAL;
    loop {
        observer.step();
        let is_alive = observer.server_is_alive();
        let end_reason = if stop.is_set() {
            Some("interrupted")
        } else if args.duration.is_some_and(|d| begin.elapsed() >= d) {
            Some("its duration elapsed")
        } else if !is_alive {
            Some("the server's process ended")
        } else if Instant::now() < due {
            continue;
        } else {
            None
        };
        due = (due + INTERVAL).max(Instant::now());
        let (groups, second) = observer.drain();
        for group in groups {
            file.write(&ObserverLine::Group(group))?;
        }
        file.write(&ObserverLine::Second(second))?;
        if let Some(reason) = end_reason {
            let why = reason.to_owned();
            file.write(&ObserverLine::Ended { why })?;
        }
        match end_reason {
            None if !file.closed => {}
            Some(_) if !file.closed && !is_alive => {
                return Err(Ending::server(format!(
                    "the server on port {} has ended; the data recorded so far is saved",
                    args.port
                )));
            }
            _ => return Ok(()),
        }
    }
}

/// Waits for the first ping, because `kubectl attach` misses output written before it connects.
fn await_ping(stop: &Stop) -> Result<(), Ending> {
    let begin = Instant::now();
    while !stdin_is_readable(POLL_INTERVAL) {
        if stop.is_set() || begin.elapsed() > PING_TIMEOUT {
            return Err(Ending::internal("observe: no ping arrived on stdin"));
        }
    }
    Ok(())
}

/// Starts a thread that answers pings, and that stops the observation when stdin is closed.
fn answer_pings(args: &ObserveArgs, stop: &Stop) -> Result<(), Ending> {
    if !is_stdout(&args.out) {
        return Err(Ending::usage("--pings: requires --out -"));
    }
    let mut lines = LineFile::create(&args.out)?;
    let closed = stop.clone();
    // This thread is never joined, because a blocked read cannot be canceled.
    let answering = std::thread::Builder::new().spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let Some(AgentCommand::Ping(sent_ns)) = AgentCommand::parse(&line) else {
                break;
            };
            let monotonic_ns = floodmark_workers::monotonic_ns();
            let pong = ObserverLine::Pong {
                sent_ns,
                monotonic_ns,
            };
            if lines.write(&pong).is_err() {
                break;
            }
        }
        closed.set();
    });
    let started = answering.map(drop);
    started.map_err(|error| Ending::internal(format!("cannot start a thread: {error}")))
}

/// Returns the server process to monitor.
fn watch(args: &ObserveArgs) -> Result<MonitorTargets, Ending> {
    check_server_pid(args.server_pid)?;
    let found = listener::on_port(&Root::host(), args.port, args.address);
    let addresses = match (found, args.server_pid) {
        (Ok(addresses), _) => addresses,
        // The process given with --server-pid may listen in another network namespace. floodmark
        // cannot see ports there.
        (Err(_), Some(_)) => {
            let any = args.address.unwrap_or(IpAddr::from([0, 0, 0, 0]));
            vec![Address::Ip((any, args.port).into())]
        }
        (Err(NotFound::Nobody(line)), None) => return Err(Ending::server(line)),
        (Err(NotFound::Several(line)), None) => return Err(Ending::usage(line)),
    };
    Ok(MonitorTargets {
        addresses,
        server_pid: args.server_pid,
        ..MonitorTargets::default()
    })
}

/// Returns a message with the server's name and the command to run on the client's host.
fn greeting(args: &ObserveArgs, name: &str, pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let file = if is_stdout(&args.out) {
        "FILE".to_owned()
    } else {
        args.out.display().to_string()
    };
    format!(
        "monitoring {} (process {}) on port {} until Ctrl-C; meanwhile, run on the client's host: floodmark load URL --with {}\n",
        floodmark_report::plain::line(name),
        pids.join(", "),
        args.port,
        floodmark_report::plain::line(&file)
    )
}

/// Destination of the observer's output lines.
struct LineFile {
    name: String,
    to: Box<dyn Write + Send>,
    /// Whether the reader has closed the pipe.
    closed: bool,
}

impl LineFile {
    /// Opens stdout, or creates a new file for output.
    fn create(path: &Path) -> Result<Self, Ending> {
        let (name, to): (String, Box<dyn Write + Send>) = if is_stdout(path) {
            ("stdout".to_owned(), Box::new(io::stdout()))
        } else {
            let name = path.display().to_string();
            let created = File::options().write(true).create_new(true).open(path);
            let file = created.map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => {
                    Ending::usage(format!("--out {name}: file exists; name a new file"))
                }
                _ => Ending::usage(format!(
                    "--out {name}: {error}; name a file in an existing, writable directory"
                )),
            })?;
            (name, Box::new(file))
        };
        let closed = false;
        Ok(Self { name, to, closed })
    }

    /// Writes a line with a single call, so that readers rarely see a partial line.
    fn write(&mut self, line: &ObserverLine) -> Result<(), Ending> {
        if self.closed {
            return Ok(());
        }
        let text = line.to_line().map_err(Ending::internal)?;
        match self.to.write_all(&text).and_then(|()| self.to.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            written => written.map_err(|e| Ending::internal(format!("--out {}: {e}", self.name))),
        }
    }
}
