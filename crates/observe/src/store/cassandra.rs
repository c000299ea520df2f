//! Cassandra, asked by CQL for its virtual tables (`system_views`), which are of the node that is asked.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use super::asking::{Asked, PATIENCE, SHARE};
use super::cql::{Connection, Value};
use crate::figures::Figures;
use crate::group::Source;
use crate::samples::Samples;
use crate::series::{Kind, Subject};

const SUBJECT: &str = "cassandra";

/// How often thread pools are asked for.
const STEP: Duration = Duration::from_secs(1);

/// How often tables are asked for. Cassandra goes over all of its own tables for each of the views, whoever's are asked for: 5 ms of
/// CPU for each of four views, where thread pools take 3 ms.
const SELDOM: Duration = Duration::from_secs(4);

/// Pools that have series though they stay 0: those that a statement goes through.
const ALWAYS: [&str; 3] = ["Native-Transport-Requests", "MutationStage", "ReadStage"];

/// The pool in which the own question is being answered.
const ASKING: &str = "Native-Transport-Requests";

const POOLS: &str =
    "SELECT name, active_tasks, pending_tasks, blocked_tasks FROM system_views.thread_pools";
const STATEMENTS: &str = "SELECT name, value FROM system_views.cql_metrics";
const CLIENTS: &str = "SELECT port FROM system_views.clients";

/// Views that have a row for each table.
const VIEWS: [&str; 4] = [
    "coordinator_read",
    "coordinator_write",
    "local_read",
    "local_write",
];

/// Tables that have series of their own, in the order in which they come up; the others' are told together.
const MOST_TABLES: usize = 16;

/// Begins to ask.
///
/// # Errors
/// It does not take a connection, or does not answer.
pub(super) fn open(asked: &Asked, samples: &mut Samples) -> io::Result<()> {
    let stream = asked.connect()?;
    let own_port = stream.local_addr()?.port();
    let session = Rc::new(RefCell::new(Session {
        connection: Connection::open(stream, PATIENCE)?,
        asked: 0,
        own_port,
    }));
    let mut figures = Figures::of(SUBJECT);
    for pool in ALWAYS {
        for what in ["active", "pending"] {
            figures.keep(format!("{pool} {what}"), "tasks", Kind::Level);
        }
    }
    let quick = Reading {
        session: Rc::clone(&session),
        figures,
        ask: pools,
    };
    let source = "cassandra: system_views.thread_pools, cql_metrics";
    samples.add_every(STEP, source, SHARE, Vec::new(), Box::new(quick));
    let mut names = Vec::new();
    let slow = Reading {
        session,
        figures: Figures::of(SUBJECT),
        ask: move |session: &mut Session, figures: &mut Figures| {
            tables(session, figures, &mut names)
        },
    };
    let source = "cassandra: system_views.*_latency, clients";
    samples.add_every(SELDOM, source, SHARE, Vec::new(), Box::new(slow));
    Ok(())
}

/// The connection that both readings go over.
struct Session {
    connection: Connection,
    /// Questions so far, the one that is being asked included: Cassandra counts them as statements.
    asked: u64,
    /// The port that Cassandra sees it come from.
    own_port: u16,
}

impl Session {
    fn rows<const COLUMNS: usize>(&mut self, query: &str) -> io::Result<Vec<[Value; COLUMNS]>> {
        self.asked += 1;
        let rows = self.connection.rows(query)?.into_iter();
        let short = |_| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "a row of other columns than were asked for",
            )
        };
        rows.map(|row| row.try_into().map_err(short)).collect()
    }
}

/// What is asked each time.
struct Reading<F> {
    session: Rc<RefCell<Session>>,
    figures: Figures,
    ask: F,
}

impl<F: FnMut(&mut Session, &mut Figures) -> io::Result<()>> Source for Reading<F> {
    fn read(&mut self, into: &mut Vec<f64>) -> io::Result<()> {
        self.figures.begin();
        (self.ask)(&mut self.session.borrow_mut(), &mut self.figures)?;
        into.extend(self.figures.values());
        Ok(())
    }

    fn found(&mut self) -> Vec<Subject> {
        self.figures.found()
    }
}

fn pools(session: &mut Session, figures: &mut Figures) -> io::Result<()> {
    for [name, active, pending, blocked] in session.rows(POOLS)? {
        let name = name.text();
        let own = if name == ASKING { 1.0 } else { 0.0 };
        let active = (active.number() - own).max(0.0);
        for (what, tasks) in [
            ("active", active),
            ("pending", pending.number()),
            ("blocked", blocked.number()),
        ] {
            figures.level(format!("{name} {what}"), "tasks", tasks);
        }
    }
    for [name, value] in session.rows(STATEMENTS)? {
        match name.text() {
            "prepared_statements_executed" => {
                figures.counter("prepared_statements_executed", "count", value.number());
            }
            "regular_statements_executed" => {
                let others = value.number() - session.asked as f64;
                figures.counter("regular_statements_executed", "count", others.max(0.0));
            }
            _ => {}
        }
    }
    Ok(())
}

fn tables(session: &mut Session, figures: &mut Figures, names: &mut Vec<String>) -> io::Result<()> {
    for view in VIEWS {
        let query = format!(
            "SELECT keyspace_name, table_name, count, p50th_ms, p99th_ms FROM system_views.{view}_latency"
        );
        let rows = session.rows(&query)?;
        take(figures, names, view, &rows);
    }
    let clients = session.rows(CLIENTS)?;
    let own = f64::from(session.own_port);
    let others = clients.iter().filter(|[port]| port.number() != own).count();
    figures.level("connections", "connections", others as f64);
    Ok(())
}

/// Takes in what a view says of tables, but of Cassandra's own. Its percentiles are not those of the last step: Cassandra weighs the
/// last minutes, the later the more.
fn take(figures: &mut Figures, names: &mut Vec<String>, view: &str, rows: &[[Value; 5]]) {
    let (mut others, mut p50_ms, mut p99_ms) = (0.0, 0.0_f64, 0.0_f64);
    for [keyspace, table, count, p50, p99] in rows {
        let own = keyspace.text() == "system" || keyspace.text().starts_with("system_");
        if own || count.number() == 0.0 {
            continue;
        }
        let name = format!("{}.{}", keyspace.text(), table.text());
        if !names.contains(&name) {
            if names.len() == MOST_TABLES {
                others += count.number();
                p50_ms = p50_ms.max(p50.number());
                p99_ms = p99_ms.max(p99.number());
                continue;
            }
            names.push(name.clone());
        }
        figures.counter(format!("{view} count {name}"), "count", count.number());
        figures.level(format!("{view} p50 {name}"), "ms", p50.number());
        figures.level(format!("{view} p99 {name}"), "ms", p99.number());
    }
    figures.counter(format!("{view} count of other tables"), "count", others);
    figures.level(
        format!("{view} p50 of the slowest other table"),
        "ms",
        p50_ms,
    );
    figures.level(
        format!("{view} p99 of the slowest other table"),
        "ms",
        p99_ms,
    );
}

#[cfg(test)]
#[path = "cassandra_tests.rs"]
mod tests;
