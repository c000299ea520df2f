//! Tests that an experiment leaves no processes behind, regardless of the phase in which it ends.

use std::path::Path;
use std::process::Child;

use floodmark_record::reason::joined;
use floodmark_record::run::Status;

use super::{ExperimentDirectory, NATIVE, leases, processes_of, python};
use crate::support::{alive, code, finish, folded, run, signal, text, valid, wait_for};

/// Phase in which the test ends the experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExperimentPhase {
    Building,
    Starting,
    Loading,
    /// An external client is sending the load.
    Driving,
    Stopping,
}

impl ExperimentPhase {
    /// Returns the number of leases in this phase. An external client has its own lease.
    fn leases(self) -> usize {
        match self {
            ExperimentPhase::Driving => 2,
            _ => 1,
        }
    }
}

/// Python code that creates the file `begun` and starts a process that outlives its parent.
const BEGIN: &str = "subprocess.Popen(['sleep', '300'])\nopen('begun', 'w').close()";

/// Starts an experiment that stays in the given phase, and waits until it is in this phase. Returns
/// its directory, the floodmark process, and the IDs of the processes that floodmark started.
fn start_and_wait(phase: ExperimentPhase) -> (ExperimentDirectory, Child, Vec<u32>) {
    let lab = ExperimentDirectory::new("");
    let directory = lab.0.path();
    let mut begun = directory.join("begun");
    let trial = match phase {
        ExperimentPhase::Building => {
            begun = lab.system(
                "built",
                "name = \"built\"\nworkloads = [\"hello\"]\n[start]\ncommand = \"x {port}\"\n\
                 [build]\ncommand = \"sh -c 'sleep 300 & touch begun; wait'\"\n",
            );
            begun.push("begun");
            "[[trial]]\nsystem = \"built\"\nworkload = \"hello\"\n".to_owned()
        }
        ExperimentPhase::Starting => python(directory, &format!("{BEGIN}\ntime.sleep(300)")),
        ExperimentPhase::Loading => python(directory, BEGIN),
        ExperimentPhase::Driving => {
            let client = directory.join("clients/endless");
            std::fs::create_dir(&client).unwrap();
            let text = "name = \"endless\"\n[kept]\nduration = \"sh -c 'sleep 300 & touch begun; wait'\"\n\
                        [figures]\nanswers = { find = '(x)' }\n";
            std::fs::write(client.join("client.toml"), text).unwrap();
            begun = client.join("begun");
            python(directory, "") + "client = \"endless\"\n"
        }
        ExperimentPhase::Stopping => {
            let deaf = BEGIN.replace("\nopen", "; open");
            python(
                directory,
                &format!("def stop(*args):\n    {deaf}\nsignal.signal(signal.SIGTERM, stop)"),
            ) + "load = { duration = \"200ms\" }\n"
        }
    };
    lab.write(&format!(
        "question = \"?\"\n[load]\nconnections = 2\nduration = \"25s\"\n{trial}{NATIVE}"
    ));
    let child = lab.start(&["--json", "-"]);
    wait_for("the phase", || reached(phase, &lab, &begun).then_some(()));
    let own = child.id();
    let mut started = processes_of(directory);
    started.retain(|id| *id != own);
    assert!(started.len() >= 2, "{phase:?}: {started:?}");
    assert_eq!(leases(&lab), phase.leases(), "{phase:?}");
    (lab, child, started)
}

fn reached(phase: ExperimentPhase, lab: &ExperimentDirectory, begun: &Path) -> bool {
    match phase {
        ExperimentPhase::Loading => {
            let events = std::fs::read_to_string(lab.result().join("events.jsonl"));
            events.is_ok_and(|text| text.contains("\"event\":\"second\""))
        }
        // The lease is written after the child process has started.
        _ => begun.is_file() && leases(lab) == phase.leases(),
    }
}

fn ctrl_c(phase: ExperimentPhase) {
    let (lab, child, started) = start_and_wait(phase);
    signal(child.id(), libc::SIGINT);
    let output = finish(child);
    assert_eq!(code(&output), 130, "{}", text(&output.stderr));
    // Killed processes disappear after a short delay.
    for id in started {
        wait_for("the started processes to exit", || {
            (!alive(id)).then_some(())
        });
    }
    assert_eq!(leases(&lab), 0);
    let record = valid(serde_json::from_slice(&output.stdout).unwrap());
    let begun = !matches!(phase, ExperimentPhase::Building | ExperimentPhase::Starting);
    assert_eq!(record.runs.len(), usize::from(begun));
    // An interrupted external client reports no figures.
    let own = record.runs.iter().filter(|run| run.client.name.is_none());
    assert!(own.clone().all(|run| run.requests.ok > 0));
    assert_eq!(
        own.count(),
        usize::from(begun && phase != ExperimentPhase::Driving)
    );
    let printed = text(&output.stderr);
    if begun {
        assert!(printed.contains("interrupted"), "{printed}");
        return;
    }
    let words = "floodmark: interrupted before the first measurement; no result\n";
    assert!(printed.ends_with(words), "{printed}");
    let report = run(&["report", lab.result().to_str().unwrap()]);
    assert_eq!(code(&report), 2, "{report:?}");
}

#[test]
fn ctrl_c_ends_a_build() {
    ctrl_c(ExperimentPhase::Building);
}

#[test]
fn ctrl_c_ends_a_server_that_is_not_ready() {
    ctrl_c(ExperimentPhase::Starting);
}

#[test]
fn ctrl_c_ends_a_load_and_reports_it() {
    ctrl_c(ExperimentPhase::Loading);
}

#[test]
fn ctrl_c_kills_a_server_that_does_not_stop() {
    ctrl_c(ExperimentPhase::Stopping);
}

#[test]
fn ctrl_c_ends_an_external_client() {
    ctrl_c(ExperimentPhase::Driving);
}

/// Kills floodmark. Expects the next run to end the remaining processes and to complete a
/// measurement.
fn sigkill(phase: ExperimentPhase) {
    let (lab, mut child, started) = start_and_wait(phase);
    child.kill().unwrap();
    child.wait().unwrap();
    let runs = folded(&lab.result()).runs;
    let measured = matches!(
        phase,
        ExperimentPhase::Loading | ExperimentPhase::Driving | ExperimentPhase::Stopping
    );
    assert_eq!(runs.len(), usize::from(measured), "{phase:?}");
    if phase == ExperimentPhase::Driving {
        // The partial run contains the name of its client.
        assert_eq!(runs[0].client.name.as_deref(), Some("endless"));
        assert_eq!(runs[0].validity.status, Status::Invalid);
        let why = joined(&runs[0].validity.reasons);
        assert_eq!(why, "floodmark exited before endless finished");
    }
    let left = || started.iter().filter(|id| alive(**id)).count();
    // Child processes die together with floodmark, but grandchildren survive.
    wait_for("the children to end", || (left() <= 1).then_some(()));
    assert_eq!(left(), 1, "{phase:?}");
    std::fs::rename(lab.result(), lab.0.path().join("killed")).unwrap();
    let (code, record, printed) = lab.run(&["--only", "native", "--duration", "200ms"]);
    assert_eq!(code, 0, "{printed}");
    assert_eq!(record.runs.len(), 1);
    assert!(
        printed.contains("left behind by a killed floodmark process"),
        "{printed}"
    );
    assert_eq!(left(), 0, "{phase:?}: {printed}");
    assert_eq!(leases(&lab), 0);
}

#[test]
fn the_next_start_ends_a_leftover_build() {
    sigkill(ExperimentPhase::Building);
}

#[test]
fn the_next_start_ends_a_leftover_starting_server() {
    sigkill(ExperimentPhase::Starting);
}

#[test]
fn the_next_start_ends_a_leftover_server() {
    sigkill(ExperimentPhase::Loading);
}

#[test]
fn the_next_start_ends_a_leftover_client() {
    sigkill(ExperimentPhase::Driving);
}

#[test]
fn the_next_start_ends_a_leftover_stubborn_server() {
    sigkill(ExperimentPhase::Stopping);
}
