//! PostgreSQL errors.

use std::error::Error;

use tokio_postgres::error::SqlState;

use super::setting::PostgresqlSetting;
use crate::store_queue::StoreFault;

/// A reason why bars cannot be stored in PostgreSQL. The message contains no password.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {cause}; {fix}")]
pub struct PostgresqlError {
    place: String,
    cause: String,
    fix: String,
    /// Whether PostgreSQL refused the session because it is still starting.
    is_starting: bool,
}

impl PostgresqlError {
    /// Returns an error about the database or its table.
    pub(super) fn new(
        setting: &PostgresqlSetting,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        PostgresqlError {
            place: setting.to_string(),
            cause: cause.into(),
            fix: fix.into(),
            is_starting: false,
        }
    }

    /// Converts a client error, and adds a fix for its cause.
    pub(super) fn of(setting: &PostgresqlSetting, error: &tokio_postgres::Error) -> Self {
        let mut own = Self::new(setting, cause(error), fix(error));
        own.is_starting = error.code() == Some(&SqlState::CANNOT_CONNECT_NOW);
        own
    }

    /// Returns the error for an unresponsive database.
    pub(super) fn no_response(setting: &PostgresqlSetting) -> Self {
        let fix = "check that PostgreSQL runs at this address and is healthy";
        Self::new(setting, "no response", fix)
    }

    /// Returns whether a retry may soon succeed.
    pub(super) fn is_starting(&self) -> bool {
        self.is_starting
    }

    /// Returns the fault for the server's clients, without the address.
    pub(super) fn fault(&self) -> StoreFault {
        unavailable(&self.cause)
    }
}

/// Returns the fault for the server's clients while no session is open.
pub(super) fn unavailable(cause: &str) -> StoreFault {
    StoreFault(format!(
        "the database is not available: {cause}; retry later"
    ))
}

/// Returns an error's cause in one line. Prefers PostgreSQL's own message.
pub(super) fn cause(error: &tokio_postgres::Error) -> String {
    if let Some(own) = error.as_db_error() {
        return own.message().replace('\n', " ");
    }
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn fix(error: &tokio_postgres::Error) -> &'static str {
    let Some(code) = error.code() else {
        return match error.source() {
            Some(source) if source.to_string().contains("password") => {
                "add the password to --store"
            }
            _ => "start PostgreSQL, or correct the address in --store",
        };
    };
    match *code {
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => {
            "correct the user or password in --store, or allow the user in pg_hba.conf"
        }
        SqlState::INVALID_CATALOG_NAME => "create the database, or correct its name in --store",
        SqlState::INSUFFICIENT_PRIVILEGE => {
            "grant the user access to the table bar, or the right to create it"
        }
        SqlState::TOO_MANY_CONNECTIONS => {
            "close other sessions, or raise max_connections or the CONNECTION LIMIT of the user or database"
        }
        SqlState::CANNOT_CONNECT_NOW => "retry once PostgreSQL has started",
        SqlState::READ_ONLY_SQL_TRANSACTION => "use a database that accepts writes",
        _ => "check PostgreSQL's log and settings",
    }
}
