//! The result folder: `events.jsonl` as it is taken, `record.json` folded from it, kept answers beside them.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use floodmark_host::lock::lock;
use floodmark_record::{Event, Record};

/// Name of the event stream.
pub const EVENTS: &str = "events.jsonl";
/// Name of the folded record.
pub const RECORD: &str = "record.json";

/// Results kept where no folder was named; older ones go, so that they never fill a disk.
const KEPT_RESULTS: usize = 20;

/// Why a result could not be written.
#[derive(Debug, thiserror::Error)]
#[error("result folder {}: {what}: {source}; name another one with {flag}", path.display())]
pub struct FolderError {
    path: PathBuf,
    what: &'static str,
    /// By which the folder was named.
    flag: &'static str,
    source: io::Error,
}

/// An open result folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    events: BufWriter<File>,
}

impl Folder {
    /// Opens a new result in `path`, which is made where it is missing. A result that is there already is not touched.
    ///
    /// # Errors
    /// A folder that cannot be made, or one that holds a result.
    pub fn create(path: &Path) -> Result<Self, FolderError> {
        let failed = |what| {
            move |source| FolderError {
                path: path.to_owned(),
                what,
                flag: "--out",
                source,
            }
        };
        fs::create_dir_all(path).map_err(failed("cannot be made"))?;
        let events = File::options()
            .append(true)
            .create_new(true)
            .open(path.join(EVENTS))
            .map_err(failed("holds a result already or cannot be written"))?;
        // It is new, so nobody else has it; where there are no locks, none are needed until somebody goes on with it.
        let _ = lock(&events);
        Ok(Folder {
            path: path.to_owned(),
            events: BufWriter::new(events),
        })
    }

    /// Opens a result that is there, to append to it; `flag` is where it was named. An event that was being written when its floodmark died is taken away.
    ///
    /// # Errors
    /// A folder without a result, one that another floodmark is writing, one that cannot be written.
    pub fn reopen(path: &Path, flag: &'static str) -> Result<Self, FolderError> {
        let failed = |what| {
            move |source| FolderError {
                path: path.to_owned(),
                what,
                flag,
                source,
            }
        };
        let mut events = File::options()
            .read(true)
            .append(true)
            .open(path.join(EVENTS))
            .map_err(failed("holds no result that can be gone on with"))?;
        if !lock(&events).map_err(failed("cannot be locked"))? {
            let source = io::Error::other("its events.jsonl is locked");
            return Err(failed("is being written by another floodmark")(source));
        }
        whole_lines(&mut events).map_err(failed("cannot be written"))?;
        Ok(Folder {
            path: path.to_owned(),
            events: BufWriter::new(events),
        })
    }

    /// Opens a new result in the temporary folder, under a name made of the time; only the latest few are kept there.
    ///
    /// # Errors
    /// A folder that cannot be made.
    pub fn create_temporary() -> Result<Self, FolderError> {
        let parent = own_temporary();
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let name = format!("{:013}-{}", now.as_millis(), std::process::id());
        let folder = Self::create(&parent.join(name))?;
        forget_old(&parent);
        Ok(folder)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an event.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, event: &Event) -> Result<(), FolderError> {
        let mut line = serde_json::to_vec(event).map_err(|error| self.failed(error.into()))?;
        line.push(b'\n');
        self.events
            .write_all(&line)
            .and_then(|()| self.events.flush())
            .map_err(|error| self.failed(error))
    }

    /// Makes sure that what was appended survives a crash of the machine.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync(&mut self) -> Result<(), FolderError> {
        self.events
            .flush()
            .and_then(|()| self.events.get_ref().sync_data())
            .map_err(|error| self.failed(error))
    }

    /// Writes `record.json`: whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_record(&self, record: &Record) -> Result<(), FolderError> {
        let fresh = self.path.join("record.json.new");
        serde_json::to_vec_pretty(record)
            .map_err(io::Error::from)
            .and_then(|bytes| fs::write(&fresh, bytes))
            .and_then(|()| fs::rename(&fresh, self.path.join(RECORD)))
            .map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> FolderError {
        FolderError {
            path: self.path.clone(),
            what: "cannot be written",
            flag: "--out",
            source,
        }
    }
}

/// Cuts off a last line that has no end.
fn whole_lines(file: &mut File) -> io::Result<()> {
    const STEP: u64 = 64 * 1024;
    let length = file.metadata()?.len();
    let mut end = length;
    let mut bytes = Vec::new();
    while end > 0 {
        let from = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(from))?;
        bytes.clear();
        file.take(end - from).read_to_end(&mut bytes)?;
        if let Some(at) = bytes.iter().rposition(|byte| *byte == b'\n') {
            end = from + at as u64 + 1;
            break;
        }
        end = from;
    }
    match end == length {
        true => Ok(()),
        false => file.set_len(end),
    }
}

/// Where floodmark keeps what nobody asked to keep, by user.
#[must_use]
pub fn own_temporary() -> PathBuf {
    let user =
        fs::metadata("/proc/self").map_or(0, |meta| std::os::unix::fs::MetadataExt::uid(&meta));
    std::env::temp_dir().join(format!("floodmark-{user}"))
}

/// Removes all but the latest results; names sort by time. What a floodmark that still runs is writing stays, however many
/// have come after it: a name ends in its process's id.
fn forget_old(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    let mut results: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join(EVENTS).is_file() && !being_written(path))
        .collect();
    results.sort_unstable();
    for old in results.iter().rev().skip(KEPT_RESULTS) {
        // Another floodmark may be removing the same one.
        let _ = fs::remove_dir_all(old);
    }
}

fn being_written(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.rsplit_once('-'))
        .is_some_and(|(_, pid)| Path::new("/proc").join(pid).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_never_overwritten() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("deep/result");
        let mut folder = Folder::create(&path).unwrap();
        folder
            .append(&Event::Missing {
                missing: vec!["x".into()],
            })
            .unwrap();
        folder.sync().unwrap();
        let text = Folder::create(&path).unwrap_err().to_string();
        assert!(text.contains("--out"), "{text}");
        assert_eq!(
            fs::read_to_string(path.join(EVENTS))
                .unwrap()
                .lines()
                .count(),
            1
        );
    }

    #[test]
    fn a_result_is_gone_on_with_after_its_last_whole_event() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("result");
        let missing = |what: &str| Event::Missing {
            missing: vec![what.to_owned()],
        };
        let mut first = Folder::create(&path).unwrap();
        first.append(&missing("one")).unwrap();
        let text = Folder::reopen(&path, "--resume").unwrap_err().to_string();
        assert!(text.contains("another floodmark"), "{text}");
        drop(first);
        let whole = fs::read_to_string(path.join(EVENTS)).unwrap();
        for torn in ["", "{\"event\"", &"x".repeat(200_000)] {
            fs::write(path.join(EVENTS), whole.clone() + torn).unwrap();
            Folder::reopen(&path, "--resume")
                .unwrap()
                .append(&missing("two"))
                .unwrap();
            let now = fs::read_to_string(path.join(EVENTS)).unwrap();
            assert_eq!(now, whole.clone() + &whole.replace("one", "two"));
        }
        fs::write(path.join(EVENTS), "no end").unwrap();
        drop(Folder::reopen(&path, "--resume").unwrap());
        assert_eq!(fs::read(path.join(EVENTS)).unwrap(), b"");
        assert!(Folder::reopen(&parent.path().join("none"), "--resume").is_err());
    }

    #[test]
    fn only_the_latest_results_are_kept() {
        let parent = tempfile::tempdir().unwrap();
        for i in 0..KEPT_RESULTS + 3 {
            drop(Folder::create(&parent.path().join(format!("{i:03}"))).unwrap());
        }
        fs::create_dir(parent.path().join("foreign")).unwrap();
        let running = parent.path().join(format!("000-{}", std::process::id()));
        drop(Folder::create(&running).unwrap());
        forget_old(parent.path());
        assert!(!parent.path().join("002").exists());
        assert!(running.exists(), "a result that is being written stays");
        assert!(parent.path().join("003").exists());
        assert!(parent.path().join("foreign").exists());
    }
}
