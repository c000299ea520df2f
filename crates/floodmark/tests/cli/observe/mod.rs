//! The server observed on its own machine, and what is observed there put beside a load: held against what the kernel says.

mod another_machine;
mod refused;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use std::time::{Duration, Instant};

use floodmark_record::elsewhere::{Line, Method, schema};
use floodmark_record::run::Run;

use crate::support::{
    Load, Serve, code, finish, floodmark, load, run, signal, start_load, text, wait_for,
};
use crate::watching::cpu_s;

/// Longest wait for the other tests to leave the machine some room.
const CROWDED: Duration = Duration::from_secs(150);

/// An observation under way, ended by SIGKILL at the latest with the test.
struct Observe {
    child: Option<Child>,
    folder: tempfile::TempDir,
}

impl Observe {
    /// Observes a server; its file has a first second when this returns.
    fn start(server: &Serve) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server.jsonl");
        let child = start_observe(server, &["--out", named(&file)]);
        let observe = Self {
            child: Some(child),
            folder,
        };
        wait_for("the first second", || {
            let text = observe.text();
            text.contains("\"line\":\"second\"").then_some(())
        });
        observe
    }

    /// Waits until connections are looked at each second: while other tests have thousands of sockets, that costs too much, and a
    /// short load may come and go between two looks.
    fn settled(self) -> Self {
        let end = Instant::now() + CROWDED;
        while self.step_of("server sockets").is_none_or(|ms| ms > 1_000) {
            assert!(Instant::now() < end, "connections are looked at too seldom");
            std::thread::sleep(Duration::from_millis(200));
        }
        self
    }

    /// Distance of the last values of a subject, ms.
    fn step_of(&self, subject: &str) -> Option<u64> {
        let text = self.text();
        // The last line may be half written yet.
        let whole = &text[..text.rfind('\n')? + 1];
        let mut group = None;
        let mut step_ms = None;
        for line in lines(whole) {
            match line {
                Line::Group(g) if g.series.iter().any(|s| s.subject == subject) => {
                    group = Some(g.group);
                }
                Line::Second(second) => {
                    let of = second.groups.iter().find(|v| Some(v.group) == group);
                    step_ms = of.map(|values| values.step_ms).or(step_ms);
                }
                _ => {}
            }
        }
        step_ms
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("server.jsonl")
    }

    fn text(&self) -> String {
        fs::read_to_string(self.file()).unwrap_or_default()
    }

    /// Ends it as its user does.
    fn end(mut self) -> Vec<Line> {
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

/// A load that was observed, and the CPU that the kernel charged the server with meanwhile. It is sent again where connections were
/// looked at less than each second during it, however often that was before: then none may have been open at any look.
fn observed(server: &Serve, send: impl Fn() -> Load) -> (Load, f64) {
    let end = Instant::now() + CROWDED;
    loop {
        let before = cpu_s(server.pid());
        let load = send();
        let truth = cpu_s(server.pid()) - before;
        let sockets = load.run().observations.iter();
        let mut sockets = sockets.filter(|o| o.subject == "server sockets");
        if sockets.next().is_some_and(|o| o.step_ms <= 1_000) {
            return (load, truth);
        }
        assert!(Instant::now() < end, "connections are looked at too seldom");
    }
}

fn start_observe(server: &Serve, arguments: &[&str]) -> Child {
    let mut all = vec!["observe", "--port", port(server)];
    all.extend_from_slice(arguments);
    floodmark(&all).spawn().unwrap()
}

/// The lines of a file, each held against the schema.
fn lines(file: &str) -> Vec<Line> {
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

/// What a counter of a run grew by.
fn grown(run: &Run, subject: &str, metric: &str) -> f64 {
    let mut all = run.observations.iter();
    let seen = all.find(|o| o.subject == subject && o.metric == metric);
    let seen = seen.unwrap_or_else(|| panic!("no {subject} {metric}: {:?}", run.missing));
    seen.values.iter().sum()
}

/// Holds the server's side of a load against what the kernel charged the server with.
fn as_the_kernel_says(load: &Load, server: &Serve, truth: f64) {
    let run = load.run();
    let there = run
        .elsewhere
        .as_ref()
        .unwrap_or_else(|| panic!("{:?}", run.missing));
    assert_eq!(there.aligned.method, Method::SameClock);
    let seen = run
        .server
        .as_ref()
        .unwrap_or_else(|| panic!("{:?}", run.missing));
    assert_eq!(seen.seen.pids, [server.pid()]);
    let near = |told: f64, what: &str| {
        assert!(
            (told - truth).abs() < 0.06 + 0.08 * truth,
            "{what}: {told} s, the kernel: {truth} s"
        );
    };
    near(seen.cpu_s, "all of it");
    let threads: f64 = seen.seen.threads.iter().map(|t| t.on_cpu_s).sum();
    near(threads, "threads");
    assert!(seen.seen.threads.len() <= 16 && seen.seen.peak_rss_bytes > 1 << 20);
    // The last second may end after the watching.
    let rows = run.series.iter().filter_map(|row| {
        let cpus = row.server_user_cpus? + row.server_system_cpus?;
        Some(cpus * (row.to_s - row.from_s))
    });
    near(rows.sum(), "by the second");
    near(grown(run, "server", "on_cpu"), "on_cpu");
    // Each series comes from one machine.
    let mut series = BTreeSet::new();
    for o in &run.observations {
        assert!(
            series.insert((&o.subject, &o.metric)),
            "{} {}",
            o.subject,
            o.metric
        );
    }
    for subject in [
        "client",
        "host",
        "server host",
        "server network",
        "server disk",
    ] {
        assert!(
            series.iter().any(|(s, _)| *s == subject),
            "no {subject}: {series:?}"
        );
    }
    assert!(grown(run, "server sockets", "established") > 0.0);
    assert!(grown(run, "client sockets", "established") > 0.0);
    assert!(load.stderr().contains("\nobserved "), "{}", load.stderr());
}

#[test]
fn what_was_observed_stands_beside_the_load_as_if_it_had_been_watched_here() {
    let server = Serve::start(&["hello"]);
    let observe = Observe::start(&server).settled();
    let file = observe.file();
    let arguments = ["-c", "20", "-d", "2s", "--with", named(&file)];
    let (load, truth) = observed(&server, || load(&server.url, &arguments));
    as_the_kernel_says(&load, &server, truth);
    let lines = observe.end();
    assert!(matches!(lines.first(), Some(Line::Opened(_))));
    assert!(matches!(lines.last(), Some(Line::Ended { .. })));
}

#[test]
fn a_load_in_another_network_takes_the_servers_side_from_the_file() {
    let Ok((client, there)) = floodmark_host::wire::pair() else {
        println!("skipped: no network namespaces here");
        return;
    };
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
    as_the_kernel_says(&load, &server, truth);
    let run = load.run();
    assert!(grown(run, "server network", "PassiveOpens") >= 20.0);
    assert!(grown(run, "network", "PassiveOpens") < 1.0);
    assert!(grown(run, "network", "ActiveOpens") >= 20.0);
}

#[test]
fn each_attempt_has_its_own_part() {
    let server = Serve::start(&["hello"]);
    let observe = Observe::start(&server);
    let file = observe.file();
    let arguments = ["-n", "3000", "--attempts", "2", "--with", named(&file)];
    let load = load(&server.url, &arguments);
    assert_eq!(load.record.runs.len(), 2);
    for run in &load.record.runs {
        assert!(
            run.server.is_some() && run.elsewhere.is_some(),
            "{:?}",
            run.missing
        );
        let user = run
            .observations
            .iter()
            .find(|o| o.subject == "server")
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
fn an_observer_that_is_killed_midway_leaves_what_it_had_written() {
    let server = Serve::start(&["hello"]);
    let mut observe = Observe::start(&server);
    let load = start_load(
        &server.url,
        &["-c", "5", "-d", "4s", "--with", named(&observe.file())],
    );
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
        "of all of the measurement nothing is known"
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
    let said = |line: &String| line.contains("of the attempt only");
    assert!(run.missing.iter().any(said), "{:?}", run.missing);
}

fn observe(arguments: &[&str]) -> Output {
    let mut all = vec!["observe"];
    all.extend_from_slice(arguments);
    run(&all)
}

#[test]
fn one_of_several_servers_on_a_port_is_named_by_its_address() {
    let first = Serve::start(&["hello"]);
    let second = Serve::start_on(&format!("127.0.0.2:{}", port(&first)), &["hello"]);
    let output = observe(&["--port", port(&first), "--out", "-", "--duration", "1s"]);
    let said = text(&output.stderr);
    assert_eq!(code(&output), 2, "{said}");
    assert!(
        said.contains("127.0.0.2:") && said.contains("--address"),
        "{said}"
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
        let Some(Line::Opened(opened)) = lines.first() else {
            panic!("{lines:?}")
        };
        assert_eq!(opened.pids, [server.pid()]);
        assert!(text(&output.stderr).contains("observing floodmark (process "));
    }
}

#[test]
fn it_ends_with_the_server_and_with_its_reader() {
    let mut server = Serve::start(&["hello"]);
    let mut child = start_observe(&server, &["--out", "-", "--quiet"]);
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.contains("\"line\":\"opened\""), "{line}");
    drop(reader);
    let output = finish(child);
    assert_eq!((code(&output), text(&output.stderr).as_str()), (0, ""));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    let child = start_observe(&server, &["--out", named(&file)]);
    wait_for("a second", || {
        let text = fs::read_to_string(&file).ok()?;
        text.contains("\"line\":\"second\"").then_some(())
    });
    server.kill();
    let output = finish(child);
    let said = text(&output.stderr);
    assert_eq!(code(&output), 3, "{said}");
    assert!(
        said.contains("has ended; what was observed until then is kept"),
        "{said}"
    );
    let lines = lines(&fs::read_to_string(&file).unwrap());
    let [.., Line::Second(last), Line::Ended { why }] = &lines[..] else {
        panic!("{lines:?}")
    };
    assert_eq!(last.missing, ["server: its process ended"]);
    assert_eq!(why, "the server's process ended");
}
