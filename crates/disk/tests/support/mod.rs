//! A client and a probe for `faulty_store.rs`.
#![allow(dead_code, reason = "each test binary uses only some of these helpers")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use floodmark_disk::{
    ImageReport, ImageTest, Persistence, RecoveryProbe, ServerCommand, Trace, TraceOptions, Tracer,
};

/// Number of integers that the client stores during a trace, unless the server exits early. More
/// than 64 integers fill more than one sector.
pub const NUMBERS: u64 = 120;

/// Returns the path of an example, which cargo builds before the tests.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.parent().unwrap().parent().unwrap();
    target.join("examples").join(name)
}

/// Returns the command that starts the store with a method.
pub fn store(method: &str) -> ServerCommand {
    let program = example("faulty_store").to_string_lossy().into_owned();
    let words = [&program, method, "{run}", "{address}"];
    ServerCommand {
        words: words.map(str::to_owned).into(),
    }
}

/// Returns a free address on the loopback interface.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// Starts a command under the tracer, without stdin and output.
pub fn trace(mut command: Command, directory: &Path, options: TraceOptions) -> Tracer {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Tracer::start(command, directory, options).unwrap()
}

/// Connects to a traced server. Returns `None` if the server has ended.
pub fn connect(tracer: &Tracer, address: SocketAddr) -> Option<TcpStream> {
    let until = Instant::now() + Duration::from_secs(30);
    while !tracer.has_ended() {
        if let Ok(stream) = TcpStream::connect(address) {
            return Some(stream);
        }
        assert!(Instant::now() < until, "the server does not listen");
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Puts numbers until the server ends, at most [`NUMBERS`]. Returns the trace.
pub fn trace_store(method: &str, directory: &Path, options: TraceOptions) -> Trace {
    let address = free_address();
    let tracer = trace(
        store(method).command(directory, address),
        directory,
        options,
    );
    if let Some(mut stream) = connect(&tracer, address) {
        let mut responses = BufReader::new(stream.try_clone().unwrap());
        for number in 1..=NUMBERS {
            let mut response = String::new();
            let sent = stream.write_all(format!("PUT {number}\n").as_bytes());
            if sent.is_err() || responses.read_line(&mut response).unwrap_or(0) == 0 {
                break;
            }
            assert_eq!(response, format!("OK {number}\n"));
        }
        // After this response, all earlier sends have returned and are in the trace.
        if stream.write_all(b"LIST\n").is_ok() {
            let _ = responses.read_line(&mut String::new());
        }
    }
    tracer.stop(Duration::ZERO).unwrap()
}

/// Starts the store on post-crash images of a trace.
pub fn test_images(method: &str, trace: &Trace, images: u64) -> ImageReport {
    let scratch = tempfile::tempdir().unwrap();
    let test = ImageTest {
        trace,
        server: &store(method),
        probe: &NumberProbe,
        persistence: Persistence::Strict,
        scratch: scratch.path(),
        images,
        seed: 1,
        threads: 2,
        has_controls: false,
    };
    test.run(&AtomicBool::new(false)).unwrap()
}

/// Reads back the numbers of the store.
pub struct NumberProbe;

impl RecoveryProbe for NumberProbe {
    type Acknowledged = BTreeSet<u64>;

    fn acknowledged(&self, sent: &BTreeMap<u64, Vec<u8>>) -> BTreeSet<u64> {
        let text = sent.values().map(|bytes| String::from_utf8_lossy(bytes));
        let text: Vec<_> = text.collect();
        let lines = text.iter().flat_map(|text| text.lines());
        let numbers = lines.filter_map(|line| line.strip_prefix("OK "));
        numbers.map(|number| number.parse().unwrap()).collect()
    }

    fn check(
        &self,
        server: SocketAddr,
        acknowledged: &BTreeSet<u64>,
    ) -> io::Result<Option<String>> {
        let mut stream = TcpStream::connect(server)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"LIST\n")?;
        let mut line = String::new();
        if BufReader::new(stream).read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let numbers = line
            .split_whitespace()
            .map(|number| number.parse().unwrap());
        let numbers: BTreeSet<u64> = numbers.collect();
        let lost: Vec<&u64> = acknowledged.difference(&numbers).collect();
        if !lost.is_empty() {
            return Ok(Some(format!("lost {lost:?}")));
        }
        let unknown = numbers
            .iter()
            .find(|number| !(1..=NUMBERS).contains(*number));
        Ok(unknown.map(|number| format!("{number} was never written")))
    }
}

/// Returns the mode of a directory, and the mode and content of each file below the directory, by
/// relative path. Directories have no content.
pub fn content(directory: &Path) -> BTreeMap<PathBuf, (u32, Option<Vec<u8>>)> {
    let mut all = BTreeMap::new();
    let mut paths = vec![directory.to_owned()];
    while let Some(path) = paths.pop() {
        let name = path.strip_prefix(directory).unwrap().to_owned();
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = if metadata.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            Some(target.into_os_string().into_encoded_bytes())
        } else if metadata.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            paths.extend(entries.map(|entry| entry.unwrap().path()));
            None
        } else {
            Some(fs::read(&path).unwrap())
        };
        all.insert(name, (metadata.mode(), content));
    }
    all
}
