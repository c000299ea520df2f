//! Monitors the store behind the server: queries the store's statistics on a separate thread and
//! connection.
//!
//! Responses may be slow, but the sampler's thread must not wait, because it takes 20 samples per
//! second.

mod cassandra;
#[cfg(feature = "postgresql")]
mod postgresql;
#[cfg(test)]
mod testing;

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use floodmark_record::Observation;

use crate::clock::thread_cpu;
use crate::sampler::{MonitoredStore, StoreKind};
use crate::samples::Samples;
use crate::{Root, namespace};

/// Minimum interval between queries.
const MIN_STEP: Duration = Duration::from_millis(250);

/// Timeouts for a connection attempt and for a response. A store may pause for one or two seconds
/// to collect garbage.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum time to wait for a response after the run has ended.
const GRACE: Duration = Duration::from_millis(500);

/// Maximum share of a CPU that the queries may use on this host. Their interval and size limit
/// their cost in the store.
const SHARE: f64 = 0.003;

/// Maximum length of a store's values in JSON, in characters.
pub(crate) const MAX_JSON_LENGTH: usize = 700_000;

/// Handle of the thread that queries the store.
pub(crate) struct StoreMonitor {
    /// Dropping the sender stops the thread.
    stop_sender: Sender<()>,
    results: Receiver<StoreSamples>,
    /// The thread's connection, which is closed to abort a query.
    connection: Connected,
    name: String,
}

/// Results of the thread.
#[derive(Debug, Default)]
pub(crate) struct StoreSamples {
    pub observations: Vec<Observation>,
    /// One line per source that could not be sampled.
    pub missing: Vec<String>,
    /// CPU time of the thread.
    pub cpu: Duration,
}

type Connected = Arc<Mutex<Option<TcpStream>>>;

impl StoreMonitor {
    /// Starts querying a store. The series start at `begin`. Returns `None` if the kind of store is
    /// unknown.
    ///
    /// # Errors
    /// The thread can't be started.
    pub(crate) fn start(
        root: &Root,
        begin: Instant,
        store: &MonitoredStore,
    ) -> io::Result<Option<Self>> {
        let Some(kind) = store.kind else {
            return Ok(None);
        };
        let (stop_sender, ended) = mpsc::channel();
        let (sender, results) = mpsc::channel();
        let connection = Connected::default();
        let target = StoreTarget {
            root: root.clone(),
            store: store.clone(),
            kind,
            connection: Arc::clone(&connection),
        };
        std::thread::Builder::new()
            .name("store sampler".to_owned())
            .spawn(move || {
                // After a timeout there is no receiver.
                let _ = sender.send(target.run(begin, &ended));
            })?;
        Ok(Some(Self {
            stop_sender,
            results,
            connection,
            name: store.name.clone(),
        }))
    }

    /// Takes the last sample and stops. Aborts the query if the response is slow.
    pub(crate) fn stop(self) -> StoreSamples {
        drop(self.stop_sender);
        match self.results.recv_timeout(GRACE) {
            Ok(results) => return results,
            Err(RecvTimeoutError::Disconnected) => {
                let mut failed = StoreSamples::default();
                let line = format!("store: {}: the sampler thread panicked", self.name);
                failed.missing.push(line);
                return failed;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Ok(Some(connection)) = self.connection.lock().as_deref() {
            // The connection may be closed already.
            let _ = connection.shutdown(Shutdown::Both);
        }
        let mut results = self.results.recv_timeout(GRACE).unwrap_or_default();
        // Replace the error that closing the connection caused.
        results.missing.pop();
        results.missing.push(format!(
            "store: {}: no response to the last query within {} ms",
            self.name,
            GRACE.as_millis()
        ));
        results
    }
}

/// Input of the thread.
struct StoreTarget {
    root: Root,
    store: MonitoredStore,
    kind: StoreKind,
    connection: Connected,
}

impl StoreTarget {
    fn run(&self, begin: Instant, ended: &Receiver<()>) -> StoreSamples {
        let mut samples = Samples::new(MIN_STEP);
        samples.begin = begin;
        let opened = match self.kind {
            StoreKind::Cassandra => cassandra::open(self, &mut samples),
            #[cfg(feature = "postgresql")]
            StoreKind::Postgresql => postgresql::open(self, &mut samples),
            #[cfg(not(feature = "postgresql"))]
            StoreKind::Postgresql => Err(io::Error::other(
                "not supported by this build; rebuild with the cargo feature postgresql",
            )),
        };
        if let Err(error) = opened {
            samples.missing(self.line(&error));
        }
        // All queries share one connection, so all of them fail together.
        while !samples.has_failed() {
            let wait = samples.next().saturating_duration_since(Instant::now());
            match ended.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => samples.take(Instant::now()),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    samples.take_last(Instant::now());
                    break;
                }
            }
        }
        let (observations, missing) = samples.finish(MAX_JSON_LENGTH);
        StoreSamples {
            observations,
            missing,
            cpu: thread_cpu(),
        }
    }

    /// Formats a message that says why the store can't be queried.
    fn line(&self, error: &dyn std::fmt::Display) -> String {
        let MonitoredStore { name, address, .. } = &self.store;
        format!("store: {name}: statistics from {address}: {error}")
    }

    /// Connects to the store from the store's network namespace.
    fn connect(&self) -> io::Result<TcpStream> {
        let address = self.store.address;
        let connect = || TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
        let pid = self.store.pid;
        let namespace_of = pid.filter(|pid| namespace::is_other(&self.root, *pid));
        let stream = namespace::within(&self.root, namespace_of, connect)?;
        if let Ok(mut connection) = self.connection.lock() {
            *connection = Some(stream.try_clone()?);
        }
        Ok(stream)
    }
}

#[cfg(test)]
#[path = "monitor_tests.rs"]
mod monitor_tests;

#[cfg(test)]
mod tests {
    use crate::sampler::{EVERY, MonitorTargets, MonitoredStore, Sampler};
    use crate::testing::sum;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    fn store(address: std::net::SocketAddr, pid: Option<u32>) -> MonitoredStore {
        MonitoredStore {
            name: "bars".to_owned(),
            kind: None,
            address,
            pid,
        }
    }

    fn child(program: &str) -> Child {
        Command::new("sh").args(["-c", program]).spawn().unwrap()
    }

    #[test]
    fn samples_the_store_separately_from_the_server() {
        let (mut server, mut burning) = (child("sleep 60"), child("while :; do :; done"));
        let address = "127.0.0.1:1".parse().unwrap();
        let watch = MonitorTargets {
            server_pid: Some(server.id()),
            store: Some(store(address, Some(burning.id()))),
            ..MonitorTargets::default()
        };
        let sampler = Sampler::start_at(Instant::now(), EVERY, watch.clone());
        sampler.measuring();
        std::thread::sleep(Duration::from_millis(600));
        let live = sampler.live().store.unwrap();
        burning.kill().unwrap();
        burning.wait().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let (observed, missing) = sampler.stop();
        let sum = |subject, name| sum(&observed, subject, name);
        let used = sum("store", "user") + sum("store", "system");
        assert!(used > 0.05 && live.user > Duration::ZERO, "{used} {live:?}");
        assert!(sum("store", "on_cpu") > 0.05);
        assert!(sum("store", "run_delay") >= 0.0 && sum("store", "rss") > 0.0);
        assert!(sum("server", "user") < used / 2.0);
        let seen = observed.store.as_ref().unwrap();
        assert_eq!(
            (seen.name.as_str(), &seen.pids),
            ("sh", &vec![burning.id()])
        );
        assert_eq!(observed.server.as_ref().unwrap().pids, [server.id()]);
        // Slow samplers may not have noticed yet that the store has ended, but there is always
        // exactly one line.
        let ended =
            |line: &&String| line.starts_with("store: ") && line.contains("sampling stopped");
        assert_eq!(missing.iter().filter(ended).count(), 1, "{missing:?}");

        // A store that has already ended is also reported.
        let (observed, missing) = Sampler::start_at(Instant::now(), EVERY, watch).stop();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(observed.store.is_none() && observed.server.is_some());
        let gone =
            |line: &String| line.starts_with("store: bars: ") && line.contains("does not exist");
        assert!(missing.iter().any(gone), "{missing:?}");
    }
}
