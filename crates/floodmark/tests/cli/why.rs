//! `floodmark why` on records of real loads.

use crate::support::{Serve, code, run, text};

#[test]
fn a_record_is_judged_the_same_each_time_and_what_is_none_is_refused() {
    let server = Serve::start(&["hello"]);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("result");
    let out = out.to_str().unwrap();
    let load = [
        "load",
        &server.url,
        "-r",
        "200",
        "-d",
        "1s",
        "--quiet",
        "--out",
        out,
    ];
    assert!(matches!(code(&run(&load)), 0 | 4));
    let judged = run(&["why", out]);
    assert_eq!(code(&judged), 0);
    let said = text(&judged.stdout);
    // All that was offered was answered, whatever else the machine did.
    assert!(said.contains("why          none (likely)"), "{said}");
    for label in ["evidence ", "next ", "not ", "requests ", "ceiling "] {
        assert!(
            said.lines().any(|line| line.starts_with(label)),
            "{label}: {said}"
        );
    }
    assert_eq!(said, text(&run(&["why", out]).stdout));
    let wrong = run(&["why", "/nowhere"]);
    assert_eq!((code(&wrong), text(&wrong.stderr).lines().count()), (2, 1));
}
