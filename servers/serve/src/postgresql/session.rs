//! A session with a prepared statement.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Row, Statement};

use super::error::{PostgresqlError, cause};
use super::setting::PostgresqlSetting;

/// Maximum time to open a session.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum execution time of a statement. PostgreSQL cancels longer statements.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to wait for a statement's response, including the wait for earlier statements in
/// the session. The session is then closed.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(8);
/// Pause between attempts to open a session while PostgreSQL is starting.
pub(super) const STARTING_PAUSE: Duration = Duration::from_millis(100);

/// A prepared statement. Several executions can be in flight at once.
pub(super) struct PreparedStatement {
    client: Client,
    statement: Statement,
}

/// A reason why a statement has no result.
#[derive(Debug)]
pub(super) struct StatementFault {
    /// Text for the server's clients.
    pub(super) message: String,
    pub(super) end: StatementEnd,
}

/// How a statement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementEnd {
    Completed,
    /// PostgreSQL canceled the statement, usually after the statement timeout.
    Canceled,
    /// The statement failed. The session remains usable.
    Failed,
    /// The session is closed, does not respond, or cannot run the statement again.
    SessionLost,
}

impl StatementEnd {
    fn of(error: &tokio_postgres::Error) -> Self {
        // After an error message from PostgreSQL, the session is usually still open. If PostgreSQL
        // has closed the session, the next statement detects the loss.
        let Some(code) = error.code() else {
            return StatementEnd::SessionLost;
        };
        match *code {
            SqlState::QUERY_CANCELED => StatementEnd::Canceled,
            // After some changes to the table, the statement must be prepared again.
            SqlState::FEATURE_NOT_SUPPORTED | SqlState::INVALID_SQL_STATEMENT_NAME => {
                StatementEnd::SessionLost
            }
            _ => StatementEnd::Failed,
        }
    }
}

impl StatementFault {
    /// Returns the fault for a result with unexpected rows.
    pub(super) fn unexpected_rows() -> Self {
        StatementFault {
            message:
                "the database returned unexpected rows; check the columns and triggers of the \
                      table bar"
                    .to_owned(),
            end: StatementEnd::Failed,
        }
    }
}

impl From<tokio_postgres::Error> for StatementFault {
    fn from(error: tokio_postgres::Error) -> Self {
        StatementFault {
            message: format!("database error: {}; retry later", cause(&error)),
            end: StatementEnd::of(&error),
        }
    }
}

impl PreparedStatement {
    /// Runs the statement and returns its rows. An insert that returns rows is committed.
    pub(super) async fn rows(
        &self,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StatementFault> {
        let rows = self.client.query(&self.statement, parameters);
        match timeout(STATEMENT_TIMEOUT, rows).await {
            Ok(rows) => Ok(rows?),
            Err(_) => Err(StatementFault {
                message: "the database does not respond; retry later".to_owned(),
                end: StatementEnd::SessionLost,
            }),
        }
    }
}

/// Upper bound on the round-trip time of a statement that does no work.
#[derive(Debug)]
pub(super) struct RoundTrip(Duration);

impl RoundTrip {
    /// Returns a statement's execution time in PostgreSQL. `taken` is the time from sending the
    /// statement to its response. If `taken` is below the bound, lowers the bound to `taken`.
    pub(super) fn without_network(&mut self, taken: Duration) -> Duration {
        self.0 = self.0.min(taken);
        taken.saturating_sub(self.0)
    }

    /// Returns how many statements PostgreSQL completes during a round trip if each takes `taken`.
    pub(super) fn statements(&self, taken: Duration) -> usize {
        let statements = self.0.as_nanos() / taken.as_nanos().max(1);
        usize::try_from(statements).unwrap_or(usize::MAX)
    }
}

/// An open session.
pub(super) struct StoreSession {
    statement: Arc<PreparedStatement>,
    connection: JoinHandle<()>,
    pub(super) round_trip: RoundTrip,
}

impl StoreSession {
    /// Opens a session and prepares its statement.
    ///
    /// # Errors
    /// PostgreSQL does not respond, or refuses the user or the statement.
    pub(super) async fn open(
        setting: &PostgresqlSetting,
        statement: &str,
    ) -> Result<Self, PostgresqlError> {
        within_timeout(setting, async {
            let (client, connection) = connect(setting).await?;
            let begin = Instant::now();
            client.batch_execute("").await?;
            let round_trip = RoundTrip(begin.elapsed());
            let statement = client.prepare(statement).await?;
            let statement = Arc::new(PreparedStatement { client, statement });
            Ok(StoreSession {
                statement,
                connection,
                round_trip,
            })
        })
        .await
    }

    /// Returns the statement.
    pub(super) fn statement(&self) -> Arc<PreparedStatement> {
        Arc::clone(&self.statement)
    }

    /// Waits until the connection has ended.
    pub(super) async fn lost(&mut self) {
        let _ = (&mut self.connection).await;
    }
}

impl Drop for StoreSession {
    /// Closes the connection, which ends all statements in flight.
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Opens a session, and returns the client with the task of its connection.
pub(super) async fn connect(
    setting: &PostgresqlSetting,
) -> Result<(Client, JoinHandle<()>), tokio_postgres::Error> {
    let (client, connection) = setting.config().connect(NoTls).await?;
    // The client's methods report the error.
    let connection = tokio::spawn(async {
        let _ = connection.await;
    });
    let limit = format!("SET statement_timeout = {}", CANCEL_TIMEOUT.as_millis());
    client.batch_execute(&limit).await?;
    Ok((client, connection))
}

/// Waits for a result for at most `OPEN_TIMEOUT`. Errors name the database.
pub(super) async fn within_timeout<T>(
    setting: &PostgresqlSetting,
    result: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, PostgresqlError> {
    match timeout(OPEN_TIMEOUT, result).await {
        Ok(result) => result.map_err(|error| PostgresqlError::of(setting, &error)),
        Err(_) => Err(PostgresqlError::no_response(setting)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_first_exchange_does_not_hide_the_time_of_later_statements() {
        let ms = Duration::from_millis;
        let mut round_trip = RoundTrip(ms(500));
        assert_eq!(round_trip.without_network(ms(700)), ms(200));
        assert_eq!(round_trip.without_network(ms(20)), ms(0));
        assert_eq!(round_trip.without_network(ms(60)), ms(40));
        assert_eq!(round_trip.statements(ms(4)), 5);
        assert_eq!(round_trip.statements(ms(0)), 20_000_000);
    }
}
