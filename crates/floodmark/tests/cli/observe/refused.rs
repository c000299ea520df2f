//! Tests of invalid uses of `floodmark observe` and `--with`.

use std::fs;

use super::{Observe, named, observe, port};
use crate::support::{Serve, code, run, signal, text, wait_for};

#[test]
fn refuses_an_unsuitable_file_before_the_load() {
    let server = Serve::start(&["hello"]);
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let ended = {
        let observe = Observe::start(&server);
        fs::copy(observe.file(), at("still")).unwrap();
        let file = observe.file();
        let kept = at("ended");
        signal(observe.child.as_ref().unwrap().id(), libc::SIGTERM);
        wait_for("its end", || {
            observe.text().contains("\"ended\"").then_some(())
        });
        fs::copy(file, &kept).unwrap();
        fs::read_to_string(kept).unwrap()
    };
    fs::write(at("port"), ended.replacen(port(&server), "9", 9)).unwrap();
    fs::write(
        at("version"),
        ended.replacen("\"schema\":1", "\"schema\":7", 1),
    )
    .unwrap();
    let (first, _) = ended.split_once('\n').unwrap();
    fs::write(at("garbled"), format!("{first}\n{{}}\n")).unwrap();
    fs::write(at("twice"), format!("{first}\n{first}\n")).unwrap();
    fs::write(at("other"), "hello\n").unwrap();
    fs::write(at("empty"), "").unwrap();
    let cases = [
        ("absent", "name the file that floodmark observe writes"),
        (".", "not a regular file"),
        ("empty", ":1: the file is empty"),
        ("other", ":1: not a file written by floodmark observe"),
        ("version", ":1: format version 7 is not supported"),
        ("port", ":1: port 9 is observed"),
        ("garbled", ":2: not a line written by floodmark observe"),
        ("twice", ":2: the file contains a second observation"),
        ("ended", "the observation has ended (interrupted)"),
        ("still", "has not grown for 3 s"),
    ];
    let result = at("result");
    for (name, expected) in cases {
        let file = at(name);
        let output = run(&[
            "load",
            &server.url,
            "-n",
            "1",
            "--out",
            named(&result),
            "--with",
            named(&file),
        ]);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{name}: {printed}");
        assert!(
            printed.contains(expected) && printed.lines().count() == 1,
            "{name}: {printed}"
        );
        assert!(!result.exists(), "{name}");
    }
    for flags in [
        &["--no-watch"][..],
        &["--server-pid", "1"],
        &["--unix-socket", "x"],
    ] {
        let file = at("ended");
        let mut all = vec!["load", &server.url, "--with", named(&file)];
        all.extend_from_slice(flags);
        assert_eq!(code(&run(&all)), 2, "{flags:?}");
    }
}

#[test]
fn reports_observe_errors_in_one_line() {
    let server = Serve::start(&["hello"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("f");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap().port().to_string();
    drop(free);
    let there = directory.path().join("there");
    fs::write(&there, "mine").unwrap();
    let nowhere = directory.path().join("no/directory");
    let ours = port(&server);
    for (expected, printed, arguments) in [
        (
            3,
            "no process listens on port",
            &["--port", &nobody, "--out", named(&file)][..],
        ),
        (
            3,
            "at 127.9.9.9 in this network namespace",
            &[
                "--port",
                ours,
                "--address",
                "127.9.9.9",
                "--out",
                named(&file),
            ],
        ),
        (2, "file exists", &["--port", ours, "--out", named(&there)]),
        (
            2,
            "in an existing, writable directory",
            &["--port", ours, "--out", named(&nowhere)],
        ),
        (
            2,
            "no such process",
            &[
                "--port",
                ours,
                "--server-pid",
                "4194304",
                "--out",
                named(&file),
            ],
        ),
        (2, "--port", &["--port", "0", "--out", named(&file)]),
        (
            2,
            "--address x: not an IP address; use an address such as 127.0.0.1",
            &["--port", ours, "--address", "x", "--out", named(&file)],
        ),
        (2, "--out", &["--port", ours]),
    ] {
        let output = observe(arguments);
        assert_eq!(code(&output), expected, "{arguments:?} {output:?}");
        assert!(text(&output.stderr).contains(printed), "{output:?}");
        assert!(!file.exists());
    }
    assert_eq!(fs::read_to_string(there).unwrap(), "mine");
}
