//! Tests that records from earlier versions can still be opened and keep their verdicts.

use std::fs;
use std::path::{Path, PathBuf};

use floodmark_record::Record;
use serde_json::Value;

use super::support::{code, run, text};
use super::tables::rows;

/// Each record's name, and the verdicts (cause and confidence) from the version that wrote the
/// record.
const RECORDS: [(&str, &[&str]); 10] = [
    ("case-clean-rate-node", &["none (likely)"]),
    ("case-curl-loop-python", &["client-cpu (likely)"]),
    ("case-gc-java", &["gc (likely)", "gc (likely)"]),
    ("case-lock-2ms-python", &["unknown ", "serialised (likely)"]),
    (
        "case-ports-1000-python",
        &["server-cpu (likely)", "ephemeral-ports (likely)"],
    ),
    (
        "case-store-lock-10ms-python",
        &["connection-pool (likely)", "store-lock (likely)"],
    ),
    ("load-mix", &["shared-cpu (likely)", "shared-cpu (likely)"]),
    ("load-ramp", &["none (likely)"]),
    ("load-sequence", &["shared-cpu (likely)"]),
    ("load-steps", &["none (likely)"]),
];

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/records")
        .join(format!("{name}.json"))
}

#[test]
fn verdicts_stay_the_same_without_thread_states() {
    for (name, expected) in RECORDS {
        let output = run(&["why", path(name).to_str().unwrap()]);
        assert_eq!(code(&output), 0, "{name}: {output:?}");
        let stdout = text(&output.stdout);
        let verdicts: Vec<&str> = stdout
            .lines()
            .filter_map(|line| line.strip_prefix("why "))
            .map(str::trim_start)
            .collect();
        let same = verdicts.len() == expected.len()
            && verdicts
                .iter()
                .zip(expected)
                .all(|(verdict, expected)| verdict.starts_with(expected));
        assert!(same, "{name}: expected {expected:?}, got {verdicts:?}");
        let notes = stdout.matches("recorded without thread states").count();
        assert_eq!(notes, expected.len(), "{name}: {stdout}");
    }
}

#[test]
fn reports_render_and_keep_every_run() {
    let directory = tempfile::tempdir().unwrap();
    for (name, expected) in RECORDS {
        let page = directory.path().join(format!("{name}.html"));
        let copy = directory.path().join(format!("{name}.json"));
        let output = run(&[
            "report",
            path(name).to_str().unwrap(),
            "--html",
            page.to_str().unwrap(),
            "--json",
            copy.to_str().unwrap(),
        ]);
        assert_eq!(code(&output), 0, "{name}: {output:?}");
        let summary = run(&["report", path(name).to_str().unwrap()]);
        assert_eq!(code(&summary), 0, "{name}: {summary:?}");
        assert!(!summary.stdout.is_empty(), "{name}: no summary");
        assert!(fs::read_to_string(page).unwrap().contains("</html>"));
        let record: Record = serde_json::from_slice(&fs::read(copy).unwrap()).unwrap();
        assert_eq!(record.runs.len(), expected.len(), "{name}");
    }
}

#[test]
fn ratios_keep_their_baseline_and_candidate() {
    // Versions 1 and 2 called the candidate `a` and the baseline `b`.
    for name in ["case-gc-java", "case-lock-2ms-python"] {
        let path = path(name);
        let stored: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let stored = stored["comparisons"].as_array().unwrap();
        let ratios = rows(path.to_str().unwrap(), "ratios");
        assert!(!stored.is_empty() && ratios.len() == stored.len(), "{name}");
        for (old, ratio) in stored.iter().zip(&ratios) {
            assert_eq!(
                [&ratio["baseline"], &ratio["candidate"]],
                [&old["b"], &old["a"]]
            );
            for (column, side) in [("baseline", "figures_b"), ("candidate", "figures_a")] {
                let figure = &ratio[format!("figure_{column}")];
                assert_eq!(figure.as_f64(), old[side]["figure"].as_f64(), "{ratio}");
            }
        }
        let shown = text(&run(&["report", path.to_str().unwrap()]).stdout);
        let [candidate, baseline] = ["a", "b"].map(|key| stored[0][key].as_str().unwrap());
        assert!(
            shown.contains(&format!("ratio = {candidate} ÷ {baseline}")),
            "{shown}"
        );
    }
}

#[test]
fn a_record_compares_with_its_copy() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["load-mix", "load-sequence"] {
        let path = path(name);
        let copy = directory.path().join(format!("{name}.json"));
        fs::copy(&path, &copy).unwrap();
        let output = run(&["compare", path.to_str().unwrap(), copy.to_str().unwrap()]);
        assert_eq!(code(&output), 0, "{name}: {output:?}");
        assert!(text(&output.stdout).contains("throughput"), "{name}");
    }
}
