//! The loads to measure. The experiments run floodmark as an external client inside a wrapper
//! program.

use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark_record::Run;

use crate::bench::{Bench, Failure};
use crate::experiment::{HTTPS, KEPT, NginxLoad, Setup, TrialSetup, own_run};

/// Maximum time of a run, including runs under Valgrind.
const MAX_RUN_TIME: Duration = Duration::from_secs(180);

/// Values of `--backend` to measure.
pub const BACKENDS: [&str; 2] = ["uring", "epoll"];

/// HTTPS with one handshake per request.
pub const HTTPS_FRESH: NginxLoad = NginxLoad {
    name: "HTTPS fresh",
    fresh: true,
    ..HTTPS
};
/// Fixed rate at which the load thread is mostly idle.
pub const RATE: NginxLoad = NginxLoad {
    name: "5,000/s",
    rate: Some(5_000),
    ..KEPT
};
/// Two load threads.
pub const TWO_THREADS: NginxLoad = NginxLoad {
    name: "kept, 2 threads",
    threads: 2,
    ..KEPT
};

/// A load and its backend.
#[derive(Debug, Clone)]
pub struct Variant {
    /// The load.
    pub load: NginxLoad,
    /// The backend.
    pub backend: &'static str,
    /// Number of requests; `None` to run for the experiment's duration.
    pub requests: Option<u64>,
    /// CPU placement, as the content of the manifest's table `place`; may be empty.
    pub place: &'static str,
    /// Wrapper command, with a trailing space.
    pub wrapper: String,
}

/// A run of a variant.
pub struct VariantRun {
    /// The run as recorded by `floodmark run`, with the CPU time of the whole process tree.
    pub outer: Run,
    /// The same run as recorded by the `floodmark` process that sent the load.
    pub own: Run,
}

/// The runs of a variant, and the directory of its client.
pub struct VariantRuns {
    /// Successful runs.
    pub runs: Vec<VariantRun>,
    /// Working directory of the client.
    pub directory: PathBuf,
}

impl Variant {
    /// Creates a variant for each combination of load and backend, without CPU placement.
    pub fn all(loads: &[NginxLoad], wrapper: &str) -> Vec<Self> {
        let variant = |load: &NginxLoad, backend| Variant {
            load: *load,
            backend,
            requests: None,
            place: "",
            wrapper: wrapper.to_owned(),
        };
        let backends = |load| BACKENDS.map(|backend| variant(load, backend));
        loads.iter().flat_map(backends).collect()
    }

    /// Returns the names of the load and the backend, as shown on the page.
    pub fn name(&self) -> String {
        format!("{}, {}", self.load.name, self.backend)
    }

    fn trial(&self, bench: &Bench, index: usize) -> Result<TrialSetup, Failure> {
        let mut keys = self.load.keys();
        keys.extend(self.requests.map(|n| format!("requests = {n}")));
        let (server, keys) = (self.load.server(), keys.join(", "));
        let mut lines = format!("{server}\nload = {{ {keys} }}");
        if !self.place.is_empty() {
            lines.push_str(&format!("\nplace = {{ {} }}", self.place));
        }
        Ok(TrialSetup {
            name: format!("v{index}"),
            lines,
            client: self.load.floodmark(bench, self.backend, &self.wrapper)?,
        })
    }
}

/// Measures all variants in `rounds` rounds. Each variant runs for `seconds` per round. Files are
/// written to a new `directory`.
pub fn measure(
    bench: &Bench,
    variants: &[Variant],
    rounds: usize,
    seconds: u64,
    directory: &Path,
) -> Result<Vec<VariantRuns>, Failure> {
    let trials = variants.iter().enumerate();
    let trials: Result<_, Failure> = trials.map(|(i, variant)| variant.trial(bench, i)).collect();
    let setup = Setup {
        question: "How much CPU time does each request take?",
        sections: format!(
            "[load]\nconnections = 100\nduration = \"{seconds}s\"\n[place]\nprocesses = {rounds}"
        ),
        trials: trials?,
    };
    let limit = MAX_RUN_TIME * u32::try_from(variants.len() * rounds)?;
    let record = setup.run(bench, directory, &[], limit)?;
    let runs = setup.trials.iter().map(|trial| {
        let runs = record.runs_of(&trial.name).filter_map(|outer| {
            let own = own_run(&directory.join("result"), outer)?;
            let outer = outer.clone();
            (own.requests.ok > 0).then_some(VariantRun { outer, own })
        });
        VariantRuns {
            runs: runs.collect(),
            directory: directory.join("clients").join(&trial.name),
        }
    });
    Ok(runs.collect())
}
