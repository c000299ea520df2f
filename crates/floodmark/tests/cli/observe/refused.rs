//! What cannot be observed, or not be put beside a load.

use std::fs;

use super::{Observe, named, observe, port};
use crate::support::{Serve, code, run, signal, text, wait_for};

#[test]
fn a_file_that_cannot_be_put_beside_the_load_is_refused_before_it() {
    let server = Serve::start(&["hello"]);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
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
        (".", "is no regular file"),
        ("empty", ":1: is empty"),
        ("other", ":1: is no file of floodmark observe"),
        ("version", ":1: is of version 7 of the format"),
        ("port", ":1: observes the server on port 9"),
        ("garbled", ":2: no line of floodmark observe"),
        ("twice", ":2: a second observation begins here"),
        ("ended", "the observation has ended (it was interrupted)"),
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
        let said = text(&output.stderr);
        assert_eq!(code(&output), 2, "{name}: {said}");
        assert!(
            said.contains(expected) && said.lines().count() == 1,
            "{name}: {said}"
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
fn what_cannot_be_observed_is_said_in_one_line() {
    let server = Serve::start(&["hello"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("f");
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = free.local_addr().unwrap().port().to_string();
    drop(free);
    let there = folder.path().join("there");
    fs::write(&there, "mine").unwrap();
    let nowhere = folder.path().join("no/folder");
    let ours = port(&server);
    for (expected, said, arguments) in [
        (
            3,
            "nothing listens on port",
            &["--port", &nobody, "--out", named(&file)][..],
        ),
        (
            3,
            "at 127.9.9.9 here",
            &[
                "--port",
                ours,
                "--address",
                "127.9.9.9",
                "--out",
                named(&file),
            ],
        ),
        (
            2,
            "exists already",
            &["--port", ours, "--out", named(&there)],
        ),
        (
            2,
            "in a folder that exists",
            &["--port", ours, "--out", named(&nowhere)],
        ),
        (
            2,
            "there is no such process",
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
        (2, "--out", &["--port", ours]),
    ] {
        let output = observe(arguments);
        assert_eq!(code(&output), expected, "{arguments:?} {output:?}");
        assert!(text(&output.stderr).contains(said), "{output:?}");
        assert!(!file.exists());
    }
    assert_eq!(fs::read_to_string(there).unwrap(), "mine");
}
