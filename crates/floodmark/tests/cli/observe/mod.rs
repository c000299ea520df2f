//! Tests that compare `floodmark observe` with the kernel's accounting.

mod refused;
mod remote_clock;

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use floodmark_record::run::Run;
use floodmark_record::watch::{AlignmentMethod, ObserverLine, schema};

use crate::support::{
    Load, Serve, code, finish, floodmark, load, run, signal, start_load, text, wait_for,
};
use crate::watching::cpu_s;

/// Maximum time to wait for other tests to close their sockets.
const SOCKETS_TIMEOUT: Duration = Duration::from_secs(150);

/// A running observer that is killed on drop.
struct Observe {
    child: Option<Child>,
    directory: tempfile::TempDir,
}

impl Observe {
    /// Starts an observer and waits for the first second of data.
    fn start(server: &Serve) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("server.jsonl");
        let child = start_observe(server, &["--out", named(&file)]);
        let observe = Self {
            child: Some(child),
            directory,
        };
        wait_for("the first second", || {
            let text = observe.text();
            text.contains("\"line\":\"second\"").then_some(())
        });
        observe
    }

    /// Waits until connections are sampled every second. The interval is longer while other tests
    /// hold thousands of sockets.
    fn settled(self) -> Self {
        let end = Instant::now() + SOCKETS_TIMEOUT;
        while self.step_of("server sockets").is_none_or(|ms| ms > 1_000) {
            assert!(Instant::now() < end, "connections are sampled too rarely");
            std::thread::sleep(Duration::from_millis(200));
        }
        self
    }

    /// Returns the interval between a subject's latest values, in milliseconds.
    fn step_of(&self, subject: &str) -> Option<u64> {
        let text = self.text();
        // The last line may be incomplete, so it is ignored.
        let whole = &text[..text.rfind('\n')? + 1];
        let mut group = None;
        let mut step_ms = None;
        for line in lines(whole) {
            match line {
                ObserverLine::Group(g)
                    if g.series.iter().any(|s| s.metric.subject() == subject) =>
                {
                    group = Some(g.group);
                }
                ObserverLine::Second(second) => {
                    let of = second.groups.iter().find(|v| Some(v.group) == group);
                    step_ms = of.map(|values| values.step_ms).or(step_ms);
                }
                _ => {}
            }
        }
        step_ms
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("server.jsonl")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap_or_default()
    }

    /// Interrupts the observer and returns its output lines.
    fn end(mut self) -> Vec<ObserverLine> {
        let child = self.child.take().unwrap();
        signal(child.id(), libc::SIGINT);
        let output = finish(child);
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        lines(&self.text())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Observe {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a load. Returns the load and the server's CPU time in seconds. If connections were sampled
/// less than once per second, repeats the load, because samples may have missed connections.
fn observed(server: &Serve, send: impl Fn() -> Load) -> (Load, f64) {
    let end = Instant::now() + SOCKETS_TIMEOUT;
    loop {
        let before = cpu_s(server.pid());
        let load = send();
        let truth = cpu_s(server.pid()) - before;
        let sockets = load.run().observations.iter();
        let mut sockets = sockets.filter(|o| o.metric.subject() == "server sockets");
        if sockets.next().is_some_and(|o| o.step_ms <= 1_000) {
            return (load, truth);
        }
        assert!(Instant::now() < end, "connections are sampled too rarely");
    }
}

fn start_observe(server: &Serve, arguments: &[&str]) -> Child {
    let mut all = vec!["observe", "--port", port(server)];
    all.extend_from_slice(arguments);
    floodmark(&all).spawn().unwrap()
}

/// Parses and validates the lines of an observer's file.
fn lines(file: &str) -> Vec<ObserverLine> {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    let parse = |line: &str| {
        let value = serde_json::from_str(line).unwrap();
        assert!(schema.is_valid(&value), "{line}");
        serde_json::from_value(value).unwrap()
    };
    file.lines().map(parse).collect()
}

fn named(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn port(server: &Serve) -> &str {
    let (_, port) = server.url.rsplit_once(':').unwrap();
    port
}

/// Returns the increase of a counter during the run.
fn grown(run: &Run, subject: &str, metric: &str) -> f64 {
    let mut all = run.observations.iter();
    let seen = all.find(|o| o.metric.subject() == subject && o.metric.name() == metric);
    let seen = seen.unwrap_or_else(|| panic!("no {subject} {metric}: {:?}", run.missing));
    seen.values.iter().sum()
}

/// Compares the server's figures with the kernel's accounting.
fn matches_the_kernel(load: &Load, server: &Serve, truth: f64) {
    let run = load.run();
    let there = run
        .remote
        .as_ref()
        .unwrap_or_else(|| panic!("{:?}", run.missing));
    assert_eq!(there.aligned.method, AlignmentMethod::SameClock);
    let seen = run
        .server
        .as_ref()
        .unwrap_or_else(|| panic!("{:?}", run.missing));
    assert_eq!(seen.seen.pids, [server.pid()]);
    let near = |recorded: f64, what: &str| {
        assert!(
            (recorded - truth).abs() < 0.06 + 0.08 * truth,
            "{what}: recorded {recorded} s, kernel {truth} s"
        );
    };
    near(seen.cpu_s, "the total");
    let threads: f64 = seen.seen.threads.iter().map(|t| t.on_cpu_s).sum();
    near(threads, "threads");
    assert!(seen.seen.threads.len() <= 16 && seen.seen.peak_rss_bytes > 1 << 20);
    // The last second may extend beyond the end of monitoring.
    let rows = run.series.iter().filter_map(|row| {
        let cpus = row.server_user_cpus? + row.server_system_cpus?;
        Some(cpus * (row.to_s - row.from_s))
    });
    near(rows.sum(), "the sum of the seconds");
    near(grown(run, "server", "on_cpu"), "on_cpu");
    // No series may come from both hosts.
    let mut series = HashSet::new();
    for o in &run.observations {
        assert!(series.insert((&o.metric, o.is_peak)), "{:?}", o.metric);
    }
    for subject in [
        "client",
        "host",
        "server host",
        "server network",
        "server disk",
    ] {
        assert!(
            series.iter().any(|(metric, _)| metric.subject() == subject),
            "no {subject}: {series:?}"
        );
    }
    assert!(grown(run, "server sockets", "established") > 0.0);
    assert!(grown(run, "client sockets", "established") > 0.0);
    assert!(load.stderr().contains("\nobserved "), "{}", load.stderr());
}

#[test]
fn adds_the_observation_of_the_server_to_the_load() {
    let server = Serve::start(&["hello"]);
    let observe = Observe::start(&server).settled();
    let file = observe.file();
    let arguments = ["-c", "20", "-d", "2s", "--with", named(&file)];
    let (load, truth) = observed(&server, || load(&server.url, &arguments));
    matches_the_kernel(&load, &server, truth);
    let lines = observe.end();
    assert!(matches!(lines.first(), Some(ObserverLine::Opened(_))));
    assert!(matches!(lines.last(), Some(ObserverLine::Ended { .. })));
}

#[test]
#[cfg_attr(
    not(network_namespaces),
    ignore = "network namespaces are not allowed on this host"
)]
fn a_load_in_another_namespace_uses_the_observer_file() {
    let (client, there) = floodmark_host::namespace::pair().unwrap();
    let start = || {
        let server = Serve::start_on("10.99.0.2:0", &["hello"]);
        let observe = Observe::start(&server).settled();
        (server, observe)
    };
    let (server, observe) = there.within(start).unwrap();
    let file = observe.file();
    let arguments = ["-c", "20", "-d", "2s", "--with", named(&file)];
    let send = || client.within(|| load(&server.url, &arguments)).unwrap();
    let (load, truth) = observed(&server, send);
    matches_the_kernel(&load, &server, truth);
    let run = load.run();
    assert!(grown(run, "server network", "PassiveOpens") >= 20.0);
    assert!(grown(run, "network", "PassiveOpens") < 1.0);
    assert!(grown(run, "network", "ActiveOpens") >= 20.0);
}

#[test]
fn splits_the_observation_by_attempt() {
    let server = Serve::start(&["hello"]);
    let observe = Observe::start(&server);
    let file = observe.file();
    let arguments = ["-d", "300ms", "--attempts", "2", "--with", named(&file)];
    let load = load(&server.url, &arguments);
    assert_eq!(load.record.runs.len(), 2);
    for run in &load.record.runs {
        assert!(
            run.server.is_some() && run.remote.is_some(),
            "{:?}",
            run.missing
        );
        let user = run
            .observations
            .iter()
            .find(|o| o.metric.subject() == "server")
            .unwrap();
        let wall_ms = run.watcher.unwrap().wall_s * 1e3;
        let length_ms = user.step_ms as f64 * user.values.len() as f64;
        assert!(
            length_ms <= wall_ms + 2.0 * user.step_ms as f64,
            "{length_ms} {wall_ms}"
        );
    }
}

#[test]
fn a_killed_observer_leaves_its_lines() {
    let server = Serve::start(&["hello"]);
    let mut observe = Observe::start(&server);
    let load = start_load(
        &server.url,
        &["-c", "5", "-d", "6s", "--with", named(&observe.file())],
    );
    load.wait_for_a_second();
    let had = observe.text().matches("\"line\":\"second\"").count();
    wait_for("two seconds of the load", || {
        (observe.text().matches("\"line\":\"second\"").count() >= had + 2).then_some(())
    });
    observe.kill();
    let mut file = fs::File::options()
        .append(true)
        .open(observe.file())
        .unwrap();
    file.write_all(b"{\"line\":\"seco").unwrap();
    let load = load.end();
    load.ends_with(0);
    let run = load.run();
    assert_eq!(
        run.server, None,
        "the observation covers only part of the measurement"
    );
    assert!(grown(run, "server", "on_cpu") > 0.0);
    let known: Vec<bool> = run
        .series
        .iter()
        .map(|row| row.server_user_cpus.is_some())
        .collect();
    assert!(
        known.contains(&true) && known.last() == Some(&false),
        "{known:?}"
    );
    let printed = |line: &String| line.contains("were observed");
    assert!(run.missing.iter().any(printed), "{:?}", run.missing);
}

fn observe(arguments: &[&str]) -> Output {
    let mut all = vec!["observe"];
    all.extend_from_slice(arguments);
    run(&all)
}

#[test]
fn selects_a_server_by_its_address() {
    let first = Serve::start(&["hello"]);
    let second = Serve::start_on(&format!("127.0.0.2:{}", port(&first)), &["hello"]);
    let output = observe(&["--port", port(&first), "--out", "-", "--duration", "1s"]);
    let printed = text(&output.stderr);
    assert_eq!(code(&output), 2, "{printed}");
    assert!(
        printed.contains("127.0.0.2:") && printed.contains("--address"),
        "{printed}"
    );
    for (server, address) in [(&first, "127.0.0.1"), (&second, "127.0.0.2")] {
        let arguments = [
            "--port",
            port(&first),
            "--address",
            address,
            "--out",
            "-",
            "--duration",
            "100ms",
        ];
        let output = observe(&arguments);
        assert_eq!(code(&output), 0, "{output:?}");
        let lines = lines(&text(&output.stdout));
        let Some(ObserverLine::Opened(opened)) = lines.first() else {
            panic!("{lines:?}")
        };
        assert_eq!(opened.pids, [server.pid()]);
        assert!(text(&output.stderr).contains("monitoring floodmark (process "));
    }
}

#[test]
fn ends_when_the_server_or_its_reader_ends() {
    let mut server = Serve::start(&["hello"]);
    let mut child = start_observe(&server, &["--out", "-", "--quiet"]);
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("\"line\":\"opened\""), "{line}");
    drop(reader);
    let output = finish(child);
    assert_eq!((code(&output), text(&output.stderr).as_str()), (0, ""));

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("f");
    let child = start_observe(&server, &["--out", named(&file)]);
    wait_for("a second", || {
        let text = fs::read_to_string(&file).ok()?;
        text.contains("\"line\":\"second\"").then_some(())
    });
    server.kill();
    let output = finish(child);
    let printed = text(&output.stderr);
    assert_eq!(code(&output), 3, "{printed}");
    assert!(
        printed.contains("has ended; the data recorded so far is saved"),
        "{printed}"
    );
    let lines = lines(&fs::read_to_string(&file).unwrap());
    let [.., ObserverLine::Second(last), ObserverLine::Ended { why }] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert_eq!(last.missing, ["server: the process ended"]);
    assert_eq!(why, "the server's process ended");
}
