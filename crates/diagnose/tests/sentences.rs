//! No judgment depends on the sentences in a record.

use std::fs;
use std::path::Path;

use floodmark_diagnose::validity::is_only_not_ok;
use floodmark_diagnose::{validity, why};
use floodmark_record::Record;
use floodmark_record::path::PathStep;
use floodmark_record::run::{Run, Status};
use floodmark_record::verdict::RuledOut;
use serde_json::Value;

/// Keys whose values are sentences, or lists of sentences.
const SENTENCES: [&str; 8] = [
    "basis", "evidence", "figure", "next", "notes", "summary", "text", "unseen",
];

/// Judges the runs of a record.
fn judge(record: &mut Record) {
    let environment = record.environment.clone();
    for run in &mut record.runs {
        run.verdict = why::verdict(run, &environment);
        run.validity = validity(run, run.client_cpus(environment.cpus), &[]);
    }
}

/// Replaces the sentences below a value.
fn blank(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(blank),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(text) if SENTENCES.contains(&&**key) => *text = "?".to_owned(),
                    Value::Array(texts) if SENTENCES.contains(&&**key) => {
                        texts
                            .iter_mut()
                            .filter(|text| text.is_string())
                            .for_each(|text| {
                                *text = "?".into();
                            });
                    }
                    value => blank(value),
                }
            }
        }
        _ => {}
    }
}

/// Returns everything that code decides by in a run's judgments.
fn decisions(run: &Run) -> String {
    let verdict = run.verdict.as_ref().map(|verdict| {
        let path: Vec<String> = verdict.path.iter().map(PathStep::key).collect();
        let excluded = |ruled_out: &RuledOut| ruled_out.cause;
        let excluded: Vec<_> = verdict.ruled_out.iter().map(excluded).collect();
        let limits = (
            verdict.limit_per_s,
            verdict.gain.as_ref().map(|gain| gain.high_per_s),
        );
        (
            verdict.cause,
            verdict.also.clone(),
            verdict.confidence,
            path,
            excluded,
            limits,
        )
    });
    format!(
        "{:?} {} {verdict:?}",
        run.validity.status,
        is_only_not_ok(run)
    )
}

#[test]
fn judgments_do_not_depend_on_sentences() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../floodmark/tests/records");
    let mut not_ok = 0;
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let mut record: Record = serde_json::from_str(&text).unwrap();
        // One run fails, so that the exit code depends on its reason.
        if let Some(run) = record.runs.first_mut() {
            run.requests.ok = 0;
        }
        judge(&mut record);
        let mut value = serde_json::to_value(&record).unwrap();
        blank(&mut value);
        let mut read: Record = serde_json::from_value(value).unwrap();
        for rejudged in [false, true] {
            if rejudged {
                judge(&mut read);
            }
            let pairs = record.runs.iter().zip(&read.runs);
            pairs.for_each(|(a, b)| assert_eq!(decisions(a), decisions(b)));
        }
        let is_not_ok = |run: &&Run| run.validity.status == Status::Invalid && is_only_not_ok(run);
        not_ok += record.runs.iter().filter(is_not_ok).count();
    }
    assert!(not_ok > 0);
}
