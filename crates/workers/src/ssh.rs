//! Agents on hosts that are reached through ssh, with the user's configuration and keys.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::{fs, thread};

use sha2::{Digest, Sha256};

use crate::command::{output, user_command};

/// Environment variable with the ssh command and its options. The default is `ssh`.
const SSH: &str = "FLOODMARK_SSH";

/// Options of the ssh command. A prompt on the terminal would block the start, and a broken
/// connection must end within seconds.
const OPTIONS: [&str; 8] = [
    "-T",
    "-oBatchMode=yes",
    "-oConnectTimeout=10",
    "-oServerAliveInterval=2",
    "-oServerAliveCountMax=3",
    "-oEscapeChar=none",
    "-oLogLevel=ERROR",
    "-oCompression=no",
];

/// Returns, for each host, the command that starts an agent, or why the agent cannot be started.
/// Without `program`, the hosts must have floodmark on their PATH. Otherwise, `program` is copied
/// to hosts that do not have an identical copy.
pub(crate) fn commands(hosts: &[String], program: Option<&Path>) -> Vec<Result<Command, String>> {
    let Some(program) = program else {
        let script = on_path("worker --agent --guard");
        let commands = hosts.iter().map(|host| Ok(command(host, &script)));
        return commands.collect();
    };
    let failed = |why: &str| {
        let why = why.replace('\n', "; ");
        format!("cannot copy floodmark to the host: {why}")
    };
    let bytes = match fs::read(program) {
        Ok(bytes) => bytes,
        Err(error) => {
            let why = failed(&format!("{}: {error}", program.display()));
            return hosts.iter().map(|_| Err(why.clone())).collect();
        }
    };
    let (path, copied) = copy(hosts, &bytes);
    let script = format!("exec {path} worker --agent --guard");
    let commands = hosts.iter().map(|host| match &copied[host] {
        Ok(_) => Ok(command(host, &script)),
        Err(why) => Err(failed(why)),
    });
    commands.collect()
}

/// Returns a script that runs floodmark with some arguments from the PATH of its host.
pub(crate) fn on_path(arguments: &str) -> String {
    let missing = "echo 'floodmark is not on the PATH of the remote host; install it there (agents can use --copy instead)' >&2";
    format!(
        "command -v floodmark >/dev/null || {{ {missing}; exit 127; }}; exec floodmark {arguments}"
    )
}

/// Returns whether `text` can be the name of a host. ssh would interpret text that starts with a
/// hyphen as an option.
pub(crate) fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_whitespace)
}

/// Returns a command that runs a POSIX shell script on a host.
pub(crate) fn command(host: &str, script: &str) -> Command {
    let mut ssh = user_command(SSH, "ssh");
    ssh.args(OPTIONS).arg(host).arg("--");
    // The user's login shell may not be a POSIX shell, but all shells pass on a quoted argument.
    ssh.arg(format!("exec sh -c '{}'", script.replace('\'', r"'\''")));
    ssh
}

/// Copies the program to each host that lacks it. Returns the copy's path as an expression for sh,
/// and the outcome for each host.
fn copy<'h>(
    hosts: &'h [String],
    program: &[u8],
) -> (String, BTreeMap<&'h String, Result<Vec<u8>, String>>) {
    let digest = Sha256::digest(program);
    let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let directory = format!("\"${{XDG_CACHE_HOME:-$HOME/.cache}}\"/floodmark/agents/{hash}");
    let path = format!("{directory}/floodmark");
    // Write each copy under a temporary name, and rename it when it is complete.
    let script = format!(
        "set -e; has() {{ echo \"{hash}  $1\" | sha256sum -c >/dev/null 2>&1; }}
         if has {path}; then exit 0; fi
         mkdir -p {directory}; new={path}.$$; trap 'rm -f \"$new\"' EXIT
         cat >\"$new\"; has \"$new\" || {{ echo 'the copy is damaged' >&2; exit 1; }}
         chmod 755 \"$new\"; mv \"$new\" {path}"
    );
    let distinct: BTreeSet<&String> = hosts.iter().collect();
    let copied = thread::scope(|scope| {
        let copies = distinct.into_iter().map(|host| {
            let script = &script;
            let copy = scope.spawn(move || output(command(host, script), program));
            (host, copy)
        });
        let ended = Vec::from_iter(copies).into_iter().map(|(host, copy)| {
            let ended = copy.join();
            (
                host,
                ended.unwrap_or_else(|_| Err("the copy failed".to_owned())),
            )
        });
        ended.collect()
    });
    (path, copied)
}
