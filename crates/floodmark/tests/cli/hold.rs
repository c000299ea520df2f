//! Tests of held connections and of limits on open files.

use std::io::{BufRead, BufReader};
use std::process::Command;

use floodmark_load::backend::uring::Uring;
use floodmark_record::run::Connections;

use crate::support::{
    Load, Serve, code, finish, floodmark, limited, load, run, start_load_as, text,
};

/// Runs `floodmark load` with the given limits on open files.
fn load_with_files(url: &str, arguments: &[&str], (soft, hard): (u64, u64)) -> Load {
    let with = |command: &mut Command| limited(command, soft, hard);
    start_load_as(url, arguments, with).end()
}

/// Runs `floodmark load` with a hard limit on open files. Returns the error message.
fn refused_with_files(url: &str, arguments: &[&str], hard: u64) -> String {
    let mut all = vec!["load", url];
    all.extend_from_slice(arguments);
    let mut command = floodmark(&all);
    limited(&mut command, hard, hard);
    let output = finish(command.spawn().unwrap());
    let message = text(&output.stderr);
    assert_eq!(code(&output), 2, "{message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(message.contains("--anyway"), "{message}");
    message
}

fn uring_works() -> bool {
    Uring::probe(1).is_ok()
}

fn connections(load: &Load) -> &Connections {
    &load.run().connections
}

#[test]
fn holds_connections_for_the_whole_run() {
    let server = Serve::start(&["hello"]);
    for backend in ["epoll", "auto"] {
        let load = load(
            &server.url,
            &[
                "-c",
                "200",
                "-t",
                "2",
                "--rate",
                "500",
                "-n",
                "300",
                "--hold",
                "--backend",
                backend,
            ],
        );
        load.ends_with(0);
        assert!(load.run().plan.hold());
        assert_eq!(load.counts().ok, 300);
        assert_eq!(
            (connections(&load).opened, connections(&load).peak),
            (200, Some(200))
        );
        let held = connections(&load).held.clone().unwrap();
        assert_eq!((held.standing, held.failed), (200, 0));
        assert_eq!((held.lost, held.reopened), (0, 0));
        let message = load.stderr();
        assert!(message.contains("200 held connections"), "{message}");
        assert!(message.contains("200 of 200 connections open"), "{message}");
    }
}

#[test]
fn reopens_idle_connections_that_the_server_closes() {
    let server = Serve::start(&["hello", "--idle", "1s"]);
    let load = load(
        &server.url,
        &["-c", "20", "--rate", "1", "-d", "5s", "--hold"],
    );
    load.ends_with(0);
    assert_eq!(load.counts().ok, 5);
    let held = connections(&load).held.clone().unwrap();
    assert!(held.lost >= 20 && held.reopened >= 20, "{held:?}");
    assert_eq!(connections(&load).peak, Some(20));
    let message = load
        .stderr()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(message.contains("raise its idle timeout"), "{message}");
}

#[test]
fn fails_immediately_if_no_held_connection_opens() {
    let mut server = Serve::start(&["hello"]);
    server.kill();
    let load = load(
        &server.url,
        &["-c", "50k", "-t", "4", "--rate", "10", "--hold", "--anyway"],
    );
    assert_eq!(load.code(), 3, "{}", load.stderr());
    assert!(load.run().sending_s < 5.0);
    let held = connections(&load).held.clone().unwrap();
    assert!(held.standing == 0 && held.failed > 0, "{held:?}");
}

#[test]
fn raises_the_soft_limit_as_needed() {
    let server = Serve::start(&["hello"]);
    let arguments = ["-c", "300", "-n", "600", "--backend", "epoll"];
    let load = load_with_files(&server.url, &arguments, (100, 5_000));
    load.ends_with(0);
    assert_eq!(connections(&load).peak, Some(300));
    assert_eq!(connections(&load).fd_limit_before, Some(100));
    assert_eq!(connections(&load).fd_limit, Some(364));
}

#[test]
fn refuses_a_hard_limit_that_is_too_low() {
    let server = Serve::start(&["hello"]);
    let arguments = ["-c", "300", "-n", "600", "--backend", "epoll"];
    let message = refused_with_files(&server.url, &arguments, 200);
    for word in ["300 connections need 364", "200", "ulimit -n 364", "-c 136"] {
        assert!(message.contains(word), "{word}: {message}");
    }
    let anyway = [&arguments[..], &["--anyway"]].concat();
    let load = load_with_files(&server.url, &anyway, (200, 200));
    assert!(
        load.run().errors["fds_exhausted"] > 0,
        "{:?}",
        load.run().errors
    );
}

#[test]
fn io_uring_holds_more_connections_than_open_files() {
    if !uring_works() {
        return;
    }
    let server = Serve::start(&["hello"]);
    let arguments = ["-c", "300", "-n", "600", "--backend", "uring", "-t"];
    let message = refused_with_files(&server.url, &[&arguments[..], &["1"]].concat(), 200);
    for word in [
        "300 connections need 300 sockets",
        "200",
        "use -t 2",
        "-c 200",
    ] {
        assert!(message.contains(word), "{word}: {message}");
    }
    let load = load_with_files(&server.url, &[&arguments[..], &["2"]].concat(), (100, 200));
    load.ends_with(0);
    assert_eq!(
        (load.counts().ok, connections(&load).peak),
        (600, Some(300))
    );
    assert_eq!(connections(&load).fd_limit, Some(150));
}

#[test]
fn refuses_invalid_usage() {
    let url = "http://127.0.0.1:9/";
    for (arguments, words) in [
        (&["--hold", "-c", "10"][..], &["--hold", "--rate"][..]),
        (&["--hold", "--rate", "10"], &["--connections"]),
        (
            &["--hold", "-c", "9", "--rate", "10", "--fresh"],
            &["--fresh"],
        ),
        (
            &["--sources", "192.0.2.7-192.0.2.9"],
            &["--sources", "192.0.2.7", "127.0.0.2"],
        ),
    ] {
        let output = run(&[&["load", url][..], arguments].concat());
        let message = text(&output.stderr);
        assert_eq!(code(&output), 2, "{arguments:?}: {message}");
        for word in words {
            assert!(
                message.contains(word),
                "{arguments:?}: no {word:?} in: {message}"
            );
        }
    }
}

#[test]
fn servers_share_a_port_if_both_allow_it() {
    let arguments = ["hello", "--share-port", "--max-connections", "200"];
    let first = Serve::start(&arguments);
    let address = first.url.strip_prefix("http://").unwrap().to_owned();
    let second = Serve::start_on(&address, &arguments);
    assert_eq!(first.url, second.url);
    // The kernel distributes the 300 connections to the two servers by a hash: on average 150 each,
    // with a standard deviation of 9. A server at its limit would close connections.
    let load = load(&first.url, &["-c", "300", "-n", "1000"]);
    load.ends_with(0);
    assert_eq!((load.counts().ok, connections(&load).opened), (1000, 300));
    let alone = run(&["serve", "hello", "--listen", &address]);
    assert_eq!(code(&alone), 3, "{}", text(&alone.stderr));
    let numbers = run(&["serve", "dispatcher", "--listen", &address, "--share-port"]);
    let message = text(&numbers.stderr);
    assert_eq!(
        (code(&numbers), message.lines().count()),
        (2, 1),
        "{message}"
    );
    assert!(
        message.contains("dispatcher") && message.contains("--share-port"),
        "{message}"
    );
}

#[test]
fn a_server_with_few_open_files_serves_all_clients_in_turn() {
    let few = |command: &mut Command| limited(command, 1024, 1024);
    let server = Serve::start_as("127.0.0.1:0", &["hello"], few);
    for kind in [&[][..], &["--fresh"]] {
        let arguments = [&["-c", "2000", "-n", "20000"], kind].concat();
        let load = load(&server.url, &arguments);
        load.ends_with(0);
        assert_eq!(load.counts().ok, 20_000);
        assert_eq!(connections(&load).peak, Some(2_000));
    }
}

#[test]
fn a_server_raises_its_limit_with_a_note() {
    let arguments = [
        "serve",
        "hello",
        "--listen",
        "127.0.0.1:0",
        "--max-connections",
    ];
    let mut command = floodmark(&[&arguments[..], &["500"]].concat());
    limited(&mut command, 100, 5_000);
    let mut server = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(
        line.contains("raised the limit on open files from 100 to 564"),
        "{line}"
    );
    let mut command = floodmark(&[&arguments[..], &["5000"]].concat());
    limited(&mut command, 100, 5_000);
    let output = finish(command.spawn().unwrap());
    let message = text(&output.stderr);
    assert_eq!(
        (code(&output), message.lines().count()),
        (2, 1),
        "{message}"
    );
    assert!(message.contains("4936"), "{message}");
}
