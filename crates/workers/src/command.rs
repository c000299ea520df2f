//! Commands: splits and joins their words, starts them with pipes as stdin, stdout and stderr, and
//! reads their output.

use std::io::{self, BufRead, Read, Write};
use std::process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{env, thread};

use floodmark_host::Child;

/// Maximum length of a command's stdout in bytes. Longer output is truncated. The largest output
/// lists the pods of 1,000 agents.
const OUTPUT_LIMIT: u64 = 64 << 20;

/// Maximum total length of a command's messages in bytes. Longer output is truncated.
const MESSAGE_LIMIT: u64 = 4000;

/// Maximum time for a process to exit after it has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// A started process and its stdin, stdout and stderr.
pub(crate) type PipedChild = (Child, ChildStdin, ChildStdout, ChildStderr);

/// Starts a command with pipes.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn start_piped(mut command: Command) -> Result<PipedChild, String> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = Child::start(command).map_err(|error| error.to_string())?;
    match (child.stdin(), child.stdout(), child.stderr()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok((child, stdin, stdout, stderr)),
        _ => Err("its pipes are missing".to_owned()),
    }
}

/// Runs a command with `input` on its stdin. Returns its stdout.
///
/// # Errors
/// The command cannot be started, or it fails. The error contains the lines that it wrote to
/// stderr.
pub(crate) fn output(command: Command, input: &[u8]) -> Result<Vec<u8>, String> {
    let (mut child, mut stdin, stdout, stderr) = start_piped(command)?;
    let (mut stdout, mut stderr) = (stdout.take(OUTPUT_LIMIT), stderr.take(MESSAGE_LIMIT));
    let (mut out, mut messages) = (Vec::new(), Vec::new());
    let read = thread::scope(|scope| {
        scope.spawn(move || {
            // Ignore the error: a command that does not need its input may close stdin early.
            let _ = stdin.write_all(input);
        });
        // Messages that were read before an error are still useful.
        scope.spawn(|| stderr.read_to_end(&mut messages));
        stdout.read_to_end(&mut out)
    });
    let status = child
        .wait(EXIT_TIMEOUT)
        .map_err(|error| error.to_string())?;
    let messages = String::from_utf8_lossy(&messages);
    let messages = messages.trim().to_owned();
    match (status, read) {
        (Some(status), Ok(_)) if status.success() => Ok(out),
        _ if !messages.is_empty() => Err(messages),
        (_, Err(error)) => Err(error.to_string()),
        (Some(status), Ok(_)) => Err(status.to_string()),
        (None, Ok(_)) => Err(format!("did not exit within {} s", EXIT_TIMEOUT.as_secs())),
    }
}

/// Appends the rest of the next line to `line`, excluding the line feed. Returns whether the line
/// is complete.
///
/// If the line is incomplete, a later call can complete it.
///
/// # Errors
/// The source cannot be read, or the line is longer than `limit` bytes.
pub fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>, limit: usize) -> io::Result<bool> {
    let room = (limit + 1).saturating_sub(line.len()) as u64;
    reader.take(room).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(true);
    }
    if line.len() > limit {
        Err(io::Error::other(format!(
            "a line is longer than {limit} bytes"
        )))
    } else {
        Ok(false)
    }
}

/// Returns the command and first arguments that an environment variable contains. If the variable
/// is not set or contains no valid command, returns the program `default`.
pub(crate) fn user_command(variable: &str, default: &str) -> Command {
    let setting = env::var(variable).ok();
    let words = setting.and_then(|setting| words_of(&setting).ok());
    command_of(words.unwrap_or_else(|| vec![default.to_owned()]))
}

/// Splits the template of a command into words, as a shell does.
///
/// # Errors
/// The template has no words, or its quotes are not closed.
pub(crate) fn words_of(template: &str) -> Result<Vec<String>, String> {
    let words = shlex::split(template).filter(|words| !words.is_empty());
    words.ok_or_else(|| format!("\"{template}\" is not a command; check its quotes"))
}

/// Joins words into a command that a shell splits into the same words.
pub(crate) fn joined(words: &[String]) -> String {
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default()
}

/// Creates a command from words. The first word is the program.
pub(crate) fn command_of(words: impl IntoIterator<Item = String>) -> Command {
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        shell
    }

    #[test]
    fn returns_stdout_or_the_reason() {
        let input = vec![b'x'; 1 << 20];
        assert_eq!(output(shell("cat"), &input), Ok(input.clone()));
        assert_eq!(output(shell("echo done"), &input), Ok(b"done\n".to_vec()));
        let failure = output(shell("echo a >&2; echo b >&2; exit 1"), b"");
        assert_eq!(failure, Err("a\nb".to_owned()));
        assert_eq!(
            output(shell("exit 3"), b""),
            Err("exit status: 3".to_owned())
        );
        let missing = output(Command::new("/no/such/program"), b"").unwrap_err();
        assert!(missing.contains("/no/such/program"), "{missing}");
    }

    #[test]
    fn completes_a_line_over_several_reads() {
        let mut line = Vec::new();
        assert!(!read_line(&mut &b"ab"[..], &mut line, 4).unwrap());
        assert!(!read_line(&mut &b""[..], &mut line, 4).unwrap());
        let mut rest = &b"cd\nnext\n"[..];
        assert!(read_line(&mut rest, &mut line, 4).unwrap());
        assert_eq!(line, b"abcd");
        assert_eq!(rest, b"next\n");
    }

    #[test]
    fn refuses_a_line_over_the_limit() {
        let mut line = Vec::new();
        let error = read_line(&mut &b"abcde\n"[..], &mut line, 4).unwrap_err();
        assert_eq!(error.to_string(), "a line is longer than 4 bytes");
        assert!(line.len() <= 5, "{line:?}");
    }
}
