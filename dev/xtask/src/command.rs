//! Runs programs and echoes their command lines.

use std::borrow::Cow;
use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, PipeReader, Read, Seek};
use std::iter;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::TaskError;

/// Maximum wait for further output after a command has exited. Background processes may keep the
/// output open.
const DRAIN: Duration = Duration::from_secs(2);

/// A function that prints or ignores a line of a command's output.
type Print = fn(&str);

/// Returns the cargo binary that runs this program, so that nested calls use the same toolchain.
pub fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Returns a command whose words are separated by spaces.
pub fn words(line: &str) -> Command {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Echoes a command, runs it without stdin and prints the output as it arrives. Returns the lines
/// of the output. If the command fails, the error contains these lines.
pub fn run(command: &mut Command) -> Result<Vec<String>, TaskError> {
    println!("$ {}", line(command));
    let print: Print = |line| println!("{line}");
    let streamed = stream(command, print, None).map_err(TaskError::start(command))?;
    successful(command, streamed)
}

/// Runs a command like [`run`], but does not print its stdout. Returns the lines of stderr, and the
/// text of stdout.
pub fn run_for_stdout(command: &mut Command) -> Result<(Vec<String>, String), TaskError> {
    println!("$ {}", line(command));
    let print: Print = |line| println!("{line}");
    let mut stdout = tempfile::tempfile().map_err(TaskError::file(&env::temp_dir()))?;
    let again = stdout.try_clone().map(Stdio::from);
    let streamed = again.and_then(|again| stream(command, print, Some(again)));
    let output = successful(command, streamed.map_err(TaskError::start(command))?)?;
    let mut text = String::new();
    let read = stdout
        .rewind()
        .and_then(|()| stdout.read_to_string(&mut text));
    read.map_err(|error| TaskError::output(command, error))?;
    Ok((output, text))
}

/// Runs a command like [`run`], but prints everything at once when the command has ended. `comment`
/// follows the command line.
pub fn run_at_once(command: &mut Command, comment: &str) -> Result<Vec<String>, TaskError> {
    let streamed = stream(command, |_| {}, None).map_err(TaskError::start(command))?;
    println!("$ {}{comment}\n{}", line(command), streamed.1.join("\n"));
    successful(command, streamed)
}

/// Returns a command's output, or an error if the command failed.
fn successful(
    command: &Command,
    (status, output): (ExitStatus, Vec<String>),
) -> Result<Vec<String>, TaskError> {
    if status.success() {
        return Ok(output);
    }
    Err(TaskError::Failed {
        command: line(command),
        status,
        output,
    })
}

/// Finds the ignored parts of a step in its output, and returns a note with the reason for each. An
/// ignored part is an ignored Rust test, or a part that is named in a line that starts with
/// `ignored: `.
pub fn ignored(output: &[String]) -> Vec<String> {
    let ignored = output.iter().filter_map(|line| {
        if let Some(reason) = line.strip_prefix("ignored: ") {
            return Some(format!("ignored {reason}"));
        }
        let (test, reason) = line.strip_prefix("test ")?.split_once(" ... ignored")?;
        let reason = reason.strip_prefix(", ").unwrap_or("no reason given");
        Some(format!("ignored {test}: {reason}"))
    });
    ignored.collect()
}

/// Runs a command, calls `print` with each line as it arrives, and returns the exit status and the
/// lines. The lines contain stdout only if `stdout` is `None`.
fn stream(
    command: &mut Command,
    print: Print,
    stdout: Option<Stdio>,
) -> io::Result<(ExitStatus, Vec<String>)> {
    let (reader, writer) = io::pipe()?;
    let stdout = stdout.map_or_else(|| writer.try_clone().map(Stdio::from), Ok)?;
    let child = command.stdin(Stdio::null()).stdout(stdout).stderr(writer);
    let child = child.spawn();
    // Close the write end of the pipe, which the command holds. Otherwise reading would never end.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let (mut child, lines) = (child?, lines(reader, print));
    let status = child.wait()?;
    let ended = Instant::now();
    let next = || {
        let left = DRAIN.checked_sub(ended.elapsed())?;
        lines.recv_timeout(left).ok()
    };
    Ok((status, iter::from_fn(next).collect()))
}

/// Reads a pipe on another thread and calls `print` with each line as it arrives. The receiver
/// yields the lines.
fn lines(reader: PipeReader, print: Print) -> Receiver<String> {
    let (out, lines) = channel();
    thread::spawn(move || {
        let lines = BufReader::new(reader).split(b'\n').map_while(Result::ok);
        let lines = lines.map(|line| String::from_utf8_lossy(&line).trim_end().to_owned());
        lines
            .inspect(|line| print(line))
            .try_for_each(|line| out.send(line))
    });
    lines
}

/// Runs a command and returns its stdout. Prints stderr only if the command fails.
pub fn capture(command: &mut Command) -> Result<String, TaskError> {
    collect(command).map(|(stdout, _)| stdout)
}

/// Runs a command and returns its stdout and stderr. Prints stderr only if the command fails.
pub fn collect(command: &mut Command) -> Result<(String, String), TaskError> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(TaskError::start(command))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        eprint!("{stderr}");
        return Err(TaskError::Failed {
            command: line(command),
            status: output.status,
            output: stderr.lines().map(str::to_owned).collect(),
        });
    }
    let stdout = String::from_utf8(output.stdout);
    let stdout = stdout.map_err(|error| TaskError::output(command, error))?;
    Ok((stdout, stderr))
}

/// Returns whether a command starts and succeeds. The output is discarded.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Formats a command as a shell command line, including its environment variables.
pub fn line(command: &Command) -> String {
    let variables = command.get_envs().filter_map(|(name, value)| {
        value.map(|value| format!("{}={}", name.to_string_lossy(), quoted(value)))
    });
    let program = Path::new(command.get_program());
    let cargo = program.file_stem() == Some(OsStr::new("cargo"));
    let program = if cargo {
        "cargo".into()
    } else {
        quoted(program.as_os_str())
    };
    let arguments = command.get_args().map(quoted);
    let words: Vec<String> = variables.chain([program]).chain(arguments).collect();
    words.join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    // Quoting fails only for a NUL byte, and no argument contains a NUL byte.
    shlex::try_quote(&word).map_or(word.to_string(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_a_line_for_the_shell() {
        let mut command = Command::new("/opt/toolchain/bin/cargo");
        command
            .args(["test", "-p", "it's"])
            .env("RUSTFLAGS", "-C a -C b");
        assert_eq!(
            line(&command),
            "RUSTFLAGS='-C a -C b' cargo test -p \"it's\""
        );
    }

    #[test]
    fn returns_each_stream() {
        let shell = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", "echo out; echo err >&2"]);
            shell
        };
        assert_eq!(capture(&mut shell()).unwrap(), "out\n");
        assert_eq!(collect(&mut shell()).unwrap().1, "err\n");
    }

    #[test]
    fn keeps_the_output_of_a_failing_command() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo out; echo err >&2; printf last; exit 3"]);
        let Err(TaskError::Failed { status, output, .. }) = run(&mut shell) else {
            panic!("it fails");
        };
        assert_eq!(status.code(), Some(3));
        assert_eq!(output, ["out", "err", "last"]);
    }

    #[test]
    fn finds_what_was_ignored_with_its_reason() {
        let output = "test a ... ok\nignored: uring: forbidden\ntest b ... ignored, needs root\ntest c ... ignored\n";
        let output: Vec<String> = output.lines().map(str::to_owned).collect();
        let expected = [
            "ignored uring: forbidden",
            "ignored b: needs root",
            "ignored c: no reason given",
        ];
        assert_eq!(ignored(&output), expected);
    }

    #[test]
    fn does_not_wait_for_background_processes() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; exit 1"]);
        let Err(TaskError::Failed { output, .. }) = run(&mut shell) else {
            panic!("it fails");
        };
        let sleeper = output[0].clone();
        assert!(
            capture(Command::new("kill").arg(sleeper)).is_ok(),
            "the sleeper has ended"
        );
    }

    #[test]
    fn returns_an_error_for_a_failing_command() {
        assert!(matches!(
            run(&mut Command::new("false")),
            Err(TaskError::Failed { .. })
        ));
        let missing = run(&mut Command::new("no-such-program")).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("cannot start `no-such-program`")
        );
        assert!(capture(&mut Command::new("false")).is_err());
        assert!(collect(&mut Command::new("false")).is_err());
        assert!(!succeeds(&mut Command::new("false")));
    }
}
