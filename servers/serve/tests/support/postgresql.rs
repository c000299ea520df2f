//! Runs this repository's PostgreSQL store, which a test can kill.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Builder;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// Maximum time for PostgreSQL to start on a busy host.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A running PostgreSQL server with its data in a temporary directory. Dropping it kills the
/// processes.
pub struct TestPostgresql {
    postmaster: Option<Child>,
    pub address: SocketAddr,
    data: tempfile::TempDir,
    /// Time per row inserted into the table `bar`, in ms.
    row_ms: u32,
}

#[allow(dead_code, reason = "each test binary uses only some of these helpers")]
impl TestPostgresql {
    /// Starts PostgreSQL. Returns `None` if PostgreSQL is not built and Maven is not installed.
    pub fn start() -> Option<Self> {
        Self::start_slow(0)
    }

    /// Starts PostgreSQL so that each row inserted into the table `bar` takes `row_ms`.
    pub fn start_slow(row_ms: u32) -> Option<Self> {
        build()?;
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut store = TestPostgresql {
            postmaster: None,
            address: free.local_addr().unwrap(),
            data: tempfile::tempdir().unwrap(),
            row_ms,
        };
        drop(free);
        store.restart();
        Some(store)
    }

    /// Returns the connection string for `--store`. The user can include a password.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgresql://{user}@{}/{database}", self.address)
    }

    /// Returns the cluster's directory.
    pub fn cluster(&self) -> PathBuf {
        self.data.path().join("data/cluster")
    }

    /// Starts PostgreSQL with its existing data, and waits until it accepts sessions.
    pub fn restart(&mut self) {
        let log = self.data.path().join("log");
        let output = File::create(&log).unwrap();
        let data = self.data.path().join("data");
        let mut child = Command::new("sh")
            .arg("start.sh")
            .args([&self.address.port().to_string(), &*data.to_string_lossy()])
            .args(["127.0.0.1", "on", &self.row_ms.to_string()])
            .current_dir(directory())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let begin = Instant::now();
        let log = || fs::read_to_string(&log).unwrap_or_default();
        while self.try_execute("bars", "SELECT 1").is_none() {
            assert_eq!(child.try_wait().unwrap(), None, "{}", log());
            assert!(begin.elapsed() < TIMEOUT, "{}", log());
            thread::sleep(Duration::from_millis(50));
        }
        self.postmaster = Some(child);
    }

    /// Kills all PostgreSQL processes (SIGKILL).
    pub fn kill(&mut self) {
        let Some(mut postmaster) = self.postmaster.take() else {
            return;
        };
        let children = children(postmaster.id());
        postmaster.kill().unwrap();
        for child in children {
            // The child may have ended with the postmaster.
            signal(child, libc::SIGKILL);
        }
        postmaster.wait().unwrap();
        while TcpStream::connect(self.address).is_ok() {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends all sessions and suspends PostgreSQL, so that attempts to open a session hang.
    pub fn suspend(&mut self) {
        let postmaster = self.postmaster.as_ref().unwrap().id();
        signal(postmaster, libc::SIGSTOP);
        for child in children(postmaster) {
            signal(child, libc::SIGKILL);
        }
    }

    /// Executes statements as the database owner, and returns the first column of their rows.
    pub fn execute(&self, statements: &str) -> Vec<String> {
        self.execute_in("bars", statements)
    }

    /// Executes statements in another database.
    pub fn execute_in(&self, database: &str, statements: &str) -> Vec<String> {
        let rows = self.try_execute(database, statements);
        rows.expect("PostgreSQL accepts a session")
    }

    /// Executes statements. Returns `None` if PostgreSQL accepts no session.
    fn try_execute(&self, database: &str, statements: &str) -> Option<Vec<String>> {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let url = self.url("bars", database);
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.ok()?;
            let connection = tokio::spawn(connection);
            let messages = client.simple_query(statements).await.unwrap();
            drop(client);
            let _ = connection.await;
            let value = |message| match message {
                SimpleQueryMessage::Row(row) => Some(row.get(0)?.to_owned()),
                _ => None,
            };
            Some(messages.into_iter().filter_map(value).collect())
        })
    }
}

impl Drop for TestPostgresql {
    fn drop(&mut self) {
        self.kill();
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../stores/postgresql")
}

/// Returns the processes that a process has started.
fn children(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    let ids = children.split_whitespace();
    ids.map(|id| id.parse().unwrap()).collect()
}

fn signal(process: u32, signal: libc::c_int) {
    // SAFETY: kill(2) has no memory effects.
    unsafe { libc::kill(process.cast_signed(), signal) };
}

/// Builds the store unless it is already built.
fn build() -> Option<()> {
    // Concurrent builds in the same directory would fail.
    static BUILD: Mutex<()> = Mutex::new(());
    let _build = BUILD.lock().unwrap_or_else(PoisonError::into_inner);
    if directory().join("target/server/bin/postgres").is_file() {
        return Some(());
    }
    let built = Command::new("mvn")
        .args(["-q", "-B", "package"])
        .current_dir(directory())
        .status();
    let Ok(status) = built else {
        println!("skipped: PostgreSQL is not built and mvn is not installed");
        return None;
    };
    assert!(status.success(), "mvn package: {status}");
    Some(())
}
