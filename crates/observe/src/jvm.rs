//! Counters of a HotSpot JVM, read from its `hsperfdata` file without attaching to the JVM.

use std::io;

use floodmark_record::Metric;
use floodmark_record::metric::{JvmFigure, Role};

use crate::Root;
use crate::kernel_file::{KernelFile, labelled};
use crate::perf_data::{CounterOffset, PerfData};

/// Counter with the number of ticks per second.
const FREQUENCY: &str = "sun.os.hrt.frequency";

/// Figures, and the counters that are summed for each figure. In HotSpot's numbering, collector 0
/// is young, 1 is old, and 2 counts the pauses of a concurrent collector. Which counters exist
/// depends on the collector in use.
const FIGURES: [(JvmFigure, &[&str]); 7] = [
    (
        JvmFigure::Collections,
        &[
            "sun.gc.collector.0.invocations",
            "sun.gc.collector.1.invocations",
            "sun.gc.collector.2.invocations",
        ],
    ),
    (
        JvmFigure::CollectionTime,
        &[
            "sun.gc.collector.0.time",
            "sun.gc.collector.1.time",
            "sun.gc.collector.2.time",
        ],
    ),
    (JvmFigure::Safepoints, &["sun.rt.safepoints"]),
    (JvmFigure::SafepointTime, &["sun.rt.safepointTime"]),
    (JvmFigure::JavaThreads, &["java.threads.live"]),
    (
        JvmFigure::LoadedClasses,
        &["java.cls.loadedClasses", "java.cls.sharedLoadedClasses"],
    ),
    (JvmFigure::Compilations, &["sun.ci.totalCompiles"]),
];

/// Returns the metrics that a JVM's file may contain.
pub(crate) fn produced(role: Role) -> impl Iterator<Item = Metric> {
    FIGURES
        .iter()
        .map(move |(figure, _)| Metric::Jvm(role, *figure))
}

/// The counters of a JVM.
pub(crate) struct Jvm {
    /// Path of the file.
    pub path: String,
    kernel_file: KernelFile,
    table: PerfData,
    ticks_per_s: f64,
    /// Offsets of each figure's counters.
    places: Vec<(JvmFigure, Vec<CounterOffset>)>,
}

impl Jvm {
    /// Opens the counters of a process. Returns `None` if the process is not a JVM or has no
    /// `hsperfdata` file (`-XX:-UsePerfData`).
    ///
    /// # Errors
    /// The file can't be read or parsed. The error is a one-line message for the record.
    pub(crate) fn open(root: &Root, pid: u32) -> Result<Option<Self>, String> {
        let Some(path) = find(root, pid) else {
            return Ok(None);
        };
        let jvm = Self::open_file(root, path).map(Some);
        jvm.map_err(|error| format!("JVM figures: {error}"))
    }

    fn open_file(root: &Root, path: String) -> io::Result<Self> {
        let mut kernel_file = KernelFile::open(root, &path)?;
        let bytes = kernel_file.bytes()?;
        let table =
            PerfData::parse(bytes).map_err(|error| io::Error::other(format!("{path}: {error}")))?;
        let frequency = table.place(FREQUENCY);
        let ticks_per_s = frequency.and_then(|place| table.value(bytes, place));
        let places = FIGURES.iter().map(|(figure, counters)| {
            let places = counters.iter().filter_map(|name| table.place(name));
            (*figure, places.collect::<Vec<CounterOffset>>())
        });
        Ok(Self {
            places: places.filter(|(_, places)| !places.is_empty()).collect(),
            ticks_per_s: ticks_per_s
                .filter(|ticks| *ticks > 0)
                .map_or(1e9, |ticks| ticks as f64),
            path,
            kernel_file,
            table,
        })
    }

    pub(crate) fn metrics(&self, role: Role) -> Vec<Metric> {
        let figures = self.places.iter().map(|(figure, _)| *figure);
        figures.map(|figure| Metric::Jvm(role, figure)).collect()
    }

    /// Reads the figures.
    ///
    /// # Errors
    /// The file was removed or truncated.
    pub(crate) fn read(&mut self) -> io::Result<Vec<f64>> {
        let bytes = self.kernel_file.bytes()?;
        let value = |place: &CounterOffset| {
            let value = self.table.value(bytes, *place)? as f64;
            Some(if place.ticks {
                value / self.ticks_per_s
            } else {
                value
            })
        };
        let sums = self
            .places
            .iter()
            .map(|(_, places)| places.iter().map(value).sum());
        let sums: Option<Vec<f64>> = sums.collect();
        sums.ok_or_else(|| io::Error::other("the file was truncated"))
    }
}

/// Finds `hsperfdata_USER/PID` in the `/tmp` folder that the process sees. The PID in this path is
/// the process's ID in its own namespace.
fn find(root: &Root, pid: u32) -> Option<String> {
    let status = root.read(format!("/proc/{pid}/status")).ok()?;
    let inner = labelled(&status, "NSpid:").and_then(|ids| ids.split_ascii_whitespace().last());
    let outer = pid.to_string();
    let of = |tmp: &str, id: &str| {
        root.names(tmp)
            .filter(|name| name.starts_with("hsperfdata_"))
            .map(|name| format!("{tmp}/{name}/{id}"))
            .find(|path| root.path(path).is_file())
    };
    of(&format!("/proc/{pid}/root/tmp"), inner.unwrap_or(&outer)).or_else(|| of("/tmp", &outer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf_data::tests::file;

    fn fixture(bytes: &[u8]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let tmp = folder.path().join("proc/5/root/tmp/hsperfdata_somebody");
        std::fs::create_dir_all(&tmp).unwrap();
        std::fs::write(tmp.join("3"), bytes).unwrap();
        std::fs::write(folder.path().join("proc/5/status"), "NSpid:\t5\t3\n").unwrap();
        let root = Root::at(folder.path());
        (folder, root)
    }

    #[test]
    fn sums_collectors_and_converts_ticks_to_seconds() {
        let bytes = file(
            &[
                (FREQUENCY, 4, 1000),
                ("sun.gc.collector.0.time", 3, 1500),
                ("sun.gc.collector.1.time", 3, 500),
                ("sun.gc.collector.0.invocations", 4, 7),
                ("java.threads.live", 1, 20),
            ],
            true,
        );
        let (_folder, root) = fixture(&bytes);
        let mut jvm = Jvm::open(&root, 5).unwrap().unwrap();
        let values = jvm.read().unwrap();
        let metrics = jvm.metrics(Role::Server);
        let names = metrics.iter().map(Metric::name);
        let named: Vec<_> = names.zip(values).collect();
        let expected = [("gc_count", 7.0), ("gc_time", 2.0), ("java_threads", 20.0)];
        assert_eq!(named, expected.map(|(name, value)| (name.into(), value)));
    }

    #[test]
    fn reports_an_invalid_file_and_ignores_a_missing_one() {
        let (folder, root) = fixture(b"garbage");
        let error = Jvm::open(&root, 5).err().unwrap();
        assert!(error.contains("hsperfdata_somebody/3"), "{error}");
        std::fs::remove_dir_all(folder.path().join("proc/5/root")).unwrap();
        assert!(Jvm::open(&root, 5).unwrap().is_none());
        assert!(Jvm::open(&root, 6).unwrap().is_none());
    }

    #[test]
    fn samples_a_real_jvm() {
        if std::process::Command::new("java")
            .arg("-version")
            .output()
            .is_err()
        {
            println!("skipped: java is not installed");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("Churn.java");
        let program = "public class Churn { public static void main(String[] a) throws Exception {
            java.util.List<byte[]> kept = new java.util.ArrayList<>();
            System.out.println(\"up\");
            while (System.in.available() == 0) {
                for (int i = 0; i < 2000; i++) { byte[] b = new byte[4096]; if (i % 500 == 0) kept.add(b); }
                if (kept.size() > 500) kept.clear();
            } } }";
        std::fs::write(&source, program).unwrap();
        let mut child = std::process::Command::new("java")
            .args(["-Xmx64m", "-XX:+UseSerialGC"])
            .arg(&source)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        let opened = Jvm::open(&Root::host(), child.id());
        let mut first = Vec::new();
        let mut second = Vec::new();
        let mut metrics = Vec::new();
        if let Ok(Some(mut jvm)) = opened {
            metrics = jvm.metrics(Role::Server);
            first = jvm.read().unwrap();
            let begin = std::time::Instant::now();
            // On a busy host, the JVM may get little CPU time. Wait for collections instead of a
            // fixed time.
            while begin.elapsed() < std::time::Duration::from_secs(30) {
                std::thread::sleep(std::time::Duration::from_millis(100));
                second = jvm.read().unwrap();
                if second[0] >= first[0] + 3.0 {
                    break;
                }
            }
        }
        drop(child.stdin.take());
        child.kill().unwrap();
        child.wait().unwrap();
        let metrics: Vec<_> = metrics.iter().map(Metric::name).collect();
        for metric in [
            "gc_count",
            "gc_time",
            "safepoints",
            "java_threads",
            "loaded_classes",
        ] {
            assert!(metrics.contains(&metric.into()), "{metric}: {metrics:?}");
        }
        let at = |metric: &str| metrics.iter().position(|m| *m == metric).unwrap();
        assert!(second[at("gc_count")] >= first[at("gc_count")] + 3.0);
        let collecting_s = second[at("gc_time")] - first[at("gc_time")];
        assert!(collecting_s > 0.0 && collecting_s < 30.0, "{collecting_s}");
        assert!(second[at("java_threads")] >= 5.0);
        assert!(second[at("loaded_classes")] > 300.0);
    }
}
