//! Figures of a HotSpot JVM, from the file it keeps for tools (`hsperfdata`): nothing is attached to it.

use std::io;
use std::path::{Path, PathBuf};

use crate::kept::Kept;
use crate::perf_data::{Place, Table};
use crate::series::{Kind, Subject};
use crate::{Root, samples::subject};

/// Ticks per second of the counters in ticks.
const FREQUENCY: &str = "sun.os.hrt.frequency";

/// A figure: the counters that are added up, and what it is called. Collectors are numbered: 0 young, 1 old, 2 the pauses of a
/// concurrent one; which there are depends on the collector.
struct Figure {
    counters: &'static [&'static str],
    metric: &'static str,
    unit: &'static str,
    kind: Kind,
}

const FIGURES: [Figure; 7] = [
    Figure {
        counters: &[
            "sun.gc.collector.0.invocations",
            "sun.gc.collector.1.invocations",
            "sun.gc.collector.2.invocations",
        ],
        metric: "gc_count",
        unit: "count",
        kind: Kind::Increase,
    },
    Figure {
        counters: &[
            "sun.gc.collector.0.time",
            "sun.gc.collector.1.time",
            "sun.gc.collector.2.time",
        ],
        metric: "gc_time",
        unit: "s",
        kind: Kind::Increase,
    },
    Figure {
        counters: &["sun.rt.safepoints"],
        metric: "safepoints",
        unit: "count",
        kind: Kind::Increase,
    },
    Figure {
        counters: &["sun.rt.safepointTime"],
        metric: "safepoint_time",
        unit: "s",
        kind: Kind::Increase,
    },
    Figure {
        counters: &["java.threads.live"],
        metric: "java_threads",
        unit: "threads",
        kind: Kind::Level,
    },
    Figure {
        counters: &["java.cls.loadedClasses", "java.cls.sharedLoadedClasses"],
        metric: "loaded_classes",
        unit: "count",
        kind: Kind::Increase,
    },
    Figure {
        counters: &["sun.ci.totalCompiles"],
        metric: "compilations",
        unit: "count",
        kind: Kind::Increase,
    },
];

/// A JVM's counters.
pub(crate) struct Jvm {
    /// Where its file is, for the record.
    pub path: String,
    kept: Kept,
    table: Table,
    ticks_per_s: f64,
    /// The places of each figure that the JVM has.
    places: Vec<(usize, Vec<Place>)>,
}

impl Jvm {
    /// Opens the counters of a process; none where it is no JVM, or keeps none (`-XX:-UsePerfData`).
    ///
    /// # Errors
    /// There is a file that cannot be read, or is no such file: one line for the record.
    pub(crate) fn open(root: &Root, pid: u32) -> Result<Option<Self>, String> {
        let Some(path) = find(root, pid) else {
            return Ok(None);
        };
        let said = |error: &dyn std::fmt::Display| format!("JVM figures: {error}");
        let shown = path.display().to_string();
        let mut kept = Kept::open(root, &path).map_err(|error| said(&error))?;
        let bytes = kept.bytes().map_err(|error| said(&error))?;
        let table = Table::parse(bytes)
            .map_err(|fault| format!("JVM figures: {shown}: {}", fault.text()))?;
        let ticks_per_s = table
            .place(FREQUENCY)
            .and_then(|place| table.value(bytes, place))
            .filter(|ticks| *ticks > 0)
            .map_or(1e9, |ticks| ticks as f64);
        let places = FIGURES
            .iter()
            .map(|figure| {
                let there = figure.counters.iter();
                there.filter_map(|name| table.place(name)).collect()
            })
            .enumerate()
            .filter(|(_, places): &(usize, Vec<Place>)| !places.is_empty())
            .collect();
        Ok(Some(Self {
            path: shown,
            kept,
            table,
            ticks_per_s,
            places,
        }))
    }

    pub(crate) fn subjects(&self, whose: &'static str) -> Vec<Subject> {
        let figures = self.places.iter().map(|(index, _)| &FIGURES[*index]);
        figures
            .map(|figure| subject(whose, figure.metric, figure.unit, figure.kind))
            .collect()
    }

    /// Reads the figures.
    ///
    /// # Errors
    /// The file is gone or has shrunk.
    pub(crate) fn read(&mut self, into: &mut Vec<f64>) -> io::Result<()> {
        let bytes = self.kept.bytes()?;
        for (_, places) in &self.places {
            let mut sum = 0.0;
            for place in places {
                let value = self.table.value(bytes, *place).ok_or_else(|| {
                    io::Error::new(io::ErrorKind::UnexpectedEof, "the file has shrunk")
                })? as f64;
                sum += if place.ticks {
                    value / self.ticks_per_s
                } else {
                    value
                };
            }
            into.push(sum);
        }
        Ok(())
    }
}

/// Finds the file: `hsperfdata_USER/PID` in the `/tmp` that the process sees, under the id that it has there.
fn find(root: &Root, pid: u32) -> Option<PathBuf> {
    let status = root.read(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let inner = line
        .and_then(|line| line.split_ascii_whitespace().last())
        .map_or_else(|| pid.to_string(), str::to_owned);
    let of = |tmp: &Path, id: &str| {
        std::fs::read_dir(root.path(tmp))
            .ok()?
            .filter_map(Result::ok)
            .filter(|entry| {
                entry
                    .file_name()
                    .to_string_lossy()
                    .starts_with("hsperfdata_")
            })
            .map(|entry| tmp.join(entry.file_name()).join(id))
            .find(|path| root.path(path).is_file())
    };
    of(Path::new(&format!("/proc/{pid}/root/tmp")), &inner)
        .or_else(|| of(Path::new("/tmp"), &pid.to_string()))
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
    fn collectors_add_up_and_ticks_become_seconds() {
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
        let mut values = Vec::new();
        jvm.read(&mut values).unwrap();
        let subjects = jvm.subjects("jvm");
        let named: Vec<_> = subjects
            .iter()
            .map(|subject| subject.metric.as_ref())
            .zip(values)
            .collect();
        let expected = [("gc_count", 7.0), ("gc_time", 2.0), ("java_threads", 20.0)];
        assert_eq!(named, expected);
    }

    #[test]
    fn no_file_is_no_jvm_and_a_broken_one_is_said() {
        let (folder, root) = fixture(b"garbage");
        let error = Jvm::open(&root, 5).err().unwrap();
        assert!(error.contains("hsperfdata_somebody/3"), "{error}");
        std::fs::remove_dir_all(folder.path().join("proc/5/root")).unwrap();
        assert!(Jvm::open(&root, 5).unwrap().is_none());
        assert!(Jvm::open(&root, 6).unwrap().is_none());
    }

    #[test]
    fn a_real_jvm_collects_and_loads() {
        if std::process::Command::new("java")
            .arg("-version")
            .output()
            .is_err()
        {
            println!("skipped: no java here");
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
        let mut subjects = Vec::new();
        if let Ok(Some(mut jvm)) = opened {
            subjects = jvm.subjects("jvm");
            jvm.read(&mut first).unwrap();
            let begin = std::time::Instant::now();
            // A crowded machine may leave the JVM little CPU: wait for its first collections, not for a time.
            while begin.elapsed() < std::time::Duration::from_secs(30) {
                std::thread::sleep(std::time::Duration::from_millis(100));
                second.clear();
                jvm.read(&mut second).unwrap();
                if second[0] >= first[0] + 3.0 {
                    break;
                }
            }
        }
        drop(child.stdin.take());
        child.kill().unwrap();
        child.wait().unwrap();
        let metrics: Vec<&str> = subjects.iter().map(|subject| &*subject.metric).collect();
        for metric in [
            "gc_count",
            "gc_time",
            "safepoints",
            "java_threads",
            "loaded_classes",
        ] {
            assert!(metrics.contains(&metric), "{metric}: {metrics:?}");
        }
        let at = |metric| metrics.iter().position(|m| *m == metric).unwrap();
        assert!(second[at("gc_count")] >= first[at("gc_count")] + 3.0);
        let collecting_s = second[at("gc_time")] - first[at("gc_time")];
        assert!(collecting_s > 0.0 && collecting_s < 30.0, "{collecting_s}");
        assert!(second[at("java_threads")] >= 5.0);
        assert!(second[at("loaded_classes")] > 300.0);
    }
}
