//! Tests of experiments that check responses.

use super::{ExperimentDirectory, python};
use crate::scoring::SERVER;

/// Returns an experiment with a scoring server that has the given `fault`.
fn experiment(fault: &str, expect: &str) -> ExperimentDirectory {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 8\nrequests = 400\ncheck = \"scoring\"\n\
         [[trial]]\nname = \"scores\"\nworkload = \"scoring\"\ncommand = \"python3 server.py {fault} 0 {{port}}\"\n\
         ready = \"GET /\"\n{expect}"
    ));
    std::fs::write(lab.0.path().join("server.py"), SERVER).unwrap();
    lab
}

#[test]
fn a_failed_check_fails_the_experiment_unless_expected() {
    const VIOLATED: &str = "[expect]\ncheck = \"violated\"\n";
    for (fault, expect, right, words) in [
        ("nothing", "", 0, ""),
        (
            "unlocked",
            "",
            1,
            "check scoring failed: lost updates among 400",
        ),
        ("unlocked", VIOLATED, 0, ""),
        (
            "nothing",
            VIOLATED,
            1,
            "the check passed, but the experiment expects",
        ),
    ] {
        let (code, record, printed) = experiment(fault, expect).run(&[]);
        assert_eq!(code, right, "{printed}");
        assert!(printed.contains(words), "{fault} {expect}: {printed}");
        let check = &record.runs[0].checks[0];
        assert_eq!(
            (check.name.as_str(), check.held),
            ("scoring", Some(fault == "nothing")),
            "{}",
            check.detail
        );
        // The readiness probe submits one score.
        let first = check.detail.contains("2 to 401");
        assert!(first || fault == "unlocked", "{}", check.detail);
    }
}

#[test]
fn a_partial_run_expects_no_failed_check() {
    let lab = experiment("nothing", "[expect]\ncheck = \"violated\"\n");
    let (code, record, printed) = lab.run(&["--only", "scores"]);
    assert_eq!(code, 0, "{printed}");
    assert_eq!(record.runs[0].checks[0].held, Some(true));
    assert!(!printed.contains("the check passed"), "{printed}");
}

#[test]
fn a_check_that_is_not_evaluated_fails_the_experiment() {
    const CHECK: &str = "kind = \"register\"\nwrite = { method = \"GET\", path = \"/{seq}\" }\nread = { path = \"/\" }\n";
    let lab = ExperimentDirectory::new("");
    let trial = python(lab.0.path(), "");
    std::fs::write(lab.0.path().join("check.toml"), CHECK).unwrap();
    // The only request is a write, but the check needs reads.
    lab.write(&format!(
        "question = \"?\"\n[load]\nconnections = 1\nrequests = 1\ncheck = \"check.toml\"\n\
         {trial}\n[expect]\ncheck = \"violated\"\n"
    ));
    let (code, record, printed) = lab.run(&[]);
    assert_eq!(code, 1, "{printed}");
    assert_eq!(record.runs[0].checks[0].held, None);
    for words in [
        "register not evaluated in 1 of 1 run of ",
        "check register not evaluated: no read returned a value",
    ] {
        assert!(printed.contains(words), "{printed}");
    }
}
