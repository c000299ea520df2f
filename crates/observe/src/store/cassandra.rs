//! Queries the virtual tables of a Cassandra node (`system_views`) through CQL.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use floodmark_record::Metric;
use floodmark_record::metric::{CassandraFigure, PoolFigure, TableFigure, TableOperation};

use super::{SHARE, StoreTarget, TIMEOUT};
use crate::samples::{Figures, Samples};
use floodmark_cql::{CqlConnection, CqlValue};

/// Interval between thread pool queries.
const STEP: Duration = Duration::from_secs(1);

/// Interval between table queries. For each of the four views, Cassandra scans all of its own
/// tables, which takes 5 ms of CPU time. A query of the thread pools takes 3 ms.
const TABLES_STEP: Duration = Duration::from_secs(4);

/// Pools that execute statements. These pools always have a series.
const ALWAYS: [&str; 3] = ["Native-Transport-Requests", "MutationStage", "ReadStage"];

/// Pool that also executes floodmark's queries.
const QUERY_POOL: &str = "Native-Transport-Requests";

const POOLS: &str =
    "SELECT name, active_tasks, pending_tasks, blocked_tasks FROM system_views.thread_pools";
const STATEMENTS: &str = "SELECT name, value FROM system_views.cql_metrics";
const CLIENTS: &str = "SELECT port FROM system_views.clients";

/// Maximum number of tables with their own series. The other tables are reported together.
const MAX_TABLES: usize = 16;

/// Starts querying a node.
///
/// # Errors
/// The node does not accept a connection or does not respond.
pub(super) fn open(target: &StoreTarget, samples: &mut Samples) -> io::Result<()> {
    let stream = target.connect()?;
    let own_port = stream.local_addr()?.port();
    let session = Rc::new(RefCell::new(CassandraSession {
        connection: CqlConnection::open(stream, TIMEOUT)?,
        queries: 0,
        own_port,
    }));
    let always = ALWAYS.into_iter().flat_map(|pool| {
        let of = |figure| Metric::CassandraPool(pool.to_owned(), figure);
        [PoolFigure::Active, PoolFigure::Pending].map(of)
    });
    let quick = Rc::clone(&session);
    let source = "cassandra: system_views.thread_pools, cql_metrics";
    samples.add(source, (STEP, SHARE), always.collect(), move |figures| {
        pools(&mut quick.borrow_mut(), figures)
    });
    let mut names = Vec::new();
    let source = "cassandra: system_views.*_latency, clients";
    samples.add(source, (TABLES_STEP, SHARE), Vec::new(), move |figures| {
        tables(&mut session.borrow_mut(), figures, &mut names)
    });
    Ok(())
}

/// Connection shared by both sources.
struct CassandraSession {
    connection: CqlConnection,
    /// Number of queries that floodmark has sent, including the current query. Cassandra counts
    /// these queries as statements.
    queries: u64,
    /// Local port of the connection, as Cassandra sees it.
    own_port: u16,
}

impl CassandraSession {
    fn rows<const COLUMNS: usize>(&mut self, query: &str) -> io::Result<Vec<[CqlValue; COLUMNS]>> {
        self.queries += 1;
        let rows = self.connection.rows(query)?.into_iter();
        let short = |_| io::Error::other("a row has an unexpected number of columns");
        rows.map(|row| row.try_into().map_err(short)).collect()
    }
}

fn pools(session: &mut CassandraSession, figures: &mut Figures) -> io::Result<()> {
    for [name, active, pending, blocked] in session.rows(POOLS)? {
        let name = name.text();
        let own = if name == QUERY_POOL { 1.0 } else { 0.0 };
        let active = (active.number() - own).max(0.0);
        for (figure, tasks) in [
            (PoolFigure::Active, active),
            (PoolFigure::Pending, pending.number()),
            (PoolFigure::Blocked, blocked.number()),
        ] {
            figures.set(Metric::CassandraPool(name.to_owned(), figure), tasks);
        }
    }
    for [name, value] in session.rows(STATEMENTS)? {
        let Some(figure) = CassandraFigure::from_name(name.text()) else {
            continue;
        };
        let own = match figure {
            CassandraFigure::RegularStatements => session.queries as f64,
            CassandraFigure::PreparedStatements | CassandraFigure::Connections => 0.0,
        };
        let value = (value.number() - own).max(0.0);
        figures.set(Metric::Cassandra(figure), value);
    }
    Ok(())
}

fn tables(
    session: &mut CassandraSession,
    figures: &mut Figures,
    names: &mut Vec<String>,
) -> io::Result<()> {
    for operation in TableOperation::ALL {
        let view = operation.name();
        let query = format!(
            "SELECT keyspace_name, table_name, count, p50th_ms, p99th_ms FROM system_views.{view}_latency"
        );
        let rows = session.rows(&query)?;
        add_tables(figures, names, operation, &rows);
    }
    let clients = session.rows(CLIENTS)?;
    let own = f64::from(session.own_port);
    let others = clients.iter().filter(|[port]| port.number() != own).count();
    figures.set(
        Metric::Cassandra(CassandraFigure::Connections),
        others as f64,
    );
    Ok(())
}

/// Adds the tables in a view, except Cassandra's own tables. The percentiles are weighted over the
/// last few minutes, so they cover more than the last step.
fn add_tables(
    figures: &mut Figures,
    names: &mut Vec<String>,
    operation: TableOperation,
    rows: &[[CqlValue; 5]],
) {
    let mut set = |table: Option<String>, figure, value| {
        figures.set(Metric::CassandraTable(operation, table, figure), value);
    };
    let (mut others, mut p50_ms, mut p99_ms) = (0.0, 0.0_f64, 0.0_f64);
    for [keyspace, table, count, p50, p99] in rows {
        let own = keyspace.text() == "system" || keyspace.text().starts_with("system_");
        if own || count.number() == 0.0 {
            continue;
        }
        let name = format!("{}.{}", keyspace.text(), table.text());
        if !names.contains(&name) {
            if names.len() == MAX_TABLES {
                others += count.number();
                p50_ms = p50_ms.max(p50.number());
                p99_ms = p99_ms.max(p99.number());
                continue;
            }
            names.push(name.clone());
        }
        set(Some(name.clone()), TableFigure::Count, count.number());
        set(Some(name.clone()), TableFigure::P50, p50.number());
        set(Some(name), TableFigure::P99, p99.number());
    }
    set(None, TableFigure::Count, others);
    set(None, TableFigure::P50, p50_ms);
    set(None, TableFigure::P99, p99_ms);
}

#[cfg(test)]
#[path = "cassandra_tests.rs"]
mod tests;
