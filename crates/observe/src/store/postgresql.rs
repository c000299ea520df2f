//! Queries the sessions and counters of PostgreSQL over a separate session.

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use floodmark_record::Metric;
use floodmark_record::metric::PostgresqlFigure;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls, Statement};

use super::{MIN_STEP, SHARE, StoreTarget, TIMEOUT};
use crate::samples::{Figures, Samples};

const SOURCE: &str = "postgresql: pg_stat_activity, pg_stat_database";

/// User and observed database, as created by floodmark's stores and JVM systems.
const USER: &str = "bars";
const DATABASE: &str = "bars";

/// Database for floodmark's session. Each sample is a transaction, which must not be counted in
/// [`DATABASE`].
const MAINTENANCE: &str = "postgres";

/// Maximum number of wait events with their own series. PostgreSQL 15 has 240 wait events.
const MAX_EVENTS: usize = 32;

/// Query that returns one row per figure: kind, name, value. Sessions of other users are `hidden`
/// unless the user may read all statistics. The query does not read `pg_locks`, because reading
/// this view would block other sessions. The view is not needed, because a session waits for at
/// most one lock.
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

/// Figures that always have a series, because zero waiting sessions are also evidence.
const ALWAYS: [PostgresqlFigure; 6] = [
    PostgresqlFigure::Active,
    PostgresqlFigure::Idle,
    PostgresqlFigure::IdleInTransaction,
    PostgresqlFigure::WaitingForLocks,
    PostgresqlFigure::Commits,
    PostgresqlFigure::Rollbacks,
];

/// Starts querying PostgreSQL.
///
/// # Errors
/// No session can be opened.
pub(super) fn open(target: &StoreTarget, samples: &mut Samples) -> io::Result<()> {
    let session = match session(target, MAINTENANCE) {
        Ok(session) => session,
        Err(error) => {
            let session = session(target, DATABASE)?;
            samples.missing(target.line(&format!(
                "the database {MAINTENANCE} is unavailable ({error}); sampling through {DATABASE} adds one commit per sample"
            )));
            session
        }
    };
    let mut events = Vec::new();
    let always = ALWAYS.map(Metric::Postgresql).into();
    // Query as often as permitted, because a wait is visible only while it lasts.
    samples.add(SOURCE, (MIN_STEP, SHARE), always, move |figures| {
        add_rows(figures, &mut events, session.query()?);
        Ok(())
    });
    Ok(())
}

/// Opens a session. Retries while PostgreSQL is starting, because it accepts connections before it
/// accepts sessions.
fn session(target: &StoreTarget, database: &str) -> io::Result<PostgresqlSession> {
    let until = Instant::now() + TIMEOUT;
    loop {
        match PostgresqlSession::open(target.connect()?, database) {
            Err(error) if error.kind() == STARTING && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(100));
            }
            opened => return opened,
        }
    }
}

/// Error kind for a server that is still starting.
const STARTING: io::ErrorKind = io::ErrorKind::ResourceBusy;

/// A session with a prepared statement.
struct PostgresqlSession {
    runtime: Runtime,
    client: Client,
    statement: Statement,
}

impl PostgresqlSession {
    fn open(stream: TcpStream, database: &str) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()?;
        let mut config = Config::new();
        // The server must not continue a query after floodmark's timeout.
        let options = format!("-c statement_timeout={}", TIMEOUT.as_millis());
        config
            .user(USER)
            .dbname(database)
            .application_name("floodmark")
            .options(options);
        let opened = runtime.block_on(within_timeout(async {
            let stream = tokio::net::TcpStream::from_std(stream)?;
            let connected = config.connect_raw(stream, NoTls).await;
            let (client, connection) = connected.map_err(io_error)?;
            // This task ends with the runtime or the connection. The next query reports a closed
            // connection.
            tokio::spawn(connection);
            let statement = client.prepare(QUERY).await.map_err(io_error)?;
            Ok((client, statement))
        }));
        let (client, statement) = opened?;
        Ok(Self {
            runtime,
            client,
            statement,
        })
    }

    /// Returns the kind, name and value of each figure.
    fn query(&self) -> io::Result<Vec<(String, String, f64)>> {
        self.runtime.block_on(within_timeout(async {
            let rows = self.client.query(&self.statement, &[&DATABASE]).await;
            let rows = rows.map_err(io_error)?;
            let figure =
                |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
            let figures: Result<_, _> = rows.iter().map(figure).collect();
            figures.map_err(io_error)
        }))
    }
}

/// Waits for a response until the timeout.
async fn within_timeout<T>(answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = |_| io::Error::other("no response within the timeout");
    timeout(TIMEOUT, answer).await.map_err(late)?
}

/// Formats an error as one line. Uses PostgreSQL's own message if there is one.
fn io_error(error: tokio_postgres::Error) -> io::Error {
    let Some(own) = error.as_db_error() else {
        return io::Error::other(error.to_string());
    };
    let kind = match own.code() {
        &SqlState::CANNOT_CONNECT_NOW => STARTING,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, own.message().to_owned())
}

fn add_rows(figures: &mut Figures, events: &mut Vec<String>, rows: Vec<(String, String, f64)>) {
    for (kind, name, value) in rows {
        let metric = match kind.as_str() {
            "event" if events.contains(&name) => Metric::PostgresqlWait(name),
            "event" if events.len() < MAX_EVENTS => {
                events.push(name.clone());
                Metric::PostgresqlWait(name)
            }
            "event" => Metric::Postgresql(PostgresqlFigure::WaitingForOthers),
            // A session state that floodmark doesn't know keeps PostgreSQL's name.
            _ => Metric::parse("postgresql".to_owned(), name, "sessions".to_owned()),
        };
        figures.set(metric, value);
    }
}

#[cfg(test)]
#[path = "postgresql_tests.rs"]
mod tests;
