//! A state that checks the order of its records, and a journal that acknowledges records.
#![allow(dead_code, reason = "each test binary uses only some of these helpers")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use floodmark_journal::{Journal, JournalError, JournalOptions, JournalState};

/// Sizes that make the journal change segments often.
pub const SMALL: JournalOptions = JournalOptions {
    segment_bytes: 32 * 1024,
    queue_bytes: 8 * 1024,
};

/// Counts records. Record `n` must contain the number `n`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted(pub u64);

impl JournalState for Counted {
    const RECORD_BYTES: usize = 8;

    fn apply(&mut self, records: &[u8]) {
        for record in records.as_chunks::<8>().0 {
            self.0 += 1;
            assert_eq!(u64::from_le_bytes(*record), self.0, "a wrong record");
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        self.0.to_le_bytes().to_vec()
    }

    fn restore(bytes: &[u8]) -> Option<Self> {
        Some(Counted(u64::from_le_bytes(bytes.try_into().ok()?)))
    }
}

/// A [`Counted`] whose snapshot has the maximum length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LongSnapshot(pub Counted);

impl JournalState for LongSnapshot {
    const RECORD_BYTES: usize = Counted::RECORD_BYTES;

    fn apply(&mut self, records: &[u8]) {
        self.0.apply(records);
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut bytes = self.0.snapshot();
        bytes.resize(1 << 20, 0);
        bytes
    }

    fn restore(bytes: &[u8]) -> Option<Self> {
        let (count, _) = bytes.split_at_checked(8)?;
        Counted::restore(count).map(LongSnapshot)
    }
}

/// Opens a journal. While another test starts a child process, the child briefly shares all locks
/// of this process, so the directory may stay locked for up to a second.
fn open_when_free(
    directory: &Path,
    options: &JournalOptions,
) -> Result<(Journal, Counted), JournalError> {
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        match Journal::open(directory, options, Counted::default()) {
            Err(JournalError::InUse(_)) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

/// A journal that waits until its records are durable.
pub struct TestJournal {
    pub journal: Journal,
    next: u64,
    progressed: Receiver<()>,
}

impl TestJournal {
    pub fn open(directory: &Path) -> Self {
        Self::with(directory, &SMALL).unwrap()
    }

    pub fn with(directory: &Path, options: &JournalOptions) -> Result<Self, JournalError> {
        let (journal, state) = open_when_free(directory, options)?;
        assert_eq!(journal.progress().durable, state.0);
        let (notify, progressed) = channel();
        journal.listen(move || {
            let _ = notify.send(());
        });
        Ok(TestJournal {
            journal,
            next: state.0,
            progressed,
        })
    }

    /// Number of records in the journal.
    pub fn records(&self) -> u64 {
        self.next
    }

    /// Appends records as one batch and waits until they are durable. Returns whether they are.
    pub fn add(&mut self, records: u64) -> bool {
        for _ in 0..records {
            let record = (self.next + 1).to_le_bytes();
            if self.journal.append(&record).is_err() {
                return false;
            }
            self.next += 1;
        }
        self.journal.commit();
        loop {
            let progress = self.journal.progress();
            if progress.durable >= self.next {
                return true;
            }
            if progress.failure.is_some() {
                return false;
            }
            let progressed = self.progressed.recv_timeout(Duration::from_secs(30));
            progressed.expect("the journal makes progress");
        }
    }
}

/// Returns the segments of a journal in order, including the prepared one.
pub fn segments(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut segments: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "segment"))
        .collect();
    segments.sort();
    segments
}
