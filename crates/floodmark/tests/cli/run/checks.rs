//! Tests of experiments that check responses.

use super::ExperimentFolder;
use crate::scoring::SERVER;

/// Returns an experiment with a scoring server that has the given `fault`.
fn experiment(fault: &str, expect: &str) -> ExperimentFolder {
    let lab = ExperimentFolder::new(&format!(
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
            ("scoring", fault == "nothing"),
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
    assert!(
        record.runs[0].checks[0].held && !printed.contains("the check passed"),
        "{printed}"
    );
}
