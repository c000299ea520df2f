//! `check` in an experiment: what its answers are held against, and what becomes of it where they break it.

use super::Lab;
use crate::scoring::SERVER;

/// An experiment with a scoring server of one's own that does something wrong, or nothing.
fn experiment(fault: &str, expect: &str) -> Lab {
    let lab = Lab::new(&format!(
        "question = \"?\"\n[load]\nconnections = 8\nrequests = 400\ncheck = \"scoring\"\n\
         [[trial]]\nname = \"scores\"\nworkload = \"scoring\"\ncommand = \"python3 server.py {fault} 0 {{port}}\"\n\
         ready = \"GET /\"\n{expect}"
    ));
    std::fs::write(lab.0.path().join("server.py"), SERVER).unwrap();
    lab
}

#[test]
fn a_check_that_holds_is_fine_and_one_that_does_not_fails_unless_it_is_expected() {
    const VIOLATED: &str = "[expect]\ncheck = \"violated\"\n";
    for (fault, expect, right, words) in [
        ("nothing", "", 0, ""),
        ("unlocked", "", 1, "the check scoring does not hold: of 400"),
        ("unlocked", VIOLATED, 0, ""),
        (
            "nothing",
            VIOLATED,
            1,
            "the check holds, and the experiment expects",
        ),
    ] {
        let (code, record, said) = experiment(fault, expect).run(&[]);
        // A busy machine can make any run invalid, which goes before both.
        assert!(
            code == right || code == 4,
            "{fault} {expect}: {code} {said}"
        );
        assert!(
            code == 4 || said.contains(words),
            "{fault} {expect}: {said}"
        );
        let check = &record.runs[0].checks[0];
        assert_eq!(
            (check.name.as_str(), check.held),
            ("scoring", fault == "nothing"),
            "{}",
            check.detail
        );
        // The server is asked one score before it is measured.
        let first = check.detail.contains("2 to 401");
        assert!(first || fault == "unlocked", "{}", check.detail);
    }
}

#[test]
fn of_a_part_of_an_experiment_no_violation_is_expected() {
    let lab = experiment("nothing", "[expect]\ncheck = \"violated\"\n");
    let (code, record, said) = lab.run(&["--only", "scores"]);
    assert!(code == 0 || code == 4, "{code} {said}");
    assert!(
        record.runs[0].checks[0].held && !said.contains("the check holds"),
        "{said}"
    );
}
