//! PostgreSQL, asked for its sessions and counters over a session of our own.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls, Statement};

use super::asking::{Asked, OFTEN, PATIENCE, SHARE};
use crate::figures::Figures;
use crate::group::Source;
use crate::samples::Samples;
use crate::series::{Kind, Subject};

const SUBJECT: &str = "postgresql";
const SOURCE: &str = "postgresql: pg_stat_activity, pg_stat_database";

/// Who asks, and whose counters are asked for: what the stores of floodmark have, and its JVM systems use.
const USER: &str = "bars";
const DATABASE: &str = "bars";

/// Where the session is: each reading is a transaction, which is to be in no counter of [`DATABASE`].
const ELSEWHERE: &str = "postgres";

/// Events that sessions wait for which have a series of their own, in the order in which they come up. PostgreSQL 15 knows 240.
const MOST_EVENTS: usize = 32;

/// Kind of figure, name, value: one row each. Sessions of others than the own user are `hidden`, unless that may read all statistics.
/// A session waits for one lock at a time, so these need no look at `pg_locks`, which would hold up all who want one.
const QUERY: &str = "\
WITH sessions AS (
  SELECT coalesce(state, 'hidden') AS state, wait_event_type AS type, wait_event_type || ':' || wait_event AS event
  FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())
SELECT 'session', state, count(*)::float8 FROM sessions GROUP BY state
UNION ALL SELECT 'event', event, count(*)::float8 FROM sessions WHERE event IS NOT NULL AND state <> 'idle' GROUP BY event
UNION ALL SELECT 'session', 'waiting for locks', count(*)::float8 FROM sessions WHERE type = 'Lock'
UNION ALL SELECT 'bytes', 'wal_bytes',
  CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 END
UNION ALL SELECT 'count', counter.name, counter.value::float8
  FROM pg_stat_database, LATERAL (VALUES ('commits', xact_commit), ('rollbacks', xact_rollback),
    ('tup_returned', tup_returned), ('tup_fetched', tup_fetched), ('tup_inserted', tup_inserted),
    ('tup_updated', tup_updated), ('tup_deleted', tup_deleted), ('blks_read', blks_read), ('blks_hit', blks_hit),
    ('temp_bytes', temp_bytes), ('deadlocks', deadlocks)) AS counter(name, value)
  WHERE datname = $1";

/// Figures that have a series though they stay 0: that nobody waited for a lock is evidence.
const ALWAYS: [(&str, &str, Kind); 6] = [
    ("active", SESSIONS, Kind::Level),
    ("idle", SESSIONS, Kind::Level),
    ("idle in transaction", SESSIONS, Kind::Level),
    ("waiting for locks", SESSIONS, Kind::Level),
    ("commits", "count", Kind::Increase),
    ("rollbacks", "count", Kind::Increase),
];

const SESSIONS: &str = "sessions";

/// Begins to ask.
///
/// # Errors
/// No session is to be had.
pub(super) fn open(asked: &Asked, samples: &mut Samples) -> io::Result<()> {
    let session = match session(asked, ELSEWHERE) {
        Ok(session) => session,
        Err(why) => {
            let session = session(asked, DATABASE)?;
            samples.missing(asked.line(&format!(
                "the database {ELSEWHERE} cannot be used ({why}); asked from {DATABASE}, whose commits hold one for each reading"
            )));
            session
        }
    };
    let mut figures = Figures::of(SUBJECT);
    for (metric, unit, kind) in ALWAYS {
        figures.keep(metric, unit, kind);
    }
    let reading = Reading {
        session,
        figures,
        events: Vec::new(),
    };
    // What sessions wait for is seen in them only at the moment of looking.
    samples.add_every(OFTEN, SOURCE, SHARE, Vec::new(), Box::new(reading));
    Ok(())
}

/// A session of a database. PostgreSQL takes connections a moment before it takes sessions: one that says so is asked again.
fn session(asked: &Asked, database: &str) -> io::Result<Session> {
    let until = Instant::now() + PATIENCE;
    loop {
        match Session::open(asked.connect()?, database) {
            Err(error) if error.kind() == NOT_YET && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(100));
            }
            opened => return opened,
        }
    }
}

/// What an error is that says that the server is still starting up.
const NOT_YET: io::ErrorKind = io::ErrorKind::ResourceBusy;

/// A session with a statement that has been planned.
struct Session {
    runtime: Runtime,
    client: Client,
    statement: Statement,
}

impl Session {
    fn open(stream: TcpStream, database: &str) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let mut config = Config::new();
        // What is not awaited any more should not go on there.
        let options = format!("-c statement_timeout={}", PATIENCE.as_millis());
        config
            .user(USER)
            .dbname(database)
            .application_name("floodmark")
            .options(options);
        let opened = runtime.block_on(in_time(async {
            let stream = tokio::net::TcpStream::from_std(stream)?;
            let connected = config.connect_raw(stream, NoTls).await;
            let (client, connection) = connected.map_err(said)?;
            // Ends with the runtime, or with the connection, which the next query then says.
            tokio::spawn(connection);
            let statement = client.prepare(QUERY).await.map_err(said)?;
            Ok((client, statement))
        }));
        let (client, statement) = opened?;
        Ok(Self {
            runtime,
            client,
            statement,
        })
    }

    /// Kind, name and value of each figure.
    fn ask(&self) -> io::Result<Vec<(String, String, f64)>> {
        self.runtime.block_on(in_time(async {
            let rows = self.client.query(&self.statement, &[&DATABASE]).await;
            let rows = rows.map_err(said)?;
            let figure =
                |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            rows.iter()
                .map(figure)
                .collect::<Result<_, _>>()
                .map_err(said)
        }))
    }
}

/// Waits for an answer, but not for ever.
async fn in_time<T>(answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(PATIENCE, answer)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))
}

/// An error in one line: PostgreSQL's own word, where it has said one.
fn said(error: tokio_postgres::Error) -> io::Error {
    let Some(own) = error.as_db_error() else {
        return io::Error::other(error.to_string());
    };
    let kind = match own.code() {
        &SqlState::CANNOT_CONNECT_NOW => NOT_YET,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, own.message().to_owned())
}

/// What is read each time.
struct Reading {
    session: Session,
    figures: Figures,
    /// Events that have a series.
    events: Vec<String>,
}

impl Source for Reading {
    fn read(&mut self, into: &mut Vec<f64>) -> io::Result<()> {
        let rows = self.session.ask()?;
        take(&mut self.figures, &mut self.events, rows);
        into.extend(self.figures.values());
        Ok(())
    }

    fn found(&mut self) -> Vec<Subject> {
        self.figures.found()
    }
}

fn take(figures: &mut Figures, events: &mut Vec<String>, rows: Vec<(String, String, f64)>) {
    figures.begin();
    for (kind, name, value) in rows {
        match kind.as_str() {
            "session" => figures.level(name, SESSIONS, value),
            "event" if events.contains(&name) || events.len() < MOST_EVENTS => {
                figures.level(format!("waiting {name}"), SESSIONS, value);
                if !events.contains(&name) {
                    events.push(name);
                }
            }
            "event" => figures.level("waiting for others", SESSIONS, value),
            "bytes" => figures.counter(name, "bytes", value),
            _ => figures.counter(name, "count", value),
        }
    }
}

#[cfg(test)]
#[path = "postgresql_tests.rs"]
mod tests;
