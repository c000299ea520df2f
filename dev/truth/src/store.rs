//! Starts this repository's stores for tests against real databases.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Maximum time for a store to start on a busy host.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Interval between attempts to connect.
const POLL: Duration = Duration::from_millis(100);

/// A running store with its data in a temporary directory. Dropping the value stops the store.
pub struct StartedStore {
    /// Address of the store.
    pub address: SocketAddr,
    child: Child,
    arguments: Vec<String>,
    directory: PathBuf,
    /// Signal that ends the store.
    end: Signal,
    data: tempfile::TempDir,
}

impl StartedStore {
    /// Starts PostgreSQL. Returns `None` if PostgreSQL is not built and Maven is not installed.
    ///
    /// # Panics
    /// The build fails, or the store does not start.
    #[must_use]
    pub fn postgresql() -> Option<Self> {
        // On SIGINT, PostgreSQL closes its sessions. On SIGTERM, it waits for clients to
        // disconnect.
        let program = "target/server/bin/postgres";
        Self::start("postgresql", program, Signal::INT, |port, _| vec![port])
    }

    /// Starts Cassandra with one node. Returns `None` if Cassandra is not built and Maven is not
    /// installed.
    ///
    /// # Panics
    /// The build fails, or the store does not start.
    #[must_use]
    pub fn cassandra() -> Option<Self> {
        // A clean shutdown would take seconds, and the data is no longer needed.
        let program = "target/lib/jamm-0.4.0.jar";
        Self::start("cassandra", program, Signal::KILL, |port, other| {
            vec![port, other]
        })
    }

    /// Starts a store with its `start.sh`, which requires the file `program`. The last argument of
    /// the script is the data directory.
    fn start(
        name: &str,
        program: &str,
        end: Signal,
        arguments: impl Fn(String, String) -> Vec<String>,
    ) -> Option<Self> {
        let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../stores");
        let directory = stores.join(name);
        build(&directory, program)?;
        let data = tempfile::tempdir().expect("a temporary directory");
        let [address, other] = free_addresses();
        let mut arguments = arguments(address.port().to_string(), other.port().to_string());
        arguments.push(data.path().join("data").display().to_string());
        let child = spawn(&directory, &arguments, data.path());
        let mut store = StartedStore {
            address,
            child,
            arguments,
            directory,
            end,
            data,
        };
        store.await_ready();
        Some(store)
    }

    /// Returns the PID of the store.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Pauses the store's process (SIGSTOP), and waits until all of its threads have stopped.
    ///
    /// # Panics
    /// The threads do not stop.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let begin = Instant::now();
        while !self.is_stopped() {
            assert!(begin.elapsed() < TIMEOUT, "the store does not stop");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resumes the paused store.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn is_stopped(&self) -> bool {
        let threads = fs::read_dir(format!("/proc/{}/task", self.pid()));
        threads.into_iter().flatten().flatten().all(|thread| {
            // The state follows the name, which may contain any character (proc_pid_stat(5)).
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ")
                .is_none_or(|(_, rest)| rest.starts_with('T'))
        })
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            // The store may already have ended.
            let _ = kill_process(pid, signal);
        }
    }

    /// Kills the store (SIGKILL).
    pub fn kill(&mut self) {
        // An error means that the process no longer exists.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Restarts the killed store with the same data and address.
    ///
    /// # Panics
    /// The store does not start.
    pub fn restart(&mut self) {
        self.child = spawn(&self.directory, &self.arguments, self.data.path());
        self.await_ready();
    }

    fn await_ready(&mut self) {
        let begin = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            let log = self.data.path().join("log");
            let text = || fs::read_to_string(&log).unwrap_or_default();
            let ended = self.child.try_wait().ok().flatten();
            assert_eq!(
                ended,
                None,
                "{} exited: {}",
                self.directory.display(),
                text()
            );
            let is_late = begin.elapsed() > TIMEOUT;
            assert!(
                !is_late,
                "{} does not accept connections: {}",
                self.directory.display(),
                text()
            );
            thread::sleep(POLL);
        }
    }
}

impl Drop for StartedStore {
    fn drop(&mut self) {
        // Once the child has been reaped, another process may have its PID.
        if let Ok(None) = self.child.try_wait() {
            self.signal(self.end);
            // A process stopped with SIGSTOP handles the signal only after SIGCONT.
            self.signal(Signal::CONT);
            let _ = self.child.wait();
        }
    }
}

fn spawn(directory: &Path, arguments: &[String], data: &Path) -> Child {
    let output = File::create(data.join("log")).expect("a log file");
    let error = output.try_clone().expect("a file descriptor");
    let mut command = Command::new("sh");
    command
        .arg("start.sh")
        .args(arguments)
        .current_dir(directory);
    command.stdout(output).stderr(error);
    command.spawn().expect("a shell")
}

/// Held during a build, because concurrent builds in the same directory fail.
static BUILD: Mutex<()> = Mutex::new(());

/// Builds a store unless its program exists. Returns `None` if Maven is not installed.
fn build(directory: &Path, program: &str) -> Option<()> {
    let _build = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    // An interrupted build may leave a directory without the program.
    if directory.join(program).is_file() {
        return Some(());
    }
    let mut command = Command::new("mvn");
    command.args(["-q", "-B", "package"]).current_dir(directory);
    let Ok(status) = command.status() else {
        let directory = directory.display();
        println!("skipped: {directory} is not built and mvn is not installed");
        return None;
    };
    assert!(
        status.success(),
        "mvn package in {}: {status}",
        directory.display()
    );
    Some(())
}

fn free_addresses() -> [SocketAddr; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("a bound listener"))
}
