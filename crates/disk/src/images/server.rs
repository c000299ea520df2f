//! One start of the server on one image, and how the server exited.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use floodmark_host::{Child, failure_line};
use floodmark_observe::{Root, listener, process};

use super::{ImageTest, TestError};
use crate::model::Image;
use crate::probe::RecoveryProbe;

/// Maximum time until the server accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum time to wait for the exit of a server that did not respond, or whose address another
/// process uses.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between two attempts to connect.
const CONNECT_PAUSE: Duration = Duration::from_micros(500);

/// First listen address. Each start uses a different address, so that no server receives
/// connections that were meant for the previous one.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 64, 0, 1);

/// Number of listen addresses.
const ADDRESSES: u32 = 1 << 22;

/// Listen ports, below the range of ephemeral ports. Each start also uses a different port, because
/// the server may listen on all addresses.
const PORTS: std::ops::Range<u16> = 10_000..30_000;

/// Size of the file that is written to check for free space, in bytes.
const SPACE: usize = 1 << 20;

/// Number of addresses that this process has used.
static STARTS: AtomicU32 = AtomicU32::new(0);

/// What a server did with an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ImageOutcome {
    /// The server returned everything that it had acknowledged.
    Recovered,
    /// The server refused to start, with this message.
    Refused(String),
    /// The server lost an acknowledged write.
    Lost(String),
    /// The server crashed.
    Crashed(String),
    /// The server did not respond, or exited without an error message.
    Failed(String),
}

impl ImageOutcome {
    /// Returns how the server failed, if it did.
    pub(super) fn failure(&self) -> Option<&str> {
        match self {
            ImageOutcome::Recovered | ImageOutcome::Refused(_) => None,
            ImageOutcome::Lost(reason)
            | ImageOutcome::Crashed(reason)
            | ImageOutcome::Failed(reason) => Some(reason),
        }
    }
}

impl<P: RecoveryProbe> ImageTest<'_, P> {
    fn next_address(&self) -> Result<SocketAddr, TestError> {
        // Tests in other processes use other addresses.
        let first = std::process::id().wrapping_mul(PORTS.len() as u32 + 1_009);
        for _ in PORTS {
            let number = first.wrapping_add(STARTS.fetch_add(1, Ordering::Relaxed));
            let host = if self.server.has_host() {
                Ipv4Addr::from_bits(FIRST_ADDRESS.to_bits() + number % ADDRESSES)
            } else {
                Ipv4Addr::LOCALHOST
            };
            let port = PORTS.start + (number % PORTS.len() as u32) as u16;
            let address = SocketAddr::from((host, port));
            if !is_used(address).map_err(TestError::Listeners)? {
                return Ok(address);
            }
        }
        Err(TestError::NoFreePort)
    }

    /// Starts the server on an image, and reads back the acknowledged data. `worker` distinguishes
    /// the image directories of parallel tests.
    pub(super) fn try_image(
        &self,
        worker: usize,
        image: &Image,
        acknowledged: &P::Acknowledged,
    ) -> Result<ImageOutcome, TestError> {
        let directory = self.scratch.join(format!("image-{worker}"));
        let log = self.scratch.join(format!("log-{worker}"));
        write_image(image, &directory).map_err(failed(&directory))?;
        let address = self.next_address()?;
        let mut command = self.server.command(&directory, address);
        let stderr = File::create(&log).map_err(failed(&log))?;
        command.stdout(Stdio::null()).stderr(stderr);
        let mut child = Child::start(command)?;
        let begin = Instant::now();
        loop {
            let is_accepted = TcpStream::connect(address).is_ok();
            let is_own = || is_own(child.pid(), address).map_err(TestError::Listeners);
            if is_accepted && is_own()? {
                break;
            }
            if let Some(status) = child.wait(Duration::ZERO)? {
                return self.ended(status, worker, &directory, &log);
            }
            if is_accepted && begin.elapsed() > END_TIMEOUT {
                return Err(TestError::ForeignServer(address));
            }
            if begin.elapsed() > START_TIMEOUT {
                let reason = "the server accepted no connection within 10 s";
                return Ok(ImageOutcome::Failed(reason.to_owned()));
            }
            thread::sleep(CONNECT_PAUSE);
        }
        match self.probe.check(address, acknowledged) {
            Ok(None) => Ok(ImageOutcome::Recovered),
            Ok(Some(loss)) => Ok(ImageOutcome::Lost(loss)),
            Err(error) => match child.wait(END_TIMEOUT)? {
                Some(status) => self.ended(status, worker, &directory, &log),
                None => Ok(ImageOutcome::Failed(format!(
                    "the state cannot be read back: {error}"
                ))),
            },
        }
    }

    /// Returns the outcome for a server that exited on its own.
    fn ended(
        &self,
        status: ExitStatus,
        worker: usize,
        directory: &Path,
        log: &Path,
    ) -> Result<ImageOutcome, TestError> {
        let space = self.scratch.join(format!("space-{worker}"));
        check_space(&space).map_err(failed(&space))?;
        let message = fs::read(log).map_err(failed(log))?;
        let message = String::from_utf8_lossy(&message);
        // Each worker uses a different directory, so the messages of otherwise equal refusals would
        // contain different paths.
        let message = message.replace(&*directory.to_string_lossy(), "{run}");
        Ok(outcome(status, &message))
    }
}

/// Returns whether a process listens on an address.
fn is_used(address: SocketAddr) -> io::Result<bool> {
    // Do not try to bind a socket instead: a child that another thread starts at the same time
    // would hold the socket until its exec.
    Ok(!listener::sockets(address)?.is_empty())
}

/// Returns whether only processes of one process group listen on an address. Also returns true if
/// no process listens.
fn is_own(group: u32, address: SocketAddr) -> io::Result<bool> {
    let root = Root::host();
    let mut sockets = listener::sockets(address)?;
    let mut remove_held = |pid| {
        let held = Vec::from_iter(listener::socket_inodes(&root, pid));
        sockets.retain(|inode| !held.contains(inode));
        sockets.is_empty()
    };
    let is_member = |pid: &u32| process::group(&root, *pid) == Some(group);
    if remove_held(group) {
        return Ok(true);
    }
    let mut members = root.numbered("/proc").into_iter().filter(is_member);
    Ok(members.any(remove_held))
}

/// Checks for free space: writes 1 MiB to a new file, and then removes the file. A server that
/// exits because the disk is full does not always say so.
///
/// # Errors
/// The file cannot be written.
pub fn check_space(path: &Path) -> io::Result<()> {
    let written = fs::write(path, vec![0; SPACE]);
    let removed = fs::remove_file(path);
    written.and(removed)
}

fn write_image(image: &Image, directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir(directory)?;
    image.write_to(directory)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> TestError {
    let path = path.to_owned();
    move |source| TestError::Directory { path, source }
}

/// Exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

/// Returns the outcome for a server that exited on its own. Only an exit with an error code and a
/// message on stderr is a refusal.
pub(super) fn outcome(status: ExitStatus, stderr: &str) -> ImageOutcome {
    let message = stderr.trim();
    let line = failure_line(message).map_or(String::new(), |line| format!(": {line}"));
    match status.code() {
        Some(0) => ImageOutcome::Failed(format!("the server exited ({status}){line}")),
        Some(code @ 1..=127) if code != PANICKED && !message.lines().any(is_crash) => {
            if message.is_empty() {
                ImageOutcome::Failed(format!(
                    "the server exited without an error message on stderr ({status})"
                ))
            } else {
                ImageOutcome::Refused(message.to_owned())
            }
        }
        // A signal, or the exit code with which a shell reports a signal.
        _ => ImageOutcome::Crashed(format!(
            "the server crashed on this disk state ({status}){line}"
        )),
    }
}

/// Returns whether a line is one that a language runtime writes when a program crashes.
fn is_crash(line: &str) -> bool {
    let starts = |start| line.starts_with(start);
    let is_rust = starts("thread '") && line.contains(" panicked at ");
    let is_go = starts("goroutine ") && line.ends_with("[running]:");
    let is_python = starts("Traceback (most recent call last)");
    let is_java = starts("Exception in thread ");
    // Node.js prints this line last after an uncaught exception.
    let is_node = starts("Node.js v");
    let is_deno = starts("error: Uncaught");
    let is_crystal_or_dotnet = starts("Unhandled exception");
    let is_php = starts("PHP Fatal error:  Uncaught");
    let is_ruby = (line.contains(":in `") || line.contains(":in '")) && line.ends_with("Error)");
    is_rust
        || is_go
        || is_python
        || is_java
        || is_node
        || is_deno
        || is_crystal_or_dotnet
        || is_php
        || is_ruby
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use super::*;

    #[test]
    fn only_an_error_code_with_a_message_is_a_refusal() {
        let outcome =
            |code: i32, stderr: &str| match super::outcome(ExitStatus::from_raw(code << 8), stderr)
            {
                ImageOutcome::Refused(_) => "refused",
                ImageOutcome::Crashed(_) => "crashed",
                ImageOutcome::Failed(_) => "failed",
                ImageOutcome::Recovered | ImageOutcome::Lost(_) => "started",
            };
        for (code, stderr, expected) in [
            (1, "error: data is damaged\n", "refused"),
            (
                1,
                "error: Uncaught (in promise) Error: data is damaged\n",
                "crashed",
            ),
            (
                1,
                "a.rb:1:in `<main>': data is damaged (RuntimeError)\n",
                "crashed",
            ),
            (127, "damaged", "refused"),
            (1, " \n", "failed"),
            (0, "bye", "failed"),
            (101, "damaged", "crashed"),
            (128, "damaged", "crashed"),
            (139, "", "crashed"),
            (
                1,
                "starting\nTraceback (most recent call last):\n  File \"s.py\"\nKeyError: 'a'\n",
                "crashed",
            ),
            (
                1,
                "thread 'main' (7) panicked at s.rs:1:1:\nno\n",
                "crashed",
            ),
            (
                2,
                "panic: no\n\ngoroutine 1 [running]:\nmain.main()",
                "crashed",
            ),
            (1, "Exception in thread \"main\" java.lang.Error", "crashed"),
            (
                1,
                "Error: no\n    at open (s.js:1:1)\n\nNode.js v22.1.0",
                "crashed",
            ),
        ] {
            assert_eq!(outcome(code, stderr), expected, "{code}: {stderr}");
        }
        let killed = super::outcome(ExitStatus::from_raw(9), "loading\ndamaged\n");
        let expected = "the server crashed on this disk state (signal: 9 (SIGKILL)): damaged";
        assert_eq!(killed, ImageOutcome::Crashed(expected.to_owned()));
    }

    #[test]
    fn tells_own_from_foreign_listeners() {
        let own = std::process::id();
        let mut other = Command::new("sleep")
            .arg("60")
            .process_group(0)
            .spawn()
            .unwrap();
        let groups = [own, process::group(&Root::host(), own).unwrap(), other.id()];
        let groups = |address| groups.map(|group| is_own(group, address).unwrap());
        for host in [
            "127.64.9.9:0",
            "0.0.0.0:0",
            "[::]:0",
            "[::ffff:127.64.9.9]:0",
        ] {
            let Ok(listener) = TcpListener::bind(host) else {
                assert!(host.starts_with('['), "{host}");
                continue;
            };
            let port = listener.local_addr().as_ref().map_or(0, SocketAddr::port);
            let address = SocketAddr::from(([127, 64, 9, 9], port));
            assert_eq!(groups(address), [true, true, false], "{host}");
            assert!(is_used(address).unwrap());
            drop(listener);
            assert!(!is_used(address).unwrap());
            assert_eq!(groups(address), [true, true, true], "{host}");
        }
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
