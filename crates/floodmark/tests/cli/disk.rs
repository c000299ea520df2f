//! Tests of `floodmark disk`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::process::{self, Output};
use std::sync::Mutex;

use floodmark_record::disk::DiskRow;

use crate::support::traced::{failed, result, run_server, server_command, sync};
use crate::support::{code, finish, floodmark, full_disk, run, signal, text};

/// The program under test, which is also a server.
const FLOODMARK: &str = env!("CARGO_BIN_EXE_floodmark");

fn disk(flags: &[&str], server: &[&str]) -> Output {
    let fixed = ["disk", "--check", "sequence", "--quiet"];
    run(&[&fixed, flags, &["--"], server].concat())
}

fn dispatcher() -> Vec<&'static str> {
    let words = "serve dispatcher --threads 1 --listen {address} --state {run}/state --reserve 8";
    [FLOODMARK].into_iter().chain(words.split(' ')).collect()
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn the_dispatcher_repeats_no_number_and_stops_after_an_error() {
    let flags = ["--json", "--images", "200", "--images-per-error", "20"];
    let output = disk(&flags, &dispatcher());
    let result = result(&output);
    assert_eq!(code(&output), 0, "{result:?}");
    assert!(result.is_complete);
    let row = &result.rows[0];
    assert_eq!((row.acknowledged, row.images), (400, 200));
    assert!(row.recovered > 150 && row.distinct > 50, "{row:?}");
    assert!(result.rows.len() > 5, "{result:?}");
    let errors = result.rows.iter();
    let after: Vec<u64> = errors
        .filter_map(|row| row.acknowledged_after_error)
        .collect();
    assert!(after.len() >= 5, "{result:?}");
    // The numbers of two earlier blocks are durable.
    assert!(after.iter().all(|after| *after <= 16), "{result:?}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn rejects_a_server_that_does_not_use_its_directory() {
    // The shell ignores {run}.
    let script = r#"exec "$0" serve dispatcher --threads 1 --listen "$1""#;
    let server = ["sh", "-c", script, FLOODMARK, "{address}", "{run}"];
    let output = disk(&["--images", "40"], &server);
    assert_eq!(code(&output), 3);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("the server wrote no file in {run}"),
        "{printed}"
    );
}

/// Entry point of a server that is traced: a dispatcher that stores its last number in place.
#[test]
#[ignore = "runs as the server of the other tests"]
fn faulty_dispatcher() {
    run_server(open, serve);
}

fn open(directory: &str) -> (u64, File) {
    let open = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(format!("{directory}/last"));
    let mut file = open.unwrap();
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    (content.try_into().map_or(0, u64::from_ne_bytes), file)
}

fn serve(mut client: TcpStream, state: &Mutex<(u64, File)>, method: &str) {
    let mut request = [0; 1024];
    while client.read(&mut request).unwrap_or(0) > 0 {
        let mut state = state.lock().unwrap();
        state.0 += 1;
        match (method, state.0) {
            ("exit", 10) => std::process::exit(7),
            ("kill", 10) => signal(process::id(), libc::SIGKILL),
            _ => {}
        }
        let (number, file) = &*state;
        let body = number.to_string();
        let length = body.len();
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}");
        if method == "early-response" {
            client.write_all(response.as_bytes()).unwrap();
        }
        file.write_all_at(&number.to_ne_bytes(), 0).unwrap();
        sync(file, method);
        if method != "early-response" {
            client.write_all(response.as_bytes()).unwrap();
        }
    }
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn names_a_server_that_exits_before_the_power_loss() {
    for (method, status) in [("exit", "exit status: 7"), ("kill", "signal: 9 (SIGKILL)")] {
        let server = server_command("disk::faulty_dispatcher", method);
        let server = Vec::from_iter(server.iter().map(String::as_str));
        let output = disk(&["-n", "60", "-c", "1"], &server);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 3, "{printed}");
        let expected = format!("the server exited ({status}) after 9 of 60 requests");
        assert!(printed.contains(&expected), "{printed}");
        assert!(log(&printed).contains("running 1 test"), "{printed}");
    }
}

/// Returns the content of the log that a message names at its end, and removes the log.
fn log(message: &str) -> String {
    let (_, path) = message.trim().rsplit_once(" output in ").unwrap();
    let content = fs::read_to_string(path).unwrap();
    fs::remove_file(path).unwrap();
    content
}

fn run_faulty(method: &str) -> (i32, Vec<DiskRow>) {
    let server = server_command("disk::faulty_dispatcher", method);
    let server = Vec::from_iter(server.iter().map(String::as_str));
    let flags = ["--json", "-n", "60", "-c", "2", "--images", "120"];
    let flags = [&flags[..], &["--images-per-error", "30"]].concat();
    let output = disk(&flags, &server);
    (code(&output), result(&output).rows)
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn passes_a_correct_dispatcher() {
    let (code, rows) = run_faulty("durable");
    assert_eq!((code, failed(&rows)), (0, vec![]), "{rows:?}");
    // SIGTERM can end the server before its last sends return.
    assert!((58..=60).contains(&rows[0].acknowledged), "{rows:?}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn finds_each_faulty_dispatcher() {
    for method in ["early-response", "no-sync"] {
        let (code, rows) = run_faulty(method);
        assert_eq!((code, failed(&rows)[0]), (1, "power loss"), "{method}");
    }
    let (code, rows) = run_faulty("ignored-error");
    let failed = failed(&rows);
    assert_eq!(code, 1);
    assert!(!failed.contains(&"power loss"), "{failed:?}");
    assert!(
        failed.iter().any(|name| name.starts_with("EIO from sync")),
        "{failed:?}"
    );
    let after = rows.iter().filter_map(|row| row.acknowledged_after_error);
    assert!(after.sum::<u64>() > 0, "{rows:?}");
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn rejects_a_test_that_proves_nothing() {
    let script = r#"! [ -e "$0/last" ] || { echo "error: not empty" >&2; exit 1; }; exec "$@""#;
    let server = server_command("disk::faulty_dispatcher", "durable");
    let server = server.iter().map(String::as_str);
    let refuses = Vec::from_iter(["sh", "-c", script, "{run}"].into_iter().chain(server));
    // The lock file remains after a crash. The server removes it only at SIGTERM.
    let script = r#"[ -e "$0/lock" ] && { echo "error: locked" >&2; exit 1; }; : >"$0/lock";
        trap 'rm "$0/lock"; kill $!; exit' TERM; "$@" & wait"#;
    let server = server_command("disk::faulty_dispatcher", "durable");
    let server = server.iter().map(String::as_str);
    let locks = Vec::from_iter(["sh", "-c", script, "{run}"].into_iter().chain(server));
    let elsewhere = tempfile::tempdir().unwrap();
    let script = r#"echo >"$0/log"; exec "$1" serve dispatcher --listen "$2" --state "$3/state""#;
    let directory = elsewhere.path().to_str().unwrap();
    let stores = [
        "sh",
        "-c",
        script,
        "{run}",
        FLOODMARK,
        "{address}",
        directory,
    ];
    for (server, expected) in [
        (
            &refuses[..],
            "own complete directory: error: not empty; check",
        ),
        (&locks[..], "own complete directory: error: locked; check"),
        (&stores[..], "even from a directory that lacks its writes"),
    ] {
        let output = disk(&["-n", "20"], server);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 3, "{printed}");
        assert!(printed.contains(expected), "{printed}");
    }
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn names_a_full_directory() {
    // Exits without an error message.
    let script = "head -c 2048 /dev/zero >\"$0/data\" 2>&1 || exit 1";
    let server = ["--", "sh", "-c", script, "{run}", "{port}"];
    let mut command =
        floodmark(&[&["disk", "--check", "sequence", "--quiet"], &server[..]].concat());
    let output = finish(full_disk(&mut command).spawn().unwrap());
    let printed = text(&output.stderr);
    assert_eq!(code(&output), 5, "{printed}");
    let expected = "cannot write to the directory for disk states: File too large";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
fn rejects_a_command_without_directory_or_address() {
    for (server, missing) in [
        (["./server", "{address}"], "{run} is missing"),
        (["./server", "{run}"], "{address} or {port} is missing"),
    ] {
        let output = disk(&[], &server);
        assert_eq!(code(&output), 2);
        let printed = text(&output.stderr);
        assert!(printed.contains(missing), "{printed}");
    }
}

#[test]
#[cfg_attr(not(can_trace), ignore = "this host does not allow ptrace")]
fn explains_a_server_that_does_not_start_or_acknowledges_nothing() {
    let output = disk(&[], &["no-such-server", "{run}", "{port}"]);
    assert_eq!(code(&output), 3);
    let printed = text(&output.stderr);
    assert!(printed.contains("cannot start no-such-server"), "{printed}");
    let server = ["sh", "-c", "echo no disk >&2; exit 1", "{run}", "{port}"];
    let output = disk(&[], &server);
    assert_eq!(code(&output), 3);
    let printed = text(&output.stderr);
    let expected = "exited during startup (exit status: 1): \"no disk\"; check its command";
    assert!(printed.contains(expected), "{printed}");
    assert_eq!(log(&printed), "no disk\n");
    let output = disk(&[], &[&dispatcher()[..], &["--bogus"]].concat());
    let printed = text(&output.stderr);
    let expected = "(exit status: 2): \"error: unexpected argument '--bogus' found\"; check";
    assert!(printed.contains(expected), "{printed}");
    assert!(log(&printed).contains("--help"), "{printed}");
    let output = disk(&["--path", "/missing"], &dispatcher());
    assert_eq!(code(&output), 3);
    let printed = text(&output.stderr);
    assert!(
        printed.contains("no response to /missing contained a number"),
        "{printed}"
    );
}
