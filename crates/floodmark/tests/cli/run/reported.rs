//! Tests of the files and tables of an experiment.

use std::fs;

use super::{ExperimentDirectory, NATIVE};
use crate::junit;
use crate::support::{finish, floodmark, text};
use crate::tables::rows;

#[test]
fn files_and_tables_have_a_part_per_trial() {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"Which one?\"\n[load]\nconnections = 2\nduration = \"300ms\"\n\
         [place]\nprocesses = 2\n{NATIVE}\
         [[trial]]\nname = \"dies\"\ncommand = \"sh -c 'exit 3' {{port}}\"\nworkload = \"hello\"\n\
         [[claim]]\ntext = \"fast & <fair>\"\nmetric = \"throughput\"\ntrial = \"native\"\n\
         published = 1.0\nat = \"least\"\n"
    ));
    let experiment = lab.0.path().join("e.toml");
    let arguments = [
        "run",
        experiment.to_str().unwrap(),
        "--out",
        "result",
        "--csv",
        "x.csv",
        "--junit",
        "x.xml",
        "--github-summary",
    ];
    let mut command = floodmark(&arguments);
    command
        .current_dir(lab.0.path())
        .env("TMPDIR", lab.0.path().join("tmp"))
        .env("GITHUB_STEP_SUMMARY", "summary.md");
    let (code, record, printed) = lab.ended(command.spawn().unwrap());
    assert_eq!(code, 3, "{printed}");
    assert_eq!(record.failures, record.skipped);

    let in_directory = |name: &str| fs::read_to_string(lab.0.path().join(name)).unwrap();
    let xml = in_directory("x.xml");
    assert_eq!(
        junit::cases(&xml),
        [
            "native: measurement, process 1, attempt 1: passed",
            "native: measurement, process 2, attempt 1: passed",
            "dies: measurement: error",
            "claims: claim fast & <fair>: passed",
        ]
    );
    assert!(xml.contains("exit status: 3"), "{xml}");

    let csv = in_directory("x.csv");
    let processes = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(3).unwrap());
    assert!(csv.starts_with("system,workload,setting,process,"), "{csv}");
    assert_eq!(processes.collect::<Vec<_>>(), ["1", "2"], "{csv}");

    let summary = in_directory("summary.md");
    for part in [
        "\n## floodmark run\n\n**Which one?**\n",
        "\n| native | ",
        "fast \\& \\<fair\\>",
        "exit status: 3",
    ] {
        assert!(summary.contains(part), "no {part:?} in {summary}");
    }

    let result = lab.result();
    let result = result.to_str().unwrap();
    let runs = rows(result, "runs");
    let names = runs.iter().map(|row| (&row["trial"], &row["process"]));
    let names: Vec<String> = names.map(|(trial, n)| format!("{trial} {n}")).collect();
    assert_eq!(names, ["\"native\" 1", "\"native\" 2"]);
    assert_eq!(rows(result, "claims")[0]["holds"], "yes");
    assert_eq!(rows(result, "skipped")[0]["has_failed"], true);

    // The same files from the saved result.
    let mut report = floodmark(&["report", result, "--junit", "-"]);
    let later = finish(report.spawn().unwrap());
    assert_eq!(text(&later.stdout), xml);
}

#[test]
fn csv_of_crash_rounds_is_refused_before_the_start() {
    let lab = ExperimentDirectory::new(&format!(
        "question = \"?\"\n[load]\nconnections = 1\ncheck = \"sequence\"\n\
         [crash]\nrounds = 1\nat = \"200ms-300ms\"\n{}",
        NATIVE.replace("hello", "dispatcher")
    ));
    let output = finish(lab.start(&["--csv", "x.csv"]));
    let error = text(&output.stderr);
    assert_eq!(crate::support::code(&output), 2, "{error}");
    assert!(
        error.contains("--csv: the result has crash rounds but no runs")
            && error.lines().count() == 1,
        "{error}"
    );
    assert!(!lab.result().exists());
}
