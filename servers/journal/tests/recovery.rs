//! Tests that a journal reads back what it stored, and refuses what it cannot trust.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use floodmark_journal::{Journal, JournalError, JournalState};
use support::{Counted, LongSnapshot, SMALL, TestJournal, segments};

const BLOCK: usize = 4096;

fn refusal(directory: &Path) -> JournalError {
    match TestJournal::with(directory, &SMALL) {
        Ok(_) => panic!("the journal was opened"),
        Err(error) => error,
    }
}

/// Fills a segment with seven one-block batches of three records.
fn fill_segment(journal: &mut TestJournal) {
    for _ in 0..7 {
        assert!(journal.add(3));
    }
}

/// Writes seven batches to the first segment and three to the second. Leaves the directory as if
/// the process had been killed before it wrote a snapshot. Returns the number of records.
fn two_segments(directory: &Path) -> u64 {
    let mut journal = TestJournal::open(directory);
    fill_segment(&mut journal);
    let early = ["00000001.segment", "snapshot"].map(|name| directory.join(name));
    let early = early.map(|path| (fs::read(&path).unwrap(), path));
    for _ in 0..3 {
        assert!(journal.add(3));
    }
    let records = journal.records();
    drop(journal);
    for (bytes, path) in early {
        fs::write(path, bytes).unwrap();
    }
    fs::remove_file(directory.join("00000003.segment")).unwrap();
    records
}

#[test]
fn recovers_several_segments() {
    let directory = tempfile::tempdir().unwrap();
    let records = two_segments(directory.path());
    assert_eq!((records, segments(directory.path()).len()), (30, 2));
    assert_eq!(TestJournal::open(directory.path()).records(), records);
}

/// Creates a journal with two segments and changes its files.
fn changed(change: impl FnOnce(&Path)) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    two_segments(directory.path());
    change(directory.path());
    directory
}

#[test]
fn keeps_all_records_over_many_restarts_and_segments() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("journal");
    let mut expected = 0;
    for round in 0..12 {
        let mut journal = TestJournal::open(&directory);
        assert_eq!(journal.records(), expected, "round {round}");
        for batch in 0..=round {
            assert!(journal.add(1 + 80 * batch));
        }
        expected = journal.records();
        assert!(
            segments(&directory).len() <= 3,
            "{:?}",
            segments(&directory)
        );
        if round % 2 == 0 {
            journal.journal.close().unwrap();
        }
    }
    assert!(expected > 10_000);
}

#[test]
fn keeps_at_most_three_segments_over_short_runs() {
    let directory = tempfile::tempdir().unwrap();
    for round in 1..=10 {
        let mut journal = TestJournal::open(directory.path());
        assert!(journal.add(1));
        drop(journal);
        let segments = segments(directory.path());
        assert!(segments.len() <= 3, "round {round}: {segments:?}");
    }
    assert_eq!(TestJournal::open(directory.path()).records(), 10);
}

#[test]
fn stores_appended_records_on_close() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(directory.path(), &SMALL, Counted::default()).unwrap();
    for n in 1..=5_u64 {
        assert_eq!(journal.append(&n.to_le_bytes()), Ok(n));
    }
    journal.close().unwrap();
    assert_eq!(TestJournal::open(directory.path()).records(), 5);
}

#[test]
fn reads_the_longest_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..3_u64 {
        let opened = Journal::open(directory.path(), &SMALL, LongSnapshot::default());
        let (journal, state) = opened.unwrap();
        assert_eq!(state.0, Counted(number));
        journal.append(&(number + 1).to_le_bytes()).unwrap();
        journal.close().unwrap();
    }
}

#[test]
fn cuts_a_torn_tail() {
    for torn in [8, BLOCK / 2, BLOCK] {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = TestJournal::open(directory.path());
        assert!(journal.add(5) && journal.add(600));
        drop(journal);
        let path = &segments(directory.path())[0];
        let mut bytes = fs::read(path).unwrap();
        // The second batch takes two blocks.
        let end = 2 * BLOCK + 24 + 8 * 600;
        bytes[end - torn..end].fill(0);
        fs::write(path, bytes).unwrap();
        let mut journal = TestJournal::open(directory.path());
        assert_eq!(journal.records(), 5);
        assert!(journal.add(1));
        drop(journal);
        assert_eq!(TestJournal::open(directory.path()).records(), 6);
    }
}

#[test]
fn refuses_a_damaged_middle_and_the_advice_works() {
    let directory = changed(|directory| {
        let first = &segments(directory)[0];
        let mut bytes = fs::read(first).unwrap();
        bytes[3 * BLOCK + 30] ^= 4;
        fs::write(first, bytes).unwrap();
    });
    let directory = directory.path();
    let error = refusal(directory);
    let message = error.to_string();
    assert!(message.contains("segment: the batch at byte 12288 is damaged"));
    assert!(matches!(error, JournalError::DamagedBatch { offset, .. } if offset == 3 * BLOCK));
    // The advice names a command, and the segments to move away.
    let command = message.split("later records: ").nth(1).unwrap();
    let (command, rest) = command.split_once(", then move '").unwrap();
    let next = rest.split_once("' and later segments away").unwrap().0;
    assert!(
        Command::new("sh")
            .args(["-c", command])
            .status()
            .unwrap()
            .success()
    );
    for later in segments(directory)
        .iter()
        .filter(|path| *path >= Path::new(next))
    {
        fs::remove_file(later).unwrap();
    }
    let mut journal = TestJournal::open(directory);
    assert_eq!(journal.records(), 6, "two batches before the damage");
    assert!(journal.add(1));
}

#[test]
fn refuses_a_lost_batch_at_the_end_of_an_earlier_segment() {
    let directory = changed(|directory| {
        let first = &segments(directory)[0];
        let mut bytes = fs::read(first).unwrap();
        bytes[7 * BLOCK..].fill(0);
        fs::write(first, bytes).unwrap();
    });
    let error = refusal(directory.path());
    let JournalError::DamagedBatch { file, offset, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(
        (file, offset),
        (segments(directory.path())[0].clone(), 7 * BLOCK)
    );
}

#[test]
fn refuses_missing_files() {
    let missing = |error| match error {
        JournalError::MissingFile(file) => file.file_name().unwrap().to_owned(),
        other => panic!("{other}"),
    };
    let directory = changed(|directory| fs::remove_file(&segments(directory)[0]).unwrap());
    assert!(
        missing(refusal(directory.path()))
            .to_string_lossy()
            .ends_with(".segment")
    );
    let directory = changed(|directory| {
        for segment in segments(directory) {
            fs::remove_file(segment).unwrap();
        }
    });
    assert!(
        missing(refusal(directory.path()))
            .to_string_lossy()
            .ends_with(".segment")
    );
    // The journal has dropped its first segment, so it depends on its snapshot.
    let directory = tempfile::tempdir().unwrap();
    let mut journal = TestJournal::open(directory.path());
    for _ in 0..3 {
        fill_segment(&mut journal);
    }
    drop(journal);
    fs::remove_file(directory.path().join("snapshot")).unwrap();
    assert_eq!(missing(refusal(directory.path())), "snapshot");
}

#[test]
fn refuses_foreign_and_damaged_files() {
    let write = |name: &'static str, content: &'static [u8]| {
        let directory = changed(|directory| {
            let path = match name {
                "segment" => segments(directory)[0].clone(),
                name => directory.join(name),
            };
            fs::write(path, content).unwrap();
        });
        refusal(directory.path())
    };
    for name in ["segment", "snapshot"] {
        let error = write(name, b"my notes");
        assert!(matches!(error, JournalError::NotAJournalFile(_)), "{error}");
    }
    let later = |magic: &[u8]| [magic, &2_u32.to_le_bytes(), &[0; 100]].concat();
    let error = write("segment", later(b"FMjournl").leak());
    assert!(matches!(error, JournalError::LaterVersion(_)), "{error}");
    let error = write("snapshot", later(b"FMsnapsh").leak());
    assert!(matches!(error, JournalError::LaterVersion(_)), "{error}");
    let error = write("snapshot", b"FMsnapsh\x01\0\0\0");
    assert!(matches!(error, JournalError::DamagedFile(_)), "{error}");

    let notes = tempfile::tempdir().unwrap();
    fs::write(notes.path().join("notes.txt"), "my notes").unwrap();
    let error = refusal(notes.path());
    assert!(
        error.to_string().contains("\"notes.txt\" but no journal"),
        "{error}"
    );
    let error = refusal(&notes.path().join("notes.txt"));
    assert!(matches!(error, JournalError::NotADirectory(_)), "{error}");
    let error = refusal(&notes.path().join("missing/journal"));
    let missing = "cannot create the directory";
    let fix = "create its parent directory first";
    let printed = error.to_string();
    assert!(
        printed.contains(missing) && printed.contains(fix),
        "{error}"
    );
    let error = refusal(&notes.path().join("notes.txt/journal"));
    assert!(!error.to_string().contains(fix), "{error}");
    assert_eq!(fs::read_dir(notes.path()).unwrap().count(), 1, "unchanged");
}

#[test]
fn does_not_wait_for_a_fifo_and_follows_no_link() {
    for kind in ["fifo", "link", "directory"] {
        let directory = changed(|directory| {
            let path = &segments(directory)[0];
            let moved = directory.join("moved");
            fs::rename(path, &moved).unwrap();
            match kind {
                "fifo" => {
                    let made = Command::new("mkfifo").arg(path).status().unwrap();
                    assert!(made.success());
                }
                "link" => symlink(moved, path).unwrap(),
                _ => fs::create_dir(path).unwrap(),
            }
        });
        let error = refusal(directory.path());
        assert!(
            matches!(error, JournalError::NotAJournalFile(_)),
            "{kind}: {error}"
        );
    }
}

#[test]
fn one_process_at_a_time_uses_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("link");
    let directory = directory.path().join("journal");
    let journal = TestJournal::open(&directory);
    symlink(&directory, &link).unwrap();
    for name in [&directory, &link] {
        let error = refusal(name);
        assert!(
            error.to_string().contains("is in use by another process"),
            "{error}"
        );
    }
    drop(journal);
    assert_eq!(TestJournal::open(&link).records(), 0);
}

#[test]
fn refuses_records_of_another_size() {
    #[derive(Clone)]
    struct Wide;
    impl JournalState for Wide {
        const RECORD_BYTES: usize = 16;
        fn apply(&mut self, _: &[u8]) {}
        fn snapshot(&self) -> Vec<u8> {
            Vec::new()
        }
        fn restore(_: &[u8]) -> Option<Self> {
            Some(Wide)
        }
    }
    let directory = tempfile::tempdir().unwrap();
    two_segments(directory.path());
    let Err(error) = Journal::open(directory.path(), &SMALL, Wide) else {
        panic!("the journal was opened");
    };
    assert!(
        error
            .to_string()
            .contains("contains records of 8 bytes, not 16"),
        "{error}"
    );
}

#[test]
fn a_full_queue_refuses_records() {
    let directory = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(directory.path(), &SMALL, Counted::default()).unwrap();
    let appended = (1..10_000_u64).find(|n| journal.append(&n.to_le_bytes()).is_err());
    assert_eq!(appended, Some((8 * 1024 - 24) / 8 + 1), "bounded");
    journal.close().unwrap();
    assert_eq!(
        TestJournal::open(directory.path()).records(),
        appended.unwrap() - 1
    );
}
