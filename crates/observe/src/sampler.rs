//! A thread that watches the machine, the server and the load process while a load runs.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use floodmark_record::watch::Observed;

use crate::Root;
use crate::watch::{LastRead, Shown, UsedCpu, Watch};
use crate::watcher::thread_cpu;
use crate::watching::Watching;

/// Distance of readings of CPU, run delay and the listener's queue: 20 a second, since what stalls a server for a tenth of a second
/// is not seen at one a second. What costs more, or tells less in so short a time, is read less often.
pub const EVERY: Duration = Duration::from_millis(50);

/// Shortest interval: one tick of the kernel's CPU accounting.
const SHORTEST: Duration = Duration::from_millis(10);

/// What a sampler hands back: what was read, and one line for each thing that could not be.
pub type Sampled = (Observed, Vec<String>);

/// What the thread is told.
pub(crate) enum Word {
    /// The load process has this id.
    Client(u32),
    /// The measurement begins at this moment.
    Measuring(Instant),
}

/// Watches, beside a load: counters of network, CPUs, control group and disks; the server's processes and threads, its sockets and
/// its JVM; the load process; the processes of the store behind the server.
///
/// Series that stay zero are kept: a zero is evidence. Counters of the network and the machine are of all that runs there. Each
/// kind of reading may take a small share of one CPU, and is taken less often where it would exceed that, so that many connections or
/// threads make a series coarser and not the watcher a load; memory is bounded by 3,600 values a series, beyond which the
/// resolution is halved.
#[derive(Debug)]
pub struct Sampler {
    /// Dropped to stop the thread.
    words: Option<mpsc::Sender<Word>>,
    thread: io::Result<JoinHandle<Sampled>>,
    shown: Shown,
}

impl Sampler {
    /// Starts at a moment, which is `start_ms` 0 of the series; where that is now, the first readings have been taken when it returns. `every` is taken in whole milliseconds, 10 at least.
    #[must_use]
    pub fn start_at(start: Instant, every: Duration, watch: Watch) -> Self {
        let every = Duration::from_millis(
            u64::try_from(every.max(SHORTEST).as_millis()).unwrap_or(u64::MAX / 2),
        );
        let (words, told) = mpsc::channel();
        let (opened, is_open) = mpsc::channel();
        let shown = Shown::default();
        let show = shown.clone();
        let thread = std::thread::Builder::new()
            .name("sampler".to_owned())
            .spawn(move || {
                run(
                    &Root::host(),
                    (start, every),
                    &watch,
                    (&told, opened),
                    &show,
                )
            });
        if start <= Instant::now() {
            // Whoever begins a load after this finds all of it in the counters. Where the thread failed there is nothing to wait for.
            let _ = is_open.recv();
        }
        Self {
            words: Some(words),
            thread,
            shown,
        }
    }

    /// Watches the load process too, from now on.
    pub fn client(&self, pid: u32) {
        self.say(Word::Client(pid));
    }

    /// The measurement begins now: figures of threads count from here.
    pub fn measuring(&self) {
        self.say(Word::Measuring(Instant::now()));
    }

    /// What the server had used when it was last read; none where it is not watched.
    #[must_use]
    pub fn server_cpu(&self) -> Option<UsedCpu> {
        last(&self.shown.server)
    }

    /// What the store had used when it was last read; none where it is not watched.
    #[must_use]
    pub fn store_cpu(&self) -> Option<UsedCpu> {
        last(&self.shown.store)
    }

    fn say(&self, word: Word) {
        if let Some(words) = &self.words {
            // A thread that failed is found out when it is joined.
            let _ = words.send(word);
        }
    }

    /// Takes a last reading and stops. The last value may be of a step that was cut short.
    #[must_use]
    pub fn stop(mut self) -> Sampled {
        self.words = None;
        let nothing = |line: String| (Observed::default(), vec![line]);
        match self.thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| nothing("host counters: the sampler failed".to_owned())),
            Err(error) => nothing(format!("host counters: no thread for the sampler: {error}")),
        }
    }
}

fn last(read: &LastRead) -> Option<UsedCpu> {
    // A thread that failed is found out when it is joined.
    read.lock().ok().and_then(|last| *last)
}

fn run(
    root: &Root,
    (start, every): (Instant, Duration),
    watch: &Watch,
    (told, opened): (&mpsc::Receiver<Word>, mpsc::Sender<()>),
    shown: &Shown,
) -> Sampled {
    let mut early = Vec::new();
    loop {
        match told.recv_timeout(start.saturating_duration_since(Instant::now())) {
            Ok(word) => early.push(word),
            Err(RecvTimeoutError::Disconnected) if Instant::now() < start => {
                return (Observed::default(), Vec::new());
            }
            Err(_) => break,
        }
    }
    let cpu = thread_cpu();
    let mut watching = Watching::open(root, every, watch, shown);
    drop(opened);
    early.into_iter().for_each(|word| watching.told(word));
    loop {
        let wait = watching.samples.next();
        match told.recv_timeout(wait.saturating_duration_since(Instant::now())) {
            Ok(word) => watching.told(word),
            Err(RecvTimeoutError::Timeout) => watching.samples.take(Instant::now()),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    watching.finish(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::run::Observation;
    use floodmark_record::target::Address;
    use std::net::{TcpListener, TcpStream};

    fn series<'a>(observed: &'a Observed, subject: &str, metric: &str) -> &'a Observation {
        observed
            .observations
            .iter()
            .find(|o| o.subject == subject && o.metric == metric)
            .unwrap_or_else(|| panic!("no {subject} {metric}"))
    }

    fn sum(observed: &Observed, subject: &str, metric: &str) -> f64 {
        series(observed, subject, metric).values.iter().sum()
    }

    fn start(every_ms: u64, watch: Watch) -> Sampler {
        Sampler::start_at(Instant::now(), Duration::from_millis(every_ms), watch)
    }

    #[test]
    fn sees_connections_and_work_and_keeps_zeros() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let sampler = start(200, Watch::default());
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
            (opens.start_ms, opens.step_ms, opens.unit.as_str()),
            (0, 200, "count")
        );
        // A full step and the rest; a crowded machine may wake the sampler late, but no step is lost.
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
    fn stopped_before_its_start_it_saw_nothing() {
        let sampler = Sampler::start_at(
            Instant::now() + Duration::from_secs(60),
            Duration::from_secs(1),
            Watch::default(),
        );
        assert_eq!(sampler.stop(), (Observed::default(), Vec::new()));
    }

    /// A child that takes a line, burns CPU, and says what its own clock holds of it.
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
    fn a_burning_server_against_its_own_clock() {
        use std::io::{BufRead, Write};
        let mut child = burner();
        let watch = Watch {
            server_pid: Some(child.id()),
            ..Watch::default()
        };
        let sampler = start(50, watch);
        sampler.client(std::process::id());
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
        // The first line of `times` is the shell's own: "0m0.41s 0m0.00s".
        let truth: f64 = line
            .split_ascii_whitespace()
            .map(|word| {
                let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
                minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
            })
            .sum();
        let told = sum(&observed, "server", "user") + sum(&observed, "server", "system");
        assert!(truth > 0.1, "{line}");
        assert!((told - truth).abs() <= 0.05, "{told} {truth} {missing:?}");
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
    fn a_server_that_dies_midway_keeps_what_was_seen() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let watch = Watch {
            server_pid: Some(child.id()),
            ..Watch::default()
        };
        let sampler = start(20, watch.clone());
        sampler.measuring();
        std::thread::sleep(Duration::from_millis(500));
        child.kill().unwrap();
        child.wait().unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let (observed, missing) = sampler.stop();
        assert!(sum(&observed, "server", "user") > 0.02);
        // Which of its files was read first after its death is chance; its readings end with one line all the same.
        let ended =
            |line: &&String| line.starts_with("server: /proc/PID/") && line.contains("values only");
        assert_eq!(missing.iter().filter(ended).count(), 1, "{missing:?}");
        assert!(missing.iter().all(|line| !line.contains('\n')));
        assert!(observed.server.unwrap().peak_rss_bytes > 0);

        // One that is dead already is said to be.
        let (observed, missing) = start(20, watch).stop();
        assert!(observed.server.is_none());
        assert!(
            missing.iter().any(|line| line.contains("is gone")),
            "{missing:?}"
        );
    }

    #[test]
    fn a_server_is_found_by_its_port_and_its_sockets_are_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..5)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let watch = Watch {
            addresses: vec![Address::Ip(address)],
            server_pid: None,
            ..Watch::default()
        };
        let sampler = start(20, watch);
        // Which process the client is does not matter to its sockets: these are of all that connect.
        let mut client = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        sampler.client(client.id());
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
        let most = |subject: &str, metric: &str| {
            let values = &series(&observed, subject, metric).values;
            values.iter().copied().fold(0.0, f64::max)
        };
        assert_eq!(most("listener", "accept_queue"), 5.0);
        assert_eq!(most("client sockets", "established"), 5.0);
        // The kernel has made the connections though nobody has accepted them.
        assert_eq!(most("server sockets", "established"), 5.0);
        assert!(most("tcp_info", "rtt") > 0.0);
    }

    #[test]
    fn a_server_elsewhere_is_said_once() {
        let address = Address::Ip("127.0.0.1:1".parse().unwrap());
        let watch = Watch {
            addresses: vec![address],
            server_pid: None,
            ..Watch::default()
        };
        let (observed, missing) = start(20, watch).stop();
        assert!(observed.server.is_none());
        let said = missing.iter().filter(|line| line.starts_with("server"));
        assert_eq!(said.count(), 1, "{missing:?}");
    }
}
