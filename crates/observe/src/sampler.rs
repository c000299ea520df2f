//! The thread that monitors host, server, client and store during a load.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use floodmark_record::watch::Observed;

use crate::clock::thread_cpu;
use crate::monitor::Monitor;
use crate::targets::{HostCpu, LiveCpu, MonitorTargets, UsedCpu};

/// Interval between samples of CPU, run delay and accept queue. One sample per second would miss
/// stalls of 0.1 s. More expensive samples are taken less often.
pub const EVERY: Duration = Duration::from_millis(50);

/// All samples, and one line per source that could not be sampled.
pub type Sampled = (Observed, Vec<String>);

/// A command to the sampler's thread.
pub(crate) enum MonitorCommand {
    /// Start sampling the client's processes with these PIDs.
    Clients(Vec<u32>),
    /// The measurement started at this moment.
    Measuring(Instant),
}

/// Monitors the host, the server, the client and the store's processes. On the host, it samples
/// network, CPUs, control group and disks. For the server, it also samples threads, sockets and the
/// JVM.
///
/// Series that stay zero are kept, because a zero is evidence. Host and network counters cover
/// everything on the host. A sampler that exceeds its small CPU share samples less often, so many
/// connections or threads make its series coarser. Memory is bounded: beyond 3,600 values per
/// series, the resolution is halved.
#[derive(Debug)]
pub struct Sampler {
    /// Dropping the sender stops the thread.
    commands: Option<mpsc::Sender<MonitorCommand>>,
    thread: io::Result<JoinHandle<Sampled>>,
    live: LiveCpu,
}

impl Sampler {
    /// Starts sampling at `start`, which is time 0 of the series. Takes the first samples before
    /// returning, unless `start` is in the future. `every` must be in whole milliseconds, and at
    /// least one tick of the kernel's CPU accounting (10 ms).
    #[must_use]
    pub fn start_at(start: Instant, every: Duration, targets: MonitorTargets) -> Self {
        let (commands, received) = mpsc::channel();
        let (opened, is_open) = mpsc::channel();
        let live = LiveCpu::default();
        let shared = live.clone();
        let thread = std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || run((start, every), &targets, (&received, opened), &shared));
        if start <= Instant::now() {
            // Wait for the first samples, because counters must include the whole load. A thread
            // that fails drops the sender, which ends the wait.
            let _ = is_open.recv();
        }
        Self {
            commands: Some(commands),
            thread,
            live,
        }
    }

    /// Starts sampling the client, which consists of one or more processes.
    pub fn clients(&self, pids: &[u32]) {
        self.send(MonitorCommand::Clients(pids.to_vec()));
    }

    /// Marks the start of the measurement. Thread CPU usage is measured from this point.
    pub fn measuring(&self) {
        self.send(MonitorCommand::Measuring(Instant::now()));
    }

    /// Returns the server's CPU time at the last sample. Returns `None` if the server isn't
    /// sampled.
    #[must_use]
    pub fn server_cpu(&self) -> Option<UsedCpu> {
        last(&self.live.server)
    }

    /// Returns the store's CPU time at the last sample. Returns `None` if the store isn't sampled.
    #[must_use]
    pub fn store_cpu(&self) -> Option<UsedCpu> {
        last(&self.live.store)
    }

    /// Returns the host's CPU time at the last sample. Returns `None` if the host isn't sampled.
    #[must_use]
    pub fn host_cpu(&self) -> Option<HostCpu> {
        last(&self.live.host)
    }

    fn send(&self, command: MonitorCommand) {
        if let Some(commands) = &self.commands {
            // A failed thread is reported when it is joined.
            let _ = commands.send(command);
        }
    }

    /// Takes the last samples and stops. The last step may be shorter.
    #[must_use]
    pub fn stop(mut self) -> Sampled {
        self.commands = None;
        let nothing = |line: String| (Observed::default(), vec![line]);
        match self.thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| {
                nothing("host counters: the sampler thread panicked".to_owned())
            }),
            Err(error) => nothing(format!(
                "host counters: cannot start the sampler thread: {error}"
            )),
        }
    }
}

fn last<T: Copy>(read: &Mutex<Option<T>>) -> Option<T> {
    // A failed thread is reported when it is joined.
    read.lock().ok().and_then(|last| *last)
}

fn run(
    (start, every): (Instant, Duration),
    targets: &MonitorTargets,
    (received, opened): (&mpsc::Receiver<MonitorCommand>, mpsc::Sender<()>),
    live: &LiveCpu,
) -> Sampled {
    let mut early = Vec::new();
    loop {
        match received.recv_timeout(start.saturating_duration_since(Instant::now())) {
            Ok(command) => early.push(command),
            Err(RecvTimeoutError::Disconnected) if Instant::now() < start => {
                return (Observed::default(), Vec::new());
            }
            Err(_) => break,
        }
    }
    let cpu = thread_cpu();
    let mut monitor = Monitor::open(every, targets, live);
    drop(opened);
    early
        .into_iter()
        .for_each(|command| monitor.handle(command));
    loop {
        let wait = monitor.samples.next();
        match received.recv_timeout(wait.saturating_duration_since(Instant::now())) {
            Ok(command) => monitor.handle(command),
            Err(RecvTimeoutError::Timeout) => monitor.samples.take(Instant::now()),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    monitor.finish(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{max, series, sum};
    use floodmark_record::target::Address;
    use std::net::{TcpListener, TcpStream};

    fn start(every_ms: u64, targets: MonitorTargets) -> Sampler {
        Sampler::start_at(Instant::now(), Duration::from_millis(every_ms), targets)
    }

    #[test]
    fn samples_connections_and_cpu_and_keeps_zeros() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sampler = start(200, MonitorTargets::default());
        let begin = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..50 {
            drop(TcpStream::connect(address).unwrap());
            drop(listener.accept().unwrap());
        }
        while begin.elapsed() < Duration::from_millis(350) {
            std::hint::black_box(begin);
        }
        let (observed, missing) = sampler.stop();
        assert!(
            !missing.iter().any(|line| line.contains("netstat")),
            "{missing:?}"
        );

        let opens = series(&observed, "network", "ActiveOpens");
        assert!(opens.values.iter().sum::<f64>() >= 50.0, "{opens:?}");
        assert_eq!(
            (opens.start_ms, opens.step_ms, opens.unit()),
            (0, 200, "count".to_owned())
        );
        // There is one full step and a partial one. On a busy host, the sampler may wake up late,
        // but it never skips a step.
        assert!(opens.values.len() >= 2, "{opens:?}");
        let overflows = series(&observed, "network", "TCPTimeWaitOverflow");
        assert_eq!(overflows.values.len(), opens.values.len());
        let resting = series(&observed, "network", "tw");
        assert!(resting.values.iter().any(|tw| *tw > 0.0));
        let busy: f64 = sum(&observed, "host", "busy") * 0.2;
        let stolen = sum(&observed, "host", "steal");
        assert!(busy + stolen > 0.1, "{busy} {stolen}");
        assert!(observed.server.is_none());
        let watcher = observed.watcher.unwrap();
        assert!(watcher.cpu_s > 0.0 && watcher.cpu_s < watcher.wall_s);
    }

    #[test]
    fn returns_nothing_if_stopped_before_its_start() {
        let sampler = Sampler::start_at(
            Instant::now() + Duration::from_secs(60),
            Duration::from_secs(1),
            MonitorTargets::default(),
        );
        assert_eq!(sampler.stop(), (Observed::default(), Vec::new()));
    }

    /// Starts a child that waits for a line, burns CPU and prints its own CPU time.
    fn burner() -> std::process::Child {
        let program =
            "read line; i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; times; read line";
        std::process::Command::new("sh")
            .args(["-c", program])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    }

    #[test]
    fn measures_the_cpu_that_a_busy_server_reports() {
        use std::io::{BufRead, Write};
        let mut child = burner();
        let targets = MonitorTargets {
            server_pid: Some(child.id()),
            ..MonitorTargets::default()
        };
        let sampler = start(50, targets);
        sampler.clients(&[std::process::id()]);
        std::thread::sleep(Duration::from_millis(120));
        sampler.measuring();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin).unwrap();
        let mut line = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let (observed, missing) = sampler.stop();
        writeln!(stdin).unwrap();
        child.wait().unwrap();
        // The first line that `times` prints is for the shell itself: "0m0.41s 0m0.00s".
        let truth: f64 = line
            .split_ascii_whitespace()
            .map(|time| {
                let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
                minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
            })
            .sum();
        let measured = sum(&observed, "server", "user") + sum(&observed, "server", "system");
        assert!(truth > 0.1, "{line}");
        assert!(
            (measured - truth).abs() <= 0.05,
            "{measured} {truth} {missing:?}"
        );
        let on_cpu = sum(&observed, "server", "on_cpu");
        assert!((on_cpu - truth).abs() <= 0.05, "{on_cpu} {truth}");
        let seen = observed.server.as_ref().unwrap();
        assert_eq!((seen.pids.clone(), seen.processes), (vec![child.id()], 1));
        assert_eq!(seen.name, "sh");
        let thread = &seen.threads[0];
        assert!((thread.on_cpu_s - truth).abs() <= 0.05, "{thread:?}");
        assert!(seen.peak_rss_bytes > 100_000);
        let wall_ms = observed.watcher.unwrap().wall_s * 1e3;
        let measured_from_ms = observed.measured_from_ms.unwrap() as f64;
        assert!(measured_from_ms > 0.0 && measured_from_ms < wall_ms);
        let client = series(&observed, "client", "on_cpu");
        assert!(client.values.iter().sum::<f64>() > 0.0);
        assert!(sum(&observed, "client", "voluntary_ctxt_switches") >= 0.0);
    }

    #[test]
    fn keeps_the_samples_of_a_server_that_ends_early() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let targets = MonitorTargets {
            server_pid: Some(child.id()),
            ..MonitorTargets::default()
        };
        let sampler = start(20, targets.clone());
        sampler.measuring();
        std::thread::sleep(Duration::from_millis(500));
        child.kill().unwrap();
        child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let (observed, missing) = sampler.stop();
        assert!(sum(&observed, "server", "user") > 0.02);
        // Any file may be the first to be read after the process ends, but there is always exactly
        // one line.
        let ended = |line: &&String| {
            line.starts_with("server: /proc/PID/") && line.contains("sampling stopped")
        };
        assert_eq!(missing.iter().filter(ended).count(), 1, "{missing:?}");
        assert!(missing.iter().all(|line| !line.contains('\n')));
        assert!(observed.server.unwrap().peak_rss_bytes > 0);

        // A process that does not exist is also reported.
        let (observed, missing) = start(20, targets).stop();
        assert!(observed.server.is_none());
        assert!(
            missing.iter().any(|line| line.contains("does not exist")),
            "{missing:?}"
        );
    }

    #[test]
    fn finds_a_server_by_port_and_counts_its_sockets() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..5)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let targets = MonitorTargets {
            addresses: vec![Address::Ip(address)],
            server_pid: None,
            ..MonitorTargets::default()
        };
        let sampler = start(20, targets);
        // The sockets are counted regardless of which process is the client.
        let mut client = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        sampler.clients(&[client.id()]);
        std::thread::sleep(Duration::from_millis(600));
        let (observed, missing) = sampler.stop();
        client.kill().unwrap();
        client.wait().unwrap();
        drop(clients);
        assert!(
            !missing.iter().any(|line| line.contains("server")),
            "{missing:?}"
        );
        assert_eq!(observed.server.as_ref().unwrap().pids, [std::process::id()]);
        assert_eq!(max(&observed, "listener", "accept_queue"), 5.0);
        assert_eq!(max(&observed, "client sockets", "established"), 5.0);
        // The kernel establishes connections before the server accepts them.
        assert_eq!(max(&observed, "server sockets", "established"), 5.0);
        assert!(max(&observed, "tcp_info", "rtt") > 0.0);
    }

    #[test]
    fn reports_a_remote_server_once() {
        let address = Address::Ip("127.0.0.1:1".parse().unwrap());
        let targets = MonitorTargets {
            addresses: vec![address],
            server_pid: None,
            ..MonitorTargets::default()
        };
        let (observed, missing) = start(20, targets).stop();
        assert!(observed.server.is_none());
        let lines = missing.iter().filter(|line| line.starts_with("server"));
        assert_eq!(lines.count(), 1, "{missing:?}");
    }
}
