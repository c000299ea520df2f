//! Agents on hosts that are reached through ssh, with the user's configuration and keys.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use sha2::{Digest, Sha256};

use crate::launch::LaunchError;

/// Variable with the ssh command and its options. The default is `ssh`.
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

/// Returns the command that starts an agent on each host. Without `program`, the hosts must have
/// floodmark on their PATH. Otherwise, `program` is copied to hosts that do not have an identical copy.
///
/// # Errors
/// The program cannot be copied.
pub(crate) fn commands(
    hosts: &[String],
    program: Option<&Path>,
) -> Result<Vec<Command>, LaunchError> {
    let script = match program {
        Some(program) => format!("exec {} worker --agent --guard", copy(hosts, program)?),
        None => on_path("worker --agent --guard"),
    };
    Ok(hosts.iter().map(|host| command(host, &script)).collect())
}

/// Returns a script that runs floodmark with some arguments from the PATH of its host.
pub(crate) fn on_path(arguments: &str) -> String {
    let missing = "echo 'floodmark is not on the PATH of the remote host; install it there (agents can use --copy instead)' >&2";
    format!(
        "command -v floodmark >/dev/null || {{ {missing}; exit 127; }}; exec floodmark {arguments}"
    )
}

/// Returns whether a text can be a host. ssh would read a text that starts with a hyphen as an
/// option.
pub(crate) fn is_host(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_whitespace)
}

/// Returns a command that runs a script of POSIX sh on a host.
pub(crate) fn command(host: &str, script: &str) -> Command {
    let setting = std::env::var(SSH).ok();
    let words = setting.as_deref().and_then(shlex::split);
    let words = words.filter(|words| !words.is_empty());
    let words = words.unwrap_or_else(|| vec!["ssh".to_owned()]);
    let mut ssh = Command::new(&words[0]);
    ssh.args(&words[1..]).args(OPTIONS).arg(host).arg("--");
    // The user's login shell may not be a POSIX shell, but all shells pass on a quoted argument.
    ssh.arg(format!("exec sh -c '{}'", script.replace('\'', r"'\''")));
    ssh
}

/// Copies the program to each host, unless the host has it. Returns its path there for sh.
fn copy(hosts: &[String], program: &Path) -> Result<String, LaunchError> {
    let bytes = fs::read(program).map_err(LaunchError::Program)?;
    let hash: String = Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let folder = format!("\"${{XDG_CACHE_HOME:-$HOME/.cache}}\"/floodmark/agents/{hash}");
    let path = format!("{folder}/floodmark");
    // Write each copy under a temporary name, and rename it when it is complete.
    let script = format!(
        "set -e; has() {{ echo \"{hash}  $1\" | sha256sum -c >/dev/null 2>&1; }}
         if has {path}; then exit 0; fi
         mkdir -p {folder}; new={path}.$$; trap 'rm -f \"$new\"' EXIT
         cat >\"$new\"; has \"$new\" || {{ echo 'the copy is damaged' >&2; exit 1; }}
         chmod 755 \"$new\"; mv \"$new\" {path}"
    );
    let mut distinct = hosts.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let copied = thread::scope(|scope| {
        let copies = distinct.iter().map(|host| {
            let (bytes, script) = (&bytes, &script);
            (
                host,
                scope.spawn(move || copy_to(command(host, script), bytes)),
            )
        });
        let copies = Vec::from_iter(copies);
        let ended = copies.into_iter().map(|(host, copy)| {
            let copied = copy
                .join()
                .unwrap_or_else(|_| Err("the copy failed".to_owned()));
            copied.map_err(|what| LaunchError::Copy {
                host: host.clone(),
                what: format!("cannot copy floodmark there: {what}"),
            })
        });
        ended.collect::<Result<Vec<()>, _>>()
    });
    copied.map(|_| path)
}

/// Runs a command with the program on its stdin.
fn copy_to(mut command: Command, program: &[u8]) -> Result<(), String> {
    use std::io::Write;
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .spawn()
        .map_err(|error| format!("cannot start {name}: {error}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A host that has the program does not read it.
        let _ = stdin.write_all(program);
    }
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let message = String::from_utf8_lossy(&output.stderr);
    let message = message.trim().replace('\n', "; ");
    match output.status.success() {
        true => Ok(()),
        false if message.is_empty() => Err(output.status.to_string()),
        false => Err(message),
    }
}
