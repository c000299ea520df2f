//! Daemons whose files are in a temporary directory.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use floodmark_host::{Child, ProcessSet, Signal};
use floodmark_observe::{Root, family};

/// Maximum time for daemons to start or end on a busy host.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Environment variable with the path of the directory. Tasks of the daemons inherit it.
pub const DIRECTORY: &str = "FLOODMARK_TEST_DIRECTORY";

/// Running daemons. Dropping them kills all their tasks and descendants.
pub struct Daemons {
    directory: tempfile::TempDir,
    running: Vec<Child>,
}

impl Daemons {
    pub fn new() -> Self {
        Daemons {
            directory: tempfile::tempdir().unwrap(),
            running: Vec::new(),
        }
    }

    /// Returns the path of a file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts a daemon that stays in the foreground, and waits until it is ready.
    pub fn start(&mut self, mut command: Command, is_ready: impl Fn() -> bool) {
        let log = self.path(&format!("{}.log", self.running.len()));
        command.env(DIRECTORY, self.directory.path());
        let mut daemon = Child::start_logged(command, &log).unwrap();
        let begin = Instant::now();
        while !is_ready() {
            let log = || fs::read_to_string(&log).unwrap();
            let ended = daemon.wait(Duration::from_millis(10)).unwrap();
            assert_eq!(ended, None, "{}", log());
            assert!(begin.elapsed() < TIMEOUT, "{}", log());
        }
        self.running.push(daemon);
    }

    /// Returns the process IDs of the daemons, their descendants and their tasks.
    fn pids(&self) -> Vec<u32> {
        let tree = |daemon: &Child| family(&Root::host(), daemon.pid());
        let mut pids: Vec<u32> = self.running.iter().flat_map(tree).collect();
        // slurmstepd and its tasks are not descendants of slurmd.
        pids.extend(processes_with(self.directory.path()));
        pids
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        let begin = Instant::now();
        let mut pids = self.pids();
        while !pids.is_empty() && begin.elapsed() < TIMEOUT {
            if let Ok(processes) = ProcessSet::open(&pids) {
                let _ = processes.signal(Signal::KILL);
                let _ = processes.wait(TIMEOUT);
            }
            // Reaped daemons are no longer found.
            self.running.clear();
            pids = self.pids();
        }
    }
}

/// Returns the IDs of the processes that were started with the directory in an environment
/// variable.
fn processes_with(directory: &Path) -> Vec<u32> {
    let directory = directory.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap();
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(directory)
    })
    .collect()
}

/// A port on 127.0.0.1 that no other program can get before a daemon listens on it.
pub struct ReservedPort {
    pub number: u16,
    /// While a connection uses the port, only a listener with SO_REUSEADDR can get it, and only by
    /// its number.
    _connection: [TcpStream; 2],
}

impl ReservedPort {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = TcpStream::connect(address).unwrap();
        ReservedPort {
            number: address.port(),
            _connection: [client, listener.accept().unwrap().0],
        }
    }

    /// Returns whether a daemon accepts connections.
    pub fn is_open(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.number)).is_ok()
    }
}
