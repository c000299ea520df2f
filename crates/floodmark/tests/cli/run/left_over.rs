//! Whatever a run is in the middle of when it ends, nothing of it is left running.

use std::path::Path;
use std::process::Child;

use floodmark_record::run::Status;

use super::{Lab, NATIVE, leases, processes_of, python};
use crate::support::{alive, code, finish, folded, signal, text, valid, wait_for};

/// What an experiment is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Building,
    Starting,
    Loading,
    /// As loading, by another load generator.
    Driving,
    Stopping,
}

impl Phase {
    /// How many notes of what runs there are: of the server, and of a client.
    fn leases(self) -> usize {
        match self {
            Phase::Driving => 2,
            _ => 1,
        }
    }
}

/// Starts something that outlives its parent, and says so in the file `begun`.
const BEGIN: &str = "subprocess.Popen(['sleep', '300'])\nopen('begun', 'w').close()";

/// An experiment that stays in a phase, with what it has started by then: a process, and one that this one started.
fn under_way(phase: Phase) -> (Lab, Child, Vec<u32>) {
    let lab = Lab::new("");
    let folder = lab.0.path();
    let mut begun = folder.join("begun");
    let trial = match phase {
        Phase::Building => {
            begun = lab.system(
                "built",
                "name = \"built\"\nworkloads = [\"hello\"]\n[start]\ncommand = \"x {port}\"\n\
                 [build]\ncommand = \"sh -c 'sleep 300 & touch begun; wait'\"\n",
            );
            begun.push("begun");
            "[[trial]]\nsystem = \"built\"\nworkload = \"hello\"\n".to_owned()
        }
        Phase::Starting => python(folder, &format!("{BEGIN}\ntime.sleep(300)")),
        Phase::Loading => python(folder, BEGIN),
        Phase::Driving => {
            let client = folder.join("clients/endless");
            std::fs::create_dir(&client).unwrap();
            let text = "name = \"endless\"\n[kept]\nduration = \"sh -c 'sleep 300 & touch begun; wait'\"\n\
                        [figures]\nanswers = { find = '(x)' }\n";
            std::fs::write(client.join("client.toml"), text).unwrap();
            begun = client.join("begun");
            python(folder, "") + "client = \"endless\"\n"
        }
        Phase::Stopping => {
            let deaf = BEGIN.replace("\nopen", "; open");
            python(
                folder,
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
    let mut started = processes_of(folder);
    started.retain(|id| *id != own);
    assert!(started.len() >= 2, "{phase:?}: {started:?}");
    assert_eq!(leases(&lab), phase.leases(), "{phase:?}");
    (lab, child, started)
}

fn reached(phase: Phase, lab: &Lab, begun: &Path) -> bool {
    match phase {
        Phase::Loading => {
            let events = std::fs::read_to_string(lab.result().join("events.jsonl"));
            events.is_ok_and(|text| text.contains("\"event\":\"second\""))
        }
        // The note comes right after the child.
        _ => begun.is_file() && leases(lab) == phase.leases(),
    }
}

fn ctrl_c(phase: Phase) {
    let (lab, child, started) = under_way(phase);
    signal(child.id(), libc::SIGINT);
    let output = finish(child);
    assert_eq!(code(&output), 130, "{}", text(&output.stderr));
    // What was killed is gone as soon as the kernel gets to it.
    for id in started {
        wait_for("the end of what was started", || (!alive(id)).then_some(()));
    }
    assert_eq!(leases(&lab), 0);
    let record = valid(serde_json::from_slice(&output.stdout).unwrap());
    let begun = !matches!(phase, Phase::Building | Phase::Starting);
    assert_eq!(record.runs.len(), usize::from(begun));
    // Another load generator is ended before it says what it has.
    let own = record.runs.iter().filter(|run| run.client.name.is_none());
    assert!(own.clone().all(|run| run.requests.ok > 0));
    assert_eq!(own.count(), usize::from(begun && phase != Phase::Driving));
    let said = text(&output.stderr);
    assert!(said.contains("interrupted"), "{said}");
}

#[test]
fn ctrl_c_in_a_build_leaves_nothing() {
    ctrl_c(Phase::Building);
}

#[test]
fn ctrl_c_before_a_server_is_ready_leaves_nothing() {
    ctrl_c(Phase::Starting);
}

#[test]
fn ctrl_c_in_a_load_leaves_nothing_and_reports_what_was_taken() {
    ctrl_c(Phase::Loading);
}

#[test]
fn ctrl_c_while_a_server_will_not_stop_leaves_nothing() {
    ctrl_c(Phase::Stopping);
}

#[test]
fn ctrl_c_while_another_client_drives_leaves_nothing() {
    ctrl_c(Phase::Driving);
}

/// SIGKILL; then the next start ends what is left, and measures.
fn sigkill(phase: Phase) {
    let (lab, mut child, started) = under_way(phase);
    child.kill().unwrap();
    child.wait().unwrap();
    let runs = folded(&lab.result()).runs;
    let measured = matches!(phase, Phase::Loading | Phase::Driving | Phase::Stopping);
    assert_eq!(runs.len(), usize::from(measured), "{phase:?}");
    if phase == Phase::Driving {
        // Cut off or not, it is known by what drove it, and for what it is.
        assert_eq!(runs[0].client.name.as_deref(), Some("endless"));
        assert_eq!(runs[0].validity.status, Status::Invalid);
        let why = runs[0].validity.reasons.join("\n");
        assert_eq!(why, "floodmark was ended before endless was");
    }
    let left = || started.iter().filter(|id| alive(**id)).count();
    // What floodmark started dies with it, by the kernel; what that has started does not.
    wait_for("the end of the first", || (left() <= 1).then_some(()));
    assert_eq!(left(), 1, "{phase:?}");
    std::fs::rename(lab.result(), lab.0.path().join("killed")).unwrap();
    let (code, record, said) = lab.run(&["--only", "native", "--duration", "200ms"]);
    assert!(matches!(code, 0 | 4), "{said}");
    assert_eq!(record.runs.len(), 1);
    assert!(said.contains("a killed floodmark left running"), "{said}");
    assert_eq!(left(), 0, "{phase:?}: {said}");
    assert_eq!(leases(&lab), 0);
}

#[test]
fn after_sigkill_in_a_build_the_next_start_ends_what_is_left() {
    sigkill(Phase::Building);
}

#[test]
fn after_sigkill_before_a_server_is_ready_the_next_start_ends_what_is_left() {
    sigkill(Phase::Starting);
}

#[test]
fn after_sigkill_in_a_load_the_next_start_ends_what_is_left() {
    sigkill(Phase::Loading);
}

#[test]
fn after_sigkill_while_another_client_drives_the_next_start_ends_what_is_left() {
    sigkill(Phase::Driving);
}

#[test]
fn after_sigkill_while_a_server_will_not_stop_the_next_start_ends_what_is_left() {
    sigkill(Phase::Stopping);
}
