//! The readings of a sampler: which sources are read, and how two readings become a value.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::sampler::Sampled;
use crate::series::{Kind, MOST_VALUES, Series, Subject};
use crate::{Root, cgroup, cpu, netstat, sockstat};

/// Counters of `/proc/net/netstat` that are kept as series.
const NETSTAT: [&str; 9] = [
    "ListenOverflows",
    "ListenDrops",
    "TCPReqQFullDrop",
    "TCPReqQFullDoCookies",
    "TCPSynRetrans",
    "TCPTimeouts",
    "TW",
    "TWRecycled",
    "TCPTimeWaitOverflow",
];

/// Counters of `/proc/net/snmp` that are kept as series.
const SNMP: [&str; 6] = [
    "ActiveOpens",
    "PassiveOpens",
    "AttemptFails",
    "EstabResets",
    "RetransSegs",
    "OutRsts",
];

/// One reading of a source: the value of each of its series, cumulative where it is a counter.
type Reading = io::Result<Vec<f64>>;

/// One place that is read, and the series that come of it.
struct Source {
    name: String,
    read: Box<dyn Fn() -> Reading>,
    series: Vec<Series>,
    last: Vec<f64>,
    /// Whether it could be read every time so far; afterwards it is left alone, as a gap would shift later values.
    alive: bool,
}

/// What a sampler has taken so far.
pub(crate) struct Samples {
    sources: Vec<Source>,
    missing: Vec<String>,
    step: Duration,
    /// When the last step ended by the clock.
    last_at: Instant,
    /// When the last reading was taken, at or after the end of its step.
    read_at: Instant,
    steps_done: usize,
}

impl Samples {
    pub(crate) fn new(step: Duration) -> Self {
        Self {
            sources: Vec::new(),
            missing: Vec::new(),
            step,
            last_at: Instant::now(),
            read_at: Instant::now(),
            steps_done: 0,
        }
    }

    /// When the next reading is due.
    pub(crate) fn next(&self) -> Instant {
        self.last_at + self.step
    }

    /// Takes the first reading, which counters are told against.
    pub(crate) fn open(&mut self, root: &Root) {
        self.last_at = Instant::now();
        self.read_at = self.last_at;
        self.open_network(root);
        let sockets = root.clone();
        self.add(
            "/proc/net/sockstat",
            vec![subject("network", "tw", "sockets", Kind::Level)],
            move || Ok(vec![sockstat::read(&sockets)?.time_wait as f64]),
        );
        let cpus = root.clone();
        self.add(
            "/proc/stat",
            vec![
                subject("host", "busy", "CPUs", Kind::Mean),
                subject("host", "interrupt", "CPUs", Kind::Mean),
                subject("host", "steal", "CPU-seconds", Kind::Increase),
            ],
            move || {
                let total = cpu::read_stat(&cpus)?.total;
                Ok(vec![total.busy_s(), total.interrupt_s, total.steal_s])
            },
        );
        let pressure = root.clone();
        self.add(
            "/proc/pressure/cpu",
            vec![subject("host", "some", "s", Kind::Increase)],
            move || Ok(vec![cpu::read_pressure(&pressure)?]),
        );
        self.open_cgroup(root);
    }

    fn open_network(&mut self, root: &Root) {
        let present = netstat::read(root).unwrap_or_default();
        for (file, names) in [
            ("/proc/net/netstat", &NETSTAT[..]),
            ("/proc/net/snmp", &SNMP[..]),
        ] {
            let (names, absent): (Vec<&'static str>, Vec<&'static str>) =
                names.iter().partition(|name| present.get(name).is_some());
            if !absent.is_empty() {
                self.missing
                    .push(format!("{file}: no {}", absent.join(", ")));
            }
            if names.is_empty() {
                continue;
            }
            let subjects = names
                .iter()
                .map(|name| subject("network", name, "count", Kind::Increase))
                .collect();
            let root = root.clone();
            self.add(file, subjects, move || {
                let text = root.read(file)?;
                // Each of the two texts has groups that the other has not, so one parser takes either alone.
                let counters = netstat::parse(&text, &text);
                names
                    .iter()
                    .map(|name| counters.get(name).map(|count| count as f64))
                    .collect::<Option<Vec<f64>>>()
                    .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a counter is gone"))
            });
        }
    }

    fn open_cgroup(&mut self, root: &Root) {
        let level: Option<PathBuf> =
            cgroup::group(root, "cpu").and_then(|group| group.throttled_level(root));
        let Some(level) = level else {
            self.missing
                .push("cpu.stat: no control group with throttling counters".to_owned());
            return;
        };
        let root = root.clone();
        self.add(
            &level.join("cpu.stat").display().to_string(),
            vec![
                subject("cgroup", "nr_throttled", "periods", Kind::Increase),
                subject("cgroup", "throttled_time", "s", Kind::Increase),
            ],
            move || {
                let throttling = cgroup::read_throttling(&root, &level)?;
                Ok(vec![throttling.throttled as f64, throttling.throttled_s])
            },
        );
    }

    fn add(&mut self, name: &str, subjects: Vec<Subject>, read: impl Fn() -> Reading + 'static) {
        match read() {
            Ok(last) => self.sources.push(Source {
                name: name.to_owned(),
                read: Box::new(read),
                series: subjects.into_iter().map(Series::new).collect(),
                last,
                alive: true,
            }),
            Err(error) => self.missing.push(format!("{name}: {error}")),
        }
    }

    /// Reads all sources at the end of a step, or of several where the sampler was kept from running.
    pub(crate) fn take(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.last_at);
        let mut steps = (elapsed.as_secs_f64() / self.step.as_secs_f64()).floor() as usize;
        if steps == 0 {
            return;
        }
        self.last_at += self.step * u32::try_from(steps).unwrap_or(u32::MAX);
        while self.steps_done + steps > MOST_VALUES {
            self.step *= 2;
            steps = steps.div_ceil(2);
            self.steps_done = self.steps_done.div_ceil(2);
            for series in self
                .sources
                .iter_mut()
                .flat_map(|source| &mut source.series)
            {
                series.halve();
            }
        }
        self.steps_done += steps;
        self.read(now, |series, value| series.push(value, steps));
    }

    /// Reads all sources at the end of the run, in the middle of a step: what is left of it is a value of its own, or joined to
    /// the one before where it is less than a fifth of a step.
    pub(crate) fn take_last(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.last_at);
        if self.steps_done == 0 || elapsed * 5 >= self.step {
            self.steps_done += 1;
            self.read(now, |series, value| series.push(value, 1));
        } else {
            self.read(now, Series::fold);
        }
    }

    fn read(&mut self, now: Instant, mut keep: impl FnMut(&mut Series, f64)) {
        let elapsed = now.saturating_duration_since(self.read_at);
        self.read_at = now;
        for source in self.sources.iter_mut().filter(|source| source.alive) {
            let now = match (source.read)() {
                Ok(now) => now,
                Err(error) => {
                    source.alive = false;
                    self.missing.push(format!(
                        "{}: could be read for the first {} values only: {error}",
                        source.name,
                        source.series.first().map_or(0, Series::len)
                    ));
                    continue;
                }
            };
            for ((series, now), last) in source.series.iter_mut().zip(&now).zip(&source.last) {
                let grown = (now - last).max(0.0);
                let value = match series.subject.kind {
                    Kind::Increase => grown,
                    Kind::Mean => grown / elapsed.as_secs_f64().max(1e-3),
                    Kind::Level => *now,
                };
                keep(series, value);
            }
            source.last = now;
        }
    }

    /// The series, and what could not be read.
    pub(crate) fn finish(self) -> Sampled {
        let step_ms = u64::try_from(self.step.as_millis()).unwrap_or(u64::MAX);
        let observations = self
            .sources
            .into_iter()
            .flat_map(|source| {
                let name = source.name;
                source
                    .series
                    .into_iter()
                    .map(move |series| series.observation(&name, 0, step_ms))
            })
            .collect();
        (observations, self.missing)
    }
}

fn subject(subject: &'static str, metric: &'static str, unit: &'static str, kind: Kind) -> Subject {
    Subject {
        subject,
        metric,
        unit,
        kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::run::Observation;

    fn series<'a>(observations: &'a [Observation], metric: &str) -> &'a Observation {
        observations
            .iter()
            .find(|observation| observation.metric == metric)
            .unwrap_or_else(|| panic!("no {metric}"))
    }

    #[test]
    fn a_long_run_halves_its_resolution() {
        let mut samples = Samples::new(Duration::from_millis(10));
        samples.open(&Root::host());
        let begin = samples.last_at;
        for step in 1..=MOST_VALUES as u32 + 10 {
            samples.take(begin + Duration::from_millis(10) * step);
        }
        let (observations, _) = samples.finish();
        let bytes = serde_bytes(&observations);
        for observation in &observations {
            assert_eq!(observation.step_ms, 20);
            assert!(
                observation.values.len() <= MOST_VALUES / 2 + 6,
                "{}",
                observation.values.len()
            );
            assert!(
                observation.values.len() >= MOST_VALUES / 2,
                "{}",
                observation.values.len()
            );
        }
        assert!(bytes < 1 << 20, "{bytes} bytes");
    }

    /// Characters that the values take in JSON, at least as many as serde prints.
    fn serde_bytes(observations: &[Observation]) -> usize {
        observations
            .iter()
            .flat_map(|observation| &observation.values)
            .map(|value| format!("{value:?},").len())
            .sum()
    }

    #[test]
    fn missed_steps_are_not_lost() {
        let mut samples = Samples::new(Duration::from_secs(1));
        samples.open(&Root::host());
        let begin = samples.last_at;
        samples.take(begin + Duration::from_millis(999));
        samples.take(begin + Duration::from_millis(3_400));
        samples.take(begin + Duration::from_millis(4_010));
        let (observations, _) = samples.finish();
        assert_eq!(series(&observations, "busy").values.len(), 4);
    }

    #[test]
    fn a_machine_without_counters_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let mut samples = Samples::new(Duration::from_secs(1));
        samples.open(&Root::at(folder.path()));
        samples.take_last(Instant::now());
        let (observations, missing) = samples.finish();
        assert!(observations.is_empty());
        for name in [
            "netstat",
            "snmp",
            "sockstat",
            "/proc/stat",
            "pressure",
            "cpu.stat",
        ] {
            assert!(
                missing.iter().any(|line| line.contains(name)),
                "{name}: {missing:?}"
            );
        }
    }

    #[test]
    fn a_source_that_goes_away_ends_its_series() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("proc/stat");
        std::fs::create_dir_all(folder.path().join("proc")).unwrap();
        std::fs::write(&file, "cpu 1 2 3 4 5 6 7 8\n").unwrap();
        let mut samples = Samples::new(Duration::from_secs(1));
        samples.open(&Root::at(folder.path()));
        let begin = samples.last_at;
        samples.take(begin + Duration::from_secs(1));
        std::fs::remove_file(&file).unwrap();
        samples.take(begin + Duration::from_secs(2));
        samples.take(begin + Duration::from_secs(3));
        let (observations, missing) = samples.finish();
        assert_eq!(series(&observations, "busy").values, [0.0]);
        let gone: Vec<_> = missing
            .iter()
            .filter(|line| line.contains("first 1 values"))
            .collect();
        assert_eq!(gone.len(), 1, "{missing:?}");
    }

    #[test]
    fn a_sample_costs_little() {
        let mut samples = Samples::new(Duration::from_millis(10));
        samples.open(&Root::host());
        let begin = samples.last_at;
        let cpu_s = || {
            let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            crate::process::parse_schedstat(&text).unwrap().on_cpu_s
        };
        let before = cpu_s();
        for step in 1..=100 {
            samples.take(begin + Duration::from_millis(10) * step);
        }
        let each = (cpu_s() - before) / 100.0;
        assert!(
            each < 0.005,
            "{each} s, more than 0.5 % of a CPU at one a second"
        );
    }
}
