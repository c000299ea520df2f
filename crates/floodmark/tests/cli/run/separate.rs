//! Tests of experiments with client and server in separate network namespaces.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use floodmark_record::run::HostLayout;

use super::{ExperimentDirectory, NATIVE, processes_of, python};
use crate::support::{alive, code, finish, folded, signal, succeeds, text, wait_for};

const SEPARATE: &str = "[place]\nhosts = \"separate\"\n";

/// Connections before the load: one for the readiness probe and one for the response probe.
const PROBES: f64 = 2.0;

/// Returns the network namespace of a process.
fn network_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// Returns all network namespaces that are in use.
fn networks() -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| network_of(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Returns the names of all network interfaces.
fn interfaces() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/sys/class/net").unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// Runs a command as root of a user namespace that forbids further network namespaces.
const FORBIDDEN: &str = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$@\"";

#[test]
#[cfg_attr(
    not(network_namespaces),
    ignore = "network namespaces are not allowed on this host"
)]
#[cfg_attr(not(installed = "unshare"), ignore = "unshare is not installed")]
fn skips_a_trial_without_network_namespaces() {
    let near = NATIVE.replace("native\"\n", "native\"\nname = \"near\"\n");
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"200ms\"\n\
         {NATIVE}place = {{ hosts = \"separate\" }}\n{near}"
    ));
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c", FORBIDDEN, "sh"])
        .arg(env!("CARGO_BIN_EXE_floodmark"))
        .args(["run", "e.toml", "--out", "result"])
        .current_dir(lab.0.path())
        .env("TMPDIR", lab.0.path().join("tmp"))
        .output()
        .unwrap();
    let printed = text(&output.stderr) + &text(&output.stdout);
    let record = folded(&lab.result());
    let [skipped] = &record.skipped[..] else {
        panic!("{:?}: {printed}", record.skipped);
    };
    assert!(skipped.starts_with("native skipped: "), "{skipped}");
    assert!(skipped.contains("user.max_net_namespaces"), "{skipped}");
    assert!(printed.contains("native skipped: "), "{printed}");
    // The other trial is measured, and no trial fails.
    succeeds(&output);
    let trials: Vec<_> = record.runs.iter().map(|run| run.trial.as_deref()).collect();
    assert_eq!(trials, [Some("near")], "{printed}");
}

#[test]
#[cfg_attr(
    not(network_namespaces),
    ignore = "network namespaces are not allowed on this host"
)]
fn the_client_has_its_own_settings_ports_and_counters() {
    separate_client(NATIVE);
}

#[test]
#[cfg_attr(
    not(network_namespaces),
    ignore = "network namespaces are not allowed on this host"
)]
#[cfg_attr(not(installed = "nginx"), ignore = "nginx is not installed")]
fn the_client_of_nginx_has_its_own_settings_ports_and_counters() {
    separate_client(&NATIVE.replace("native", "nginx"));
}

/// Runs a trial with client and server in separate namespaces. Checks the client's namespace.
fn separate_client(trial: &str) {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"1200ms\"\nfresh = true\nclose-first = \"client\"\n{SEPARATE}\
         sysctls = {{ client = {{ \"net.ipv4.ip_local_port_range\" = \"20000 20999\", \"net.ipv4.tcp_tw_reuse\" = 0 }} }}\n\
         {trial}"
    ));
    let ports = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let (before, had) = (ports(), interfaces());
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    assert_eq!(record.skipped, [""; 0], "{printed}");
    assert_eq!((ports(), interfaces()), (before, had));
    for run in &record.runs {
        let place = run.place.as_ref().unwrap();
        assert_eq!(place.hosts, HostLayout::Separate);
        assert_eq!(place.client.sysctls["net.ipv4.tcp_tw_reuse"], "0");
        assert!(place.server.sysctls.is_empty());
        assert_eq!(place.client.address.as_deref(), Some("10.99.0.1"));
        assert!(
            run.plan.target.url.starts_with("http://10.99.0.2:"),
            "{}",
            run.plan.target.url
        );
        assert_eq!(run.plan.ports_per_source, Some(1000));
        assert!(
            run.requests.ok > 0 && run.requests.ok <= 1000,
            "{:?}",
            run.requests
        );
        let waiting = run
            .observations
            .iter()
            .find(|seen| seen.metric.name() == "tw")
            .unwrap();
        let most = waiting.values.iter().copied().fold(0.0, f64::max);
        // TIME_WAIT sockets belong to the client's or the server's namespace, never to the host's.
        assert!(most > 0.0 && most <= 1000.0, "{waiting:?}");
        // Each of the two probes uses one connection. The last value may be the mean of two samples
        // that are a fifth of the run apart.
        let ok = run.requests.ok as f64;
        let expected = 0.9 * ok..=ok + PROBES;
        assert!(expected.contains(&most), "{most} {:?}", run.requests);
        // Each namespace counts its own opened and accepted connections.
        let grown = |subject: &str, metric: &str| -> f64 {
            let mut all = run.observations.iter();
            let seen = all.find(|o| o.metric.subject() == subject && o.metric.name() == metric);
            let seen = seen.unwrap_or_else(|| panic!("no {subject}: {:?}", run.missing));
            seen.values.iter().sum()
        };
        for opened in [
            grown("server network", "PassiveOpens"),
            grown("network", "ActiveOpens"),
        ] {
            assert!(opened >= ok, "{opened} of {ok}");
        }
        assert!(grown("network", "PassiveOpens") < 1.0);
        assert!(grown("listener", "accept_queue_limit") > 0.0);
        let subjects = |subject: &str| {
            run.observations
                .iter()
                .any(|o| o.metric.subject() == subject)
        };
        assert!(subjects("server sockets") && subjects("client sockets"));
        assert!(
            !subjects("client network"),
            "the counter belongs to the monitoring thread"
        );
    }
    assert!(printed.contains("separate network namespaces"), "{printed}");
}

#[test]
#[cfg_attr(
    not(network_namespaces),
    ignore = "network namespaces are not allowed on this host"
)]
fn refuses_an_unknown_network_setting() {
    for (setting, line, what) in [
        (
            "\"net.core.rmem_max\" = 1",
            5,
            "network namespaces have no such setting",
        ),
        (
            "\"net.ipv4.tcp_tw_reuse\" = \"x\"",
            5,
            "the value is invalid",
        ),
        ("\"vm.swappiness\" = 1", 4, "expected a network setting"),
    ] {
        let lab = ExperimentDirectory::new(&format!(
            "question = \"?\"\n{SEPARATE}sysctls = {{ server = {{ {setting} }} }}\n{NATIVE}"
        ));
        let output = finish(lab.start(&[]));
        let stderr = text(&output.stderr);
        assert_eq!(code(&output), 2, "{stderr}");
        assert!(
            stderr.contains(&format!("e.toml:{line}: ")) && stderr.contains(what),
            "{stderr}"
        );
        assert!(!lab.result().exists());
    }
}

/// Starts a load in separate namespaces. Returns its processes and their namespaces.
fn start_and_wait() -> (ExperimentDirectory, Child, Vec<u32>, BTreeSet<PathBuf>) {
    let lab = ExperimentDirectory::new("");
    let trial = python(lab.0.path(), "").replace("{port}", "{port} {host}");
    let script = lab.0.path().join("server.py");
    let text = std::fs::read_to_string(&script).unwrap();
    std::fs::write(&script, text.replace("'127.0.0.1'", "sys.argv[2]")).unwrap();
    lab.write(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"25s\"\n{SEPARATE}{trial}"
    ));
    let child = lab.start(&[]);
    let events = lab.result().join("events.jsonl");
    wait_for("a second of the load", || {
        let text = std::fs::read_to_string(&events).ok()?;
        text.contains("\"event\":\"second\"").then_some(())
    });
    let own = network_of(child.id()).unwrap();
    let mut started = processes_of(lab.0.path());
    started.retain(|id| *id != child.id());
    let entered: BTreeSet<PathBuf> = started.iter().filter_map(|id| network_of(*id)).collect();
    assert_eq!(
        (started.len(), entered.len()),
        (2, 2),
        "{started:?} {entered:?}"
    );
    assert!(!entered.contains(&own));
    (lab, child, started, entered)
}

fn nothing_is_left(started: &[u32], entered: &BTreeSet<PathBuf>, had: &BTreeSet<String>) {
    wait_for("the started processes to exit", || {
        started.iter().all(|id| !alive(*id)).then_some(())
    });
    wait_for("the namespaces to vanish", || {
        networks().is_disjoint(entered).then_some(())
    });
    assert_eq!(&interfaces(), had);
}

#[test]
#[cfg_attr(
    not(network_namespaces),
    ignore = "network namespaces are not allowed on this host"
)]
fn sigkill_leaves_no_process_or_namespace() {
    let had = interfaces();
    let (lab, mut child, started, entered) = start_and_wait();
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&started, &entered, &had);
    assert_eq!(folded(&lab.result()).runs.len(), 1);
}

#[test]
#[cfg_attr(
    not(network_namespaces),
    ignore = "network namespaces are not allowed on this host"
)]
fn ctrl_c_leaves_no_process_or_namespace() {
    let had = interfaces();
    let (_lab, child, started, entered) = start_and_wait();
    signal(child.id(), libc::SIGINT);
    let output = finish(child);
    assert_eq!(code(&output), 130, "{}", text(&output.stderr));
    nothing_is_left(&started, &entered, &had);
}

/// Returns a command that runs a copy of floodmark as user `nobody`, in directories that all users
/// may access.
fn as_nobody(lab: &ExperimentDirectory) -> Command {
    const NOBODY: u32 = 65_534;
    let program = lab.0.path().join("floodmark");
    std::fs::copy(env!("CARGO_BIN_EXE_floodmark"), &program).unwrap();
    for path in [lab.0.path(), &lab.0.path().join("tmp")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let mut command = Command::new(program);
    command
        .args(["run", "e.toml", "--out", "result", "--json", "-"])
        .current_dir(lab.0.path())
        .env("TMPDIR", lab.0.path().join("tmp"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .gid(NOBODY)
        .uid(NOBODY);
    command
}

#[test]
#[cfg_attr(not(root), ignore = "only root can become another user")]
fn uses_user_namespaces_without_privileges_or_skips_the_trial() {
    let own = "[[trial]]\nname = \"mine\"\ncommand = \"{floodmark} serve hello --listen {host}:{port}\"\nworkload = \"hello\"\n";
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"300ms\"\n{SEPARATE}{own}"
    ));
    let output = finish(as_nobody(&lab).spawn().unwrap());
    let record = crate::support::valid(serde_json::from_slice(&output.stdout).unwrap());
    match &record.skipped[..] {
        [] => {
            succeeds(&output);
            let place = record.runs[0].place.as_ref().unwrap();
            assert_eq!(place.hosts, HostLayout::Separate);
            assert!(record.runs[0].requests.ok > 0);
        }
        [line] => {
            assert_eq!(code(&output), 0);
            assert!(line.contains("run floodmark as root"), "{line}");
        }
        more => panic!("{more:?}"),
    }
}
