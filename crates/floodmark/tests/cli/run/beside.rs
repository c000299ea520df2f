//! Trials beside each other, and claims.

use floodmark_record::comparison::{Conclusion, Holds, Metric};

use super::{Lab, NATIVE, finish};
use crate::support::{code, floodmark, text};

/// Two trials of the native server, with as much load as a second thread of it does not change: 200 requests a second.
fn twice(claims: &str) -> Lab {
    let other = NATIVE.replace("[[trial]]", "[[trial]]\nname = \"again\"");
    Lab::new(&format!(
        "question = \"The same?\"\n[load]\nconnections = 4\nrate = 200\nduration = \"300ms\"\n[place]\nprocesses = 2\n{NATIVE}{other}{claims}"
    ))
}

#[test]
fn two_trials_with_the_same_load_are_compared() {
    let lab = twice(
        "[[trial]]\nname = \"fresh\"\nsystem = \"native\"\nworkload = \"hello\"\nload = { fresh = true }\n",
    );
    let (code_of_run, record, said) = lab.run(&[]);
    assert!(matches!(code_of_run, 0 | 4), "{said}");
    assert_eq!(record.comparisons.len(), Metric::ALL.len());
    for of in &record.comparisons {
        assert_eq!((of.a.as_str(), of.b.as_str()), ("again", "native"));
    }
    if code_of_run == 0 {
        let throughput = &record.comparisons[0];
        // All that was asked for was answered, by both.
        assert_eq!(
            throughput.conclusion,
            Conclusion::Equivalent,
            "{throughput:?}"
        );
        assert_eq!(throughput.figures_a.processes, 2);
        assert!(
            said.contains("throughput of again and native is the same within 2 %"),
            "{said}"
        );
        let output = finish(
            floodmark(&["compare", &lab.of("again"), &lab.of("fresh")])
                .spawn()
                .unwrap(),
        );
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let table = text(&output.stdout);
        assert!(
            table.contains("unlike") && table.contains("connection use: kept in"),
            "{table}"
        );
    }
    let report = finish(
        floodmark(&["report", lab.result().to_str().unwrap()])
            .spawn()
            .unwrap(),
    );
    assert!(
        text(&report.stdout).contains("a = again, b = native"),
        "{report:?}"
    );
}

#[test]
fn claims_are_judged_and_fail_only_where_that_is_asked_for() {
    let claim = |published: &str| {
        format!(
            "[[claim]]\ntext = \"c{published}\"\nratio = [\"again\", \"native\"]\npublished = {published}\n"
        )
    };
    let lab = twice(&(claim("1.0") + &claim("3")));
    let (code, record, said) = lab.run(&["--fail-on-claims"]);
    let holds: Vec<Holds> = record.claims.iter().map(|claim| claim.holds).collect();
    // A busy machine can make any run invalid, which comes first, and takes its figures.
    if code != 4 {
        assert_eq!(code, 1, "{said}");
        assert_eq!(holds, [Holds::Yes, Holds::No], "{said}");
        assert!(
            said.contains(
                "the claim \"c3\" does not hold (--fail-on-claims): published 3.000, within 10 %"
            ),
            "{said}"
        );
    }
    std::fs::remove_dir_all(lab.result()).unwrap();
    let (code, _, said) = lab.run(&[]);
    assert!(matches!(code, 0 | 4), "{said}");
    assert!(said.contains("c3") && said.contains("holds:"), "{said}");
}
