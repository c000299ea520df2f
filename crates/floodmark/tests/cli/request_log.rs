//! Tests of the log of individual requests.

use std::collections::BTreeSet;
use std::fs;

use floodmark_record::Counts;
use floodmark_truth::Scenario;
use floodmark_truth::scenario::{FaultShare, ResponseFault};

use crate::support::{Load, code, limit_file_size, load, run, start_load_as, text, truth};

/// A load with a log, and the values in the log's lines.
fn logged(url: &str, arguments: &[&str]) -> (Load, Vec<Vec<String>>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("requests.csv");
    let log = ["--anyway", "--request-log", file.to_str().unwrap()];
    let load = load(url, &[arguments, &log].concat());
    let text = fs::read_to_string(&file).unwrap();
    let mut lines = text.lines();
    assert_eq!(
        lines.next().unwrap(),
        "attempt,number,request,thread,slot,use,intended_ns,free_ns,sent_ns,first_byte_ns,done_ns,status,outcome,bytes,grpc_status"
    );
    let values = |line: &str| line.split(',').map(str::to_owned).collect();
    (load, lines.map(values).collect())
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

#[test]
fn a_log_agrees_with_the_record() {
    let share = |share, fault| FaultShare { share, fault };
    let scenario = Scenario {
        faults: vec![
            share(0.2, ResponseFault::Status { code: 503 }),
            share(0.1, ResponseFault::NoResponse),
            share(0.1, ResponseFault::ResetBefore),
            share(0.1, ResponseFault::TruncatedBody),
        ],
        ..Scenario::default()
    };
    for arguments in [
        &["-n", "300", "-t", "2", "-c", "8", "--backend", "epoll"][..],
        &["-n", "300", "-t", "2", "-c", "8", "--fresh"],
        &["--rate", "300", "-d", "1s", "-t", "2", "-c", "100"],
    ] {
        let (_server, url) = truth(scenario.clone());
        let fast = ["--timeout", "100ms", "--retry", "never"];
        let (load, lines) = logged(&url, &[arguments, &fast].concat());
        let run = load.run();
        let counts = &run.requests;
        let with = |outcome: &str| lines.iter().filter(|line| line[12] == outcome).count() as u64;
        let logged = Counts {
            ok: with("ok"),
            rejected: with("rejected"),
            malformed: with("malformed"),
            reset: with("reset"),
            timed_out: with("timed_out"),
            ..counts.clone()
        };
        assert_eq!(&logged, counts, "{arguments:?}");
        assert_eq!(lines.len() as u64, counts.sent);
        let numbers: BTreeSet<u64> = lines.iter().map(|line| number(&line[1])).collect();
        assert_eq!(numbers.len(), lines.len());
        let ok = lines.iter().filter(|line| line[12] == "ok");
        let response_ns = ok.map(|line| {
            let times: Vec<u64> = line[6..11].iter().map(|at| number(at)).collect();
            assert!(times.is_sorted(), "{line:?}");
            assert_eq!(line[11], "200");
            times[4] - times[0]
        });
        let longest_us = response_ns.max().unwrap() as f64 / 1e3;
        // Requests that timed out have longer times.
        let p50 = run.response_time_us.p50.unwrap();
        assert!(longest_us >= p50 * 0.99, "{longest_us} {p50}");
        let end = run.request_log.as_ref().unwrap();
        assert_eq!(
            (end.logged, end.dropped, &end.error),
            (counts.sent, 0, &None)
        );
    }
}

#[test]
fn a_log_has_the_bytes_and_connections_of_each_attempt() {
    let (_server, url) = truth(Scenario::default());
    let (load, lines) = logged(&url, &["-n", "20", "-c", "1", "--attempts", "2"]);
    load.ends_with(0);
    let bytes: u64 = lines.iter().map(|line| number(&line[13])).sum();
    let received = load.record.runs.iter().map(|run| run.bytes.received);
    assert_eq!(bytes, received.sum::<u64>());
    let of = |line: &Vec<String>| [0, 3, 4, 5].map(|i| number(&line[i]));
    let keys: Vec<[u64; 4]> = lines.iter().map(of).collect();
    let expected = (1..=2).flat_map(|attempt| (1..=20).map(move |n| [attempt, 0, 0, n]));
    assert_eq!(keys, expected.collect::<Vec<_>>());
}

#[test]
fn a_sample_depends_on_the_seed_only() {
    let (_server, url) = truth(Scenario::default());
    let numbers = |threads, seed| -> BTreeSet<u64> {
        let (load, lines) = logged(
            &url,
            &[
                "-n",
                "3000",
                "-t",
                threads,
                "--seed",
                seed,
                "--request-log-sample",
                "10%",
            ],
        );
        load.ends_with(0);
        lines.iter().map(|line| number(&line[1])).collect()
    };
    let one = numbers("1", "1");
    assert!((200..400).contains(&one.len()), "{}", one.len());
    assert_eq!(one, numbers("2", "1"));
    assert_ne!(one, numbers("1", "2"));
}

#[test]
fn rejects_a_file_that_load_processes_cannot_append_to() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).display().to_string();
    let same = file("same.csv");
    for (log, arguments, words) in [
        ("-", &[][..], "--request-log -: stdout, pipes and devices"),
        ("/dev/null", &[], "stdout, pipes and devices"),
        (&same, &["--csv", &same], "--csv names the same file"),
        (&file("none/x.csv"), &[], "No such file"),
    ] {
        let load = ["load", "http://127.0.0.1:1/", "--request-log", log];
        let output = run(&[&load, arguments].concat());
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{printed}");
        assert!(printed.contains(words), "{printed}");
    }
    assert!(!directory.path().join("same.csv").exists());
}

#[test]
fn a_full_disk_leaves_whole_lines_and_is_reported_once() {
    let (_server, url) = truth(Scenario::default());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("requests.csv");
    let path = file.to_str().unwrap();
    let arguments = ["-n", "8000", "-t", "1", "--anyway", "--request-log", path];
    let load = start_load_as(&url, &arguments, |command| {
        limit_file_size(command, 400_000)
    })
    .end();
    load.ends_with(5);
    let end = load.run().request_log.as_ref().unwrap();
    assert_eq!(end.logged + end.dropped, 8000);
    let log = fs::read_to_string(&file).unwrap();
    assert_eq!(log.lines().count() as u64, end.logged + 1);
    assert!(end.logged > 0 && log.ends_with('\n'), "{}", end.logged);
    let stderr = load.stderr();
    let missing = stderr.matches("not logged").count();
    assert_eq!(missing, 1, "{stderr}");
    assert!(stderr.contains("File too large"), "{stderr}");
}
