//! Tests of metrics that an experiment exports.

use super::{ExperimentDirectory, NATIVE};
use crate::export::Collector;

#[test]
fn each_trial_has_its_own_series() {
    let trial = |name: &str| format!("{NATIVE}name = \"{name}\"\n");
    let trials = trial("a") + &trial("b");
    let lab = ExperimentDirectory::new(&format!(
        "question = \"Which?\"\n[load]\nconnections = 2\nduration = \"1s\"\n[place]\nprocesses = 1\n{trials}"
    ));
    let collector = Collector::start();
    let (code, record, printed) = lab.run(&["--otlp", &collector.url]);
    assert_eq!(code, 0, "{printed}");
    let points = collector.last("floodmark.requests");
    assert_eq!(record.runs.len(), 2);
    for run in &record.runs {
        let trial = run.trial.as_deref().unwrap();
        let of_trial = points.iter().find(|(attributes, _)| {
            attributes["floodmark.outcome"] == "ok" && attributes["floodmark.trial"] == trial
        });
        let (attributes, ok) = of_trial.unwrap();
        assert_eq!(*ok, run.requests.ok as f64);
        assert_eq!(attributes["floodmark.workload"], "hello");
    }
}
