//! The connection string of a PostgreSQL database.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// Maximum time to connect, excluding PostgreSQL's handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Usage hint for a connection string.
const USAGE: &str = "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, or postgresql:host=HOST \
                     port=PORT user=USER password=PASSWORD dbname=DATABASE";

/// A PostgreSQL database and the user that connects to it. Neither `Display` nor `Debug` prints the
/// password.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresqlSetting {
    config: Config,
}

impl PostgresqlSetting {
    /// Returns the session configuration.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }
}

impl fmt::Display for PostgresqlSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgreSQL at ")?;
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        match (
            self.config.get_hosts().first(),
            self.config.get_hostaddrs().first(),
        ) {
            (Some(Host::Unix(directory)), _) => write!(f, "{}, port {port}", directory.display()),
            (Some(Host::Tcp(host)), _) if host.contains(':') => write!(f, "[{host}]:{port}"),
            (Some(Host::Tcp(host)), _) => write!(f, "{host}:{port}"),
            (None, Some(address)) => write!(f, "{address}, port {port}"),
            (None, None) => write!(f, "port {port}"),
        }
    }
}

impl fmt::Debug for PostgresqlSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PostgresqlSetting {
    /// A message that does not contain the password.
    type Err = String;

    /// Parses the text that follows `postgresql:`, either the rest of a URL or a keyword/value
    /// string.
    fn from_str(text: &str) -> Result<Self, String> {
        let is_url = text.starts_with("//");
        // The parser ends the password at the first @, so the rest of the password would become
        // part of the host.
        if is_url && text.matches('@').count() > 1 {
            return Err(
                "the URL contains several @; write %40 for an @ in a user name or password"
                    .to_owned(),
            );
        }
        let parsed = if is_url {
            format!("postgresql:{text}").parse::<Config>()
        } else {
            text.parse()
        };
        let mut config = parsed.map_err(|error| {
            let cause = error.into_source().map(|cause| cause.to_string());
            // The parser's other messages about a keyword/value string may quote part of a
            // password, if the password contains a space.
            match cause {
                Some(cause)
                    if is_url
                        || cause.starts_with("invalid value for option")
                        || is_before_password(text, &cause) =>
                {
                    format!("{cause}; {USAGE}")
                }
                _ => format!("not a connection string; {USAGE}"),
            }
        })?;
        let hosts = config.get_hosts().len();
        match (hosts, config.get_hostaddrs().len()) {
            (0, 0) => return Err(format!("no host is given; {USAGE}")),
            (1, 0) | (0, 1) | (1, 1) => {}
            _ => {
                return Err(
                    "several hosts are given; use one host, so that all bars are in one database"
                        .into(),
                );
            }
        }
        if config.get_user().is_none_or(str::is_empty) {
            return Err(format!("no user is given; {USAGE}"));
        }
        if config.get_ssl_mode() == SslMode::Require {
            return Err(
                "TLS to PostgreSQL is not supported; omit sslmode, or set it to disable".into(),
            );
        }
        // The database name defaults to the user's name, so a missing name would go unnoticed.
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(format!("no database is given; {USAGE}"));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("floodmark serve");
        }
        Ok(PostgresqlSetting { config })
    }
}

/// Returns whether the parser's message quotes a key that precedes the password.
fn is_before_password(text: &str, cause: &str) -> bool {
    let before = text.split("password").next().unwrap_or_default();
    let mut keys = before.split_whitespace().map(|word| word.split('=').next());
    let key = cause.strip_prefix("unknown option `");
    let key = key.and_then(|key| key.strip_suffix('`'));
    key.is_some() && keys.any(|one| one == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_urls_and_keys() {
        for (text, shown) in [
            ("//bars@127.0.0.1:5432/bars", "PostgreSQL at 127.0.0.1:5432"),
            ("//u:s%40cret@[::1]:7/b", "PostgreSQL at [::1]:7"),
            ("//u:x@localhost/b", "PostgreSQL at localhost:5432"),
            (
                "host=localhost user=u password='s cret' dbname=b",
                "PostgreSQL at localhost:5432",
            ),
            ("host=/run user=u dbname=b", "PostgreSQL at /run, port 5432"),
        ] {
            let setting: PostgresqlSetting = text.parse().unwrap();
            assert_eq!(setting.to_string(), shown);
            assert_eq!(format!("{setting:?}"), shown);
        }
    }

    #[test]
    fn refuses_invalid_strings_without_printing_the_password() {
        for (text, reason) in [
            ("", "no host is given"),
            ("//", "no host is given"),
            ("//127.0.0.1/bars", "no user is given"),
            ("//u:secret@/b", "no host is given"),
            ("//u:secret@127.0.0.1:5432", "no database is given"),
            ("//u:se@cret@127.0.0.1/b", "write %40"),
            (
                "//u:secret@127.0.0.1:x/b",
                "invalid value for option `port`",
            ),
            ("//u:secret@a,b/b", "several hosts"),
            (
                "//u:secret@a/b?sslmode=require",
                "TLS to PostgreSQL is not supported",
            ),
            ("//u:secret@a/b?ssl=1", "unknown option `ssl`"),
            (
                "host=a prot=1 user=u dbname=b password=x secret",
                "unknown option `prot`",
            ),
            (
                "host=a user=u dbname=b password=x secret=y",
                "not a connection string",
            ),
            (
                "host=a user=u dbname=b password=x secret",
                "not a connection string",
            ),
        ] {
            let error = text.parse::<PostgresqlSetting>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(!error.contains("cret"), "{text}: {error}");
        }
    }
}
