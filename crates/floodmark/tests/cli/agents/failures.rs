//! Tests of failing agents: each failure prints its own message, the partial result can be opened,
//! and no process is left running.

use std::path::Path;

use floodmark_record::Record;
use floodmark_record::run::Status;
use floodmark_truth::Scenario;

use super::{program, start};
use crate::support::{Load, folded, signal, truth};

/// Checks a load that one agent has ended, and its partial result.
fn is_partial(load: &Load, part: &str) {
    load.ends_with(5);
    assert!(load.stderr().contains(part), "{}", load.stderr());
    let record: Record = folded(&load.directory.path().join("result"));
    assert_eq!(record.runs[0].validity.status, Status::Invalid);
    assert_eq!(record.runs[0].requests.balance(), Ok(()));
}

#[test]
fn a_killed_agent_ends_the_load() {
    let (_server, url) = truth(Scenario::default());
    let started = start(&url, "local:4", &["-r", "400", "-d", "20s"]);
    let agents = started.agents(4);
    started.load.wait_for_a_second();
    signal(agents[1], libc::SIGKILL);
    let load = started.end();
    is_partial(&load, "ended early (signal: 9 (SIGKILL))");
    assert!(load.stderr().contains("agent local-"), "{}", load.stderr());
    let run = load.run();
    assert!(run.requests.ok >= 300, "{:?}", run.requests);
    assert!(run.sending_s < 10.0, "{}", run.sending_s);
    let lost = run.agents.iter().filter_map(|agent| agent.lost.as_ref());
    assert_eq!(lost.count(), 1);
}

#[test]
fn a_load_goes_on_with_the_agents_that_are_left() {
    let (_server, url) = truth(Scenario::default());
    let arguments = ["-r", "400", "-d", "4s", "--agents-min", "3"];
    let started = start(&url, "local:4", &arguments);
    let agents = started.agents(4);
    started.load.wait_for_a_second();
    signal(agents[2], libc::SIGKILL);
    let load = started.end();
    let run = load.run();
    assert!((3.9..4.5).contains(&run.sending_s), "{}", run.sending_s);
    assert_eq!(run.requests.balance(), Ok(()));
    let lost = Vec::from_iter(run.agents.iter().filter(|agent| agent.lost.is_some()));
    assert_eq!(lost.len(), 1);
    assert!(lost[0].requests.sent >= 50, "{:?}", lost[0].requests);
    let sent: u64 = run.agents.iter().map(|agent| agent.requests.sent).sum();
    assert_eq!(sent, run.requests.sent);
    assert!((1200..1590).contains(&sent), "{sent}");
}

#[test]
fn a_stopped_agent_is_noticed() {
    let (_server, url) = truth(Scenario::default());
    let started = start(&url, "local:2", &["-r", "200", "-d", "30s"]);
    let agents = started.agents(2);
    started.load.wait_for_a_second();
    signal(agents[0], libc::SIGSTOP);
    is_partial(&started.end(), "sent nothing for 5 s");
}

/// Returns three good agents, and one that runs `script`.
fn one_bad(script: &str) -> String {
    let program = program();
    format!(
        "command:4:sh -c 'if [ {{index}} = 2 ]; then {script}; exit 1; fi; exec {program} worker --agent'"
    )
}

#[test]
fn each_bad_agent_gets_its_message() {
    let program = program();
    let other = r#"echo "hello {\"version\":\"0.0.1\",\"host\":\"h\",\"cpus\":1,\"pid\":1,\"no_uring\":null}"; exec cat"#;
    for (script, part, starts) in [
        (
            format!("{program} worker --agent | dd bs=1 count=3000 2>/dev/null"),
            "its output ended in the middle of a line",
            true,
        ),
        (
            other.to_owned(),
            "runs floodmark 0.0.1, but this host runs",
            false,
        ),
        ("exec /does/not/exist".to_owned(), "/does/not/exist", false),
        (
            "echo Welcome to node 3; exec cat".to_owned(),
            "only the agent may write there: Welcome to node 3",
            false,
        ),
        (
            "echo no space left on device >&2; exit 28".to_owned(),
            "no space left on device",
            false,
        ),
    ] {
        let (_server, url) = truth(Scenario::default());
        let arguments = ["-r", "400", "-d", "15s"];
        let load = start(&url, &one_bad(&script), &arguments).end();
        load.ends_with(5);
        let printed = load.stderr();
        assert!(printed.contains(part), "{script}: {printed}");
        assert!(printed.contains("agent agent-3"), "{script}: {printed}");
        assert!(Path::new(&load.events()).exists());
        assert_eq!(
            load.record.runs.iter().any(|run| run.requests.ok > 0),
            starts,
            "{script}"
        );
    }
}

#[test]
fn an_interrupt_ends_all_agents_and_keeps_the_result() {
    let (_server, url) = truth(Scenario::default());
    let started = start(&url, "local:3", &["-r", "300", "-d", "30s"]);
    started.agents(3);
    started.load.wait_for_a_second();
    signal(started.load.pid(), libc::SIGINT);
    let load = started.end();
    assert_eq!(load.code(), 130, "{}", load.stderr());
    assert!(load.counts().ok >= 200, "{:?}", load.counts());
    assert!(load.run().agents.iter().all(|agent| agent.lost.is_none()));
}

#[test]
fn agents_end_with_a_killed_coordinator() {
    let (_server, url) = truth(Scenario::default());
    let started = start(
        &url,
        &format!("command:2:sh -c \"{} worker --agent; true\"", program()),
        &["-r", "300", "-d", "30s"],
    );
    started.agents(2);
    started.load.wait_for_a_second();
    let variable = started.variable();
    drop(started.load.kill());
    crate::support::wait_for("the agents' end", || {
        super::processes(&variable, "worker")
            .is_empty()
            .then_some(())
    });
}
