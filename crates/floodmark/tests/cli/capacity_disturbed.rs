//! Tests of `floodmark capacity` on a host where another program takes CPU time from the server.

use std::process::{Child, Command};

use floodmark_record::capacity::{CapacityBound, TrialOutcome};

use crate::capacity::{capacity, found};
use crate::support::{PythonServer, code, text};

/// A server that uses 3 ms of CPU time for each request, pinned to a CPU. It prints its port.
const SERVER: &str = r#"
import os, selectors, socket, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
listener = socket.create_server(("127.0.0.1", 0), backlog=1000)
print(listener.getsockname()[1], flush=True)
waiting = selectors.DefaultSelector()
waiting.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in waiting.select():
        if key.fileobj is listener:
            waiting.register(listener.accept()[0], selectors.EVENT_READ)
            continue
        try:
            if key.fileobj.recv(4096):
                end = time.thread_time() + 0.003
                while time.thread_time() < end:
                    pass
                key.fileobj.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                continue
        except OSError:
            pass
        waiting.unregister(key.fileobj)
        key.fileobj.close()
"#;

/// A program that uses 30 % of a CPU in bursts of 100 to 200 ms. Pinned to the server's CPU, it
/// delays the server.
const BURNER: &str = r#"
import os, random, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
while True:
    burst_s = random.uniform(0.1, 0.2)
    end = time.thread_time() + burst_s
    while time.thread_time() < end:
        pass
    time.sleep(burst_s * 2)
"#;

/// Highest rate that the server can answer, in requests per second.
const LIMIT_PER_S: f64 = 1_000.0 / 3.0;

/// Another program, which is killed on drop.
struct Burner(Child);

impl Burner {
    fn start(cpu: &str) -> Self {
        Burner(
            Command::new("python3")
                .args(["-c", BURNER, cpu])
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a CPU on which this process may run.
fn cpu() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut lines = status.lines();
    let allowed = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed.unwrap().trim().split([',', '-']).next();
    first.unwrap().to_owned()
}

#[test]
#[cfg_attr(not(installed = "python3"), ignore = "python3 is not installed")]
fn time_that_another_program_takes_is_left_out() {
    let cpu = cpu();
    let server = PythonServer::start(SERVER, &[&cpu]);
    let _burner = Burner::start(&cpu);
    let arguments = ["--slo", "p90 < 60ms", "--budget", "25s", "--skip-disturbed"];
    let (output, record) = capacity(&server.url, &arguments);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let result = found(&record);
    let usable: Vec<f64> = result
        .trials
        .iter()
        .filter_map(|t| t.usable_share)
        .collect();
    assert!(
        usable.iter().all(|share| (0.0..=1.0).contains(share)),
        "{result:?}"
    );
    // On a busy host, other programs may take CPU time nearly always. Then, nothing is left out.
    let notes = &result.end.as_ref().unwrap().notes;
    let includes_all = notes
        .iter()
        .any(|note| note.ends_with("the result includes them"));
    assert!(
        includes_all || usable.len() == result.trials.len(),
        "{result:?}"
    );
    assert!(
        includes_all || usable.iter().any(|share| *share < 0.95),
        "{result:?}"
    );
    for trial in &result.trials {
        if trial.outcome == TrialOutcome::Pass {
            assert!(trial.is_usable(), "{trial:?}");
        }
    }
    let lower = match result.bound {
        None => result.low,
        Some(CapacityBound::Lower) => result.rate_per_s,
        Some(CapacityBound::Upper) => None,
    };
    assert!(lower.is_none_or(|rate| rate < LIMIT_PER_S), "{result:?}");
}

#[test]
#[cfg_attr(not(installed = "python3"), ignore = "python3 is not installed")]
fn all_parts_count_without_the_option() {
    let cpu = cpu();
    let server = PythonServer::start(SERVER, &[&cpu]);
    let _burner = Burner::start(&cpu);
    let (output, record) = capacity(&server.url, &["--slo", "p90 < 60ms", "--budget", "15s"]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let trials = &found(&record).trials;
    assert!(!trials.is_empty() && trials.iter().all(|trial| trial.usable_share.is_none()));
}
