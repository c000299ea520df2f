//! Kills a server of bars under load, and makes its disk fail.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use floodmark_serve::{NativeWorkload, ServeError, Settings, StoreSetting, serve};
use serde_json::Value;
use support::{TestClient, TestResponse, settings};

const STORE: &str = "FLOODMARK_TEST_STORE";
const ROUNDS: u64 = 10;
const CLIENTS: u64 = 8;

/// Names of bars by id.
type BarNames = BTreeMap<i64, String>;

/// Entry point of the server process, which runs this test binary. After a line on stdin, files
/// cannot grow beyond a few bytes. At the end of stdin, the server stops.
#[test]
#[ignore = "runs as the child of the other tests"]
fn child() {
    let path = PathBuf::from(env::var_os(STORE).expect("started by another test"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    thread::spawn(move || {
        for line in std::io::stdin().lines() {
            line.unwrap();
            let limit = libc::rlimit {
                rlim_cur: 100,
                rlim_max: 100,
            };
            // SAFETY: the calls get valid arguments. Without a handler, the signal would end the
            // process.
            unsafe {
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
            }
        }
        stop.send(()).unwrap();
    });
    let settings = Settings {
        store: Some(StoreSetting::Embedded(path)),
        ..settings(NativeWorkload::Bars)
    };
    let shutdown = async {
        let _ = stopped.await;
    };
    let served = serve(settings, shutdown, |at| {
        println!("\nlistening on {at}");
        std::io::stdout().flush().unwrap();
    });
    match served {
        Ok(_) => println!("stopped"),
        Err(ServeError::StoreFailed(cause)) => println!("failed: {cause}"),
        Err(error) => panic!("{error}"),
    }
}

/// A server process that is killed on drop.
struct BarProcess {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    address: SocketAddr,
}

impl Drop for BarProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        self.child.wait().unwrap();
    }
}

fn spawn(path: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["child", "--exact", "--ignored", "--nocapture"])
        .env(STORE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn start(path: &Path) -> BarProcess {
    let mut child = spawn(path);
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let address = (&mut output)
        .lines()
        .find_map(|line| Some(line.ok()?.strip_prefix("listening on ")?.parse().unwrap()))
        .expect("the server started");
    BarProcess {
        child,
        output,
        address,
    }
}

fn request(name: &str) -> String {
    let body = format!("{{\"name\": \"{name}\"}}");
    format!(
        "POST /bars HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn bar(value: &Value) -> (i64, String) {
    let name = value["name"].as_str().unwrap();
    (value["id"].as_i64().unwrap(), name.to_owned())
}

/// Returns the bar in a response.
fn stored(response: &TestResponse) -> (i64, String) {
    bar(&serde_json::from_str(&response.body).unwrap())
}

/// Lists the bars. Each id must occur once.
fn list(address: SocketAddr) -> BarNames {
    let response = TestClient::connect(address).get("/bars");
    assert_eq!(response.status, 200, "{response:?}");
    let bars: Vec<Value> = serde_json::from_str(&response.body).unwrap();
    let names: BarNames = bars.iter().map(bar).collect();
    assert_eq!(names.len(), bars.len());
    names
}

/// Adds bars until the server dies. Returns the acknowledged bars, and the name of the bar whose
/// response is missing.
fn post_until_it_dies(
    mut client: TestClient,
    prefix: &str,
    posted: &AtomicU64,
) -> (BarNames, String) {
    let mut acknowledged = BarNames::new();
    loop {
        let name = format!("{prefix}-{}", acknowledged.len());
        if client.stream.write_all(request(&name).as_bytes()).is_err() {
            return (acknowledged, name);
        }
        match client.try_response(true) {
            Some(response) if response.status == 201 => {
                let (id, stored) = stored(&response);
                assert_eq!(stored, name);
                acknowledged.insert(id, name);
                posted.fetch_add(1, Ordering::Relaxed);
            }
            Some(response) => panic!("{response:?}"),
            None => return (acknowledged, name),
        }
    }
}

#[test]
fn loses_no_acknowledged_bar_over_many_kills() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bars.redb");
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut random = seed.subsec_nanos() | 1;
    let mut delay = |most: u32| {
        // Marsaglia's xorshift picks a random moment.
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        thread::sleep(Duration::from_micros(u64::from(random % most)));
    };
    // Bars that the server listed or acknowledged so far.
    let mut before = BarNames::new();
    for round in 0..ROUNDS {
        // Kill a server while it opens or creates the file.
        let mut starting = spawn(&path);
        delay(60_000);
        starting.kill().unwrap();
        starting.wait().unwrap();
        let server = start(&path);
        let address = server.address;
        assert_eq!(list(address), before, "round {round}");
        let posted = Arc::new(AtomicU64::new(0));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let posted = Arc::clone(&posted);
                let prefix = format!("{round}-{client}");
                // Connect before the server can be killed.
                let connection = TestClient::connect(address);
                thread::spawn(move || post_until_it_dies(connection, &prefix, &posted))
            })
            .collect();
        // Kill the server only under load, even if the disk is slow.
        let until = Instant::now() + Duration::from_secs(30);
        while posted.load(Ordering::Relaxed) == 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        delay(300_000);
        drop(server);
        let mut unknown = Vec::new();
        let mut number = before.len();
        for client in clients {
            let (acknowledged, name) = client.join().unwrap();
            number += acknowledged.len();
            before.extend(acknowledged);
            unknown.push(name);
        }
        assert_eq!(before.len(), number, "round {round}: a repeated id");
        let server = start(&path);
        let after = list(server.address);
        for (id, name) in &before {
            assert_eq!(after.get(id), Some(name), "round {round}: bar {id}");
        }
        // Requests without a response may be stored, each once, and nothing else.
        for (id, name) in after.iter().filter(|(id, _)| !before.contains_key(id)) {
            let sent = unknown.iter().position(|sent| sent == name);
            let sent = sent.unwrap_or_else(|| panic!("round {round}: bar {id} {name:?}"));
            unknown.swap_remove(sent);
        }
        before = after;
    }
}

#[test]
fn refuses_bars_after_a_failed_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bars.redb");
    let mut server = start(&path);
    let mut client = TestClient::connect(server.address);
    let mut post = |name: &str| {
        client.send(request(name));
        client.response()
    };
    let mut acknowledged = BarNames::from([stored(&post("first"))]);
    let mut stdin = server.child.stdin.take().unwrap();
    stdin.write_all(b"fail\n").unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    let refused = loop {
        let response = post("next");
        if response.status != 201 {
            break response;
        }
        acknowledged.extend([stored(&response)]);
        assert!(Instant::now() < until, "the disk never failed");
    };
    for response in [refused, post("later"), post("later")] {
        assert_eq!(response.status, 503, "{response:?}");
        assert_eq!(response.header("retry-after"), Some("1"));
        let start = "{\"error\": \"the store has failed: ";
        assert!(response.body.starts_with(start), "{response:?}");
    }
    drop(stdin);
    let mut text = String::new();
    while server.output.read_line(&mut text).unwrap() > 0 {}
    assert!(text.contains("failed: the store has failed: "), "{text}");
    drop(server);
    let server = start(&path);
    let mut after = list(server.address);
    // The refused bar may be stored, but no later one.
    after.retain(|id, _| acknowledged.contains_key(id));
    assert_eq!(after, acknowledged);
    assert!(list(server.address).values().all(|name| name != "later"));
}
