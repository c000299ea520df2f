//! Settings and limits of a server.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustls::sign::CertifiedKey;

use crate::error::ServeError;
#[cfg(feature = "postgresql")]
use crate::postgresql::PostgresqlSetting;
use crate::workload::NativeWorkload;
use floodmark_journal::CassandraAddress;

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Workload to serve.
    pub workload: NativeWorkload,
    /// Address to listen on. For port 0, the kernel chooses a free port.
    pub listen: SocketAddr,
    /// Whether other processes of this user may listen on the same port (`SO_REUSEPORT`). A
    /// workload with state does not support a shared port.
    pub share_port: bool,
    /// Number of threads. Default: half the CPUs, at least 1
    /// (`docs/decisions/0002-native-servers.md`).
    pub threads: Option<NonZeroUsize>,
    /// Certificate and private key (loaded by ring). `None`: no TLS.
    pub tls: Option<Arc<CertifiedKey>>,
    /// State file of the dispatcher. Without one, numbers start at 1.
    pub state: Option<PathBuf>,
    /// Journal of `scoring`.
    pub journal: JournalSetting,
    /// Store of `bars`, which requires one.
    pub store: Option<StoreSetting>,
    /// Limits.
    pub limits: Limits,
    /// Called once, on a server thread, when the state file, journal or embedded store fails
    /// permanently while the server is running. [`serve`](crate::serve) later returns the same
    /// error.
    pub on_failure: fn(&ServeError),
}

/// Where `scoring` stores its scores.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum JournalSetting {
    /// No journal. The scores are lost when the server ends.
    #[default]
    None,
    /// A journal that does not write to a disk. The scores are lost when the server ends.
    Memory,
    /// A journal in this directory. Each score is durable before its response is sent.
    File(PathBuf),
    /// A journal in Cassandra. Cassandra acknowledges each score before its response is sent.
    Cassandra(CassandraAddress),
}

impl FromStr for JournalSetting {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            None if text == "none" => Ok(JournalSetting::None),
            None if text == "memory" => Ok(JournalSetting::Memory),
            Some(("file", path)) if !path.is_empty() => Ok(JournalSetting::File(path.into())),
            Some(("cassandra", address)) => address.parse().map(JournalSetting::Cassandra),
            _ => Err(
                "write none, memory, file:PATH (a directory) or cassandra:HOST[:PORT][/KEYSPACE]",
            ),
        }
    }
}

/// Where `bars` stores its bars.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreSetting {
    /// A database in this file, which only this server uses. Each bar is durable before its
    /// response is sent.
    Embedded(PathBuf),
    /// The table `bar` in this PostgreSQL database. Each bar is committed before its response is
    /// sent.
    #[cfg(feature = "postgresql")]
    Postgresql(Box<PostgresqlSetting>),
}

impl FromStr for StoreSetting {
    /// A message that does not contain a password.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("embedded", path)) if !path.is_empty() => Ok(StoreSetting::Embedded(path.into())),
            Some(("postgresql" | "postgres", database)) => postgresql(database),
            _ => Err(
                "write embedded:PATH, where PATH is a file, or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
                    .to_owned(),
            ),
        }
    }
}

#[cfg(feature = "postgresql")]
fn postgresql(database: &str) -> Result<StoreSetting, String> {
    Ok(StoreSetting::Postgresql(Box::new(database.parse()?)))
}

#[cfg(not(feature = "postgresql"))]
fn postgresql(_: &str) -> Result<StoreSetting, String> {
    Err(
        "this program was built without PostgreSQL support; rebuild it with the feature postgresql"
            .to_owned(),
    )
}

/// Limits of a server. They bound all queues and buffers.
///
/// In HTTP/2, a refused request ends its stream instead of the connection, and the number of
/// headers is not limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of a request head, in bytes. If a head is longer, the server responds with 431
    /// and closes the connection. Default: 16 KiB.
    pub head_bytes: usize,
    /// Maximum number of request headers. If a request has more headers, the server responds with
    /// 431 and closes the connection. Default: 100.
    pub headers: usize,
    /// Maximum size of a request body, in bytes. If a body is longer, the server responds with 413
    /// and closes the connection. Default: 64 KiB.
    pub body_bytes: u64,
    /// Maximum number of connections. Further connections wait in the kernel's accept queue, and
    /// each connection then ends after its next response, so that all clients are served in turn.
    /// Default: the hard limit on open files minus 64 file descriptors for the server itself.
    pub connections: Option<NonZeroUsize>,
    /// Maximum number of open streams on an HTTP/2 connection. Default: 128, as in nginx.
    pub streams: NonZeroU32,
    /// Time after which an idle connection is closed, at most 1.2 s late. Default: 60 s.
    pub idle: Duration,
    /// Maximum time from the first to the last byte of a request, and in HTTP/2 from its head to its
    /// last byte. The limit is enforced at most 1.2 s late. Default: 10 s.
    pub request: Duration,
    /// Maximum queueing delay at the journal or store. While the oldest queued request has waited
    /// longer, new requests get a 503. Inserts that have waited longer in a store's queue also get
    /// a 503, at most 0.2 s late if the store hangs. Lists of bars have no such limit. For a
    /// journal, the delay includes the write in progress, and the limit takes effect at most 0.3 s
    /// late. Default: 1 s.
    pub max_wait: Duration,
    /// Maximum time for requests in flight at shutdown. The server waits at most 1.2 s for an
    /// incomplete request head. Default: 5 s.
    pub grace: Duration,
    /// Size of the block of numbers that the dispatcher reserves with each write of the state file.
    /// A crash skips at most 1.5 blocks. Default: 1,048,576, which allows 2.6 s per write at
    /// 200,000 numbers per second.
    pub reserve: NonZeroU64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            head_bytes: 16 * 1024,
            headers: 100,
            body_bytes: 64 * 1024,
            connections: None,
            streams: NonZeroU32::new(128).expect("a positive constant"),
            idle: Duration::from_secs(60),
            request: Duration::from_secs(10),
            max_wait: Duration::from_secs(1),
            grace: Duration::from_secs(5),
            reserve: NonZeroU64::new(1 << 20).expect("a positive constant"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_each_journal() {
        for (text, journal) in [
            ("none", JournalSetting::None),
            ("memory", JournalSetting::Memory),
            ("file:a:b", JournalSetting::File("a:b".into())),
        ] {
            assert_eq!(text.parse(), Ok(journal));
        }
        let text = "cassandra:[::1]:19042/scores";
        let Ok(JournalSetting::Cassandra(address)) = text.parse() else {
            panic!("{text}");
        };
        assert_eq!(address.to_string(), text);
        for text in [
            "",
            "file",
            "file:",
            "cassandra",
            "cassandra:",
            "memory:1",
            "disk:x",
        ] {
            assert!(text.parse::<JournalSetting>().is_err(), "{text}");
        }
    }
}
