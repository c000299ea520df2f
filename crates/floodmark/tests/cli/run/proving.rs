//! Verdicts that are proven by changing parts of a setup.

use floodmark_record::proof::Change;

use super::{Lab, processes_of, python};
use crate::support::{Serve, code, run, text};

#[test]
fn parts_are_changed_in_turn_and_what_comes_of_it_is_kept() {
    let lab = Lab::new("");
    // Each answer takes 20 ms of waiting: four connections are four at a time.
    let server = python(lab.0.path(), "") + "load = { connections = 4, duration = \"1s\" }\n";
    let script = lab.0.path().join("server.py");
    let slow = std::fs::read_to_string(&script).unwrap();
    let slow = slow.replace(
        "self.send_response(200)",
        "time.sleep(0.02); self.send_response(200)",
    );
    std::fs::write(&script, slow).unwrap();
    lab.write(&format!("question = \"Why?\"\nprove = true\n{server}"));
    let (code_of_run, record, said) = lab.run(&[]);
    assert!(matches!(code_of_run, 0 | 4), "{said}");
    let run_of = &record.runs[0];
    let changed: Vec<Change> = run_of.perturbed.iter().map(|w| w.change).collect();
    let all = [
        Change::TwiceConnections,
        Change::SlowedClient,
        Change::SlowedServer,
    ];
    assert_eq!(changed, all, "{said}");
    for windows in &run_of.perturbed {
        let taken = windows.base_per_s.iter().chain(&windows.changed_per_s);
        assert_eq!(taken.clone().count(), 12);
        assert!(taken.into_iter().all(|per_s| *per_s > 0.0), "{windows:?}");
    }
    let tested = &run_of.verdict.as_ref().unwrap().tested;
    assert_eq!(tested.len(), 3);
    assert!(tested.iter().all(|tested| tested.interval.is_some()));
    let folder = lab.result();
    let folder = folder.to_str().unwrap();
    let judged = text(&run(&["why", folder]).stdout);
    let tried = judged.lines().filter(|line| line.starts_with("tried "));
    assert_eq!(tried.count(), 3, "{judged}");
    assert_eq!(processes_of(lab.0.path()), Vec::<u32>::new());
    // Its server is gone, and only a run starts it again.
    let again = run(&["why", folder, "--prove"]);
    let said = text(&again.stderr);
    assert_eq!((code(&again), said.lines().count()), (2, 1), "{said}");
    assert!(said.contains("floodmark run EXPERIMENT --prove"), "{said}");
}

#[test]
fn a_server_that_is_gone_is_said_and_the_result_stays() {
    let mut server = Serve::start(&["hello"]);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("result");
    let out = out.to_str().unwrap();
    let loaded = run(&["load", &server.url, "-c", "1", "-d", "500ms", "--out", out]);
    assert!(matches!(code(&loaded), 0 | 4));
    let record = || std::fs::read_to_string(folder.path().join("result/record.json")).unwrap();
    let before: serde_json::Value = serde_json::from_str(&record()).unwrap();
    for (flags, named) in [
        (&["--prove", "--server-pid", "4194304"][..], "--server-pid"),
        (&["--server-pid", "1"][..], "--prove"),
    ] {
        let wrong = run(&[&["why", out][..], flags].concat());
        assert_eq!(code(&wrong), 2);
        let said = text(&wrong.stderr);
        assert!(said.contains(named), "{said}");
    }
    server.kill();
    let gone = run(&["why", out, "--prove"]);
    let said = text(&gone.stderr);
    let cause = &before["runs"][0]["verdict"]["cause"];
    // What no change tells from others is not tried.
    let provable = [
        "unknown",
        "concurrency",
        "client-cpu",
        "shared-cpu",
        "server-cpu",
    ];
    if provable.iter().any(|id| cause == id) {
        assert_eq!(code(&gone), 3, "{said}");
        assert!(said.contains("is the server still there?"), "{said}");
    }
    let after: serde_json::Value = serde_json::from_str(&record()).unwrap();
    assert_eq!(before["runs"][0]["requests"], after["runs"][0]["requests"]);
}
