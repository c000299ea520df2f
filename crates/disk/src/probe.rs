//! What a caller provides to test a server: how to start it, and how to read back what it had
//! acknowledged.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Command that starts a server in the foreground. The words may contain the placeholders
/// `{run}` (the server's directory), `{address}`, `{host}` and `{port}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerCommand {
    /// Program and arguments.
    pub words: Vec<String>,
}

impl ServerCommand {
    /// Checks that the command passes the directory and the port to the server.
    ///
    /// # Errors
    /// A placeholder is missing.
    pub fn check(&self) -> Result<(), String> {
        let contains = |text: &str| self.words.iter().any(|word| word.contains(text));
        if !contains("{run}") {
            return Err(
                "{run} is missing; add it where the server expects its directory".to_owned(),
            );
        }
        if !contains("{port}") && !contains("{address}") {
            let fix = "add it where the server expects its listen address";
            return Err(format!("{{address}} or {{port}} is missing; {fix}"));
        }
        Ok(())
    }

    /// Returns whether the server can listen on any address, not only on any port.
    pub(crate) fn has_host(&self) -> bool {
        let mut words = self.words.iter();
        words.any(|word| word.contains("{host}") || word.contains("{address}"))
    }

    /// Returns the command for a directory and a listen address. The first word is the program. The
    /// command has no stdin.
    #[must_use]
    pub fn command(&self, directory: &Path, address: SocketAddr) -> Command {
        let directory = directory.to_string_lossy();
        let mut words = self.words.iter().map(|word| {
            word.replace("{run}", &directory)
                .replace("{address}", &address.to_string())
                .replace("{host}", &address.ip().to_string())
                .replace("{port}", &address.port().to_string())
        });
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null());
        command
    }
}

/// Reads back what a server had acknowledged.
pub trait RecoveryProbe: Sync {
    /// What the server had acknowledged before the crash.
    type Acknowledged;

    /// Finds the acknowledged writes in the bytes that the server had sent, per socket. The last
    /// response on a socket can be incomplete.
    fn acknowledged(&self, sent: &BTreeMap<u64, Vec<u8>>) -> Self::Acknowledged;

    /// Reads back from the restarted server. Returns the reason if an acknowledged write is missing
    /// or the server returns something that was never written.
    ///
    /// # Errors
    /// The server does not respond. If it then ends with a message, it has refused the image, which
    /// is not a loss.
    fn check(
        &self,
        server: SocketAddr,
        acknowledged: &Self::Acknowledged,
    ) -> io::Result<Option<String>>;
}
