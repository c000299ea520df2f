//! A worker that sends a share of a load and follows a coordinator
//! ([`agent_lines`](floodmark_record::agent_lines)).

use std::fs;
use std::io::{self, BufRead, Write};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_diagnose::doctor::checkup;
use floodmark_host::{open_files, stdin_is_readable};
use floodmark_load::backend::uring::{Uring, unavailable};
use floodmark_load::clock::{Clock, Ns};
use floodmark_load::worker::{self, Coordinated, RateControl, StopFlag};
use floodmark_observe::{Root, system_check::facts};
use floodmark_record::agent_lines::{AgentCommand, AgentHello, AgentLine};
use floodmark_record::kept::KEPT_BYTES;
use floodmark_workers::SteadyClock;

use super::{failed, no_thread, raise_limit, read_input, read_line, write_line};
use crate::doctor::SAMPLE;
use crate::exit::Ending;

/// Maximum time until the coordinator greets the agent. A cluster may start agents whose
/// coordinator has already ended.
const GREETING_TIMEOUT: Duration = Duration::from_secs(600);

/// Maximum time between the end of stdin and the end of the process.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between two checks of the stop flag while the agent waits.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum wake-up delay, in ns, that does not move the start. Up to this delay, the load starts at
/// the agreed time, so its first requests are late. A longer delay moves the start.
const WAKE_UP_NS: u64 = 2_000_000;

/// Number of kept responses per line.
const RESPONSES_PER_LINE: usize = 2048;

/// Runs the agent until its stdin is closed.
pub fn run() -> Result<(), Ending> {
    let wall = SteadyClock::start();
    if !stdin_is_readable(GREETING_TIMEOUT) {
        let limit_s = GREETING_TIMEOUT.as_secs();
        return Err(Ending::internal(format!(
            "worker: no coordinator wrote to stdin within {limit_s} s"
        )));
    }
    let Some(line) = before_input(wall)? else {
        return Ok(());
    };
    let input = read_input(&line)?;
    if let Some(why) = floodmark_plan::agent_shortage(&input, open_files().hard) {
        return send(&AgentLine::Refused(why)).map_err(lost_coordinator);
    }
    let files = raise_limit(&input);
    let stop = StopFlag::default();
    let (starts, started) = channel();
    let (ended, closed) = channel::<()>();
    let requested = stop.clone();
    // This thread is never joined, because a blocked read cannot be canceled.
    let reader = thread::Builder::new().spawn(move || {
        obey(wall, &requested, &starts);
        requested.stop();
        drop(ended);
        thread::sleep(END_TIMEOUT);
        std::process::exit(1);
    });
    reader.map_err(no_thread)?;
    let started = Mutex::new(started);
    let await_start = |clock: &Clock| await_start(clock, wall, &started, &stop);
    let coordinated = Coordinated {
        await_start: &await_start,
        responses: &mut ResponseLines::default(),
    };
    let rates = RateControl::default();
    worker::run(input, files, &stop, &rates, Some(coordinated), |event| {
        if send(&AgentLine::Event(Box::new(event))).is_err() {
            stop.stop();
        }
    })
    .map_err(failed)?;
    // The coordinator measures the clock once more.
    let _ = closed.recv();
    Ok(())
}

fn hello() -> AgentHello {
    AgentHello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: kernel_text("hostname").unwrap_or_default(),
        boot_id: kernel_text("random/boot_id"),
        cpus: thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
        pid: std::process::id(),
        no_uring: Uring::probe(1).err().map(|error| unavailable(&error)),
    }
}

/// Handles the commands that precede the input. Returns the first line of the input, or `None` if
/// stdin ends before the input.
fn before_input(wall: SteadyClock) -> Result<Option<String>, Ending> {
    loop {
        let line = read_line()?;
        let response = match AgentCommand::parse(&line) {
            Some(AgentCommand::Hello) => AgentLine::Hello(hello()),
            Some(AgentCommand::Ping(sent_ns)) => AgentLine::Pong {
                sent_ns,
                agent_ns: wall.now_ns(),
            },
            Some(AgentCommand::Checkup) => {
                AgentLine::Checkup(Box::new(checkup(facts(&Root::host(), SAMPLE))))
            }
            _ => return Ok(Some(line).filter(|line| !line.is_empty())),
        };
        send(&response).map_err(lost_coordinator)?;
    }
}

/// Returns the content of a file in `/proc/sys/kernel`; `None` if it cannot be read.
fn kernel_text(file: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{file}")).ok()?;
    Some(text.trim().to_owned())
}

fn lost_coordinator(error: io::Error) -> Ending {
    Ending::internal(format!(
        "worker: the coordinator cannot be reached: {error}"
    ))
}

fn send(line: &AgentLine) -> io::Result<()> {
    write_line(&line.encode()?)
}

/// Handles the coordinator's commands until stdin ends or a line is not a command.
fn obey(wall: SteadyClock, stop: &StopFlag, starts: &Sender<i64>) {
    for line in io::stdin().lock().lines() {
        let Some(command) = line.ok().and_then(|line| AgentCommand::parse(&line)) else {
            return;
        };
        match command {
            AgentCommand::Ping(sent_ns) => {
                let agent_ns = wall.now_ns();
                if send(&AgentLine::Pong { sent_ns, agent_ns }).is_err() {
                    return;
                }
            }
            // After the load, nothing waits for a start.
            AgentCommand::Start(at_ns) => drop(starts.send(at_ns)),
            AgentCommand::Stop => stop.stop(),
            AgentCommand::Hello | AgentCommand::Checkup => return,
        }
    }
}

/// Waits until the coordinator starts the next phase. Returns the start time on `clock`.
fn await_start(
    clock: &Clock,
    wall: SteadyClock,
    starts: &Mutex<Receiver<i64>>,
    stop: &StopFlag,
) -> Ns {
    if send(&AgentLine::Waiting).is_err() {
        stop.stop();
    }
    // Only one thread waits at a time, so the lock is free and never poisoned.
    let Ok(starts) = starts.lock() else {
        return clock.now();
    };
    let start_ns = loop {
        match starts.recv_timeout(POLL_INTERVAL) {
            Ok(start_ns) => break start_ns,
            Err(RecvTimeoutError::Timeout) if !stop.is_set() => {}
            Err(_) => return clock.now(),
        }
    };
    loop {
        let left_ns = u64::try_from(start_ns - wall.now_ns()).unwrap_or(0);
        if left_ns == 0 || stop.is_set() {
            break;
        }
        thread::sleep(Duration::from_nanos(left_ns).min(POLL_INTERVAL));
    }
    // Convert one reading to both clocks. If each clock were read separately, this thread could be
    // preempted for milliseconds in between, and all its response times would be off by that
    // amount.
    let now = Instant::now();
    let (clock_ns, now_ns) = (clock.at(now), wall.at(now));
    // A wake-up delay of at most WAKE_UP_NS does not move the start from the agreed time.
    let late_ns = u64::try_from(now_ns - start_ns).unwrap_or(0);
    let late_ns = if late_ns <= WAKE_UP_NS { late_ns } else { 0 };
    let began = AgentLine::Began {
        agent_ns: now_ns - late_ns as i64,
        clock_ns: clock_ns.saturating_sub(late_ns),
    };
    if send(&began).is_err() {
        stop.stop();
    }
    clock_ns.saturating_sub(late_ns)
}

/// Writes kept responses to stdout as lines.
#[derive(Default)]
struct ResponseLines(Vec<u8>);

impl ResponseLines {
    fn send(&mut self, bytes: usize) -> io::Result<()> {
        let rest = self.0.split_off(bytes);
        let line = std::mem::replace(&mut self.0, rest);
        send(&AgentLine::Responses(line))
    }
}

impl Write for ResponseLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const LINE: usize = RESPONSES_PER_LINE * KEPT_BYTES;
        self.0.extend_from_slice(bytes);
        while self.0.len() >= LINE {
            self.send(LINE)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.len() {
            0 => Ok(()),
            bytes => self.send(bytes),
        }
    }
}
