//! Stores of this repository, for tests that ask real ones.

#![cfg(any(feature = "cassandra", feature = "postgresql"))]

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use floodmark_record::run::Observation;
use floodmark_record::watch::Observed;

use crate::watch::{StoreKind, WatchedStore};

/// How long a store may take to start on a crowded machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A store that runs, with its data in a folder of its own. Dropping it ends it.
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

    #[cfg(feature = "cassandra")]
    pub(super) fn cassandra() -> Option<Self> {
        Self::start("cassandra", StoreKind::Cassandra, |port, other, data| {
            vec![port, other, data]
        })
    }

    /// Starts a store as its manifest does; none where it is not built and cannot be.
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
            let said = || std::fs::read_to_string(&log).unwrap_or_default();
            let ended = child.try_wait().unwrap();
            assert_eq!(ended, None, "{name} has ended: {}", said());
            let late = begin.elapsed() > PATIENCE;
            assert!(!late, "{name} takes no connections: {}", said());
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

    pub(super) fn watched(&self) -> WatchedStore {
        WatchedStore {
            name: self.name.to_owned(),
            kind: Some(self.kind),
            address: self.address,
            pid: Some(self.child.id()),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // PostgreSQL ends its sessions when it is interrupted; Cassandra would take seconds for what nobody reads any more.
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

/// Builds a store where that has not been done.
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
            "skipped: {} is not built, and there is no mvn here",
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

/// A series that was read.
pub(super) fn series<'a>(observed: &'a Observed, subject: &str, metric: &str) -> &'a Observation {
    let mut all = observed.observations.iter();
    let found = all.find(|o| o.subject == subject && o.metric == metric);
    found.unwrap_or_else(|| {
        let all = observed
            .observations
            .iter()
            .map(|o| format!("{} {}", o.subject, o.metric));
        panic!("no {subject} {metric} among {:?}", all.collect::<Vec<_>>())
    })
}

pub(super) fn sum(observed: &Observed, subject: &str, metric: &str) -> f64 {
    series(observed, subject, metric).values.iter().sum()
}

pub(super) fn most(observed: &Observed, subject: &str, metric: &str) -> f64 {
    let values = &series(observed, subject, metric).values;
    values.iter().copied().fold(0.0, f64::max)
}
