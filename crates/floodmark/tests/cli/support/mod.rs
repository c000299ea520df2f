//! Runs floodmark commands with a time limit.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_record::{Counts, Record};

pub mod grpc;
#[path = "../../../../load/tests/common/h2_server.rs"]
pub mod h2_server;
pub mod hostile;
pub mod https;
pub mod pty;
#[path = "../../../../load/src/tls/testing.rs"]
pub mod tls;
pub mod traced;

/// Time limit for each command, much longer than any command should need.
const LIMIT: Duration = Duration::from_secs(120);

/// Environment variable that sets the validity of all runs in a debug build.
pub const TEST_VALIDITY: &str = "FLOODMARK_TEST_VALIDITY";

/// Returns a floodmark command without a terminal. Its temporary directory is in the build
/// directory. All its runs are marked valid, because other programs on this host could invalidate
/// them.
pub fn floodmark(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command
        .args(arguments)
        .env("TMPDIR", env!("CARGO_TARGET_TMPDIR"))
        .env(TEST_VALIDITY, "valid")
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Makes floodmark judge the validity of its runs itself.
pub fn judging(command: &mut Command) {
    command.env_remove(TEST_VALIDITY);
}

/// Runs the command until it ends.
pub fn run(arguments: &[&str]) -> Output {
    finish(floodmark(arguments).spawn().unwrap())
}

/// Waits until a command ends.
pub fn finish(mut child: Child) -> Output {
    let read = |stream: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut stream) = stream {
                stream.read_to_end(&mut bytes).unwrap();
            }
            bytes
        })
    };
    let stdout = read(child.stdout.take().map(|s| Box::new(s) as _));
    let stderr = read(child.stderr.take().map(|s| Box::new(s) as _));
    let end = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("timed out: {}", text(&stderr.join().unwrap()));
        }
        thread::sleep(Duration::from_millis(5));
    };
    Output {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the exit code. Panics if the command panicked or was killed by a signal.
pub fn code(output: &Output) -> i32 {
    assert_eq!(output.status.signal(), None, "{output:?}");
    let code = output.status.code().unwrap();
    assert_ne!(code, 101, "panicked: {}", text(&output.stderr));
    code
}

/// Expects success.
pub fn succeeds(output: &Output) {
    assert_eq!(code(output), 0, "{}", text(&output.stderr));
}

/// A finished load with its record and result directory.
pub struct Load {
    pub output: Output,
    pub record: Record,
    pub directory: tempfile::TempDir,
}

impl Load {
    pub fn code(&self) -> i32 {
        code(&self.output)
    }

    pub fn ends_with(&self, expected: i32) {
        assert_eq!(self.code(), expected, "{}", self.stderr());
    }

    pub fn stderr(&self) -> String {
        text(&self.output.stderr)
    }

    pub fn run(&self) -> &floodmark_record::Run {
        assert_eq!(self.record.runs.len(), 1);
        &self.record.runs[0]
    }

    pub fn counts(&self) -> &Counts {
        &self.run().requests
    }

    pub fn events(&self) -> PathBuf {
        self.directory.path().join("result/events.jsonl")
    }
}

/// Runs `floodmark load` and validates the record, which must be the only output on stdout.
pub fn load(url: &str, arguments: &[&str]) -> Load {
    start_load(url, arguments).end()
}

/// A running load.
pub struct RunningLoad {
    child: Child,
    directory: tempfile::TempDir,
}

/// Starts `floodmark load`.
pub fn start_load(url: &str, arguments: &[&str]) -> RunningLoad {
    start_load_as(url, arguments, |_| {})
}

/// Sets limits on open files for a command.
pub fn limited(command: &mut Command, soft: u64, hard: u64) {
    set_limit(command, libc::RLIMIT_NOFILE, soft, hard);
}

/// Limits the size of each file that a command writes, in bytes. Writes above the limit fail.
pub fn limit_file_size(command: &mut Command, bytes: u64) {
    set_limit(command, libc::RLIMIT_FSIZE, bytes, bytes);
}

fn set_limit(command: &mut Command, resource: libc::__rlimit_resource_t, soft: u64, hard: u64) {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    let set = move || {
        // SAFETY: the closure makes two system calls between fork and exec. The pointer refers to
        // memory that the closure owns. Without SIGXFSZ, a write above a file's limit fails.
        let result = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(resource, &raw const limit)
        };
        match result {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(set) };
}

/// Starts `floodmark load` after `prepare` has changed the command.
pub fn start_load_as(
    url: &str,
    arguments: &[&str],
    prepare: impl FnOnce(&mut Command),
) -> RunningLoad {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("result");
    let mut all = vec!["load", url, "--json", "-", "--out", out.to_str().unwrap()];
    all.extend_from_slice(arguments);
    let mut command = floodmark(&all);
    prepare(&mut command);
    RunningLoad {
        child: command.spawn().unwrap(),
        directory,
    }
}

impl RunningLoad {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn result(&self) -> PathBuf {
        self.directory.path().join("result")
    }

    /// Waits for the worker process to start. Returns its ID.
    pub fn worker(&self) -> u32 {
        let events = self.result().join("events.jsonl");
        wait_for("the worker's first event", || {
            let text = std::fs::read_to_string(&events).ok()?;
            text.lines()
                .find_map(|line| match serde_json::from_str(line).ok()? {
                    floodmark_record::Event::Ready(ready) => Some(ready.pid),
                    _ => None,
                })
        })
    }

    /// Waits until the first second of the measurement is recorded.
    pub fn wait_for_a_second(&self) {
        self.wait_for("\"event\":\"second\"");
    }

    /// Waits until the event stream contains `text`. Returns the time at which it was found.
    pub fn wait_for(&self, text: &str) -> std::time::Instant {
        let events = self.result().join("events.jsonl");
        wait_for(text, || {
            let found = std::fs::read_to_string(&events).ok()?.contains(text);
            found.then(std::time::Instant::now)
        })
    }

    pub fn end(self) -> Load {
        let output = finish(self.child);
        let value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("stdout is not JSON ({error}): {output:?}"));
        Load {
            record: valid(value),
            output,
            directory: self.directory,
        }
    }

    /// Kills floodmark with SIGKILL. Returns the result directory.
    pub fn kill(mut self) -> tempfile::TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.directory
    }
}

/// Validates a record against the schema and the outcome equations.
pub fn valid(value: serde_json::Value) -> Record {
    let schema = jsonschema::validator_for(&floodmark_record::schema()).unwrap();
    let errors: Vec<String> = schema
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let record: Record = serde_json::from_value(value).unwrap();
    for run in &record.runs {
        assert_eq!(run.requests.balance(), Ok(()));
        if let Some(warmup) = &run.warmup {
            assert_eq!(warmup.requests.balance(), Ok(()));
        }
    }
    record
}

/// Polls until a condition holds.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "timed out waiting for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn alive(pid: u32) -> bool {
    // A zombie process counts as ended.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}

pub fn signal(pid: u32, number: libc::c_int) {
    // SAFETY: kill takes only numbers, and this test has not reaped the process.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), number) }, 0);
}

/// Makes file writes beyond 1 KiB fail, as on a full disk.
pub fn full_disk(command: &mut Command) -> &mut Command {
    let limit = libc::rlimit {
        rlim_cur: 1024,
        rlim_max: 1024,
    };
    let set = move || {
        // SAFETY: the closure makes two system calls between fork and exec. With SIGXFSZ ignored, a
        // write beyond the limit fails with EFBIG.
        let done = unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit)
        };
        match done {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes system calls.
    unsafe { command.pre_exec(set) }
}

/// A `floodmark serve` process that is killed on drop.
pub struct Serve {
    child: Child,
    pub url: String,
}

impl Serve {
    /// Starts the server on a free port.
    pub fn start(arguments: &[&str]) -> Serve {
        Serve::start_on("127.0.0.1:0", arguments)
    }

    pub fn start_on(listen: &str, arguments: &[&str]) -> Serve {
        Serve::start_as(listen, arguments, |_| {})
    }

    /// Starts the server after `prepare` has changed the command.
    pub fn start_as(listen: &str, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Serve {
        let mut all = vec!["serve", "--listen", listen];
        all.extend_from_slice(arguments);
        let mut command = floodmark(&all);
        prepare(&mut command);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line.trim().strip_prefix("listening on ").unwrap();
        Serve {
            url: url.to_owned(),
            child,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for the server to end.
    pub fn wait(&mut self) -> std::process::ExitStatus {
        wait_for("the server's end", || self.child.try_wait().unwrap())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a known-truth server. Returns its URL.
pub fn truth(scenario: floodmark_truth::Scenario) -> (floodmark_truth::TruthServer, String) {
    let server = floodmark_truth::TruthServer::start(scenario).unwrap();
    let url = format!("http://{}/", server.address());
    (server, url)
}

/// Derives the record of a directory from its events.
pub fn folded(result: &Path) -> Record {
    let record = floodmark_lab::fold(result).unwrap();
    valid(serde_json::to_value(record).unwrap())
}

/// A Python server whose first line of output is its port. It is killed on drop.
pub struct PythonServer {
    child: Child,
    /// URL without a path.
    pub url: String,
}

impl PythonServer {
    pub fn start(code: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new("python3")
            .args(["-c", code])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut port)
            .unwrap();
        PythonServer {
            child,
            url: format!("http://127.0.0.1:{}", port.trim()),
        }
    }
}

impl Drop for PythonServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
