//! Tests that compare server monitoring with the kernel's accounting.

use std::fs;
use std::process::{Command, Stdio};

use floodmark_record::run::Run;

use crate::support::{Serve, code, load, run, text, wait_for};

/// Returns the CPU time of a process, in seconds.
pub fn cpu_s(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    // SAFETY: sysconf takes a plain number.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / ticks
}

fn values<'a>(run: &'a Run, subject: &str, metric: &str) -> &'a [f64] {
    let found = run
        .observations
        .iter()
        .find(|o| o.metric.subject() == subject && o.metric.name() == metric);
    &found
        .unwrap_or_else(|| panic!("no {subject} {metric}; missing: {:?}", run.missing))
        .values
}

#[test]
fn finds_a_server_by_its_port_and_measures_its_cpu() {
    let server = Serve::start(&["hello"]);
    let before = cpu_s(server.pid());
    let load = load(&server.url, &["-c", "20", "-d", "2s", "-v"]);
    let truth = cpu_s(server.pid()) - before;
    let run = load.run();
    let seen = run.server.as_ref().unwrap();
    assert_eq!(seen.seen.pids, [server.pid()]);
    assert_eq!(seen.seen.processes, 1);
    // The kernel's figure includes opening the connections and has a resolution of 10 ms.
    assert!(
        (seen.cpu_s - truth).abs() < 0.05 + 0.05 * truth,
        "recorded {} s, kernel {truth} s",
        seen.cpu_s
    );
    assert!((seen.user_s + seen.system_s - seen.cpu_s).abs() < 1e-9);
    assert!(seen.cpu_us_per_request.unwrap() > 0.0);
    assert!(seen.seen.peak_rss_bytes > 1 << 20);
    let threads: f64 = seen.seen.threads.iter().map(|t| t.on_cpu_s).sum();
    assert!(
        (threads - truth).abs() < 0.05 + 0.1 * truth,
        "threads: recorded {threads} s, kernel {truth} s"
    );

    // The sum of the series equals the total.
    let by_second: f64 = run
        .series
        .iter()
        .map(|row| {
            let cpus = row.server_user_cpus.unwrap() + row.server_system_cpus.unwrap();
            cpus * (row.to_s - row.from_s)
        })
        .sum();
    assert!(
        (by_second - seen.cpu_s).abs() < 0.1,
        "{by_second} {}",
        seen.cpu_s
    );

    // Merged samples keep both the maximum and the mean.
    let most = |subject: &str, metric: &str| {
        let of = |o: &&floodmark_record::Observation| {
            o.metric.subject() == subject && o.metric.name() == metric
        };
        let all = run.observations.iter().filter(of);
        all.flat_map(|o| &o.values).copied().fold(0.0, f64::max)
    };
    assert_eq!(most("server sockets", "established"), 20.0);
    assert_eq!(most("client sockets", "established"), 20.0);
    assert!(most("listener", "accept_queue_limit") > 0.0);
    assert!(most("tcp_info", "rtt") > 0.0);
    assert!(most("client", "on_cpu") > 0.0);
    let client: f64 = values(run, "client", "user").iter().sum::<f64>()
        + values(run, "client", "system").iter().sum::<f64>();
    assert!(
        (client - run.client.cpu_s).abs() < 0.1 + 0.1 * run.client.cpu_s,
        "{client} {}",
        run.client.cpu_s
    );
    let watcher = run.watcher.unwrap();
    assert!(watcher.cpu_s > 0.0 && watcher.wall_s > 2.0, "{watcher:?}");
    println!(
        "monitoring took {:.2} % of one CPU with 20 connections",
        100.0 * watcher.cpu_s / watcher.wall_s
    );
    assert!(load.stderr().contains("\nserver "), "{}", load.stderr());
}

#[test]
fn no_watch_disables_monitoring() {
    let server = Serve::start(&["hello"]);
    let load = load(&server.url, &["-n", "100", "--no-watch"]);
    let run = load.run();
    assert_eq!((&run.server, run.watcher), (&None, None));
    assert!(run.observations.is_empty());
    assert!(run.series.iter().all(|row| row.server_user_cpus.is_none()));
    assert_eq!(run.missing.len(), 1, "{:?}", run.missing);
    assert!(run.missing[0].contains("--no-watch"));
    let pid = server.pid().to_string();
    let both = ["load", &server.url, "--no-watch", "--server-pid", &pid];
    assert_eq!(code(&crate::support::run(&both)), 2);
}

#[test]
fn a_killed_run_keeps_the_cpu_use_of_its_server() {
    let server = Serve::start(&["hello"]);
    let load = crate::support::start_load(&server.url, &["-d", "30s"]);
    let events = load.result().join("events.jsonl");
    wait_for("the third second", || {
        let text = fs::read_to_string(&events).ok()?;
        (text.matches("\"event\":\"second\"").count() > 2).then_some(())
    });
    crate::support::signal(load.pid(), libc::SIGKILL);
    let record = floodmark_lab::fold(&load.result()).unwrap();
    let rows = &record.runs[0].series;
    // The first second may end before monitoring starts.
    let used = |row: &floodmark_record::run::SeriesRow| {
        Some(row.server_user_cpus? + row.server_system_cpus?)
    };
    assert!(rows.iter().filter_map(used).sum::<f64>() > 0.0, "{rows:?}");
    assert_eq!(
        record.runs[0].server, None,
        "only per-second figures are recorded"
    );
}

#[test]
fn monitors_a_server_by_its_process_id() {
    let server = Serve::start(&["hello"]);
    let other = Serve::start(&["hello"]);
    let pid = other.pid().to_string();
    let load = load(&server.url, &["-d", "300ms", "--server-pid", &pid]);
    let run = load.run();
    assert_eq!(run.server.as_ref().unwrap().seen.pids, [other.pid()]);

    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let gone = child.id().to_string();
    let output = run_with(&server.url, &gone);
    assert_eq!(code(&output), 2);
    let printed = text(&output.stderr);
    assert!(
        printed.contains(&format!("--server-pid {gone}: no such process")),
        "{printed}"
    );
    for wrong in ["0", "-1", "x"] {
        assert_eq!(code(&run_with(&server.url, wrong)), 2, "{wrong}");
    }
}

fn run_with(url: &str, pid: &str) -> std::process::Output {
    run(&["load", url, "-n", "10", &format!("--server-pid={pid}")])
}

#[test]
#[cfg_attr(not(installed = "python3"), ignore = "python3 is not installed")]
fn finds_a_server_on_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.sock");
    let program = "import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(50)
while True:
    c, _ = s.accept()
    while c.recv(65536): c.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok')
";
    let mut server = Command::new("python3")
        .args(["-c", program])
        .arg(&path)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the socket", || path.exists().then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(50));
    let path = path.to_str().unwrap();
    let load = load(
        "http://server.local/",
        &["-d", "300ms", "-c", "1", "--unix-socket", path],
    );
    server.kill().unwrap();
    let pid = server.id();
    server.wait().unwrap();
    let run = load.run();
    let seen = run
        .server
        .as_ref()
        .unwrap_or_else(|| panic!("{:?}", run.missing));
    assert_eq!(seen.seen.pids, [pid]);
    assert!(
        run.observations
            .iter()
            .all(|o| o.metric.subject() != "tcp_info")
    );
}

#[test]
#[cfg_attr(not(installed = "nginx"), ignore = "nginx is not installed")]
fn monitors_nginx_with_its_workers() {
    let directory = tempfile::tempdir().unwrap();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    drop(socket);
    let at = directory.path().display();
    let config = format!(
        "daemon off; worker_processes 2; pid {at}/pid; error_log {at}/error.log;\n\
         events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;\n\
         uwsgi_temp_path {at}/u; scgi_temp_path {at}/s; keepalive_requests 1000000;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ return 200 hello; }} }} }}\n"
    );
    let file = directory.path().join("nginx.conf");
    fs::write(&file, config).unwrap();
    let mut nginx = Command::new("nginx")
        .arg("-c")
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("nginx", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).ok()
    });
    let url = format!("http://127.0.0.1:{port}/");
    let load = load(&url, &["-c", "20", "-d", "1500ms"]);
    // The master process stops its workers.
    crate::support::signal(nginx.id(), libc::SIGTERM);
    nginx.wait().unwrap();
    let run = load.run();
    let server = run
        .server
        .as_ref()
        .unwrap_or_else(|| panic!("{:?}", run.missing));
    assert_eq!(server.seen.pids, [nginx.id()]);
    assert_eq!(
        (server.seen.name.as_str(), server.seen.processes),
        ("nginx", 3)
    );
    // Only the worker processes serve requests.
    assert!(server.cpu_s > 0.05, "{server:?}");
    let workers: Vec<_> = server
        .seen
        .threads
        .iter()
        .filter(|thread| thread.pid != nginx.id() && thread.on_cpu_s > 0.0)
        .collect();
    let on_cpu: f64 = workers.iter().map(|thread| thread.on_cpu_s).sum();
    assert!(
        (on_cpu - server.cpu_s).abs() < 0.06 + 0.1 * server.cpu_s,
        "{on_cpu} {server:?}"
    );
}
