//! Client and server as on two machines, in network namespaces of their own.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use floodmark_record::place::Hosts;

use super::{Lab, NATIVE, installed, processes_of, python};
use crate::support::{alive, code, finish, folded, signal, text, wait_for};

const SEPARATE: &str = "[place]\nhosts = \"separate\"\n";

/// Connections that are made before the load: whether the server is ready, and whether it answers rightly.
const PROBES: f64 = 2.0;

/// Whether this machine has network namespaces for us; where not, says so.
fn allowed() -> bool {
    let allowed = floodmark_host::wire::pair();
    if let Err(error) = &allowed {
        println!("skipped: no network namespaces here: {error}");
    }
    allowed.is_ok()
}

/// Which network namespace a process is in.
fn network_of(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/net")).ok()
}

/// All network namespaces that a process is in.
fn networks() -> BTreeSet<PathBuf> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| network_of(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Names of the interfaces beside which nothing may be left.
fn interfaces() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/sys/class/net").unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect()
}

/// Runs a command as root of a user namespace in which no further network namespace may be made.
const FORBIDDEN: &str = "echo 0 > /proc/sys/user/max_net_namespaces && exec \"$@\"";

#[test]
fn where_namespaces_are_forbidden_a_trial_is_left_out_with_one_line() {
    if !allowed() || !installed("unshare") {
        return;
    }
    let near = NATIVE.replace("native\"\n", "native\"\nname = \"near\"\n");
    let lab = Lab::new(&format!(
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
    let said = text(&output.stderr) + &text(&output.stdout);
    let record = folded(&lab.result());
    let [skipped] = &record.skipped[..] else {
        panic!("{:?}: {said}", record.skipped);
    };
    assert!(skipped.starts_with("native is skipped: "), "{skipped}");
    assert!(skipped.contains("user.max_net_namespaces"), "{skipped}");
    assert!(said.contains("native is skipped: "), "{said}");
    // What needs none is measured, and nothing has failed.
    assert!(matches!(code(&output), 0 | 4), "{said}");
    let trials: Vec<_> = record.runs.iter().map(|run| run.trial.as_deref()).collect();
    assert_eq!(trials, [Some("near")], "{said}");
}

#[test]
fn settings_ports_and_counters_are_the_clients_own() {
    if !allowed() {
        return;
    }
    let nginx = match installed("nginx") {
        true => NATIVE.replace("native", "nginx"),
        false => String::new(),
    };
    let lab = Lab::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"1200ms\"\nfresh = true\nclose-first = \"client\"\n{SEPARATE}\
         sysctls = {{ client = {{ \"net.ipv4.ip_local_port_range\" = \"20000 20999\", \"net.ipv4.tcp_tw_reuse\" = 0 }} }}\n\
         {NATIVE}{nginx}"
    ));
    let ports = || std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
    let (before, had) = (ports(), interfaces());
    let (code, record, said) = lab.run(&[]);
    assert!(matches!(code, 0 | 4), "{said}");
    assert_eq!(record.skipped, [""; 0], "{said}");
    assert_eq!((ports(), interfaces()), (before, had));
    for run in &record.runs {
        let place = run.place.as_ref().unwrap();
        assert_eq!(place.hosts, Hosts::Separate);
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
            .find(|seen| seen.metric == "tw")
            .unwrap();
        let most = waiting.values.iter().copied().fold(0.0, f64::max);
        // One of the two sides has each; the host's own sockets are in neither.
        assert!(most > 0.0 && most <= 1000.0, "{waiting:?}");
        // Asking whether it is ready and answers rightly takes a connection each, from the client's side too. The
        // last value may be the mean of two readings, a fifth of the run apart.
        let ok = run.requests.ok as f64;
        let expected = 0.9 * ok..=ok + PROBES;
        assert!(expected.contains(&most), "{most} {:?}", run.requests);
        // Each side's network is watched for itself: connections are opened in one and taken in the other.
        let grown = |subject: &str, metric: &str| -> f64 {
            let mut all = run.observations.iter();
            let seen = all.find(|o| o.subject == subject && o.metric == metric);
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
        let subjects = |subject: &str| run.observations.iter().any(|o| o.subject == subject);
        assert!(subjects("server sockets") && subjects("client sockets"));
        assert!(
            !subjects("client network"),
            "it is the watching thread's own"
        );
    }
    assert!(said.contains("as on two machines"), "{said}");
}

#[test]
fn a_setting_that_a_network_does_not_have_is_refused_before_anything_starts() {
    if !allowed() {
        return;
    }
    for (setting, line, what) in [
        (
            "\"net.core.rmem_max\" = 1",
            5,
            "is not one that each network has for itself",
        ),
        (
            "\"net.ipv4.tcp_tw_reuse\" = \"x\"",
            5,
            "does not take this value",
        ),
        ("\"vm.swappiness\" = 1", 4, "the whole machine's"),
    ] {
        let lab = Lab::new(&format!(
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

/// A load in namespaces of its own, with the processes in them.
fn under_way() -> (Lab, Child, Vec<u32>, BTreeSet<PathBuf>) {
    let lab = Lab::new("");
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
    wait_for("the end of what was started", || {
        started.iter().all(|id| !alive(*id)).then_some(())
    });
    wait_for("the end of the namespaces", || {
        networks().is_disjoint(entered).then_some(())
    });
    assert_eq!(&interfaces(), had);
}

#[test]
fn after_sigkill_neither_process_nor_namespace_is_left() {
    if !allowed() {
        return;
    }
    let had = interfaces();
    let (lab, mut child, started, entered) = under_way();
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&started, &entered, &had);
    assert_eq!(folded(&lab.result()).runs.len(), 1);
}

#[test]
fn after_ctrl_c_neither_process_nor_namespace_is_left() {
    if !allowed() {
        return;
    }
    let had = interfaces();
    let (_lab, child, started, entered) = under_way();
    signal(child.id(), libc::SIGINT);
    let output = finish(child);
    assert_eq!(code(&output), 130, "{}", text(&output.stderr));
    nothing_is_left(&started, &entered, &had);
}

/// A user without privileges, for whom the program is copied where that user reaches it.
fn as_nobody(lab: &Lab) -> Command {
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
fn without_privileges_user_namespaces_serve_or_the_trial_is_left_out_in_one_line() {
    // SAFETY: the call takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can become another user");
        return;
    }
    let own = "[[trial]]\nname = \"mine\"\ncommand = \"{floodmark} serve hello --listen {host}:{port}\"\nworkload = \"hello\"\n";
    let lab = Lab::new(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"300ms\"\n{SEPARATE}{own}"
    ));
    let output = finish(as_nobody(&lab).spawn().unwrap());
    let record = crate::support::valid(serde_json::from_slice(&output.stdout).unwrap());
    match &record.skipped[..] {
        [] => {
            assert!(matches!(code(&output), 0 | 4), "{}", text(&output.stderr));
            let place = record.runs[0].place.as_ref().unwrap();
            assert_eq!(place.hosts, Hosts::Separate);
            assert!(record.runs[0].requests.ok > 0);
        }
        [line] => {
            assert_eq!(code(&output), 0);
            assert!(line.contains("run floodmark as root"), "{line}");
        }
        more => panic!("{more:?}"),
    }
    println!("{:?} {}", record.skipped, record.runs.len());
}
