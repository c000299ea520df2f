//! `floodmark observe`: the server's side of the evidence, on the server's machine.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use floodmark_host::Stop;
use floodmark_observe::environment::environment;
use floodmark_observe::server::{self, NotFound};
use floodmark_observe::{Observer, Root, Watch};
use floodmark_record::elsewhere::{FILE_VERSION, Line, Opened};
use floodmark_record::target::Address;

use crate::exit::{Ending, HELP};
use crate::load::args::positive_duration;
use crate::load::{lives, tool};
use crate::out;

/// Distance of lines.
const EACH: Duration = Duration::from_secs(1);

/// Observe a server on its own machine, for a load that comes from another one.
///
/// What is read 20 times a second is written to a file as it comes, until Ctrl-C. Have the file on the load's machine while the load
/// runs, and name it there: ssh SERVER floodmark observe --port 8080 --out - > server.jsonl, then floodmark load URL --with
/// server.jsonl.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ObserveArgs {
    /// Port that the server listens on [no default: it says which server]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Address that it listens on, where several servers have the port [default: any]
    #[arg(long, value_name = "IP")]
    pub address: Option<IpAddr>,

    /// The server's process; children of it are observed too [default: the one that listens on the port]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub server_pid: Option<u32>,

    /// File to write, a line for each second, which must not exist yet; - for stdout [no default: it is what load --with takes]
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    /// End after this time, with a unit: 10m [default: end on Ctrl-C or SIGTERM, or when the reader of stdout has gone]
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration)]
    pub duration: Option<Duration>,

    /// Print nothing on stderr but errors
    #[arg(short, long)]
    pub quiet: bool,
}

/// Runs the command.
pub fn run(args: &ObserveArgs) -> Result<(), Ending> {
    let stop = Stop::on_signals()
        .map_err(|e| Ending::failed(format!("signals cannot be handled: {e}")))?;
    let begin = Instant::now();
    let mut observer = Observer::open(&watch(args)?).map_err(Ending::server)?;
    let (name, pids) = observer.server();
    let mut file = Output::create(&args.out)?;
    if !args.quiet {
        out::note(&said(args, &name, &pids));
    }
    file.write(&Line::Opened(Opened {
        schema: FILE_VERSION,
        tool: tool(),
        environment: environment(&Root::host()),
        port: args.port,
        name,
        pids,
        clocks: observer.clocks(),
    }))?;
    let mut due = begin + EACH;
    loop {
        observer.step();
        let why = if stop.is_set() {
            Some("it was interrupted")
        } else if args.duration.is_some_and(|d| begin.elapsed() >= d) {
            Some("its time was over")
        } else if !observer.server_lives() {
            Some("the server's process ended")
        } else {
            None
        };
        if why.is_none() && Instant::now() < due {
            continue;
        }
        due = (due + EACH).max(Instant::now());
        let (groups, second) = observer.drain();
        for group in groups {
            file.write(&Line::Group(group))?;
        }
        file.write(&Line::Second(second))?;
        if let Some(why) = why {
            let why = why.to_owned();
            file.write(&Line::Ended { why })?;
        }
        if file.closed || (why.is_some() && observer.server_lives()) {
            return Ok(());
        }
        if why.is_some() {
            return Err(Ending::server(format!(
                "the server on port {} has ended; what was observed until then is kept",
                args.port
            )));
        }
    }
}

/// What to watch.
fn watch(args: &ObserveArgs) -> Result<Watch, Ending> {
    lives(args.server_pid)?;
    let found = server::on_port(&Root::host(), args.port, args.address);
    let addresses = match (found, args.server_pid) {
        (Ok(addresses), _) => addresses,
        // A named process may listen in another network namespace, where it is not seen from here.
        (Err(_), Some(_)) => {
            let any = args.address.unwrap_or(IpAddr::from([0, 0, 0, 0]));
            vec![Address::Ip((any, args.port).into())]
        }
        (Err(NotFound::Nobody(line)), None) => return Err(Ending::server(line)),
        (Err(NotFound::Several(line)), None) => return Err(Ending::usage(line)),
    };
    Ok(Watch {
        addresses,
        server_pid: args.server_pid,
        ..Watch::default()
    })
}

/// What is observed, and what to do with it.
fn said(args: &ObserveArgs, name: &str, pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let file = match is_stdout(&args.out) {
        true => "FILE".to_owned(),
        false => args.out.display().to_string(),
    };
    format!(
        "observing {} (process {}) on port {} until Ctrl-C; meanwhile, on the load's machine: floodmark load URL --with {}\n",
        floodmark_report::plain::line(name),
        pids.join(", "),
        args.port,
        floodmark_report::plain::line(&file)
    )
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Where lines go.
struct Output {
    name: String,
    to: Box<dyn Write>,
    /// Whether the reader has gone: nobody is left to write for.
    closed: bool,
}

impl Output {
    /// Opens stdout, or a file that is not there yet.
    fn create(path: &Path) -> Result<Self, Ending> {
        if is_stdout(path) {
            return Ok(Self {
                name: "stdout".to_owned(),
                to: Box::new(io::stdout()),
                closed: false,
            });
        }
        let name = path.display().to_string();
        match File::options().write(true).create_new(true).open(path) {
            Ok(file) => Ok(Self {
                name,
                to: Box::new(file),
                closed: false,
            }),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Err(Ending::usage(format!(
                "--out {name}: exists already, and may be another observation; name a new file"
            ))),
            Err(e) => Err(Ending::usage(format!(
                "--out {name}: {e}; name a file in a folder that exists and can be written"
            ))),
        }
    }

    /// Writes a whole line at once, so that whoever reads along sees few halves.
    fn write(&mut self, line: &Line) -> Result<(), Ending> {
        if self.closed {
            return Ok(());
        }
        let mut text = serde_json::to_vec(line).map_err(Ending::failed)?;
        text.push(b'\n');
        match self.to.write_all(&text).and_then(|()| self.to.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            written => written.map_err(|e| Ending::failed(format!("--out {}: {e}", self.name))),
        }
    }
}
