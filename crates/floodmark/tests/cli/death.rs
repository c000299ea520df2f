//! Tests in which the server or floodmark dies during a run.

use floodmark_record::cause::Cause;
use floodmark_record::events::EndReason;
use floodmark_truth::Scenario;

use crate::support::{
    Serve, alive, floodmark, folded, run, signal, start_load, succeeds, truth, wait_for,
};

#[test]
fn keeps_the_measurement_when_the_server_dies() {
    for model in [&["-c", "5"][..], &["-r", "500"]] {
        let mut server = Serve::start(&["hello"]);
        let mut arguments = vec!["-d", "20s"];
        arguments.extend_from_slice(model);
        let started = start_load(&server.url, &arguments);
        started.wait_for_a_second();
        server.kill();
        let load = started.end();
        assert_eq!(load.code(), 3, "{model:?}: {}", load.stderr());
        let run = load.run();
        assert_eq!(run.ended.reason, EndReason::ServerGone);
        assert!(
            run.sending_s < 19.0,
            "ends early, after {} s",
            run.sending_s
        );
        let died = run.server_gone_since_s.unwrap();
        assert!(died >= 0.9, "{died}");
        // floodmark ends a run after two seconds without any response.
        let ended = run.sending_s;
        assert!(
            died + 1.999 <= ended,
            "the server died at {died} s, the run ended at {ended} s"
        );
        assert!(run.requests.ok >= 100, "{:?}", run.requests);
        let broken = ["closed_before_answer", "connection_reset"];
        let errors = run
            .request_errors()
            .filter(|(name, _)| broken.contains(name));
        assert_eq!(errors.map(|(_, n)| n).sum::<u64>(), run.requests.reset);
        let printed = load.stderr();
        assert!(
            printed.contains("stopped responding") && printed.contains(" s into the run"),
            "{printed}"
        );
    }
}

#[test]
fn a_server_that_was_paused_has_stalled() {
    let server = Serve::start(&["hello"]);
    let started = start_load(&server.url, &["-c", "10", "-d", "4s"]);
    started.wait_for_a_second();
    signal(server.pid(), libc::SIGSTOP);
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    signal(server.pid(), libc::SIGCONT);
    let load = started.end();
    let run = load.run();
    let silence = run.silence.as_ref().unwrap();
    let length_s = silence.to_s - silence.from_s;
    assert!((0.8..1.9).contains(&length_s), "{silence:?}");
    assert_eq!(silence.in_flight, 10);
    let verdict = run.verdict.as_ref().unwrap();
    assert_eq!(verdict.cause, Cause::ServerStall, "{verdict:#?}");
}

#[test]
fn a_killed_floodmark_leaves_its_result_and_no_process() {
    let server = Serve::start(&["hello"]);
    let started = start_load(&server.url, &["-r", "500", "-d", "20s"]);
    let worker = started.worker();
    started.wait_for_a_second();
    let directory = started.kill();
    wait_for("the worker's end", || (!alive(worker)).then_some(()));
    let record = folded(&directory.path().join("result"));
    assert_eq!(record.runs.len(), 1);
    assert!(record.runs[0].requests.ok > 0);
    assert_eq!(record.runs[0].ended.reason, EndReason::Interrupted);
    assert!(record.runs[0].ended.detail.is_some());
}

/// Returns the ID of the helper process that periodically pauses process `of`.
fn stopper(of: u32) -> Option<u32> {
    let wanted = format!("\0slow\0{of}\0");
    std::fs::read_dir("/proc").unwrap().find_map(|entry| {
        let entry = entry.ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        line.ends_with(&wanted).then_some(pid)
    })
}

#[test]
fn a_killed_proof_leaves_no_process_stopped() {
    let server = Serve::start(&["hello"]);
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("result");
    let out = out.to_str().unwrap();
    let load = ["load", &server.url, "-c", "2", "-d", "1s", "--out", out];
    succeeds(&run(&load));
    let pid = server.pid().to_string();
    let mut proving = floodmark(&["why", out, "--prove", "--server-pid", &pid])
        .spawn()
        .unwrap();
    let stopper = wait_for("the helper to pause the server", || stopper(server.pid()));
    proving.kill().unwrap();
    proving.wait().unwrap();
    wait_for("the stopper's end", || (!alive(stopper)).then_some(()));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(
        !stat.rsplit(')').next().unwrap().starts_with(" T"),
        "{stat}"
    );
    let again = ["load", &server.url, "-c", "2", "-n", "100"];
    succeeds(&run(&again));
}

#[test]
fn a_vanished_result_directory_is_an_internal_error() {
    let (_server, url) = truth(Scenario::default());
    let started = start_load(&url, &["-r", "200", "-d", "3s"]);
    started.wait_for_a_second();
    let result = started.result();
    std::fs::remove_dir_all(&result).unwrap();
    let load = started.end();
    assert_eq!(load.code(), 5, "{}", load.stderr());
    assert_eq!(load.record.runs.len(), 0);
    // The error occurs either when floodmark writes the events or when it reads the events back.
    assert!(
        load.record.skipped[0].contains(result.to_str().unwrap()),
        "{:?}",
        load.record.skipped
    );
}
