//! Running the command, with an end to everything.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_record::run::Status;
use floodmark_record::{Counts, Record};

pub mod hostile;
pub mod https;
#[path = "../../../../load/src/tls/testing.rs"]
pub mod tls;

/// Longest time any command here may take: far beyond what each needs, so that only a hang meets it.
const LIMIT: Duration = Duration::from_secs(120);

/// The command, without a terminal; what it keeps where no folder is named stays within the build folder.
pub fn floodmark(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_floodmark"));
    command
        .args(arguments)
        .env("TMPDIR", env!("CARGO_TARGET_TMPDIR"))
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs the command to its end.
pub fn run(arguments: &[&str]) -> Output {
    finish(floodmark(arguments).spawn().unwrap())
}

/// Waits for the end of a command, which must not hang.
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
            panic!("hangs: {}", text(&stderr.join().unwrap()));
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

/// The exit code; a signal or a panic is none.
pub fn code(output: &Output) -> i32 {
    assert_eq!(output.status.signal(), None, "{output:?}");
    let code = output.status.code().unwrap();
    assert_ne!(code, 101, "panicked: {}", text(&output.stderr));
    code
}

/// Holds that a load without a record to look at was fine, or invalid for the machine's noise.
pub fn was_fine(output: &Output) {
    assert!(matches!(code(output), 0 | 4), "{output:?}");
}

/// A load that was taken, with its record and its folder.
pub struct Load {
    pub output: Output,
    pub record: Record,
    pub folder: tempfile::TempDir,
}

impl Load {
    pub fn code(&self) -> i32 {
        code(&self.output)
    }

    /// Holds the exit code against `expected`, 0 or 1. A busy machine can make any run invalid, which goes before both.
    pub fn ends_with(&self, expected: i32) {
        let invalid = |run: &floodmark_record::Run| run.validity.status == Status::Invalid;
        let noisy = self.record.runs.iter().any(invalid);
        assert_eq!(
            self.code(),
            if noisy { 4 } else { expected },
            "{}",
            self.stderr()
        );
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
        self.folder.path().join("result/events.jsonl")
    }
}

/// Runs `floodmark load`, and holds the record against the schema and the outcome equations. Stdout carries nothing but it.
pub fn load(url: &str, arguments: &[&str]) -> Load {
    start_load(url, arguments).end()
}

/// A load under way.
pub struct Started {
    child: Child,
    folder: tempfile::TempDir,
}

/// Starts `floodmark load`.
pub fn start_load(url: &str, arguments: &[&str]) -> Started {
    start_load_as(url, arguments, |_| {})
}

/// Gives a command's process limits on open files.
pub fn limited(command: &mut Command, soft: u64, hard: u64) {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    let set = move || {
        // SAFETY: one system call between fork and exec, with a pointer to memory of the closure's own.
        match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes a system call.
    unsafe { command.pre_exec(set) };
}

/// Starts `floodmark load` after `prepare` has had its way with the command.
pub fn start_load_as(url: &str, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Started {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("result");
    let mut all = vec!["load", url, "--json", "-", "--out", out.to_str().unwrap()];
    all.extend_from_slice(arguments);
    let mut command = floodmark(&all);
    prepare(&mut command);
    Started {
        child: command.spawn().unwrap(),
        folder,
    }
}

impl Started {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn result(&self) -> PathBuf {
        self.folder.path().join("result")
    }

    /// The worker's id, as soon as its stream names it.
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

    /// Waits until a second of the measurement is written down.
    pub fn wait_for_a_second(&self) {
        let events = self.result().join("events.jsonl");
        wait_for("the first second", || {
            let text = std::fs::read_to_string(&events).ok()?;
            text.contains("\"event\":\"second\"").then_some(())
        });
    }

    pub fn end(self) -> Load {
        let output = finish(self.child);
        let value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("stdout is no JSON ({error}): {output:?}"));
        Load {
            record: valid(value),
            output,
            folder: self.folder,
        }
    }

    /// SIGKILL.
    pub fn kill(mut self) -> tempfile::TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.folder
    }
}

/// Holds a record against the schema and the outcome equations.
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

/// Waits for something that must come about.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn alive(pid: u32) -> bool {
    // A zombie has ended: it only waits for whoever inherited it.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").starts_with(" Z"))
}

pub fn signal(pid: u32, number: libc::c_int) {
    // SAFETY: kill has no memory to violate; the id is that of a process this test started and has not reaped.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), number) }, 0);
}

/// `floodmark serve`, ended by SIGKILL at the latest with the test.
pub struct Serve {
    child: Child,
    pub url: String,
}

impl Serve {
    /// Starts it on a free port.
    pub fn start(arguments: &[&str]) -> Serve {
        Serve::start_on("127.0.0.1:0", arguments)
    }

    pub fn start_on(listen: &str, arguments: &[&str]) -> Serve {
        let mut all = vec!["serve", "--listen", listen];
        all.extend_from_slice(arguments);
        let mut child = floodmark(&all).stderr(Stdio::null()).spawn().unwrap();
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

    /// Waits until it ends by itself.
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

/// A known-truth server, and the URL of it.
pub fn truth(scenario: floodmark_truth::Scenario) -> (floodmark_truth::Server, String) {
    let server = floodmark_truth::Server::start(scenario).unwrap();
    let url = format!("http://{}/", server.address());
    (server, url)
}

/// The record in a folder, folded again from its events.
pub fn folded(result: &Path) -> Record {
    let record = floodmark_lab::fold(result).unwrap();
    valid(serde_json::to_value(record).unwrap())
}
