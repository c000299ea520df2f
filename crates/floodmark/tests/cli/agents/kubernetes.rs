//! Agents in pods. Most tests need a cluster, which `cargo xtask kubernetes` provides.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use floodmark_record::Run;
use floodmark_truth::Scenario;

use super::shares::{OPEN, numbers};
use super::{processes, start, start_as};
use crate::support::{
    Load, Serve, code, finish, floodmark, run, signal, succeeds, text, truth, wait_for,
};

/// Maximum time for the cluster to remove a finished Job by itself.
const TTL: Duration = Duration::from_secs(100);

fn kubectl(arguments: &[&str], input: Option<&Path>) -> String {
    let words = std::env::var("FLOODMARK_KUBECTL").expect("run cargo xtask kubernetes");
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(arguments).stdin(Stdio::null());
    if let Some(input) = input {
        command.stdin(fs::File::open(input).unwrap());
    }
    let output = command.output().unwrap();
    succeeds(&output);
    text(&output.stdout)
}

/// Returns the names of the Jobs in the cluster.
fn jobs() -> String {
    kubectl(&["get", "jobs", "--output=name"], None)
}

/// Returns the processes of the agents that run in pods.
fn agents() -> Vec<u32> {
    let all = processes("HOSTNAME=", "/floodmark\0worker\0--agent");
    // Each agent has a guard.
    let guards = processes("HOSTNAME=", "\0--guard");
    all.into_iter()
        .filter(|pid| !guards.contains(pid))
        .collect()
}

/// Writes a manifest for pods in this network namespace, so that they can reach servers on
/// 127.0.0.1.
fn local_job(directory: &Path, cpu: &str) -> PathBuf {
    let printed = run(&[
        "load",
        "http://127.0.0.1:1/",
        "--agents",
        "kubernetes:1",
        "--dry-run",
    ]);
    succeeds(&printed);
    let manifest = text(&printed.stdout);
    let (before, rest) = manifest.split_once("        sysctls:").unwrap();
    let (_, after) = rest.split_once("      containers:\n").unwrap();
    let edited = format!("{before}      hostNetwork: true\n      containers:\n{after}");
    let requests = r#"requests: {cpu: "1""#;
    assert!(edited.contains(requests), "{edited}");
    let file = directory.join("job.yaml");
    fs::write(
        &file,
        edited.replace(requests, &format!(r#"requests: {{cpu: "{cpu}""#)),
    )
    .unwrap();
    file
}

/// Returns `kubernetes:COUNT` with a manifest whose pods share this network namespace.
fn place(directory: &tempfile::TempDir, count: u32) -> String {
    let file = local_job(directory.path(), "100m");
    format!("kubernetes:{count}:{}", file.display())
}

fn removed(what: &str, limit: Duration) {
    let begin = Instant::now();
    while !jobs().is_empty() {
        assert!(begin.elapsed() < limit, "{what}: {}", jobs());
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn ended_early(load: &Load, part: &str) {
    load.ends_with(5);
    assert!(load.stderr().contains(part), "{}", load.stderr());
    assert!(load.counts().ok >= 100, "{:?}", load.counts());
    assert_eq!(jobs(), "");
    wait_for("the agents' end", || agents().is_empty().then_some(()));
}

#[test]
#[ignore = "needs a Kubernetes cluster; run cargo xtask kubernetes"]
fn pods_send_the_load_of_one_process() {
    let directory = tempfile::tempdir().unwrap();
    let mut counts = Vec::new();
    for place in [
        "local:1".to_owned(),
        place(&directory, 1),
        place(&directory, 2),
        place(&directory, 4),
    ] {
        let server = Serve::start(&["dispatcher"]);
        let url = format!("{}/dispatcher", server.url);
        let arguments = ["-n", "4000", "-c", "8", "--check", "sequence"];
        let load = start(&url, &place, &arguments).end();
        load.ends_with(0);
        let run: &Run = load.run();
        assert_eq!(run.checks[0].held, Some(true), "{:?}", run.checks);
        let sent = run.agents.iter().map(|agent| agent.requests.sent);
        assert_eq!(sent.sum::<u64>(), 4000);
        assert!(
            run.agents.iter().all(|agent| agent.shares_host),
            "{:?}",
            run.agents
        );
        counts.push(run.requests.clone());
    }
    counts.dedup();
    assert_eq!(counts.len(), 1, "{counts:?}");
    removed("after the load", Duration::from_secs(10));
}

#[test]
#[ignore = "needs a Kubernetes cluster; run cargo xtask kubernetes"]
fn each_arrival_is_sent_by_one_pod() {
    let directory = tempfile::tempdir().unwrap();
    for count in [1, 2, 4] {
        let (seen, load) = numbers(&place(&directory, count), &OPEN);
        load.ends_with(0);
        assert!(seen.into_iter().eq(1..=2000));
        assert_eq!(load.counts().ok, 2000);
    }
}

#[test]
#[ignore = "needs a Kubernetes cluster; run cargo xtask kubernetes"]
fn the_manifest_selects_the_namespace() {
    kubectl(&["create", "namespace", "bench"], None);
    let directory = tempfile::tempdir().unwrap();
    let file = local_job(directory.path(), "100m");
    let manifest = fs::read_to_string(&file).unwrap();
    let metadata = "metadata:\n  name:";
    assert!(manifest.contains(metadata), "{manifest}");
    let manifest = manifest.replace(metadata, "metadata:\n  namespace: bench\n  name:");
    fs::write(&file, manifest).unwrap();
    let (_server, url) = truth(Scenario::default());
    let place = format!("kubernetes:2:{}", file.display());
    let load = start(&url, &place, &["-n", "500", "-c", "4"]).end();
    load.ends_with(0);
    assert_eq!(load.counts().ok, 500);
    let jobs = ["get", "jobs", "--output=name", "--namespace=bench"];
    assert_eq!(kubectl(&jobs, None), "");
}

#[test]
#[ignore = "needs a Kubernetes cluster; run cargo xtask kubernetes"]
fn the_default_job_runs_in_its_own_network() {
    let server = Serve::start_on("10.234.0.1:0", &["hello"]);
    let load = start(&server.url, "kubernetes:1", &["-n", "3000", "-c", "4"]).end();
    load.ends_with(0);
    assert_eq!(load.counts().ok, 3000);
    let agent = &load.run().agents[0];
    assert!(agent.host.starts_with("floodmark-agents-"), "{agent:?}");

    let output = finish(
        floodmark(&["doctor", "--agents", "kubernetes:1"])
            .spawn()
            .unwrap(),
    );
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("agent kubernetes-1 on floodmark-agents-"),
        "{printed}"
    );
    removed("after doctor", Duration::from_secs(10));
}

#[test]
#[ignore = "needs a Kubernetes cluster; run cargo xtask kubernetes"]
fn failing_pods_end_the_load() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = truth(Scenario::default());
    for (number, part) in [
        (libc::SIGKILL, "ended early"),
        (libc::SIGSTOP, "sent nothing for 5 s"),
    ] {
        let started = start(&url, &place(&directory, 3), &["-r", "300", "-d", "30s"]);
        started.load.wait_for_a_second();
        let agents = agents();
        assert_eq!(agents.len(), 3);
        signal(agents[1], number);
        ended_early(&started.end(), part);
    }
    let started = start(&url, &place(&directory, 3), &["-r", "300", "-d", "30s"]);
    started.load.wait_for_a_second();
    let pods = kubectl(
        &[
            "get",
            "pods",
            "--output=name",
            "--field-selector=status.phase=Running",
        ],
        None,
    );
    kubectl(
        &[
            "delete",
            pods.lines().next().unwrap(),
            "--now",
            "--wait=false",
        ],
        None,
    );
    ended_early(&started.end(), "ended early");
}

#[test]
#[ignore = "needs a Kubernetes cluster; run cargo xtask kubernetes"]
fn an_interrupt_removes_the_job() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = truth(Scenario::default());
    let started = start(&url, &place(&directory, 2), &["-r", "300", "-d", "30s"]);
    started.load.wait_for_a_second();
    signal(started.load.pid(), libc::SIGINT);
    let load = started.end();
    load.ends_with(130);
    assert_eq!(jobs(), "");
    wait_for("the agents' end", || agents().is_empty().then_some(()));

    // Pods that no node can run.
    let file = local_job(directory.path(), "100");
    let place = format!("kubernetes:2:{}", file.display());
    let started = start(&url, &place, &["-n", "100"]);
    wait_for("the job", || (!jobs().is_empty()).then_some(()));
    std::thread::sleep(Duration::from_secs(1));
    signal(started.load.pid(), libc::SIGINT);
    let load = started.end();
    assert_ne!(load.code(), 0);
    let printed = load.stderr();
    assert!(printed.contains("interrupted after 0 s;"), "{printed}");
    assert!(printed.contains("Insufficient cpu"), "{printed}");
    assert_eq!(jobs(), "");
}

#[test]
#[ignore = "needs a Kubernetes cluster; run cargo xtask kubernetes"]
fn pods_end_with_a_killed_coordinator() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = truth(Scenario::default());
    let started = start(&url, &place(&directory, 2), &["-r", "300", "-d", "60s"]);
    started.load.wait_for_a_second();
    assert_eq!(agents().len(), 2);
    started.load.kill();
    wait_for("the agents' end", || agents().is_empty().then_some(()));
    removed("after the coordinator's death", TTL);
}

#[test]
#[ignore = "needs a Kubernetes cluster; run cargo xtask kubernetes"]
fn names_why_pods_do_not_start() {
    let (_server, url) = truth(Scenario::default());
    // In this network, nothing listens on the registry's port.
    let load = start(&url, "kubernetes:2:localhost:1/none:1", &["-n", "100"]).end();
    load.ends_with(5);
    let printed = load.stderr();
    assert!(
        printed.contains("cannot start: ImagePullBackOff"),
        "{printed}"
    );
    assert_eq!(jobs(), "");

    let directory = tempfile::tempdir().unwrap();
    for (content, part) in [
        (
            "kind: Job\napiVersion: batch/v1\nmetadata: {name: a}\nspec: {template: {spec: {containers: []}}}\n",
            "no container named floodmark",
        ),
        (
            "kind: Pod\napiVersion: v1\nmetadata: {name: a}\nspec: {containers: []}\n",
            "is not a Job",
        ),
        ("{", "error"),
    ] {
        let file = directory.path().join("bad.yaml");
        fs::write(&file, content).unwrap();
        let load = start(
            &url,
            &format!("kubernetes:2:{}", file.display()),
            &["-n", "100"],
        )
        .end();
        load.ends_with(5);
        assert!(load.stderr().contains(part), "{}", load.stderr());
    }
    assert_eq!(jobs(), "");
}

#[test]
#[ignore = "needs a Kubernetes cluster; run cargo xtask kubernetes"]
fn observes_a_server_in_a_pod() {
    let directory = tempfile::tempdir().unwrap();
    let manifest = directory.path().join("web.yaml");
    let version = env!("CARGO_PKG_VERSION");
    let web = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  containers:\n  - name: app\n    image: floodmark:{version}\n    args: [serve, hello, --listen, '0.0.0.0:8080']\n    securityContext: {{runAsUser: 1000}}\n"
    );
    fs::write(&manifest, web).unwrap();
    kubectl(&["create", "--filename=-"], Some(&manifest));
    kubectl(
        &["wait", "--for=condition=Ready", "pod/web", "--timeout=30s"],
        None,
    );
    let address = kubectl(
        &["get", "pod", "web", "--output=jsonpath={.status.podIP}"],
        None,
    );
    let url = format!("http://{address}:8080/");
    for observer in ["kubernetes:pod/web", "kubernetes:pod/web/app"] {
        let arguments = ["-d", "3s", "-c", "4", "--observe", observer];
        let load = crate::support::load(&url, &arguments);
        load.ends_with(0);
        let run = load.run();
        assert!(run.remote.is_some(), "{:?}", run.missing);
        let server = run.server.as_ref().expect("the server is observed");
        assert!(
            server.cpu_us_per_request.is_some_and(|us| us > 1.0),
            "{server:?}"
        );
        let left = fs::read_dir(load.directory.path().join("result")).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let names = Vec::from_iter(names);
        assert!(
            !names.iter().any(|name| name.contains("profile")),
            "{names:?}"
        );
    }
    kubectl(&["delete", "pod", "web", "--now"], None);
    let arguments = ["-d", "1s", "--observe", "kubernetes:pod/none"];
    let (_server, url) = truth(Scenario::default());
    let output = run(&[&["load", &url], &arguments[..]].concat());
    assert_ne!(code(&output), 0);
    let printed = text(&output.stderr);
    assert!(printed.contains("pods \"none\" not found"), "{printed}");
}

#[test]
#[ignore = "needs a Kubernetes cluster; run cargo xtask kubernetes"]
fn the_documented_job_runs_a_load() {
    let server = Serve::start_on("10.234.0.1:0", &["hello"]);
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/install.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, rest) = guide.split_once("```yaml\n").unwrap();
    let (job, _) = rest.split_once("```").unwrap();
    let documented = "http://my-service:8080/";
    assert!(job.contains(documented), "{job}");
    // The test's node has two CPUs, and other programs use them too.
    let job = job
        .replace(documented, &server.url)
        .replace("cpu: \"2\"", "cpu: \"1\"");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("job.yaml");
    fs::write(&file, job).unwrap();
    kubectl(&["create", "--filename=-"], Some(&file));
    let exit_code = "jsonpath={.items[0].status.containerStatuses[0].state.terminated.exitCode}";
    let arguments = [
        "get",
        "pods",
        "--selector=job-name=floodmark",
        "--output",
        exit_code,
    ];
    let begin = Instant::now();
    let code = loop {
        // Without a pod, kubectl fails.
        let pods = kubectl(
            &[
                "get",
                "pods",
                "--selector=job-name=floodmark",
                "--output=name",
            ],
            None,
        );
        let code = if pods.is_empty() {
            String::new()
        } else {
            kubectl(&arguments, None)
        };
        if !code.is_empty() {
            break code;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "the job hangs");
        std::thread::sleep(Duration::from_millis(500));
    };
    kubectl(&["delete", "job", "floodmark"], None);
    // With code 4, the load was sent, but other load on this host disturbed it.
    assert!(["0", "4"].contains(&code.as_str()), "exit code {code}");
}

#[test]
fn a_missing_kubectl_is_named() {
    let (_server, url) = truth(Scenario::default());
    let load = start_as(&url, "kubernetes:2", &["-n", "100"], |command| {
        command.env("FLOODMARK_KUBECTL", "/does/not/exist --context test");
    });
    let load = load.end();
    load.ends_with(5);
    let printed = load.stderr();
    assert!(
        printed.contains("cannot start /does/not/exist"),
        "{printed}"
    );
}

#[test]
fn a_dry_run_prints_the_manifest() {
    let url = "http://127.0.0.1:1/";
    let agents = "kubernetes:4:registry.example.com/floodmark:1";
    let output = run(&["load", url, "--agents", agents, "--dry-run"]);
    succeeds(&output);
    let printed = text(&output.stdout);
    for part in [
        "kind: Job",
        "completions: 4 ",
        "backoffLimitPerIndex: 0 ",
        "image: \"registry.example.com/floodmark:1\"",
    ] {
        assert!(printed.contains(part), "{printed}");
    }
    for agents in ["local:2", "kubernetes:2:job.yaml"] {
        let output = run(&["load", url, "--agents", agents, "--dry-run"]);
        assert_eq!(code(&output), 2);
        assert!(text(&output.stderr).contains("--dry-run"));
    }
}
