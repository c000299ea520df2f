//! What a store itself says that it does: asked by a thread of its own, over one connection of its own.
//!
//! An answer may come late, and the sampler's thread, which reads the machine 20 times a second, must not wait for it.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use floodmark_record::run::Observation;

use crate::samples::Samples;
use crate::watch::{StoreKind, WatchedStore};
use crate::watcher::thread_cpu;
use crate::{Root, namespace};

/// How often a store is asked at most.
pub(super) const OFTEN: Duration = Duration::from_millis(250);

/// How long a connection may take, and how long an answer: a store that collects garbage for a second or two is asked on.
const TO_CONNECT: Duration = Duration::from_secs(2);
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// How long an answer is awaited that is due when the run is over.
const GRACE: Duration = Duration::from_millis(500);

/// Share of one CPU that asking and reading the answers may take here. What answering takes there is bounded by how often, and how
/// much, is asked.
pub(super) const SHARE: f64 = 0.003;

/// Characters that the values of a store may take in the record.
pub(crate) const MOST_WRITTEN: usize = 700_000;

/// The thread.
pub(crate) struct Asking {
    /// Dropped to stop it.
    words: Sender<()>,
    told: Receiver<Told>,
    /// Its connection, to break off what is not answered.
    connection: Connected,
    name: String,
}

/// What it gives back.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub observations: Vec<Observation>,
    /// What could not be read, one line each.
    pub missing: Vec<String>,
    /// Its CPU.
    pub cpu: Duration,
}

type Connected = Arc<Mutex<Option<TcpStream>>>;

impl Asking {
    /// Begins to ask a store; the series begin at `begin`. None where nobody knows how to.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(crate) fn start(
        root: &Root,
        begin: Instant,
        store: &WatchedStore,
    ) -> io::Result<Option<Self>> {
        let Some(kind) = store.kind else {
            return Ok(None);
        };
        let (words, ended) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let connection = Connected::default();
        let asked = Asked {
            root: root.clone(),
            store: store.clone(),
            kind,
            connection: Arc::clone(&connection),
        };
        std::thread::Builder::new()
            .name("store sampler".to_owned())
            .spawn(move || {
                // Nobody takes it where the wait for an answer was given up.
                let _ = tell.send(asked.run(begin, &ended));
            })?;
        Ok(Some(Self {
            words,
            told,
            connection,
            name: store.name.clone(),
        }))
    }

    /// Takes a last reading and stops; an answer that does not come is not waited for.
    pub(crate) fn stop(self) -> Told {
        drop(self.words);
        match self.told.recv_timeout(GRACE) {
            Ok(told) => return told,
            Err(RecvTimeoutError::Disconnected) => {
                return Told {
                    missing: vec![format!(
                        "store: {}: the thread that asks it failed",
                        self.name
                    )],
                    ..Told::default()
                };
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Ok(Some(connection)) = self.connection.lock().as_deref() {
            // One that has ended already needs no end.
            let _ = connection.shutdown(Shutdown::Both);
        }
        let mut told = self.told.recv_timeout(GRACE).unwrap_or_default();
        // That the connection ended was our doing.
        told.missing.pop();
        told.missing.push(format!(
            "store: {}: what it was asked at the end of the run it did not answer within {} ms",
            self.name,
            GRACE.as_millis()
        ));
        told
    }
}

/// What the thread knows.
pub(super) struct Asked {
    root: Root,
    pub(super) store: WatchedStore,
    kind: StoreKind,
    connection: Connected,
}

impl Asked {
    fn run(&self, begin: Instant, ended: &Receiver<()>) -> Told {
        let mut samples = Samples::begun(begin, OFTEN);
        let opened = match self.kind {
            StoreKind::Cassandra => self.open_cassandra(&mut samples),
            StoreKind::Postgresql => self.open_postgresql(&mut samples),
        };
        if let Err(error) = opened {
            samples.missing(self.line(&error));
        }
        // All comes over one connection: when one thing cannot be read any more, nothing can.
        while !samples.fails() {
            let wait = samples.next().saturating_duration_since(Instant::now());
            match ended.recv_timeout(wait) {
                Err(RecvTimeoutError::Timeout) => samples.take(Instant::now()),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => {
                    samples.take_last(Instant::now());
                    break;
                }
            }
        }
        let (observations, missing) = samples.finish(MOST_WRITTEN);
        Told {
            observations,
            missing,
            cpu: thread_cpu(),
        }
    }

    /// A line on why it cannot be asked.
    pub(super) fn line(&self, error: &dyn std::fmt::Display) -> String {
        let WatchedStore { name, address, .. } = &self.store;
        format!("store: {name}: its own figures, at {address}: {error}")
    }

    /// A connection to the store, from within its network.
    pub(super) fn connect(&self) -> io::Result<TcpStream> {
        let address = self.store.address;
        let connect = || TcpStream::connect_timeout(&address, TO_CONNECT);
        let there = self
            .store
            .pid
            .filter(|pid| namespace::is_other(&self.root, *pid));
        let stream = match there {
            Some(pid) => namespace::within(&self.root, pid, connect)?,
            None => connect()?,
        };
        if let Ok(mut connection) = self.connection.lock() {
            *connection = Some(stream.try_clone()?);
        }
        Ok(stream)
    }

    #[cfg(feature = "cassandra")]
    fn open_cassandra(&self, samples: &mut Samples) -> io::Result<()> {
        super::cassandra::open(self, samples)
    }

    #[cfg(not(feature = "cassandra"))]
    fn open_cassandra(&self, _: &mut Samples) -> io::Result<()> {
        Err(not_built("cassandra"))
    }

    #[cfg(feature = "postgresql")]
    fn open_postgresql(&self, samples: &mut Samples) -> io::Result<()> {
        super::postgresql::open(self, samples)
    }

    #[cfg(not(feature = "postgresql"))]
    fn open_postgresql(&self, _: &mut Samples) -> io::Result<()> {
        Err(not_built("postgresql"))
    }
}

#[cfg(not(all(feature = "cassandra", feature = "postgresql")))]
fn not_built(feature: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::Unsupported,
        format!("this floodmark was built without them (cargo feature {feature})"),
    )
}

#[cfg(test)]
#[path = "asking_tests.rs"]
mod tests;
