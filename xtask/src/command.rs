//! Running other programs, each echoed as one could type it.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;

/// Most lines of a command's output that are kept to be told again.
const LINES_KEPT: usize = 50_000;
/// How often a running command is looked at.
const GLANCE: Duration = Duration::from_millis(50);
/// How long what a command left running in the background may hold up its output.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// The cargo that runs us, so that nested calls use the same toolchain.
pub fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Echoes a command and runs it without input, its output and errors shown in the order in which they come; where it
/// fails, the error keeps them.
pub fn run(command: &mut Command) -> Result<(), Error> {
    let line = line(command);
    println!("$ {line}");
    let (status, said) = watch(command).map_err(|source| Error::Start {
        command: line.clone(),
        source,
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(Error::Failed {
            command: line,
            status,
            said,
        })
    }
}

/// Runs a command, shows what it writes, and returns how it ended and its last lines.
fn watch(command: &mut Command) -> io::Result<(ExitStatus, VecDeque<String>)> {
    let (reader, writer) = io::pipe()?;
    let again = writer.try_clone()?;
    let child = command.stdin(Stdio::null()).stdout(again).stderr(writer);
    let child = child.spawn();
    // The command holds the pipe's other end, and with it open there would be no end of lines.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let (mut child, lines) = (child?, lines(reader));
    let mut said = VecDeque::new();
    let mut ended = None;
    loop {
        match lines.recv_timeout(GLANCE) {
            Ok(line) => {
                println!("{line}");
                said.push_back(line);
                if said.len() > LINES_KEPT {
                    said.pop_front();
                }
            }
            Err(RecvTimeoutError::Disconnected) => return Ok((child.wait()?, said)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if ended.is_none() {
            ended = child.try_wait()?.map(|status| (status, Instant::now()));
        }
        if let Some((status, at)) = ended
            && at.elapsed() > LAST_WORDS
        {
            return Ok((status, said));
        }
    }
}

/// The lines of a pipe as they come, read in a thread of its own.
fn lines(reader: PipeReader) -> Receiver<String> {
    let (out, lines) = channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            let text = String::from_utf8_lossy(&line);
            if out
                .send(text.trim_end_matches(['\r', '\n']).to_owned())
                .is_err()
            {
                return;
            }
            line.clear();
        }
    });
    lines
}

/// Runs a command away from any terminal and returns what it wrote on stdout; what it wrote on stderr is
/// shown only when it fails.
pub fn capture(command: &mut Command) -> Result<String, Error> {
    collect(command).map(|(stdout, _)| stdout)
}

/// Echoes a command, runs it and returns what it wrote on stderr; that is shown only when it fails.
pub fn hush(command: &mut Command) -> Result<String, Error> {
    println!("$ {}", line(command));
    collect(command).map(|(_, stderr)| stderr)
}

/// Runs a command and returns what it wrote on stdout and on stderr.
pub fn collect(command: &mut Command) -> Result<(String, String), Error> {
    let line = line(command);
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| Error::Start {
        command: line.clone(),
        source,
    })?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        eprint!("{stderr}");
        return Err(Error::Failed {
            command: line,
            status: output.status,
            said: stderr.lines().map(str::to_owned).collect(),
        });
    }
    match String::from_utf8(output.stdout) {
        Ok(stdout) => Ok((stdout, stderr)),
        Err(e) => Err(Error::Output {
            command: line,
            why: e.to_string(),
        }),
    }
}

/// Whether a command can be run and ends with success; its output is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A command with its own variables as it would be typed in a shell.
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
    let plain = |c: char| c.is_alphanumeric() || "-_=./:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_can_be_typed_again() {
        let mut command = Command::new("/opt/toolchain/bin/cargo");
        command
            .args(["test", "-p", "it's"])
            .env("RUSTFLAGS", "-C a -C b");
        assert_eq!(
            line(&command),
            r"RUSTFLAGS='-C a -C b' cargo test -p 'it'\''s'"
        );
    }

    #[test]
    fn each_stream_is_returned_apart() {
        let shell = || {
            let mut shell = Command::new("sh");
            shell.args(["-c", "echo out; echo err >&2"]);
            shell
        };
        assert_eq!(capture(&mut shell()).unwrap(), "out\n");
        assert_eq!(hush(&mut shell()).unwrap(), "err\n");
    }

    #[test]
    fn what_a_failing_command_said_is_kept() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo out; echo err >&2; printf last; exit 3"]);
        let Err(Error::Failed { status, said, .. }) = run(&mut shell) else {
            panic!("it fails");
        };
        assert_eq!(status.code(), Some(3));
        assert_eq!(said, ["out", "err", "last"]);
    }

    #[test]
    fn what_stays_in_the_background_is_not_awaited() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 60 & echo $!; exit 1"]);
        let Err(Error::Failed { said, .. }) = run(&mut shell) else {
            panic!("it fails");
        };
        let sleeper = said[0].clone();
        assert!(
            capture(Command::new("kill").arg(sleeper)).is_ok(),
            "it still slept"
        );
    }

    #[test]
    fn a_failing_command_is_an_error() {
        assert!(matches!(
            run(&mut Command::new("false")),
            Err(Error::Failed { .. })
        ));
        let missing = run(&mut Command::new("no-such-program-of-floodmark"));
        assert!(matches!(missing, Err(Error::Start { .. })));
        assert!(capture(&mut Command::new("false")).is_err());
        assert!(hush(&mut Command::new("false")).is_err());
        assert!(!succeeds(&mut Command::new("false")));
    }
}
