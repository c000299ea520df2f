//! Creates the table `bar`, or checks that the server can use it.

use std::time::Instant;

use tokio::time::sleep;
use tokio_postgres::Client;

use super::STARTING_TIME;
use super::error::PostgresqlError;
use super::session::{STARTING_PAUSE, connect, within_timeout};
use super::setting::PostgresqlSetting;

/// Statement that creates the same table as the system `play`.
const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS bar (id bigserial PRIMARY KEY, name varchar(255) NOT NULL)";
/// Fix for a table that the server cannot use.
const OTHER_TABLE: &str = "use another database, or rename the table";

/// Query that returns whether the table exists, the database's encoding, and whether the database
/// is read-only.
const DATABASE: &str = "SELECT to_regclass('bar') IS NOT NULL, \
    current_setting('server_encoding'), current_setting('transaction_read_only') = 'on'";

/// Query that returns one row per column: name, type, whether an insert can omit the column,
/// whether the user has the required access, and whether the column can be NULL.
const COLUMNS: &str = "SELECT attname::text, format_type(atttypid, atttypmod), \
    atthasdef OR attidentity <> '' OR (attname <> 'id' AND NOT attnotnull), \
    CASE attname WHEN 'name' THEN has_column_privilege(attrelid, attname, 'SELECT') \
        AND has_column_privilege(attrelid, attname, 'INSERT') \
      WHEN 'id' THEN has_column_privilege(attrelid, attname, 'SELECT') \
        AND (attidentity <> '' OR coalesce(has_sequence_privilege( \
          pg_get_serial_sequence('bar', 'id'), 'USAGE'), true)) \
      ELSE true END, \
    NOT attnotnull \
    FROM pg_attribute WHERE attrelid = 'bar'::regclass AND attnum > 0 AND NOT attisdropped";

/// Query that returns the names of constraints and unique indexes that can refuse an insert.
/// Excludes foreign keys in other tables, and unique indexes whose only key column is `id`.
const REFUSING: &str = "SELECT conname::text FROM pg_constraint \
      WHERE conrelid = 'bar'::regclass AND contype IN ('c', 'f', 't', 'x') \
    UNION SELECT indexrelid::regclass::text FROM pg_index \
      WHERE indrelid = 'bar'::regclass AND indisunique AND (indnkeyatts <> 1 OR indkey[0] <> \
        (SELECT attnum FROM pg_attribute WHERE attrelid = indrelid AND attname = 'id')) \
    ORDER BY 1";

/// Creates the table if it is missing, and checks its columns and constraints. Waits while
/// PostgreSQL is starting.
pub(super) async fn prepare_table(setting: &PostgresqlSetting) -> Result<(), PostgresqlError> {
    let began = Instant::now();
    loop {
        match within_timeout(setting, prepare(setting)).await {
            Err(error) if error.is_starting() && began.elapsed() < STARTING_TIME => {
                sleep(STARTING_PAUSE).await;
            }
            prepared => {
                let problem = prepared?;
                return problem.map_or(Ok(()), |(cause, fix)| {
                    Err(PostgresqlError::new(setting, cause, fix))
                });
            }
        }
    }
}

/// Why the database or its table cannot be used, and how to fix it.
type TableProblem = (String, &'static str);

async fn prepare(
    setting: &PostgresqlSetting,
) -> Result<Option<TableProblem>, tokio_postgres::Error> {
    let (client, connection) = connect(setting).await?;
    let problem = check(&client).await;
    drop(client);
    // Wait until the client has ended the session.
    let _ = connection.await;
    problem
}

async fn check(client: &Client) -> Result<Option<TableProblem>, tokio_postgres::Error> {
    let row = client.query_one(DATABASE, &[]).await?;
    let encoding: &str = row.try_get(1)?;
    if encoding != "UTF8" {
        let cause = format!("the database encoding is {encoding}, which cannot store all names");
        return Ok(Some((cause, "use a database with UTF8 encoding")));
    }
    if row.try_get(2)? {
        let fix = "use a database that accepts writes";
        return Ok(Some(("the database is read-only".to_owned(), fix)));
    }
    if !row.try_get::<_, bool>(0)?
        && let Err(error) = client.batch_execute(CREATE).await
    {
        // Another server may have created the table in the meantime.
        let row = client.query_one(DATABASE, &[]).await?;
        if !row.try_get::<_, bool>(0)? {
            return Err(error);
        }
    }
    let mut missing = vec!["id", "name"];
    for row in client.query(COLUMNS, &[]).await? {
        let (column, kind): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
        let (can_omit, has_access): (bool, bool) = (row.try_get(2)?, row.try_get(3)?);
        missing.retain(|name| *name != column);
        if let Some(problem) = column_problem(column, kind, can_omit, row.try_get(4)?) {
            let cause = format!("the column {column} of the table bar {problem}");
            return Ok(Some((cause, OTHER_TABLE)));
        }
        if !has_access {
            let cause = format!("the user lacks access to the column {column} of the table bar");
            let fix = "grant SELECT and INSERT on the table, and USAGE on its id sequence";
            return Ok(Some((cause, fix)));
        }
    }
    if let Some(column) = missing.first() {
        let cause = format!("the table bar has no column {column}");
        return Ok(Some((cause, OTHER_TABLE)));
    }
    let refusing = client.query(REFUSING, &[]).await?;
    let name = refusing.first().map(|row| row.try_get::<_, &str>(0));
    Ok(name.transpose()?.map(|name| {
        // One refused row makes all inserts in its statement fail.
        let cause = format!("the constraint {name} of the table bar can refuse inserts");
        (cause, OTHER_TABLE)
    }))
}

/// Returns why a column is unsuitable for the workload, or `None` if it is suitable.
fn column_problem(column: &str, kind: &str, can_omit: bool, is_nullable: bool) -> Option<String> {
    match column {
        "id" if kind != "bigint" => Some(format!("has the type {kind}, not bigint")),
        "id" if !can_omit => Some("has no default".to_owned()),
        "name" if !holds_names(kind) => Some(format!("has the type {kind}, not varchar(255)")),
        "id" | "name" if is_nullable => Some("can be NULL".to_owned()),
        "id" | "name" => None,
        _ if !can_omit => Some("is required, but the server has no value for it".to_owned()),
        _ => None,
    }
}

/// Returns whether a type holds all names of up to 255 characters unchanged.
fn holds_names(kind: &str) -> bool {
    let length = |rest: &str| {
        rest.strip_prefix('(')?
            .strip_suffix(')')?
            .parse::<u32>()
            .ok()
    };
    match kind.strip_prefix("character varying") {
        Some(rest) => rest.is_empty() || length(rest).is_some_and(|length| length >= 255),
        None => kind == "text",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_types_that_hold_names() {
        for kind in [
            "text",
            "character varying",
            "character varying(255)",
            "character varying(300)",
        ] {
            assert!(holds_names(kind), "{kind}");
        }
        for kind in [
            "character varying(254)",
            "character(255)",
            "bytea",
            "text[]",
        ] {
            assert!(!holds_names(kind), "{kind}");
        }
    }
}
