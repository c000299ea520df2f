//! Counters of a HotSpot JVM, read from its `hsperfdata` file without attaching to the JVM.
//!
//! The file has layout version 2.0, which is defined in HotSpot's `perfMemory.hpp`. Any byte may be
//! invalid, because another process owns the file and may be writing to it.

use std::collections::HashMap;
use std::io;

use floodmark_record::Metric;
use floodmark_record::metric::{JvmFigure, Role};

use crate::Root;
use crate::root::{KernelFile, labelled};

/// Name of the counter that contains the number of ticks per second.
const FREQUENCY: &str = "sun.os.hrt.frequency";

/// Figures, and the counters that are summed for each figure. In HotSpot's numbering, collector 0
/// collects the young generation, collector 1 collects the old generation, and collector 2 counts
/// the pauses of a concurrent collector. Which counters exist depends on the collector in use.
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

/// Finds `hsperfdata_USER/PID` in the `/tmp` directory that the process sees. The PID in this path
/// is the process's ID in its own namespace.
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

/// `0xcafec0c0`, always big-endian.
const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];

/// Length of the prologue in bytes. Its fields are magic, byte order, major and minor version,
/// accessible flag, used, overflow, time stamp, offset of the first entry, and number of entries.
const PROLOGUE: usize = 32;

/// Length of an entry's header in bytes. Its fields are entry length, name offset, vector length,
/// type, flags, unit, variability and data offset.
const ENTRY: usize = 20;

/// Maximum number of entries; the file of a JVM has about 300.
const MAX_ENTRIES: u32 = 100_000;

/// Type code of a 64-bit integer.
const LONG: u8 = b'J';

/// Code of the unit "ticks of the high-resolution timer". `sun.os.hrt.frequency` is the number of
/// ticks per second.
const TICKS: u8 = 3;

/// Reasons why a file can't be parsed.
const SHORT: &str = "the file is too short";
const FOREIGN: &str = "not an hsperfdata file";
const WRONG_VERSION: &str = "the format is not version 2";
const NOT_READY: &str = "the JVM is still writing the file";
const OUTSIDE: &str = "an entry points outside the file";

/// Position of a counter in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CounterOffset {
    offset: usize,
    /// Whether the counter is in ticks.
    pub ticks: bool,
}

/// Positions of all counters in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PerfData {
    little: bool,
    /// 64-bit counters by name.
    places: HashMap<String, CounterOffset>,
}

impl PerfData {
    /// Parses the entries of a file.
    ///
    /// # Errors
    /// The file has a different format or is damaged.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        let head = bytes.get(..PROLOGUE).ok_or(SHORT)?;
        if head[..4] != MAGIC {
            return Err(FOREIGN);
        }
        let little = head[4] == 1;
        if head[5] != 2 {
            return Err(WRONG_VERSION);
        }
        if head[7] != 1 {
            return Err(NOT_READY);
        }
        let number = |at: usize| u32_at(bytes, at, little).ok_or(OUTSIDE);
        let (mut at, entries) = (number(24)? as usize, number(28)?);
        if entries > MAX_ENTRIES {
            return Err(OUTSIDE);
        }
        let mut places = HashMap::new();
        for _ in 0..entries {
            let length = number(at)? as usize;
            let end = at.checked_add(length).ok_or(OUTSIDE)?;
            if length < ENTRY || end > bytes.len() {
                return Err(OUTSIDE);
            }
            let entry = &bytes[at..end];
            let inner = |at| u32_at(entry, at, little).map(|offset| offset as usize);
            let [Some(name), Some(vector), Some(data)] = [4, 8, 16].map(inner) else {
                return Err(OUTSIDE);
            };
            let name = entry.get(name..).ok_or(OUTSIDE)?;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let fits = data.checked_add(8).is_some_and(|end| end <= length);
            if entry[12] == LONG && vector == 0 && fits {
                let place = CounterOffset {
                    offset: at + data,
                    ticks: entry[14] == TICKS,
                };
                places.insert(String::from_utf8_lossy(name).into_owned(), place);
            }
            at = end;
        }
        Ok(Self { little, places })
    }

    pub(crate) fn place(&self, name: &str) -> Option<CounterOffset> {
        self.places.get(name).copied()
    }

    /// Returns a counter's value. `bytes` is the content of the same file, possibly read later.
    pub(crate) fn value(&self, bytes: &[u8], place: CounterOffset) -> Option<u64> {
        little_endian(bytes, place.offset, self.little).map(u64::from_le_bytes)
    }
}

fn u32_at(bytes: &[u8], at: usize, little: bool) -> Option<u32> {
    little_endian(bytes, at, little).map(u32::from_le_bytes)
}

/// Returns the `N` bytes of a number in little-endian order. `little` states whether the file uses
/// this order.
fn little_endian<const N: usize>(bytes: &[u8], at: usize, little: bool) -> Option<[u8; N]> {
    let mut raw: [u8; N] = bytes.get(at..at.checked_add(N)?)?.try_into().ok()?;
    if !little {
        raw.reverse();
    }
    Some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a file with 64-bit counters in HotSpot's layout.
    fn file(counters: &[(&str, u8, u64)], little: bool) -> Vec<u8> {
        let u32_of = |n: u32| {
            if little {
                n.to_le_bytes()
            } else {
                n.to_be_bytes()
            }
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend([u8::from(little), 2, 0, 1]);
        bytes.extend([0; 16]);
        bytes.extend(u32_of(PROLOGUE as u32));
        bytes.extend(u32_of(counters.len() as u32));
        for (name, unit, value) in counters {
            let data = (ENTRY + name.len() + 1).next_multiple_of(8);
            bytes.extend(u32_of(data as u32 + 8));
            bytes.extend(u32_of(ENTRY as u32));
            bytes.extend(u32_of(0));
            bytes.extend([LONG, 0, *unit, 1]);
            bytes.extend(u32_of(data as u32));
            let begin = bytes.len();
            bytes.extend(name.as_bytes());
            bytes.resize(begin + data - ENTRY, 0);
            bytes.extend(if little {
                value.to_le_bytes()
            } else {
                value.to_be_bytes()
            });
        }
        bytes
    }

    #[test]
    fn parses_counters_in_either_byte_order() {
        for little in [true, false] {
            let bytes = file(&[("a.b", 4, 7), ("sun.rt.time", TICKS, 1 << 40)], little);
            let table = PerfData::parse(&bytes).unwrap();
            let (a, b) = (
                table.place("a.b").unwrap(),
                table.place("sun.rt.time").unwrap(),
            );
            assert_eq!(table.value(&bytes, a), Some(7));
            assert_eq!(table.value(&bytes, b), Some(1 << 40));
            assert_eq!((a.ticks, b.ticks), (false, true));
            assert_eq!(table.place("a"), None);
            assert_eq!(table.value(&bytes[..40], b), None, "truncated file");
        }
    }

    #[test]
    fn reports_the_kind_of_damage() {
        let good = file(&[("a", 4, 1)], true);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            PerfData::parse(&bytes)
        };
        assert_eq!(PerfData::parse(&good[..31]), Err(SHORT));
        assert_eq!(with(0, 0), Err(FOREIGN));
        assert_eq!(with(5, 1), Err(WRONG_VERSION));
        assert_eq!(with(7, 0), Err(NOT_READY));
        assert_eq!(with(27, 255), Err(OUTSIDE), "first entry is past the end");
        assert_eq!(with(28, 2), Err(OUTSIDE), "more entries than the file has");
        assert_eq!(with(32, 3), Err(OUTSIDE), "entry shorter than its header");
    }

    proptest! {
        #[test]
        fn accepts_or_rejects_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = PerfData::parse(&bytes);
        }

        #[test]
        fn accepts_or_rejects_a_damaged_file(
            wrong in proptest::collection::vec((0_usize..160, any::<u8>()), 1..12),
            cut in 0_usize..160,
            little: bool,
        ) {
            let mut bytes = file(&[("first.counter", 4, 1), ("second", TICKS, 2), ("third", 1, 3)], little);
            for (at, byte) in wrong {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            if let Ok(table) = PerfData::parse(&bytes) {
                let short = &bytes[..cut.min(bytes.len())];
                for place in table.places.values() {
                    prop_assert!(table.value(&bytes, *place).is_some());
                    let _ = table.value(short, *place);
                }
            }
        }
    }

    fn fixture(bytes: &[u8]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let tmp = directory.path().join("proc/5/root/tmp/hsperfdata_somebody");
        std::fs::create_dir_all(&tmp).unwrap();
        std::fs::write(tmp.join("3"), bytes).unwrap();
        std::fs::write(directory.path().join("proc/5/status"), "NSpid:\t5\t3\n").unwrap();
        let root = Root::at(directory.path());
        (directory, root)
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
        let (_directory, root) = fixture(&bytes);
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
        let (directory, root) = fixture(b"garbage");
        let error = Jvm::open(&root, 5).err().unwrap();
        assert!(error.contains("hsperfdata_somebody/3"), "{error}");
        std::fs::remove_dir_all(directory.path().join("proc/5/root")).unwrap();
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
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("Churn.java");
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
            // Wait for collections instead of a fixed time, because the JVM may get little CPU time
            // on a busy host.
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
