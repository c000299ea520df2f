//! Tests of experiments that prove their verdicts.

use floodmark_record::verdict::Perturbation;
use floodmark_truth::{Scenario, scenario::Service};

use super::{ExperimentDirectory, processes_of, python};
use crate::support::{code, run, succeeds, text, truth};

#[test]
fn applies_one_perturbation_at_a_time_and_records_the_outcome() {
    let lab = ExperimentDirectory::new("");
    // Each response takes 20 ms, so four connections limit the throughput.
    let server = python(lab.0.path(), "") + "load = { connections = 4, duration = \"1s\" }\n";
    let script = lab.0.path().join("server.py");
    let slow = std::fs::read_to_string(&script).unwrap();
    let slow = slow.replace(
        "self.send_response(200)",
        "time.sleep(0.02); self.send_response(200)",
    );
    std::fs::write(&script, slow).unwrap();
    lab.write(&format!("question = \"Why?\"\nprove = true\n{server}"));
    let (code_of_run, record, printed) = lab.run(&[]);
    assert_eq!(code_of_run, 0, "{printed}");
    let run_of = &record.runs[0];
    let changed: Vec<Perturbation> = run_of.perturbed.iter().map(|w| w.change).collect();
    let all = [
        Perturbation::TwiceConnections,
        Perturbation::SlowedClient,
        Perturbation::SlowedServer,
    ];
    assert_eq!(changed, all, "{printed}");
    for windows in &run_of.perturbed {
        let taken = windows.base_per_s.iter().chain(&windows.changed_per_s);
        assert_eq!(taken.clone().count(), 12);
        assert!(taken.into_iter().all(|per_s| *per_s > 0.0), "{windows:?}");
    }
    let tested = &run_of.verdict.as_ref().unwrap().tested;
    assert_eq!(tested.len(), 3);
    assert!(tested.iter().all(|tested| tested.interval.is_some()));
    let directory = lab.result();
    let directory = directory.to_str().unwrap();
    let judged = text(&run(&["why", directory]).stdout);
    let tried = judged.lines().filter(|line| line.starts_with("tested "));
    assert_eq!(tried.count(), 3, "{judged}");
    assert_eq!(processes_of(lab.0.path()), Vec::<u32>::new());
    // Only `floodmark run` is able to restart the server.
    let again = run(&["why", directory, "--prove"]);
    let printed = text(&again.stderr);
    assert_eq!((code(&again), printed.lines().count()), (2, 1), "{printed}");
    assert!(
        printed.contains("floodmark run EXPERIMENT --prove"),
        "{printed}"
    );
}

#[test]
fn names_a_missing_server_and_keeps_the_result() {
    // One connection limits the throughput of a server that responds after 20 ms.
    let (server, url) = truth(Scenario {
        service: Service::Fixed { delay_us: 20_000 },
        ..Scenario::default()
    });
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("result");
    let out = out.to_str().unwrap();
    let loaded = run(&[
        "load",
        &url,
        "-c",
        "1",
        "-d",
        "500ms",
        "--no-watch",
        "--out",
        out,
    ]);
    succeeds(&loaded);
    let record = || std::fs::read_to_string(directory.path().join("result/record.json")).unwrap();
    let before: serde_json::Value = serde_json::from_str(&record()).unwrap();
    for (flags, named) in [
        (&["--prove", "--server-pid", "4194304"][..], "--server-pid"),
        (&["--server-pid", "1"][..], "--prove"),
    ] {
        let wrong = run(&[&["why", out][..], flags].concat());
        assert_eq!(code(&wrong), 2);
        let printed = text(&wrong.stderr);
        assert!(printed.contains(named), "{printed}");
    }
    drop(server);
    let gone = run(&["why", out, "--prove"]);
    let printed = text(&gone.stderr);
    assert_eq!(before["runs"][0]["verdict"]["cause"], "concurrency");
    assert_eq!(code(&gone), 3, "{printed}");
    assert!(
        printed.contains("check that the server is running"),
        "{printed}"
    );
    assert!(
        printed.contains("testing 2 changes in 18 windows, about 36 s"),
        "{printed}"
    );
    let after: serde_json::Value = serde_json::from_str(&record()).unwrap();
    assert_eq!(before["runs"][0]["requests"], after["runs"][0]["requests"]);
}
