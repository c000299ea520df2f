//! Tests of experiments that compare trials, and of claims.

use floodmark_record::comparison::{ComparedMetric, Conclusion, Holds};

use super::{ExperimentDirectory, NATIVE, finish};
use crate::support::{code, floodmark, text};

/// Returns an experiment with two trials of the native server at 20 requests per second. The
/// throughputs differ only if a load ends with a pause of 50 ms, the time between two requests.
fn twice(claims: &str) -> ExperimentDirectory {
    let other = NATIVE.replace("[[trial]]", "[[trial]]\nname = \"again\"");
    ExperimentDirectory::new(&format!(
        "question = \"The same?\"\n[load]\nconnections = 4\nrate = 20\nduration = \"600ms\"\n[place]\nprocesses = 2\n{NATIVE}{other}{claims}"
    ))
}

#[test]
fn compares_two_trials_with_the_same_load() {
    let lab = twice(
        "[[trial]]\nname = \"fresh\"\nsystem = \"native\"\nworkload = \"hello\"\nload = { fresh = true }\n",
    );
    let (code_of_run, record, printed) = lab.run(&[]);
    assert_eq!(code_of_run, 0, "{printed}");
    // Loads have no capacity.
    assert_eq!(record.comparisons.len(), ComparedMetric::ALL.len() - 1);
    for of in &record.comparisons {
        assert_eq!(
            (of.baseline.as_str(), of.candidate.as_str()),
            ("native", "again")
        );
    }
    if code_of_run == 0 {
        let throughput = &record.comparisons[0];
        // Both trials met the offered rate.
        assert_eq!(
            throughput.conclusion,
            Conclusion::Equivalent,
            "{throughput:?}"
        );
        assert_eq!(throughput.figures_candidate.processes, 2);
        assert!(
            printed.contains("times that of native (95 % interval: ")
                && printed.contains("equivalent within 2 %"),
            "{printed}"
        );
        let output = finish(
            floodmark(&["compare", &lab.of("again"), &lab.of("fresh")])
                .spawn()
                .unwrap(),
        );
        assert_eq!(code(&output), 0, "{}", text(&output.stderr));
        let table = text(&output.stdout);
        assert!(
            table.contains("differs") && table.contains("connection use: kept in"),
            "{table}"
        );
    }
    let report = finish(
        floodmark(&["report", lab.result().to_str().unwrap()])
            .spawn()
            .unwrap(),
    );
    assert!(
        text(&report.stdout).contains("ratio = again ÷ native"),
        "{report:?}"
    );
}

#[test]
fn evaluates_claims_and_fails_if_requested() {
    let claim = |published: &str| {
        format!(
            "[[claim]]\ntext = \"c{published}\"\nratio = [\"again\", \"native\"]\npublished = {published}\n"
        )
    };
    let lab = twice(&(claim("1.0") + &claim("3")));
    let (code, record, printed) = lab.run(&["--fail-on-claims"]);
    let holds: Vec<Holds> = record.claims.iter().map(|claim| claim.holds).collect();
    assert_eq!(code, 1, "{printed}");
    assert_eq!(holds, [Holds::Yes, Holds::No], "{printed}");
    assert!(
        printed.contains(
            "claim \"c3\" does not hold (--fail-on-claims): published 3.000, tolerance 10 %"
        ),
        "{printed}"
    );
    std::fs::remove_dir_all(lab.result()).unwrap();
    let (code, _, printed) = lab.run(&[]);
    assert_eq!(code, 0, "{printed}");
    assert!(
        printed.contains("c3") && printed.contains("holds:"),
        "{printed}"
    );
}
