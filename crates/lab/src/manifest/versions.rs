//! An experiment that compares two versions of a server. It is defined by two commands instead of a
//! file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use floodmark_plan::LoadSpec;
use floodmark_plan::spec::Warmup;
use floodmark_plan::toml_file::Located;
use floodmark_record::comparison::ComparedMetric;
use floodmark_record::experiment::ExperimentDescription;
use floodmark_record::gate::GateRules;

use super::experiment::{Experiment, names};
use super::modes::{metric_refusal, obstacle};
use super::place::TrialPlacement;
use super::program::{
    CommandWords, ManifestPackage, Program, ReadyPath, Start, UrlScheme, is_path,
};
use super::system::System;
use super::trial::Trial;
use crate::experiment::AUTO_WARMUP;

/// Placeholders in the command of a version.
const PLACEHOLDERS: [&str; 5] = ["host", "port", "threads", "run", "floodmark"];

/// Two versions of a server, and how to compare them.
#[derive(Debug, Clone)]
pub struct VersionComparison {
    /// Command that starts the baseline.
    pub baseline: CommandWords,
    /// Command that starts the candidate.
    pub candidate: CommandWords,
    /// Path to request.
    pub path: String,
    /// Load for both versions. Without a warm-up, a share of the duration is used.
    pub load: LoadSpec,
    /// Metric to compare.
    pub metric: ComparedMetric,
    /// Smallest difference to find, as a share of the baseline's figure.
    pub margin: f64,
    /// Time limit.
    pub budget: Duration,
}

impl CommandWords {
    /// Parses the command of a version.
    ///
    /// # Errors
    /// The command is not a valid command line, contains an unknown placeholder, or does not
    /// contain {port}.
    pub fn of_version(command: &str) -> Result<Self, String> {
        let words = CommandWords::try_from(command.to_owned())?;
        words.check(&PLACEHOLDERS)?;
        if !words.uses("port") {
            return Err(
                "the command does not contain {port}; add {port} where the server expects its port"
                    .to_owned(),
            );
        }
        Ok(words)
    }
}

/// Parses a request path.
///
/// # Errors
/// The text does not start with `/`, or contains spaces or characters other than ASCII.
pub fn request_path(text: &str) -> Result<String, String> {
    if is_path(text) {
        return Ok(text.to_owned());
    }
    Err(
        "invalid path; start it with / and percent-encode spaces and non-ASCII characters"
            .to_owned(),
    )
}

impl Experiment {
    /// Returns an experiment that compares two versions.
    ///
    /// # Errors
    /// The metric cannot be compared under this load.
    pub fn of_versions(versions: VersionComparison) -> Result<Self, String> {
        let mut load = versions.load;
        // `auto` selects the steady part of a run, but a short run may have none.
        let warmup = load
            .duration
            .map(|length| Warmup::Before(length.mul_f64(AUTO_WARMUP)));
        load.warmup = load.warmup.or(warmup);
        let trials = Vec::from([
            trial("baseline", versions.baseline, &versions.path, &load),
            trial("candidate", versions.candidate, &versions.path, &load),
        ]);
        let metric = versions.metric;
        if let Some(what) = metric_refusal(metric, &trials[0]) {
            return Err(format!("--metric {metric}: {what}"));
        }
        let gate = GateRules {
            baseline: trials[0].name.clone(),
            candidate: trials[1].name.clone(),
            metric,
            margin: versions.margin,
            budget_s: versions.budget.as_secs_f64(),
            is_alternating: obstacle(metric, &trials).is_none(),
            is_two_sided: true,
        };
        Ok(Experiment {
            description: ExperimentDescription {
                name: "compare".to_owned(),
                question: "Do the two versions differ?".to_owned(),
                trials: names(&trials),
                processes: 1,
                gate: Some(gate),
                ..ExperimentDescription::default()
            },
            trials,
            prove: false,
            capacity: None,
            abort_if: Vec::new(),
        })
    }
}

/// Returns the trial of one version. `name` is also the name of its flag.
fn trial(name: &str, command: CommandWords, path: &str, load: &LoadSpec) -> Trial {
    let package = ManifestPackage {
        name: name.to_owned(),
        directory: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
        needs: Vec::new(),
        build: None,
    };
    let start = Start {
        command: Located::outside_file(command),
        files: Vec::new(),
        ready: Some(ReadyPath(path.to_owned())),
        scheme: UrlScheme::Http,
        ready_within: None,
        stop_within: None,
    };
    Trial {
        name: name.to_owned(),
        place: format!("--{name}"),
        server: Arc::new(System {
            program: Program {
                package,
                start,
                knobs: Default::default(),
            },
            workloads: Vec::new(),
            runtime: None,
            errors: Vec::new(),
        }),
        port: None,
        workload: None,
        path: path.to_owned(),
        ready: Some(path.to_owned()),
        setting: Default::default(),
        load: load.clone(),
        at: TrialPlacement::default(),
        client: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::units::Rate;

    fn versions(load: LoadSpec, metric: ComparedMetric) -> VersionComparison {
        let command = |text| CommandWords::of_version(text).unwrap();
        VersionComparison {
            baseline: command("./old --port {port}"),
            candidate: command("./new --port {port}"),
            path: "/items".to_owned(),
            load,
            metric,
            margin: 0.05,
            budget: Duration::from_secs(180),
        }
    }

    #[test]
    fn compares_both_versions_under_the_same_load() {
        let load = LoadSpec {
            connections: Some(16),
            ..LoadSpec::default()
        };
        let versions = versions(load, ComparedMetric::Throughput);
        let experiment = Experiment::of_versions(versions).unwrap();
        let rules = experiment.description.gate.unwrap();
        assert!(rules.is_alternating && rules.is_two_sided);
        let [baseline, candidate] = &experiment.trials[..] else {
            panic!("{:?}", experiment.trials);
        };
        assert_eq!(
            (&*rules.baseline, &*baseline.name),
            ("baseline", "baseline")
        );
        assert_eq!(
            candidate.server.start.command[..],
            ["./new", "--port", "{port}"]
        );
        assert_eq!(
            (&*candidate.path, candidate.load.connections),
            ("/items", Some(16))
        );
    }

    #[test]
    fn measures_one_version_after_the_other_at_a_rate() {
        let load = LoadSpec {
            rate: Rate::new(100.0),
            ..LoadSpec::default()
        };
        let p99 = versions(load.clone(), ComparedMetric::P99);
        let experiment = Experiment::of_versions(p99).unwrap();
        assert!(!experiment.description.gate.unwrap().is_alternating);
        let error = Experiment::of_versions(versions(load, ComparedMetric::Throughput));
        let error = error.unwrap_err();
        assert!(
            error.starts_with("--metric throughput: at a fixed rate"),
            "{error}"
        );
    }

    #[test]
    fn alternates_only_if_turns_have_the_figure() {
        use floodmark_record::gate::SideFigures;
        use floodmark_record::outcome::Counts;
        use floodmark_record::times::Times;

        let times = || Times {
            p50: Some(1.0),
            p99: Some(2.0),
            ..Times::default()
        };
        let turns = SideFigures {
            loaded_s: 1.0,
            requests: Counts {
                ok: 10,
                ..Counts::default()
            },
            good: 10,
            response_us: times(),
            service_us: times(),
        };
        for metric in ComparedMetric::ALL {
            let versions = versions(LoadSpec::default(), metric);
            if let Ok(experiment) = Experiment::of_versions(versions) {
                let is_alternating = experiment.description.gate.unwrap().is_alternating;
                assert_eq!(is_alternating, turns.figure(metric).is_some(), "{metric}");
            }
        }
    }

    #[test]
    fn rejects_commands_that_cannot_start() {
        for (command, words) in [
            ("", "the command is empty"),
            ("./new 'a {port}", "unclosed quote"),
            ("./new 8080", "add {port} where the server expects its port"),
            ("./new {prot}", "did you mean \"port\"?"),
            ("./new {port} {store}", "unknown placeholder {store}"),
        ] {
            let error = CommandWords::of_version(command).unwrap_err();
            assert!(error.contains(words), "{command}: {error}");
        }
        assert!(request_path("items").is_err() && request_path("/a b").is_err());
        assert_eq!(request_path("/a?b=1").as_deref(), Ok("/a?b=1"));
    }
}
