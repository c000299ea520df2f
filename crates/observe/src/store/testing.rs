//! Starts this repository's stores, for tests against real stores.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::targets::{MonitoredStore, StoreKind};

/// Maximum time for a store to start on a busy host.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A running store with its data in a temporary folder. Dropping it stops the store.
pub(super) struct Started {
    name: &'static str,
    kind: StoreKind,
    child: Child,
    pub(super) address: SocketAddr,
    _data: tempfile::TempDir,
}

impl Started {
    #[cfg(feature = "postgresql")]
    pub(super) fn postgresql() -> Option<Self> {
        Self::start("postgresql", StoreKind::Postgresql, |port, _, data| {
            vec![port, data]
        })
    }

    pub(super) fn cassandra() -> Option<Self> {
        Self::start("cassandra", StoreKind::Cassandra, |port, other, data| {
            vec![port, other, data]
        })
    }

    /// Starts a store with the command in its manifest. Returns `None` if the store can't be built.
    fn start(
        name: &'static str,
        kind: StoreKind,
        arguments: impl Fn(String, String, String) -> Vec<String>,
    ) -> Option<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../stores")
            .join(name);
        build(&folder)?;
        let data = tempfile::tempdir().unwrap();
        let log = data.path().join("log");
        let output = File::create(&log).unwrap();
        let [address, other] = free_addresses();
        let mut child = Command::new("sh")
            .arg("start.sh")
            .args(arguments(
                address.port().to_string(),
                other.port().to_string(),
                data.path().join("data").display().to_string(),
            ))
            .current_dir(&folder)
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while TcpStream::connect(address).is_err() {
            let text = || std::fs::read_to_string(&log).unwrap_or_default();
            let ended = child.try_wait().unwrap();
            assert_eq!(ended, None, "{name} exited: {}", text());
            let late = begin.elapsed() > TIMEOUT;
            assert!(!late, "{name} does not accept connections: {}", text());
            std::thread::sleep(Duration::from_millis(100));
        }
        Some(Self {
            name,
            kind,
            child,
            address,
            _data: data,
        })
    }

    pub(super) fn watched(&self) -> MonitoredStore {
        MonitoredStore {
            name: self.name.to_owned(),
            kind: Some(self.kind),
            address: self.address,
            pid: Some(self.child.id()),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // PostgreSQL closes its sessions on an interrupt. Cassandra is killed: its clean shutdown
        // takes seconds, and its data is no longer needed.
        match self.kind {
            StoreKind::Postgresql => {
                let pid = self.child.id().to_string();
                let _ = Command::new("kill").args(["-INT", &pid]).status();
            }
            StoreKind::Cassandra => {
                let _ = self.child.kill();
            }
        }
        let _ = self.child.wait();
    }
}

/// Builds a store unless it is already built.
fn build(folder: &Path) -> Option<()> {
    if folder.join("target").is_dir() {
        return Some(());
    }
    let built = Command::new("mvn")
        .args(["-q", "-B", "package"])
        .current_dir(folder)
        .status();
    let Ok(status) = built else {
        println!(
            "skipped: {} is not built and mvn is not installed",
            folder.display()
        );
        return None;
    };
    assert!(
        status.success(),
        "mvn package in {}: {status}",
        folder.display()
    );
    Some(())
}

fn free_addresses() -> [SocketAddr; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap())
}
